"""Checks the chains of an index file, and its entries against the log.

A file that breaks one of these rules raises IndexFileError. :func:`check_whole` applies all of
them, to every entry. :func:`check_links` and ``rocketlens verify`` apply the first two with the
compiled check.

1. Each entry links to the newest entry before it on the slot of its hash, and each slot has the
   newest of all (:class:`rocketlens.formats.index_file.ChainCheck`).
2. The header counts the slots that are used.
3. Entries are in the order of the log, and entry 0 is empty.
4. At least half of the records that entries lead to can be read, and have the time of their last
   entry. The time of the last record is that of the header.
5. A sample of the entries have the hash of a key of their records.
6. The log between two of these records is a gap, which the file does not cover, unless it is one
   unreadable record, or the filler at a segment's end.

Files with many entries are checked at samples, spread evenly over their part of the log, and at a
quarter as many entries. This finds each gap or stale stretch that is longer than the distance of
two samples. Before that the links of files that are not known to be complete on the disk
(:class:`rocketlens.store.read.index.index_files.SyncedFiles`) are checked.
"""

from array import array
from bisect import bisect_left
from contextlib import suppress
from itertools import compress, pairwise
from typing import Final, NamedTuple, Self

from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.formats.compiled.index import check, check_records, list_records
from rocketlens.formats.index_file import HEADER_BYTES, SLOT_BYTES, ChainCheck
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.log.commitlog import CommitLog

_HASH_SAMPLES: Final = 8
"""Entries whose hash is compared with their record's if a file is checked whole."""

_CONTRADICTION: Final = "its slots and entries contradict each other"


class Extent(NamedTuple):
    """The range of the log that a file covers: from record ``first`` to record ``last``, inclusive.

    The ranges in ``gaps``, each from a record's start to another's, are not covered.
    """

    first: int
    last: int
    gaps: tuple[tuple[int, int], ...] = ()


class _Records(NamedTuple):
    """The records of the log that a file's entries lead to, a row each, in the log's order."""

    starts: "array[int]"
    last_entries: "array[int]"
    ends: "array[int]"
    """The start if the record cannot be read."""
    times_ms: "array[int]"
    is_good: bytearray

    @classmethod
    def of(cls, file: IndexFile, entries: memoryview, log: CommitLog) -> Self | None:
        """Check the records of a file; return None if its entries are out of order."""
        starts, last_entries = (array("q", bytes(8 * file.last_entry)) for _ in range(2))
        count = list_records(entries, file.last_entry, log.min_offset, starts, last_entries)
        if count < 0:
            return None
        del starts[count:], last_entries[count:]
        times_ms = array("q", bytes(8 * count))
        records = cls(starts, last_entries, starts[:], times_ms, bytearray(count))
        begin_ms = file.header.begin_timestamp_ms
        for segment in log.segments:
            row = bisect_left(starts, segment.base_offset)
            if row < count and starts[row] < segment.end_offset:
                with suppress(RecordError):
                    content = log.map(segment).view
                    check_records(
                        content, segment.base_offset, entries, begin_ms, records, row, count
                    )
        return records


def check_whole(file: IndexFile, log: CommitLog) -> Extent:
    """Check every slot and entry against each other and the log. O(slots + entries)."""
    if file.geometry is None:
        return Extent(file.header.begin_offset, file.header.end_offset)
    chains = compiled_chain_check(file)
    records = None
    if chains.is_good and chains.used_slot_count == file.header.used_slot_count:
        records = _Records.of(file, file.view[file.geometry.entry_position(0) :], log)
    if records is None:
        raise IndexFileError(f"{file.path.name}: {_CONTRADICTION}")
    count = len(records.starts)
    good = [*compress(range(count), records.is_good)]
    if not count:
        return Extent(file.header.begin_offset, file.header.end_offset)
    if 2 * len(good) < count:
        raise IndexFileError(
            f"{file.path.name}: most of its entries point to no records of this log"
        )
    if good[-1] == count - 1 and records.times_ms[-1] != file.header.end_timestamp_ms:
        raise IndexFileError(f"{file.path.name}: its header lacks the time of its last message")
    for row in good[:: len(good) // _HASH_SAMPLES + 1]:
        file.is_for_its_record(log, records.last_entries[row])
    # Between neighbouring good records, if the second does not begin at the end of the first.
    gaps = [
        _gap(log, records, before, after)
        for before, after in pairwise(good)
        if records.ends[before] != records.starts[after]
    ]
    first, last = records.starts[good[0]], records.starts[good[-1]]
    return Extent(first, last, tuple(gap for gap in gaps if gap))


def _gap(log: CommitLog, records: _Records, before: int, after: int) -> tuple[int, int] | None:
    """Return the range between two good records if it is more than one unreadable record.

    It can have records without keys, records that a broker stored while its index was off, and
    records that replaced others of the index.
    """
    start, stop = records.ends[before], records.starts[after]
    between = range(before + 1, after)
    is_damage = (
        bool(between)
        and records.starts[before + 1] == start
        and all(records.starts[row] == records.ends[row] for row in between)
    )
    return (
        None if start >= stop or is_damage or is_blank_before(log, start, stop) else (start, stop)
    )


def is_blank_before(log: CommitLog, start: int, stop: int) -> bool:
    """Return whether only the filler of a segment's end is between two offsets."""
    segment = log.segment_of(stop)
    if segment is None or segment.base_offset != stop:
        return False
    try:
        log.record_at(start, check_crc=False)
    except RecordError as error:
        return error.reason == Reason.BLANK
    return False


def compiled_chain_check(file: IndexFile) -> ChainCheck:
    """Check every slot and link of a file with the compiled kernel: 10 million entries a second.

    :func:`rocketlens.formats.index_file.check_chains` is the definition.
    """
    if file.geometry is None:
        return ChainCheck(0, 0, 0, -1, 0)
    slot_count, entries_at = file.geometry.slot_count, file.geometry.entry_position(0)
    slots, entries = file.view[HEADER_BYTES:entries_at], file.view[entries_at:]
    newest = array("i", bytes(slot_count * SLOT_BYTES))
    return ChainCheck(*check(slots, entries, slot_count, file.last_entry, newest))


def check_links(file: IndexFile) -> None:
    """Check every slot and link of a large file, which can have lost pages.

    A broker that was killed can have put one more entry on its slot than the header counts.
    """
    chains = compiled_chain_check(file)
    is_one_more = (
        chains.bad_slot_count == 1 and file.head_of(chains.first_bad_slot) == file.last_entry + 1
    )
    used = {file.header.used_slot_count, file.header.used_slot_count + is_one_more}
    if (
        chains.bad_entry_count
        or chains.bad_slot_count > is_one_more
        or (file.geometry and chains.used_slot_count not in used)
    ):
        raise IndexFileError(f"{file.path.name}: {_CONTRADICTION}, as after a power cut")


def check_samples(file: IndexFile, log: CommitLog, count: int) -> Extent:
    """Check ``count`` samples over the file's part of the log, and a quarter as many entries."""
    last = _last_sound_entry(file, log)
    first_offset = max(file.entry(1).physical_offset, log.min_offset)
    last_offset = file.entry(last).physical_offset
    if last_offset < log.min_offset:
        return Extent(file.header.begin_offset, file.header.end_offset)
    by_number = {1 + (last - 1) * n // (count // 4) for n in range(count // 4)} | {last}
    step = max((last_offset - first_offset) // count, 1)
    by_offset = {
        file.number_before(offset) or 1 for offset in range(first_offset, last_offset, step)
    }
    gaps: set[tuple[int, int]] = set()
    for number in sorted(by_number | by_offset):
        if file.check_entry(log, number):
            gap = _gap_after(file, log, number, last)
            if gap:
                gaps.add(gap)
    return Extent(first_offset, last_offset, tuple(sorted(gaps)))


def _last_sound_entry(file: IndexFile, log: CommitLog) -> int:
    """Return the last entry that matches its record. The log can have lost later records."""

    def is_lost(number: int) -> bool:
        is_deleted = file.entry(number).physical_offset < log.min_offset
        return not is_deleted and not file.is_for_its_record(log, number)

    if not is_lost(file.last_entry):
        return file.last_entry
    last = bisect_left(range(1, file.last_entry), x=True, key=is_lost)
    if last == 0:
        message = f"{file.path.name}: its entries point to no records of this log"
        raise IndexFileError(message)
    return last


def _gap_after(file: IndexFile, log: CommitLog, number: int, last: int) -> tuple[int, int] | None:
    """Return the range between the record of an entry and the next record with an entry."""
    offset = file.entry(number).physical_offset
    following = file.number_before(offset) + 1
    if following > last:
        return None
    start = offset + log.record_at(offset, check_crc=False).total_size
    stop = file.entry(following).physical_offset
    return None if start >= stop or is_blank_before(log, start, stop) else (start, stop)
