"""An ordered queue is consumed by one member at a time, and in its order.

Consumers on our own broker, in this process.
"""

import asyncio
from collections import defaultdict

import pytest

from rocketlens.client.consume import timing
from rocketlens.client.consume.consume_service import ConsumeOrderlyStatus
from rocketlens.testing import cluster
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.unit.client.consume import behaviour
from tests.unit.client.consume.consumer_broker import RETRY, fill, run, until
from tests.unit.client.consume.test_push import consumer_of, topic_queues

SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Ordered:
    """Keeps the offsets of each queue in the order in which they came."""

    def __init__(self):
        self.offsets = defaultdict(list)
        self.calls = 0

    async def __call__(self, messages, _):
        self.calls += 1
        for each in messages:
            self.offsets[each.topic, each.queue_id].append(each.queue_offset)
        await asyncio.sleep(0)

    @property
    def count(self):
        return sum(map(len, self.offsets.values()))


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr(timing, "ORDERLY_PAUSES_S", (0.001, 0.001, 0.01))


@within(run)
async def test_each_queue_is_consumed_in_its_order_and_committed(name_server, broker, /):
    fill(broker, 200)
    listener = Ordered()
    async with consumer_of(name_server, listener, orderly=True, batch=3):
        await until(lambda: listener.count == 200)
    for offsets in listener.offsets.values():
        assert offsets == list(range(50))
    assert broker.committed("g") == broker.counts()
    assert broker.locks == {}


@pytest.mark.parametrize("failure", [SUSPEND, ValueError("no"), "garbage"])
@within(run)
async def test_a_queue_whose_message_fails_rests_and_goes_on_with_the_same(
    name_server, broker, /, failure, no_pauses
):
    for number in range(5):
        broker.store("T", b"%d" % number)
    seen = []

    async def listener(messages, _):
        seen.append((messages[0].queue_offset, messages[0].reconsume_times))
        if seen[-1] in {(2, 0), (2, 1)}:
            if isinstance(failure, Exception):
                raise failure
            return failure
        return None

    async with consumer_of(name_server, listener, orderly=True):
        await until(lambda: len(seen) == 7)
    assert seen == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (3, 0), (4, 0)]
    assert RequestCode.CONSUMER_SEND_MSG_BACK not in broker.codes()


@within(run)
async def test_after_so_many_times_a_message_is_sent_to_the_retry_topic(
    name_server, broker, /, no_pauses
):
    for number in range(3):
        broker.store("T", b"%d" % number)
    seen = []

    async def listener(messages, _):
        seen.append(messages[0].queue_offset)
        return SUSPEND if messages[0].body == b"1" else None

    async with consumer_of(name_server, listener, orderly=True, max_reconsume_times=2):
        await until(lambda: 2 in seen)
    [sent] = broker.headers(RequestCode.SEND_MESSAGE_V2)[:1]
    assert (sent.topic, sent.reconsume_times, sent.max_reconsume_times) == (RETRY + "g", 3, 0)
    assert broker.committed("g")[0] == 3


def test_a_queue_that_is_locked_for_another_is_not_consumed(monkeypatch):
    monkeypatch.setattr(timing, "RETRY_REBALANCE_S", 0.01)

    async def scenario(name_server, broker):
        fill(broker, 8)
        broker.lock_is_refused = True
        listener = Ordered()
        async with consumer_of(name_server, listener, orderly=True):
            await until(lambda: len(broker.headers(RequestCode.LOCK_BATCH_MQ)) >= 3)
            assert RequestCode.PULL_MESSAGE not in broker.codes()
            broker.lock_is_refused = False
            await until(lambda: listener.count == 8)

    run(scenario)


def test_a_lock_that_is_lost_stops_consumption(monkeypatch):
    monkeypatch.setattr(timing, "LOCK_S", 0.01)

    async def scenario(name_server, broker):
        listener = Ordered()
        async with consumer_of(name_server, listener, orderly=True) as consumer:
            await until(lambda: len(topic_queues(consumer)) == 4)
            broker.lock_is_refused = True
            asked = len(broker.headers(RequestCode.LOCK_BATCH_MQ))
            await until(lambda: len(broker.headers(RequestCode.LOCK_BATCH_MQ)) >= asked + 2)
            fill(broker, 4)
            owned = list(consumer._owned.values())
            await until(lambda: sum(len(each.pq) for each in owned) == 4)
            assert listener.count == 0
            broker.lock_is_refused = False
            await until(lambda: listener.count == 4)

    run(scenario)


def test_a_queue_goes_to_another_member_once_the_listener_is_done_with_it(monkeypatch):
    monkeypatch.setattr(timing, "RETRY_REBALANCE_S", 0.01)

    async def scenario(name_server, broker):
        fill(broker, 4)
        began, release = asyncio.Event(), asyncio.Event()
        running = defaultdict(int)
        together = []

        def listener_of(name):
            async def listener(messages, _):
                queue_id = messages[0].queue_id
                running[queue_id] += 1
                together.append(running[queue_id])
                began.set()
                await release.wait()
                running[queue_id] -= 1
                seen.append((name, queue_id, messages[0].queue_offset))

            return listener

        seen = []
        options = {"orderly": True}
        async with consumer_of(name_server, listener_of("1"), instance_name="1", **options) as one:
            await began.wait()
            async with consumer_of(
                name_server, listener_of("2"), instance_name="2", **options
            ) as two:
                await until(lambda: len(topic_queues(one)) == 2)
                assert topic_queues(two) == []
                release.set()
                await until(lambda: len(topic_queues(two)) == 2)
                fill(broker, 8)
                await until(lambda: len(seen) >= 12)
        assert max(together) == 1

    run(scenario)


@within(run)
async def test_offsets_that_are_reset_never_have_two_calls_for_one_queue(name_server, broker, /):
    for number in range(5):
        broker.store("T", b"%d" % number)
    running, together, seen = [], [], []
    began, release = asyncio.Event(), asyncio.Event()

    async def listener(messages, _):
        running.append(1)
        together.append(len(running))
        began.set()
        await release.wait()
        seen.append(messages[0].queue_offset)
        running.pop()

    async with consumer_of(name_server, listener, orderly=True) as consumer:
        await began.wait()
        queue = next(each for each in consumer._owned if each.queue_id == 0)
        await consumer.reset_offsets(queue.topic, {queue: 0})
        release.set()
        await until(lambda: len(seen) >= 6)
    assert max(together) == 1
    assert seen[:6] == [0, 0, 1, 2, 3, 4]


@within(run)
async def test_broadcasting_in_order_locks_nothing(name_server, broker, /, tmp_path):
    fill(broker, 8)
    listener = Ordered()
    options = {"broadcasting": True, "offsets_directory": tmp_path}
    async with consumer_of(name_server, listener, orderly=True, **options):
        await until(lambda: listener.count == 8)
    assert RequestCode.LOCK_BATCH_MQ not in broker.codes()


@pytest.fixture(scope="module")
def embedded_name_server():
    with cluster() as running:
        yield running.name_server


@pytest.mark.parametrize("scenario", behaviour.ALL, ids=lambda each: each.__name__)
def test_on_our_broker(scenario, embedded_name_server):
    asyncio.run(scenario(embedded_name_server))


def test_broadcasting_on_our_broker(embedded_name_server, tmp_path):
    asyncio.run(behaviour.broadcasting_brings_everything_to_all(embedded_name_server, tmp_path))
