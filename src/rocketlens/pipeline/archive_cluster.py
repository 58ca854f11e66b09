"""A running cluster as a source of an archive: queue by queue, by pull.

====================================  ============================================================
event                                 effect
====================================  ============================================================
a topic gets queues or brokers        they are archived from their first stored message on
a remembered broker is not            its queues keep their offsets; the batch says that it may
registered, or does not answer        have more
a slave answers for its master        likewise
a queue is shorter than its copied    it is another generation, archived from its start; the batch
part, or has another record at its    says what was lost after that record. If the former queue
last copied offset                    comes back, its archiving continues
a queue or a topic is gone            the batch says what was lost after its last record
====================================  ============================================================
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.archive.copied import (
    Copied,
    LastRecord,
    Missing,
    Queue,
    QueueRange,
    behind_of,
    lost_between,
)
from rocketlens.archive.journal import ArchivedBatch
from rocketlens.bulk.messages import INT64
from rocketlens.bulk.options import TopicSelection, known_options, number_option
from rocketlens.client.connect.broker_history import SeenBrokers
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import Broker, MessageQueue, Route
from rocketlens.client.connect.topology import NAME_SERVERS, Topology
from rocketlens.client.search.queue_offsets import unreadable_of_topic
from rocketlens.client.search.queue_stretch import QueueStretch, StretchReader
from rocketlens.errors import BadInput, RecordError, RemotingError, StoreError, TopicNotFound
from rocketlens.formats.commitlog_record import decode
from rocketlens.model.answer import Coverage
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from rocketlens.model.text.counted import counted
from rocketlens.model.text.nearest import suggestion
from rocketlens.pipeline.archive import DEFAULT_CLUSTER, Plan, now_ms
from rocketlens.pipeline.cluster_scan import ClusterScan
from rocketlens.pipeline.cluster_stream import to_json
from rocketlens.query.topic_choice import matching_topics, unknown_topic

RecordAt = Callable[[MessageQueue, int], Awaitable[LastRecord | None]]
"""Returns the record at an offset of a queue; None if none can be read there."""


class OfferedQueue(NamedTuple):
    """The part of a queue that a broker has: offsets ``first`` to ``stop - 1``.

    ``doubt`` is a line on why it may have more.
    """

    queue: MessageQueue
    first: int
    stop: int
    doubt: str | None = None


class ClusterOffer(NamedTuple):
    """The queues and brokers of a cluster, and ``doubts``: further messages that it may have."""

    queues: Sequence[OfferedQueue]
    brokers: Collection[str]
    doubts: Sequence[Missing] = ()


class ArchivedCluster:
    """Topics of a running cluster as a source of an archive."""

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        cluster: str = DEFAULT_CLUSTER,
        seen_brokers: Path | None = None,
        forgotten: Collection[str] = (),
    ) -> None:
        """Check the options, which are those of the source ``rocketmq`` for streams of clusters.

        ``seen_brokers``: the file in which this user's commands remember brokers. ``forgotten``:
        brokers that are gone for good.

        :raises BadInput: if an option is not valid.
        """
        checked = known_options({**options, "failOnDataLoss": "false"}, "cluster streams")
        self._most: Final = number_option(
            checked, "maxOffsetsPerTrigger", limits.MAX_TRIGGER_OFFSETS
        )
        self.scan: Final = ClusterScan(checked, is_stream=True)
        self.scan.with_text = False
        self._seen_brokers: Final = seen_brokers
        self._forgotten: Final = frozenset(forgotten)
        self.cluster = cluster
        self.chosen = self.scan.topics.names.union(self.scan.topics.patterns)
        self.name = cluster

    def plan(self, copied: Copied, last: ArchivedBatch | None) -> Plan:
        """Ask the cluster for its queues, and return the next batch.

        :raises TopicNotFound: if the cluster lacks a requested topic.
        :raises RemotingError: if no name server answers.
        """
        self._planner = ClusterPlanner(copied, last, self._most, now_ms(), self._forgotten)
        self._run(self._ask)
        return self._planner.result(self.scan.cut)

    def _run(self, work: Callable[[ClusterCalls], Coroutine[Any, Any, None]]) -> None:
        with self.scan.address.connect() as (thread, calls):
            thread.run(work(calls))

    async def _ask(self, calls: ClusterCalls) -> None:
        seen, planner = None, self._planner
        if self._seen_brokers is not None:
            seen = SeenBrokers(self._seen_brokers, calls.name_servers)
            planner.forgotten |= seen.names(forgotten=True)
        asking = _ClusterQueries(calls, Topology(calls, seen, time.monotonic))
        asked = await asking.all(self.scan.topics, {topic for topic, *_ in planner.copied.queues})
        known = {broker for _, broker, _ in planner.copied.queues}.union(asked.brokers)
        for each in sorted(self._forgotten - known - (seen.names() if seen else set())):
            raise BadInput(
                f"--forget-broker {each[:80]}: neither this archive nor the cluster has such a "
                f"broker{suggestion(each, known)}"
            )
        await planner.plan(asked, asking.record_at)

    def check_same(self) -> None:
        """Check that queues were not created again while they were read.

        :raises StoreError: if one was.
        :raises RemotingError: if a broker no longer answers.
        """

        async def check(calls: ClusterCalls) -> None:
            asking = _ClusterQueries(calls, Topology(calls, None, time.monotonic))
            await asking.find_brokers(topic for topic, *_ in self._planner.anchors)
            await self._planner.check_same(asking.record_at)

        if self._planner.anchors:
            self._run(check)

    def lost(
        self, plan: Plan, copied: Copied, ranges: Sequence[QueueRange], share: Any, what: str
    ) -> Missing:
        """Return a loss of a stretch of a queue."""
        topic, broker, queue_id = share.queue
        of_queue = [each for each in ranges if each.key == (topic, broker, queue_id)]
        before = copied.queues.get((topic, broker, queue_id), {}).get(of_queue[0].generation)
        before_ms = (
            None if before is None or before.last is None else before.last.store_timestamp_ms
        )
        is_end_copied = all(
            each.last is not None and each.last.queue_offset == each.stop - 1 for each in of_queue
        )
        missing = lost_between(
            what, before_ms, of_queue, plan.asked_ms, is_end_copied=is_end_copied
        )
        return missing._replace(broker=broker, topic=topic)

    def behind(self, _plan: Plan, ranges: Sequence[QueueRange]) -> Sequence[Missing]:
        """Return what else the cluster has, after ``ranges`` were written."""
        return self._planner.behind(ranges)


class ClusterPlanner:
    """Plans the next range of each queue, and collects what else a cluster is known to have.

    The last copied record identifies a queue. ``most``: offsets of a batch.
    """

    def __init__(
        self,
        copied: Copied,
        last: ArchivedBatch | None,
        most: int,
        asked_ms: int,
        forgotten: Collection[str] = (),
    ) -> None:
        self.copied: Final = copied
        self.forgotten = frozenset(forgotten)
        self._last: Final = last
        self._most: Final = most
        self._asked_ms: Final = asked_ms
        self._before: Final = {each.key: each for each in behind_of(last)}
        self._begins: Final[dict[Queue, int]] = {
            key: copied.queues[key][number].stop for key, number in copied.current.items()
        }
        self._stops: Final[dict[Queue, int]] = {}
        self._ranges: Final[list[QueueRange]] = []
        self._lost: Final[list[Missing]] = []
        self.anchors: Final[dict[Queue, LastRecord]] = {}
        """A record at or before the start of each range, read when the range was planned."""
        self._behind: Final[dict[tuple[str, str, str], Missing]] = {}

    async def plan(self, asked: ClusterOffer, record_at: RecordAt) -> None:
        """Plan the next batch. If ``record_at`` raises RemotingError, the queue waits."""
        found = await asyncio.gather(*(self._generation(each, record_at) for each in asked.queues))
        begins: dict[Queue, tuple[int, int]] = {}
        for each, generation in zip(asked.queues, found, strict=True):
            key: Queue = each.queue
            if isinstance(generation, RemotingError):
                self._doubt(Missing(str(generation), key[1]))
                continue
            known = self.copied.queues.get(key, {}).get(generation)
            begins[key] = generation, each.first if known is None else known.stop
            if known is None and self._last is not None and each.first:
                self._note_expired(each)
            self._stops[key] = max(each.stop, begins[key][1])
            if each.doubt is not None:
                self._doubt(Missing(f"{key[1]}: {each.doubt}", key[1], part="slave"))
        total = sum(self._stops[key] - begin for key, (_, begin) in begins.items())
        for key, (generation, begin) in begins.items():
            count = self._stops[key] - begin
            if total > self._most:
                count = min(count, max(count * self._most // total, 1))
            self._begins[key] = begin
            if count or self.copied.current.get(key) != generation:
                topic, broker, queue_id = key
                self._ranges.append(
                    QueueRange(broker, topic, queue_id, generation, begin, begin + count)
                )
        for doubt in asked.doubts:
            self._doubt(doubt)
        self._note_gone(asked, {key: generation for key, (generation, _) in begins.items()})
        await asyncio.gather(*(self._anchor(each, record_at) for each in self._ranges))

    async def _anchor(self, planned: QueueRange, record_at: RecordAt) -> None:
        known = self.copied.queues.get(planned.key, {}).get(planned.generation)
        anchor = None if known is None else known.last
        if anchor is None and planned.start < planned.stop:
            anchor = await record_at(MessageQueue(*planned.key), planned.start)
        if anchor is not None and planned.start < planned.stop:
            self.anchors[planned.key] = anchor

    async def check_same(self, record_at: RecordAt) -> None:
        """Check that each queue still has the record that it had when it was planned.

        :raises StoreError: if a queue has another one: two generations of it were read.
        """

        async def check(key: Queue, anchor: LastRecord) -> None:
            record = await record_at(MessageQueue(*key), anchor.queue_offset)
            if record not in (None, anchor):
                topic, broker, queue_id = key
                raise StoreError(
                    f"queue {queue_id} of topic {topic} on {broker} was created again while it was "
                    "read: nothing of this batch was added. Run the job again"
                )

        await asyncio.gather(*(check(*each) for each in self.anchors.items()))

    async def _generation(self, asked: OfferedQueue, record_at: RecordAt) -> int | RemotingError:
        """Return the current generation of a queue; an error if the broker does not answer."""
        key = asked.queue
        generations = self.copied.queues.get(key)
        if generations is None:
            return 0
        current = self.copied.current[key]
        if asked.doubt is not None and asked.stop < generations[current].stop:
            return current
        try:
            for number in sorted(generations, key=lambda each: (each != current, -each)):
                known, is_same = generations[number], number == current
                if asked.stop < known.stop:
                    continue
                if known.last is None:
                    if is_same and asked.first >= known.start:
                        return number
                    continue
                record = await record_at(asked.queue, known.last.queue_offset)
                if record == known.last or (record is None and is_same):
                    return number
        except RemotingError as error:
            return error
        return max(generations) + 1

    def _note_expired(self, asked: OfferedQueue) -> None:
        """Add the messages of a new queue that expired before it was found."""
        topic, broker, queue_id = asked.queue
        what = (
            f"offsets 0 to {asked.first - 1} of queue {queue_id} of topic {topic} on {broker} were "
            "deleted before the queue was read first"
        )
        self._lost.append(Missing(what, broker, topic, high_ms=self._asked_ms))

    def _doubt(self, doubt: Missing) -> None:
        """Add messages that the cluster may have in addition, unless they are known."""
        if doubt.key in self._behind:
            return
        if doubt.broker and not doubt.topic:
            doubt = doubt._replace(low_ms=self._low_ms(doubt.broker))
        self._behind[doubt.key] = doubt

    def _low_ms(self, broker: str) -> int | None:
        """Return the earliest store time of a broker's unarchived messages; None if unknown.

        It holds if the broker's clock was not set back.
        """
        newest_ms = self.copied.newest_ms(broker)
        known = [newest_ms, None if self._last is None else self._last.asked_ms]
        is_open = [
            each.low_ms
            for each in self._before.values()
            if each.broker in ("", broker) and each.high_ms is None
        ]
        lows = [each for each in (*known, *is_open) if each is not None]
        return None if None in is_open or newest_ms is None else min(lows)

    def _note_gone(self, asked: ClusterOffer, found: Mapping[Queue, int]) -> None:
        """Add the losses of brokers, queues and generations that no longer exist."""
        gone = {broker for _, broker, _ in self.copied.queues}.difference(asked.brokers)
        for broker in sorted(gone):
            before = self._before.get((broker, "", "gone"))
            if broker in self.forgotten or before is not None:
                what = f"{broker} is gone for good: what it stored last was not archived"
                self._behind.pop((broker, "", ""), None)
                self._close(Missing(what, broker, part="gone"), self._low_ms(broker))
            else:
                self._doubt(
                    Missing(
                        f"{broker} is not registered now, and can have more (if it is gone for "
                        f"good: rocketlens archive run --forget-broker {broker})",
                        broker,
                    )
                )
        doubted = {broker for broker, topic, _ in self._behind if not topic}
        for key, generations in self.copied.queues.items():
            topic, broker, queue_id = key
            now = found.get(key)
            is_unknown = now is None and (broker in gone or not doubted.isdisjoint(("", broker)))
            for number, known in generations.items():
                what = (
                    f"queue {queue_id} of topic {topic} on {broker} is gone, or was created again: "
                    f"what it had from offset {known.stop} on was lost"
                )
                missing = Missing(what, broker, topic, f"{queue_id}/{number}")
                # Earlier losses remain, even if their broker does not answer now.
                if number != now and (not is_unknown or missing.key in self._before):
                    last = known.last
                    self._close(missing, last.store_timestamp_ms if last else self._low_ms(broker))

    def _close(self, missing: Missing, low_ms: int | None) -> None:
        """Add a loss: the earlier one of the same key, or one between the last batch and now."""
        before = self._before.get(missing.key)
        if before is None or before.high_ms is None:
            asked_ms = self._last.asked_ms if self._last is not None else 0
            low_ms = None if low_ms is None else min(low_ms, asked_ms or low_ms)
            before = missing._replace(low_ms=low_ms, high_ms=self._asked_ms)
        self._behind[missing.key] = before

    def result(self, cut: "Callable[[Iterable[QueueStretch]], list[QueueStretch]]") -> Plan:
        """Return the plan; ``cut`` splits stretches into shares."""
        end = {**self._begins, **{each.key: each.stop for each in self._ranges}}
        shares = cut(
            QueueStretch(MessageQueue(*each.key), each.start, each.stop) for each in self._ranges
        )
        return Plan(
            to_json({MessageQueue(*key): offset for key, offset in self._begins.items()}),
            to_json({MessageQueue(*key): offset for key, offset in end.items()}),
            self._asked_ms,
            [(each.queue.broker_name, each) for each in shares],
            self._ranges,
            self._lost,
        )

    def behind(self, ranges: Sequence[QueueRange]) -> list[Missing]:
        """Return what else the cluster has, after ``ranges`` were written."""
        written = {each.key: each for each in ranges}
        left: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
        for key, stop in self._stops.items():
            known = written.get(key)
            if known is None or known.stop >= stop:
                continue
            before = self.copied.queues.get(key, {}).get(known.generation)
            last = known.last or (before and before.last)
            low_ms = None if last is None else min(last.store_timestamp_ms, self._asked_ms)
            left.setdefault((key[1], key[0]), []).append((stop - known.stop, low_ms))
        for (broker, topic), counts in left.items():
            count = counted(sum(number for number, _ in counts), "message")
            lows = [low_ms for _, low_ms in counts if low_ms is not None]
            what = f"{count} of topic {topic} on {broker} are not archived yet: run the job again"
            low_ms = min(lows) if len(lows) == len(counts) else None
            self._behind[broker, topic, ""] = Missing(what, broker, topic, low_ms=low_ms)
        return [self._behind[key] for key in sorted(self._behind)]


class _ClusterQueries:
    """Asks a cluster for the ranges of its queues. For one event loop."""

    def __init__(self, cluster: ClusterCalls, topology: Topology) -> None:
        self._cluster: Final = cluster
        self._topology: Final = topology
        self._reader: Final = StretchReader(cluster)
        self._brokers: Final[dict[MessageQueue, Broker]] = {}
        self._doubts: Final[list[Missing]] = []

    async def all(self, selection: TopicSelection, known: Collection[str]) -> ClusterOffer:
        """Return the ranges of the queues of topics. ``known``: topics that were archived before.

        :raises TopicNotFound: if a topic does not exist and never did.
        :raises RemotingError: if no name server answers.
        """
        brokers = await self._topology.brokers()
        self._note(brokers.coverage)
        listed = await self._topology.topics()
        self._note(listed.coverage)
        topics, unknown = matching_topics((*selection.names, *selection.patterns), listed.value)
        for name, error in unknown.items():
            if not self._doubts and not any(fnmatchcase(topic, name) for topic in known):
                raise error
        requests = []
        for topic in topics:
            route = await self._route(topic, known, listed.value)
            if route is None:
                continue
            requests += [self._stored(route, queue) for queue in route.read_queues]
            await self._note_unreadable(route)
        queues = await asyncio.gather(*requests)
        self._note(await self._topology.recheck_missing_brokers())
        return ClusterOffer(
            [each for each in queues if each is not None], brokers.value, self._doubts
        )

    async def _route(
        self, topic: str, known: Collection[str], listed: Collection[str]
    ) -> Route | None:
        try:
            answer = await self._topology.route(topic)
        except TopicNotFound:
            if topic in known or topic in listed or self._doubts:
                return None
            raise unknown_topic(topic, listed, "this cluster") from None
        self._note(answer.coverage)
        return answer.value

    async def _stored(self, route: Route, queue: MessageQueue) -> OfferedQueue | None:
        broker = route.brokers.get(queue.broker_name)
        if broker is None:
            return None
        self._brokers[queue] = broker
        try:
            stretch, doubt = await self._reader.stored(broker, queue, *INT64)
        except RemotingError as error:
            self._doubts.append(Missing(f"{broker.name}: {error}", broker.name))
            return None
        return OfferedQueue(queue, stretch.start, stretch.stop, doubt)

    async def find_brokers(self, topics: Iterable[str]) -> None:
        """Find the brokers of the queues of topics, for `record_at`."""
        for topic in set(topics):
            with suppress(TopicNotFound):
                route = (await self._topology.route(topic)).value
                for queue in route.read_queues:
                    self._brokers[queue] = route.brokers[queue.broker_name]

    async def _note_unreadable(self, route: Route) -> None:
        problems = await unreadable_of_topic(self._cluster, route)
        for number, (name, problem) in enumerate(problems):
            what = f"topic {route.topic} on {name}: {problem}"
            self._doubts.append(Missing(what, name, route.topic, f"unread/{number}"))

    def _note(self, coverage: Iterable[Coverage]) -> None:
        for each in coverage:
            if each.is_failure:
                broker = "" if each.source == NAME_SERVERS else each.source
                if each.source.startswith("name server "):
                    broker = ""
                what = f"{each.source}: {each.error}"
                part = each.source if not broker else ""
                self._doubts.append(Missing(what, broker, part=part))

    async def record_at(self, queue: MessageQueue, offset: int) -> LastRecord | None:
        """Return the record at an offset of a queue; None if none can be read there.

        :raises RemotingError: if its broker does not answer.
        """
        stretch = QueueStretch(queue, offset, offset + 1)
        broker = self._brokers.get(queue)
        if broker is None:
            raise RemotingError(queue.broker_name, "not registered now")
        chunk = await self._reader.read(broker, stretch)
        with suppress(RecordError, IndexError):
            record = decode(chunk.bodies[0], 0, check_crc=False)
            # A batch is one record for the offsets of all its messages.
            if record.queue_offset == offset or record.sys_flag & SYS_FLAG_INNER_BATCH:
                return LastRecord(
                    offset,
                    record.store_timestamp_ms,
                    record.physical_offset,
                    str(record.store_host),
                )
        return None
