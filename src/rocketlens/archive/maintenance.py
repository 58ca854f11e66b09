"""Keeps an archive fit: closed days in few files, old days deleted, and files that nothing needs.

===========  =======================================================================================
compaction   the files of a day that is over are written anew, as few: messages in their order, keys
             sorted by hash over all files, so that a look-up reads one a day
retention    days before the first that is kept leave ``messages``, in a commit that also has that
             day, and then ``message_keys``
vacuum       files that a commit removed, and files of killed tasks, are deleted a week later:
             whatever had opened the archive before still has them
===========  =======================================================================================

Compaction is one commit for each `MergeTask`, which adds its files and removes those that they
replace, unless another job has removed one of these. So a job that is killed has
replaced the files of a task or has not, and the next one begins where that was.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final

import numpy as np
from msgspec import Struct

from rocketlens.archive.files import DataFile, TableFile
from rocketlens.archive.journal import RETENTION, ArchiveTables
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.tables import (
    KEYS,
    MESSAGES,
    check_file,
    check_values,
    columns_of,
    day_number,
    widened,
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
    """Files of one day of a table that are written anew, together."""

    location: ArchiveLocation
    table: str
    day: str
    paths: tuple[str, ...]
    is_decoded: bool = False
    """Whether its messages have columns for decoded bodies."""


RunMerges = Callable[[Sequence[MergeTask]], Sequence[list[DataFile]]]


def compact(tables: ArchiveTables, run_tasks: RunMerges, now: datetime | None = None) -> int:
    """Write the files of days that are over anew; return how many were replaced.

    :raises ArchiveError: if a table cannot be read or written.
    :raises StoreError: if a task failed.
    """
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
            # Another job does the same, and is faster.
            break
        replaced += count
    return replaced


def maintain(tables: ArchiveTables, run_tasks: RunMerges, keep_days: int | None) -> None:
    """Delete days that are not kept, if it is said how many are; compact, and vacuum.

    :raises ArchiveError: if a table cannot be read or written.
    :raises StoreError: if a task failed.
    """
    if keep_days is not None:
        expire(tables, keep_days)
    compact(tables, run_tasks)
    vacuum(tables)


def expire(tables: ArchiveTables, keep_days: int, now: datetime | None = None) -> date:
    """Delete the days before the last ``keep_days`` and today; return the first that is kept.

    :raises ArchiveError: if a table cannot be read or written.
    """
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
    """Delete files that no commit has had for a week, and that were written before; return them.

    What the journal has is committed first.

    :raises ArchiveError: if the tables cannot be read or written.
    """
    tables.refresh()
    tables.repair_all()
    deleted: list[str] = []
    for table in (MESSAGES, KEYS):
        for name in tables.unused(table, grace_hours):
            try:
                # Delta names files that were deleted before, too.
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
            # The commit is there, and its confirmation was lost.
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
    """Yield files that are small together, next to each other in a log."""
    group: list[DataFile] = []
    rows = size = 0
    for each in sorted(files, key=lambda file: _lows(file, "broker", "physical_offset")):
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
    """Yield files whose hashes overlap together."""
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


def _lows(file: DataFile, *columns: str) -> list[Any]:
    return [file.bounds[name][0] for name in columns]


def write_merged(task: MergeTask) -> list[DataFile]:
    """Write the files of a task; runs in an executor.

    :raises OSError: if a file cannot be read or written.
    """
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
    return check_values(widened(rows, columns, columns.names))


def _sorted_keys(files: Sequence["pq.ParquetFile"]) -> "Iterator[pa.Table]":
    """Yield the keys of files in the order of their hashes.

    One piece after another is read of all files, and sorted: of each file a row group more than
    what the piece has. A key that fills more row groups than a piece has is one of its own, which
    has its order already, so it is never in memory as a whole.
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
            _between(_rows(files[at], number, columns_of(KEYS)), low, high)
            for first, last, number, at in groups
            if first < high and low <= last
        )
        if low in frequent:
            yield from _in_parts(tables)
        else:
            yield from _in_order(tables)


def _between(rows: "pa.Table", low: int, high: int) -> "pa.Table":
    hashes = rows.column("key_hash").to_numpy()
    first = np.searchsorted(hashes, low, side="left")
    last = np.searchsorted(hashes, high - 1, side="right")
    return rows.slice(int(first), int(last - first))


def _in_parts(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
    """Yield tables together, as many as are sorted at once."""
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


def _in_order(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
    """Yield the rows of tables, if there are some, as one in the order of their hashes."""
    some = [each for each in tables if each.num_rows]
    if some:
        rows = pa.concat_tables(some).combine_chunks()
        yield rows.take(pa.array(rows.column("key_hash").to_numpy().argsort(kind="stable")))
