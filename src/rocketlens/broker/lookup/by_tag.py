"""Searches the messages of a topic by tag, newest first, in the entries of its queues.

An entry has the hash code of its message's tag, and different tags can share it: the results are
candidates. Entries whose tags code is not a hash code are candidates, too: in SCHEDULE_TOPIC it is
the time of delivery, and with RocketMQ's ``enableConsumeQueueExt`` an address of another file.

Store times are read from the records. They are in no order, because a clock may be set back.
"""

from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Final

from rocketlens.errors import RecordError
from rocketlens.formats.columns import store_timestamps
from rocketlens.formats.commitlog_record import MIN_RECORD_BYTES
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, ENTRY_LAYOUT, FILLER_SIZE
from rocketlens.model.rocketmq import SCHEDULE_TOPIC
from rocketlens.model.text.java import string_hash
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.store.read.index.index_files import PAUSE
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter, read_entries

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_ENTRIES_READ: Final = 8192
_HASH_CODES: Final = 2**31


_NOT_LOOKED_AT: Final = (2**63, False)
"""The newest message of a queue that was not read yet may be the newest of all."""


def tagged_newest_first(
    store: MessageStore, log: CommitLog, message_filter: MessageFilter, failures: list[str]
) -> Iterator[tuple[int, None]]:
    """Yield the physical offsets of candidates, newest first.

    Entries are read as the iteration proceeds; after entries without a candidate it yields
    :data:`~rocketlens.store.read.index.index_files.PAUSE`. May run in any thread beside the one
    that appends, if no other thread uses ``log``: the store's own reader belongs to that thread.
    Read errors are added to ``failures``.
    """
    topic = message_filter.topic
    queues = [] if topic is None else store.queues.of_topic(topic)
    candidates = [
        _candidates(queue, log, message_filter, store.min_offset, failures) for queue in queues
    ]
    for offset, is_candidate in merge(*candidates, reverse=True):
        yield (offset, None) if is_candidate else PAUSE


def deleted_part(store: MessageStore, topic: str) -> list[str]:
    """Return why messages of a deleted topic are not found, if the log may still have some."""
    end_offset = store.deleted.ends.get(topic, 0)
    if end_offset <= store.min_offset:
        return []
    return [f"{topic} was deleted: no queue has its messages below physical offset {end_offset}"]


def _candidates(
    queue: QueueWriter,
    log: CommitLog,
    message_filter: MessageFilter,
    min_offset: int,
    failures: list[str],
) -> Iterator[tuple[int, bool]]:
    """Yield the physical offsets of the candidates of one queue, newest first.

    An offset with False is an upper bound of all that follow; one comes first, and one after each
    block of entries.
    """
    import numpy as np

    yield _NOT_LOOKED_AT

    code = string_hash(next(iter(message_filter.tags or {""})))
    file_entries = queue.file_bytes // ENTRY_BYTES
    stop = queue.next_offset
    first = min((base // ENTRY_BYTES for base, _ in queue.files()), default=stop)
    while stop > first:
        start = max(first, stop - _ENTRIES_READ, (stop - 1) // file_entries * file_entries)
        entries = _read(queue, start, stop, failures)
        stop = start
        if not len(entries):
            continue
        offsets = entries["physical_offset"].astype(np.int64)
        if offsets.max() < min_offset:
            return
        tags_codes = entries["tags_code"].astype(np.int64)
        is_candidate = (
            (tags_codes == code) | (tags_codes < -_HASH_CODES) | (tags_codes >= _HASH_CODES)
        )
        if queue.topic == SCHEDULE_TOPIC:
            is_candidate[:] = True
        is_candidate &= (entries["store_size"] != FILLER_SIZE) & (offsets >= min_offset)
        for offset in _in_time(log, message_filter, offsets[is_candidate])[::-1].tolist():
            yield offset, True
        yield int(offsets[0]), False


def _read(queue: QueueWriter, start: int, stop: int, failures: list[str]) -> "npt.NDArray[np.void]":
    """Return the entries from ``start`` to below ``stop``, which are of one file."""
    import numpy as np

    name = f"{queue.topic}/{queue.queue_id}"
    try:
        entries = read_entries(queue, start, stop)
    except OSError as error:
        if not queue.is_removed:
            failures.append(f"queue {name} cannot be read from {start} on: {error.strerror}")
        return np.empty(0, ENTRY_LAYOUT.dtype)
    if len(entries) < stop - start or (entries["store_size"] <= 0).any():
        failures.append(f"queue {name} lacks entries from {start} on")
    return entries[entries["store_size"] > 0]


def _in_time(
    log: CommitLog, message_filter: MessageFilter, offsets: "npt.NDArray[np.int64]"
) -> "npt.NDArray[np.int64]":
    """Drop the offsets of messages that were stored outside the filter's time range."""
    import numpy as np

    is_in_time = np.ones(len(offsets), np.bool_)
    start = 0
    while start < len(offsets):
        segment = log.segment_of(int(offsets[start]))
        if segment is None:
            start += 1
            continue
        last = segment.end_offset - MIN_RECORD_BYTES
        here = (offsets >= segment.base_offset) & (offsets <= last)
        here[:start] = False
        try:
            content = log.map(segment).array()
        except RecordError:
            # Verifying the candidates reports that the segment cannot be read.
            return offsets
        times = store_timestamps(content, offsets[here] - segment.base_offset)
        is_late = times > message_filter.end
        begin_ms = message_filter.begin
        is_early = np.zeros(len(times), np.bool_) if begin_ms is None else times < begin_ms
        is_in_time[here] = ~(is_late | is_early)
        start = max(int(np.flatnonzero(here)[-1]) + 1 if here.any() else 0, start + 1)
    return offsets[is_in_time]
