"""Reads the log in parallel: cuts segments into ranges, walks each alone, and joins the results.

A range can begin at any byte. Its task walks from the first position at which a record seems to
begin. This can be a forged record inside a body, so the driver does not trust the position:
:func:`stitch` follows the records from the segment's first byte through all its ranges. A range
that did not begin at the end of the previous one is read again from there.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import SIZE_AND_MAGIC, Reason, decode, filler_bytes
from rocketlens.formats.compiled import scan
from rocketlens.formats.compiled.record_constants import END, FULL, STOP
from rocketlens.formats.rows import ROW_BYTES, Rows, scan_rows
from rocketlens.store import fs
from rocketlens.store.read.log import resync
from rocketlens.store.read.log.commitlog import CommitLog, Segment, SegmentLost
from rocketlens.store.read.log.scan import NO_SEGMENT, Damage, LogWalk, exhaust

RANGE_BYTES: Final = 64 << 20
"""Bytes of log that one task reads by default, in about 0.1 s."""
_MIN_RANGE_BYTES: Final = 1 << 16
_STEP_BYTES: Final = 4 << 20
NOTHING_WRITTEN: Final = "nothing was written here"
ROWS_AT_ONCE: Final = 16_384
"""Rows in memory at a time: 2 MiB, which fit into the processor's cache."""


class LogRange(NamedTuple):
    """Bytes ``start`` to ``stop`` of one segment, with the records that begin there.

    ``known``: a record, or the end of the log, is at ``start``. Otherwise the first record is
    searched.
    """

    path: str
    base_offset: int
    size: int
    start: int
    stop: int
    known: bool


class RangeEnding(StrEnum):
    """The reason why the walk through a range ended."""

    RECORD = "record"
    """At a record that begins at or after the range's stop: the next range begins there."""
    CLOSED = "closed"
    """At the filler that closes the segment."""
    OPEN = "open"
    """At bytes that are not a record, with no record after them in this segment."""


class Walked(Struct):
    """The result of the walk through one range. Positions count from the segment's first byte."""

    log_range: LogRange
    first: int | None = None
    ending: RangeEnding = RangeEnding.OPEN
    next_position: int = 0
    """The next record, or the first byte that belongs to no record."""
    reason: str = ""
    """The reason why no record is at ``next_position``, if ``ending`` is OPEN."""
    damage: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    record_count: int = 0


def cut(log: CommitLog, range_bytes: int = RANGE_BYTES, least_count: int = 1) -> list[LogRange]:
    """Split every segment into ranges of about equal size, at most ``range_bytes`` each.

    Return at least ``least_count`` ranges if the log is large enough. A hole at the end of a
    segment belongs to no range.
    """
    written = [_written_bytes(segment) for segment in log.segments]
    range_bytes = max(min(range_bytes, -(-sum(written) // least_count)), _MIN_RANGE_BYTES)
    ranges: list[LogRange] = []
    for segment, size in zip(log.segments, written, strict=True):
        count = max(-(-size // range_bytes), 1)
        edges = [size * number // count for number in range(count + 1)]
        ranges += [
            LogRange(str(segment.path), segment.base_offset, segment.size, start, stop, start == 0)
            for start, stop in pairwise(edges)
        ]
    return ranges


def _written_bytes(segment: Segment) -> int:
    """Return the position of the hole at the end of a segment, at least 1, or its size."""
    return max((end for _, end in fs.data_extents(segment.path, 0, segment.size)), default=1)


class RangeReader:
    """Walks one range of a segment, the bytes ``content``: iterate, then use ``walked``."""

    def __init__(self, log_range: LogRange, content: memoryview) -> None:
        self.walked = Walked(log_range)
        self._content = content
        self._base = log_range.base_offset
        self._log: CommitLog | None = None

    def __iter__(self) -> Iterator[Rows]:
        """Yield rows in log order. They are valid until the next ones."""
        walked, stop = self.walked, self.walked.log_range.stop
        memory = memoryview(bytearray(ROWS_AT_ONCE * ROW_BYTES))
        position = self._begin()
        while position < stop:
            start = position
            rows, position, reason = scan_rows(self._content, self._base, start, stop, memory)
            if len(rows):
                if walked.first is None:
                    walked.first = start
                walked.record_count += len(rows)
                yield rows
            if reason == FULL:
                continue
            if reason == STOP:
                break
            following = self.after(position, stop)
            if following is None:
                return
            position = following
        self._end(position)

    def _begin(self) -> int:
        log_range = self.walked.log_range
        if log_range.known:
            return log_range.start
        record_start = _find(self._content, self._base, log_range.start, log_range.stop)
        return log_range.stop if record_start < 0 else record_start

    def _end(self, position: int) -> None:
        walked = self.walked
        if walked.first is None and not walked.log_range.known:
            walked.next_position = walked.log_range.start
            walked.reason = "no record begins here"
        elif _is_record(self._content, self._base, position):
            walked.next_position, walked.ending = position, RangeEnding.RECORD
        else:
            self.after(position, position)

    def after(self, position: int, stop: int) -> int | None:
        """Return the next record after bad bytes, as `LogWalk` finds it; None ends the range."""
        walked = self.walked
        size, magic = _size_and_magic(self._content, position)
        if filler_bytes(size, magic) == len(self._content) - position > 0:
            walked.next_position, walked.ending = position, RangeEnding.CLOSED
            return None
        reason = _reason(self._content, position, size, magic)
        following = self._next_record(position, is_unwritten=reason == NOTHING_WRITTEN)
        if following is None:
            walked.next_position, walked.ending, walked.reason = position, RangeEnding.OPEN, reason
            return None
        self._note(position, following, reason)
        if following >= stop:
            self._end(following)
            return None
        return following

    def _next_record(self, position: int, *, is_unwritten: bool) -> int | None:
        if position >= len(self._content):
            return None
        if self._log is None:
            self._log = CommitLog(Path(self.walked.log_range.path).parent)
        segment = self._log.segment_of(self._base + position)
        if segment is None:
            raise FileNotFoundError(f"{self.walked.log_range.path} was deleted while it was read")
        try:
            self._log.map(segment)
        except SegmentLost as error:
            raise error.__cause__ or error from error
        reason = Reason.END if is_unwritten else Reason.MAGIC
        record_start = resync.next_record(self._log, self._base + position, reason)
        if record_start is None or record_start >= self._base + len(self._content):
            return None
        return record_start - self._base

    def _note(self, start: int, stop: int, reason: str) -> None:
        self.walked.damage_count += 1
        if len(self.walked.damage) < limits.MAX_DAMAGE_REPORTS:
            self.walked.damage.append(Damage(self._base + start, self._base + stop, reason))


def _size_and_magic(content: memoryview, position: int) -> tuple[int, int]:
    word = bytes(content[position : position + SIZE_AND_MAGIC.size])
    size, magic = SIZE_AND_MAGIC.unpack(word.ljust(SIZE_AND_MAGIC.size, b"\0"))
    return size, magic


def _reason(content: memoryview, position: int, size: int, magic: int) -> str:
    if size == 0 and magic == 0:
        return NOTHING_WRITTEN
    try:
        decode(content, position, check_crc=False)
    except RecordError as error:
        return str(error).removeprefix("record: ")
    return "claims to belong elsewhere in the log"


def _find(content: memoryview, base_offset: int, start: int, stop: int) -> int:
    """Return the first position before ``stop`` at which a record seems to begin, or -1."""
    return -1 if start >= len(content) else scan.find_start(content, base_offset, start, stop)


def _is_record(content: memoryview, base_offset: int, position: int) -> bool:
    return _find(content, base_offset, position, position + 1) == position


class HasWalked(Protocol):
    """The result of a task that walked a range."""

    @property
    def walked(self) -> Walked: ...


Result = TypeVar("Result", bound=HasWalked)


class Stitched(Struct, Generic[Result]):
    """The whole log: the valid results, in log order, and its damage."""

    results: list[Result] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damage_count: int = 0
    end_offset: int = 0
    """The end of the log: after its last record."""
    torn: Damage | None = None
    """Bytes after the last record that are neither a record nor zeros: an unfinished write."""

    def add_damage(self, damage: Damage) -> None:
        self.damage_count += 1
        if len(self.damage) < limits.MAX_DAMAGE_REPORTS:
            self.damage.append(damage)


def stitch(results: Sequence[Result], reread: Callable[[LogRange], Result]) -> Stitched[Result]:
    """Follow the records through all ranges, and reread those that began at a wrong record.

    ``results``: those of the ranges of :func:`cut`, in the same order. ``reread`` reads a range
    again.
    """
    stitched: Stitched[Result] = Stitched()
    segments: dict[int, list[Result]] = {}
    for result in results:
        segments.setdefault(result.walked.log_range.base_offset, []).append(result)
    bases = sorted(segments)
    with_records = [b for b in bases if any(r.walked.first is not None for r in segments[b])]
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        # Segments after the last record can have been created in advance.
        is_last = not with_records or base >= with_records[-1]
        end = base + segments[base][0].walked.log_range.size
        _end_segment(stitched, _stitch_segment(stitched, segments[base], reread), is_last=is_last)
        if following is not None and following > end:
            stitched.add_damage(Damage(end, following, NO_SEGMENT))
    for result in stitched.results:
        stitched.damage_count += result.walked.damage_count
        stitched.damage += result.walked.damage
    stitched.damage = sorted(stitched.damage)[: limits.MAX_DAMAGE_REPORTS]
    return stitched


def _stitch_segment(
    stitched: Stitched[Result], results: Sequence[Result], reread: Callable[[LogRange], Result]
) -> Walked:
    """Follow one segment from its first byte; return its last walk."""
    before = Walked(results[0].walked.log_range, ending=RangeEnding.RECORD)
    for result in results:
        walked, position = result.walked, before.next_position
        if before.ending is not RangeEnding.RECORD:
            break
        if position >= walked.log_range.stop:
            continue
        if walked.first != position and not walked.log_range.known:
            result = reread(walked.log_range._replace(start=position, known=True))  # noqa: PLW2901
        stitched.results.append(result)
        before = result.walked
    return before


def _end_segment(stitched: Stitched[Result], last: Walked, *, is_last: bool) -> None:
    base, size = last.log_range.base_offset, last.log_range.size
    if last.next_position or not stitched.end_offset:
        stitched.end_offset = base + last.next_position
    if last.ending is not RangeEnding.OPEN or last.next_position >= size:
        return
    rest = Damage(base + last.next_position, base + size, last.reason)
    if not is_last:
        stitched.add_damage(rest)
    elif last.reason != NOTHING_WRITTEN and stitched.torn is None:
        stitched.torn = rest


def open_range(log_range: LogRange) -> fs.MappedFile:
    """Map the segment of a range.

    :raises FileNotFoundError: if the segment was deleted since the range was planned.
    :raises OSError: if it cannot be opened for another reason, or was truncated.
    """
    mapped = fs.MappedFile(Path(log_range.path))
    if len(mapped) < log_range.stop:
        mapped.close()
        raise OSError(f"{log_range.path} was truncated while it was read")
    mapped.will_scan()
    return mapped


def true_start(log_range: LogRange, content: memoryview, known_start: int = 0) -> LogRange | None:
    """Return the range from its first record on; None if the segment's last record is before it.

    Walks over the headers of all records from ``known_start``, at which a record begins: about
    50 ms a GiB if it is in memory.
    """
    base, start = log_range.base_offset, log_range.start
    reader = RangeReader(log_range._replace(start=known_start, stop=start, known=True), content)
    position = known_start
    while position < start:
        position, reason = scan.walk(content, base, position, start)
        if reason == STOP:
            break
        following = reader.after(position, start)
        if following is None:
            if reader.walked.ending is not RangeEnding.RECORD:
                return None
            following = reader.walked.next_position
        position = following
    return log_range._replace(start=position, known=True)


def is_unwritten(segment: Segment) -> bool:
    """Return whether a segment was only created in advance."""
    return not any(fs.read_bytes(segment.path, SIZE_AND_MAGIC.size) or b"")


def walk_log(
    log: CommitLog,
    begin: int,
    stop: int,
    starts: list[int] | None = None,
    max_records: int | None = None,
) -> int:
    """Return the offset of the first record at or after ``stop``, or an earlier end of the log.

    Walks from ``begin``, a record's physical offset, over at most ``max_records``. Zeros end the
    log, unless a later segment was written. Only headers are read: about 50 ms a GiB if the log is
    in memory. The walk appends a record start to ``starts`` at least every `_STEP_BYTES`: a walk
    from there ends at the same offset.
    """
    memory = memoryview(bytearray(ROWS_AT_ONCE * ROW_BYTES if max_records is not None else 0))
    remaining = max_records
    last_base = max((s.base_offset for s in log.segments if not is_unwritten(s)), default=0)
    position = max(begin, log.min_offset)
    while position < stop and remaining != 0:
        segment = log.segment_of(position)
        if segment is not None:
            base = segment.base_offset
            target = min(stop - base, segment.size)
            if starts is not None:
                target = min(target, position - base + _STEP_BYTES)
            try:
                content = log.map(segment).view
            except SegmentLost as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise error.__cause__ or error from error
                log.refresh()
                if segment in log.segments:
                    raise
                position = max(position, log.min_offset)
                continue
            if remaining is None:
                byte_offset, reason = scan.walk(content, base, position - base, target)
            else:
                room = memory[: remaining * ROW_BYTES]
                rows, byte_offset, reason = scan_rows(content, base, position - base, target, room)
                remaining -= len(rows)
            position = base + byte_offset
            if reason in (STOP, FULL) or remaining == 0:
                if starts is not None:
                    starts.append(position)
                continue
            if reason == END and base >= last_base:
                break
        # Skip a segment's end, or damage.
        walk = LogWalk(log, position, position + 1)
        exhaust(walk)
        if walk.position <= position:
            break
        position = walk.position
    return position


def nearest_start(starts: Sequence[int], offset: int, begin: int) -> int:
    """Return the last of ``starts`` from `walk_log` up to ``offset``, at least ``begin``."""
    number = bisect_right(starts, offset)
    return max(starts[number - 1], begin) if number else begin


def stretches(
    log: CommitLog, begin: int, end: int, range_bytes: int, starts: Sequence[int] = ()
) -> Iterator[tuple[LogRange, int]]:
    """Split the log from ``begin``, a record start, to ``end`` into ranges of about equal size.

    Each range comes with the nearest known record start in its segment, from ``starts`` or the
    first one of the segment.
    """
    for segment in log.segments:
        first = max(begin - segment.base_offset, 0)
        last = min(end - segment.base_offset, segment.size)
        if first >= last:
            continue
        count = -(-(last - first) // range_bytes)
        edges = [first + (last - first) * number // count for number in range(count + 1)]
        base = segment.base_offset
        for start, stop in pairwise(edges):
            yield (
                LogRange(str(segment.path), base, segment.size, start, stop, known=False),
                nearest_start(starts, base + start, base + first) - base,
            )
