"""Searches one index file, and checks all that it reads.

An index file is a cache without checksums. These checks are made:

* size, header and geometry agree (:func:`rocketlens.formats.index_file.infer_geometry`);
* the entries are those of this log: :mod:`rocketlens.store.read.index.index_check`;
* each step of a chain walk is valid, and so is each entry whose hash differs from the wanted one in
  a single byte;
* the number of used slots is that of the header, before "not found" is returned, or an empty slot
  among empty ones is believed.

If a check fails, the log that the file should cover is read instead, by
:mod:`rocketlens.store.read.index.tail`. A chain walk goes strictly downwards, so damage cannot make
it loop.

A running broker can add entries to an open file. The index in memory covers their part of the log,
so it does not matter if they are found here.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.compiled.look_up_constants import ARE_COUNTED
from rocketlens.formats.index_file import (
    ENTRY_LAYOUT,
    HEADER_BYTES,
    HEADER_LAYOUT,
    SLOT,
    Geometry,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    index_hashes,
    infer_geometry,
)
from rocketlens.late import np, npt
from rocketlens.store import fs
from rocketlens.store.read.index.tail import TimeBounds
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk, exhaust

_NEXT_ENTRY_POSITION: Final = HEADER_LAYOUT.offsets["next_entry"]
_COPY_BYTES: Final = 1 << 20
"""Files up to this size are read, not mapped: a broker can have thousands of small ones."""
_PAGE_BYTES: Final = 4096
_STEPS_TO_PAUSE: Final = 256
_ENTRIES_TO_PAUSE: Final = 1 << 18
"""Entries of a column that are compared in a millisecond or two."""
_ENTRIES_OF_TIME: Final = 1024
"""Entries that share a maximum store time."""
_LONG_CHAIN: Final = 20_000
"""Entries of a chain that are walked one by one. In RocketMQ 5.5 a topic's tag has a chain."""
_STALE_BYTES_SEARCHED: Final = 32 * 1024 * 1024
"""Bytes of an empty file that are searched for entries: more than all default slots."""


def is_near(key_hash: int, wanted: int) -> bool:
    """Return whether two hashes differ in at most one byte, as after damage."""
    changed = key_hash ^ wanted
    return (
        not changed & 0xFFFFFF00
        or not changed & 0xFFFF00FF
        or not changed & 0xFF00FFFF
        or not changed & 0x00FFFFFF
    )


class IndexFile:
    """One index file with at least one entry, open for look-ups.

    All methods raise IndexFileError if the file turns out to be damaged.
    """

    def __init__(self, path: Path, likely: tuple[Geometry, ...] = ()) -> None:
        """Open the file and infer its geometry; ``likely`` is tried first."""
        self.path = path
        self._mapped = fs.MappedFile(path, copy_bytes=_COPY_BYTES)
        self.view: Final = self._mapped.view
        self.header: IndexHeader = decode_header(self._mapped.content[:HEADER_BYTES])
        self.last_entry = self.header.last_entry
        self.geometry = infer_geometry(self._mapped.content, likely) if self.last_entry else None
        of_log = self.header.begin_offset, self.header.end_offset
        counts = *(self.geometry or (0, 0)), self.last_entry, self.header.next_entry
        self.walk_numbers: Final = array("q", (*counts, *of_log, False))
        """For compiled walks: counts of slots and entries, the last entry and the next one, the
        first and last physical offset, and whether the used slots were counted.
        """

    @property
    def are_slots_counted(self) -> bool:
        """Whether the number of used slots was compared with the header."""
        return bool(self.walk_numbers[ARE_COUNTED])

    @are_slots_counted.setter
    def are_slots_counted(self, are_counted: bool) -> None:
        self.walk_numbers[ARE_COUNTED] = are_counted

    def check_empty(self) -> None:
        """Check that a file without entries in its header is empty."""
        content = self._mapped.content
        for low, high in fs.data_extents(self.path, HEADER_BYTES, len(content)):
            for start in range(low, min(high, _STALE_BYTES_SEARCHED), _COPY_BYTES):
                if any(content[start : min(start + _COPY_BYTES, high)]):
                    message = f"{self.path.name}: its header says it is empty, and it is not"
                    raise IndexFileError(message)

    def array(self) -> "npt.NDArray[np.uint8]":
        return self._mapped.array()

    def entry_columns(self) -> "npt.NDArray[np.void]":
        """Return entry 0 to the last one as a structured array over the file's bytes."""
        if self.geometry is None:
            return np.empty(0, dtype=ENTRY_LAYOUT.dtype)
        start = self.geometry.entry_position(0)
        stop = self.geometry.entry_position(self.last_entry + 1)
        return self.array()[start:stop].view(ENTRY_LAYOUT.dtype)

    def head_of(self, slot: int) -> int:
        """Return the newest entry of a slot's chain; 0 for none."""
        if self.geometry is None:
            return 0
        (number,) = SLOT.unpack_from(self.view, self.geometry.slot_position(slot))
        return int(number)

    def entry(self, number: int) -> IndexEntry:
        if self.geometry is None or not 0 < number < self.geometry.entry_count:
            message = f"{self.path.name}: a chain leads to entry {number}, which does not exist"
            raise IndexFileError(message)
        return decode_entry(self.view, self.geometry, number)

    def chain(self, key_hash: int) -> Iterator[tuple[int, IndexEntry]]:
        """Walk the chain of a hash, newest entry first, including entries of other hashes."""
        if self.geometry is None:
            return
        slot_count = self.geometry.slot_count
        slot = key_hash % slot_count
        number = self.head_of(slot)
        if number == 0:
            self._check_empty_slot(slot)
            return
        counted = max(self.header.next_entry, SLOT.unpack_from(self.view, _NEXT_ENTRY_POSITION)[0])
        # A builder counts entries only after it has put them on their slots: one, or many.
        above = max(counted, number + 1)
        offset_above = -1
        while number != 0:
            if not 0 < number < above:
                message = f"{self.path.name}: entry {number} follows {above} on a chain"
                raise IndexFileError(message)
            entry = self.entry(number)
            if entry.key_hash < 0 or entry.key_hash % slot_count != slot:
                message = f"{self.path.name}: entry {number} is on the chain of slot {slot}"
                raise IndexFileError(message)
            least = self.header.end_offset if number >= counted else self.header.begin_offset
            if not least <= entry.physical_offset or (0 <= offset_above < entry.physical_offset):
                message = f"{self.path.name}: entry {number} is out of the log's order"
                raise IndexFileError(message)
            yield number, entry
            above, number, offset_above = number, entry.previous_entry, entry.physical_offset

    def find(
        self, key_hash: int, log: CommitLog, *, pauses: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Yield number and physical offset of each entry with a hash, newest first, lazily.

        Entries with nearly the same hash are compared with the log: they can be damaged. With
        ``pauses``, a number of 0 is yielded about every millisecond, with an offset that is not
        below those of later entries.
        """
        for step, (number, entry) in enumerate(self.chain(key_hash)):
            if step == _LONG_CHAIN:
                yield from self._find_by_column(key_hash, log, number, pauses=pauses)
                return
            if pauses and step % _STEPS_TO_PAUSE == _STEPS_TO_PAUSE - 1:
                yield 0, entry.physical_offset
            if entry.key_hash == key_hash:
                self._check_order(number, entry)
                yield number, entry.physical_offset
            elif is_near(entry.key_hash, key_hash):
                self.check_entry(log, number)

    def _find_by_column(
        self, key_hash: int, log: CommitLog, last: int, *, pauses: bool
    ) -> Iterator[tuple[int, int]]:
        """Do :meth:`find` for the entries up to ``last``, comparing many hashes at once."""
        column = self.entry_columns()["key_hash"]
        slot_count = self.geometry.slot_count if self.geometry else 1
        for stop in range(last + 1, 1, -_ENTRIES_TO_PAUSE):
            start = max(stop - _ENTRIES_TO_PAUSE, 1)
            hashes = column[start:stop].astype(np.int32)
            changed = hashes ^ np.int32(key_hash)
            is_damaged = np.zeros(len(hashes), dtype=np.bool_)
            for byte_mask in (0x7FFFFF00, 0x7FFF00FF, 0x7F00FFFF, 0x00FFFFFF):
                is_damaged |= (changed & np.int32(byte_mask)) == 0
            is_damaged &= (changed != 0) & (hashes % slot_count == key_hash % slot_count)
            for row in np.flatnonzero(is_damaged).tolist():
                self.check_entry(log, start + row)
            for row in np.flatnonzero(changed == 0)[::-1].tolist():
                entry = self.entry(start + row)
                self._check_order(start + row, entry)
                yield start + row, entry.physical_offset
            if pauses:
                yield 0, self.entry(start).physical_offset

    @cached_property
    def time_bounds(self) -> TimeBounds:
        """The bounds of the entries' store times, in milliseconds. O(entries), once."""
        entries = self.entry_columns()[1:]
        bounds, begin_ms = TimeBounds(), self.header.begin_timestamp_ms
        blocks = np.arange(0, len(entries), _ENTRIES_OF_TIME)
        seconds = np.maximum.reduceat(entries["seconds"], blocks).tolist() if len(blocks) else []
        offsets = entries["physical_offset"][blocks].tolist()
        # Each block has the time of the next one as well, because single entries can be damaged.
        for offset, *next_two in zip(offsets, seconds, [*seconds[1:], 0], strict=True):
            max_s = max(*next_two, 0)
            # Without a begin time entries have no times. The largest number can mean a later time.
            has_time = begin_ms > 0 and max_s < limits.MAX_INT
            bounds.add(
                offset, begin_ms + max_s * 1000 + 999 if has_time else limits.MAX_TIMESTAMP_MS
            )
        return bounds

    def _check_order(self, number: int, entry: IndexEntry) -> None:
        if number > self.last_entry:
            return
        limit = self.header.end_offset
        if number < self.last_entry:
            limit = min(limit, self.entry(number + 1).physical_offset)
        below = self.entry(number - 1).physical_offset if number > 1 else self.header.begin_offset
        if not below <= entry.physical_offset <= limit:
            message = f"{self.path.name}: entry {number} is out of the log's order"
            raise IndexFileError(message)

    def _check_empty_slot(self, slot: int) -> None:
        """Count all slots if the page around an empty slot is empty.

        The page can have been lost. Or no key is on it: the hashes of similar keys are close.
        """
        if self.geometry is None or self.are_slots_counted:
            return
        start = self.geometry.slot_position(slot) // _PAGE_BYTES * _PAGE_BYTES
        end = min(start + _PAGE_BYTES, self.geometry.entry_position(0))
        if not any(self.view[max(start, HEADER_BYTES) : end]):
            self.count_slots()

    def count_slots(self) -> None:
        """Compare the number of used slots with the header, once.

        :raises IndexFileError: if they differ, and no broker is writing to the file.
        """
        if self.are_slots_counted:
            return
        if not self.has_grown():
            self._compare_slot_count()
        self.are_slots_counted = True

    def _compare_slot_count(self) -> None:
        """Count the used slots and compare with the header. Reads the slot table once.

        A file with entries on slots that its header does not count yet is being written: skip it.
        """
        if self.geometry is None:
            return
        slots = self.array()[HEADER_BYTES : self.geometry.entry_position(0)].view(np.int32)
        used = int(np.count_nonzero(slots))
        is_written_to = used > self.header.used_slot_count and bool(
            (slots.byteswap() >= self.header.next_entry).any()
        )
        if used != self.header.used_slot_count and not is_written_to:
            message = (
                f"{self.path.name}: {used} slots are used, and its header counts "
                f"{self.header.used_slot_count}"
            )
            raise IndexFileError(message)

    def has_grown(self) -> bool:
        (next_entry,) = SLOT.unpack_from(self.view, _NEXT_ENTRY_POSITION)
        return bool(next_entry > self.header.next_entry)

    def known_start_before(self, physical_offset: int) -> int | None:
        number = self.number_before(physical_offset)
        return self.entry(number).physical_offset if number else None

    def number_before(self, physical_offset: int) -> int:
        """Return the number of the last entry at or before an offset, or 0. O(log entries)."""
        numbers = range(1, self.last_entry + 1)
        return bisect_right(numbers, physical_offset, key=lambda n: self.entry(n).physical_offset)

    def check_entry(self, log: CommitLog, number: int) -> bool:
        """Compare one entry with its record; return True if the record has its hash.

        Return False if the record is damaged or deleted, or the log now ends before it.

        :raises IndexFileError: if the entry is wrong.
        """
        physical_offset = self.entry(number).physical_offset
        if physical_offset < log.min_offset:
            return False
        if self.is_for_its_record(log, number):
            return True
        segment = log.segment_of(physical_offset)
        if segment is None:
            return False
        start, step = segment.base_offset, 1
        while number - step > 0 and self.entry(number - step).physical_offset > start:
            if self.is_for_its_record(log, number - step):
                start = self.entry(number - step).physical_offset
            step *= 2
        if not log_explains(log, start, physical_offset):
            message = f"{self.path.name}: entry {number} points to no record's start"
            raise IndexFileError(message)
        return False

    def is_for_its_record(self, log: CommitLog, number: int) -> bool:
        """Return True if the entry's record has its hash, False if the record is unreadable.

        :raises IndexFileError: if the record has other hashes.
        """
        entry = self.entry(number)
        try:
            record = log.record_at(entry.physical_offset, check_crc=False)
        except RecordError:
            return False
        if entry.key_hash not in index_hashes(record, with_tags=True):
            message = (
                f"{self.path.name}: entry {number} is not for the record at {entry.physical_offset}"
            )
            raise IndexFileError(message)
        return True

    def close(self) -> None:
        self._mapped.close()


def log_explains(log: CommitLog, start: int, physical_offset: int) -> bool:
    """Return whether an offset is in a damaged range of the log, or after its end.

    ``start``: a record start at or before the offset. The records between are read.
    """
    walk = LogWalk(log, start, physical_offset + 1)
    exhaust(walk)
    return (
        any(damage.start <= physical_offset < damage.stop for damage in walk.damage)
        or walk.position <= physical_offset
    )
