"""Reads the log from front to back for messages: by topic, time, tag, queue position.

The log is in the order of arrival, and store times nearly follow it; a clock that was set back
breaks that order, so time never cuts a scan short.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Record, has_queue_entry, message_of
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.message import MessageExt
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import QueuePosition
from rocketlens.query.store_reader import StoreReader, torn_coverage, unfinished
from rocketlens.query.verify import MessageFilter
from rocketlens.store.read.scan import Chunk, LogWalk, interpreted_bytes


class Scan:
    """One scan of ``[start, stop)`` of the log for the messages that match a filter.

    Iterate over it for the messages, in the order of the log. Once that came to its end,
    ``failures`` names what could not be read and each message that matches and is damaged,
    ``coverage`` says what was read, and ``complete`` that this is all there was when the iteration
    began.
    """

    def __init__(
        self,
        reader: StoreReader,
        message_filter: MessageFilter,
        position: QueuePosition | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
    ) -> None:
        """Prepare a scan of the whole log, or of a part that begins with a record.

        `position` narrows it down to the records that claim this queue id and queue offset.
        """
        reader.refresh()
        self._reader = reader
        self._log = reader.log
        self._message_filter = message_filter
        self._position = position
        first = reader.log.min_offset if start is None else start
        self._begin_offset = first
        self._stop = stop
        self._log_end_offset: int | None = None
        self._is_at_end = False
        self._walk = LogWalk(reader.log, first, stop, confirm=reader.is_indexed, grows=True)
        self._errors: list[str] = []
        self.last_timestamp_ms = 0

    @property
    def complete(self) -> bool:
        """Whether all was read, up to where the log ended when the iteration began."""
        return Answer("", (), self.coverage).complete

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read so far, and what of it could not be."""
        failures = tuple(self._reader.log_failures(self.failures))
        if self._log_end_offset is None:
            return failures
        log_end_offset = self._log_end_offset if self._stop is None else self._stop
        if not self._is_at_end:
            log_end_offset = max(log_end_offset, self._walk.stop)
        read = self._reader.log_coverage(
            self._walk.position,
            log_end_offset,
            begin_offset=self._begin_offset,
            newest_ms=self.last_timestamp_ms,
        )
        return (read, *torn_coverage(self.torn_at), *failures)

    @property
    def failures(self) -> list[str]:
        """Describe what could not be read, one line each."""
        walk = self._walk
        return [
            *self._reader.unlisted(),
            *map(str, walk.damage),
            *unfinished(walk.unfinished_at),
            *self._errors,
        ]

    @property
    def end_offset(self) -> int:
        """The physical offset that the scan has come to: the log's end, once it is at its end."""
        return self._walk.position

    @property
    def unfinished_at(self) -> int | None:
        """The physical offset of a last record that may still be being written."""
        return self._walk.unfinished_at

    @property
    def torn_at(self) -> int | None:
        """The physical offset where a torn tail begins, if the scan met one."""
        return self._walk.torn_at

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over the messages in the order of the log, up to its end as it is now."""
        return map(message_of, self.records())

    def records(self) -> Iterator[Record]:
        """Iterate over the records of the messages, as `__iter__` does."""
        for physical_offset in self.offsets():
            record = self.record_at(physical_offset)
            if record is not None:
                yield record

    def record_at(self, physical_offset: int) -> Record | None:
        """Return the record at an offset of :meth:`offsets`.

        None if a broker deleted it meanwhile, and None with a failure if it is damaged.
        """
        self._reader.check_open()
        try:
            return self._log.record_at(physical_offset)
        except RecordError as error:
            if physical_offset >= self._log.min_offset:
                self._errors.append(str(error))
        return None

    def offsets(self) -> Iterator[int]:
        """Iterate over the physical offsets of the messages, in the order of the log.

        Their bodies are not looked at. For the records use :meth:`record_at`.
        """
        for piece in self._pieces():
            if isinstance(piece, Chunk):
                yield from self._in_chunk(piece)
            elif self._is_there(piece) and self._message_filter.matches(piece):
                yield piece.physical_offset

    def queue_entries(self) -> Iterator[tuple[int, int, int]]:
        """Iterate over the queue id, queue offset and physical offset of a topic's messages.

        In the order of the log. Messages of transactions that no queue has are left out.
        """
        takes_topic = self._message_filter.takes_topic
        for piece in self._pieces():
            found: Iterable[tuple[int, int, int, int]]
            if isinstance(piece, Chunk):
                rows = piece.rows[piece.topics().are(takes_topic)]
                columns = (
                    rows[name].tolist()
                    for name in ("sys_flag", "queue_id", "queue_offset", "physical_offset")
                )
                found = zip(*columns, strict=True)
            elif takes_topic(piece.topic):
                found = [
                    (piece.sys_flag, piece.queue_id, piece.queue_offset, piece.physical_offset)
                ]
            else:
                continue
            for sys_flag, queue_id, queue_offset, physical_offset in found:
                if has_queue_entry(sys_flag):
                    yield queue_id, queue_offset, physical_offset

    def _pieces(self) -> Iterator[Record | Chunk]:
        """Read the log: record by record, and from where that is slower by chunks."""
        self._reader.check_open()
        self._reader.refresh()
        if self._stop is None:
            self._walk.stop = self._log.max_offset
        self._log_end_offset = self._reader.least_end()
        switch_at = self._walk.position + interpreted_bytes()
        for record in self._walk.records():
            self.last_timestamp_ms = max(self.last_timestamp_ms, record.store_timestamp_ms)
            yield record
            if self._walk.position > switch_at:
                yield from self._walk.chunks()
        self._is_at_end = True

    def _is_there(self, record: Record) -> bool:
        position = self._position
        return position is None or (record.queue_id, record.queue_offset) == position[1:]

    def _in_chunk(self, chunk: Chunk) -> Iterator[int]:
        """Narrow a chunk by its columns first; only what is left is decoded."""
        import numpy as np

        rows = chunk.rows
        times = rows["store_timestamp_ms"]
        self.last_timestamp_ms = max(self.last_timestamp_ms, int(times.max()))
        mask = times <= self._message_filter.end
        if self._message_filter.begin is not None:
            mask &= times >= self._message_filter.begin
        if self._message_filter.topic is not None or self._message_filter.topics is not None:
            mask &= chunk.topics().are(self._message_filter.takes_topic)
        if self._position is not None:
            mask &= rows["queue_id"] == self._position.queue_id
            mask &= rows["queue_offset"] == self._position.queue_offset
        for physical_offset in rows["physical_offset"][np.flatnonzero(mask)].tolist():
            if self._message_filter.tags is None or self._message_filter.matches(
                self._log.record_at(physical_offset, check_crc=False)
            ):
                yield physical_offset


def find_in_time(scan: Scan, findings: Findings) -> None:
    """Add the messages of a scan that the answer keeps: the others are not even decoded."""
    most = limits.MAX_ANSWER_BYTES // limits.MESSAGE_OVERHEAD_BYTES
    max_num, oldest = findings.messages.max_num, findings.messages.oldest
    most = most if max_num is None else min(max_num, most)
    kept: deque[int] = deque(maxlen=most)
    count = 0
    for physical_offset in scan.offsets():
        count += 1
        if count <= most or not oldest:
            kept.append(physical_offset)
    if count > len(kept):
        findings.messages.truncated = True
    while kept:
        record = scan.record_at(kept.popleft() if oldest else kept.pop())
        if record is not None and not findings.take(record):
            break
    findings.cover(scan.coverage)
    findings.indexed_to_ms = max(findings.indexed_to_ms, scan.last_timestamp_ms)
