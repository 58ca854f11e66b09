"""Views of the log and the consume queues of a store that this process is writing."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from rocketlens.errors import NotAStore, StoreBusy
from rocketlens.formats.commitlog_record import TOTAL_SIZE, store_timestamp_at
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.store.read.log.commitlog import CommitLog, Segment
from rocketlens.store.write.append import Appender
from rocketlens.store.write.queue.queue_append import QueueWriter


class LogView:
    """Reads records of a log that grows. For the thread that appends.

    ``first_end_offset``: the end of the log before the first append.
    """

    def __init__(self, directory: Path, appender: Appender, first_end_offset: int) -> None:
        try:
            self._log: Final = CommitLog(directory)
        except NotAStore as error:
            raise error.__cause__ or error from None
        self._appender = appender
        self._first_end_offset = first_end_offset

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        last = self._appender.last
        return self._first_end_offset if last is None else last.physical_offset + last.store_size

    @property
    def appended_bytes(self) -> int:
        return self.end_offset - self._first_end_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Return the bytes of a record; None if the log does not have all of them.

        ``size``: from the queue entry, or 0 for the size in the record itself.

        :raises StoreBusy: if the record may be in a new segment, and segments cannot be listed now.
        :raises SegmentLost: if its segment cannot be opened now.
        """
        found = self.log_from(physical_offset)
        if found is None:
            return None
        view, base_offset = found
        start = physical_offset - base_offset
        if not size and start + TOTAL_SIZE.size <= len(view):
            (size,) = TOTAL_SIZE.unpack_from(view, start)
        stop = start + size
        return view[start:stop] if size > 0 and stop <= len(view) else None

    def log_from(self, physical_offset: int) -> tuple[memoryview, int] | None:
        """Return the segment with an offset, up to the end of the log, and its base offset.

        Return None if the log does not have the offset. Errors as :meth:`record`.
        """
        if not self.min_offset <= physical_offset < self.end_offset:
            return None
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            self._log.refresh()
            segment = self._log.segment_of(physical_offset)
        if segment is None:
            if self._log.unlisted is not None:
                # None would make a pull skip the message.
                raise StoreBusy(self._log.unlisted)
            return None
        view, base_offset = self._log.map(segment).view, segment.base_offset
        return view[: self.end_offset - base_offset], base_offset

    def list_segments(self) -> list[Segment]:
        self._log.refresh()
        return list(self._log.segments)

    def close(self) -> None:
        self._log.close()


class QueueView:
    """Reads queues that grow. For the thread that appends."""

    def __init__(self, appender: Appender, log: LogView) -> None:
        self._queues = appender.queues
        self._log = log

    def get(self, topic: str, queue_id: int) -> QueueWriter | None:
        return self._queues.get((topic, queue_id))

    def of_topic(self, topic: str) -> list[QueueWriter]:
        """Return the queues of a topic, in any thread. O(queues of all topics)."""
        return [queue for (name, _), queue in list(self._queues.items()) if name == topic]

    def lengths(self) -> Iterator[tuple[str, int]]:
        """Yield the topic and the next queue offset of each queue. Queues can change meanwhile."""
        for (topic, _), queue in list(self._queues.items()):
            yield topic, queue.next_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get((topic, queue_id))
        return queue.next_offset if queue else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the first message that is not deleted.

        O(log entries) after the cleaner ran, else O(1).
        """
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else self.min_offset_of(queue)

    def min_offset_of(self, queue: QueueWriter) -> int:
        log_min_offset = self._log.min_offset
        if queue.min_offset_cache[0] == log_min_offset:
            return queue.min_offset_cache[1]
        files = queue.files()
        low = min(files[0][0] // ENTRY_BYTES if files else queue.next_offset, queue.next_offset)
        high = queue.next_offset
        first = queue.entry(low)
        if first is not None and not first.is_filler and first[0] >= log_min_offset:
            # A later damaged entry must not pass for one of a deleted message.
            high = low

        def is_kept(queue_offset: int) -> bool:
            entry = queue.entry(queue_offset)
            return (
                entry is not None
                and not entry.is_filler
                and entry.physical_offset >= log_min_offset
            )

        low += bisect_left(range(low, high), x=True, key=is_kept)
        queue.min_offset_cache = log_min_offset, low
        return low

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Return the first queue offset stored at or after a time, or the max offset.

        ``upper``: return the last one stored at or before the time. As RocketMQ 5; O(log entries).
        """
        first = self.min_offset(topic, queue_id)
        offsets = range(first, self.max_offset(topic, queue_id))
        find = bisect_right if upper else bisect_left
        found = first + find(offsets, timestamp_ms, key=partial(self._store_time, topic, queue_id))
        return max(found - 1, first) if upper else found

    def _store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        queue = self.get(topic, queue_id)
        entry = queue.entry(queue_offset) if queue else None
        if entry is None or entry.is_filler:
            return 0
        record = self._log.record(entry.physical_offset, entry.store_size)
        return 0 if record is None else store_timestamp_at(record)
