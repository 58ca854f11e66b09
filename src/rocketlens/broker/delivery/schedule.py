"""Delivers delayed messages when they are due.

Queue n of DELAY_TOPIC has the messages of delay level n + 1; the tags code of an entry is the time
at which its message is due. A due message is stored again in its real topic, with the same
properties. ``config/delayOffset.json`` has the progress of each level. It is written after a
delivery, at most once a second, so a crash repeats the deliveries of the last second; RocketMQ
writes it every ``flushDelayOffsetInterval``, 10 s. Source: ``ScheduleMessageService``.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from rocketlens.broker.tables.offsets import DelayOffsets
from rocketlens.broker.tables.stats import BrokerStats
from rocketlens.errors import RecordError, StoreError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import Record, pack_host
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    DELAY_TOPIC,
    HALF_MESSAGE_TOPIC,
    parse_delay_levels,
    topic_problem,
)
from rocketlens.model.text.java import decode_utf8
from rocketlens.store.read.log.commitlog import SegmentLost
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.store.write.refused_writes import RefusedWrites


class CopyWriter:
    """Stores copies of messages, and counts them."""

    def __init__(self, store: MessageStore, stats: BrokerStats) -> None:
        self._store: Final = store
        self._stats: Final = stats

    def write(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str] | None = None,
        *,
        sys_flag: int | None = None,
        reconsume_times: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> None:
        """Store a copy of a message in another queue, with the given values changed.

        :raises StoreError: if the store cannot append now.
        """
        packed = record.properties
        if properties is not None:
            packed = props.format_properties(props.java_order(properties)).encode()
        self._store.append(
            topic,
            queue_id,
            record.body,
            packed,
            pack_host(record.born_host),
            born_timestamp_ms=record.born_timestamp_ms,
            flag=record.flag,
            sys_flag=record.sys_flag if sys_flag is None else sys_flag,
            reconsume_times=record.reconsume_times if reconsume_times is None else reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        self._stats.put_total += 1


_log: Final = logging.getLogger("rocketlens.broker")


class Schedule:
    """The delay levels of a broker."""

    def __init__(
        self,
        store: MessageStore,
        copies: CopyWriter,
        offsets: DelayOffsets,
        clock: Callable[[], int],
        levels: str,
    ) -> None:
        self._store: Final = store
        self._copies: Final = copies
        self._offsets: Final = offsets
        self._clock: Final = clock
        delays_ms = parse_delay_levels(levels)
        queue_ids = {queue.queue_id for queue in store.queues.of_topic(DELAY_TOPIC)}
        self._delays_ms: Final = dict(enumerate(delays_ms[1:], 1))
        """Milliseconds by level, including levels of an earlier configuration."""
        for queue_id in sorted(queue_ids):
            self._delays_ms.setdefault(queue_id + 1, max(delays_ms))
        self._refused: Final = {
            level: RefusedWrites(
                clock,
                log=_log,
                begins=f"delayed messages of level {level} wait",
                over=f"delayed messages of level {level} are delivered again",
            )
            for level in self._delays_ms
        }

    def deliver_due(self, at_once: int) -> int:
        """Deliver due messages, up to ``at_once`` for each level; return their number.

        Stops at the first that cannot be stored now; the next call tries it again.
        """
        now_ms = self._clock()
        return sum(self._deliver(level, now_ms, at_once) for level in self._delays_ms)

    def _deliver(self, level: int, now_ms: int, at_once: int) -> int:
        store, offsets = self._store, self._offsets
        queue = store.queues.get(DELAY_TOPIC, level - 1)
        offset = offsets.table.get(level, 0)
        if queue is None or offset == queue.next_offset:
            return 0
        low = store.queues.min_offset(DELAY_TOPIC, level - 1)
        offset = min(max(offset, low), queue.next_offset)
        delivered = 0
        try:
            while offset < queue.next_offset and delivered < at_once:
                if not self._is_due(queue, offset, self._delays_ms[level], now_ms):
                    break
                record = waiting_record(store, queue, offset)
                target = record and real_queue(props.parse(decode_utf8(record.properties)))
                if record and target:
                    self._copies.write(record, *target)
                offset += 1
                delivered += 1
        except (OSError, StoreError, SegmentLost) as error:
            self._refused[level].refuse(error)
        else:
            if delivered:
                self._refused[level].accept()
        offsets.put(level, offset)
        return delivered

    def _is_due(self, queue: QueueWriter, offset: int, delay_ms: int, now_ms: int) -> bool:
        entry = queue.entry(offset)
        if entry is None:
            return False
        due_ms = entry.tags_code
        if not entry.has_tags_code:
            record = waiting_record(self._store, queue, offset)
            due_ms = 0 if record is None else record.store_timestamp_ms + delay_ms
        # A time later than the level's delay from now was written with other delays, or while the
        # clock was ahead: the message is due now.
        return not now_ms < due_ms <= now_ms + delay_ms


def waiting_record(store: MessageStore, queue: QueueWriter, queue_offset: int) -> Record | None:
    """Return a waiting message of a queue; log it and return None if it is damaged or deleted.

    :raises OSError: if it cannot be read now. StoreError and SegmentLost, too.
    """
    entry = queue.entry(queue_offset)
    if entry is None or entry.is_filler:
        return None
    content = store.record(entry.physical_offset, entry.store_size)
    problem = "the log has deleted it"
    if content is not None:
        try:
            return commitlog_record.decode(content, physical_offset=entry.physical_offset)
        except RecordError as error:
            problem = str(error)
    _log.error("message %d waiting in %s is lost: %s", queue_offset, queue.topic, problem)
    return None


def real_queue(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the topic and queue of a waiting message; log and return None if they are invalid."""
    topic = properties.get(props.REAL_TOPIC, "")
    queue_id = properties.get(props.REAL_QUEUE_ID, "")
    if (
        topic_problem(topic) is not None
        or topic == HALF_MESSAGE_TOPIC
        or not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10)
    ):
        _log.error(
            "a waiting message is skipped: its real topic and queue are invalid: %.80r/%.20r",
            topic,
            queue_id,
        )
        return None
    return topic, int(queue_id)
