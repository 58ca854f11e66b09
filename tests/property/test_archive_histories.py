"""What an archive of a cluster claims, against a model that knows every message ever stored.

In each history brokers vanish, return, fall behind, are replaced by others of their name and come
back; topics are deleted and created again; clocks jump; and the archiver is killed between any two
of its steps. An answer that claims to be complete must have every message that was stored before
the archiver asked last, but for those of queues of which no message was ever seen.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rocketlens.archive.copied import (
    Copied,
    LastRecord,
    Missing,
    QueueRange,
    behind_of,
    join_ranges,
)
from rocketlens.archive.journal import next_batch
from rocketlens.archive.source import coverage_of
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.search.queue_stretch import cut
from rocketlens.errors import RemotingError, StoreError
from rocketlens.model.answer import is_complete
from rocketlens.pipeline.archive_cluster import (
    ArchivedCluster,
    ClusterOffer,
    ClusterPlanner,
    OfferedQueue,
)
from rocketlens.query.lookup.message_filter import MessageFilter
from tests.support.effort import sized

HISTORIES = sized(100, 2000)
TOPICS = ("T", "U")
QUEUES = 2
START_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


class Killed(Exception):
    """The archiver ends here."""


@dataclass(eq=False)
class Stored:
    """A message, and whether an archiver can know of its queue."""

    number: int
    topic: str
    record: LastRecord
    stored_ms: int
    queue: "Queue"


class Queue(list):
    """All messages of a queue, of which those from ``first`` on are still there."""

    first = 0
    claimed_from = 0
    """The first offset that was there when the archive began."""
    was_asked = False
    """Whether an archiver that added its batch was told that it has, or had, messages."""


@dataclass(eq=False)
class Log:
    """What a broker of some name has: it can be put aside, and come back."""

    host: str
    end: int = 0
    queues: dict = field(default_factory=dict)


@dataclass(eq=False)
class Broker:
    name: str
    log: Log
    is_registered: bool = True
    skew_ms: int = 0
    lag: int = 0
    """How many of the newest messages of each queue it does not tell of: a slave answers."""
    aside: list = field(default_factory=list)


class Model:
    """A cluster, and the archive of it."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.now_ms = START_MS
        self.brokers = [Broker(f"broker-{name}", Log(f"host-{name}:1")) for name in "abc"]
        self.topics = set(TOPICS)
        self.stored = []
        self.clock_moved = False
        self.batches = []
        self.pending = None
        """A batch that is in the journal, and whose messages are not in their table."""
        self.copied_messages = []
        self.told = []
        """Queues that the archiver was told to have messages, since its last batch."""

    # What happens in the cluster.

    def tick(self):
        self.now_ms += self.chance.choice((1, 50, 2_000, 600_000))

    def send(self):
        broker, topic = (
            self.chance.choice(self.brokers),
            self.chance.choice(sorted(self.topics) or [None]),
        )
        if topic is None:
            return
        queue_id = self.chance.randrange(QUEUES)
        for _ in range(self.chance.choice((1, 3, 10))):
            self.now_ms += 1
            queue = broker.log.queues.setdefault((topic, queue_id), Queue())
            record = LastRecord(
                len(queue), self.now_ms + broker.skew_ms, broker.log.end, broker.log.host
            )
            broker.log.end += 100
            queue.append(Stored(len(self.stored), topic, record, self.now_ms, queue))
            self.stored.append(queue[-1])

    def vanish(self):
        self.chance.choice(self.brokers).is_registered = False

    def come_back(self):
        self.chance.choice(self.brokers).is_registered = True

    def lag(self):
        self.chance.choice(self.brokers).lag = self.chance.choice((0, 0, 1, 4))

    def replace(self):
        """Another broker, or one that was put aside, has the name."""
        broker = self.chance.choice(self.brokers)
        broker.aside.append(broker.log)
        if len(broker.aside) > 1 and self.chance.random() < 0.5:
            broker.log = broker.aside.pop(0)
        else:
            broker.log = Log(self.chance.choice((broker.log.host, f"host-{self.now_ms}:1")))

    def delete_topic(self):
        topic = self.chance.choice(TOPICS)
        self.topics.discard(topic)
        for broker in self.brokers:
            for key in [each for each in broker.log.queues if each[0] == topic]:
                del broker.log.queues[key]

    def create_topic(self):
        self.topics.add(self.chance.choice(TOPICS))

    def expire(self):
        """The oldest messages of queues are deleted."""
        for queue in self.chance.choice(self.brokers).log.queues.values():
            first = self.chance.randrange(queue.first, len(queue) + 1)
            # That a queue begins where another of its name was read up to is a rare accident.
            if all(first != stop for stop in self.known_stops()):
                queue.first = first

    def known_stops(self):
        return {
            each.last.queue_offset + 1
            for batch in self.batches
            for each in batch.ranges
            if each.last is not None
        }

    def set_clock(self):
        self.clock_moved = True
        self.chance.choice(self.brokers).skew_ms = self.chance.choice(
            (0, -HOUR_MS, HOUR_MS, 99 * HOUR_MS)
        )

    def happen(self, count):
        steps = (
            *[self.send] * 6,
            *[self.tick] * 2,
            self.vanish,
            *[self.come_back] * 2,
            self.lag,
            self.replace,
            self.delete_topic,
            self.expire,
            *[self.create_topic] * 2,
            self.set_clock,
        )
        for _ in range(count):
            self.chance.choice(steps)()

    # What the archiver does.

    def asked(self):
        queues, doubts = [], []
        for broker in self.brokers:
            if not broker.is_registered:
                doubts.append(Missing(f"{broker.name} is not registered now", broker.name))
                continue
            for topic in sorted(self.topics):
                for queue_id in range(QUEUES):
                    queue = broker.log.queues.get((topic, queue_id), Queue())
                    stop = max(len(queue) - broker.lag, queue.first)
                    if stop:
                        self.told.append(queue)
                    doubt = "a slave answered" if broker.lag else None
                    name = MessageQueue(topic, broker.name, queue_id)
                    queues.append(OfferedQueue(name, queue.first, stop, doubt))
        names = {each.name for each in self.brokers if each.is_registered}
        return ClusterOffer(queues, names, doubts)

    def queue_of(self, topic, broker_name, queue_id):
        (broker,) = (each for each in self.brokers if each.name == broker_name)
        if not broker.is_registered:
            raise RemotingError(broker_name, "not registered")
        return broker.log.queues.get((topic, queue_id), Queue())

    async def record_at(self, queue, offset):
        records = self.queue_of(*queue)
        is_there = records.first <= offset < len(records)
        return records[offset].record if is_there else None

    def step(self):
        """Between two steps of an archiver it may be killed, and anything may happen."""
        if self.chance.random() < 0.08:
            raise Killed
        if self.chance.random() < 0.1:
            self.happen(self.chance.randrange(4))

    def archive_next(self, most):
        self.repair()
        copied = Copied()
        copied.add(self.batches)
        last = self.batches[-1] if self.batches else None
        self.told.clear()
        planner = ClusterPlanner(copied, last, most, self.now_ms)
        asked_ms = self.now_ms
        if not self.batches:
            for broker in self.brokers:
                for queue in broker.log.queues.values():
                    queue.claimed_from = queue.first
        asyncio.run(planner.plan(self.asked(), self.record_at))
        plan = planner.result(lambda stretches: cut(stretches, 7))
        written, ranges, short = [], list(plan.ranges), []
        for _, share in plan.shares:
            self.step()
            queue = self.queue_of(*share.queue)
            messages = queue[max(share.start, queue.first) : share.stop]
            written += messages
            if messages:
                ranges.append(self.range_of(share, messages, plan.ranges))
            if len(messages) < share.stop - share.start:
                short.append(share)
        self.step()
        asyncio.run(planner.check_same(self.record_at))
        ranges = join_ranges(ranges)
        behind = planner.behind(ranges)
        lost = list(plan.lost)
        lost += [ArchivedCluster.lost(None, plan, copied, ranges, each, "lost") for each in short]
        known = {(each.key, each.high_ms) for each in behind_of(last)}
        if not plan.ranges and known == {(each.key, each.high_ms) for each in behind}:
            return False
        batch = next_batch(
            "C",
            last,
            (plan.begin, plan.end),
            (),
            topics={each.topic for each in ranges},
            brokers=(),
            lost=lost,
            run="",
            chosen=(),
            asked_ms=asked_ms,
            queues=ranges,
            behind=behind,
        )
        self.pending = batch, written
        self.step()
        self.repair()
        return True

    @staticmethod
    def range_of(share, messages, planned):
        topic, broker, queue_id = share.queue
        generation = next(each.generation for each in planned if each.key == tuple(share.queue))
        times = [each.record.store_timestamp_ms for each in messages]
        return QueueRange(
            broker,
            topic,
            queue_id,
            generation,
            share.start,
            share.stop,
            len(messages),
            min(times),
            max(times),
            messages[-1].record,
        )

    def repair(self):
        if self.pending is not None:
            batch, written = self.pending
            self.batches.append(batch)
            self.copied_messages += written
            for queue in self.told:
                queue.was_asked = True
            self.pending = None

    def run(self):
        most = self.chance.choice((3, 10, 1000))
        try:
            for _ in range(self.chance.choice((1, 3, 50))):
                self.step()
                if not self.archive_next(most):
                    break
        except (Killed, RemotingError, StoreError):
            pass

    # What the archive answers.

    def check(self, counts):
        if not self.batches:
            return
        asked_ms = self.batches[-1].asked_ms
        copied = set(map(id, self.copied_messages))
        for _ in range(6):
            topics = self.chance.choice(((), ("T",), ("U",)))
            begin, end = None, 1 << 62
            if self.stored and self.chance.random() < 0.6:
                around = self.chance.choice(self.stored).record.store_timestamp_ms
                begin, end = (
                    around - self.chance.choice((0, HOUR_MS)),
                    around + self.chance.choice((0, 5_000, HOUR_MS)),
                )
            asked = MessageFilter(topics=frozenset(topics) or None, begin=begin, end=end)
            coverage = tuple(coverage_of(self.batches, asked, topics, -(1 << 63)))
            relies_on = any(each.relies_on for each in coverage)
            counts[is_complete(coverage), relies_on] += 1
            if not is_complete(coverage) or (relies_on and self.clock_moved):
                continue
            lacking = [
                each
                for each in self.stored
                if each.stored_ms <= asked_ms
                and (not topics or each.topic in topics)
                and (begin is None or begin <= each.record.store_timestamp_ms <= end)
                and id(each) not in copied
                and each.queue.was_asked
                and each.record.queue_offset >= each.queue.claimed_from
            ]
            assert not lacking, (topics, begin, end, lacking[0], coverage)


@pytest.mark.parametrize("part", range(10))
def test_no_answer_of_any_history_claims_what_was_not_copied(part):
    counts = Counter()
    for seed in range(part, HISTORIES, 10):
        model = Model(seed)
        for _ in range(12):
            model.happen(model.chance.randrange(6))
            model.run()
            try:
                model.check(counts)
            except AssertionError as error:
                raise AssertionError(f"history {seed}: {error}") from None
    assert counts[True, False] > HISTORIES // 4
    assert counts[False, False] + counts[False, True] > HISTORIES
