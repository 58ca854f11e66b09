"""Walks the commit log record by record, past whatever is damaged in it.

Bytes that are not a record are the torn tail if no record follows them: the log ends before them.
Otherwise they are damage: the walk reports them and continues at the next credible record
(:mod:`rocketlens.store.read.log.resync`). `RecordStarts` decides whether a record begins at an
offset.
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
"""Maximum rows at once. They fit into the processor's cache, for many passes over each column."""
_FIRST_ROWS: Final = 16
"""Rows of the first step, for callers that need only the first record."""
_SCAN_AGAIN_BYTES: Final = 256 * 1024
"""Bytes before a growing end that are scanned twice: a broker may have been writing them."""
_GRAIN_BYTES: Final = 4096
"""Bytes of the log for which one record start is remembered."""
_STEP_BYTES: Final = 4 << 20
"""Bytes that are walked in one step, in some milliseconds."""

NO_SEGMENT: Final = "no segment has these offsets"

NearestStart = Callable[[int], int]
"""Returns a record start at or before an offset, or 0."""


class Damage(NamedTuple):
    """A range of physical offsets without a readable record, and the reason."""

    start: int
    stop: int
    reason: str
    is_unread: bool = False
    """The file could not be opened, but perhaps can be later."""

    @property
    def length(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"physical offsets {self.start} to {self.stop}: {self.reason}"


def first_copies(queue_offsets: Iterable[int], last: int) -> tuple[bytearray, int]:
    """Mark the offsets of one queue that are higher than all before; return also the highest one.

    ``last``: the highest offset so far. A killed broker can have written messages twice to the log
    of a queue.
    """
    mask = bytearray()
    for offset in queue_offsets:
        mask.append(offset > last)
        last = max(last, offset)
    return mask, last


class LogWalk:
    """One walk over ``[start, stop)`` of a log, from a record start.

    A record that begins before ``stop`` is read whole. After the walk ``position`` is the physical
    offset where it ended, ``damage`` has the skipped ranges, and ``torn_at`` is the start of a torn
    tail, or None.

    With ``grows``, another process can be writing at the end of the log. It copies a record from
    front to back, so the newest record can have all its lengths but not its last bytes. The walk
    ends before this record, unless ``confirm`` knows it, and ``unfinished_at`` is its physical
    offset.

    A segment that cannot be opened now is damage with ``is_unread``; with ``must_read`` it raises
    `SegmentUnread`.
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
        """``start`` can be below the log's first offset."""
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
        """Yield the records without checking bodies. About 100,000 a second."""
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
                # No record after an uncommitted one can be committed.
                committed = bisect_left(offsets, x=True, key=self._is_uncommitted)
                if committed < filled:
                    filled, end = committed, offsets[committed]
                    self.stop = self.unfinished_at = end
                    is_end = False
            elif self._grows and is_end and filled and end > scanned_to:
                # A broker may have been writing some of these rows: read them again. Always the
                # last one: its last bytes may still be missing.
                offsets = rows.column("physical_offset")
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

    def _is_uncommitted(self, physical_offset: int) -> bool:
        try:
            record = self.log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return False
        return not self._is_finished(record)

    def _is_finished(self, record: Record) -> bool:
        return self.log.is_finished(record) or (
            self._confirm is not None and self._confirm(record) is True
        )

    def _is_finished_at(self, physical_offset: int) -> bool:
        """Return False and set ``unfinished_at`` if the record at an offset is not finished."""
        try:
            record = self.log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return True
        if self._is_finished(record):
            return True
        self.unfinished_at = physical_offset
        return False

    def _segment(self) -> Segment | None:
        """Skip gaps between files; return the segment of the position, or None at the end."""
        while self.position < self.stop and self.torn_at is None:
            segment = self.log.segment_of(self.position)
            if segment is None:
                later = self._later_segment()
                until = self.stop if later is None else min(later.base_offset, self.stop)
                self._pass_damage(until, NO_SEGMENT)
                continue
            try:
                self.log.map(segment)
            except SegmentLost as lost:
                self._skip_missing_segment(segment, lost)
            else:
                return segment
        return None

    def _skip_missing_segment(self, segment: Segment, lost: SegmentLost) -> None:
        """Skip a segment that cannot be opened. One that a broker deleted is not damage.

        :raises SegmentUnread: if the segment still exists, with ``must_read``.
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
        if reason is Reason.BLANK and self._is_true_blank(segment):
            self.position = segment.end_offset
            return
        try:
            record_start = next_record(self.log, self.position, reason, self._confirm)
        except SegmentLost as lost:
            # The later segment would decide between torn and damaged.
            later = self.log.segment_of(lost.physical_offset or 0)
            self._skip_missing_segment(segment if later is None else later, lost)
            return
        if record_start is None:
            # A truncated file can end in fewer bytes than a size and a magic have.
            head = self.log.bytes_at(self.position, SIZE_AND_MAGIC.size)
            if reason is not Reason.END or any(head):
                self.torn_at = self.position
            self.stop = self.position
            return
        if self._has_changed(reason):
            # A broker has written these bytes meanwhile: read them again.
            return
        self._pass_damage(record_start, detail)

    def _pass_damage(self, until: int, detail: str) -> None:
        """Skip to ``until``, and add the range to the damage, if known with the reason of a tap."""
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
        """Return whether the bytes at the position now give another result than ``reason``."""
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
    """Run a walk to its end, for its position and damage."""
    for _ in walk.rows():
        pass


def is_record_start(log: CommitLog, physical_offset: int, known_start: int) -> bool:
    walk = LogWalk(log, known_start, physical_offset)
    exhaust(walk)
    return walk.position == physical_offset


class RecordStarts:
    """Decides whether a record begins at an offset, by a walk from the nearest known start.

    The first known starts are those of the segments, and those that ``nearest`` returns.
    """

    def __init__(self, log: CommitLog, confirm: Confirm, nearest: NearestStart) -> None:
        self._log = log
        self._confirm = confirm
        self._nearest = nearest
        self._starts: list[int] = []
        self._damage: list[Damage] = []

    def begins_at(self, physical_offset: int) -> bool:
        position = self._walk_to(physical_offset, physical_offset)
        return position == physical_offset and not self.is_known_damage(physical_offset)

    def approach(self, physical_offset: int) -> Iterator[None]:
        """Walk towards an offset in steps of some ms, so that :meth:`begins_at` is cheap then."""
        offset = self._start_before(physical_offset) + _STEP_BYTES
        while offset < physical_offset and not self.is_known_damage(offset):
            self._walk_to(offset, offset)
            yield
            offset += _STEP_BYTES

    def is_damaged_at(self, physical_offset: int) -> bool:
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            return False
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except RecordError as error:
            if error.reason == Reason.END and self._is_after_end(physical_offset):
                return False
        self._walk_to(physical_offset, physical_offset + 1)
        return any(damage.start == physical_offset for damage in self._damage)

    def is_known_damage(self, physical_offset: int) -> bool:
        index = bisect_right(self._damage, physical_offset, key=lambda damage: damage.start) - 1
        if index < 0 or physical_offset >= self._damage[index].stop:
            return False
        try:
            self._log.record_at(self._damage[index].start, check_crc=False)
        except RecordError:
            return True
        # A broker has written these bytes again.
        del self._damage[index]
        return False

    def _is_after_end(self, physical_offset: int) -> bool:
        last = self._starts[-1] if self._starts else self._log.min_offset
        if physical_offset < last:
            return False
        walk = LogWalk(self._log, last, confirm=self._confirm)
        self._take(walk)
        return physical_offset >= walk.position

    def _walk_to(self, physical_offset: int, stop: int) -> int:
        """Walk from the nearest known start to ``stop``; return the end of the walk, or -1."""
        if self.is_known_damage(physical_offset):
            return -1
        start = self._start_before(physical_offset)
        walk = LogWalk(self._log, start, stop, confirm=self._confirm)
        self._take(walk)
        return walk.position

    def _start_before(self, physical_offset: int) -> int:
        segment = self._log.segment_of(physical_offset)
        start = segment.base_offset if segment else self._log.min_offset
        index = bisect_right(self._starts, physical_offset) - 1
        if index >= 0:
            start = max(start, self._starts[index])
        if physical_offset - start > _GRAIN_BYTES:
            start = max(start, self._nearest(physical_offset))
        return start

    def _take(self, walk: LogWalk) -> None:
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
