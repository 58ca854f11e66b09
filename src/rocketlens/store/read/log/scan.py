"""Walks the commit log record by record, past whatever is damaged in it.

Torn is not corrupt. Bytes that are not a record, with no record after them, are the torn tail: the
log ends before them. With records after them they are damage: reported, and the walk goes on at
the next offset where a record identifies itself.

Which offset is credible is decided in :mod:`rocketlens.store.read.log.resync`. `RecordStarts`
remembers record starts, to decide whether an offset is one.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import (
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
    Reason,
    Record,
    filler_bytes,
)
from rocketlens.formats.compiled.record_constants import BAD, BLANK, END
from rocketlens.formats.rows import ROW_BYTES, Rows, scan_rows
from rocketlens.store.read.log.commitlog import CommitLog, Segment, SegmentLost, SegmentUnread
from rocketlens.store.read.log.resync import Confirm, next_record
from rocketlens.store.read.tap_note import read_note_file

CHUNK_ROWS: Final = 16_384
"""Rows that a processor's cache holds: many passes are made over each of their columns."""
_FIRST_ROWS: Final = 16
"""Rows that a walk begins with: a caller that wants the first record waits for no more."""
_SCAN_AGAIN_BYTES: Final = 256 * 1024
"""Bytes before a growing end that are scanned twice: they may have been scanned while being
written.
"""
_GRAIN_BYTES: Final = 4096
"""Bytes of the log for which one start is remembered."""
_STEP_BYTES: Final = 4 << 20
"""Bytes that are walked in one step: some milliseconds."""

NearestStart = Callable[[int], int]
"""Returns a record start at or before an offset, or 0."""


class Damage(NamedTuple):
    """A range of physical offsets without a readable record, and why."""

    start: int
    stop: int
    reason: str
    is_unread: bool = False
    """Their file could not be opened, and perhaps can be later."""

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.stop - self.start

    def __str__(self) -> str:
        """Describe it in one line."""
        return f"physical offsets {self.start} to {self.stop}: {self.reason}"


def first_copies(queue_offsets: Iterable[int], last: int) -> tuple[bytearray, int]:
    """Return which offsets of one queue are higher than all before (1 or 0), and the highest one.

    ``last`` is the highest one so far: a killed broker can have written messages of the log of a
    queue twice.
    """
    mask = bytearray()
    for offset in queue_offsets:
        mask.append(offset > last)
        last = max(last, offset)
    return mask, last


class LogWalk:
    """One walk over ``[start, stop)`` of a log; ``start`` must be a record's.

    A record that begins before ``stop`` is taken whole. After the walk ``position`` is the
    physical offset where it ended, ``damage`` what it passed over, and ``torn_at`` the start of a
    torn tail, if the walk met one.

    With ``grows`` another process may be writing at the end of the log. It copies a record from
    front to back, so the newest record can have all its lengths and not yet its last bytes. Such
    a record is not returned unless ``confirm`` knows it: the walk ends before it, and
    ``unfinished_at`` is its physical offset.

    A segment that cannot be opened now is damage with ``is_unread``, or raises
    :class:`~rocketlens.store.read.log.commitlog.SegmentUnread` with ``must_read``.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        stop: int | None = None,
        *,
        confirm: Confirm | None = None,
        grows: bool = False,
        must_read: bool = False,
    ) -> None:
        """Prepare the walk; offsets below the log's first are moved up to it."""
        self.log = log
        self.position = max(start, log.min_offset)
        self.stop = log.max_offset if stop is None else min(stop, log.max_offset)
        self.damage: list[Damage] = []
        self.torn_at: int | None = None
        self.unfinished_at: int | None = None
        self._confirm = confirm
        self._grows = grows
        self._must_read = must_read

    def records(self) -> Iterator[Record]:
        """Yield the records, bodies not checked. About 100,000 a second."""
        for rows in self.rows():
            yield from rows.records()

    def rows(self, count: int = _FIRST_ROWS) -> Iterator[Rows]:
        """Yield the records as rows: ``count`` at first, then more. Some millions a second."""
        if self.torn_at is not None:
            return
        scanned_to, memory = -1, bytearray()
        while (segment := self._segment()) is not None:
            view = self.log.map(segment).view
            start = self.position - segment.base_offset
            stop = min(self.stop - segment.base_offset, segment.size)
            room = min(count, CHUNK_ROWS, (stop - start) // MIN_RECORD_BYTES + 1) * ROW_BYTES
            memory = memory if len(memory) == room else bytearray(room)
            count *= 4
            rows, byte_offset, reason = scan_rows(
                view, segment.base_offset, start, stop, memoryview(memory)
            )
            filled = len(rows)
            end = segment.base_offset + byte_offset
            is_end = reason in (END, BAD)
            if self._grows and self.log.replica is not None:
                offsets = rows.column("physical_offset")
                committed = self._count_committed(offsets)
                if committed < filled:
                    filled, end = committed, offsets[committed]
                    self.stop = self.unfinished_at = end
                    is_end = False
            elif self._grows and is_end and filled and end > scanned_to:
                # Some of these rows may have been read while they were written: read them again.
                offsets = rows.column("physical_offset")
                # Always for the last row: its last bytes may still be missing.
                again = bisect_left(offsets, end - _SCAN_AGAIN_BYTES)
                last = filled - 1
                filled = min(again, last)
                scanned_to, end = end, offsets[filled]
                if not self._is_finished_at(offsets[last]):
                    self.stop = offsets[last]
                is_end = False
            self.position = end
            if filled:
                yield rows.part(0, filled)
            if is_end or reason == BLANK:
                try:
                    self.log.record_at(self.position, check_crc=False)
                except RecordError as error:
                    self._skip_damage(segment, Reason(error.reason), str(error))

    def _count_committed(self, offsets: memoryview) -> int:
        """Return how many records of a DLedger log are committed: those after one that is not
        are not.
        """
        return bisect_left(offsets, x=True, key=self._is_uncommitted)

    def _is_uncommitted(self, physical_offset: int) -> bool:
        try:
            record = self.log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return False
        return not self._is_finished(record)

    def _is_finished(self, record: Record) -> bool:
        """Return whether a record was written to its last byte, as far as can be known."""
        return self.log.is_finished(record) or (
            self._confirm is not None and self._confirm(record) is True
        )

    def _is_finished_at(self, physical_offset: int) -> bool:
        """Return the same for the record at an offset; if it is not finished, the log ends
        there.
        """
        try:
            record = self.log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return True
        if self._is_finished(record):
            return True
        self.unfinished_at = physical_offset
        return False

    def _segment(self) -> Segment | None:
        """Return the segment of the position, after skipping gaps between files; None at the
        end.
        """
        while self.position < self.stop and self.torn_at is None:
            segment = self.log.segment_of(self.position)
            if segment is None:
                later = self._later_segment()
                until = self.stop if later is None else min(later.base_offset, self.stop)
                self._pass_damage(until, "no file holds these offsets")
                continue
            try:
                self.log.map(segment)
            except SegmentLost as lost:
                self._skip_missing_segment(segment, lost)
            else:
                return segment
        return None

    def _skip_missing_segment(self, segment: Segment, lost: SegmentLost) -> None:
        """Skip a segment that cannot be opened; one that a broker deleted is not damage.

        :raises SegmentUnread: if it is there all the same, and must be read.
        """
        self.log.refresh()
        if self.position < self.log.min_offset:
            self.position = self.log.min_offset
        elif segment in self.log.segments:
            if self._must_read:
                raise SegmentUnread(lost.cause.errno, str(lost)) from lost
            self.damage.append(Damage(self.position, segment.end_offset, str(lost), is_unread=True))
            self.position = segment.end_offset

    def _later_segment(self) -> Segment | None:
        return next((s for s in self.log.segments if s.base_offset > self.position), None)

    def _skip_damage(self, segment: Segment, reason: Reason, detail: str) -> None:
        """Move the position after bytes that are not a record, or end the walk."""
        if reason is Reason.BLANK and self._is_true_blank(segment):
            self.position = segment.end_offset
            return
        try:
            record_start = next_record(self.log, self.position, reason, self._confirm)
        except SegmentLost as lost:
            # Whether the log continues there decides between torn and damaged.
            behind = self.log.segment_of(lost.physical_offset or 0)
            self._skip_missing_segment(segment if behind is None else behind, lost)
            return
        if record_start is None:
            # A file that was cut can end in fewer bytes than a size and a magic need.
            head = self.log.bytes_at(self.position, SIZE_AND_MAGIC.size)
            if reason is not Reason.END or any(head):
                self.torn_at = self.position
            self.stop = self.position
            return
        if self._has_changed(reason):
            # A broker was writing meanwhile: the bytes after were not there at the first look.
            return
        self._pass_damage(record_start, detail)

    def _pass_damage(self, until: int, detail: str) -> None:
        """Add what the walk skips to the damage, with the reason that the note of a copy has."""
        start = self.position
        self.position = until
        if self.log.tap_note is not None:
            with suppress(OSError):
                note = read_note_file(self.log.tap_note)
                gaps = () if note is None else note.gaps
                held = [gap for gap in gaps if gap.start <= start and until <= gap.stop]
                detail = next(map(str, held), detail)
        self.damage.append(Damage(start, until, detail))

    def _has_changed(self, reason: Reason) -> bool:
        """Return whether the bytes at the position are no longer what they were for ``reason``."""
        try:
            self.log.record_at(self.position, check_crc=False)
        except RecordError as error:
            return error.reason != reason
        return True

    def _is_true_blank(self, segment: Segment) -> bool:
        byte_offset = self.position - segment.base_offset
        head = SIZE_AND_MAGIC.unpack_from(self.log.map(segment).view, byte_offset)
        bytes_left = filler_bytes(*head)
        later = self._later_segment()
        return bytes_left == segment.size - byte_offset or (
            later is not None and later.base_offset == self.position + bytes_left
        )


def exhaust(walk: LogWalk) -> None:
    """Run a walk only for its findings."""
    for _ in walk.rows():
        pass


def is_record_start(log: CommitLog, physical_offset: int, known_start: int) -> bool:
    """Return whether a record begins at the offset, by walking from ``known_start``, a record's
    start.

    Costs reading the header of each record between.
    """
    walk = LogWalk(log, known_start, physical_offset)
    exhaust(walk)
    return walk.position == physical_offset


class RecordStarts:
    """Decides whether an offset is a record start, by walking from the nearest known one."""

    def __init__(self, log: CommitLog, confirm: Confirm, nearest: NearestStart) -> None:
        """Start with the segments' first offsets, and those that ``nearest`` returns."""
        self._log = log
        self._confirm = confirm
        self._nearest = nearest
        self._starts: list[int] = []
        self._damage: list[Damage] = []

    def begins_at(self, physical_offset: int) -> bool:
        """Return whether a record really begins at an offset. Walks there once."""
        position = self._walk_to(physical_offset, physical_offset)
        return position == physical_offset and not self.is_known_damage(physical_offset)

    def approach(self, physical_offset: int) -> Iterator[None]:
        """Walk near to an offset in steps of some ms: then :meth:`begins_at` costs little."""
        offset = self._start_before(physical_offset) + _STEP_BYTES
        while offset < physical_offset and not self.is_known_damage(offset):
            self._walk_to(offset, offset)
            yield
            offset += _STEP_BYTES

    def is_damaged_at(self, physical_offset: int) -> bool:
        """Return whether a record began at an offset whose bytes are now damaged."""
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            return False
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except RecordError as error:
            if error.reason == Reason.END and self._is_behind_end(physical_offset):
                return False
        self._walk_to(physical_offset, physical_offset + 1)
        return any(damage.start == physical_offset for damage in self._damage)

    def is_known_damage(self, physical_offset: int) -> bool:
        """Return whether an offset is in a range that a walk found to be damaged."""
        index = bisect_right(self._damage, physical_offset, key=lambda damage: damage.start) - 1
        if index < 0 or physical_offset >= self._damage[index].stop:
            return False
        try:
            self._log.record_at(self._damage[index].start, check_crc=False)
        except RecordError:
            return True
        # Its bytes were written again since.
        del self._damage[index]
        return False

    def _is_behind_end(self, physical_offset: int) -> bool:
        """Return whether the log ends at or before an offset at which nothing is written."""
        last = self._starts[-1] if self._starts else self._log.min_offset
        if physical_offset < last:
            return False
        walk = LogWalk(self._log, last, confirm=self._confirm)
        self._take(walk)
        return physical_offset >= walk.position

    def _walk_to(self, physical_offset: int, stop: int) -> int:
        """Walk from the nearest known start to ``stop``; return where the walk came to."""
        if self.is_known_damage(physical_offset):
            return -1
        start = self._start_before(physical_offset)
        walk = LogWalk(self._log, start, stop, confirm=self._confirm)
        self._take(walk)
        return walk.position

    def _start_before(self, physical_offset: int) -> int:
        """Return the nearest known record start at or before an offset."""
        segment = self._log.segment_of(physical_offset)
        start = segment.base_offset if segment else self._log.min_offset
        index = bisect_right(self._starts, physical_offset) - 1
        if index >= 0:
            start = max(start, self._starts[index])
        if physical_offset - start > _GRAIN_BYTES:
            start = max(start, self._nearest(physical_offset))
        return start

    def _take(self, walk: LogWalk) -> None:
        """Walk to the end, and remember starts and damage."""
        grain = -1
        for physical_offset in chain.from_iterable(rows.offsets() for rows in walk.rows()):
            if physical_offset // _GRAIN_BYTES != grain:
                grain = physical_offset // _GRAIN_BYTES
                self._remember(physical_offset)
        for damage in walk.damage:
            if not damage.is_unread and not self.is_known_damage(damage.start):
                insort(self._damage, damage)

    def _remember(self, start: int) -> None:
        index = bisect_right(self._starts, start)
        if index == 0 or self._starts[index - 1] // _GRAIN_BYTES != start // _GRAIN_BYTES:
            self._starts.insert(index, start)
