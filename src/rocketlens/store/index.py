"""Index files as a reader uses them: looked into, doubted, and told apart from what they miss.

An index file is a cache without checksums. Here it is believed as far as it can be checked:

* its size, header and geometry must agree (:func:`rocketlens.formats.index_file.find_geometry`);
* the records of some of its entries must be in the log and have the entry's hash, else it is the
  index of another store, or of a log that is gone;
* small files are checked whole before use: every entry hangs on exactly one slot or later entry,
  on the chain of its own hash, and the entries leave out no record of the log;
* on large ones every step of every chain walk is checked, and the used slots are counted.

A file that fails is not used: the log it should cover is read instead, by
:mod:`rocketlens.store.tail`. A chain walk goes strictly downwards, so no damage can make it loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import (
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
    Reason,
    Record,
)
from rocketlens.formats.index_file import (
    SLOT,
    SLOT_BYTES,
    Geometry,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    find_geometry,
)
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8, index_hash
from rocketlens.store import fs
from rocketlens.store.commitlog import CommitLog
from rocketlens.store.scan import LogWalk, exhaust

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SAMPLES: Final = 8
"""Entries of each file whose records are read when it is opened."""


def index_hashes(record: Record) -> set[int]:
    """Give the hashes of all index entries that any RocketMQ version makes for a record."""
    if record.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK:
        return set()
    properties = props.parse(decode_utf8(record.properties))
    texts = [*props.split_keys(properties.get(props.KEYS))]
    if unique_key := properties.get(props.UNIQUE_KEY):
        texts.append(unique_key)
    if tags := properties.get(props.TAGS):
        texts.append(f"T#{tags}")
    return {index_hash(f"{record.topic}#{text}") for text in texts}


class IndexFile:
    """One index file with at least one entry, open for look-ups."""

    def __init__(self, path: Path, likely: tuple[Geometry, ...] = ()) -> None:
        """Open the file and find its geometry.

        :raises IndexFileError: when it is damaged beyond use.
        :raises OSError: when it cannot be opened.
        """
        self.path = path
        self._mapped = fs.MappedFile(path)
        self.header: IndexHeader = decode_header(self._mapped.content[:40])
        self.geometry = (
            find_geometry(self._mapped.content, likely) if self.header.last_entry else None
        )

    @property
    def used_bytes(self) -> int:
        """Bytes of slots and of written entries."""
        if self.geometry is None:
            return 0
        return self.geometry.entry_position(self.header.next_entry)

    def entry(self, number: int) -> IndexEntry:
        """Read one entry."""
        if self.geometry is None or not 0 < number < self.geometry.entry_count:
            message = f"{self.path.name}: a chain leads to entry {number}, which it has not"
            raise IndexFileError(message)
        return decode_entry(self._mapped.view, self.geometry, number)

    def chain(self, key_hash: int) -> Iterator[tuple[int, IndexEntry]]:
        """Walk the chain of a hash, newest entry first; entries of other hashes included.

        :raises IndexFileError: at the first step that cannot be right.
        """
        if self.geometry is None:
            return
        slot = key_hash % self.geometry.slot_count
        (number,) = SLOT.unpack_from(self._mapped.view, self.geometry.slot_position(slot))
        above = self.header.next_entry
        while number != 0:
            if not 0 < number < above:
                message = f"{self.path.name}: entry {number} follows {above} on a chain"
                raise IndexFileError(message)
            entry = self.entry(number)
            if entry.key_hash < 0 or entry.key_hash % self.geometry.slot_count != slot:
                message = f"{self.path.name}: entry {number} hangs on slot {slot}, not its own"
                raise IndexFileError(message)
            yield number, entry
            above, number = number, entry.previous_entry

    def has_entry_at(self, physical_offset: int) -> bool:
        """Say whether some entry points to the offset. O(log entries)."""
        low = self._first_at_or_after(physical_offset)
        return low <= self.header.last_entry and self.entry(low).physical_offset == physical_offset

    def known_start_before(self, physical_offset: int) -> int | None:
        """Give the largest offset of an entry that is at most ``physical_offset``. O(log n)."""
        low = self._first_at_or_after(physical_offset + 1)
        return self.entry(low - 1).physical_offset if low > 1 else None

    def _first_at_or_after(self, physical_offset: int) -> int:
        low, high = 1, self.header.last_entry + 1
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def hides_flipped_bits(self) -> bool:
        """Say whether a hash with one wrong bit can still be on its right chain."""
        slots = self.geometry.slot_count if self.geometry else 1
        return slots & (slots - 1) == 0

    def check_samples(self, log: CommitLog) -> None:
        """Compare some entries, the first and last among them, with the records they point to.

        :raises IndexFileError: when not one of them is for its record, or a record of the log is
            for another entry: this is the index of something else.
        """
        last = self.header.last_entry
        step = max(1, last // _SAMPLES)
        numbers = sorted({*range(1, last + 1, step), last})
        inside = [n for n in numbers if self.entry(n).physical_offset >= log.min_offset]
        if inside and not sum(self._is_for_its_record(log, number) for number in inside):
            message = f"{self.path.name}: its entries point to no records of this log"
            raise IndexFileError(message)

    def check_entry(self, log: CommitLog, number: int) -> bool:
        """Compare one entry with the record it points to; True when that record has its hash.

        False when the log itself explains why not: the record is damaged, deleted, or the log now
        ends before it.

        :raises IndexFileError: when the entry is wrong.
        """
        physical_offset = self.entry(number).physical_offset
        if physical_offset < log.min_offset:
            return False
        if self._is_for_its_record(log, number):
            return True
        segment = log.segment_of(physical_offset)
        start = segment.base_offset if segment else physical_offset
        if number > 1 and self._is_for_its_record(log, number - 1):
            start = max(start, self.entry(number - 1).physical_offset)
        if not _log_explains(log, start, physical_offset):
            message = f"{self.path.name}: entry {number} points to no record's start"
            raise IndexFileError(message)
        return False

    def _is_for_its_record(self, log: CommitLog, number: int) -> bool:
        """Say whether the entry's record is readable and has its hash.

        :raises IndexFileError: when the record is readable and has not.
        """
        entry = self.entry(number)
        try:
            record = log.record_at(entry.physical_offset, check_crc=False)
        except RecordError:
            return False
        if entry.key_hash not in index_hashes(record):
            message = (
                f"{self.path.name}: entry {number} is not for the record at {entry.physical_offset}"
            )
            raise IndexFileError(message)
        return True

    def check_slots(self) -> None:
        """Count the used slots and compare with the header. Reads the slot table once.

        :raises IndexFileError: when they differ: slots were lost or made up.
        """
        import numpy as np

        if self.geometry is None:
            return
        slots = self._mapped.array()[40 : self.geometry.entry_position(0)].view(">i4")
        used = int(np.count_nonzero(slots))
        if used != self.header.used_slot_count:
            message = (
                f"{self.path.name}: {used} slots are used, its header says "
                f"{self.header.used_slot_count}"
            )
            raise IndexFileError(message)

    def check_whole(self) -> None:
        """Check every slot and entry against each other. O(slots + entries).

        :raises IndexFileError: when an entry hangs on none or on several places, on the chain of
            another slot, or out of order.
        """
        import numpy as np

        if self.geometry is None:
            return
        last, slot_count = self.header.last_entry, self.geometry.slot_count
        content = self._mapped.array()
        start = self.geometry.entry_position(0)
        slots = content[40:start].view(">i4").astype(np.int64)
        entries = content[start : self.geometry.entry_position(last + 1)].view(ENTRY_DTYPE)
        hashes = entries["key_hash"].astype(np.int64)
        previous = entries["previous_entry"].astype(np.int64)
        heads = np.flatnonzero(slots)
        referred = np.concatenate([slots[heads], previous[previous != 0]])
        numbers = np.arange(last + 1)
        sound = (
            not hashes[0]
            and not previous[0]
            and bool((hashes >= 0).all())
            and len(heads) == self.header.used_slot_count
            and len(referred) == last
            and bool(((referred > 0) & (referred <= last)).all())
            and bool((np.bincount(referred, minlength=last + 1)[1:] == 1).all())
            and bool((previous < np.maximum(numbers, 1)).all())
            and bool((hashes[slots[heads]] % slot_count == heads).all())
            and bool((hashes[previous] % slot_count == hashes % slot_count)[previous != 0].all())
            and bool((np.diff(entries["physical_offset"][1:].astype(np.int64)) >= 0).all())
        )
        if not sound:
            message = f"{self.path.name}: its slots and entries contradict each other"
            raise IndexFileError(message)

    def offsets(self) -> "npt.NDArray[np.int64]":
        """Give the different physical offsets of all entries, ascending. O(entries)."""
        import numpy as np

        if self.geometry is None:
            return np.empty(0, dtype=np.int64)
        start, stop = (self.geometry.entry_position(n) for n in (1, self.header.next_entry))
        entries = self._mapped.array()[start:stop].view(ENTRY_DTYPE)
        return np.unique(entries["physical_offset"].astype(np.int64))

    def close(self) -> None:
        """Unmap the file."""
        self._mapped.close()


ENTRY_DTYPE: Final = [
    ("key_hash", ">i4"),
    ("physical_offset", ">i8"),
    ("seconds", ">i4"),
    ("previous_entry", ">i4"),
]
"""An entry as a numpy record of 20 bytes."""


def _log_explains(log: CommitLog, start: int, physical_offset: int) -> bool:
    """Say whether an offset is in a damaged range of the log, or behind its end."""
    walk = LogWalk(log, start, physical_offset + 1)
    exhaust(walk)
    return (
        any(damage.start <= physical_offset < damage.stop for damage in walk.damage)
        or walk.position <= physical_offset
    )


@dataclass(frozen=True, slots=True)
class IndexState:
    """What one index file is good for. ``error`` says why it is not used, None when it is."""

    path: Path
    file: IndexFile | None
    error: str | None


class IndexFiles:
    """The index files of a store in the order of their names, sound and unsound."""

    def __init__(self, directory: Path, log: CommitLog) -> None:
        """Open every file and decide which can be used.

        :raises OSError: when the directory cannot be read.
        """
        self._log = log
        self.states: list[IndexState] = []
        self.gaps: list[tuple[int, int | None]] = []
        likely: tuple[Geometry, ...] = ()
        for entry in fs.entries(directory):
            if not entry.is_file() or not entry.name.isdigit():
                continue
            state = _open(Path(entry.path), likely, log)
            if state.file and state.file.geometry:
                likely = (state.file.geometry,)
            self.states.append(state)
        self._check_order()
        self._check_small()

    @property
    def sound(self) -> list[IndexFile]:
        """The files to look into, oldest first; each has at least one entry."""
        return [s.file for s in self.states if s.file and s.file.header.last_entry]

    @property
    def geometry(self) -> Geometry | None:
        """The geometry of the newest usable file."""
        return self.sound[-1].geometry if self.sound else None

    def reject(self, file: IndexFile, error: IndexFileError) -> None:
        """Stop using a file that turned out to be damaged."""
        for place, state in enumerate(self.states):
            if state.file is file:
                self.states[place] = IndexState(state.path, None, str(error))

    def uncovered(self) -> list[tuple[int, int | None]]:
        """Give the ranges of physical offsets that no sound file answers for, ascending.

        Each begins at a record's start; a record that begins before its end belongs to it. The
        last one has no end. A file may have filled up in the middle of a record, so the record of
        its last entry counts as covered only when the next file begins with it.
        """
        ranges: list[tuple[int, int | None]] = list(self.gaps)
        start = self._log.min_offset
        for file in self.sound:
            begin, end = file.header.begin_offset, file.header.end_offset
            if begin > start and begin != self._after(start):
                ranges.append((start, begin + 1))
            start = max(start, end)
        return [*sorted(ranges), (start, None)]

    def _after(self, physical_offset: int) -> int | None:
        """Give the offset behind the record at ``physical_offset``, over a segment's end."""
        walk = LogWalk(self._log, physical_offset, physical_offset + 1)
        for _ in walk.records():
            pass
        return walk.position

    def _check_order(self) -> None:
        """Reject files that begin before the end of the one before: one of them is stale."""
        before: IndexFile | None = None
        for file in self.sound:
            if before and file.header.begin_offset < before.header.end_offset:
                message = f"{file.path.name}: overlaps {before.path.name}"
                self.reject(file, IndexFileError(message))
            else:
                before = file

    def _check_small(self) -> None:
        """Check small files whole, and count the slots of the others."""
        left = limits.INDEX_CHECK_BYTES
        for file in reversed(self.sound):
            left -= file.used_bytes
            try:
                if left >= 0:
                    file.check_whole()
                    self.gaps += _gaps(file, self._log)
                else:
                    file.check_slots()
            except IndexFileError as error:
                self.reject(file, error)

    def close(self) -> None:
        """Unmap everything."""
        for state in self.states:
            if state.file:
                state.file.close()


def _gaps(file: IndexFile, log: CommitLog) -> list[tuple[int, int | None]]:
    """Give the ranges of the log between a file's first and last record that it has no entry for.

    Records without any key are such; so is what a broker stored while its index was off.
    """
    import numpy as np

    gaps: list[tuple[int, int | None]] = []
    offsets = file.offsets()
    for segment in log.segments:
        first, last = np.searchsorted(offsets, [segment.base_offset, segment.end_offset - 3])
        inside = offsets[first:last] - segment.base_offset
        content = log.map(segment).array()
        sizes = np.zeros(len(inside), dtype=np.int64)
        for byte in range(SLOT_BYTES):
            sizes = sizes << 8 | content[inside + byte]
        ends = inside + sizes + segment.base_offset
        following = offsets[first + 1 : last + 1]
        for place in np.flatnonzero(ends[: len(following)] != following).tolist():
            start, stop = int(ends[place]), int(following[place])
            if start < stop and not (stop == segment.end_offset and _is_blank(log, start)):
                gaps.append((start, stop))
    return gaps


def _is_blank(log: CommitLog, physical_offset: int) -> bool:
    try:
        log.record_at(physical_offset, check_crc=False)
    except RecordError as error:
        return error.reason == Reason.BLANK
    return False


def _open(path: Path, likely: tuple[Geometry, ...], log: CommitLog) -> IndexState:
    try:
        file = IndexFile(path, likely)
        file.check_samples(log)
    except (IndexFileError, OSError) as error:
        return IndexState(path, None, str(error))
    return IndexState(path, file, None)
