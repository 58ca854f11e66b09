"""Static topics of RocketMQ 5.5, remapped from one broker to another."""

import asyncio
from contextlib import ExitStack

import pytest

import rocketlens
from rocketlens import GroupState, Message, MQAdmin, Producer
from rocketlens.wire.bodies.tables import MessageQueue
from tests.peer.java_member import JavaMember
from tests.peer.rocketmq_peer import VERSIONS, registered_brokers, wait_until
from tests.peer.test_two_masters import another_broker
from tests.unit.client.consume.behaviour import PATIENCE_S, until

pytestmark = pytest.mark.slow

VERSION = VERSIONS[-1]
OLD, NEW = "broker-a", "broker-b"
COUNT = 10
"""Messages of each of the two queues, on each broker."""


def placed(messages):
    return {each.body: (each.queue_id, each.queue_offset) for each in messages}


async def send(name_server, broker_name, numbers):
    """Send to both queues of a broker; return the positions that it told."""
    told = {}
    slow = {"send_timeout_s": PATIENCE_S, "attempt_timeout_s": PATIENCE_S}
    async with Producer(name_server, **slow) as producer:
        for number in numbers:
            queue = MessageQueue("st", broker_name, number % 2)
            message = Message("st", str(number), keys=f"k{number}")
            result = await producer.send(message, queue=queue)
            told[message.body] = result.message_queue.queue_id, result.queue_offset
    return told


async def each_is_found(admin, told):
    for body, (queue_id, queue_offset) in told.items():
        by_position = await admin.find(f"st/{queue_id}/{queue_offset}")
        assert (placed(by_position.messages), by_position.complete) == (
            {body: (queue_id, queue_offset)},
            True,
        )
        by_key = await admin.find(f"k{body.decode()}", topic="st")
        assert placed(by_key.messages) == {body: (queue_id, queue_offset)}
        assert by_key.complete, by_key.coverage
        [message] = by_key.messages
        by_id = await admin.find(message.offset_msg_id)
        assert placed(by_id.messages) == {body: (queue_id, queue_offset)}


async def topic_is_read(admin, told):
    whole = await admin.find(topic="st", max_num=100)
    assert (placed(whole.messages), whole.complete) == (told, True)
    newest = await admin.find(topic="st", max_num=3)
    assert [int(each.body) for each in newest.messages] == [4 * COUNT - n for n in (3, 2, 1)]
    scan = admin.scan("st")
    assert (placed([each async for each in scan]), scan.complete) == (told, True)
    async with admin.tail("st", newest=None, follow=False) as tail:
        assert (placed([each async for each in tail]), tail.complete) == (told, True)
    [topic] = (await admin.topics("st")).topics
    assert topic.messages == 4 * COUNT


async def is_consumed(admin, text):
    """Wait until the group went on behind a message, as its story says."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            [group] = (await admin.story(text, topic="st")).groups
            if group.state is GroupState.CONSUMED:
                return


async def without_old_broker(admin, second_part):
    [body, (queue_id, queue_offset)] = next(iter(second_part.items()))
    found = await admin.find(f"st/{queue_id}/{queue_offset}")
    assert placed(found.messages) == {body: (queue_id, queue_offset)}
    for answer in [await admin.find("st/0/0"), await admin.find(topic="st", max_num=100)]:
        assert not answer.complete
        assert {each.source for each in answer.failures} == {OLD}
    assert placed(answer.messages) == second_part


def of_store(path, own, others):
    """Look up in the store of one broker what it has, and what the other broker has."""
    with rocketlens.open_store(path) as store:
        for body, there in own.items():
            answer = store.find("st/{}/{}".format(*there))
            assert (placed(answer.messages), answer.complete) == ({body: there}, True)
        assert placed(store.find(topic="st", max_num=100).messages) == own
        assert placed(store.scan("st")) == own
        for there in others.values():
            answer = store.find("st/{}/{}".format(*there))
            assert (answer.messages, answer.complete) == ((), False)


def test_the_positions_that_producers_were_told(peer, tmp_path):
    async def remap(name_server):
        static = ("-n", name_server, "-t", "st")
        peer.mqadmin(VERSION, "updateStaticTopic", *static, "-qn", "2", "-b", OLD)
        first_part = await send(name_server, OLD, range(2 * COUNT))
        peer.mqadmin(VERSION, "remappingStaticTopic", *static, "-b", NEW)
        second_part = await send(name_server, NEW, range(2 * COUNT, 4 * COUNT))
        assert min(offset for _, offset in second_part.values()) > COUNT
        return first_part, second_part

    async def ask(name_server, told):
        async with MQAdmin(name_server) as admin:
            await each_is_found(admin, told)
            await topic_is_read(admin, told)
            java = JavaMember(peer, VERSION, tmp_path / "java", name_server, "sg", "st")
            try:
                await until(lambda: len(set(java.bodies)) == len(told))
                await is_consumed(admin, f"k{4 * COUNT - 1}")
                await is_consumed(admin, "k0")
            finally:
                java.kill()

    async def ask_rest(name_server, second_part):
        async with MQAdmin(name_server) as admin:
            await without_old_broker(admin, second_part)

    with ExitStack() as running:
        first = running.enter_context(peer.start(VERSION, tmp_path / "a"))
        name_server = first.namesrv_address
        new = running.enter_context(another_broker(peer, first, tmp_path / "b", brokerName=NEW))
        first_part, second_part = asyncio.run(remap(name_server))
        asyncio.run(ask(name_server, first_part | second_part))
        of_store(tmp_path / "a" / "store", first_part, second_part)
        of_store(tmp_path / "b" / "store", second_part, first_part)
        first.broker.kill()
        wait_until(lambda: registered_brokers(first.namesrv_port) == [NEW], new, PATIENCE_S)
        asyncio.run(ask_rest(name_server, second_part))
