"""How far the members of a group came (223)."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.broker.requests.consumer_status import ConsumerStatusProcessor
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.wire.bodies.clients import ConsumerStatusAnswer
from rocketlens.wire.bodies.tables import MessageQueue
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import read_body, write_body
from tests.support.async_tests import within
from tests.support.broker_world import World, in_broker
from tests.unit.broker.heartbeats import beat

QUEUE = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)


def came(offset):
    return lambda _: Response(body=write_body(ConsumerStatusAnswer(queue_table={QUEUE: offset})))


class Consumer:
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


def never(_):
    return asyncio.get_running_loop().create_future()


@within(in_broker, "tmp_path")
async def test_all_members_are_asked_or_the_one_that_is_named(world, /):
    first = await Consumer(world, came(7)).join("c1")
    second = await Consumer(world, came(9)).join("c2")
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
@within(in_broker, "tmp_path")
async def test_a_member_without_a_usable_answer_is_left_out(world, /, answer):
    world.service._handlers.update(ConsumerStatusProcessor(world.core, 0.2).handlers())
    consumers = [await Consumer(world, answer).join("c1")]
    consumers.append(await Consumer(world, came(9)).join("c2"))
    assert table_of(await status(world)) == {"c2": {QUEUE: 9}}
    for each in consumers:
        await each.pool.close()


@within(in_broker, "tmp_path")
async def test_without_members_the_answer_is_rocketmqs(world, /):
    answer = await status(world)
    words = "No Any Consumer online in the consumer group: [readers]"
    assert (answer.code, answer.remark) == (1, words)


@within(in_broker, "tmp_path")
async def test_what_is_collected_at_the_same_time_is_bounded(world, /, monkeypatch):
    monkeypatch.setattr(limits, "MAX_RELAYS_OF_CONNECTION", 1)
    waiting = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()

    async def late(_):
        asked.set()
        return await waiting

    consumer = await Consumer(world, late).join("c1")
    first = asyncio.create_task(status(world))
    await asked.wait()
    assert (await status(world)).code == 2
    waiting.set_result(came(1)(None))
    assert table_of(await first) == {"c1": {QUEUE: 1}}
    await consumer.pool.close()
