"""No piece of work on the event loop takes long, however much there is of everything."""

import asyncio
import time

import pytest

from rocketlens.broker.life import registration
from rocketlens.broker.requests.send import MAX_BATCH_MEMBERS
from rocketlens.broker.tables.name_servers import NameServerState
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.formats import batch_body
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.wire.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.broker_world import properties_of, running, send_fields
from tests.support.patience import PATIENCE_S
from tests.unit.broker.loop_watch import watched_loops

MANY = 5000
"""Topics, groups, and queues of one topic."""
EMPTY = batch_body.BatchMember(0, b"", b"")


ATTEMPTS = 5


def watched(directory, test, **changes):
    """Run ``await test(world, watch)`` with a broker; only what runs in it is watched.

    A piece of work that takes long does so each time. Once is no proof: a machine that runs out of
    memory frees some in the thread that needs it, and other processes empty its caches.
    """

    async def main(attempt):
        async with running(directory / attempt, **changes) as world:
            with watched_loops() as watch:
                await test(world, watch)
                assert watch.count > 0
            return watch

    each_time = None
    for number in range(ATTEMPTS):
        watch = asyncio.run(main(str(number)))
        works = {held.work for held in watch.too_long}
        each_time = works if each_time is None else each_time & works
        if not each_time:
            return
    watch.check()


async def ask(world, code, body=b"", **fields):
    answer = await world.call(code, body, **fields)
    assert answer.code == 0, answer.remark
    return answer


def add_topics(core, count=MANY, queue_count=1):
    core.topics.table.put(
        *(StoredTopic(f"Topic{number:05}", queue_count, queue_count) for number in range(count))
    )


def add_offsets(core):
    for queue_id in range(MANY):
        core.offsets.put("group00000", "Wide", queue_id, 1)
    for number in range(20_000):
        core.offsets.put(f"group{number % 100:05}", f"Topic{number:05}", 0, 1)


def add_groups(core, count=MANY):
    for number in range(count):
        core.groups.table.put(f"group{number:05}")


def test_the_watch_names_the_work_that_took_too_long():
    def busy():
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass

    async def main():
        asyncio.get_running_loop().call_soon(busy)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with watched_loops() as watch:
        asyncio.run(main())
    assert [held.work.rpartition(".")[2] for held in watch.too_long] == ["busy"]
    assert "busy" in str(watch.longest)
    with pytest.raises(AssertionError, match=r"ms: .*busy"):
        watch.check()


@within(watched, "tmp_path")
async def test_with_many_topics_name_servers_are_told_and_tools_answered(world, watch, /):
    name_server = NameServer(NameServerConfig(listenPort=0))
    address = str(name_server.start())
    try:
        core = world.core
        core.name_servers.states[address] = NameServerState()
        registrar = registration.Registrar(core)
        await registrar.start()
        await asyncio.to_thread(add_topics, core)  # not the broker's own work
        for number in range(2):
            core.topics.put(StoredTopic(f"New{number}", 1, 1))
            await asyncio.shield(core.topics.pending[f"New{number}"])
        await registrar.register()
        assert name_server.routes.topic_count > MANY
        await ask(world, RequestCode.GET_ALL_TOPIC_CONFIG)
        await core.saver.save(core.topics.table)
        await registrar.stop()
    finally:
        await name_server.stop()


@within(watched, "tmp_path")
async def test_with_many_groups_heartbeats_and_tools_are_answered(world, watch, /):
    await asyncio.to_thread(add_groups, world.core)
    consumers = [ConsumerData(group_name=f"consumer{n:03}") for n in range(500)]
    producers = [ProducerData(group_name=f"producer{n:03}") for n in range(500)]
    body = HeartbeatData(
        client_id="me", consumer_datas=tuple(consumers), producer_datas=tuple(producers)
    )
    for _ in range(2):
        await ask(world, RequestCode.HEART_BEAT, write_body(body))
    assert len(world.core.clients.consumers) == 500
    await ask(world, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    await ask(world, RequestCode.GET_ALL_PRODUCER_INFO)
    await world.core.saver.save(world.core.groups.table)


@pytest.mark.parametrize("queue_count", [MANY, pytest.param(65_536, marks=pytest.mark.slow)])
@within(watched, "tmp_path")
async def test_with_many_queues_and_offsets_statistics_are_answered(world, watch, /, queue_count):
    core = world.core
    core.topics.table.put(StoredTopic("Wide", queue_count, queue_count))
    await asyncio.to_thread(add_groups, core, 100)
    await asyncio.to_thread(add_offsets, core)
    await world.send(topic="Wide")
    await ask(world, RequestCode.GET_TOPIC_STATS_INFO, topic="Wide")
    await ask(world, RequestCode.GET_CONSUME_STATS, consumerGroup="group00000", topic="Wide")
    await ask(world, RequestCode.GET_CONSUME_STATS, consumerGroup="group00000")
    await ask(world, RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    await ask(world, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="Wide")
    await core.saver.save(core.offsets)
    await ask(world, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Wide")


@within(watched, "tmp_path", mappedFileSizeConsumeQueue=60000)
async def test_many_delayed_messages_that_are_due_are_delivered_in_small_steps(world, watch, /):
    for number in range(1500):
        body, level = b"%d" % number, 1 + number % 3
        await world.send(body=body, e=1, properties=properties_of(DELAY=level))
    world.clock.now_ms += 20_000
    async with asyncio.timeout(PATIENCE_S):
        while world.core.store.queues.max_offset("Orders", 1) < 1500:  # noqa: ASYNC110
            await asyncio.sleep(0)


@within(watched, "tmp_path", mappedFileSizeConsumeQueue=600000)
async def test_hot_keys_tags_and_pulls_of_a_long_queue_are_answered(world, watch, /):
    for _ in range(200):
        sent = [(b"%d" % each, properties_of(KEYS="hot", TAGS="a")) for each in range(100)]
        await world.send_batch(sent, e=0)
    world.clock.now_ms += 1
    for changes in ({}, {"endTimestamp": world.clock.now_ms + 1}, {"endTimestamp": 1}):
        for key in ("hot", "absent"):
            await world.query(key, **changes)
            await world.query(key, indexType="T", **changes)
    await world.query("a", indexType="T")
    await world.pull(subscription="absent")
    asked = {"topic": "Orders", "queueId": 0, "index": 0, "count": 100_000}
    await ask(world, RequestCode.QUERY_CONSUME_QUEUE, **asked)


@pytest.mark.parametrize("most", [4000, pytest.param(65_536, marks=pytest.mark.slow)])
def test_batches_of_very_many_members_are_stored_or_refused_in_small_steps(
    tmp_path, monkeypatch, most
):
    assert MAX_BATCH_MEMBERS == 65_536
    monkeypatch.setattr("rocketlens.broker.requests.send.MAX_BATCH_MEMBERS", most)

    async def test(world, watch):
        body = await asyncio.to_thread(lambda: batch_body.encode([EMPTY] * (most + 1)))
        fields = send_fields("Orders", "WAIT\x01true\x02") | {"m": True}
        answer = await world.call(RequestCode.SEND_BATCH_MESSAGE, body, **fields)
        assert (answer.code, "send it in parts" in answer.remark) == (13, True)
        fits = body[batch_body.MIN_MEMBER_BYTES :]
        await ask(world, RequestCode.SEND_BATCH_MESSAGE, fits, **fields)
        assert world.core.store.queues.max_offset("Orders", 0) == most

    watched(tmp_path, test, mappedFileSizeCommitLog=1 << 24, mappedFileSizeConsumeQueue=6_000_000)


@within(watched, "tmp_path")
async def test_very_long_keys_topics_and_subscriptions_are_answered(world, watch, /):
    await world.send(properties=properties_of(KEYS="k", TAGS="a"))
    long = "a||" * 120_000
    for fields in ({"indexType": "T"}, {"_UNIQUE_KEY_QUERY": True}, {}):
        assert (await world.query(long, **fields)).code == ResponseCode.QUERY_NOT_FOUND
        answer = await world.query("k", topic=long, **fields)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    answer = await world.pull(subscription=long)
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark == "the consumer's subscription is longer than 32767 characters"
    assert (await world.pull(subscription="a||b" + " " * 1000)).code == 0
