"""The offset of a stream: a position in the log, with records that identify the log.

Spark stores it as JSON in the stream's checkpoint:

===================  =======  ====================================================================
field                type     meaning
===================  =======  ====================================================================
physical_offset      integer  the next position, at which a record begins or will begin
anchors              text     newest first, separated by blanks, each
                              ``physical_offset:last_offset:crc:timestamp``: an earlier offset of
                              the stream, and the last record before it: its physical offset, the
                              CRC-32 of all its bytes, and its store time in epoch milliseconds
placed_end           integer  if the stream began at positions of queues: the end of the log then;
                              the positions apply to records before it
===================  =======  ====================================================================

A record of the log never changes. So if the record of the newest anchor is missing, the store was
replaced, or the log lost its end and grew again. The newest existing anchor shows the part of the
log that is still the same. Anchors have distances that double, so there are few. An offset without
anchors, as version 0.1.0 wrote it, is not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from rocketlens import limits
from rocketlens.bulk.ranges import nearest_start, walk_log
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import SIZE_AND_MAGIC, Record
from rocketlens.store.read.log.commitlog import CommitLog, SegmentLost
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.store.read.note import LogMark

_OFFSET: Final = "physical_offset"
_ANCHORS: Final = "anchors"
_PLACED_END: Final = "placed_end"
_NEAR_BYTES: Final = 1 << 16
_FAR_BYTES: Final = 4 * limits.MAX_MESSAGE_BYTES


class Anchor(NamedTuple):
    """An earlier offset of a stream, and the last record before it."""

    physical_offset: int
    last_offset: int
    last_crc: int
    last_timestamp_ms: int

    def is_in(self, log: CommitLog) -> bool | None:
        """Return whether the log has the anchor's record; None if it deleted that part."""
        if self.last_offset < log.min_offset:
            return None
        try:
            return _crc_at(log, self.last_offset) == self.last_crc
        except SegmentLost:
            return None


class StreamOffset(NamedTuple):
    """The position of a stream. ``anchors`` are newest first."""

    physical_offset: int
    anchors: tuple[Anchor, ...] = ()
    placed_end: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | int) -> Self:
        if isinstance(value, int):
            return cls(value)
        texts = str(value.get(_ANCHORS, "")).split()
        anchors = tuple(Anchor(*map(int, text.split(":"))) for text in texts)
        return cls(int(value[_OFFSET]), anchors, int(value.get(_PLACED_END, 0)))

    def to_json(self) -> dict[str, Any]:
        anchors = " ".join(":".join(map(str, anchor)) for anchor in self.anchors)
        return (
            {_OFFSET: self.physical_offset}
            | ({_ANCHORS: anchors} if anchors else {})
            | ({_PLACED_END: self.placed_end} if self.placed_end else {})
        )

    def moved_to(self, physical_offset: int, last: Record | None, log: CommitLog) -> Self:
        """Return an offset with a new anchor at ``last``, the last record before it."""
        if last is None:
            return self._replace(physical_offset=physical_offset)
        crc = _crc_at(log, last.physical_offset)
        newest = Anchor(physical_offset, last.physical_offset, crc or 0, last.store_timestamp_ms)
        return self._replace(
            physical_offset=physical_offset, anchors=tuple(_thin_out([newest, *self.anchors]))
        )


def _thin_out(anchors: list[Anchor]) -> Iterator[Anchor]:
    """Yield anchors whose distances from the newest double."""
    newest = anchors[0]
    reach = 0
    for number, anchor in enumerate(anchors):
        distance = newest.physical_offset - anchor.physical_offset
        if number < 2 or distance >= 2 * reach or number == len(anchors) - 1:
            yield anchor
            reach = max(distance, 1)


def _crc_at(log: CommitLog, physical_offset: int) -> int | None:
    """Return the CRC-32 of the record at an offset, or None.

    :raises SegmentLost: if its segment was deleted.
    """
    try:
        return LogMark.at(log, physical_offset).record_crc
    except SegmentLost:
        raise
    except RecordError:
        return None


def last_record(log: CommitLog, begin: int, end: int, starts: Sequence[int] = ()) -> Record | None:
    """Return the last record before ``end``, by a walk from ``begin``, a record start.

    ``starts``: further record starts, from :func:`rocketlens.bulk.ranges.walk_log`.
    """
    for reach in (_NEAR_BYTES, _FAR_BYTES, end):
        near = max(begin, end - reach)
        start = walk_log(log, nearest_start(starts, near, begin), near)
        last = None
        if start < end:
            for record in LogWalk(log, start, end).records():
                last = record
        if last is not None or end - reach <= begin:
            return last
    return None


def is_whole(log: CommitLog, record: Record, *, is_closed: bool) -> bool:
    """Return whether the last record of a log was written to its end.

    A broker copies a record front to back, and no checksum covers its properties. The record is
    whole if bytes follow it, or its checksum is right and its properties do not end with a zero
    byte. ``is_closed``: no broker is writing.
    """
    end = record.physical_offset + record.total_size
    segment = log.segment_of(end)
    if segment is not None:
        start = end - segment.base_offset
        if any(log.map(segment).view[start : start + SIZE_AND_MAGIC.size]):
            return True
    try:
        log.record_at(record.physical_offset)
    except SegmentLost:
        raise
    except RecordError:
        return False
    return is_closed or not record.properties.endswith(b"\0")


def is_replaced(log: CommitLog, offset: StreamOffset) -> bool:
    """Return whether a log is another one than that of ``offset``."""
    if offset.anchors:
        return offset.anchors[0].is_in(log) is False
    return offset.physical_offset > log.max_offset


def last_common(log: CommitLog, offset: StreamOffset) -> StreamOffset:
    """Return the newest earlier offset of a stream up to which the log is still the same."""
    for number, anchor in enumerate(offset.anchors):
        if anchor.is_in(log):
            return StreamOffset(anchor.physical_offset, offset.anchors[number:])
    return StreamOffset(log.min_offset)


def missing(log: CommitLog, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between two physical offsets that no segment has."""
    for segment in log.segments:
        if begin < min(segment.base_offset, end):
            yield begin, min(segment.base_offset, end)
        begin = max(begin, segment.end_offset)
    if begin < end:
        yield begin, end


def deletion(log: CommitLog, begin: int, end: int, offset: StreamOffset) -> str:
    """Describe a part of the log that was deleted before it was read."""
    times = []
    if offset.anchors:
        times.append(f"after {_time(offset.anchors[0].last_timestamp_ms)}")
    try:
        following = log.record_at(end, check_crc=False)
        times.append(f"before {_time(following.store_timestamp_ms)}")
    except RecordError:
        pass
    when = f", stored {' and '.join(times)}," if times else ""
    return (
        f"{end - begin} bytes of the log, physical offsets {begin} to {end}{when} "
        "were deleted before they were read"
    )


def replacement(log: CommitLog, offset: StreamOffset) -> str:
    """Describe the difference of the log, and the position at which reading would continue."""
    if not offset.anchors:
        detail = f"it ends before {log.max_offset}"
    else:
        newest = offset.anchors[0]
        detail = (
            f"the record stored at {_time(newest.last_timestamp_ms)} is not at physical offset "
            f"{newest.last_offset} any more"
        )
    common = last_common(log, offset).physical_offset
    return (
        f"the log is not the one that was read up to physical offset {offset.physical_offset}: "
        f"{detail}. The store was replaced, or its log lost its end; messages at physical offsets "
        f"{common} to {offset.physical_offset} may be other ones, which were not read"
    )


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
