"""Replies to requests of producers: 324, 325 and 326."""

import asyncio

import pytest

from rocketlens.errors import StoreFull
from rocketlens.model import properties as props
from rocketlens.net.channel import Response
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import World, records_of
from tests.unit.broker.heartbeats import groups_of
from tests.unit.net.loopback import until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"CORRELATION_ID": "42", "REPLY_TO_CLIENT": "p1", "MSG_TYPE": "reply", "TTL": "3000"}


class Requester:
    """A producer on a connection of its own, which notes the replies it gets."""

    def __init__(self, world, answer=lambda _: Response()):
        self.replies = []
        self.answer = answer
        handlers = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.take}
        self.pool = ClientPool(lambda _: True, handlers=handlers)
        self.world = World(world.service, self.pool, world.clock)

    def take(self, command, _):
        self.replies.append(command)
        return self.answer(command)

    async def join(self, client_id="p1"):
        heartbeat = groups_of(client_id, ["requesters"])
        assert (await self.world.call(RequestCode.HEART_BEAT, heartbeat)).code == 0
        return self


def never(_):
    return asyncio.get_running_loop().create_future()


async def reply(world, body=b"the answer", properties=None, **changes):
    """Send a reply with 325."""
    given = PROPERTIES if properties is None else properties
    fields = {
        "a": "repliers",
        "b": REPLY_TOPIC,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 5,
        "i": props.format_properties(given),
        "j": 0,
        "k": "false",
    }
    return await world.call(RequestCode.SEND_REPLY_MESSAGE_V2, body, **fields | changes)


async def stored(world):
    """Return the records of the topic of replies."""
    pulled = await world.call(
        RequestCode.PULL_MESSAGE,
        consumerGroup="g",
        topic=REPLY_TOPIC,
        queueId=0,
        queueOffset=0,
        maxMsgNums=32,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subscription="*",
        subVersion=0,
        expressionType="TAG",
    )
    return records_of(pulled.body) if pulled.code == 0 else []


async def test_a_reply_reaches_the_producer_that_asked_and_is_stored(world):
    requester = await Requester(world).join()
    answer = await reply(world)
    assert (answer.code, answer.remark) == (0, None)
    (command,) = requester.replies
    assert command.body == b"the answer"
    fields = dict(command.ext_fields)
    given = props.parse(fields.pop("properties"))
    assert given == PROPERTIES | {"PUSH_REPLY_TIME": str(world.clock.now_ms)}
    assert fields.pop("bornHost").startswith("127.0.0.1:")
    assert fields == {
        "producerGroup": "repliers",
        "topic": REPLY_TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "5",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "storeHost": str(world.core.store.store_host),
        "storeTimestamp": str(world.clock.now_ms),
    }
    (record,) = await stored(world)
    assert (record.body, record.flag, record.properties) == (
        b"the answer",
        5,
        props.format_properties(PROPERTIES).encode(),
    )
    assert answer.ext_fields["queueOffset"] == "0"
    assert answer.ext_fields["msgId"].endswith(f"{record.physical_offset:016X}")
    assert answer.ext_fields["TRACE_ON"] == "true"
    await requester.pool.close()


async def test_the_long_header_of_324_is_read_too(world):
    requester = await Requester(world).join()
    fields = {"producerGroup": "g", "topic": REPLY_TOPIC, "queueId": 0, "sysFlag": 0}
    fields |= {"bornTimestamp": 1, "flag": 0, "properties": props.format_properties(PROPERTIES)}
    answer = await world.call(RequestCode.SEND_REPLY_MESSAGE, b"long", **fields)
    assert answer.code == 0
    assert [each.body for each in requester.replies] == [b"long"]
    await requester.pool.close()


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"CORRELATION_ID": "42"}, "reply message properties[REPLY_TO_CLIENT] is null"),
        (PROPERTIES, "push reply message fail, channel of <p1> not found."),
    ],
)
async def test_a_reply_that_reaches_nobody_is_an_error_and_stored(world, properties, remark):
    answer = await reply(world, properties=properties)
    assert (answer.code, answer.remark) == (1, remark)
    assert [record.body for record in await stored(world)] == [b"the answer"]


async def test_what_a_producer_answers_is_passed_back(world):
    requester = await Requester(world, lambda _: Response(1, remark="nobody waits")).join()
    answer = await reply(world)
    assert (answer.code, answer.remark) == (1, "nobody waits")
    assert len(await stored(world)) == 1
    await requester.pool.close()


async def test_a_producer_that_does_not_answer_is_waited_for_so_long_and_others_are_served(world):
    world.core.relays.answer_timeout_s = 0.05
    requester = await Requester(world, never).join()
    answer = await reply(world)
    assert (answer.code, answer.remark) == (1, "push reply message to p1fail.")
    assert len(await stored(world)) == 1
    await requester.pool.close()


async def test_a_producer_that_left_gets_no_reply(world):
    requester = await Requester(world).join()
    await requester.pool.close()
    await until(lambda: not world.core.clients.producers)
    answer = await reply(world)
    assert answer.remark == "push reply message fail, channel of <p1> not found."


async def test_a_full_disk_keeps_no_reply_from_its_producer(world, monkeypatch):
    def full(*_, **__):
        raise StoreFull("the disk is full")

    requester = await Requester(world).join()
    monkeypatch.setattr(world.core.store, "append", full)
    answer = await reply(world)
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")
    assert len(requester.replies) == 1
    await requester.pool.close()


@pytest.mark.broker(storeReplyMessageEnable=False)
async def test_replies_are_not_stored_where_that_is_off(world):
    requester = await Requester(world).join()
    assert (await reply(world)).ext_fields["msgId"] == "0"
    assert await stored(world) == []
    await requester.pool.close()


@pytest.mark.broker(flushDiskType="SYNC_FLUSH")
async def test_a_reply_is_answered_when_it_is_durable(world):
    requester = await Requester(world).join()
    answer = await reply(world)
    assert answer.code == 0
    assert world.core.store.flushed_offset == world.core.store.end_offset
    await requester.pool.close()


async def test_a_reply_to_a_topic_that_takes_none_is_refused_as_a_message_is(world):
    requester = await Requester(world).join()
    answer = await reply(world, e=77)
    assert answer.code == 29
    assert answer.remark.startswith("request queueId[77] is illegal")
    assert requester.replies == []
    await requester.pool.close()
