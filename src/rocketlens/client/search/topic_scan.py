"""All messages of topics of a cluster, in the order of store times, or as Arrow record batches.

All queues are read side by side, in bounded memory, with nothing left at the brokers. What cannot
be read in full makes the scan incomplete, and the times of a range rely on what a search by time
relies on.

Each queue is read from its oldest message of the time range on (`QueueReader.read_in_order`), side
by side, and a record is passed on once no queue can bring an older one:

======================================  =========================================================
of a queue                              then
======================================  =========================================================
records of it wait                      no more than one pull of it is read ahead
none waits, and it is not read to its   older records of others are passed on up to the store time
end                                     that it was read to; newer ones wait
its broker fails                        a slave goes on at the same offset; the answer is incomplete
it was read to its end                  nothing waits for it
======================================  =========================================================

So memory holds two pulls of each queue, and those are smaller where there are many queues. A record
that a clock which was set back made older than those before it comes when it is read.
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
"""Bytes of all queues together that wait to be merged by store time: pulls get smaller. One message
of each queue waits in any case.
"""
_FIRST_BYTES: Final = 4096
"""What a record of a queue is taken to have before one was read."""
_LOOK_S: Final = 0.2
"""Seconds after which a caller is asked whether it still waits, if nothing comes."""


class ClusterMessages:
    """Iterates over the messages of topics. Of one event loop, iterated once.

    ``failures`` and ``coverage`` say what could be read, once the iteration has ended. Messages are
    in the order of their store times, as far as those rise in each queue.
    """

    def __init__(self, source: "ClusterSource", request: FindRequest) -> None:
        self._source: Final = source
        self._request: Final = request
        self._findings: Final = Findings(AnswerMessages(0))
        self.on_read: Callable[[int, int | None, int], bool] | None = None
        """Is called with the bytes and messages that were read, several times a second; once it
        returns False the iteration ends, with what was read until then.
        """

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read, and left out."""
        return self._findings.coverage

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for could be read, once the iteration has ended."""
        return Answer("", (), self.coverage).complete

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """What could not be read."""
        return Answer("", (), self.coverage).failures

    async def __aiter__(self) -> AsyncGenerator[MessageExt, None]:
        """Yield the messages.

        :raises TopicNotFound: if the cluster has no topic of a name, or none matches a pattern.
        :raises RemotingError: if no name server answers.
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
        """Yield the messages as record batches of bounded size, as they come; errors as iteration.

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
    """Keeps the records of one queue that were added since they were taken last."""

    def __init__(self, on_read: Callable[[int, int], None]) -> None:
        """``on_read`` is called with the bytes and the messages of each pull."""
        super().__init__(AnswerMessages(None))
        self._records: list[Record] = []
        self._on_pulled: Final = on_read

    def take(self, record: Record) -> bool:
        """Keep a record."""
        self._records.append(record)
        return True

    def add_read(self, stored_bytes: int, count: int) -> bool:
        """Report what was read."""
        self._on_pulled(stored_bytes, count)
        return True

    def drain(self) -> list[Record]:
        """Return the records, oldest first, and keep none."""
        records, self._records = self._records, []
        return sorted(records, key=order_in_time)


class _Lane:
    """One queue: what was read of it and waits."""

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
        """The lowest and the highest queue offset of the records that were passed on."""

    def not_yet_yielded(self, records: list[Record]) -> list[Record]:
        """Return those of some records that were not passed on before: a pull from within a batch
        brings all of it again. Records of a light queue have the offsets of another.
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

    def all_coverage(self, failed: set[str]) -> list[Coverage]:
        """Return the coverage of this queue. A broker that did not answer is reported for its
        first queue only: ``failed`` has the names of those that were.
        """
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
    """Reads topics once, into a stream of records. Of one event loop.

    ``findings`` gets the coverage. ``on_read`` is called while queues are read, as that of a scan
    of a store; once it returns False, what waits is passed on, and nothing more is read.
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
        self._behind: Final[dict[str, asyncio.Task[str | None]]] = {}
        self._changed: Final = asyncio.Event()
        self._lanes: Final[list[_Lane]] = []
        self._without: Final[set[_Lane]] = set()
        """The queues of which no record waits, and that are not over."""
        self._heap: Final[list[tuple[tuple[object, ...], int, _Lane]]] = []
        self._unreadable: Final[list[BrokerAnswer[list[str]]]] = []
        self._reading = 0
        """The queues that are not read to their end."""
        self._failure: BaseException | None = None
        self._read_bytes = 0
        self._read_count = 0
        self.is_interrupted = False
        """Whether the caller did not wait for all."""

    async def read(
        self, topics: Iterable[str]
    ) -> AsyncGenerator[list[tuple[Record, Origin]], None]:
        """Yield the records that match and their origins, some at a time.

        :raises RemotingError: if no name server answers.
        """
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
            while not self.is_interrupted and (self._heap or self._without):
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
        self._without.clear()
        while ready := self._ready():
            yield ready
        self._cover()

    def _cover(self) -> None:
        """Add what was read of each queue; a broker that failed is in it once."""
        failed: set[str] = set()
        for lane in self._lanes:
            self._findings.cover(tuple(lane.all_coverage(failed)))
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
        waiting: list[asyncio.Future[Any]] = [*tasks, *self._behind.values()]
        for task in waiting:
            task.cancel()
        for task in waiting:
            # Those that failed did so before: see `_note_end`.
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def _routes(self, topics: Iterable[str]) -> list[Route]:
        async def route(topic: str) -> Route | None:
            try:
                topic_route, doubts = await self._source.topology.route(topic)
            except TopicNotFound as error:
                # Deleted since the name server listed it, or never there.
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
        self._without.update(self._lanes)
        self._reading = len(self._lanes)

    # Merging.

    async def _wait(self) -> None:
        """Wait until a queue brought something, or its caller wants no more.

        :raises BaseException: the error with which a task failed.
        """
        await wait_at_most(_LOOK_S, self._changed)
        self._changed.clear()
        self._report()
        if self._failure is not None:
            raise self._failure

    def _ready(self) -> list[tuple[Record, Origin]]:
        """Return the records that no queue can bring an older one for, about a pull of them."""
        ready: list[tuple[Record, Origin]] = []
        reached_ms = min((each.reached_ms for each in self._without), default=None)
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
                self._without.add(lane)
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
        self._without.discard(lane)
        self._changed.set()

    async def _read_at(self, lane: _Lane, address: str) -> bool:
        """Read a queue from one address; return True."""
        behind = await self._wait_for_dispatch(address)
        if behind is not None and behind not in lane.damage:
            lane.damage.append(behind)
        arrivals = Arrivals(self._report)

        async def hand_on(next_offset: int, reached_ms: int) -> None:
            pulled = lane.not_yet_yielded(arrivals.drain())
            records = [to_logical(each, lane.static, lane.broker.name) for each in pulled]
            await lane.has_room.wait()
            if records:
                lane.record_bytes = sum(each.total_size for each in records) // len(records)
                lane.has_room.clear()
                lane.records.extend(records)
                heappush(self._heap, (order_in_time(records[0]), id(lane), lane))
                self._without.discard(lane)
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
            on_pull=hand_on,
            pull_count=lambda: self._pull_count(lane),
        )
        request = self._request
        try:
            await reader.read_in_order(request.begin or 0, request.end, lane.next_offset)
        except BrokerError as error:
            # A broker has no light topics unless it is told to.
            is_light = lane.queue.topic.startswith(LMQ_PREFIX)
            if not is_light or error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
        lane.relies_on_order |= reader.relies_on_order
        # What was found behind the end, or before the begin, for clocks that were set back.
        await hand_on(lane.next_offset or 0, lane.reached_ms)
        return True

    def _pull_count(self, lane: _Lane) -> int:
        """Return how many messages to pull at once, so that all queues together fit into memory."""
        count = MAX_MERGED_BYTES // (2 * self._reading * max(lane.record_bytes, 1))
        return min(max(count, 1), limits.MAX_PULL_MESSAGES)

    async def _wait_for_dispatch(self, address: str) -> str | None:
        """Return what a broker has not dispatched; it is asked once for all of its queues."""
        if address not in self._behind:
            self._behind[address] = asyncio.ensure_future(self._dispatch.wait(address))
        return await asyncio.shield(self._behind[address])

    async def _cover_unreadable(self, route: Route, broker: Broker) -> None:
        async def problems(address: str) -> list[str]:
            await self._wait_for_dispatch(address)
            return await unreadable_messages(self._cluster, address, broker.name, route, None)

        self._unreadable.append(await self._cluster.ask_broker(broker, problems))
