"""Iterates over all messages of topics in the order of store times, or as Arrow record batches.

All queues are read concurrently, in bounded memory, with nothing stored at the brokers. A failed
broker makes the scan incomplete. A time range relies on the same order as a search by time.

Each queue is read from its oldest message of the time range on (`QueueReader.read_in_order`), at
most one pull ahead. A record is yielded once no queue can return an older one: its store time is
not above the time that each queue without a waiting record has reached. So memory holds two pulls
of each queue, which are smaller if there are many queues. If a clock was set back, an out-of-order
record is yielded when it is read.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.cluster import failed_broker
from rocketlens.client.connect.route import Broker, MessageQueue, Route
from rocketlens.client.search.cluster_source import TOPICS_AT_ONCE, count_left_out
from rocketlens.client.search.key_search import Dispatch
from rocketlens.client.search.queue_offsets import unreadable_messages
from rocketlens.client.search.queue_read import (
    MAX_ORDER_SAMPLES,
    MIN_ORDER_SAMPLES,
    RISING_TIMES,
    QueueReader,
)
from rocketlens.errors import BrokerError, TopicNotFound
from rocketlens.formats.commitlog_record import Origin, Record, message_of
from rocketlens.late import pa
from rocketlens.model.answer import Answer, Coverage, SourceState
from rocketlens.model.arrow import BATCH_BYTES, BATCH_ROWS, batches_of, package
from rocketlens.model.arrow import schema as arrow_schema
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.net.pace import at_once, wait_at_most
from rocketlens.query.answer_builder import AnswerMessages, Findings, order_in_time, to_logical
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import FindRequest
from rocketlens.wire.bodies.static_topics import StaticTopic
from rocketlens.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rocketlens.client.connect.cluster import BrokerAnswer
    from rocketlens.client.search.cluster_source import ClusterSource

MAX_MERGED_BYTES: Final = 64 * 1024 * 1024
"""Bytes that wait to be merged; pulls get smaller. Each queue may always hold one message."""
_FIRST_BYTES: Final = 4096
"""Assumed size of a queue's records before the first one is read."""
_LOOK_S: Final = 0.2
"""Seconds between calls of `on_read` while nothing arrives."""


class ClusterMessages:
    """Iterates over the messages of topics. Bound to one event loop; iterate once.

    ``failures`` and ``coverage`` are complete after the iteration. Messages are in the order of
    their store times, if those rise in each queue.
    """

    def __init__(self, source: "ClusterSource", request: FindRequest) -> None:
        self._source: Final = source
        self._request: Final = request
        self._findings: Final = Findings(AnswerMessages(0))
        self.on_read: Callable[[int, int | None, int], bool] | None = None
        """Called several times a second with the bytes and messages read so far. If it returns
        False, the iteration ends after the messages that were read.
        """

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage of everything that was read or left out."""
        return self._findings.coverage

    @property
    def complete(self) -> bool:
        """True if everything requested was read; valid after the iteration."""
        return Answer("", (), self.coverage).complete

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """The coverage of everything that could not be read."""
        return Answer("", (), self.coverage).failures

    async def __aiter__(self) -> AsyncGenerator[MessageExt, None]:
        """Yield the messages.

        :raises TopicNotFound: if the cluster does not have a topic, or nothing matches a pattern.
        """
        source, request, findings = self._source, self._request, self._findings
        topics, left_out = await source.topics_for(request, findings)
        merged = TimeOrder(source, request, findings, self.on_read)
        async with aclosing(merged.read(topics)) as read:
            async for records in read:
                for record, origin in records:
                    yield message_of(record, origin=origin)
        if merged.is_interrupted:
            failed = SourceState.FAILED
            findings.cover((Coverage(source.name, source.kind, failed, None, "interrupted"),))
            return
        await count_left_out(source, request, left_out, findings.tally)
        findings.cover(await source.topology.recheck_missing_brokers())

    async def record_batches(self) -> AsyncIterator["pa.RecordBatch"]:
        """Yield record batches of bounded size while messages are read; errors as iteration.

        :raises PackageMissing: without pyarrow.
        """
        package("pyarrow", "arrow", "record_batches")
        kept: list[MessageExt] = []
        size = 0
        async for message in self:
            kept.append(message)
            size += len(message.body)
            if len(kept) == BATCH_ROWS or size >= BATCH_BYTES:
                for batch in batches_of(kept):
                    yield batch
                kept, size = [], 0
        for batch in batches_of(kept):
            yield batch

    async def to_arrow(self) -> "pa.Table":
        """Return all messages as an Arrow table; errors as `record_batches`."""
        pyarrow = package("pyarrow", "arrow", "to_arrow")
        batches = [batch async for batch in self.record_batches()]
        table: pa.Table = pyarrow.Table.from_batches(batches, arrow_schema())
        return table


class Arrivals(Findings):
    """Keeps the records of one queue since the last `drain`."""

    def __init__(self, on_read: Callable[[int, int], None]) -> None:
        super().__init__(AnswerMessages(None))
        self._records: list[Record] = []
        self._on_pulled: Final = on_read

    def take(self, record: Record) -> bool:
        self._records.append(record)
        return True

    def add_read(self, stored_bytes: int, count: int) -> bool:
        self._on_pulled(stored_bytes, count)
        return True

    def drain(self) -> list[Record]:
        """Remove and return the records, oldest first."""
        records, self._records = self._records, []
        return sorted(records, key=order_in_time)


class _Lane:
    """One queue, with the records that wait to be merged."""

    def __init__(
        self,
        broker: Broker,
        queue: MessageQueue,
        message_filter: MessageFilter,
        static: StaticTopic | None,
    ) -> None:
        self.broker: Final = broker
        self.queue: Final = queue
        self.message_filter: Final = message_filter
        self.static: Final = static
        self.queue_count = 1
        self.records: Final[deque[Record]] = deque()
        self.has_room: Final = asyncio.Event()
        self.has_room.set()
        self.record_bytes = _FIRST_BYTES
        self.next_offset: int | None = None
        self.reached_ms = 0
        self.is_over = False
        self.relies_on_order = False
        self.damage: Final[list[str]] = []
        self.answer: BrokerAnswer[bool] | None = None
        self._passed: tuple[int, int] | None = None
        """The lowest and highest queue offset of the records already yielded."""

    def drop_yielded(self, records: list[Record]) -> list[Record]:
        """Drop records that were yielded before: a pull within a batch returns the whole batch.

        Records of a light queue have the offsets of another queue.
        """
        queue = (self.queue.topic, self.queue.queue_id)
        first, last = self._passed or (0, -1)
        chosen: dict[tuple[str, int, int], Record] = {}
        for each in records:
            if first <= each.queue_offset <= last and (each.topic, each.queue_id) == queue:
                continue
            chosen.setdefault((each.topic, each.queue_id, each.queue_offset), each)
        offsets = [each.queue_offset for each in chosen.values()]
        if offsets:
            self._passed = min(offsets) if last < 0 else min(first, *offsets), max(last, *offsets)
        return list(chosen.values())

    def coverage_of_lane(self, failed: set[str]) -> list[Coverage]:
        """Return this queue's coverage; ``failed`` has the brokers already reported."""
        name = self.broker.name
        if self.answer is None or (self.answer.value is None and name in failed):
            return []
        if self.answer.value is None:
            failed.add(name)
            return [self.answer.coverage]
        relies_on = RISING_TIMES if self.relies_on_order else None
        covered = replace(self.answer.coverage, relies_on=relies_on)
        return [covered, *(failed_broker(name, error) for error in self.damage)]


class TimeOrder:
    """Reads topics once, into a stream of records. Bound to one event loop.

    ``findings`` gets the coverage. ``on_read`` is called as in `ClusterMessages`; if it returns
    False, waiting records are yielded and reading ends.
    """

    def __init__(
        self,
        source: "ClusterSource",
        request: FindRequest,
        findings: Findings,
        on_read: Callable[[int, int | None, int], bool] | None = None,
    ) -> None:
        self._source: Final = source
        self._cluster: Final = source.cluster
        self._request: Final = request
        self._findings: Final = findings
        self._on_read: Final = on_read
        self._dispatch: Final = Dispatch(source.cluster)
        self._dispatch_tasks: Final[dict[str, asyncio.Task[str | None]]] = {}
        self._changed: Final = asyncio.Event()
        self._lanes: Final[list[_Lane]] = []
        self._empty_lanes: Final[set[_Lane]] = set()
        """Unfinished queues that have no waiting record."""
        self._heap: Final[list[tuple[tuple[object, ...], int, _Lane]]] = []
        self._unreadable: Final[list[BrokerAnswer[list[str]]]] = []
        self._reading = 0
        """The number of queues that are not read to their end."""
        self._failure: BaseException | None = None
        self._read_bytes = 0
        self._read_count = 0
        self.is_interrupted = False
        """True if `on_read` returned False."""

    async def read(
        self, topics: Iterable[str]
    ) -> AsyncGenerator[list[tuple[Record, Origin]], None]:
        """Yield lists of matching records with their origins."""
        routes = await self._routes(topics)
        self._add_lanes(routes)
        tasks: list[asyncio.Future[None]] = [
            asyncio.ensure_future(self._read_lane(each)) for each in self._lanes
        ]
        tasks += [
            asyncio.ensure_future(self._cover_unreadable(route, broker))
            for route in routes
            for broker in route.brokers.values()
            if not route.topic.startswith(LMQ_PREFIX)
        ]
        for task in tasks:
            task.add_done_callback(self._note_end)
        try:
            while not self.is_interrupted and (self._heap or self._empty_lanes):
                if ready := self._ready():
                    yield ready
                else:
                    await self._wait()
            if not self.is_interrupted:
                for task in tasks:
                    await task
        finally:
            await self._end(tasks)
        for lane in self._lanes:
            lane.is_over = True
        self._empty_lanes.clear()
        while ready := self._ready():
            yield ready
        self._cover()

    def _cover(self) -> None:
        """Add each queue's coverage; a broker's failure only once."""
        failed: set[str] = set()
        for lane in self._lanes:
            self._findings.cover(tuple(lane.coverage_of_lane(failed)))
        for answer in self._unreadable:
            name = answer.broker.name
            if answer.value is not None or name not in failed:
                failures = (failed_broker(name, error) for error in answer.value or ())
                self._findings.cover((answer.coverage, *failures))

    def _note_end(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()
        self._changed.set()

    async def _end(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        waiting: list[asyncio.Future[Any]] = [*tasks, *self._dispatch_tasks.values()]
        for task in waiting:
            task.cancel()
        for task in waiting:
            # `_note_end` has recorded the first error.
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def _routes(self, topics: Iterable[str]) -> list[Route]:
        async def route(topic: str) -> Route | None:
            try:
                topic_route, doubts = await self._source.topology.route(topic)
            except TopicNotFound as error:
                # The topic was deleted meanwhile, or does not exist.
                self._findings.cover(await self._source.coverage_of_missing_topic(error))
                return None
            self._findings.cover(doubts)
            return topic_route

        routes = await at_once(route, topics, TOPICS_AT_ONCE)
        return [each for each in routes if each is not None]

    def _add_lanes(self, routes: Iterable[Route]) -> None:
        for route in routes:
            message_filter = self._request.filter_of(self._findings.tally, [route.topic])
            lanes = [
                _Lane(broker, queue, message_filter.at(broker.origin), route.static)
                for queue in route.read_queues
                if (broker := route.brokers.get(queue.broker_name)) is not None
            ]
            for lane in lanes:
                lane.queue_count = sum(lane.broker is each.broker for each in lanes)
            self._lanes.extend(lanes)
        self._empty_lanes.update(self._lanes)
        self._reading = len(self._lanes)

    # Merging.

    async def _wait(self) -> None:
        """Wait until a queue has new records, or `on_read` is due.

        :raises BaseException: the error of a failed task.
        """
        await wait_at_most(_LOOK_S, self._changed)
        self._changed.clear()
        self._report()
        if self._failure is not None:
            raise self._failure

    def _ready(self) -> list[tuple[Record, Origin]]:
        """Return about one pull of records that no queue can precede with an older one."""
        ready: list[tuple[Record, Origin]] = []
        reached_ms = min((each.reached_ms for each in self._empty_lanes), default=None)
        while self._heap and len(ready) < limits.MAX_PULL_MESSAGES:
            _, number, lane = self._heap[0]
            record = lane.records[0]
            if reached_ms is not None and record.store_timestamp_ms > reached_ms:
                break
            ready.append((lane.records.popleft(), lane.broker.origin))
            if lane.records:
                heapreplace(self._heap, (order_in_time(lane.records[0]), number, lane))
                continue
            heappop(self._heap)
            lane.has_room.set()
            if not lane.is_over:
                self._empty_lanes.add(lane)
                ends = (lane.reached_ms, reached_ms)
                reached_ms = min(each for each in ends if each is not None)
        return ready

    def _report(self, stored_bytes: int = 0, count: int = 0) -> None:
        self._read_bytes += stored_bytes
        self._read_count += count
        if self._on_read and not self._on_read(self._read_bytes, None, self._read_count):
            self.is_interrupted = True
            self._changed.set()

    # Reading.

    async def _read_lane(self, lane: _Lane) -> None:
        lane.answer = await self._cluster.ask_broker(
            lane.broker, lambda address: self._read_at(lane, address)
        )
        lane.is_over = True
        self._reading -= 1
        self._empty_lanes.discard(lane)
        self._changed.set()

    async def _read_at(self, lane: _Lane, address: str) -> bool:
        """Read a queue from one address; return True."""
        behind = await self._wait_for_dispatch(address)
        if behind is not None and behind not in lane.damage:
            lane.damage.append(behind)
        arrivals = Arrivals(self._report)

        async def forward(next_offset: int, reached_ms: int) -> None:
            pulled = lane.drop_yielded(arrivals.drain())
            records = [to_logical(each, lane.static, lane.broker.name) for each in pulled]
            await lane.has_room.wait()
            if records:
                lane.record_bytes = sum(each.total_size for each in records) // len(records)
                lane.has_room.clear()
                lane.records.extend(records)
                heappush(self._heap, (order_in_time(records[0]), id(lane), lane))
                self._empty_lanes.discard(lane)
            lane.next_offset, lane.reached_ms = next_offset, max(reached_ms, lane.reached_ms)
            self._changed.set()

        reader = QueueReader(
            self._cluster,
            address,
            lane.queue,
            lane.message_filter,
            arrivals,
            lane.damage,
            max(MIN_ORDER_SAMPLES, MAX_ORDER_SAMPLES // lane.queue_count),
            self._request.exhaustive,
            on_pull=forward,
            pull_count=lambda: self._pull_count(lane),
        )
        request = self._request
        try:
            await reader.read_in_order(request.begin or 0, request.end, lane.next_offset)
        except BrokerError as error:
            # Brokers have light topics only if configured to.
            is_light = lane.queue.topic.startswith(LMQ_PREFIX)
            if not is_light or error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        lane.relies_on_order |= reader.relies_on_order
        # Records outside the range, which are out of order because a clock was set back.
        await forward(lane.next_offset or 0, lane.reached_ms)
        return True

    def _pull_count(self, lane: _Lane) -> int:
        """Return the size of a pull with which all queues together fit into memory."""
        count = MAX_MERGED_BYTES // (2 * self._reading * max(lane.record_bytes, 1))
        return min(max(count, 1), limits.MAX_PULL_MESSAGES)

    async def _wait_for_dispatch(self, address: str) -> str | None:
        """Return what a broker has not dispatched yet; asked once for all of its queues."""
        if address not in self._dispatch_tasks:
            self._dispatch_tasks[address] = asyncio.ensure_future(self._dispatch.wait(address))
        return await asyncio.shield(self._dispatch_tasks[address])

    async def _cover_unreadable(self, route: Route, broker: Broker) -> None:
        async def problems(address: str) -> list[str]:
            await self._wait_for_dispatch(address)
            return await unreadable_messages(self._cluster, address, broker.name, route, None)

        self._unreadable.append(await self._cluster.ask_broker(broker, problems))
