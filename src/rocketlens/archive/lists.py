"""What an archive has: its batches and its files, listed once for all who read it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from rocketlens.archive.files import NewFile
from rocketlens.archive.journal import ArchivedBatch, ArchiveTables
from rocketlens.archive.tables import DAY_MS, KEYS, MESSAGES, day_text

Bounds = Mapping[str, tuple[Any, Any]]
"""The least and the greatest value that columns may have, both included."""


class DataFile(NamedTuple):
    """A file of a table, and the bounds of some of its columns as the Delta log has them."""

    path: str
    day: str
    size: int
    rows: int
    bounds: Bounds

    def can_have(self, bounds: Bounds) -> bool:
        """Return whether rows within ``bounds`` can be in it."""
        return all(
            name not in self.bounds
            or (self.bounds[name][0] <= high and low <= self.bounds[name][1])
            for name, (low, high) in bounds.items()
        )


def _data_files(listed: Sequence[Mapping[str, Any]]) -> list[DataFile]:
    """Return files as `ArchiveTables.files` lists them: all with the same columns."""
    columns = listed[0] if listed else ()
    bounded = [
        (each.removeprefix("min."), each, f"max.{each.removeprefix('min.')}")
        for each in columns
        if each.startswith("min.")
    ]
    return [
        DataFile(
            file["path"],
            str(file["partition.day"]),
            file["size_bytes"],
            file["num_records"],
            {name: (file[low], file[high]) for name, low, high in bounded if file[low] is not None},
        )
        for file in listed
    ]


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

    @property
    def sources(self) -> list[tuple[str, list[ArchivedBatch]]]:
        """The batches of each source, by its name."""
        of_source: dict[str, list[ArchivedBatch]] = {}
        for batch in self.batches:
            of_source.setdefault(batch.source, []).append(batch)
        return sorted(of_source.items())


class _Lists(NamedTuple):
    """What an archive had at versions of its tables."""

    versions: tuple[int, ...]
    listing: Listing
    keys: list[DataFile]
    first_ms: int
    problems: list[str]
    """Lines on tables that do not have what the journal says."""


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
                    if self._newest.problems:
                        # A commit may have come after one table was read, and before the other.
                        self.tables.refresh()
                        self._newest = self._list()
            return self._newest

    def at(self, version: int) -> Listing:
        """Return what the archive had at a version of its table of messages.

        :raises ArchiveError: if it does not have that version any more.
        """
        with self._lock:
            table = self.tables.messages_at(version)
            files = _data_files(self.tables.files_of(table, MESSAGES))
            return Listing(version, self.tables.batches(table), files)

    def _versions(self) -> tuple[int, ...]:
        tables = (self.tables.journal, self.tables.messages, self.tables.keys)
        return tuple(each.version() for each in tables)

    def _list(self) -> _Lists:
        versions, day, batches = self._versions(), self.tables.first_day, self.tables.batches()
        files, keys = (_data_files(self.tables.files(each)) for each in (MESSAGES, KEYS))
        self.tables.check_files(batches, {each.path: each[1:] for each in (*files, *keys)})
        listing = Listing(self.tables.messages.version(), batches, files)
        keys += (self._new_file(each) for each in self.tables.missing_keys(batches))
        problems = [*self._problems(MESSAGES, files, day), *self._problems(KEYS, keys, day)]
        first_ms = -(1 << 63) if day is None else day * DAY_MS
        return _Lists(versions, listing, keys, first_ms, problems)

    def _problems(self, table: str, files: list[DataFile], first: int | None) -> Iterator[str]:
        """Yield a line for each day of which a table has other rows than batches added to it.

        ``first``: the first day that is kept.
        """
        there: Counter[str] = Counter()
        for file in files:
            there[file.day] += file.rows
        added = self.tables.added_rows[table]
        for day in sorted({*there, *added}):
            is_kept = first is None or day >= day_text(first)
            if is_kept and there[day] != added[day]:
                yield (
                    f"{table} has {there[day]} rows of {day}, and the journal {added[day]}: its "
                    "Delta log is damaged, or another program has changed this table"
                )

    def _new_file(self, file: NewFile) -> DataFile:
        bounds = {name: (low, high) for name, (low, high) in file.bounds.items()}
        return DataFile(self.tables.path(KEYS, file.path), file.day, file.size, file.rows, bounds)
