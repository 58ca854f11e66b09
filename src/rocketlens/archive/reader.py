"""Lists the files of an archive, and reads those that can have matching rows.

It skips files and row groups by their bounds and filters. `rocketlens.archive.source` decides
whether a message matches.
"""

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from itertools import islice
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeVar
from zlib import crc32

import numpy as np

from rocketlens.archive.bloom import BLOCK_BYTES, CHECKSUMS, block_of, can_have, filter_bytes, xxh64
from rocketlens.archive.column_filter import ColumnFilter
from rocketlens.archive.files import Bounds, DataFile
from rocketlens.archive.journal import ArchivedBatch, ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.rows import SortedKeyRows
from rocketlens.archive.tables import (
    DAY_MS,
    KEYS,
    MESSAGES,
    add_missing_columns,
    check_file,
    check_values,
    columns_of,
    day_text,
    key_hash,
    message_schema,
)
from rocketlens.late import pa, pc, pq
from rocketlens.model.arrow import numbers

MAX_ARCHIVE_READS: Final = 16
"""Files in an object store that one look-up reads at once: a request takes tens of milliseconds,
most of them waiting. pyarrow opens at most 25 connections to a store.
"""
MAX_KEPT_COUNTS: Final = 100_000
"""The number of queue counts that an open archive keeps for lists of topics: 60 MB."""
_MAX_OPEN_FILES: Final = 256
_FIRST_RANK: Final = -(1 << 63)
_LAST_RANK: Final = 1 << 63
_IDENTITY: Final = ("cluster", "broker", "topic", "queue_id", "queue_offset", "physical_offset")
_TIME: Final = "store_timestamp_ms"
_CODED: Final = ("cluster", "broker", "topic", "tags", "born_host", "store_host")
_KEY_COLUMNS: Final = ("key", *_IDENTITY, _TIME)


class Listing(NamedTuple):
    """The batches and files of an archive at some ``versions`` of its tables.

    Messages are kept from ``first_ms`` on. ``problems`` are lines on tables that contradict the
    journal; they make answers incomplete.
    """

    version: int
    """The version of the table of messages."""
    batches: list[ArchivedBatch]
    messages: list[DataFile]
    keys: list[DataFile]
    versions: tuple[int, ...] = ()
    first_ms: int = -(1 << 63)
    problems: Sequence[str] = ()

    def files(self, bounds: Bounds, *, newest_first: bool = False) -> list[DataFile]:
        """Return the files that can have rows within bounds, in order of time."""
        chosen = [file for file in self.messages if file.can_have(bounds)]
        if newest_first:
            return sorted(chosen, key=lambda file: -file.bounds["store_timestamp_ms"][1])
        return sorted(chosen, key=lambda file: (file.bounds["store_timestamp_ms"][0], file.path))

    @property
    def topics(self) -> set[str]:
        return {topic for batch in self.batches for topic in batch.topics}

    @property
    def sources(self) -> list[tuple[str, list[ArchivedBatch]]]:
        """The batches of each source, sorted by its name."""
        of_source: dict[str, list[ArchivedBatch]] = {}
        for batch in self.batches:
            of_source.setdefault(batch.source, []).append(batch)
        return sorted(of_source.items())


class ArchiveLists:
    """Lists an archive once for all its readers. Thread-safe."""

    def __init__(self, root: str) -> None:
        """Open the archive and list it.

        :raises ArchiveError: if it is not an archive, or cannot be read.
        """
        self.root: Final = root
        self.tables: Final = ArchiveTables(root)
        self._lock: Final = Lock()
        self._newest = self._list()

    def newest(self, *, refreshed: bool = True) -> Listing:
        """Return the newest listing; without ``refreshed``, the one of the last call."""
        with self._lock:
            if refreshed:
                self.tables.refresh()
                if self._versions() != self._newest.versions:
                    self._newest = self._list()
                    if self._newest.problems:
                        # Another job may have committed between the reads of two tables.
                        self.tables.refresh()
                        self._newest = self._list()
            return self._newest

    def at(self, version: int) -> Listing:
        """Return the listing at a version of the messages; raise ArchiveError if it is gone."""
        with self._lock:
            table = self.tables.messages_at(version)
            files = self.tables.files_of(table, MESSAGES)
            return Listing(version, self.tables.batches(table), files, [])

    def _versions(self) -> tuple[int, ...]:
        tables = (self.tables.journal, self.tables.messages, self.tables.keys)
        return tuple(each.version() for each in tables)

    def _list(self) -> Listing:
        versions, day, batches = self._versions(), self.tables.first_day, self.tables.batches()
        files, keys = (self.tables.files(each) for each in (MESSAGES, KEYS))
        self.tables.check_files(batches, [*files, *keys])
        keys += self.tables.missing_keys(batches)
        problems = [*self._problems(MESSAGES, files, day), *self._problems(KEYS, keys, day)]
        first_ms = -(1 << 63) if day is None else day * DAY_MS
        version = self.tables.messages.version()
        return Listing(version, batches, files, keys, versions, first_ms, problems)

    def _problems(self, table: str, files: list[DataFile], first: int | None) -> Iterator[str]:
        """Yield a line for each day on which a table has more or fewer rows than batches added.

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


class ArchiveRows(NamedTuple):
    """Selects rows of message files: within bounds, and not excluded by columns.

    ``names``: the columns to read (none: all). ``begin_group``: the first row group.
    """

    bounds: Bounds
    columns: ColumnFilter
    names: tuple[str, ...] = ()
    begin_group: int = 0


class _OpenFile:
    """An open Parquet file, with the bounds of its row groups."""

    def __init__(self, location: ArchiveLocation, path: str, file: DataFile) -> None:
        self._location: Final = location
        self._path: Final = path
        self._file: Final = location.open(path)
        self.parquet: Final = location.parquet(path, self._file)
        check_file(self.parquet, file.table, path, file.rows)
        self._filters: Final[dict[int, tuple[int, int]]] = {}
        schema = self.parquet.schema
        self._columns: Final = {schema.column(n).path: n for n in range(len(schema))}
        self._table: Final = columns_of(file.table)
        self._groups: Final[dict[str, list[tuple[Any, Any] | None]]] = {}

    def groups(self, bounds: Bounds) -> list[int]:
        """Return the row groups that can have rows within bounds."""
        chosen = list(range(self.parquet.num_row_groups))
        for name, (low, high) in bounds.items():
            of_groups = self._bounds(name)
            chosen = [
                number
                for number in chosen
                if (known := of_groups[number]) is None or (known[0] <= high and low <= known[1])
            ]
        return chosen

    def times(self, group: int) -> tuple[Any, Any] | None:
        """Return the oldest and the newest store time of a row group, None if unknown."""
        return self._bounds(_TIME)[group]

    def _bounds(self, name: str) -> list[tuple[Any, Any] | None]:
        if name not in self._groups:
            metadata = self.parquet.metadata
            number = self._columns.get(name)
            statistics = (
                None if number is None else metadata.row_group(group).column(number).statistics
                for group in range(metadata.num_row_groups)
            )
            self._groups[name] = [
                (each.min, each.max) if each is not None and each.has_min_max else None
                for each in statistics
            ]
        return self._groups[name]

    def read(
        self, group: int, names: Sequence[str], parquet: "pq.ParquetFile | None" = None
    ) -> "pa.Table":
        file = self.parquet if parquet is None else parquet
        rows = file.read_row_group(group, columns=list(names), use_threads=False)
        return check_values(add_missing_columns(rows, self._table, names))

    @cached_property
    def _coded(self) -> "pq.ParquetFile":
        """The same file, with repeated texts read as dictionaries, which is faster for few rows."""
        coded = [name for name in _CODED if name in self._columns]
        metadata = self.parquet.metadata
        return self._location.parquet(self._path, self._file, coded=coded, metadata=metadata)

    def read_hash(self, group: int, hashed: int, of_filter: int) -> "pa.Table | None":
        """Return the rows of a row group of keys that have a hash; ``of_filter`` is its `xxh64`."""
        if not self._can_have(group, of_filter):
            return None
        deciding = self.read(group, ["key_hash"])
        is_in = pc.equal(deciding.column("key_hash"), numbers(np.array([hashed], np.int64))[0])
        return self._matching_rows(group, deciding, is_in, _KEY_COLUMNS)

    def _can_have(self, group: int, of_hash: int) -> bool:
        """Return False if the undamaged filter of a row group of keys excludes a hash."""
        if group not in self._filters:
            self._filters[group] = self._filter(group)
        start, size = self._filters[group]
        return not size or can_have(
            self._file.read_at(BLOCK_BYTES, start + block_of(of_hash, size)), of_hash
        )

    def _filter(self, group: int) -> tuple[int, int]:
        """Return position and size of a row group's filter; size 0 if it is missing or damaged."""
        column = self.parquet.metadata.row_group(group).column(self._columns["key_hash"])
        offset, length = column.bloom_filter_offset, column.bloom_filter_length
        checksums = (self.parquet.metadata.metadata or {}).get(CHECKSUMS.encode())
        if not checksums or offset is None or length is None:
            return 0, 0
        size = filter_bytes(length)
        start = offset + length - size
        checksum = json.loads(checksums)[group].get(str(size))
        is_whole = crc32(self._file.read_at(size, start)) == checksum
        return start, size if is_whole else 0

    def read_at(self, group: int, physical_offsets: list[int]) -> "pa.Table | None":
        """Return the rows of a row group of messages that have one of the physical offsets."""
        bounds = self._bounds("physical_offset")[group]
        if bounds is not None and not any(
            bounds[0] <= each <= bounds[1] for each in physical_offsets
        ):
            return None
        deciding = self.read(group, ["physical_offset"])
        wanted = numbers(np.array(physical_offsets, np.int64))
        is_in = pc.is_in(deciding.column("physical_offset"), wanted)
        return self._matching_rows(group, deciding, is_in, message_schema().names)

    def _matching_rows(
        self, group: int, deciding: "pa.Table", is_in: Any, columns: Sequence[str]
    ) -> "pa.Table":
        """Return the rows where ``is_in`` is true; other columns are read only if there are any."""
        if not pc.any(is_in).as_py():
            return deciding.slice(0, 0)
        chosen = self.read(group, columns, self._coded)
        if not pc.all(is_in).as_py():
            chosen = chosen.filter(is_in)
        # Page headers have no checksums: damage there can leave codes without a text.
        chosen.validate(full=True)
        return chosen

    def read_within(
        self, group: int, bounds: Bounds, columns: ColumnFilter, names: Sequence[str]
    ) -> "pa.Table":
        """Return the rows of a row group of messages within bounds that columns do not exclude."""
        if not bounds and not columns.decides:
            return self.read(group, names)
        within = np.ones(self.parquet.metadata.row_group(group).num_rows, np.bool_)
        for name, (low, high) in bounds.items():
            known = self._bounds(name)[group]
            if known is not None and low <= known[0] and known[1] <= high:
                continue  # All rows are within.
            column = self.read(group, [name]).column(0)
            least, most = (pa.scalar(each, column.type) for each in (low, high))
            is_in = pc.and_(pc.greater_equal(column, least), pc.less_equal(column, most))
            within &= is_in.to_numpy()
        if columns.decides and within.any():
            within = columns.may_match(lambda names: self.read(group, names), within)
        if not within.any():
            return message_schema().empty_table().select(names)
        chosen = self.read(group, names)
        return chosen if within.all() else chosen.filter(pa.array(within))


Part = TypeVar("Part")
ReadFile = Callable[[DataFile, list[str]], Iterator[Part]]
"""Yields parts of a file, and adds its read errors to the list."""


class _ReadAhead(Generic[Part]):
    """A file that a thread reads one part ahead."""

    def __init__(self, file: DataFile, read: ReadFile[Part], pool: ThreadPoolExecutor) -> None:
        self.file: Final = file
        self.errors: Final[list[str]] = []
        self._parts: Final = read(file, self.errors)
        self._pool: Final = pool
        self.following: Future[Part | None] = pool.submit(next, self._parts, None)

    def take(self) -> Part | None:
        """Return the next part, None at the end, and start reading the one after it."""
        part = self.following.result()
        if part is not None:
            self.following = self._pool.submit(next, self._parts, None)
        return part


class ArchiveReader:
    """Reads the files of an archive at its last listing, and keeps files open."""

    def __init__(self, lists: ArchiveLists) -> None:
        self.lists: Final = lists
        self.tables: Final = lists.tables
        self._open: Final[OrderedDict[str, _OpenFile]] = OrderedDict()
        self._open_lock: Final = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self.kept: Final[dict[str, list[Any]]] = {}
        """Counts of the queues of files, by path: see `rocketlens.archive.topics`."""
        self._kept_counts = 0
        self.listing = lists.newest(refreshed=False)

    def refresh(self) -> None:
        """Use the newest listing."""
        newest = self.lists.newest()
        if newest is self.listing:
            return
        self.listing = newest
        there = {file.path for file in newest.messages}
        for path in self.kept.keys() - there:
            self._kept_counts -= len(self.kept.pop(path))

    def listing_at(self, version: int) -> Listing:
        """Return the listing at a version; errors as `ArchiveLists.at`."""
        return self.listing if version == self.listing.version else self.lists.at(version)

    def keep(self, file: DataFile, counts: list[Any]) -> None:
        """Keep the counts of a file, unless `MAX_KEPT_COUNTS` are kept."""
        if self._kept_counts + len(counts) <= MAX_KEPT_COUNTS:
            self.kept[file.path] = counts
            self._kept_counts += len(counts)

    def path(self, file: DataFile) -> str:
        return self.tables.path(file.table, file.path)

    def _open_file(self, file: DataFile) -> _OpenFile:
        with self._open_lock:
            opened = self._open.get(self.path(file))
            if opened is not None:
                self._open.move_to_end(self.path(file))
                return opened
        # Without the lock, so that threads open files in parallel: no two open the same one.
        opened = _OpenFile(self.tables.location, self.path(file), file)
        with self._open_lock:
            self._open[self.path(file)] = opened
            if len(self._open) > _MAX_OPEN_FILES:
                self._open.popitem(last=False)[1].parquet.close()
        return opened

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        while self._open:
            self._open.popitem()[1].parquet.close()

    def positions(
        self,
        key: str,
        bounds: Bounds,
        errors: list[str],
        may_keep: Callable[[int], bool] = lambda _: True,
        *,
        oldest: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of ``message_keys`` with a key, the newest first; with ``oldest``, the
        oldest first.

        Reading ends at the first store time for which ``may_keep`` returns False. A message whose
        unique key is also one of its keys comes twice: duplicates are not tracked, since a key can
        have millions of messages.

        Files that cannot be read are skipped, and a line for each is added to ``errors``.
        """
        hashed, sign = key_hash(key), 1 if oldest else -1
        of_hash, of_filter = {"key_hash": (hashed, hashed)}, xxh64(hashed)

        def first_rank(times: tuple[Any, Any] | None) -> int:
            return _FIRST_RANK if times is None else min(sign * each for each in times)

        def read(file: DataFile, own_errors: list[str]) -> "Iterator[tuple[int, pa.Table]]":
            following: dict[int, int] = {}

            def choose(opened: _OpenFile) -> list[int]:
                groups = opened.groups(of_hash)
                if len(groups) < 2:
                    following.update(dict.fromkeys(groups, _LAST_RANK))
                    return groups
                ranked = sorted((first_rank(opened.times(group)), group) for group in groups)
                ranks = [rank for rank, _ in ranked[1:]]
                groups = [group for _, group in ranked]
                following.update(zip(groups, [*ranks, _LAST_RANK], strict=False))
                return groups

            groups = self._read_groups(
                file, choose, own_errors, lambda at, n: at.read_hash(n, hashed, of_filter)
            )
            return ((following[number], rows) for number, rows in groups)

        ranked = sorted(
            ((first_rank(file.bounds.get(_TIME)), file.path), file)
            for file in self.listing.keys
            if file.can_have({**bounds, **of_hash})
        )
        files = [file for _, file in ranked]
        ranks = [rank for (rank, _), _ in ranked[1:]]
        of_next = dict(zip((file.path for file in files), [*ranks, _LAST_RANK], strict=False))
        merged = SortedKeyRows(sign)
        for file, (following, rows) in self._of_files(files, read, errors):
            merged.add(rows, key, file.day)
            rank = min(following, of_next[file.path])
            for row in merged.rows_to(rank):
                if not may_keep(row[_TIME]):
                    return
                yield row
            if _FIRST_RANK < rank < _LAST_RANK and not may_keep(sign * rank):
                return
        yield from merged.rows_to(_LAST_RANK)

    def at(
        self, positions: Iterable[Mapping[str, Any]], errors: list[str]
    ) -> "Iterator[dict[str, Any]]":
        """Yield the messages of some `positions` as rows; each row group is read once."""
        wanted: dict[str, dict[tuple[Any, ...], Bounds]] = {}
        for each in positions:
            exact = {name: (each[name], each[name]) for name in _IDENTITY}
            wanted.setdefault(each["day"], {})[tuple(each[name] for name in _IDENTITY)] = exact
        in_files: dict[str, set[tuple[Any, ...]]] = {}
        for file in self.listing.messages:
            of_day = wanted.get(file.day, {}).items()
            there = {identity for identity, exact in of_day if file.can_have(exact)}
            if there:
                in_files[file.path] = there

        def read(file: DataFile, own_errors: list[str]) -> "Iterator[pa.Table]":
            offsets = [identity[-1] for identity in in_files[file.path]]
            bounds = {"physical_offset": (min(offsets), max(offsets))}
            return self._groups(
                file, bounds, own_errors, lambda opened, n: opened.read_at(n, offsets)
            )

        files = [file for file in self.listing.messages if file.path in in_files]
        for file, rows in self._of_files(files, read, errors):
            for row in rows.to_pylist():
                if tuple(row[name] for name in _IDENTITY) in in_files[file.path]:
                    yield row

    def rows(
        self, file: DataFile, what: ArchiveRows, errors: list[str], *, newest_first: bool = False
    ) -> "Iterator[tuple[int, pa.Table]]":
        """Yield the messages of a file that may match, with the number of their row group.

        Columns that decide are read first, the others only if rows remain. A line for what cannot
        be read is added to ``errors``.
        """
        names = what.names or message_schema().names

        def choose(opened: _OpenFile) -> list[int]:
            groups = [each for each in opened.groups(what.bounds) if each >= what.begin_group]
            return groups[::-1] if newest_first else groups

        def read(opened: _OpenFile, group: int) -> "pa.Table":
            return opened.read_within(group, what.bounds, what.columns, names)

        yield from self._read_groups(file, choose, errors, read)

    def rows_of(
        self, files: "Sequence[DataFile]", what: ArchiveRows, errors: list[str]
    ) -> "Iterator[pa.Table]":
        def read(file: DataFile, own_errors: list[str]) -> "Iterator[pa.Table]":
            return (rows for _, rows in self.rows(file, what, own_errors))

        return (rows for _, rows in self._of_files(files, read, errors))

    def _of_files(
        self, files: Sequence[DataFile], read: ReadFile[Part], errors: list[str]
    ) -> Iterator[tuple[DataFile, Part]]:
        """Yield the parts that ``read`` yields for each file, in the order of the files.

        In an object store, several files are read at once, each at most one part ahead.
        """
        if not self.tables.location.is_remote or len(files) < 2:
            for file in files:
                for part in read(file, errors):
                    yield file, part
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MAX_ARCHIVE_READS, "rocketlens-archive")
        ahead: deque[_ReadAhead[Part]] = deque()
        waiting = iter(files)
        try:
            while True:
                for file in islice(waiting, MAX_ARCHIVE_READS - len(ahead)):
                    ahead.append(_ReadAhead(file, read, self._pool))
                if not ahead:
                    return
                following = ahead[0].take()
                if following is None:
                    errors.extend(ahead.popleft().errors)
                else:
                    yield ahead[0].file, following
        finally:
            # A file must not be closed while a thread reads it.
            for each in ahead:
                each.following.cancel()
            wait([each.following for each in ahead])

    def columns(
        self, file: DataFile, names: Sequence[str], errors: list[str]
    ) -> "Iterator[pa.Table]":
        """Yield some columns of a file, row group by row group; errors as `rows`."""
        return self._groups(file, {}, errors, lambda opened, n: opened.read(n, names))

    def _groups(
        self,
        file: DataFile,
        bounds: Bounds,
        errors: list[str],
        read: "Callable[[_OpenFile, int], pa.Table | None]",
    ) -> "Iterator[pa.Table]":
        """Yield the results of ``read`` for the row groups within bounds; errors as `rows`."""
        for _, rows in self._read_groups(file, lambda opened: opened.groups(bounds), errors, read):
            yield rows

    def _read_groups(
        self,
        file: DataFile,
        choose: Callable[[_OpenFile], list[int]],
        errors: list[str],
        read: "Callable[[_OpenFile, int], pa.Table | None]",
    ) -> "Iterator[tuple[int, pa.Table]]":
        """Yield the row groups that ``choose`` returns, with their numbers; errors as `rows`."""
        try:
            opened = self._open_file(file)
            for group in choose(opened):
                rows = read(opened, group)
                if rows is not None and rows.num_rows:
                    yield group, rows
        except FileNotFoundError:
            errors.append(
                f"{self.path(file)} is gone: it was compacted or expired since it was listed"
            )
        except (OSError, ValueError, pa.ArrowException) as error:
            reason = self.tables.location.reason(error)
            errors.append(f"{self.path(file)} cannot be read: {reason}")
