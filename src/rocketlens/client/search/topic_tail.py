"""Shows a topic as ``tail`` shows a file: its newest messages, then those that arrive.

It is a member of no group, and brokers keep nothing of it
(`rocketlens.client.connect.queue_puller`).
Each queue is read from the offset behind what was shown, whatever happens meanwhile:

======================================  ==========================================================
what happens                            then
======================================  ==========================================================
a broker fails                          it is named, a slave of it is asked if there is one, and it
                                        is asked again until it answers: from the same offset
it could not be asked at the start      messages from about the start on are read when it answers
the topic gets queues or brokers        the next look at the route, at most 30 s later, finds them
messages were deleted meanwhile         their offsets are named
a queue begins anew (topic deleted and  it is read from its new begin; a slave that is behind its
created again)                          master is waited for instead
the caller does not take the messages   nothing is pulled any more
======================================  ==========================================================

Messages of one queue are in its order; those of several come as brokers give them.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
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
"""Messages of a queue that are compared, from the newest back, for those that are shown first."""
_CLOCKS_DIFFER_MS: Final = 60_000
"""How much a broker's clock may differ from ours without a message being missed."""


class _Queue(Struct):
    """The position up to which one queue was read."""

    queue: MessageQueue
    next_offset: int | None = None
    """Where reading goes on; None as long as its broker could not be asked."""
    has_more: bool = True
    """Whether there may be messages behind that, so that a pull need not be held."""


class TopicTail:
    """Iterates over messages; an async context manager. Of one event loop, iterated once.

    ``newest`` None: all messages, from ``message_filter.begin`` or the oldest.
    ``on_event`` is called with one line for whatever is not a message: a broker that fails or is
    back, messages that were deleted. Without it these lines are logged.
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
        """Whether its records are other topics', with queue offsets there."""
        self._damage: Final[list[str]] = []
        """What could not be read, one line each; a bounded number of lines."""
        self._brokers: dict[str, Broker] = {}
        """As they were last registered: one that is gone may come back at the same address."""
        self._static: StaticTopic | None = None
        self._queues: Final[dict[MessageQueue, _Queue]] = {}
        self._failing: Final[dict[str, set[int]]] = {}
        """The queues that could not be read when they were last tried, by broker."""
        self._findings: Final = Findings(AnswerMessages(newest), tally=message_filter.tally)
        self._turns: Final = asyncio.Semaphore(MAX_MESSAGE_ANSWERS)
        self._pages: Final[asyncio.Queue[list[MessageExt] | None]] = asyncio.Queue(
            MAX_MESSAGE_ANSWERS
        )
        self._taken: Final[deque[MessageExt]] = deque()
        self._run_task: asyncio.Task[None] | None = None

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage; of a tail that follows, only of what was read before it began to wait."""
        topic = self._topic
        damaged = (failed_broker(topic, each) for each in self._damage)
        return (*self._findings.coverage, *damaged)

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for could be read, once the iteration has ended."""
        return Answer("", (), self.coverage).complete

    async def aclose(self) -> None:
        """Stop reading. No effect if it has stopped."""
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait([self._run_task])
            if not self._run_task.cancelled():
                # An error is that of the iteration, if there is one.
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
        """Return the next message; waits for it if the tail follows.

        :raises TopicNotFound: if no broker has the topic.
        :raises RemotingError: if no name server answers.
        """
        if self._run_task is None:
            self._run_task = asyncio.get_running_loop().create_task(self._run())
        while not self._taken:
            page = await self._pages.get()
            if page is None:
                # For the next call, and for another task that waits.
                self._pages.put_nowait(None)
                if not self._run_task.cancelled():
                    await self._run_task
                raise StopAsyncIteration
            self._taken.extend(page)
        return self._taken.popleft()

    # Reading.

    async def _run(self) -> None:
        """Read everything; the last page is None, unless reading was cancelled."""
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
            self._lack(name, error)
        newest = list(self._findings.messages.in_order())
        if newest:
            await self._pages.put(newest)
        if self._findings.messages.is_over_bytes:
            self._on_event("the newest messages are more than fit into memory: older are left out")
        if self._follows:
            await self._follow(began_ms - _CLOCKS_DIFFER_MS)

    async def _first_route(self) -> TopologyResult[Route]:
        """Return the route; an empty one if the topic may be on a broker that is not there.

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

    def _lack(self, broker_name: str, error: str) -> None:
        """Report messages that were not read, and add that to the coverage."""
        self._findings.cover((failed_broker(broker_name, error),))
        self._on_event(error)

    async def _read_stored(self, reading: _Queue) -> None:
        """Read what a queue has already, as much of it as was asked for."""
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
                await self._read_on(address, broker, reading, None)
                if reading.next_offset == before:
                    return

        answer = await self._cluster.ask_broker(broker, read)
        self._findings.cover((answer.coverage,))
        self._note(reading, answer.coverage)

    async def _read_newest(self, address: str, queue: MessageQueue, stop: int) -> None:
        """Keep the newest messages that match, reading backwards until there are enough."""
        newest = self._newest or 0
        if not newest:
            return
        async with self._turns:
            first = await min_offset(self._cluster, address, queue)
        top, step, count = stop, min(newest, limits.MAX_PULL_MESSAGES), 0
        while top > first and count < newest:
            if stop - top >= _MAX_LOOK_BACK:
                self._lack(
                    queue.broker_name,
                    f"{queue.broker_name}, queue {queue.queue_id}: compared only the newest "
                    f"{stop - top} messages: for older ones give a time to begin at",
                )
                return
            bottom = max(first, top - step)
            count += await self._keep_between(address, queue, bottom, top)
            top, step = bottom, min(2 * step, MAX_EMPTY_STEP)

    async def _keep_between(self, address: str, queue: MessageQueue, bottom: int, top: int) -> int:
        """Keep what matches from ``bottom`` up to ``top``; return how many matched."""
        count, offset = 0, bottom
        while offset < top:
            max_num = min(top - offset, limits.MAX_PULL_MESSAGES)
            async with self._turns:
                pulled, records = await self._pull(address, queue, offset, max_num)
                records = [each for each in records if self._is_light or each.queue_offset < top]
                origin = self._brokers[queue.broker_name].origin
                for record in records:
                    told = to_logical(record, self._static, queue.broker_name)
                    self._findings.take(replace(told, origin=origin))
            count += len(records)
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
        return count

    async def _pull(
        self, address: str, queue: MessageQueue, offset: int, count: int, hold_s: float = 0.0
    ) -> tuple[Pulled, list[Record]]:
        """Pull messages; return those that match, in the order of the queue.

        :raises BadAnswer: if the broker moves the offset nowhere: the read would never end.
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
        """Return what a broker compares; nothing if it would compare batches as a whole."""
        if self._subscription.sub_string != ALL_TAGS:
            try:
                if not await self._topology.has_batches(self._topic, address):
                    return self._subscription
            except BrokerError:
                # It does not report one.
                pass
        return SubscriptionData(topic=self._topic, sub_string=ALL_TAGS, expression_type=TAG_TYPE)

    async def _read_on(
        self, address: str, broker: Broker, reading: _Queue, begin: int | None
    ) -> bool:
        """Read the next messages of a queue; return whether to go on at once.

        At the queue's end the broker holds the pull. A pull that is held is for one message, for
        one of each queue can come at once.
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
        if reading.has_more:
            async with self._turns:
                pulled, records = await self._pull(
                    address, reading.queue, before, limits.MAX_PULL_MESSAGES
                )
                await self._hand_on(reading.queue, records)
        else:
            pulled, records = await self._pull(
                address, reading.queue, before, 1, queue_puller.PULL_HOLD_S
            )
            await self._hand_on(reading.queue, records)
        self._advance(reading, pulled, is_master=address == broker.master)
        was_held = loop.time() - began_s >= min(1.0, queue_puller.PULL_HOLD_S / 2)
        return reading.next_offset != before or was_held

    def _advance(self, reading: _Queue, pulled: Pulled, *, is_master: bool) -> None:
        before, after = reading.next_offset or 0, pulled.next_offset
        is_moved = pulled.status is PullStatus.OFFSET_ILLEGAL
        where = f"{reading.queue.broker_name}, queue {reading.queue.queue_id}"
        if is_moved and after > before:
            self._on_event(f"{where}: messages {before} to {after - 1} were deleted, none was read")
        elif is_moved and is_master:
            self._on_event(f"{where}: it ends before offset {before} now: going on from {after}")
        elif is_moved:
            return
        reading.next_offset = after
        reading.has_more = pulled.has_more

    async def _hand_on(self, queue: MessageQueue, records: list[Record]) -> None:
        told = (to_logical(each, self._static, queue.broker_name) for each in records)
        origin = self._brokers[queue.broker_name].origin
        if records:
            await self._pages.put([message_of(record, origin=origin) for record in told])

    # Following.

    async def _follow(self, since_ms: int) -> None:
        """Read what arrives, and look for new queues; never returns."""
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
                return await self._read_on(address, broker, reading, since_ms)

            answer = await self._cluster.ask_broker(broker, read)
            self._note(reading, answer.coverage)
            if answer.value:
                pauses.reset()
            else:
                await pauses.pause()

    def _note(self, reading: _Queue, coverage: Coverage) -> None:
        """Report a broker that fails once, and once that all of its queues can be read again."""
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
                self._on_event(f"{name} answers again: going on where it was left")


def _subscription_of(message_filter: MessageFilter) -> SubscriptionData:
    """Return what a broker compares: it may let more messages pass than match."""
    topic = message_filter.topic or ""
    if message_filter.tags is not None:
        tags = " || ".join(sorted(message_filter.tags))
        return SubscriptionData(topic=topic, sub_string=tags, expression_type=TAG_TYPE)
    if message_filter.expression is not None:
        text = message_filter.expression.text
        return SubscriptionData(topic=topic, sub_string=text, expression_type=SQL92_TYPE)
    return SubscriptionData(topic=topic, sub_string=ALL_TAGS, expression_type=TAG_TYPE)


async def _first_since(
    cluster: ClusterCalls, address: str, queue: MessageQueue, begin: int | None
) -> int:
    """Return about the offset of the first message stored at ``begin`` or later.

    None is the oldest message. A broker may return any of several of one millisecond, so the
    millisecond before is asked for, and one message too many may be read.
    """
    first = await min_offset(cluster, address, queue)
    if begin is None or begin <= 0:
        return first
    offset = await offset_at_time(cluster, address, queue, begin - 1)
    return max(first, min(offset, await max_offset(cluster, address, queue)))
