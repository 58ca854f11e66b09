"""Checks of an index file: whether its chains are right, and its entries those of the log.

These are the rules. :func:`check_whole` applies all of them, to every entry; :func:`check_links`
applies the first two by the compiled check, and so does ``rocketlens verify``.

1. Each entry links to the newest entry before it on the slot of its hash, and each slot has the
   newest of all (:class:`rocketlens.formats.index_file.ChainCheck`).
2. The header counts the slots that are used.
3. Entries are in the order of the log, and entry 0 is empty.
4. At least half of the records that entries lead to can be read, and have the time that their last
   entry has. The last one's is the header's.
5. A sample of the entries have the hash of a key of their records.
6. What the log has between two such records is a gap, for which the file does not answer, unless it
   is one unreadable record, or the filler at a segment's end.

Files with many entries are checked at 256 samples, spread evenly over their part of the log, and at
64 entries: a gap or a stale stretch of 1/256 of that log is found for certain. Before that the
links of those that are not known to be complete on the disk
(:class:`rocketlens.store.read.index.index_files.SyncedFiles`) are checked.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, pairwise
from operator import le
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.columns import column, store_timestamps
from rocketlens.formats.commitlog_record import (
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    Reason,
    store_timestamp_at,
)
from rocketlens.formats.index_file import (
    ENTRY,
    HEADER_BYTES,
    ChainCheck,
    check_chains,
)
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.log.commitlog import CommitLog

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Offsets = npt.NDArray[np.int64]
    Column = Sequence[int] | Offsets

_SAMPLES: Final = 256
"""Samples of a large file that are checked when it is opened: some 10 ms together."""

_HASH_SAMPLES: Final = 8
"""Entries of a file that is checked whole whose hash is compared with their record's."""

_CONTRADICTION: Final = "its slots and entries contradict each other"
_HEAD_FIELDS: Final = ("total_size", "magic", "physical_offset")
_HEAD: Final = HEADS[0].struct_of(*_HEAD_FIELDS)


class Extent(NamedTuple):
    """The range of the log that a file covers: from record ``first`` to record ``last``, inclusive.

    The ranges in ``gaps``, each from a record's start to another's, are not covered.
    """

    first: int
    last: int
    gaps: tuple[tuple[int, int], ...] = ()


class _Records(NamedTuple):
    """The records of the log that a file's entries lead to, a row each: lists or arrays."""

    starts: "Column"
    ends: "Column"
    """The start, where no record can be read."""
    times_ms: "Column"
    last_entries: "Column"
    good: "Column"
    """Rows of the records that can be read, and have the time of their last entry."""
    breaks: list[tuple[int, int]]
    """Pairs of rows that follow one another among the good, where the second record does not begin
    at the end of the first."""


def check_whole(file: IndexFile, log: CommitLog, *, by_numpy: bool) -> Extent:
    """Check every slot and entry against each other and the log. O(slots + entries).

    ``by_numpy``: let numpy read entries and records. A file of 20,000 entries takes 2 ms then, and
    17 ms without; but numpy takes 60 ms to load.

    :raises IndexFileError: when a rule of this module's is broken.
    """
    if file.geometry is None:
        return Extent(file.header.begin_offset, file.header.end_offset)
    reader = _ByNumpy(file) if by_numpy else _Interpreted(file)
    chains = reader.chains()
    if (
        not chains.is_good
        or chains.used_slot_count != file.header.used_slot_count
        or not reader.is_in_order()
    ):
        raise IndexFileError(f"{file.path.name}: {_CONTRADICTION}")
    records = reader.records(log)
    count, good = len(records.starts), records.good
    if not count:
        return Extent(file.header.begin_offset, file.header.end_offset)
    if 2 * len(good) < count:
        raise IndexFileError(
            f"{file.path.name}: most of its entries point to no records of this log"
        )
    if good[-1] == count - 1 and records.times_ms[-1] != file.header.end_timestamp_ms:
        raise IndexFileError(f"{file.path.name}: its header has not the time of its last message")
    for row in good[:: len(good) // _HASH_SAMPLES + 1]:
        file.is_for_its_record(log, int(records.last_entries[row]))
    gaps = (_gap(log, records, *rows) for rows in records.breaks)
    first, last = int(records.starts[good[0]]), int(records.starts[good[-1]])
    return Extent(first, last, tuple(gap for gap in gaps if gap))


def _gap(log: CommitLog, records: _Records, before: int, after: int) -> tuple[int, int] | None:
    """Return the range between two good records if it is more than one unreadable record.

    Records without any key are such gaps; so is what a broker stored while its index was off, or
    wrote over records that its index still has.
    """
    start, stop = int(records.ends[before]), int(records.starts[after])
    between = range(before + 1, after)
    is_damage = (
        bool(between)
        and records.starts[before + 1] == start
        and all(records.starts[row] == records.ends[row] for row in between)
    )
    return (
        None if start >= stop or is_damage or is_blank_before(log, start, stop) else (start, stop)
    )


# These two are rules for one record, and for columns of many: so they have no "and".
def _is_record(size: Any, magic: Any, own_offset: Any, offset: Any, room: Any) -> Any:
    return (
        ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        & (own_offset == offset)
        & (size >= MIN_RECORD_BYTES)
        & (size <= room)
    )


def _has_seconds(time_ms: Any, seconds: Any, begin_ms: int) -> Any:
    """Return whether an entry's ``seconds`` are what ``IndexFile.putKey`` makes of a store time."""
    if begin_ms <= 0:
        return seconds == 0
    least = time_ms - begin_ms - seconds * 1000
    return (
        (seconds >= 0)
        & ((least >= 0) | (seconds == 0))
        & ((least < 1000) | (seconds == limits.MAX_INT))
    )


class _Interpreted:
    """Reads entries, and the records that they lead to, without numpy."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        rows: Iterable[tuple[int, int, int, int]] = ()
        self._slots = memoryview(b"")
        if file.geometry:
            first, stop = (file.geometry.entry_position(n) for n in (0, file.last_entry + 1))
            rows = ENTRY.iter_unpack(file.view[first:stop])
            self._slots = file.view[HEADER_BYTES:first]
        self._hashes, self._offsets, self._seconds, self._links = zip(*rows, strict=True)

    def chains(self) -> ChainCheck:
        return check_chains(self._hashes[1:], self._links[1:], self._slots)

    def is_in_order(self) -> bool:
        is_unused = not self._hashes[0] and not self._links[0]
        offsets = self._offsets[1:]
        return is_unused and all(map(le, offsets, offsets[1:]))

    def records(self, log: CommitLog) -> _Records:
        # Use the last entry of each: the first one of a file may count from another begin time.
        last_entries = dict(zip(self._offsets[1:], count(1), strict=False))
        starts = [offset for offset in last_entries if offset >= log.min_offset]
        entries = [last_entries[start] for start in starts]
        begin_ms = self._file.header.begin_timestamp_ms
        ends: list[int] = []
        times: list[int] = []
        good: list[int] = []
        for row, (end, time_ms) in enumerate(_heads(log, starts)):
            ends.append(end)
            times.append(time_ms)
            entry = entries[row]
            if end > starts[row] and (
                time_ms == begin_ms
                if entry == 1
                else _has_seconds(time_ms, self._seconds[entry], begin_ms)
            ):
                good.append(row)
        breaks = [(row, after) for row, after in pairwise(good) if ends[row] != starts[after]]
        return _Records(starts, ends, times, entries, good, breaks)


def _heads(log: CommitLog, offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield end and store time of the record at each offset; the offset itself if there is none."""
    start = end = 0
    view = memoryview(b"")
    for offset in offsets:
        if not start <= offset < end:
            segment, view = log.segment_of(offset), memoryview(b"")
            start, end = (segment.base_offset, segment.end_offset) if segment else (offset, offset)
            if segment:
                with suppress(RecordError):
                    view = log.map(segment).view
        position = offset - start
        room = len(view) - position
        if room >= MIN_RECORD_BYTES:
            size, magic, own_offset = _HEAD.unpack_from(view, position)
            if _is_record(size, magic, own_offset, offset, room):
                yield offset + size, store_timestamp_at(view, position)
                continue
        yield offset, 0


class _ByNumpy:
    """Does the same by numpy."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._entries = file.entry_columns()

    def chains(self) -> ChainCheck:
        import numpy as np

        if self._file.geometry is None:
            return ChainCheck(0, 0, 0, -1, 0)
        slot_count = self._file.geometry.slot_count
        stop = self._file.geometry.entry_position(0)
        heads = self._file.array()[HEADER_BYTES:stop].view(">i4")
        hashes = self._entries["key_hash"].astype(np.int64)
        slots = (hashes & 0xFFFFFFFF) % slot_count
        # Entries of one slot side by side, in their order; before all stands entry 0.
        slots[0] = -1
        order = np.argsort(slots, kind="stable")
        is_first = slots[order][1:] != slots[order][:-1]
        links = np.zeros(len(slots), np.int64)
        links[order[1:]] = np.where(is_first, 0, order[:-1])
        bad = np.flatnonzero((links != self._entries["previous_entry"]) | (hashes < 0))
        bad = bad[bad > 0]
        newest = np.zeros(slot_count, np.int32)
        newest[slots[1:]] = np.arange(1, len(slots))
        bad_slots = np.flatnonzero(newest != heads)
        return ChainCheck(
            len(bad),
            int(bad[0]) if len(bad) else 0,
            len(bad_slots),
            int(bad_slots[0]) if len(bad_slots) else -1,
            int(np.count_nonzero(heads)),
        )

    def is_in_order(self) -> bool:
        import numpy as np

        unused, offsets = self._entries[0], self._entries["physical_offset"][1:]
        is_unused = not unused["key_hash"] and not unused["previous_entry"]
        return is_unused and bool((np.diff(offsets.astype(np.int64)) >= 0).all())

    def records(self, log: CommitLog) -> _Records:
        import numpy as np

        entries = self._entries[1:]
        starts, first_rows = np.unique(
            entries["physical_offset"].astype(np.int64), return_index=True
        )
        lasts = np.append(first_rows[1:], len(entries)) - 1
        is_inside = starts >= log.min_offset
        starts, lasts = starts[is_inside], lasts[is_inside]
        ends, times = _heads_by_numpy(log, starts)
        begin_ms = self._file.header.begin_timestamp_ms
        seconds = entries["seconds"][lasts].astype(np.int64)
        has_time = np.where(lasts == 0, times == begin_ms, _has_seconds(times, seconds, begin_ms))
        good = np.flatnonzero((ends > starts) & has_time)
        before, after = good[:-1], good[1:]
        is_break = ends[before] != starts[after]
        breaks = list(zip(before[is_break].tolist(), after[is_break].tolist(), strict=True))
        return _Records(starts, ends, times, lasts + 1, good, breaks)


def _heads_by_numpy(log: CommitLog, offsets: "Offsets") -> "tuple[Offsets, Offsets]":
    """Return what :func:`_heads` returns, as two columns."""
    import numpy as np

    ends, times = offsets.copy(), np.zeros(len(offsets), np.int64)
    for segment in log.segments:
        bounds = [segment.base_offset, segment.end_offset - MIN_RECORD_BYTES + 1]
        first, last = np.searchsorted(offsets, bounds).tolist()
        if first >= last:
            continue
        try:
            content = log.map(segment).array()
        except RecordError:
            continue
        part = slice(first, last)
        positions = offsets[part] - segment.base_offset
        size, magic, own_offset = (column(content, positions, name) for name in _HEAD_FIELDS)
        room = segment.size - positions
        is_record = _is_record(size, magic, own_offset, offsets[part], room)
        ends[part] += np.where(is_record, size, 0)
        times[part] = np.where(is_record, store_timestamps(content, positions), 0)
    return ends, times


def is_blank_before(log: CommitLog, start: int, stop: int) -> bool:
    """Return whether there is only the filler of a segment's end between two offsets."""
    segment = log.segment_of(stop)
    if segment is None or segment.base_offset != stop:
        return False
    try:
        log.record_at(start, check_crc=False)
    except RecordError as error:
        return error.reason == Reason.BLANK
    return False


def compiled_chain_check(file: IndexFile) -> ChainCheck:
    """Check every slot and link of a file by the compiled kernel: 10 M entries a second."""
    from rocketlens.formats.compiled import kernels

    if file.geometry is None:
        return ChainCheck(0, 0, 0, -1, 0)
    content, entries_at = file.array(), file.geometry.entry_position(0)
    return kernels.check_index_file(
        content[HEADER_BYTES:entries_at],
        content[entries_at:],
        slot_count=file.geometry.slot_count,
        last_entry=file.last_entry,
    )


def check_links(file: IndexFile) -> None:
    """Check every slot and link of a large file, which may have lost pages.

    A broker that was killed may have put one entry more on its slot than the header counts; that
    is no contradiction.

    :raises IndexFileError: when an entry cannot be reached from its slot.
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


def check_samples(file: IndexFile, log: CommitLog, count: int = _SAMPLES) -> Extent:
    """Check ``count`` samples over its part of the log, and a quarter as many entries.

    :raises IndexFileError: when one of these entries is wrong, or none leads to its record.
    """
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
            gap = _gap_behind(file, log, number, last)
            if gap:
                gaps.add(gap)
    return Extent(first_offset, last_offset, tuple(sorted(gaps)))


def _last_sound_entry(file: IndexFile, log: CommitLog) -> int:
    """Return the last entry that matches its record; the log may have lost later ones.

    :raises IndexFileError: when there is none.
    """

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


def _gap_behind(file: IndexFile, log: CommitLog, number: int, last: int) -> tuple[int, int] | None:
    """Return the range between the record of an entry and the next record with an entry."""
    offset = file.entry(number).physical_offset
    following = file.number_before(offset) + 1
    if following > last:
        return None
    start = offset + log.record_at(offset, check_crc=False).total_size
    stop = file.entry(following).physical_offset
    return None if start >= stop or is_blank_before(log, start, stop) else (start, stop)
