"""A table of named entries, in memory and in a file of ``config/``: topics, subscription groups.

A table is changed in memory, and ``is_changed`` says that its file is out of date. A small file is
written whole at each change. For a large one only the changes are appended to a file beside it
(:mod:`rocketlens.store.read.table_changes`); the whole table is written after a minute without a
change, when the changes are a quarter of its size, and when the broker stops. Changes are appended
meanwhile (:meth:`EntryTable.compaction`). So neither the cost of a change nor the wait for it grows
with the table.
"""

import json
import logging
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, ClassVar, Final, Generic, TypeVar

from rocketlens import limits
from rocketlens.broker.tables.config_table import ConfigFile, TableVersion, encoded, table_of
from rocketlens.errors import BadInput, ConfigError
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.table_changes import (
    Change,
    Changes,
    Compaction,
    TableMark,
    changes_path,
    encode_change,
    encode_compaction,
    encode_first,
    mark_of,
    read_changes,
    without_first,
)

MAX_CONFIG_ENTRY_BYTES: Final = 64 * 1024
"""Largest topic or group in its table, in bytes, with members of newer versions. RocketMQ: none."""
_log: Final = logging.getLogger(__name__)

E = TypeVar("E")

FIXED_BYTES: Final = 1024 * 1024
"""Bytes reserved for the members of a table other than its entries."""
WRITTEN_WHOLE_BYTES: Final = 1024 * 1024
"""Files up to this size are written whole at each change, in some 10 ms."""
QUIET_MS: Final = 60_000
"""Milliseconds without a change after which a large file is written whole."""
_SHARE: Final = 4
"""It is also written whole when the changes are larger than this fraction of it.

If they are larger than twice that, because it could not be written, they wait for it.
"""
_MAX_CHANGES_KEPT: Final = 10_000
"""Number of last changes that are remembered, for callers that announce only changes."""
_BETWEEN: Final = b",\n"
_SHOWN: Final = 300
_NAMED: Final = 5


class EntryTable(ABC, Generic[E]):
    """The entries of a table, by name. No entry is changed in place."""

    FILE: ClassVar[str]
    MEMBER: ClassVar[str]
    """Name of the last member of the file, which has the entries."""

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file, and the changes since it was written.

        :raises ConfigError: if it is larger than the bound for reading.
        """
        self._file: Final = ConfigFile(layout.config / self.FILE, disk)
        self._disk: Final = disk
        self._clock: Final = clock
        value = self._file.read()
        self.entries: Final[dict[str, E]] = table_of(value.get(self.MEMBER), self.decode_entry)
        self.data_version = TableVersion.decode(value.get("dataVersion"), clock())
        self.is_changed = False
        self._sizes: Final[dict[str, int]] = {}
        """Bytes of the entries that were put."""
        self._bytes = self._file.read_bytes
        self._unsaved: dict[str, None] = {}
        self._appended_ms = clock()
        self._writing: Final = threading.Lock()
        """Held while the table's file is written."""
        self._times_whole = 0
        """How often the whole table was written without a compaction."""
        self._others: Final = {
            name: member
            for name, member in value.items()
            if name not in (self.MEMBER, "dataVersion")
        }
        changes = read_changes(self._file.path)
        self._changes: Final = ChangesFile(self._file, disk, changes)
        self._take_changes(changes)
        self._changed_at: dict[str, int] = {}
        self._changes_from = self.data_version.counter

    @abstractmethod
    def decode_entry(self, value: Any) -> E | None:
        """Return the entry that a member of the table is, or None if it is not one."""

    @abstractmethod
    def encode_entry(self, entry: E) -> dict[str, Any]:
        """Return the JSON object that RocketMQ writes for an entry."""

    def entry_text(self, name: str, entry: E) -> bytes:
        """Return the bytes of an entry in the file."""
        # Cut the two opening braces with their line ends, and those that close them.
        content = encoded({"": {name: self.encode_entry(entry)}})
        return content[len('{\n\t"":{\n') : -len("\n\t}\n}")]

    def put_all(self, entries: Mapping[str, E]) -> None:
        """Add or replace entries, all of them or none, as one change.

        :raises BadInput: if one entry or the table would be too large; nothing is changed then.
        """
        sizes = {name: len(self.entry_text(name, entry)) for name, entry in entries.items()}
        total = self._bytes
        for name, size in sizes.items():
            if size > MAX_CONFIG_ENTRY_BYTES:
                raise BadInput(
                    f"{name[:_SHOWN]!r} in {self.FILE} has {size} bytes, "
                    f"{MAX_CONFIG_ENTRY_BYTES} are allowed"
                )
            total += size + len(_BETWEEN) - self._size_of(name)
        if total > limits.MAX_CONFIG_BYTES - FIXED_BYTES:
            raise BadInput(f"{self.FILE} is full: it has {self._bytes} bytes")
        self._bytes = total
        self._sizes.update({name: size + len(_BETWEEN) for name, size in sizes.items()})
        self.entries.update(entries)
        self._changed(entries)

    def _size_of(self, name: str) -> int:
        """Return the bytes of an entry in the file; 0 if there is none."""
        entry = self.entries.get(name)
        if entry is None:
            return 0
        size = self._sizes.get(name)
        return len(self.entry_text(name, entry)) + len(_BETWEEN) if size is None else size

    def take_out(self, name: str) -> E | None:
        """Remove an entry; return it, or None if there is none."""
        self._bytes -= self._size_of(name)
        self._sizes.pop(name, None)
        removed = self.entries.pop(name, None)
        if removed is not None:
            self._changed({name: None})
        return removed

    def changed_since(self, counter: int) -> list[str] | None:
        """Return the names changed after a counter of changes; None if that is not known any
        more.
        """
        if not self._changes_from <= counter <= self.data_version.counter:
            return None
        changed_at = self._changed_at
        return list(takewhile(lambda name: changed_at[name] > counter, reversed(changed_at)))

    def value(self) -> dict[str, Any]:
        """Return the table as the JSON object that RocketMQ writes."""
        entries = {name: self.encode_entry(entry) for name, entry in self.entries.items()}
        return {**self._head(), self.MEMBER: entries}

    def snapshot(self) -> Callable[[], None]:
        """Return a function that writes the current table, or its changes, in any thread.

        The function raises OSError if it cannot write.
        """
        changed, self._unsaved = self._unsaved, {}
        if not self._may_append(changed):
            return self._whole()
        version = self.data_version.encode()
        put = {name: self.entries[name] for name in changed if name in self.entries}
        remove = [name for name in changed if name not in self.entries]

        def append() -> None:
            if changed:
                entries = {name: self.encode_entry(entry) for name, entry in put.items()}
                self._changes.append(encode_change(Change(version, entries, remove)))
                self._appended_ms = self._clock()
            # The table's file does not have these entries yet.
            self.is_changed |= self._changes.size > 0

        return append

    def compaction(self) -> Callable[[], None] | None:
        """Return a function that writes a large table whole, in any thread, while changes are
        appended.

        None if the changes are few and recent. The function raises OSError if it cannot write.
        """
        mark, size = self._file.mark, self._changes.size
        if mark is None or not size or self._changes.is_broken:
            return None
        is_quiet = not self._unsaved and self._clock() - self._appended_ms >= QUIET_MS
        if size * _SHARE <= mark.size and not is_quiet:
            return None
        # A line that is just being appended is not counted: the table then has its change twice.
        line_count, times_whole = self._changes.line_count, self._times_whole
        head, entries = self._head(), dict(self.entries)

        def compact() -> None:
            content = self._content(head, entries)
            compaction = Compaction(mark_of(content), line_count)
            with self._writing:
                # The whole table was written after this one was copied, or has to be.
                if times_whole == self._times_whole and self._changes.announce(compaction):
                    self._file.write_content(content)
                    self._changes.remove_first(line_count)

        return compact

    def save(self) -> None:
        """Write the whole table now.

        :raises OSError: if it cannot be written.
        """
        self._unsaved = {}
        self._whole()()
        self.is_changed = False

    def _head(self) -> dict[str, Any]:
        """Return the members before the entries."""
        return {"dataVersion": self.data_version.encode(), **self._others}

    def _changed(self, names: Mapping[str, Any]) -> None:
        self.data_version.next(self._clock())
        self.is_changed = True
        for name in names:
            self._unsaved[name] = None
            self._changed_at.pop(name, None)
            self._changed_at[name] = self.data_version.counter
        while len(self._changed_at) > _MAX_CHANGES_KEPT:
            self._changes_from = self._changed_at.pop(next(iter(self._changed_at)))

    def _may_append(self, changed: Mapping[str, None]) -> bool:
        """Return whether the file is large, and the changes are few, so that they are appended."""
        mark = self._file.mark
        if self._changes.is_broken or mark is None or mark.size <= WRITTEN_WHOLE_BYTES:
            return False
        is_small = self._changes.size * _SHARE <= 2 * mark.size
        return is_small and len(changed) * _SHARE <= len(self.entries)

    def _whole(self) -> Callable[[], None]:
        head, entries = self._head(), dict(self.entries)

        def write() -> None:
            content = self._content(head, entries)
            with self._writing:
                self._times_whole += 1
                self._changes.is_broken = True
                self._file.write_content(content)
                self._changes.remove()

        return write

    def _content(self, head: dict[str, Any], entries: dict[str, E]) -> bytes:
        if not entries:
            return encoded({**head, self.MEMBER: {}})
        texts = [self.entry_text(name, entry) for name, entry in entries.items()]
        member = json.dumps(self.MEMBER).encode()
        # Insert before the line end and brace that close the head's last member.
        start = encoded(head)[: -len("\n}")]
        return b"%s,\n\t%s:{\n%s\n\t}\n}" % (start, member, _BETWEEN.join(texts))

    def _take_changes(self, file: Changes) -> None:
        """Apply the changes since the file was written; log damaged ones."""
        put: set[str] = set()
        for change in file.changes:
            put = put.union(change.put).difference(change.remove)
        changes = file.since(self._file.mark)
        for change in changes or ():
            self.entries.update(table_of(change.put, self.decode_entry))
            for name in change.remove:
                self.entries.pop(name, None)
            self.data_version = TableVersion.decode(change.data_version, self._clock())
        if changes:
            self._bytes += len(file.content)
        self.is_changed = bool(file.content)
        lost = sorted(name for name in put if name not in self.entries) if changes is None else []
        problem = file.problem
        if lost:
            named = ", ".join(repr(name[:_SHOWN]) for name in lost[:_NAMED])
            problem = (
                f"{self.FILE} was written by another program, and lacks {len(lost)} "
                f"that were made before: {named}"
            )
        if problem:
            self._keep_aside(file.content)
            _log.warning("%s: %s; it is kept aside", self._changes.path, problem)

    def _keep_aside(self, content: bytes) -> None:
        name = f"{self._changes.path.name}.{zlib.crc32(content):08x}"
        aside = StoreLayout(self._file.path.parents[1]).aside / name
        if not aside.exists():
            self._disk.write_durably(aside, content)


class ChangesFile:
    """The file of changes beside the file of a table.

    Changes are appended in one thread while another writes the table's file. A lock orders what
    both do to the file of changes, and is held no longer than it takes to write and sync a few.
    """

    def __init__(self, table: ConfigFile, disk: Disk, changes: Changes) -> None:
        """Continue the file with ``changes``, as it was read."""
        self.path: Final = changes_path(table.path)
        self._table: Final = table
        self._disk: Final = disk
        self._lock: Final = threading.Lock()
        self._exists = bool(changes.content)
        is_of_table = table.mark is not None and changes.since(table.mark) is not None
        is_sound = is_of_table and changes.content.endswith(b"\n") and not changes.problem
        self.is_broken = self._exists and not is_sound
        """Whether nothing can be appended until the table is written: lines behind a cut line could
        not be read.
        """
        self.size = len(changes.content) if is_sound else 0
        """Bytes of the file; 0 if there is none that belongs to the table's file."""
        self.line_count = changes.content.count(b"\n") - 1 if self.size else 0
        """Lines behind the first one."""

    def append(self, line: bytes) -> None:
        """Append a line durably.

        :raises OSError: if it may not be on the disk; nothing can be appended then.
        """
        with self._lock:
            self._append(line)

    def announce(self, compaction: Compaction) -> bool:
        """Name a file that is about to become the table's; return False if that is not possible.

        :raises OSError: as :meth:`append`.
        """
        with self._lock:
            if self.is_broken:
                return False
            self._append(encode_compaction(compaction))
        return True

    def remove_first(self, line_count: int) -> None:
        """Remove the first lines, whose changes the table's file has now.

        :raises OSError: if the disk fails; nothing can be appended then.
        """
        with self._lock, self._broken_by_failure():
            content = fs.read_bytes(self.path, limits.MAX_CONFIG_READ_BYTES) or b""
            later = without_first(content, line_count)
            if later:
                later = encode_first(self._mark()) + later
                self._disk.write_durably(self.path, later)
                self.size, self.line_count = len(later), later.count(b"\n") - 1
            else:
                self._remove()

    def remove(self) -> None:
        """Remove the file after the whole table was written.

        :raises OSError: if it cannot be removed.
        """
        with self._lock:
            self._remove()
            self.is_broken = False

    def _mark(self) -> TableMark:
        if self._table.mark is None:
            raise ConfigError(f"{self._table.path} has no sound content, so it has no changes")
        return self._table.mark

    @contextmanager
    def _broken_by_failure(self) -> Iterator[None]:
        # Not before it fails: the event loop asks meanwhile whether it can append.
        try:
            yield
        except BaseException:
            self.is_broken = True
            raise

    def _append(self, line: bytes) -> None:
        self._exists = True
        with self._broken_by_failure():
            if self.size:
                self._disk.append_durably(self.path, line)
            else:
                line = encode_first(self._mark()) + line
                self._disk.write_durably(self.path, line)
        self.size += len(line)
        self.line_count += 1

    def _remove(self) -> None:
        self.size = self.line_count = 0
        if self._exists:
            self._disk.remove_file(self.path)
            self._exists = False
