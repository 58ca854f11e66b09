"""A table of named entries in memory, and its file in ``config/``: topics, groups, users, policies.

Changes are made in memory; ``is_changed`` means that the file is out of date. Each save writes the
whole file. The encoded bytes of each entry are cached, so saving 150,000 topics costs only the
writing of 40 MB.

An earlier version appended changes of a large table to a second file
(:mod:`rocketlens.store.read.table_changes`). That file is read once, and removed after the next
save.
"""

import json
import logging
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, ClassVar, Final, Generic, TypeVar

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.broker.tables.config_table import ConfigFile, encode_table, table_of, version_in
from rocketlens.broker.tables.table_saver import Table
from rocketlens.errors import BadInput
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.table_changes import Changes, changes_path, read_changes
from rocketlens.wire.declare import members_of

MAX_CONFIG_ENTRY_BYTES: Final = 64 * 1024
"""Bytes of a topic or group in its table, with unknown members. RocketMQ: no limit."""
_log: Final = logging.getLogger(__name__)

E = TypeVar("E")

FIXED_BYTES: Final = 1024 * 1024
"""Bytes reserved for the members of a table other than its entries."""
_MAX_CHANGES_KEPT: Final = 10_000
"""Number of changes that `changed_since` can list."""
_BETWEEN: Final = b",\n"
_SHOWN: Final = 300
_NAMED: Final = 5


class EntryTable(Table, Generic[E]):
    """The entries of a table, by name. Entries are never modified in place."""

    FILE: ClassVar[str]
    MEMBER: ClassVar[str]
    """Name of the last member of the file, which contains the entries."""

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """:raises ConfigError: if the file exceeds the bound for reading."""
        self._file: Final = ConfigFile(layout.config / self.FILE, disk)
        self._disk: Final = disk
        self._clock: Final = clock
        value = self._file.read()
        self.entries: Final[dict[str, E]] = table_of(value.get(self.MEMBER), self.decode_entry)
        """Use the methods of this class to change them."""
        self.data_version = version_in(value, clock())
        """RocketMQ's version of the table, which brokers and name servers compare."""
        self._others: Final = {
            name: member
            for name, member in value.items()
            if name not in (self.MEMBER, "dataVersion")
        }
        changes = read_changes(self._file.path)
        self._apply(changes)
        self.is_changed = self._has_changes_file = bool(changes.content)
        self._texts: Final = {name: self._text(name, entry) for name, entry in self.entries.items()}
        """The bytes of each entry in the file."""
        self._bytes = sum(len(text) + len(_BETWEEN) for text in self._texts.values())
        self._changed_at: OrderedDict[str, int] = OrderedDict()
        self._changes_from = self.data_version.counter

    @abstractmethod
    def decode_entry(self, value: Any) -> E | None:
        """Parse a member of the file; return None if it is invalid."""

    @abstractmethod
    def encode_entry(self, entry: E) -> dict[str, Any]:
        """Return the JSON object of an entry, in RocketMQ's form."""

    def put_all(self, entries: Mapping[str, E]) -> None:
        """Add or replace entries, all or none, as one change.

        :raises BadInput: if an entry or the table would be too large.
        """
        texts = {name: self._text(name, entry) for name, entry in entries.items()}
        total = self._bytes
        for name, text in texts.items():
            if len(text) > MAX_CONFIG_ENTRY_BYTES:
                raise BadInput(
                    f"{name[:_SHOWN]!r} in {self.FILE} has {len(text)} bytes, "
                    f"{MAX_CONFIG_ENTRY_BYTES} are allowed"
                )
            total += len(text) + len(_BETWEEN) - self._size_of(name)
        if total > limits.MAX_CONFIG_BYTES - FIXED_BYTES:
            raise BadInput(f"{self.FILE} is full: it has {self._bytes} bytes")
        self._bytes = total
        self._texts.update(texts)
        self.entries.update(entries)
        self._changed(entries)

    def remove(self, name: str) -> E | None:
        self._bytes -= self._size_of(name)
        self._texts.pop(name, None)
        removed = self.entries.pop(name, None)
        if removed is not None:
            self._changed([name])
        return removed

    def changed_since(self, counter: int) -> list[str] | None:
        """Return the names changed after ``counter``; None if too many changed since."""
        if not self._changes_from <= counter <= self.data_version.counter:
            return None
        changed_at = self._changed_at
        return list(takewhile(lambda name: changed_at[name] > counter, reversed(changed_at)))

    def value(self) -> dict[str, Any]:
        entries = {name: self.encode_entry(entry) for name, entry in self.entries.items()}
        return {**self._head(), self.MEMBER: entries}

    def snapshot(self) -> Callable[[], None]:
        head, texts = self._head(), list(self._texts.values())

        def write() -> None:
            self._file.write(self._content(head, texts))
            if self._has_changes_file:
                self._disk.remove_file(changes_path(self._file.path))
                self._has_changes_file = False

        return write

    def _text(self, name: str, entry: E) -> bytes:
        # Cut the two opening braces with their line ends, and those that close them.
        content = encode_table({"": {name: self.encode_entry(entry)}})
        return content[len('{\n\t"":{\n') : -len("\n\t}\n}")]

    def _size_of(self, name: str) -> int:
        text = self._texts.get(name)
        return 0 if text is None else len(text) + len(_BETWEEN)

    def _head(self) -> dict[str, Any]:
        return {"dataVersion": members_of(self.data_version), **self._others}

    def _changed(self, names: Iterable[str]) -> None:
        version = self.data_version
        self.data_version = replace(
            version, counter=version.counter + 1, timestamp_ms=self._clock()
        )
        self.is_changed = True
        for name in names:
            self._changed_at.pop(name, None)
            self._changed_at[name] = self.data_version.counter
        while len(self._changed_at) > _MAX_CHANGES_KEPT:
            _, self._changes_from = self._changed_at.popitem(last=False)

    def _content(self, head: dict[str, Any], texts: list[bytes]) -> bytes:
        if not texts:
            return encode_table({**head, self.MEMBER: {}})
        member = json.dumps(self.MEMBER).encode()
        # Insert in front of the head's last line, the closing brace.
        start = encode_table(head)[: -len("\n}")]
        return b"%s,\n\t%s:{\n%s\n\t}\n}" % (start, member, _BETWEEN.join(texts))

    def _apply(self, file: Changes) -> None:
        changes, problem = file.since(self._file.mark), file.problem
        for change in changes or ():
            self.entries.update(table_of(change.put, self.decode_entry))
            for name in change.remove:
                self.entries.pop(name, None)
            self.data_version = version_in({"dataVersion": change.data_version}, self._clock())
        if changes is None and (lost := sorted(file.names.difference(self.entries))):
            named = ", ".join(repr(name[:_SHOWN]) for name in lost[:_NAMED])
            problem = (
                f"{self.FILE} was written by another program, and lacks {len(lost)} "
                f"earlier entries: {named}"
            )
        if problem:
            path = changes_path(self._file.path)
            self._file.keep_aside(path, file.content)
            _log.warning("%s: %s; it is kept aside", path, problem)
