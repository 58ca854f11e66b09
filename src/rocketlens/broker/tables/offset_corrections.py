"""Corrects queue offsets in a broker's files that do not fit its log.

The files outlive the log: it may have been replaced by an empty or another one, and may have lost
its end. An offset behind the end of its queue would then hide every new message until the queue has
grown past it.

=====================  =====================================================================
log                    corrected offset
=====================  =====================================================================
the same               at most the queue's end; a delay offset at least the queue's begin
another one            the queue's begin: messages are read or delivered twice, not lost
=====================  =====================================================================

For the same log, RocketMQ corrects delay offsets so. Source:
``ScheduleMessageService.correctDelayOffset``.
"""

import logging
from typing import Final

from rocketlens.broker.tables.log_identity import is_another_log
from rocketlens.broker.tables.offsets import GROUP_SEPARATOR, ConsumerOffsets, DelayOffsets
from rocketlens.model.rocketmq import SCHEDULE_TOPIC
from rocketlens.store.write.message_store import MessageStore

_log: Final = logging.getLogger("rocketlens.broker")


def fit_to_store(store: MessageStore, consumers: ConsumerOffsets, delays: DelayOffsets) -> None:
    """Correct the offsets of groups and of delay levels, and log the corrections."""
    checksums = delays.log_checksums()
    is_another = is_another_log(consumers.log, checksums)
    consumers.is_changed |= is_another
    groups = _fit_consumers(store, consumers, is_another=is_another)
    is_another = is_another_log(delays.log, checksums)
    delays.is_changed |= is_another
    levels = _fit_delays(store, delays, is_another=is_another)
    for count, of_what in ((groups, "consumer groups"), (levels, "delay levels")):
        if count:
            line = "%d offsets of %s did not fit the queues of this log and were corrected"
            _log.warning(line, count, of_what)


def _fit_delays(store: MessageStore, delays: DelayOffsets, *, is_another: bool) -> int:
    corrected = 0
    for level, offset in list(delays.table.items()):
        low = store.queues.min_offset(SCHEDULE_TOPIC, level - 1)
        high = store.queues.max_offset(SCHEDULE_TOPIC, level - 1)
        fitting = low if is_another else min(max(offset, low), high)
        if fitting != offset:
            delays.put(level, fitting)
            corrected += 1
    return corrected


def _fit_consumers(store: MessageStore, consumers: ConsumerOffsets, *, is_another: bool) -> int:
    corrected = 0
    for name, offsets in consumers.table.items():
        topic = name.rpartition(GROUP_SEPARATOR)[0]
        for queue_id, offset in offsets.items():
            if offset < 0:
                continue
            fitting = min(offset, store.queues.max_offset(topic, queue_id))
            if is_another:
                fitting = store.queues.min_offset(topic, queue_id)
            if fitting != offset:
                offsets[queue_id] = fitting
                consumers.is_changed = True
                corrected += 1
    return corrected
