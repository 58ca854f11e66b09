"""Locks of queues: 41 and 42."""

import json

import pytest

from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import create_topic, in_broker
from tests.unit.broker.heartbeats import table_of


def queues_of(*numbers, topic="New", broker="broker-a"):
    return [{"topic": topic, "brokerName": broker, "queueId": number} for number in numbers]


def asked(client_id, queues, group="readers"):
    return json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": queues}).encode()


async def lock(world, client_id, *numbers, group="readers", **changes):
    body = asked(client_id, queues_of(*numbers, **changes), group)
    answer = await world.call(RequestCode.LOCK_BATCH_MQ, body)
    assert answer.code == 0
    return json.loads(answer.body)["lockOKMQSet"]


async def unlock(world, client_id, *numbers, **changes):
    body = asked(client_id, queues_of(*numbers, **changes))
    assert (await world.call(RequestCode.UNLOCK_BATCH_MQ, body)).code == 0


@within(in_broker, "tmp_path")
async def test_a_queue_is_locked_by_one_client_of_a_group(world, /):
    await create_topic(world)
    assert await lock(world, "c1", 0, 1) == queues_of(0, 1)
    assert await lock(world, "c2", 0, 1, 2) == queues_of(2)
    assert await lock(world, "c1", 0, 2) == queues_of(0)
    assert await lock(world, "c2", 0, 1, group="others") == queues_of(0, 1)


@within(in_broker, "tmp_path")
async def test_a_queue_is_given_back_by_the_client_that_has_it(world, /):
    await create_topic(world)
    await lock(world, "c1", 0, 1)
    await unlock(world, "c2", 0)
    assert await lock(world, "c2", 0) == []
    await unlock(world, "c1", 0, 2)
    assert await lock(world, "c2", 0, 1) == queues_of(0)
    assert (await table_of(world))["queueLocks"] == "2"


@within(in_broker, "tmp_path")
async def test_only_queues_that_are_here_are_locked_whatever_their_broker_is_called(world, /):
    await create_topic(world)
    assert await lock(world, "c1", 0, -1, 3, 2**31 - 1) == queues_of(0)
    assert await lock(world, "c1", 0, topic="Unknown") == []
    assert await lock(world, "c1", 1, broker="another") == queues_of(1, broker="another")
    assert await lock(world, "c2", 1) == []


@within(in_broker, "tmp_path")
async def test_many_queues_are_locked_at_once(world, /):
    await create_topic(world, readQueueNums=3000, writeQueueNums=3000)
    assert len(await lock(world, "c1", *range(3000))) == 3000


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", asked("c" * 2000, []), asked("c", [], "g" * 300), asked("c", [{}])],
)
@within(in_broker, "tmp_path")
async def test_what_is_no_such_request_is_refused(world, /, code, body):
    assert (await world.call(code, body)).code in (1, 29)
