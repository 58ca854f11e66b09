"""Requests that are passed on to consumers: 307 and 309."""

import asyncio
import json

import pytest

from rocketlens import limits
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.wire.bodies.clients import ConsumerStatusAnswer
from rocketlens.wire.bodies.tables import MessageQueue
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import read_body, write_body
from tests.support.broker_world import World, records_of
from tests.unit.broker.heartbeats import beat
from tests.unit.net.loopback import until

ANSWER = Response(4, {"some": "field"}, b"how it does", "a remark")


class Consumer:
    """A consumer on a connection of its own, which notes what it is asked, and answers."""

    def __init__(self, world, answer=lambda _: ANSWER):
        self.commands = []
        self.answer = answer
        handlers = dict.fromkeys(
            (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY), self.ask
        )
        handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = lambda *_: Response()
        self.pool = ClientPool(lambda _: True, handlers=handlers)
        self.world = World(world.service, self.pool, world.clock)

    def ask(self, command, _):
        self.commands.append(command)
        return self.answer(command)

    async def join(self, client_id="c1"):
        assert (await beat(self.world, client_id, "Orders")).code == 0
        return self


async def running_info(world, client_id="c1", group="readers", **more):
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": False}
    return await world.call(RequestCode.GET_CONSUMER_RUNNING_INFO, **fields, **more)


async def consume(world, msg_id, client_id="c1", **more):
    fields = {"consumerGroup": "readers", "clientId": client_id, "msgId": msg_id}
    return await world.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields, **more)


def never(_):
    return asyncio.get_running_loop().create_future()


def with_timeout(world, timeout_s):
    """Have the broker wait so long for consumers."""
    world.core.relays.answer_timeout_s = timeout_s


async def test_a_consumer_is_asked_how_it_does_and_its_answer_is_passed_back_whole(world):
    consumer = await Consumer(world).join()
    answer = await running_info(world, more="kept", AccessKey="a", Signature="b")
    assert (answer.code, answer.remark, answer.body) == (4, "a remark", b"how it does")
    assert answer.ext_fields["some"] == "field"
    (command,) = consumer.commands
    assert command.code == 307
    assert command.ext_fields == {
        "consumerGroup": "readers",
        "clientId": "c1",
        "jstackEnable": "false",
        "more": "kept",
    }
    await consumer.pool.close()


async def test_a_consumer_is_handed_the_record_as_it_is_stored(world):
    consumer = await Consumer(world).join()
    await world.send(body=b"first")
    msg_id = (await world.send(body=b"second")).ext_fields["msgId"]
    answer = await consume(world, msg_id, topic="Orders")
    assert (answer.code, answer.body) == (4, b"how it does")
    (command,) = consumer.commands
    assert command.code == 309
    (record,) = records_of(command.body)
    assert (record.body, record.topic, record.queue_offset) == (b"second", "Orders", 1)
    assert command.ext_fields["msgId"] == msg_id
    assert command.ext_fields["brokerName"] == "broker-a"
    assert command.ext_fields["topicSysFlag"] == "0"
    assert command.ext_fields["groupSysFlag"] == "0"
    await consumer.pool.close()


async def test_of_two_connections_with_one_client_id_the_newer_is_asked(world):
    old, new = await Consumer(world).join(), await Consumer(world).join()
    await running_info(world)
    assert (len(old.commands), len(new.commands)) == (0, 1)
    await new.pool.close()
    await until(lambda: len(world.core.clients.consumers["readers"].members) == 1)
    await running_info(world)
    assert len(old.commands) == 1
    await old.pool.close()


async def test_who_is_not_online_or_too_old_is_not_asked(world):
    consumer = await Consumer(world).join()
    for client_id, group in (("c2", "readers"), ("c1", "others"), ("", "readers")):
        answer = await running_info(world, client_id, group)
        assert answer.code == 1
        assert answer.remark == f"The Consumer <{group}> <{client_id}> not online"
    members = world.core.clients.consumers["readers"].members
    (channel,) = members
    members[channel] = members[channel]._replace(version=61)
    answer = await running_info(world)
    words = "The Consumer <c1> Version <V3_1_7> too low to finish, please upgrade it to "
    assert (answer.code, answer.remark) == (1, words + "V3_1_8_SNAPSHOT")
    assert consumer.commands == []
    await consumer.pool.close()


async def test_a_message_that_is_not_there_is_handed_to_nobody(world):
    consumer = await Consumer(world).join()
    msg_id = (await world.send()).ext_fields["msgId"]
    prefix = msg_id[:16]
    for wrong in (None, "", "x" * 32, msg_id[:-1], "F" * 32):
        answer = await consume(world, wrong)
        assert (answer.code, "is not an offset message id" in answer.remark) == (1, True)
    for offset in (1, 10**9):
        answer = await consume(world, f"{prefix}{offset:016X}")
        assert answer.code == 1
        assert answer.remark.startswith(f"can not find message by the offset, {offset}")
    assert consumer.commands == []
    await consumer.pool.close()


async def test_a_consumer_that_does_not_answer_is_not_waited_for_longer(world):
    with_timeout(world, 0.01)
    consumer = await Consumer(world, never).join()
    answer = await running_info(world)
    assert answer.code == 207
    assert answer.remark.startswith("consumer <readers> <c1> Timeout: ")
    await consumer.pool.close()


async def test_a_consumer_that_goes_before_it_answers_is_told_of(world):
    consumer = await Consumer(world, never).join()
    asked = asyncio.ensure_future(running_info(world))
    await until(lambda: consumer.commands)
    await consumer.pool.close()
    answer = await asked
    assert answer.code == 1
    assert answer.remark.startswith("invoke consumer <readers> <c1> Exception: ")


async def test_requests_that_wait_for_consumers_keep_nobody_from_being_served(world, monkeypatch):
    monkeypatch.setattr(limits, "MAX_RELAYS_OF_CONNECTION", 3)
    consumer = await Consumer(world, never).join()
    asked = [asyncio.ensure_future(running_info(world)) for _ in range(3)]
    await until(lambda: len(consumer.commands) == 3)
    assert world.core.network.in_flight == 0
    assert all(each.connection.unanswered == 0 for each in world.core.network.channels)
    answer = await running_info(world)
    words = "too many requests wait for clients: 3 of a connection, 1000 of all are allowed"
    assert (answer.code, answer.remark) == (2, f"{words}; try again later")
    other = await Consumer(world).join("c2")
    assert (await running_info(other.world, "c2")).code == 4
    await consumer.pool.close()
    assert {(await each).code for each in asked} == {1}
    assert world.core.network.in_flight == 0
    await running_info(world, "c2")
    await other.pool.close()


async def test_the_answer_to_a_tool_that_is_gone_is_dropped(world):
    answers = []

    def later(_):
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    consumer = await Consumer(world, later).join()
    tool = Consumer(world)
    asked = asyncio.ensure_future(running_info(tool.world))
    await until(lambda: answers)
    channels = len(world.core.network.channels)
    await tool.pool.close()
    await asyncio.wait([asked])
    await until(lambda: len(world.core.network.channels) < channels)
    answers[0].set_result(ANSWER)
    assert (
        await world.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="readers")
    ).body == json.dumps({"consumerIdList": ["c1"]}, separators=(",", ":")).encode()
    assert world.core.network.in_flight == 0
    await consumer.pool.close()


QUEUE = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)


def came(offset):
    return lambda _: Response(body=write_body(ConsumerStatusAnswer(queue_table={QUEUE: offset})))


class Member:
    """A consumer on a connection of its own, which answers how far it came."""

    def __init__(self, world, answer):
        self.commands = []
        self.answer = answer
        handlers = {
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.ask,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: lambda *_: Response(),
        }
        self.pool = ClientPool(lambda _: True, handlers=handlers)
        self.world = World(world.service, self.pool, world.clock)

    def ask(self, command, _):
        self.commands.append(command.ext_fields)
        return self.answer(command)

    async def join(self, client_id):
        assert (await beat(self.world, client_id, "Orders")).code == 0
        return self


async def status(world, **fields):
    named = {"topic": "Orders", "group": "readers"} | fields
    return await world.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, **named)


def table_of(answer):
    assert answer.code == 0, answer.remark
    return read_body(ConsumerStatusAnswer, answer.body).consumer_table


async def test_all_members_are_asked_or_the_one_that_is_named(world):
    first = await Member(world, came(7)).join("c1")
    second = await Member(world, came(9)).join("c2")
    assert table_of(await status(world)) == {"c1": {QUEUE: 7}, "c2": {QUEUE: 9}}
    assert first.commands == [{"topic": "Orders", "group": "readers"}]
    assert table_of(await status(world, clientAddr="c2")) == {"c2": {QUEUE: 9}}
    assert table_of(await status(world, clientAddr="c3")) == {}
    assert (len(first.commands), len(second.commands)) == (1, 2)
    for each in (first, second):
        await each.pool.close()


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: Response(1, remark="no"),
        lambda _: Response(),
        lambda _: Response(body=b"garbage"),
        lambda _: Response(body=b'{"messageQueueTable":{"x":1}}'),
        never,
    ],
)
async def test_a_member_without_a_usable_answer_is_left_out(world, answer):
    world.core.relays.answer_timeout_s = 0.2
    consumers = [await Member(world, answer).join("c1")]
    consumers.append(await Member(world, came(9)).join("c2"))
    assert table_of(await status(world)) == {"c2": {QUEUE: 9}}
    for each in consumers:
        await each.pool.close()


async def test_without_members_the_answer_is_rocketmqs(world):
    answer = await status(world)
    words = "No Any Consumer online in the consumer group: [readers]"
    assert (answer.code, answer.remark) == (1, words)


async def test_what_is_collected_at_the_same_time_is_bounded(world, monkeypatch):
    monkeypatch.setattr(limits, "MAX_RELAYS_OF_CONNECTION", 1)
    waiting = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    async def late(_):
        asked.set()
        return await waiting

    consumer = await Member(world, late).join("c1")
    first = asyncio.create_task(status(world))
    await asked.wait()
    assert (await status(world)).code == 2
    waiting.set_result(came(1)(None))
    assert table_of(await first) == {"c1": {QUEUE: 1}}
    await consumer.pool.close()
