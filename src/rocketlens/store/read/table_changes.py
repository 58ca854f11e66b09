r"""Reads ``config/NAME.json.changes``: changes of a large table that its file may lack.

Brokers of RocketLens 0.1 appended each change of a large table to this file, and sometimes wrote
the table's file. Later versions write the table's file at each change, and only read this one.

==========================================  ======================================================
line                                        meaning
==========================================  ======================================================
``rocketlens-changes 1 SIZE CRC32``         first line: the table's file that the changes belong to
``CRC32 {"dataVersion":…,``                 a change: names that were put, with their members, and
``"put":{…},"remove":[…]}``                 names that were removed; the checksum is of the JSON
``CRC32 {"table":[SIZE,CRC32],``            a later file of the table, which has the changes of the
``"lines":N}``                              first N lines after the first one
==========================================  ======================================================

All text is ASCII. A truncated last line was never acknowledged.

If the table's file is none of these, it was written before its changes were deleted and has all of
them. If it lacks some, another program wrote it: the table is used as it is, with a warning.
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
    """The size and checksum that identify a table's file."""

    size: int
    crc32: int


def mark_of(content: bytes) -> TableMark:
    return TableMark(len(content), zlib.crc32(content))


class Change(NamedTuple):
    """Entries that were put and removed in one change."""

    data_version: Any
    put: Mapping[str, Any]
    remove: Sequence[str]


class Changes(NamedTuple):
    """The content of a file of changes; empty if there is none."""

    changes: Sequence[Change] = ()
    content: bytes = b""
    problem: str = ""
    starts: Mapping[TableMark, int] = MappingProxyType({})
    """For each file of the table: the index of the first of ``changes`` that it lacks."""

    def since(self, mark: TableMark | None) -> Sequence[Change] | None:
        """Return the changes that a file of the table lacks: all if it is damaged (``mark`` None).

        Return None if the changes do not belong to the file.
        """
        if mark is None:
            return self.changes
        start = self.starts.get(mark)
        return None if start is None else self.changes[start:]

    @property
    def names(self) -> set[str]:
        """The names that were put and not removed afterwards."""
        names: set[str] = set()
        for change in self.changes:
            names = names.union(change.put).difference(change.remove)
        return names


def changes_path(table: Path) -> Path:
    return table.with_name(f"{table.name}.changes")


def decode(content: bytes) -> Changes:
    first, *lines = content.split(b"\n")
    mark = _mark_in(first) if lines else None
    if mark is None:
        return Changes((), content, "its first line is damaged" if content else "")
    changes: list[Change] = []
    starts, indexes, damaged = {mark: 0}, [0], 0
    # The text after the last line end is empty or truncated.
    for line in lines[:-1]:
        value = _read(line)
        if isinstance(value, Change):
            changes.append(value)
        elif value is None:
            damaged += 1
        else:
            of_table, line_count = value
            starts[of_table] = indexes[min(line_count, len(indexes) - 1)]
        indexes.append(len(changes))
    problem = f"{damaged} of its {len(lines) - 1} lines are damaged" if damaged else ""
    return Changes(changes, content, problem, starts)


def read_changes(table: Path) -> Changes:
    return decode(fs.read_bytes(changes_path(table), limits.MAX_CONFIG_READ_BYTES) or b"")


def _mark_in(line: bytes) -> TableMark | None:
    fields = line.removeprefix(_BEGIN).split(b" ")
    if not line.startswith(_BEGIN) or len(fields) != 2 or len(fields[1]) != _CRC_DIGITS:
        return None
    try:
        return TableMark(int(fields[0]), int(fields[1], 16))
    except ValueError:
        return None


def _read(line: bytes) -> Change | tuple[TableMark, int] | None:
    """Parse a line after the first one: a change, or a later file and its number of lines.

    Return None if the line is damaged.
    """
    text = line[_CRC_DIGITS + 1 :]
    try:
        if line[: _CRC_DIGITS + 1] != b"%08x " % zlib.crc32(text):
            return None
        value = json.loads(text)
        if "table" in value:
            return TableMark(*map(int, value["table"])), max(0, int(value["lines"]))
        return Change(value["dataVersion"], dict(value["put"]), [*map(str, value["remove"])])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
