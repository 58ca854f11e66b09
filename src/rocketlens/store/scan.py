"""Walks the commit log record by record, past whatever is damaged in it.

Torn is not corrupt. Bytes that are no record, with no record after them, are the torn tail: the
log ends before them. With records after them they are damage: reported, and the walk goes on at
the next place where a record identifies itself.

A body may hold bytes that look like a record and even claim the right offset, so such a place is
believed only if the damaged record's own size leads there, or its consume queue points there, or
what follows it is a record, a segment end or unwritten.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import (
    SIZE_AND_MAGIC,
    SMALLEST_RECORD,
    Reason,
    Record,
)
from rocketlens.model.java import decode_utf8
from rocketlens.store import fs
from rocketlens.store.commitlog import CommitLog, Segment

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHUNK_ROWS: Final = 65_536
_MAGIC_START: Final = b"\xda\xa3\x20"
_MAGIC_POSITION: Final = 4

Confirm = Callable[[Record], bool | None]
"""Says whether a consume queue knows this record at its offset; None when no queue can tell."""


class Damage(NamedTuple):
    """A range of physical offsets that holds no readable record, and why."""

    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        """Describe it in one line."""
        return f"physical offsets {self.start} to {self.stop}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records of one segment: ``rows`` as :data:`rocketlens.formats.kernels.RECORD_DTYPE`.

    ``content`` is the whole segment, and its first byte has physical offset ``base_offset``.
    """

    content: "npt.NDArray[np.uint8]"
    base_offset: int
    rows: "npt.NDArray[np.void]"

    def learn_topics(self, names: dict[int, str]) -> None:
        """Add to ``names`` the topic of every ``topic_hash`` of the rows that is not in it yet."""
        import numpy as np

        topic_hashes, places = np.unique(self.rows["topic_hash"], return_index=True)
        for topic_hash, place in zip(topic_hashes.tolist(), places.tolist(), strict=True):
            if topic_hash not in names:
                row = self.rows[place]
                start = int(row["physical_offset"]) - self.base_offset + int(row["topic_start"])
                stop = start + int(row["topic_length"])
                names[topic_hash] = decode_utf8(bytes(self.content[start:stop]))


class LogWalk:
    """One walk over ``[start, stop)`` of a log; ``start`` must be a record's.

    A record that begins before ``stop`` is taken whole. After the walk ``position`` is where it
    came to, ``damage`` what it passed over, and ``torn_at`` the start of a torn tail, if the walk
    met one. It can be taken by :meth:`records`, by :meth:`chunks`, or by one after the other.
    """

    def __init__(
        self,
        log: CommitLog,
        start: int,
        stop: int | None = None,
        *,
        confirm: Confirm | None = None,
    ) -> None:
        """Prepare the walk; offsets below the log's first are moved up to it."""
        self.log = log
        self.position = max(start, log.min_offset)
        self.stop = log.max_offset if stop is None else min(stop, log.max_offset)
        self.damage: list[Damage] = []
        self.torn_at: int | None = None
        self._confirm = confirm

    def records(self) -> Iterator[Record]:
        """Give the records, bodies not checked. About 100,000 a second."""
        while (segment := self._segment()) is not None:
            try:
                record = self.log.record_at(self.position, check_crc=False)
            except RecordError as error:
                self._pass(segment, Reason(error.reason), str(error))
                continue
            self.position += record.total_size
            yield record

    def chunks(self) -> Iterator[Chunk]:
        """Give the records as rows, found by the compiled scan. Some millions a second."""
        import numpy as np

        from rocketlens.formats import kernels

        rows = np.empty(CHUNK_ROWS, dtype=kernels.RECORD_DTYPE)
        while (segment := self._segment()) is not None:
            mapped = self.log.map(segment)
            content = mapped.array()
            start = self.position - segment.base_offset
            stop = min(self.stop - segment.base_offset, segment.size)
            count, position, reason = kernels.scan_records(
                content, segment.base_offset, start, stop, rows
            )
            self.position = segment.base_offset + position
            if count:
                yield Chunk(content, segment.base_offset, rows[:count])
            if reason not in (kernels.ScanReason.STOP, kernels.ScanReason.FULL):
                try:
                    self.log.record_at(self.position, check_crc=False)
                except RecordError as error:
                    self._pass(segment, Reason(error.reason), str(error))

    def _segment(self) -> Segment | None:
        """Give the segment of the position, moved over a gap between files; None at the end."""
        if self.position >= self.stop or self.torn_at is not None:
            return None
        segment = self.log.segment_of(self.position)
        if segment is None:
            later = self._later_segment(self.position)
            if later is None or later.base_offset >= self.stop:
                self.position = self.stop
                return None
            self.damage.append(
                Damage(self.position, later.base_offset, "no file holds these offsets")
            )
            self.position = later.base_offset
            return later
        return segment

    def _later_segment(self, offset: int) -> Segment | None:
        return next((s for s in self.log.segments if s.base_offset >= offset), None)

    def _pass(self, segment: Segment, reason: Reason, detail: str) -> None:
        """Move the position past what is no record, or end the walk."""
        if reason is Reason.BLANK and self._is_true_blank(segment):
            self.position = segment.end_offset
            return
        found = self._next_record(segment, reason)
        if found is None:
            if reason is not Reason.END:
                self.torn_at = self.position
            self.stop = self.position
            return
        self.damage.append(Damage(self.position, found, detail))
        self.position = found

    def _is_true_blank(self, segment: Segment) -> bool:
        view = self.log.map(segment).view
        place = self.position - segment.base_offset
        bytes_left, _ = SIZE_AND_MAGIC.unpack_from(view, place)
        later = self._later_segment(segment.end_offset)
        return bytes_left == len(view) - place or (
            later is not None and later.base_offset == self.position + bytes_left
        )

    def _next_record(self, segment: Segment, reason: Reason) -> int | None:
        """Find where the log goes on behind the position; None when it does not."""
        if reason is not Reason.END:
            size: int = SIZE_AND_MAGIC.unpack_from(
                self.log.map(segment).view, self.position - segment.base_offset
            )[0]
            if size >= SMALLEST_RECORD and self._follows(self.position + size, or_end=False):
                return self.position + size
        within = self._search(segment, self.position - segment.base_offset + 1, reason)
        if within is not None:
            return within
        for later in self.log.segments:
            if later.base_offset > self.position:
                if self._follows(later.base_offset, or_end=False):
                    return later.base_offset
                found = self._search(later, 0, reason)
                if found is not None:
                    return found
        return None

    def _search(self, segment: Segment, start: int, reason: Reason) -> int | None:
        """Find a self-identifying record in one segment.

        Behind unwritten bytes only a window is searched, and what the file system knows to be
        written behind it: most of a log's last segment is unwritten, and may be large.
        """
        stop = segment.size
        if reason is Reason.END:
            window = start + limits.UNWRITTEN_SEARCH_BYTES
            if window < stop:
                written = fs.next_written(segment.path, window)
                if written is None or written == window:
                    stop = window
        content = self.log.map(segment).content
        place = content.find(_MAGIC_START, start + _MAGIC_POSITION, stop)
        while place >= 0:
            offset = segment.base_offset + place - _MAGIC_POSITION
            if self._is_record(offset):
                return offset
            place = content.find(_MAGIC_START, place + 1, stop)
        return None

    def _is_record(self, offset: int) -> bool:
        try:
            record = self.log.record_at(offset)
        except RecordError:
            return False
        known = self._confirm(record) if self._confirm else None
        return self._follows(offset + record.total_size) if known is None else known

    def _follows(self, offset: int, *, or_end: bool = True) -> bool:
        """Say whether a record begins at ``offset``, or (``or_end``) the segment ends there."""
        try:
            self.log.record_at(offset, check_crc=False)
        except RecordError as error:
            return or_end and error.reason in (Reason.END, Reason.BLANK)
        return True


def exhaust(walk: LogWalk) -> None:
    """Take a walk for its findings alone, by the way that is cheaper for its length."""
    if walk.stop - walk.position <= limits.INTERPRETED_SCAN_BYTES:
        for _ in walk.records():
            pass
    else:
        for _ in walk.chunks():
            pass


def is_record_start(log: CommitLog, physical_offset: int, known_start: int) -> bool:
    """Walk from ``known_start``, a record's, and say whether a record begins at the offset.

    Costs reading the header of each record between.
    """
    walk = LogWalk(log, known_start, physical_offset)
    exhaust(walk)
    return walk.position == physical_offset
