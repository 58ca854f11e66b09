"""What an archive has: its batches and its files, listed once for all who read it."""

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final, NamedTuple

from rocketlens.archive.files import NewFile
from rocketlens.archive.journal import ArchivedBatch, ArchiveTables
from rocketlens.archive.tables import DAY_MS, KEYS, MESSAGES

Bounds = Mapping[str, tuple[Any, Any]]
"""The least and the greatest value that columns may have, both included."""


class DataFile(NamedTuple):
    """A file of a table, and the bounds of some of its columns as the Delta log has them."""

    path: str
    day: str
    size: int
    bounds: Bounds

    def can_have(self, bounds: Bounds) -> bool:
        """Return whether rows within ``bounds`` can be in it."""
        return all(
            name not in self.bounds
            or (self.bounds[name][0] <= high and low <= self.bounds[name][1])
            for name, (low, high) in bounds.items()
        )


def _data_file(listed: Mapping[str, Any]) -> DataFile:
    """Return a file as `ArchiveTables.files` lists it."""
    bounds = {
        name.removeprefix("min."): (low, listed[f"max.{name.removeprefix('min.')}"])
        for name, low in listed.items()
        if name.startswith("min.") and low is not None
    }
    return DataFile(listed["path"], str(listed["partition.day"]), listed["size_bytes"], bounds)


class Listing(NamedTuple):
    """What an archive had at a version of its table of messages: batches, and files of messages."""

    version: int
    batches: list[ArchivedBatch]
    messages: list[DataFile]

    def files(self, bounds: Bounds, *, newest_first: bool = False) -> list[DataFile]:
        """Return the files that can have rows within bounds, in order of time."""
        chosen = [file for file in self.messages if file.can_have(bounds)]
        if newest_first:
            return sorted(chosen, key=lambda file: -file.bounds["store_timestamp_ms"][1])
        return sorted(chosen, key=lambda file: (file.bounds["store_timestamp_ms"][0], file.path))

    @property
    def topics(self) -> set[str]:
        """The topics of the messages."""
        return {topic for batch in self.batches for topic in batch.topics}


class _Lists(NamedTuple):
    """What an archive had at versions of its tables."""

    versions: tuple[int, ...]
    listing: Listing
    keys: list[DataFile]
    first_ms: int


class ArchiveLists:
    """What an archive has, listed once for all readers of it, which may be in several threads."""

    def __init__(self, root: str) -> None:
        """Open the archive, and list what it has.

        :raises ArchiveError: if there is none, or it cannot be read.
        """
        self.root: Final = root
        self.tables: Final = ArchiveTables(root)
        self._lock: Final = Lock()
        self._newest = self._list()

    def newest(self, *, refreshed: bool = True) -> _Lists:
        """Return what there is; without ``refreshed``, what there was when this was last called."""
        with self._lock:
            if refreshed:
                self.tables.refresh()
                if self._versions() != self._newest.versions:
                    self._newest = self._list()
            return self._newest

    def at(self, version: int) -> Listing:
        """Return what the archive had at a version of its table of messages.

        :raises ArchiveError: if it does not have that version any more.
        """
        with self._lock:
            table = self.tables.messages_at(version)
            files = map(_data_file, self.tables.files_of(table, MESSAGES))
            return Listing(version, self.tables.batches(table), list(files))

    def _versions(self) -> tuple[int, ...]:
        tables = (self.tables.journal, self.tables.messages, self.tables.keys)
        return tuple(each.version() for each in tables)

    def _list(self) -> _Lists:
        versions, day = self._versions(), self.tables.first_day
        files = map(_data_file, self.tables.files(MESSAGES))
        listing = Listing(self.tables.messages.version(), self.tables.batches(), list(files))
        keys = [
            *map(_data_file, self.tables.files(KEYS)),
            *(self._new_file(each) for each in self.tables.missing_keys()),
        ]
        return _Lists(versions, listing, keys, -(1 << 63) if day is None else day * DAY_MS)

    def _new_file(self, file: NewFile) -> DataFile:
        bounds = {name: (low, high) for name, (low, high) in file.bounds.items()}
        return DataFile(self.tables.path(KEYS, file.path), file.day, file.size, bounds)
