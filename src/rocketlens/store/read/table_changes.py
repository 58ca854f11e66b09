r"""``config/NAME.json.changes``: the changes of a large table since its file was written.

To write a table of 100,000 topics for each new one would take longer than the message it is made
for. So a change is appended here, and synced, before it is answered, and the table itself is
written now and then, and when the broker stops. RocketMQ does not know this file.

==========================================  ======================================================
line                                        meaning
==========================================  ======================================================
``rocketlens-changes 1 SIZE CRC32``         the first: the file to which the changes belong
``CRC32 {"dataVersion":…,``                 a change: names that were put, with their members, and
``"put":{…},"remove":[…]}``                 names that were removed; the checksum is of the JSON
``CRC32 {"table":[SIZE,CRC32],``            another file, which may be the table's now, has the
``"lines":N}``                              changes of the first N lines behind the first one
==========================================  ======================================================

All is ASCII. A last line that is cut was never acknowledged.

The table's file is written while changes are appended here. So before it gets its name, a line says
which changes it has: whether the power goes before or after, the table is its file and the changes
that the file lacks. Where the table's file is none of those named here, all changes are in it
already: it is written before they are deleted. If some are not, another program has written it, and
the table is taken as it is, with a warning.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.store import fs

_BEGIN: Final = b"rocketlens-changes 1 "
_CRC_DIGITS: Final = 8


class TableMark(NamedTuple):
    """Identifies a table's file."""

    size: int
    crc32: int


def mark_of(content: bytes) -> TableMark:
    """Return the mark of a file's content."""
    return TableMark(len(content), zlib.crc32(content))


class Change(NamedTuple):
    """Entries that were put and removed in one change."""

    data_version: Any
    put: Mapping[str, Any]
    remove: Sequence[str]


class Compaction(NamedTuple):
    """A file of the table that has the changes of the first ``lines`` lines."""

    mark: TableMark
    lines: int


class Changes(NamedTuple):
    """The content of a file of changes."""

    mark: TableMark | None
    """The file that they belong to; None where there are none."""
    changes: Sequence[Change] = ()
    content: bytes = b""
    problem: str = ""
    """Damage of the file."""
    starts: Mapping[TableMark, int] = MappingProxyType({})
    """By file of the table: the index of the first of ``changes`` that it lacks."""

    def since(self, mark: TableMark | None) -> Sequence[Change] | None:
        """Return the changes that a file of the table lacks: all if it is damaged (None).

        None if they do not belong to that file.
        """
        if mark is None:
            return self.changes
        start = self.starts.get(mark)
        return None if start is None else self.changes[start:]


NO_CHANGES: Final = Changes(None)


def changes_path(table: Path) -> Path:
    """Return the file of changes beside a table's file."""
    return table.with_name(f"{table.name}.changes")


def encode_first(mark: TableMark) -> bytes:
    """Return the first line."""
    return b"%s%d %08x\n" % (_BEGIN, mark.size, mark.crc32)


def encode_change(change: Change) -> bytes:
    """Return a line for a change."""
    # One entry after the other, as a call of the encoder keeps other threads from running.
    put = ",".join(f"{json.dumps(name)}:{_dumps(entry)}" for name, entry in change.put.items())
    version, remove = _dumps(change.data_version), _dumps(list(change.remove))
    return _line(f'{{"dataVersion":{version},"put":{{{put}}},"remove":{remove}}}')


def encode_compaction(compaction: Compaction) -> bytes:
    """Return the line that names another file of the table."""
    return _line(_dumps({"table": list(compaction.mark), "lines": compaction.lines}))


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _line(text: str) -> bytes:
    line = text.encode()
    return b"%08x %s\n" % (zlib.crc32(line), line)


def decode(content: bytes) -> Changes:
    """Parse a file of changes; O(n)."""
    first, *lines = content.split(b"\n")
    mark = _mark_in(first) if lines else None
    if mark is None:
        return Changes(None, (), content, "its first line is damaged" if content else "")
    # Text behind the last line end is empty, or was cut.
    read = [_read(line) for line in lines[:-1]]
    damaged = read.count(None)
    problem = f"{damaged} of its {len(read)} lines are damaged" if damaged else ""
    changes: list[Change] = []
    starts, indexes = {mark: 0}, [0]
    for each in read:
        if isinstance(each, Compaction):
            starts[each.mark] = indexes[min(each.lines, len(indexes) - 1)]
        elif each is not None:
            changes.append(each)
        indexes.append(len(changes))
    return Changes(mark, changes, content, problem, starts)


def without_first(content: bytes, line_count: int) -> bytes:
    """Return the changes in a file behind its first ``line_count`` lines, damaged ones, too."""
    lines = content.split(b"\n")[1 + line_count : -1]
    later = [line for line in lines if not isinstance(_read(line), Compaction)]
    return b"".join(line + b"\n" for line in later)


def read_changes(table: Path) -> Changes:
    """Read the changes of a table; empty if there is no such file.

    :raises OSError: when it is there and cannot be read now.
    """
    content = fs.read_bytes(changes_path(table), limits.MAX_CONFIG_READ_BYTES)
    return decode(content) if content else NO_CHANGES


def _mark_in(line: bytes) -> TableMark | None:
    fields = line.removeprefix(_BEGIN).split(b" ")
    if not line.startswith(_BEGIN) or len(fields) != 2 or len(fields[1]) != _CRC_DIGITS:
        return None
    try:
        return TableMark(int(fields[0]), int(fields[1], 16))
    except ValueError:
        return None


def _read(line: bytes) -> Change | Compaction | None:
    """Parse a line behind the first one; None if it is damaged."""
    text = line[_CRC_DIGITS + 1 :]
    try:
        if line[: _CRC_DIGITS + 1] != b"%08x " % zlib.crc32(text):
            return None
        value = json.loads(text)
        if "table" in value:
            return Compaction(TableMark(*map(int, value["table"])), max(0, int(value["lines"])))
        return Change(value["dataVersion"], dict(value["put"]), [*map(str, value["remove"])])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
