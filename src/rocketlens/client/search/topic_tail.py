"""Follows a topic as ``tail`` follows a file: its newest messages, then new ones.

It joins no group and stores nothing at brokers (`rocketlens.client.connect.queue_puller`). Each
queue is read from the offset after the last message shown. A broker that fails is reported, its
slaves are asked, and it is asked again from the same offset until it answers. New queues and
brokers are found in the route, which is refreshed every 30 s. Offsets that were deleted before
they were read are reported. A queue that restarts (topic deleted and created again) is read from
its new begin; a slave that lags behind its master is waited for instead. Pulling stops while the
caller takes no messages.

Messages of one queue are in order. Queues are merged in the order of the brokers' answers.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect import queue_puller
from rocketlens.client.connect.broker_calls import max_offset, min_offset, offset_at_time
from rocketlens.client.connect.cluster import (
    MAX_MESSAGE_ANSWERS,
    ClusterCalls,
    failed_broker,
    request_name,
)
from rocketlens.client.connect.queue_puller import (
    Backoff,
    Pulled,
    PullStatus,
    QueuePuller,
    add_damage,
)
from rocketlens.client.connect.route import ROUTE_REFRESH_S, Broker, MessageQueue, Route
from rocketlens.client.connect.topology import Topology, TopologyResult
from rocketlens.client.search.queue_offsets import unreadable_of_topic
from rocketlens.client.search.queue_read import MAX_EMPTY_STEP
from rocketlens.errors import BadAnswer, BrokerError, RocketLensError, TopicNotFound, WrongUse
from rocketlens.formats.commitlog_record import Record, message_of
from rocketlens.model.answer import Answer, Coverage, SourceKind, SourceState
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import ALL_TAGS, LMQ_PREFIX, SQL92_TYPE, TAG_TYPE
from rocketlens.net.pace import in_thread
from rocketlens.query.answer_builder import AnswerMessages, Findings, to_logical
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.wire.bodies.clients import SubscriptionData
from rocketlens.wire.commands.messages import PULL_MESSAGE

if TYPE_CHECKING:
    from rocketlens.wire.bodies.static_topics import StaticTopic

logger: Final = logging.getLogger("rocketlens.client")

_MAX_LOOK_BACK: Final = 100_000
"""Messages of a queue that are compared, from the newest back, for the first output."""
_CLOCKS_DIFFER_MS: Final = 60_000
"""Tolerated difference between a broker's clock and ours."""


class _Queue(Struct):
    """The read position of one queue."""

    queue: MessageQueue
    next_offset: int | None = None
    """The next offset to read; None until its broker has answered."""
    has_more: bool = True
    """False if there are no messages at that offset, so the pull should be held."""


class TopicTail:
    """Iterates over messages; an async context manager. Bound to one event loop; iterate once.

    ``newest`` None: all messages, from ``message_filter.begin`` or the oldest. ``on_event`` is
    called with one line if a broker fails or recovers, or messages were deleted. Without it these
    lines are logged.
    """

    def __init__(
        self,
        cluster: ClusterCalls,
        topology: Topology,
        message_filter: MessageFilter,
        *,
        newest: int | None,
        follow: bool,
        on_event: Callable[[str], None] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster: Final = cluster
        self._topology: Final = topology
        self._message_filter: Final = message_filter
        self._newest: Final = newest
        self._follows: Final = follow
        self._topic: Final = message_filter.topic or ""
        self._on_event: Final = on_event or logger.warning
        self._wall_clock: Final = wall_clock
        self._puller: Final = QueuePuller(cluster)
        self._subscription: Final = _subscription_of(message_filter)
        self._is_light: Final = self._topic.startswith(LMQ_PREFIX)
        """True if its records belong to other topics, with queue offsets there."""
        self._damage: Final[list[str]] = []
        """Damaged data, one line each; a bounded number of lines."""
        self._brokers: dict[str, Broker] = {}
        """As last registered: a missing broker may return at the same address."""
        self._static: StaticTopic | None = None
        self._queues: Final[dict[MessageQueue, _Queue]] = {}
        self._failing: Final[dict[str, set[int]]] = {}
        """The queues that could not be read at the last attempt, by broker."""
        self._findings: Final = Findings(AnswerMessages(newest), tally=message_filter.tally)
        self._turns: Final = asyncio.Semaphore(MAX_MESSAGE_ANSWERS)
        self._pages: Final[asyncio.Queue[list[MessageExt] | None]] = asyncio.Queue(
            MAX_MESSAGE_ANSWERS
        )
        self._taken: Final[deque[MessageExt]] = deque()
        self._run_task: asyncio.Task[None] | None = None

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage; with ``follow`` only of messages from before the tail began to wait."""
        topic = self._topic
        damaged = (failed_broker(topic, each) for each in self._damage)
        return (*self._findings.coverage, *damaged)

    @property
    def complete(self) -> bool:
        """True if everything requested was read; valid after the iteration."""
        return Answer("", (), self.coverage).complete

    async def aclose(self) -> None:
        """Stop reading. No effect if it has stopped."""
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait([self._run_task])
            if not self._run_task.cancelled():
                # The iteration raises this error.
                self._run_task.exception()
            while not self._pages.empty():
                self._pages.get_nowait()
            self._pages.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self

    async def __anext__(self) -> MessageExt:
        """Return the next message; with ``follow`` wait for it.

        :raises TopicNotFound: if no broker has the topic.
        """
        if self._run_task is None:
            self._run_task = asyncio.get_running_loop().create_task(self._run())
        while not self._taken:
            page = await self._pages.get()
            if page is None:
                # For the next call, and for other waiting tasks.
                self._pages.put_nowait(None)
                if not self._run_task.cancelled():
                    await self._run_task
                raise StopAsyncIteration
            self._taken.extend(page)
        return self._taken.popleft()

    # Reading.

    async def _run(self) -> None:
        """Read everything, then put None, unless cancelled."""
        try:
            await self._read()
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self._pages.put(None)
            raise
        await self._pages.put(None)

    async def _read(self) -> None:
        began_ms = int(self._wall_clock() * 1000)
        route, coverage = await self._first_route()
        self._findings.cover(coverage)
        for each in coverage:
            if each.is_failure and self._follows:
                self._on_event(f"{each.source}: {each.error}")
        self._add_queues(route)
        await asyncio.gather(*(self._read_stored(each) for each in self._queues.values()))
        for name, error in await unreadable_of_topic(self._cluster, route):
            self._report_unread(name, error)
        newest = list(self._findings.messages.in_order())
        if newest:
            await self._pages.put(newest)
        if self._findings.messages.is_over_bytes:
            self._on_event("the newest messages do not fit into memory; older ones are left out")
        if self._follows:
            await self._follow(began_ms - _CLOCKS_DIFFER_MS)

    async def _first_route(self) -> TopologyResult[Route]:
        """Return the route; an empty one if the topic may be on a missing broker.

        :raises TopicNotFound: if no broker has the topic.
        """
        try:
            return await self._topology.route_of_name(self._topic)
        except TopicNotFound as error:
            _, doubts = await self._topology.brokers()
            if not any(each.is_failure for each in doubts):
                raise
            listing = Coverage("topics", SourceKind.TOPICS, SourceState.FAILED, None, str(error))
            return TopologyResult(Route(self._topic, {}, (), ()), (listing, *doubts))

    def _add_queues(self, route: Route) -> None:
        self._brokers.update(route.brokers)
        self._static = route.static
        for queue in route.read_queues:
            self._queues.setdefault(queue, _Queue(queue))

    def _report_unread(self, broker_name: str, error: str) -> None:
        """Report messages that were not read, and add a failure to the coverage."""
        self._findings.cover((failed_broker(broker_name, error),))
        self._on_event(error)

    async def _read_stored(self, reading: _Queue) -> None:
        """Read the requested part of a queue's stored messages."""
        broker = self._brokers[reading.queue.broker_name]

        async def read(address: str) -> None:
            async with self._turns:
                stop = await max_offset(self._cluster, address, reading.queue)
            if self._newest is not None:
                if reading.next_offset is None:
                    reading.next_offset = stop
                await self._read_newest(address, reading.queue, stop)
                return
            while reading.next_offset is None or reading.next_offset < stop:
                before = reading.next_offset
                await self._read_next(address, broker, reading, None)
                if reading.next_offset == before:
                    return

        answer = await self._cluster.ask_broker(broker, read)
        self._findings.cover((answer.coverage,))
        self._report_state(reading, answer.coverage)

    async def _read_newest(self, address: str, queue: MessageQueue, stop: int) -> None:
        """Keep the newest matching messages, reading backwards until there are enough."""
        newest = self._newest or 0
        if not newest:
            return
        async with self._turns:
            first = await min_offset(self._cluster, address, queue)
        top, step, count = stop, min(newest, limits.MAX_PULL_MESSAGES), 0
        while top > first and count < newest:
            if stop - top >= _MAX_LOOK_BACK:
                self._report_unread(
                    queue.broker_name,
                    f"{queue.broker_name}, queue {queue.queue_id}: compared only the newest "
                    f"{stop - top} messages: for older ones give a begin time",
                )
                return
            bottom = max(first, top - step)
            count += await self._keep_between(address, queue, bottom, top)
            top, step = bottom, min(2 * step, MAX_EMPTY_STEP)

    async def _keep_between(self, address: str, queue: MessageQueue, bottom: int, top: int) -> int:
        """Keep matching messages in ``[bottom, top)``; return their number."""
        count, offset = 0, bottom
        while offset < top:
            max_num = min(top - offset, limits.MAX_PULL_MESSAGES)
            async with self._turns:
                pulled, records = await self._pull(address, queue, offset, max_num)
                records = [each for each in records if self._is_light or each.queue_offset < top]
                origin = self._brokers[queue.broker_name].origin
                for record in records:
                    placed = to_logical(record, self._static, queue.broker_name)
                    self._findings.take(replace(placed, origin=origin))
            count += len(records)
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
        return count

    async def _pull(
        self, address: str, queue: MessageQueue, offset: int, count: int, hold_s: float = 0.0
    ) -> tuple[Pulled, list[Record]]:
        """Pull messages; return those that match, in the order of the queue.

        :raises BadAnswer: if the broker returns the same offset again: the read would never end.
        """
        subscription = await self._subscription_at(address)
        pulled = await self._puller.pull(
            address, queue, offset, count=count, subscription=subscription, hold_s=hold_s
        )
        if pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.next_offset == offset:
            reason = f"moves from queue offset {offset} to {offset}"
            raise BadAnswer(address, request_name(PULL_MESSAGE), reason)
        if pulled.gap is not None and pulled.gap not in self._damage:
            add_damage(self._damage, pulled.gap)
        message_filter = self._message_filter.at(self._brokers[queue.broker_name].origin)

        def matching() -> list[Record]:
            return [
                each
                for record in pulled.records(self._damage)
                if message_filter.matches(record)
                for each in message_filter.matching_in(record)
                if self._is_light or offset <= each.queue_offset < pulled.next_offset
            ]

        # Decoding a body can take seconds.
        return pulled, await in_thread(matching) if message_filter.reads_body else matching()

    async def _subscription_at(self, address: str) -> SubscriptionData:
        """Return the broker's filter: all messages if it would compare batches as a whole."""
        if self._subscription.sub_string != ALL_TAGS:
            try:
                if not await self._topology.has_batches(self._topic, address):
                    return self._subscription
            except BrokerError:
                # The broker does not report the topic's type.
                pass
        return SubscriptionData(topic=self._topic, sub_string=ALL_TAGS, expression_type=TAG_TYPE)

    async def _read_next(
        self, address: str, broker: Broker, reading: _Queue, begin: int | None
    ) -> bool:
        """Read the next messages of a queue; return True to continue at once.

        At the queue's end the broker holds the pull. A held pull requests one message, since each
        queue may return one at the same time.
        """
        if reading.next_offset is None:
            if self._newest is None:
                begin = self._message_filter.begin
            async with self._turns:
                reading.next_offset = await _first_since(
                    self._cluster, address, reading.queue, begin
                )
        loop = asyncio.get_running_loop()
        before, began_s = reading.next_offset, loop.time()
        count, hold_s = 1, queue_puller.PULL_HOLD_S
        if reading.has_more:
            count, hold_s = limits.MAX_PULL_MESSAGES, 0.0
        async with self._turns if reading.has_more else nullcontext():
            pulled, records = await self._pull(address, reading.queue, before, count, hold_s)
            await self._put_page(reading.queue, records)
        self._advance(reading, pulled, is_master=address == broker.master)
        was_held = loop.time() - began_s >= min(1.0, queue_puller.PULL_HOLD_S / 2)
        return reading.next_offset != before or was_held

    def _advance(self, reading: _Queue, pulled: Pulled, *, is_master: bool) -> None:
        before, after = reading.next_offset or 0, pulled.next_offset
        is_moved = pulled.status is PullStatus.OFFSET_ILLEGAL
        where = f"{reading.queue.broker_name}, queue {reading.queue.queue_id}"
        if is_moved and after > before:
            self._on_event(f"{where}: messages {before} to {after - 1} were deleted before reading")
        elif is_moved and is_master:
            self._on_event(f"{where} now ends before offset {before}: continuing at {after}")
        elif is_moved:
            return
        reading.next_offset = after
        reading.has_more = pulled.has_more

    async def _put_page(self, queue: MessageQueue, records: list[Record]) -> None:
        placed = (to_logical(each, self._static, queue.broker_name) for each in records)
        origin = self._brokers[queue.broker_name].origin
        if records:
            await self._pages.put([message_of(record, origin=origin) for record in placed])

    # Following.

    async def _follow(self, since_ms: int) -> None:
        """Read new messages, and look for new queues; never returns."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._follow_all(group, since_ms)
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None

    async def _follow_all(self, group: asyncio.TaskGroup, since_ms: int) -> None:
        followed: set[MessageQueue] = set()
        while True:
            for queue, reading in self._queues.items():
                if queue not in followed:
                    followed.add(queue)
                    group.create_task(self._follow_queue(reading, since_ms))
            await asyncio.sleep(ROUTE_REFRESH_S)
            try:
                self._add_queues((await self._topology.route(self._topic)).value)
            except WrongUse:
                raise
            except RocketLensError as error:
                logger.warning("the route of topic %s stays as it was: %s", self._topic, error)

    async def _follow_queue(self, reading: _Queue, since_ms: int) -> None:
        pauses = Backoff()
        while True:
            broker = self._brokers[reading.queue.broker_name]

            async def read(address: str, broker: Broker = broker) -> bool:
                return await self._read_next(address, broker, reading, since_ms)

            answer = await self._cluster.ask_broker(broker, read)
            self._report_state(reading, answer.coverage)
            if answer.value:
                pauses.reset()
            else:
                await pauses.pause()

    def _report_state(self, reading: _Queue, coverage: Coverage) -> None:
        """Report a broker's failure once, and once that all of its queues can be read again."""
        if not self._follows:
            return
        name = reading.queue.broker_name
        failing = self._failing.setdefault(name, set())
        if coverage.is_failure:
            if not failing:
                self._on_event(f"{name}: {coverage.error}; asking again until it answers")
            failing.add(reading.queue.queue_id)
        elif reading.queue.queue_id in failing:
            failing.remove(reading.queue.queue_id)
            if not failing:
                self._on_event(f"{name} answers again: continuing where it stopped")


def _subscription_of(message_filter: MessageFilter) -> SubscriptionData:
    """Return the broker's filter, which may pass more messages than match."""
    text, kind = ALL_TAGS, TAG_TYPE
    if message_filter.tags is not None:
        text = " || ".join(sorted(message_filter.tags))
    elif message_filter.expression is not None:
        text, kind = message_filter.expression.text, SQL92_TYPE
    return SubscriptionData(topic=message_filter.topic or "", sub_string=text, expression_type=kind)


async def _first_since(
    cluster: ClusterCalls, address: str, queue: MessageQueue, begin: int | None
) -> int:
    """Return the approximate offset of the first message stored at ``begin`` or later.

    None is the oldest message. If several messages share a millisecond, a broker can return any of
    them, so the previous millisecond is requested, and one message too many may be read.
    """
    first = await min_offset(cluster, address, queue)
    if begin is None or begin <= 0:
        return first
    offset = await offset_at_time(cluster, address, queue, begin - 1)
    return max(first, min(offset, await max_offset(cluster, address, queue)))
