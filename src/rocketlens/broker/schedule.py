"""Delivers delayed messages when they are due.

Queue n of SCHEDULE_TOPIC_XXXX has the messages of delay level n + 1, and each entry's tags code is
when its message is due. A message that is due is stored again in its real topic, its properties as
they are. How far each level came is kept in ``config/delayOffset.json``. That is written when a
delivery moved it, at most once a second, so what a crash within that second leaves is delivered
again; RocketMQ writes it every ``flushDelayOffsetInterval``, 10 s. Source:
``ScheduleMessageService``.
"""

import logging
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.errors import RecordError, StoreError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import pack_host
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8
from rocketlens.model.rocketmq import HALF_TOPIC, SCHEDULE_TOPIC, parse_delay_levels, topic_problem
from rocketlens.store.read.commitlog import SegmentLost
from rocketlens.store.write.queue_append import QueueWriter

_log: Final = logging.getLogger("rocketlens.broker")

AT_ONCE: Final = 500
"""Messages of one level that are delivered in one step."""


class Schedule:
    """The delay levels of a broker."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        delays_ms = parse_delay_levels(core.settings.store.messageDelayLevel)
        queue_ids = {queue.queue_id for queue in core.store.queues.of_topic(SCHEDULE_TOPIC)}
        self._delays_ms: Final = dict(enumerate(delays_ms[1:], 1))
        """By level. Levels that only an earlier configuration had are delivered, too."""
        for queue_id in sorted(queue_ids):
            self._delays_ms.setdefault(queue_id + 1, max(delays_ms))

    def deliver_due(self, at_once: int = AT_ONCE) -> int:
        """Deliver what is due, up to a number of messages of each level; returns how many.

        Stops at the first that cannot be stored now; the next call goes on there.
        """
        now_ms = self.core.clock()
        return sum(self._deliver(level, now_ms, at_once) for level in self._delays_ms)

    def _deliver(self, level: int, now_ms: int, at_once: int) -> int:
        store, offsets = self.core.store, self.core.delay_offsets
        queue = store.queues.get(SCHEDULE_TOPIC, level - 1)
        offset = offsets.table.get(level, 0)
        if queue is None or offset == queue.next_offset:
            return 0
        low = store.queues.min_offset(SCHEDULE_TOPIC, level - 1)
        offset = min(max(offset, low), queue.next_offset)
        delivered = 0
        try:
            while offset < queue.next_offset and delivered < at_once:
                entry = self._due(queue, offset, now_ms + self._delays_ms[level], now_ms)
                if entry is None:
                    break
                self._store_again(entry)
                offset += 1
                delivered += 1
        except (OSError, StoreError, SegmentLost) as error:
            _log.warning("delayed messages of level %d wait: %s", level, error)
        offsets.put(level, offset)
        return delivered

    def _due(
        self, queue: QueueWriter, offset: int, latest_ms: int, now_ms: int
    ) -> QueueEntry | None:
        """Return an entry if its message is due.

        One that is farther off than its level's delay was written with other delays, or by a
        clock that was ahead: it is due now.
        """
        entry = queue.entry(offset)
        if entry is None:
            return None
        return entry if entry.tags_code <= now_ms or entry.tags_code > latest_ms else None

    def _store_again(self, entry: QueueEntry) -> None:
        """Store a delayed message in its real topic; one that cannot be is left out, and logged.

        :raises StoreError: when nothing can be stored now.
        :raises SegmentLost: when its record cannot be read now.
        """
        content = self.core.store.record(entry.physical_offset, entry.store_size)
        if content is None:
            return
        try:
            record = commitlog_record.decode(content, physical_offset=entry.physical_offset)
        except RecordError as error:
            _log.error("a delayed message is lost: %s", error)
            return
        properties = props.parse(decode_utf8(record.properties))
        topic = properties.get(props.REAL_TOPIC, "")
        queue_id = properties.get(props.REAL_QUEUE_ID, "")
        if (
            topic_problem(topic) is not None
            or topic == HALF_TOPIC
            or not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10)
        ):
            _log.error("a delayed message is left out: it names %.80r/%.20r", topic, queue_id)
            return
        self.core.store.append(
            topic,
            int(queue_id),
            record.body,
            record.properties,
            pack_host(record.born_host),
            born_timestamp_ms=record.born_timestamp_ms,
            flag=record.flag,
            sys_flag=record.sys_flag,
            reconsume_times=record.reconsume_times,
        )
        self.core.figures.put += 1
