"""Checks of an index file: its chains, and its entries against the log.

Small files are checked whole: every entry hangs on exactly one slot or later entry, on the chain
of its own hash, and leads to a record of the log whose store time it has; what the log has between
those records is a gap. (Of very small ones :mod:`rocketlens.store.read.index.index_check_small`
finds the same without numpy.) Large ones are checked at 256 samples, spread evenly over their part
of the log, and at 64 entries: a gap or a stale stretch of 1/256 of that log is found for certain.
Those that are not known to be complete on the disk
(:mod:`rocketlens.store.read.index.index_synced`) are replayed before that, every slot and link of
them.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    Reason,
)
from rocketlens.formats.index_file import ENTRY_LAYOUT, HEADER_BYTES
from rocketlens.formats.record_columns import column, store_timestamps
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk, exhaust

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketlens.store.read.index.index import IndexFile

    Offsets = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

_SAMPLES: Final = 256
"""Samples of a large file that are checked when it is opened: some 10 ms together."""

HASH_SAMPLES: Final = 8
"""Entries of a small file whose hash is compared with their record's."""

CONTRADICTION: Final = "its slots and entries contradict each other"
NO_RECORDS: Final = "most of its entries point to no records of this log"
OTHER_TIME: Final = "its header has not the time of its last message"


class Extent(NamedTuple):
    """The range of the log that a file covers: from record ``first`` to record ``last``, inclusive.

    The ranges in ``gaps``, each from a record's start to another's, are not covered.
    """

    first: int
    last: int
    gaps: tuple[tuple[int, int], ...] = ()


def entry_columns(file: "IndexFile") -> "npt.NDArray[np.void]":
    """Return entries 0 to the last as a structured array over the file's bytes."""
    import numpy as np

    if file.geometry is None:
        return np.empty(0, dtype=ENTRY_LAYOUT.dtype)
    start, stop = file.geometry.entry_position(0), file.geometry.entry_position(file.last_entry + 1)
    return file.array()[start:stop].view(ENTRY_LAYOUT.dtype)


def check_slots(file: "IndexFile") -> None:
    """Count the used slots and compare with the header. Reads the slot table once.

    A file with entries on slots that the header does not count yet is being written to: of that
    nothing can be said.

    :raises IndexFileError: when they differ: slots were lost or made up.
    """
    import numpy as np

    if file.geometry is None:
        return
    slots = file.array()[HEADER_BYTES : file.geometry.entry_position(0)].view(np.int32)
    used = int(np.count_nonzero(slots))
    is_written_to = used > file.header.used_slot_count and bool(
        (slots.byteswap() >= file.header.next_entry).any()
    )
    if used != file.header.used_slot_count and not is_written_to:
        message = (
            f"{file.path.name}: {used} slots are used, its header says "
            f"{file.header.used_slot_count}"
        )
        raise IndexFileError(message)


def check_whole(file: "IndexFile", log: CommitLog) -> Extent:
    """Check every slot and entry against each other and the log. O(slots + entries).

    :raises IndexFileError: when an entry hangs on none or on several places, on the chain of
        another slot, or out of order, or when no entry leads to its record.
    """
    _check_chains(file)
    return _compare(file, log)


def _check_chains(file: "IndexFile") -> None:
    import numpy as np

    if file.geometry is None:
        return
    last, slot_count = file.last_entry, file.geometry.slot_count
    content = file.array()
    slots = content[HEADER_BYTES : file.geometry.entry_position(0)].view(">i4").astype(np.int64)
    entries = entry_columns(file)
    hashes = entries["key_hash"].astype(np.int64)
    previous = entries["previous_entry"].astype(np.int64)
    heads = np.flatnonzero(slots)
    referred = np.concatenate([slots[heads], previous[previous != 0]])
    numbers = np.arange(last + 1)
    sound = (
        not hashes[0]
        and not previous[0]
        and bool((hashes >= 0).all())
        and len(heads) == file.header.used_slot_count
        and len(referred) == last
        and bool(((referred > 0) & (referred <= last)).all())
        and bool((np.bincount(referred, minlength=last + 1)[1:] == 1).all())
        and bool((previous < np.maximum(numbers, 1)).all())
        and bool((hashes[slots[heads]] % slot_count == heads).all())
        and bool((hashes[previous] % slot_count == hashes % slot_count)[previous != 0].all())
        and bool((np.diff(entries["physical_offset"][1:].astype(np.int64)) >= 0).all())
    )
    if not sound:
        raise IndexFileError(f"{file.path.name}: {CONTRADICTION}")


def _compare(file: "IndexFile", log: CommitLog) -> Extent:
    """Find the records of the entries, and the ranges of the log between them."""
    import numpy as np

    entries = entry_columns(file)[1:]
    offsets, first_rows = np.unique(entries["physical_offset"].astype(np.int64), return_index=True)
    # Use the last entry of each record: the first one of a file may count from another begin time.
    lasts = np.append(first_rows[1:], len(entries)) - 1
    inside = offsets >= log.min_offset
    offsets, lasts = offsets[inside], lasts[inside]
    if not len(offsets):
        return Extent(file.header.begin_offset, file.header.end_offset)
    sizes, times = _heads(log, offsets)
    begin_ms = file.header.begin_timestamp_ms
    seconds = np.clip((times - begin_ms) // 1000, 0, limits.MAX_INT if begin_ms > 0 else 0)
    readable = sizes > 0
    is_in_time = seconds == entries["seconds"][lasts].astype(np.int64)
    good = readable & np.where(lasts == 0, times == begin_ms, is_in_time)
    if 2 * int(np.count_nonzero(good)) < len(good):
        raise IndexFileError(f"{file.path.name}: {NO_RECORDS}")
    if good[-1] and int(times[-1]) != file.header.end_timestamp_ms:
        raise IndexFileError(f"{file.path.name}: {OTHER_TIME}")
    gaps = _gaps(log, offsets, offsets + sizes, good, readable)
    numbers = np.flatnonzero(good)
    for number in numbers[:: len(numbers) // HASH_SAMPLES + 1].tolist():
        file.is_for_its_record(log, int(lasts[number]) + 1)
    return Extent(int(offsets[numbers[0]]), int(offsets[numbers[-1]]), tuple(gaps))


def _heads(log: CommitLog, offsets: "Offsets") -> "tuple[Offsets, Offsets]":
    """Return size and store time of the record at each offset; size 0 if there is none."""
    import numpy as np

    sizes, times = np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.int64)
    for segment in log.segments:
        ends = [segment.base_offset, segment.end_offset - MIN_RECORD_BYTES + 1]
        first, last = np.searchsorted(offsets, ends).tolist()
        if first >= last:
            continue
        try:
            content = log.map(segment).array()
        except RecordError:
            continue
        part = slice(first, last)
        positions = offsets[part] - segment.base_offset
        magics = column(content, positions, "magic")
        found = column(content, positions, "total_size")
        has_record = (
            ((magics == MAGIC_V1) | (magics == MAGIC_V2))
            & (column(content, positions, "physical_offset") == offsets[part])
            & (found >= MIN_RECORD_BYTES)
            & (found <= segment.size - positions)
        )
        sizes[part] = np.where(has_record, found, 0)
        times[part] = store_timestamps(content, positions)
    return sizes, times


def _gaps(
    log: CommitLog, offsets: "Offsets", ends: "Offsets", good: "Flags", readable: "Flags"
) -> list[tuple[int, int]]:
    """Return the ranges between the good records that are more than one unreadable record.

    Records without any key are such gaps; so is what a broker stored while its index was off, or
    wrote over records that its index still has.
    """
    import numpy as np

    numbers = np.flatnonzero(good)
    before, after = numbers[:-1], numbers[1:]
    gaps: list[tuple[int, int]] = []
    for i, j in zip(
        *(side[ends[before] != offsets[after]].tolist() for side in (before, after)), strict=True
    ):
        start, stop = int(ends[i]), int(offsets[j])
        is_damage = j > i + 1 and int(offsets[i + 1]) == start and not readable[i + 1 : j].any()
        if start < stop and not is_damage and not is_blank_before(log, start, stop):
            gaps.append((start, stop))
    return gaps


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


def check_links(file: "IndexFile") -> None:
    """Check every slot and link of a large file by the compiled kernel: 10 M entries a second.

    For files that may have lost pages. A broker that was killed may have put one entry more on its
    slot than the header counts; that is no contradiction.

    :raises IndexFileError: when an entry cannot be reached from its slot.
    """
    from rocketlens.formats.compiled import kernels

    if file.geometry is None:
        return
    slot_count, last = file.geometry.slot_count, file.last_entry
    entries_at = file.geometry.entry_position(0)
    content = file.array()
    slots = content[HEADER_BYTES:entries_at]
    found = kernels.check_index_file(
        slots, content[entries_at:], slot_count=slot_count, last_entry=last
    )
    is_one_more = found.bad_slot_count == 1 and file.head_of(found.first_bad_slot) == last + 1
    used = {file.header.used_slot_count, file.header.used_slot_count + is_one_more}
    if (
        found.bad_entry_count
        or found.bad_slot_count > is_one_more
        or found.used_slot_count not in used
    ):
        raise IndexFileError(f"{file.path.name}: {CONTRADICTION}, as after a power cut")


def check_samples(file: "IndexFile", log: CommitLog, count: int = _SAMPLES) -> Extent:
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


def _last_sound_entry(file: "IndexFile", log: CommitLog) -> int:
    """Return the last entry that matches its record; the log may have lost later ones.

    :raises IndexFileError: when there is none.
    """
    low, high = 0, file.last_entry
    if file.is_for_its_record(log, high) or file.entry(high).physical_offset < log.min_offset:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        is_sound = file.entry(middle).physical_offset < log.min_offset or file.is_for_its_record(
            log, middle
        )
        low, high = (middle, high) if is_sound else (low, middle)
    if low == 0:
        message = f"{file.path.name}: its entries point to no records of this log"
        raise IndexFileError(message)
    return low


def _gap_behind(
    file: "IndexFile", log: CommitLog, number: int, last: int
) -> tuple[int, int] | None:
    """Return the range between the record of an entry and the next record with an entry."""
    offset = file.entry(number).physical_offset
    following = file.number_before(offset) + 1
    if following > last:
        return None
    start = offset + log.record_at(offset, check_crc=False).total_size
    stop = file.entry(following).physical_offset
    return None if start >= stop or is_blank_before(log, start, stop) else (start, stop)


def log_explains(log: CommitLog, start: int, physical_offset: int) -> bool:
    """Return whether an offset is in a damaged range of the log, or behind its end.

    ``start`` is a record's, at or before the offset; the records between are read.
    """
    walk = LogWalk(log, start, physical_offset + 1)
    exhaust(walk)
    return (
        any(damage.start <= physical_offset < damage.stop for damage in walk.damage)
        or walk.position <= physical_offset
    )
