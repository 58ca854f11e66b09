"""Reads the log from front to back and gives what was asked for: by topic, time, tag, queue.

The log is in the order of arrival, and store times nearly follow it; a clock that was set back
breaks that order, so time never cuts a scan short.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Record, has_queue_entry, message_of
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.message import MessageExt
from rocketlens.query.source import StoreSource, torn_coverage, unfinished
from rocketlens.query.verify import Wanted
from rocketlens.store.read.scan import Chunk, LogWalk, interpreted_bytes


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """One place in one queue, to narrow a scan to."""

    queue_id: int
    queue_offset: int


class Scan:
    """One scan of ``[start, stop)`` of the log for wanted messages.

    Iterate over it for the messages, in the order of the log. Once that came to its end,
    ``failures`` names each place that could not be read and each wanted message that is damaged,
    ``coverage`` says what was read, and ``complete`` that this is all there was when the iteration
    began.
    """

    def __init__(
        self,
        source: StoreSource,
        wanted: Wanted,
        place: QueuePlace | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
    ) -> None:
        """Prepare a scan of the whole log, or of a part that begins with a record."""
        source.refresh()
        self._source = source
        self._log = source.log
        self._wanted = wanted
        self._place = place
        first = source.log.min_offset if start is None else start
        self._begin_offset = first
        self._stop = stop
        self._log_end_offset: int | None = None
        self._is_at_end = False
        self._walk = LogWalk(source.log, first, stop, confirm=source.knows, grows=True)
        self._errors: list[str] = []
        self.last_timestamp_ms = 0

    @property
    def complete(self) -> bool:
        """Whether all was read, up to where the log ended when the iteration began."""
        return Answer("", (), self.coverage).complete

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read so far, and what of it could not be."""
        failures = tuple(self._source.log_failures(self.failures))
        if self._log_end_offset is None:
            return failures
        log_end_offset = self._log_end_offset if self._stop is None else self._stop
        if not self._is_at_end:
            log_end_offset = max(log_end_offset, self._walk.stop)
        read = self._source.log_coverage(
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
            *self._source.unlisted(),
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
        """Iterate over the wanted messages in the order of the log, up to its end as it is now."""
        for physical_offset in self.offsets():
            message = self.message_at(physical_offset)
            if message is not None:
                yield message

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """Return the message at an offset of :meth:`offsets`.

        None if a broker deleted it meanwhile, and None with a failure if it is damaged.
        """
        self._source.check_open()
        try:
            return message_of(self._log.record_at(physical_offset))
        except RecordError as error:
            if physical_offset >= self._log.min_offset:
                self._errors.append(str(error))
        return None

    def offsets(self) -> Iterator[int]:
        """Iterate over the physical offsets of the wanted messages, in the order of the log.

        Their bodies are not looked at. For the messages use :meth:`message_at`.
        """
        for piece in self._pieces():
            if isinstance(piece, Chunk):
                yield from self._in_chunk(piece)
            elif self._is_there(piece) and self._wanted.matches(piece):
                yield piece.physical_offset

    def places(self) -> Iterator[tuple[QueuePlace, int]]:
        """Iterate over where the wanted topic's messages are: in a queue, and in the log.

        In the order of the log. Messages of transactions that no queue has are left out.
        """
        for piece in self._pieces():
            found: Iterable[tuple[int, int, int, int]]
            if isinstance(piece, Chunk):
                rows = piece.rows[piece.topics().are(self._wanted.takes_topic)]
                columns = (
                    rows[name].tolist()
                    for name in ("sys_flag", "queue_id", "queue_offset", "physical_offset")
                )
                found = zip(*columns, strict=True)
            elif self._wanted.takes_topic(piece.topic):
                where = (piece.queue_id, piece.queue_offset, piece.physical_offset)
                found = [(piece.sys_flag, *where)]
            else:
                continue
            for sys_flag, queue_id, queue_offset, physical_offset in found:
                if has_queue_entry(sys_flag):
                    yield QueuePlace(queue_id, queue_offset), physical_offset

    def _pieces(self) -> Iterator[Record | Chunk]:
        """Read the log: record by record, and from where that is slower by chunks."""
        self._source.check_open()
        self._source.refresh()
        if self._stop is None:
            self._walk.stop = self._log.max_offset
        self._log_end_offset = self._source.least_end()
        switch_at = self._walk.position + interpreted_bytes()
        for record in self._walk.records():
            self.last_timestamp_ms = max(self.last_timestamp_ms, record.store_timestamp_ms)
            yield record
            if self._walk.position > switch_at:
                yield from self._walk.chunks()
        self._is_at_end = True

    def _is_there(self, record: Record) -> bool:
        return self._place is None or (record.queue_id, record.queue_offset) == (
            self._place.queue_id,
            self._place.queue_offset,
        )

    def _in_chunk(self, chunk: Chunk) -> Iterator[int]:
        """Narrow a chunk by its columns first; only what is left is decoded."""
        import numpy as np

        rows = chunk.rows
        times = rows["store_timestamp_ms"]
        self.last_timestamp_ms = max(self.last_timestamp_ms, int(times.max()))
        mask = times <= self._wanted.end
        if self._wanted.begin > 0:
            mask &= times >= self._wanted.begin
        if self._wanted.topic is not None or self._wanted.topics is not None:
            mask &= chunk.topics().are(self._wanted.takes_topic)
        if self._place is not None:
            mask &= rows["queue_id"] == self._place.queue_id
            mask &= rows["queue_offset"] == self._place.queue_offset
        for physical_offset in rows["physical_offset"][np.flatnonzero(mask)].tolist():
            if self._wanted.tags is None or self._wanted.matches(
                self._log.record_at(physical_offset, check_crc=False)
            ):
                yield physical_offset
