"""Our clients through the remoting port of a real proxy, which has one address for all brokers."""

import asyncio

import pytest

from rocketlens import LitePullConsumer, Message, MQAdmin, Producer
from rocketlens.errors import BrokerError
from rocketlens.model.rocketmq import HEARTBEAT_TOPIC, is_system_group
from tests.peer.real_proxy import VERSION, cluster_proxy
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import Collecting, push, until

COUNT = 8


@pytest.fixture(scope="module")
def proxy(peer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    with (
        peer.start(VERSION, directory / "broker") as broker,
        cluster_proxy(peer, directory / "proxy", broker.namesrv_address) as running,
    ):
        yield running


async def sent(proxy, topic):
    """Create a topic at its broker, and send numbered messages through the proxy."""
    async with (
        MQAdmin(proxy.namesrv_address) as admin,
        Producer(proxy.remoting_address, send_timeout_s=PATIENCE_S) as producer,
    ):
        await admin.create_topic(topic, 4)
        return [
            await producer.send(Message(topic, str(number), keys=f"{topic}-{number}"))
            for number in range(COUNT)
        ]


async def test_a_push_consumer_gets_every_message_and_the_proxy_knows_it(proxy):
    await sent(proxy, "Pushed")
    listener = Collecting()
    async with push(proxy.remoting_address, "Pushed", listener):
        await until(lambda: listener.numbers == set(range(COUNT)))
        async with MQAdmin(proxy.namesrv_address) as admin:
            known = await admin.examine_consumer_connection_info("g_Pushed", proxy.remoting_address)
    assert len(known.connections) == 1


async def test_a_lite_pull_consumer_gets_every_message(proxy):
    await sent(proxy, "Pulled")
    numbers = set()
    consumer = LitePullConsumer(proxy.remoting_address, group="g_pulled", begin="first")
    consumer.subscribe("Pulled")
    async with consumer, asyncio.timeout(PATIENCE_S):
        while len(numbers) < COUNT:
            numbers |= {int(each.body) for each in await consumer.poll()}


async def test_searches_that_pull_find_every_message(proxy):
    results = await sent(proxy, "Searched")
    queue, offset = results[0].message_queue, results[0].queue_offset
    async with MQAdmin(proxy.remoting_address) as admin:
        for options in ({"begin": 1}, {"grep": "[0-7]"}, {"max_num": 100}):
            found = await admin.find(topic="Searched", **options)
            assert sorted(each.body for each in found) == [b"%d" % n for n in range(COUNT)], options
        (message,) = await admin.find(f"Searched/{queue.queue_id}/{offset}")
    assert message.body == b"0"


async def test_what_a_proxy_does_not_pass_on_is_said_in_those_words(proxy):
    await sent(proxy, "Refused")
    async with MQAdmin(proxy.remoting_address) as admin:
        for ask in (admin.topics, admin.groups, admin.status):
            with pytest.raises(BrokerError, match="this is a RocketMQ proxy"):
                await ask()
        found = await admin.find("Refused-1", topic="Refused")
    assert not found.complete
    assert any("this is a RocketMQ proxy" in (each.error or "") for each in found.coverage)


async def test_members_behind_a_proxy_are_not_counted_as_none(proxy):
    await sent(proxy, "Counted")
    listener = Collecting()
    async with push(proxy.remoting_address, "Counted", listener):
        await until(lambda: listener.numbers == set(range(COUNT)))
        async with MQAdmin(proxy.namesrv_address) as admin:
            answer = await admin.groups("g_Counted")
    (group,) = answer.groups
    assert group.members is None or len(group.members) == 1
    assert group.members or any("a proxy is in use" in (e.error or "") for e in answer.coverage)


async def test_what_a_proxy_makes_for_itself_is_no_topic_and_no_group_of_users(proxy):
    await sent(proxy, "Own")
    listener = Collecting()
    async with (
        push(proxy.remoting_address, "Own", listener),
        MQAdmin(proxy.namesrv_address) as admin,
    ):
        await until(lambda: listener.numbers == set(range(COUNT)))
        groups, topics = await admin.groups(), await admin.topics()
        listed = (await admin.source.topology.topics()).value
        status = await admin.status()
    assert HEARTBEAT_TOPIC in listed
    # What its brokers were made to know of it: a group of its own, with a retry topic.
    assert any("CID_" + HEARTBEAT_TOPIC in name for name in listed)
    assert [each.name for each in groups if each.name.startswith(("CID_", "broadcast"))] == []
    kinds = {each.name: each.kind for each in topics if HEARTBEAT_TOPIC in each.name}
    assert kinds.pop(HEARTBEAT_TOPIC) == "system"
    assert set(kinds.values()) <= {"retry"}
    assert all(not is_system_group(each.name) for each in status.groups)
