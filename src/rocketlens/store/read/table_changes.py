r"""``config/NAME.json.changes``: what changed in a large table since its file was written.

To write a table of 100,000 topics for each new one would take longer than the message it is made
for. So a change is appended here, and synced, before it is answered, and the table itself is
written now and then, and when the broker stops. RocketMQ does not know this file.

==========================================  ======================================================
line                                        meaning
==========================================  ======================================================
``rocketlens-changes 1 SIZE CRC32``         the first: the file to which the changes belong
``CRC32 {"dataVersion":…,``                 a change: names that were put, with their members, and
``"put":{…},"remove":[…]}``                 names that were removed; the checksum is of the JSON
==========================================  ======================================================

All is ASCII. A last line that is cut was never acknowledged. Where the table's file is another one
than the first line says, the changes are in it already: it is written before they are deleted. If
some are not, another program has written it, and the table is taken as it is, with a warning.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.store import fs

_BEGIN: Final = b"rocketlens-changes 1 "
_CRC_DIGITS: Final = 8


class TableMark(NamedTuple):
    """What a table's file is recognized by."""

    size: int
    crc32: int


def mark_of(content: bytes) -> TableMark:
    """Return the mark of a file's content."""
    return TableMark(len(content), zlib.crc32(content))


class Change(NamedTuple):
    """What was put and removed at once."""

    data_version: Any
    put: Mapping[str, Any]
    remove: Sequence[str]


class Changes(NamedTuple):
    """What a file of changes says."""

    mark: TableMark | None
    """The file that they belong to; None where there are none."""
    changes: Sequence[Change] = ()
    content: bytes = b""
    problem: str = ""
    """What is damaged in it."""


NO_CHANGES: Final = Changes(None)


def changes_path(table: Path) -> Path:
    """Return the file of changes beside a table's file."""
    return table.with_name(f"{table.name}.changes")


def encode_first(mark: TableMark) -> bytes:
    """Return the first line."""
    return b"%s%d %08x\n" % (_BEGIN, mark.size, mark.crc32)


def encode_change(change: Change) -> bytes:
    """Return a line for a change."""
    value = {"dataVersion": change.data_version, "put": change.put, "remove": list(change.remove)}
    line = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(line), line)


def decode(content: bytes) -> Changes:
    """Read the content of such a file; O(n)."""
    first, *lines = content.split(b"\n")
    mark = _mark_in(first) if lines else None
    if mark is None:
        return Changes(None, (), content, "its first line is damaged" if content else "")
    # What is behind the last line end is empty, or was cut.
    read = [_change_in(line) for line in lines[:-1]]
    problem = f"{read.count(None)} of its {len(read)} lines are damaged" if None in read else ""
    return Changes(mark, [change for change in read if change is not None], content, problem)


def read_changes(table: Path) -> Changes:
    """Read the changes of a table; none where there is no such file.

    :raises OSError: when it is there and cannot be read now.
    """
    content = fs.read_bytes(changes_path(table), limits.MAX_CONFIG_READ_BYTES)
    return decode(content) if content else NO_CHANGES


def changed_names(table: Path) -> set[str]:
    """Return the names that were put into a table since its file was written, as far as known."""
    try:
        return {name for change in read_changes(table).changes for name in change.put}
    except OSError:
        return set()


def _mark_in(line: bytes) -> TableMark | None:
    words = line.removeprefix(_BEGIN).split(b" ")
    if not line.startswith(_BEGIN) or len(words) != 2 or len(words[1]) != _CRC_DIGITS:
        return None
    try:
        return TableMark(int(words[0]), int(words[1], 16))
    except ValueError:
        return None


def _change_in(line: bytes) -> Change | None:
    text = line[_CRC_DIGITS + 1 :]
    try:
        if int(line[:_CRC_DIGITS], 16) != zlib.crc32(text):
            return None
        value = json.loads(text)
        return Change(value["dataVersion"], dict(value["put"]), [*map(str, value["remove"])])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
