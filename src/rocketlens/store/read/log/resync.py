"""Finds the next record after bytes of the commit log that are not a record.

Ways to the next record, best first:

1. the damaged record's size: by the lengths of its parts, and by its size word. One wrong byte
   leaves one of the two right. If both agree on an end after which nothing is written, the search
   starts there;
2. the next offset with a valid record: magic, own offset, parts, checksum;
3. the start of the next segment, where a record always begins.

A body can contain bytes that look like a record of the right offset. So a record of the second kind
is credible if a consume queue or an index file leads to it, and not if one of them contradicts. If
neither decides, it is credible if a record follows it, or if it is the last one and is not inside
the damaged record according to that one's size.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import (
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    Reason,
    Record,
    head_at,
)
from rocketlens.store import fs
from rocketlens.store.read.log.commitlog import CommitLog, Segment, SegmentLost

_MAGIC_START: Final = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]
_MAGIC_POSITION: Final = HEADS[0].offsets["magic"]
_STEP_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_STEP_BYTES)

Confirm = Callable[[Record], bool | None]
"""Returns whether queue or index lead to a record at its offset; None if neither decides."""


def next_record(
    log: CommitLog, position: int, reason: Reason, confirm: Confirm | None = None
) -> int | None:
    """Return the offset of the first record after ``position``, or None.

    ``position`` must be in a segment. ``reason``: why no record is at ``position``.

    :raises SegmentLost: if a segment that decides the result exists but cannot be opened.
    """
    return _Resync(log, position, confirm).find(reason)


def last_written(log: CommitLog, start: int, stop: int | None = None) -> int | None:
    """Return the physical offset of the last nonzero byte of ``[start, stop)``, or None.

    Only the segment of ``start`` is read: holes cost nothing, written zeros some GiB a second.
    """
    segment = log.segment_of(start)
    if segment is None:
        return None
    view = log.map(segment).view
    if stop is not None:
        view = view[: max(stop - segment.base_offset, 0)]
    position = fs.last_written(segment.path, view, start - segment.base_offset)
    return None if position is None else segment.base_offset + position


class _Resync:
    def __init__(self, log: CommitLog, position: int, confirm: Confirm | None) -> None:
        self._log = log
        self._position = position
        self._confirm = confirm
        self._claimed_end = position

    def find(self, reason: Reason) -> int | None:
        segment = self._log.segment_of(self._position)
        start = self._position + 1
        if segment is not None and reason is not Reason.END:
            ends = self._candidate_ends(segment)
            for end in ends:
                if self._begins(end):
                    return end
            if len(ends) > 1 and ends[0] == ends[-1] and self._is_unwritten(segment, ends[0]):
                start = ends[0]
        record_start = self._search(segment, start) if segment else None
        if record_start is not None:
            return record_start
        for later in self._log.segments:
            if later.base_offset > self._position:
                if self._begins(later.base_offset):
                    return later.base_offset
                record_start = self._search(later, later.base_offset)
                if record_start is not None:
                    return record_start
        return None

    def _candidate_ends(self, segment: Segment) -> list[int]:
        """Return the possible ends of the damaged record: by its parts, and by its size word."""
        view = self._log.map(segment).view
        byte_offset = self._position - segment.base_offset
        size, magic = SIZE_AND_MAGIC.unpack_from(view, byte_offset)
        sizes = _implied_sizes(view, byte_offset, magic)
        if magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) or size >= MIN_RECORD_BYTES:
            sizes.append(size)
        ends = [
            self._position + s for s in sizes if MIN_RECORD_BYTES <= s <= len(view) - byte_offset
        ]
        if size >= MIN_RECORD_BYTES and magic in (MAGIC_V1, MAGIC_V2):
            self._claimed_end = self._position + size
        return ends

    def _begins(self, offset: int) -> bool:
        try:
            self._log.record_at(offset, check_crc=False)
        except RecordError as error:
            _raise_if_unread(error)
            return False
        return True

    def _is_unwritten(self, segment: Segment, offset: int) -> bool:
        if offset == segment.end_offset:
            return True
        try:
            self._log.record_at(offset, check_crc=False)
        except RecordError as error:
            return error.reason in (Reason.END, Reason.BLANK)
        return False

    def _search(self, segment: Segment, start: int) -> int | None:
        for offset in self._candidates(segment, start):
            try:
                record = self._log.record_at(offset)
            except RecordError as error:
                _raise_if_unread(error)
                continue
            confirmed = self._confirm(record) if self._confirm else None
            if confirmed or (confirmed is None and self._is_followed_by_record(record)):
                return offset
        return None

    def _is_followed_by_record(self, record: Record) -> bool:
        """Return whether a record is followed by another one, or by the end of the log."""
        end = record.physical_offset + record.total_size
        try:
            self._log.record_at(end, check_crc=False)
        except RecordError as error:
            _raise_if_unread(error)
            is_last = error.reason in (Reason.END, Reason.BLANK)
            return is_last and record.physical_offset >= self._claimed_end
        return True

    def _candidates(self, segment: Segment, start: int) -> Iterator[int]:
        """Yield the offsets at or after ``start`` with a record's magic.

        Holes cost nothing, zeros are read at some GiB a second. The log's last segment is read to
        its end once. Later searches in it end after many zeros, because a broker writes one record
        after the other.
        """
        try:
            mapped = self._log.map(segment)
        except SegmentLost as error:
            _raise_if_unread(error)
            return
        has_later = any(
            later.base_offset > segment.base_offset and self._begins(later.base_offset)
            for later in self._log.segments
        )
        first = start - segment.base_offset + _MAGIC_POSITION
        zeros = 0
        written_to = first
        content = mapped.content
        for low, high in fs.data_extents(segment.path, first, segment.size):
            for at in range(low, high, _STEP_BYTES):
                block = content[at : at + _STEP_BYTES]
                zeros = zeros + len(block) if block == _ZEROS[: len(block)] else 0
                if (
                    zeros > limits.MAX_UNWRITTEN_SEARCH_BYTES
                    and not has_later
                    and at >= mapped.zeros_from
                ):
                    return
                if not zeros:
                    written_to = at + len(block)
                    block = content[at : at + _STEP_BYTES + len(_MAGIC_START) - 1]
                    byte_offset = block.find(_MAGIC_START)
                    while byte_offset >= 0:
                        yield segment.base_offset + at + byte_offset - _MAGIC_POSITION
                        byte_offset = block.find(_MAGIC_START, byte_offset + 1)
        mapped.zeros_from = written_to


def _raise_if_unread(error: RecordError) -> None:
    """Raise an error again if a segment exists but cannot be opened."""
    if isinstance(error, SegmentLost) and not error.is_gone:
        raise error


def _implied_sizes(view: memoryview, byte_offset: int, magic: int) -> list[int]:
    """Return the possible sizes of a record by its parts; its magic and size can be wrong."""
    if len(view) - byte_offset < MIN_RECORD_BYTES:
        return []
    head = head_at(view, byte_offset)
    if len(view) - byte_offset < head.size:
        return []
    (body_length,) = head.struct_of("body_length").unpack_from(view, byte_offset)
    cursor = byte_offset + head.size + body_length
    sizes: list[int] = []
    for version, field in ((MAGIC_V1, TOPIC_LENGTH_V1), (MAGIC_V2, TOPIC_LENGTH_V2)):
        if magic == {MAGIC_V1: MAGIC_V2, MAGIC_V2: MAGIC_V1}[version]:
            continue
        topic_end = _after_part(view, cursor, field)
        end = _after_part(view, topic_end, PROPERTIES_LENGTH)
        if end >= 0:
            sizes.append(end - byte_offset)
    return sizes


def _after_part(view: memoryview, cursor: int, field: Struct) -> int:
    """Return the end of a part that begins with its length; -1 if it is not in the file."""
    if not 0 <= cursor <= len(view) - field.size:
        return -1
    length: int = field.unpack_from(view, cursor)[0]
    end = cursor + field.size + length
    return end if length >= 0 and end <= len(view) else -1
