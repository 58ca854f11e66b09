"""State that the parts of a consumer share: its group, settings, offsets, tasks and rates.

Rates and times in RocketMQ's tools (ConsumeStatus) cover the last minute, failures the last hour.
Source: ``ConsumerStatsManager``.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.namespace import without_namespace
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consumer_settings import ConsumerSettings
from rocketlens.client.consume.group_offsets import LocalOffsetFile, OffsetTable, RemoteOffsets
from rocketlens.client.send.trace import TraceWriter
from rocketlens.errors import RocketLensError
from rocketlens.model import properties as props
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.wire.bodies.clients import ConsumeStatus, SubscriptionData

logger: Final = logging.getLogger("rocketlens.client")

_SLOT_S: Final = 10.0
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0


class _Slot(Struct):
    """The counts of ten seconds."""

    begins_s: float
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    batches: int = 0
    consume_s: float = 0.0
    consumed: int = 0
    failed: int = 0


class ConsumeRates:
    """Counts of one topic; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._slots: deque[_Slot] = deque()

    def pulled(self, messages: int, seconds: float) -> None:
        slot = self._slot()
        slot.pulls += 1
        slot.pulled += messages
        slot.pull_s += seconds

    def consumed(self, succeeded: int, failed: int, seconds: float) -> None:
        slot = self._slot()
        slot.batches += 1
        slot.consume_s += seconds
        slot.consumed += succeeded
        slot.failed += failed

    def status(self) -> ConsumeStatus:
        now_s = self._clock()
        recent = [each for each in self._slots if each.begins_s > now_s - _MINUTE_S]
        pulls = sum(each.pulls for each in recent)
        batches = sum(each.batches for each in recent)
        return ConsumeStatus(
            pull_rt=1000 * sum(each.pull_s for each in recent) / pulls if pulls else 0.0,
            pull_tps=sum(each.pulled for each in recent) / _MINUTE_S,
            consume_rt=1000 * sum(each.consume_s for each in recent) / batches if batches else 0.0,
            consume_ok_tps=sum(each.consumed for each in recent) / _MINUTE_S,
            consume_failed_tps=sum(each.failed for each in recent) / _MINUTE_S,
            consume_failed_msgs=sum(
                each.failed for each in self._slots if each.begins_s > now_s - _HOUR_S
            ),
        )

    def _slot(self) -> _Slot:
        now_s = self._clock()
        if not self._slots or now_s - self._slots[-1].begins_s >= _SLOT_S:
            self._slots.append(_Slot(now_s))
            while self._slots[0].begins_s < now_s - _HOUR_S:
                self._slots.popleft()
        return self._slots[-1]


class GroupSession(Struct, frozen=True, kw_only=True):
    """Shared state of one consumer. Its group and topics include their namespace."""

    cluster: ClusterCalls
    settings: ConsumerSettings
    group: str
    client_id: str
    store: RemoteOffsets | LocalOffsetFile
    trace: TraceWriter | None
    offsets: OffsetTable = field(default_factory=OffsetTable)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    _rates: dict[str, ConsumeRates] = field(default_factory=dict)

    def rates(self, topic: str) -> ConsumeRates:
        if topic not in self._rates:
            self._rates[topic] = ConsumeRates(self.settings.clock)
        return self._rates[topic]

    def message_for_user(self, message: MessageExt) -> MessageExt:
        """Return a message for listeners: with its original topic, without the namespace."""
        topic = message.topic
        if topic == RETRY_PREFIX + self.group:
            topic = message.properties.get(props.RETRY_TOPIC, topic)
        topic = without_namespace(self.settings.namespace, topic)
        return message if topic == message.topic else replace(message, topic=topic)

    def queue_for_user(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=without_namespace(self.settings.namespace, queue.topic))


class TaskSet:
    """Keeps references to tasks, and logs their errors."""

    def __init__(self, group: str) -> None:
        self._group: Final = group
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._remove)
        return task

    async def wait(self) -> None:
        """Wait until all tasks have ended, but at most `limits.MAX_STOP_ANSWERS_S`."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limits.MAX_STOP_ANSWERS_S)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait as `wait` does."""
        for task in self._tasks:
            task.cancel()
        await self.wait()

    def _remove(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, RocketLensError):
                logger.warning("group %s: %s", self._group, error)
            else:
                logger.error("group %s: a task ended", self._group, exc_info=error)
