"""Maintains an archive: merges the files of past days, deletes old days and unused files.

===========  =======================================================================================
compaction   rewrites the files of each past day as fewer files: messages in their order, keys
             sorted by hash over all files, so that a look-up reads one file a day
retention    removes expired days from ``messages``, in a commit that also records the first day
             that is kept, and then from ``message_keys``
vacuum       deletes files that a commit removed, and files of killed tasks, a week later: readers
             that opened the archive before still use them
===========  =======================================================================================

Compaction makes one commit for each `MergeTask`, which adds the new files and removes the old ones;
Delta refuses it if another job has removed one of these. So a killed job has either replaced the
files of a task or not, and the next job continues from there.

All functions raise ArchiveError if a table cannot be read or written, and StoreError if a task
failed.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec import Struct

from rocketlens.archive.files import DataFile, TableFile
from rocketlens.archive.journal import RETENTION, ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.tables import (
    KEYS,
    MESSAGES,
    add_missing_columns,
    check_file,
    check_values,
    columns_of,
    day_number,
)
from rocketlens.errors import ArchiveError
from rocketlens.late import pa, pq

GRACE_HOURS: Final = 168
_log = logging.getLogger(__name__)
_MERGED_FILES: Final = 64
_FILE_ROWS: Final = 1 << 20
_FILE_BYTES: Final = 256 << 20
_MAX_PASSES: Final = 8
_SORTED_ROWS: Final = 1 << 18
_SORTED_BYTES: Final = 128 << 20
_HASHES_FROM: Final = -(1 << 63)
_HASHES: Final = 1 << 64
_CLOSED_AFTER: Final = timedelta(hours=1)


class MergeTask(Struct, frozen=True):
    """Files of one day of a table that are rewritten together."""

    location: ArchiveLocation
    table: str
    day: str
    paths: tuple[str, ...]
    is_decoded: bool = False
    """Messages have columns for decoded bodies."""


RunMerges = Callable[[Sequence[MergeTask]], Sequence[list[DataFile]]]


def compact(tables: ArchiveTables, run_tasks: RunMerges, now: datetime | None = None) -> int:
    """Merge the files of past days; return how many files were replaced."""
    today = ((now or datetime.now(UTC)) - _CLOSED_AFTER).date()
    replaced = 0
    for _ in range(_MAX_PASSES):
        tables.refresh()
        tasks = [
            task for table in (MESSAGES, KEYS) for task in _merge_tasks(tables, table, str(today))
        ]
        if not tasks:
            break
        count = 0
        for task, written in zip(tasks, run_tasks(tasks), strict=True):
            count += len(task.paths) * _replace(tables, task.table, written, task.paths)
        if not count:
            # Another job merges the same files, and is faster.
            break
        replaced += count
    return replaced


def maintain(tables: ArchiveTables, run_tasks: RunMerges, keep_days: int | None) -> None:
    """Expire old days (None: keep all), compact, and vacuum."""
    if keep_days is not None:
        expire(tables, keep_days)
    compact(tables, run_tasks)
    vacuum(tables)


def expire(tables: ArchiveTables, keep_days: int, now: datetime | None = None) -> date:
    """Delete the days before the last ``keep_days`` and today; return the first remaining day."""
    today = (now or datetime.now(UTC)).date()
    first = date.fromordinal(max(today.toordinal() - keep_days, 1))
    tables.refresh()
    for table in (MESSAGES, KEYS):
        old = [each.path for each in tables.files(table) if each.day < str(first)]
        if old:
            transaction = (RETENTION, day_number(first)) if table == MESSAGES else None
            _replace(tables, table, [], old, transaction)
    return first


def vacuum(tables: ArchiveTables, grace_hours: int = GRACE_HOURS) -> list[str]:
    """Delete files that no commit of the last ``grace_hours`` lists and that are older; return
    them.

    Missing commits of batches in the journal are added first.
    """
    tables.refresh()
    tables.repair_all()
    deleted: list[str] = []
    for table in (MESSAGES, KEYS):
        for name in tables.unused(table, grace_hours):
            try:
                # Delta also lists files that were deleted before.
                if tables.location.remove(tables.path(table, name)):
                    deleted.append(name)
            except ArchiveError as error:
                _log.warning("not deleted: %s", error)
    return deleted


def _replace(
    tables: ArchiveTables,
    table: str,
    written: Sequence[DataFile],
    removed: Sequence[str],
    transaction: tuple[str, int] | None = None,
) -> bool:
    """Replace files in one commit; return False if another job has removed one of them."""
    added = {each.path for each in written}
    while True:
        tables.refresh()
        there = {each.path for each in tables.files(table)}
        if added and there.issuperset(added):
            # The commit succeeded, and its confirmation was lost.
            return True
        if not there.issuperset(removed):
            for path in added:
                tables.location.remove(tables.path(table, path))
            return False
        count = tables.replacement_count(table)
        try:
            tables.replace_files(table, written, removed, transaction)
        except ArchiveError:
            tables.refresh()
            if tables.replacement_count(table) == count:
                raise
        else:
            return True


def _merge_tasks(tables: ArchiveTables, table: str, today: str) -> Iterator[MergeTask]:
    is_decoded = tables.is_decoded
    listed = sorted(tables.files(table), key=attrgetter("day", "path"))
    for day, of_day in groupby(listed, attrgetter("day")):
        files = list(of_day)
        if day >= today or len(files) < 2:
            continue
        groups = _groups_of_keys(files) if table == KEYS else _groups_of_messages(files)
        for group in groups:
            paths = tuple(each.path for each in group)
            yield MergeTask(tables.location, table, day, paths, is_decoded)


def _groups_of_messages(files: list[DataFile]) -> Iterator[list[DataFile]]:
    """Yield groups of files that are neighbours in a log and are small together."""
    group: list[DataFile] = []
    rows = size = 0
    columns = ("broker", "physical_offset")
    for each in sorted(files, key=lambda file: [file.bounds[name][0] for name in columns]):
        rows += each.rows
        size += each.size
        if group and (rows > _FILE_ROWS or size > _FILE_BYTES or len(group) == _MERGED_FILES):
            if len(group) > 1:
                yield group
            group, rows, size = [], each.rows, each.size
        group.append(each)
    if len(group) > 1:
        yield group


def _groups_of_keys(files: list[DataFile]) -> Iterator[list[DataFile]]:
    """Yield groups of files whose ranges of hashes overlap."""
    group: list[DataFile] = []
    highest = _HASHES_FROM
    for each in sorted(files, key=lambda file: file.bounds["key_hash"]):
        low, high = each.bounds["key_hash"]
        if low >= highest or len(group) == _MERGED_FILES:
            if len(group) > 1:
                yield group
            group = []
        group.append(each)
        highest = max(highest, high)
    if len(group) > 1:
        yield group


def write_merged(task: MergeTask) -> list[DataFile]:
    """Write the merged files of a task; runs in an executor. Raise OSError if a file fails."""
    location = task.location
    opened = [location.parquet(location.path(task.table, path)) for path in task.paths]
    for path, file in zip(task.paths, opened, strict=True):
        check_file(file, task.table, path)
    written: list[TableFile] = []
    try:
        if task.table == MESSAGES:
            columns = columns_of(MESSAGES, is_decoded=task.is_decoded)
            written.append(TableFile(location, MESSAGES, task.day, is_decoded=task.is_decoded))
            for file in opened:
                for group in range(file.num_row_groups):
                    written[0].write(_rows(file, group, columns))
        else:
            for rows in _sorted_keys(opened):
                if not written or written[-1].rows + rows.num_rows > _FILE_ROWS:
                    written.append(TableFile(location, KEYS, task.day))
                written[-1].write(rows)
        return [each.close() for each in written]
    except BaseException:
        for each in written:
            each.abort()
        raise
    finally:
        for file in opened:
            file.close()


def _rows(file: "pq.ParquetFile", group: int, columns: "pa.Schema") -> "pa.Table":
    rows = file.read_row_group(group, columns=columns.names, use_threads=False)
    return check_values(add_missing_columns(rows, columns, columns.names))


def _sorted_keys(files: Sequence["pq.ParquetFile"]) -> "Iterator[pa.Table]":
    """Yield the keys of files in the order of their hashes.

    The hashes are cut into ranges. For each range, the overlapping row groups of all files are read
    and sorted. A key with more row groups than a range holds gets a range of its own; its rows need
    no sorting, so they are never all in memory.
    """
    groups = sorted(
        (group.column(0).statistics.min, group.column(0).statistics.max, number, at)
        for at, file in enumerate(files)
        for number in range(file.num_row_groups)
        for group in (file.metadata.row_group(number),)
    )
    rows_of: Counter[int] = Counter()
    bytes_of: Counter[int] = Counter()
    for low, high, number, at in groups:
        if low == high:
            group = files[at].metadata.row_group(number)
            rows_of[low] += group.num_rows
            bytes_of[low] += group.total_byte_size
    frequent = {
        each for each in rows_of if rows_of[each] >= _SORTED_ROWS or bytes_of[each] >= _SORTED_BYTES
    }
    cuts = {_HASHES_FROM, *frequent, *(each + 1 for each in frequent)}
    rows = size = 0
    for low, _, number, at in groups:
        group = files[at].metadata.row_group(number)
        if rows >= _SORTED_ROWS or size >= _SORTED_BYTES:
            cuts.add(low)
            rows = size = 0
        rows += group.num_rows
        size += group.total_byte_size
    ends = sorted({*cuts, _HASHES_FROM + _HASHES})
    for low, high in pairwise(ends):
        tables = (
            _slice(_rows(files[at], number, columns_of(KEYS)), low, high)
            for first, last, number, at in groups
            if first < high and low <= last
        )
        if low in frequent:
            yield from _concatenate(tables)
        else:
            yield from _sort(tables)


def _slice(rows: "pa.Table", low: int, high: int) -> "pa.Table":
    hashes = rows.column("key_hash").to_numpy()
    first = np.searchsorted(hashes, low, side="left")
    last = np.searchsorted(hashes, high - 1, side="right")
    return rows.slice(int(first), int(last - first))


def _concatenate(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
    """Concatenate tables to parts of bounded size."""
    part: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        part.append(table)
        rows += table.num_rows
        size += table.nbytes
        if rows >= _SORTED_ROWS or size >= _SORTED_BYTES:
            yield pa.concat_tables(part)
            part, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(part)


def _sort(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
    """Yield the rows of tables as one table in the order of their hashes; nothing without rows."""
    some = [each for each in tables if each.num_rows]
    if some:
        rows = pa.concat_tables(some).combine_chunks()
        yield rows.take(pa.array(rows.column("key_hash").to_numpy().argsort(kind="stable")))
