"""The records that one pull gets: read from a queue, compared with its entries, within a budget.

A record is taken only if it is whole, has its checksums, and is the message of its entry. That is
decided by a compiled kernel, which looks at a stretch of entries at once. What it is not sure of it
leaves to the code here, which looks at one entry, and logs what is damaged. Before the kernel is
loaded, and for the queues and filters that it does not know, that code does it all.
"""

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from rocketlens.broker.delivery.pull_filter import PullFilter
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import RecordView
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, QueueEntry
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_KEPT_CODES: Final = 100
"""Of subscriptions with at most so many tags their sorted codes are kept."""

_log: Final = logging.getLogger("rocketlens.broker")


class Budget(NamedTuple):
    """Bounds of one pull. The first message is returned whatever its size."""

    message_count: int
    memory_bytes: int
    memory_count: int
    disk_bytes: int
    disk_count: int
    in_memory_from: int
    """From this physical offset on, the log is assumed to be in memory."""

    def room_at(self, physical_offset: int) -> tuple[int, int]:
        """Return the number of messages and bytes up to which one at an offset may be added."""
        if physical_offset >= self.in_memory_from:
            return min(self.message_count, self.memory_count), self.memory_bytes
        return min(self.message_count, self.disk_count), self.disk_bytes


class PullRecords:
    """Collects the records of one pull. For the thread that appends."""

    is_compiled: ClassVar[bool] = False
    """Whether numpy is loaded, which the kernel needs."""

    def __init__(
        self,
        store: MessageStore,
        queue: QueueWriter,
        pull_filter: PullFilter,
        budget: Budget,
        queue_offset: int,
    ) -> None:
        """Collect from an offset of a queue on."""
        self.slices: Final[list[memoryview]] = []
        """The records in their order; some that follow one another in the log are one slice."""
        self.count = self.size_bytes = 0
        self.queue_offset = queue_offset
        """The entries below it are done with."""
        self.is_full = False
        """Whether the record at ``queue_offset`` found no room."""
        self.has_lost = False
        """Whether a record was not there, or damaged."""
        self._store: Final = store
        self._queue: Final = queue
        self._filter: Final = pull_filter
        self._budget: Final = budget
        self._is_compiled: Final = (
            self.is_compiled
            and not pull_filter.needs_records
            # Light queues have records of other topics. A topic of other characters can have
            # been written in several ways.
            and not queue.topic.startswith(LMQ_PREFIX)
            and queue.topic.isascii()
        )

    def collect(self, stop: int) -> None:
        """Look at entries up to a queue offset, until there are enough records."""
        step = self._budget.message_count
        while (
            self.queue_offset < stop
            and self.count < self._budget.message_count
            and not self.is_full
        ):
            entries = self._queue.read_bytes(self.queue_offset, min(step, stop - self.queue_offset))
            # Few are read where many match, and few times where few do.
            step *= 4
            if not entries:
                break
            self._collect_from(entries)

    def _collect_from(self, entries: bytes) -> None:
        first = self.queue_offset
        stop = first + len(entries) // ENTRY_BYTES
        while self.queue_offset < stop and not self.is_full:
            if self._is_compiled:
                self._take_run(memoryview(entries)[(self.queue_offset - first) * ENTRY_BYTES :])
            while self.queue_offset < stop and not self.is_full:
                position = (self.queue_offset - first) * ENTRY_BYTES
                is_taken = self._take_one(decode_entry(entries, position))
                if is_taken and self._is_compiled:
                    # Where one is as it should be, the next are, too.
                    break

    def _take_run(self, entries: memoryview) -> None:
        """Take records from one segment, up to the first that needs a look at it alone."""
        import numpy as np

        from rocketlens.formats.compiled import kernels

        physical_offset = decode_entry(entries).physical_offset
        segment = self._store.log_from(physical_offset)
        if segment is None:
            return
        view, base_offset = segment
        # One budget holds for all of the stretch.
        start, stop = base_offset, base_offset + len(view)
        boundary = self._budget.in_memory_from
        if physical_offset >= boundary:
            start = max(start, boundary)
        else:
            stop = min(stop, boundary)
        queue = self._queue
        taken = kernels.take_records(
            entries,
            (queue.topic.encode(), queue.queue_id, self.queue_offset),
            _codes_of(self._filter.tag_codes),
            np.frombuffer(view, np.uint8),
            base_offset,
            (start, stop),
            (self.count, self.size_bytes),
            self._budget.room_at(physical_offset),
        )
        self.queue_offset += taken.entry_count
        self.count, self.size_bytes = taken.record_count, taken.record_bytes
        self.is_full = taken.is_full
        self.slices.extend([view[begin:end] for begin, end in taken.slices])

    def _take_one(self, entry: QueueEntry) -> bool:
        """Take the record of one entry if there is room; return whether it was taken."""
        if not self._filter.passes_entry(entry):
            self.queue_offset += 1
            return False
        record = entry_record(self._store, self._queue, entry, self.queue_offset)
        if record is None or not self._filter.passes_record(record):
            self.has_lost |= record is None
            self.queue_offset += 1
            return False
        max_count, max_bytes = self._budget.room_at(entry.physical_offset)
        size_bytes = self.size_bytes + entry.store_size
        if self.count and (self.count >= max_count or size_bytes > max_bytes):
            self.is_full = True
            return False
        self.slices.append(record)
        self.count += 1
        self.size_bytes = size_bytes
        self.queue_offset += 1
        return True


def entry_record(
    store: MessageStore, queue: QueueWriter, entry: QueueEntry, queue_offset: int
) -> memoryview | None:
    """Return the record of an entry; None if it is deleted, damaged or of another entry."""
    if entry.is_filler:
        return None
    content = store.record(entry.physical_offset, entry.store_size)
    if content is None:
        return None
    try:
        record = RecordView(content, 0, entry.physical_offset)
        record.check_crc()
    except RecordError as error:
        _log.error("pull skips a damaged message: %s", error)
        return None
    if record.total_size == len(content) and _is_of(record, queue, queue_offset):
        return content
    message = f"{queue.topic}/{queue.queue_id}/{queue_offset}"
    _log.error("pull skips %s: its queue entry leads to another message", message)
    return None


def _is_of(record: RecordView, queue: QueueWriter, queue_offset: int) -> bool:
    """Return whether a record belongs to a queue; light queues have records of other topics."""
    return (record.topic == queue.topic and record.queue == (queue.queue_id, queue_offset)) or (
        queue.topic.startswith(LMQ_PREFIX)
    )


def _codes_of(tag_codes: frozenset[int] | None) -> "npt.NDArray[np.int32] | None":
    if tag_codes is None:
        return None
    return (_kept_array if len(tag_codes) <= _KEPT_CODES else _array)(tag_codes)


def _array(tag_codes: frozenset[int]) -> "npt.NDArray[np.int32]":
    import numpy as np

    return np.array(sorted(tag_codes), np.int32)


_kept_array = lru_cache(1_000)(_array)
