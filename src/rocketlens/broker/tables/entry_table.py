"""A table of named entries, in memory and in a file of ``config/``: topics, subscription groups.

A table is changed in memory, and ``is_changed`` says that its file does not have all of it. A small
file is written whole with each change. Of a large one only what changed is appended to a file
beside it (:mod:`rocketlens.store.read.table_changes`), and all of it is written when nothing
changed for a minute, when the changes are a quarter of it, and when the broker stops: so what a
change costs does not grow with the table.
"""

import json
import logging
import zlib
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, ClassVar, Final, Generic, TypeVar

from rocketlens import limits
from rocketlens.broker.tables.config_table import ConfigFile, TableVersion, encoded, table_of
from rocketlens.errors import BadInput
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.table_changes import (
    Change,
    Changes,
    changes_path,
    encode_change,
    encode_first,
    read_changes,
)

_log: Final = logging.getLogger(__name__)

E = TypeVar("E")

FIXED_BYTES: Final = 1024 * 1024
"""Room kept for what is in a table beside its entries."""
WRITTEN_WHOLE_BYTES: Final = 1024 * 1024
"""Files up to this size are written whole with each change, in some 10 ms."""
QUIET_MS: Final = 60_000
"""Milliseconds without a change after which a large file is written whole."""
_SHARE: Final = 4
"""It is also written whole when the changes have grown to one of so many parts of it."""
_TOLD: Final = 10_000
"""Names that changed last and are remembered, for who tells changes alone."""
_BETWEEN: Final = b",\n"
_SHOWN: Final = 300
_NAMED: Final = 5


class EntryTable(Generic[E]):
    """The entries of a table, by name. None of them is changed in place."""

    FILE: ClassVar[str]
    MEMBER: ClassVar[str]
    """The member of the file that has the entries; it is the last one."""

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file, and what changed since it was written.

        :raises ConfigError: when it is larger than any that is read.
        """
        self._file: Final = ConfigFile(layout.config / self.FILE, disk)
        self._changes_path: Final = changes_path(self._file.path)
        self._disk: Final = disk
        self._clock: Final = clock
        value = self._file.read()
        self.entries: Final[dict[str, E]] = table_of(value.get(self.MEMBER), self.decode_entry)
        self.data_version = TableVersion.decode(value.get("dataVersion"), clock())
        self.is_changed = False
        self._sizes: Final[dict[str, int]] = {}
        """Bytes of the entries that were put; of those that were read it is not known."""
        self._bytes = self._file.read_bytes
        self._unsaved: dict[str, None] = {}
        self._changes_bytes = 0
        """Size of the file of changes; 0 where there is none that belongs to the table's file."""
        self._has_changes_file = False
        """Whether there is one, of use or not."""
        self._writes_whole = False
        self._appended_ms = 0
        self._others: Final = {
            name: member
            for name, member in value.items()
            if name not in (self.MEMBER, "dataVersion")
        }
        self._take_changes(read_changes(self._file.path))
        self._told: dict[str, int] = {}
        self._told_from = self.data_version.counter

    def decode_entry(self, value: Any) -> E | None:
        """Return the entry that a member of the table is, or None if it is not one."""
        raise NotImplementedError

    def encode_entry(self, entry: E) -> dict[str, Any]:
        """Return an entry as RocketMQ writes it."""
        raise NotImplementedError

    def entry_text(self, name: str, entry: E) -> bytes:
        """Return an entry as it stands in the file."""
        # Behind the two braces with their line ends, and before those that close them.
        content = encoded({"": {name: self.encode_entry(entry)}})
        return content[len('{\n\t"":{\n') : -len("\n\t}\n}")]

    def put_all(self, entries: Mapping[str, E]) -> None:
        """Add or replace entries, all of them or none: one change, however many.

        :raises BadInput: when one is too large, or the table would be; nothing is changed then.
        """
        sizes = {name: len(self.entry_text(name, entry)) for name, entry in entries.items()}
        total = self._bytes
        for name, size in sizes.items():
            if size > limits.MAX_CONFIG_ENTRY_BYTES:
                raise BadInput(
                    f"{name[:_SHOWN]!r} in {self.FILE} has {size} bytes, "
                    f"{limits.MAX_CONFIG_ENTRY_BYTES} are allowed"
                )
            total += size + len(_BETWEEN) - self._sizes.get(name, 0)
        if total > limits.MAX_CONFIG_BYTES - FIXED_BYTES:
            raise BadInput(f"{self.FILE} is full: it has {self._bytes} bytes")
        self._bytes = total
        self._sizes.update({name: size + len(_BETWEEN) for name, size in sizes.items()})
        self.entries.update(entries)
        self._changed(entries)

    def take_out(self, name: str) -> E | None:
        """Remove an entry; return what it was, or None if there is none."""
        removed = self.entries.pop(name, None)
        self._bytes -= self._sizes.pop(name, 0)
        if removed is not None:
            self._changed({name: None})
        return removed

    def changed_since(self, counter: int) -> list[str] | None:
        """Return the names that changed after a count of changes; None when that is not known."""
        if not self._told_from <= counter <= self.data_version.counter:
            return None
        return list(takewhile(lambda name: self._told[name] > counter, reversed(self._told)))

    def value(self) -> dict[str, Any]:
        """Return all of it as RocketMQ writes it."""
        entries = {name: self.encode_entry(entry) for name, entry in self.entries.items()}
        return {**self._head(), self.MEMBER: entries}

    def snapshot(self) -> Callable[[], None]:
        """Take the table of now; what is returned writes it, or what changed, in any thread.

        That raises OSError when it cannot be written.
        """
        changed, self._unsaved = self._unsaved, {}
        if not self._may_append(changed):
            return self._whole()
        version = self.data_version.encode()
        put = {
            name: self.encode_entry(self.entries[name]) for name in changed if name in self.entries
        }
        remove = [name for name in changed if name not in self.entries]

        def append() -> None:
            if changed:
                self._append(encode_change(Change(version, put, remove)))
            # The table's own file does not have that yet.
            self.is_changed |= self._changes_bytes > 0

        return append

    def save(self) -> None:
        """Write all of it now.

        :raises OSError: when it cannot be written.
        """
        self._unsaved = {}
        self._whole()()
        self.is_changed = False

    def _head(self) -> dict[str, Any]:
        """Return the members that stand before the entries."""
        return {"dataVersion": self.data_version.encode(), **self._others}

    def _changed(self, names: Mapping[str, Any]) -> None:
        self.data_version.next(self._clock())
        self.is_changed = True
        for name in names:
            self._unsaved[name] = None
            self._told.pop(name, None)
            self._told[name] = self.data_version.counter
        while len(self._told) > _TOLD:
            self._told_from = self._told.pop(next(iter(self._told)))

    def _may_append(self, changed: Mapping[str, None]) -> bool:
        """Return whether the file is large enough, and the changes are few and fresh enough."""
        mark = self._file.mark
        if self._writes_whole or mark is None or mark.size <= WRITTEN_WHOLE_BYTES:
            return False
        if self._changes_bytes * _SHARE > mark.size or len(changed) * _SHARE > len(self.entries):
            return False
        is_quiet = not changed and self._clock() - self._appended_ms >= QUIET_MS
        return not is_quiet

    def _append(self, line: bytes) -> None:
        mark = self._file.mark
        assert mark is not None  # noqa: S101 - it is asked for before
        # Whatever is appended behind a line that was cut could not be read.
        self._writes_whole = self._has_changes_file = True
        if self._changes_bytes:
            self._disk.append_durably(self._changes_path, line)
        else:
            line = encode_first(mark) + line
            self._disk.write_durably(self._changes_path, line)
        self._changes_bytes += len(line)
        self._appended_ms = self._clock()
        self._writes_whole = False

    def _whole(self) -> Callable[[], None]:
        head, entries = self._head(), dict(self.entries)

        def write() -> None:
            self._writes_whole = True
            self._file.write_content(self._content(head, entries))
            self._changes_bytes = 0
            if self._has_changes_file:
                self._disk.remove_file(self._changes_path)
                self._has_changes_file = False
            self._writes_whole = False

        return write

    def _content(self, head: dict[str, Any], entries: dict[str, E]) -> bytes:
        if not entries:
            return encoded({**head, self.MEMBER: {}})
        texts = [self.entry_text(name, entry) for name, entry in entries.items()]
        member = json.dumps(self.MEMBER).encode()
        # Behind the head's last member, without the line end and brace that close it.
        begin = encoded(head)[: -len("\n}")]
        return b"%s,\n\t%s:{\n%s\n\t}\n}" % (begin, member, _BETWEEN.join(texts))

    def _take_changes(self, found: Changes) -> None:
        """Apply what changed since the file was written, and tell what is wrong with it."""
        put: set[str] = set()
        for change in found.changes:
            put = put.union(change.put).difference(change.remove)
        belongs = found.mark == self._file.mark or self._file.mark is None
        if found.mark is not None and belongs:
            for change in found.changes:
                self.entries.update(table_of(change.put, self.decode_entry))
                for name in change.remove:
                    self.entries.pop(name, None)
                self.data_version = TableVersion.decode(change.data_version, self._clock())
            self._bytes += len(found.content)
        self.is_changed = self._has_changes_file = bool(found.content)
        is_sound = found.mark == self._file.mark and found.content.endswith(b"\n")
        if is_sound and not found.problem:
            self._changes_bytes, self._appended_ms = len(found.content), self._clock()
        else:
            self._writes_whole = bool(found.content)
        lost = sorted(name for name in put if name not in self.entries) if not belongs else []
        problem = found.problem
        if lost:
            named = ", ".join(repr(name[:_SHOWN]) for name in lost[:_NAMED])
            problem = (
                f"{self.FILE} was written by another program, and lacks {len(lost)} "
                f"that were made before: {named}"
            )
        if problem:
            self._keep_aside(found.content)
            _log.warning("%s: %s; it is kept aside", self._changes_path, problem)

    def _keep_aside(self, content: bytes) -> None:
        name = f"{self._changes_path.name}.{zlib.crc32(content):08x}"
        aside = StoreLayout(self._file.path.parents[1]).aside / name
        if not aside.exists():
            self._disk.write_durably(aside, content)
