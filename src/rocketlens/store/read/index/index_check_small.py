"""The whole check of an index file that has few entries: loading numpy would take longer.

It is :func:`rocketlens.store.read.index.index_check.check_whole` in plain Python.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import (
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    store_timestamp_at,
)
from rocketlens.formats.index_file import ENTRY, SLOT, SLOT_BYTES
from rocketlens.store.read.index.index_check import (
    CONTRADICTION,
    HASH_SAMPLES,
    NO_RECORDS,
    OTHER_TIME,
    Extent,
    is_blank_before,
)
from rocketlens.store.read.log.commitlog import CommitLog

if TYPE_CHECKING:
    from rocketlens.store.read.index.index import IndexFile

    Entries = list[tuple[int, int, int, int]]

_HEAD: Final = HEADS[0].struct_of("total_size", "magic", "physical_offset")


class _Indexed(NamedTuple):
    """A record that has entries: its size is 0 if there is none at its offset."""

    physical_offset: int
    size: int
    store_timestamp_ms: int
    last_entry: int
    is_good: bool
    """Whether its last entry has its time."""


def check_small(file: "IndexFile", log: CommitLog) -> Extent:
    """Check every slot and entry against each other and the log. O(slots + entries).

    :raises IndexFileError: as ``check_whole``.
    """
    if file.geometry is None:
        return Extent(file.header.begin_offset, file.header.end_offset)
    first, stop = file.geometry.entry_position(0), file.geometry.entry_position(file.last_entry + 1)
    entries: Entries = list(ENTRY.iter_unpack(file.view[first:stop]))
    slots = file.view[file.geometry.slot_position(0) : first]
    if not _are_chains_sound(entries, slots, file.header.used_slot_count):
        raise IndexFileError(f"{file.path.name}: {CONTRADICTION}")
    records = list(_records_of(file, entries, log))
    return _compare(file, records, log)


def _are_chains_sound(entries: "Entries", slots: memoryview, used_slot_count: int) -> bool:
    """Return whether the slots and links are those that these entries get one after another."""
    slot_count = len(slots) // SLOT_BYTES
    newest: dict[int, int] = {}
    unused_hash, _, _, unused_link = entries[0]
    if unused_hash or unused_link:
        return False
    offset_before = entries[1][1]
    for number, (key_hash, physical_offset, _, previous) in enumerate(entries[1:], 1):
        slot = key_hash % slot_count
        if key_hash < 0 or previous != newest.get(slot, 0) or physical_offset < offset_before:
            return False
        newest[slot], offset_before = number, physical_offset
    expected = bytearray(len(slots))
    for slot, number in newest.items():
        SLOT.pack_into(expected, slot * SLOT_BYTES, number)
    return len(newest) == used_slot_count and expected == slots


def _records_of(file: "IndexFile", entries: "Entries", log: CommitLog) -> Iterator[_Indexed]:
    """Return the records of the entries: of offsets that are before the log's first, none."""
    # Use the last entry of each record: the first one of a file may count from another begin time.
    last_entries = {entry[1]: number for number, entry in enumerate(entries) if number}
    begin_ms = file.header.begin_timestamp_ms
    max_seconds = limits.MAX_INT if begin_ms > 0 else 0
    for physical_offset, size, time_ms in _heads(log, last_entries):
        number = last_entries[physical_offset]
        if number == 1:
            is_in_time = time_ms == begin_ms
        else:
            seconds = min(max((time_ms - begin_ms) // 1000, 0), max_seconds)
            is_in_time = seconds == entries[number][2]
        yield _Indexed(physical_offset, size, time_ms, number, size > 0 and is_in_time)


def _heads(log: CommitLog, offsets: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Return offset, size and store time of the record at each offset; size 0 if there is none."""
    start = end = 0
    view = memoryview(b"")
    for offset in offsets:
        if offset < log.min_offset:
            continue
        if not start <= offset < end:
            segment, view = log.segment_of(offset), memoryview(b"")
            start, end = (segment.base_offset, segment.end_offset) if segment else (offset, offset)
            if segment:
                with suppress(RecordError):
                    view = log.map(segment).view
        position = offset - start
        if len(view) - position < MIN_RECORD_BYTES:
            yield offset, 0, 0
            continue
        size, magic, own_offset = _HEAD.unpack_from(view, position)
        is_record = (
            (magic in (MAGIC_V1, MAGIC_V2))
            and own_offset == offset
            and MIN_RECORD_BYTES <= size <= len(view) - position
        )
        yield (offset, size, store_timestamp_at(view, position)) if is_record else (offset, 0, 0)


def _compare(file: "IndexFile", records: list[_Indexed], log: CommitLog) -> Extent:
    """Compare the entries with their records, and find the ranges of the log between these."""
    if not records:
        return Extent(file.header.begin_offset, file.header.end_offset)
    rows = [row for row, record in enumerate(records) if record.is_good]
    if 2 * len(rows) < len(records):
        raise IndexFileError(f"{file.path.name}: {NO_RECORDS}")
    last = records[-1]
    if last.is_good and last.store_timestamp_ms != file.header.end_timestamp_ms:
        raise IndexFileError(f"{file.path.name}: {OTHER_TIME}")
    for row in rows[:: len(rows) // HASH_SAMPLES + 1]:
        file.is_for_its_record(log, records[row].last_entry)
    gaps = tuple(
        gap for before, after in pairwise(rows) if (gap := _gap(log, records[before : after + 1]))
    )
    return Extent(records[rows[0]].physical_offset, records[rows[-1]].physical_offset, gaps)


def _gap(log: CommitLog, records: list[_Indexed]) -> tuple[int, int] | None:
    """Return the range between the first and the last of some records, good ones, if it is more
    than one unreadable record.
    """
    start = records[0].physical_offset + records[0].size
    stop = records[-1].physical_offset
    between = records[1:-1]
    is_damage = (
        bool(between)
        and between[0].physical_offset == start
        and not any(record.size for record in between)
    )
    return (
        None if start >= stop or is_damage or is_blank_before(log, start, stop) else (start, stop)
    )
