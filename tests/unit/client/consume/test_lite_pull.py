"""A lite pull consumer returns each message at least once, and commits what was polled before."""

import asyncio

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.lite_pull import LitePullConsumer
from rocketlens.errors import BadInput, WrongUse
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.unit.client.consume.consumer_broker import fill, run, until
from tests.unit.client.consume.test_push import topic_queues

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def consumer_of(name_server, **options):
    given = {"group": "g", "begin": "first"} | options
    return LitePullConsumer(name_server, **given)


async def poll_all(consumer, count):
    """Poll until so many messages came."""
    messages = []
    while len(messages) < count:
        messages += await consumer.poll(30)
    return messages


def bodies(messages):
    return sorted(int(each.body) for each in messages)


@within(run)
async def test_all_messages_are_polled_and_committed_by_closing(name_server, broker, /):
    fill(broker)
    async with consumer_of(name_server) as consumer:
        consumer.subscribe("T")
        messages = await poll_all(consumer, 40)
        for number in range(4):
            offsets = [each.queue_offset for each in messages if each.queue_id == number]
            assert offsets == list(range(10))
        assert await consumer.poll(0.01) == []
    assert bodies(messages) == list(range(40))
    assert broker.committed("g") == broker.counts()
    [data] = broker.heartbeats[0].consumer_datas or broker.heartbeats[1].consumer_datas
    assert data.consume_type.name == "CONSUME_ACTIVELY"


@pytest.mark.parametrize("knows_lite", [True, False])
@within(run)
async def test_brokers_older_than_5_are_asked_with_the_old_code(name_server, broker, /, knows_lite):
    broker.knows_lite = knows_lite
    fill(broker, 8)
    async with consumer_of(name_server) as consumer:
        consumer.subscribe("T", "*")
        await poll_all(consumer, 8)
    code = RequestCode.LITE_PULL_MESSAGE if knows_lite else RequestCode.PULL_MESSAGE
    assert (RequestCode.PULL_MESSAGE in broker.codes()) is not knows_lite
    pull = broker.headers(code)[-1]
    assert pull.sys_flag == (22 if knows_lite else 6)
    assert (pull.subscription, pull.suspend_timeout_ms) == ("*", 20_000)


@within(run)
async def test_what_was_polled_last_is_not_committed_before_the_next_poll(name_server, broker, /):
    for number in range(10):
        broker.store("T", b"%d" % number)
    consumer = consumer_of(name_server)
    consumer.subscribe("T")
    await consumer.start()
    assert len(await consumer.poll(30, max_messages=4)) == 4
    await super(LitePullConsumer, consumer).commit()
    assert broker.committed("g").get(0, 0) == 0
    assert len(await consumer.poll(30, max_messages=4)) == 4
    await super(LitePullConsumer, consumer).commit()
    assert broker.committed("g")[0] == 4
    await consumer.commit()
    assert broker.committed("g")[0] == 8
    assert await consumer.committed(QUEUES[0]) == 8
    assert await consumer.committed(QUEUES[1]) == 0
    await consumer.close()


@within(run)
async def test_a_block_that_ends_with_an_exception_leaves_its_last_poll_unconsumed(
    name_server, broker, /
):
    for number in range(10):
        broker.store("T", b"%d" % number)

    async def fail():
        async with consumer_of(name_server) as consumer:
            consumer.subscribe("T")
            await consumer.poll(30, max_messages=4)
            await consumer.poll(30, max_messages=4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert broker.committed("g")[0] == 4


def test_without_auto_commit_only_commit_commits(monkeypatch):
    monkeypatch.setattr(timing, "COMMIT_S", 0.001)

    async def scenario(name_server, broker):
        fill(broker, 8)
        async with consumer_of(name_server, auto_commit=False) as consumer:
            consumer.subscribe("T")
            await poll_all(consumer, 8)
            await consumer.poll(0.05)
        assert broker.offsets == {}
        async with consumer_of(name_server, auto_commit=False) as consumer:
            consumer.subscribe("T")
            await poll_all(consumer, 8)
            await consumer.commit()
        assert broker.committed("g") == broker.counts()

    run(scenario)


@within(run)
async def test_any_offset_that_a_queue_has_can_be_sought(name_server, broker, /):
    fill(broker)
    async with consumer_of(name_server) as consumer:
        consumer.assign(QUEUES[:1])
        await poll_all(consumer, 10)
        await consumer.seek(QUEUES[0], 7)
        assert [each.queue_offset for each in await poll_all(consumer, 3)] == [7, 8, 9]
        await consumer.seek_to_begin(QUEUES[0])
        assert len(await poll_all(consumer, 10)) == 10
        at_ms = broker.queue("T", 0)[4].store_timestamp_ms
        assert await consumer.offset_for_timestamp(QUEUES[0], at_ms) == 4
        await consumer.seek_to_timestamp(QUEUES[0], at_ms)
        assert (await poll_all(consumer, 6))[0].queue_offset == 4
        await consumer.seek_to_begin(QUEUES[0])
        await consumer.seek_to_end(QUEUES[0])
        assert await consumer.poll(0.05) == []
        for wrong in (-1, 11):
            with pytest.raises(BadInput, match="not within 0 to 10"):
                await consumer.seek(QUEUES[0], wrong)
        with pytest.raises(BadInput, match="this consumer does not have"):
            await consumer.seek(QUEUES[1], 0)


@within(run)
async def test_a_program_may_choose_its_queues_and_change_its_mind(name_server, broker, /):
    fill(broker)
    async with consumer_of(name_server) as consumer:
        consumer.assign(QUEUES[:2])
        messages = await poll_all(consumer, 20)
        assert {each.queue_id for each in messages} == {0, 1}
        consumer.assign(QUEUES[2:3])
        messages = await poll_all(consumer, 10)
        assert {each.queue_id for each in messages} == {2}
        assert consumer.assignment == (QUEUES[2],)
        with pytest.raises(WrongUse, match="not both"):
            consumer.subscribe("T")
    assert RequestCode.GET_CONSUMER_LIST_BY_GROUP not in broker.codes()


@within(run)
async def test_members_share_the_queues_of_a_subscription(name_server, broker, /):
    fill(broker)
    one = consumer_of(name_server, instance_name="1")
    two = consumer_of(name_server, instance_name="2")
    async with one, two:
        for each in (one, two):
            each.subscribe("T")
        await until(lambda: len(topic_queues(one)) == len(topic_queues(two)) == 2)
        with pytest.raises(WrongUse, match="not both"):
            one.assign(QUEUES)


@within(run)
async def test_a_paused_queue_is_neither_pulled_nor_polled(name_server, broker, /):
    fill(broker, 8)
    async with consumer_of(name_server) as consumer:
        consumer.assign(QUEUES)
        await until(lambda: len(consumer.assignment) == 4)
        consumer.pause(QUEUES[:3])
        messages = await poll_all(consumer, 2)
        assert {each.queue_id for each in messages} == {3}
        assert await consumer.poll(0.05) == []
        consumer.resume(QUEUES[:3])
        assert {each.queue_id for each in await poll_all(consumer, 6)} == {0, 1, 2}
        with pytest.raises(BadInput, match="this consumer does not have"):
            consumer.pause([MessageQueue("T", "broker-a", 9)])


@within(run)
async def test_polls_take_their_turns_over_the_queues(name_server, broker, /):
    fill(broker)
    async with consumer_of(name_server) as consumer:
        consumer.subscribe("T")
        await until(lambda: [len(each.pq) for each in consumer._owned.values()] == [10] * 4)
        polled = [await consumer.poll(30, max_messages=5) for _ in range(4)]
        assert [{each.queue_id for each in some} for some in polled] == [{0}, {1}, {2}, {3}]


@within(run)
async def test_pulling_pauses_until_messages_are_polled(name_server, broker, /):
    for number in range(200):
        broker.store("T", b"%d" % number)
    async with consumer_of(name_server, max_cached_messages_of_queue=40) as consumer:
        consumer.assign(QUEUES[:1])
        await until(lambda: consumer.assignment)
        [owned] = consumer._owned.values()
        await until(lambda: len(owned.pq) == 64)
        assert len(broker.headers(RequestCode.LITE_PULL_MESSAGE)) == 2
        assert len(await poll_all(consumer, 200)) == 200


@within(run)
async def test_a_closed_consumer_ends_a_poll_that_waits(name_server, broker, /):
    consumer = consumer_of(name_server)
    with pytest.raises(WrongUse, match="not started"):
        await consumer.poll()
    consumer.assign(QUEUES)
    await consumer.start()
    polling = asyncio.create_task(consumer.poll(30))
    await asyncio.sleep(0)
    await consumer.close()
    assert await polling == []
    with pytest.raises(WrongUse, match="closed"):
        await consumer.poll()
