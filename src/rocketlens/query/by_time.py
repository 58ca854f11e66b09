"""Reads the log from front to back and gives what was asked for: by topic, time, tag, queue.

The log is in the order of arrival, and store times nearly follow it; a clock that was set back
breaks that order, so time never cuts a scan short.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rocketlens.errors import BodyError, RecordError
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.message import MessageExt
from rocketlens.query.source import StoreSource, unfinished
from rocketlens.query.verify import Wanted
from rocketlens.store.scan import Chunk, LogWalk, interpreted_bytes


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """One place in one queue, to narrow a scan to."""

    queue_id: int
    queue_offset: int


class Scan:
    """One scan of ``[start, stop)`` of the log for wanted messages.

    Iterate over it for the messages, in the order of the log. Once that came to its end,
    ``failures`` names each place that could not be read and each wanted message that is damaged,
    and ``complete`` says that there is none.
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
        self._log = source.log
        self._wanted = wanted
        self._place = place
        first = source.log.min_offset if start is None else start
        self._walk = LogWalk(source.log, first, stop, confirm=source.knows, grows=True)
        self._errors: list[str] = []
        self.last_timestamp_ms = 0

    @property
    def complete(self) -> bool:
        """Say whether everything so far could be read."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """Describe what could not be read, one line each."""
        walk = self._walk
        return [*map(str, walk.damage), *unfinished(walk.unfinished_at), *self._errors]

    @property
    def torn_at(self) -> int | None:
        """The physical offset where a torn tail begins, if the scan met one."""
        return self._walk.torn_at

    def __iter__(self) -> Iterator[MessageExt]:
        """Give the wanted messages in the order of the log."""
        for physical_offset in self._offsets():
            try:
                yield message_of(self._log.record_at(physical_offset))
            except (RecordError, BodyError) as error:
                self._errors.append(f"record at physical offset {physical_offset}: {error}")

    def _offsets(self) -> Iterator[int]:
        switch_at = self._walk.position + interpreted_bytes()
        for record in self._walk.records():
            self.last_timestamp_ms = max(self.last_timestamp_ms, record.store_timestamp_ms)
            if self._is_there(record) and self._wanted.matches(record):
                yield record.physical_offset
            if self._walk.position > switch_at:
                for chunk in self._walk.chunks():
                    yield from self._in_chunk(chunk)

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
