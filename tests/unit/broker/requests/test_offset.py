"""Offsets of queues and of groups."""

import asyncio

import pytest
from msgspec.structs import replace

from rocketlens.wire.bodies.tables import ResetOffsets
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import read_body
from tests.support.async_tests import within
from tests.support.broker_world import NOW_MS, in_broker, running
from tests.unit.broker.heartbeats import beat
from tests.unit.net.loopback import until

QUEUE = {"topic": "Orders", "queueId": 0}
GROUP = {"consumerGroup": "readers", **QUEUE}


async def send_every_second(world, count):
    for number in range(count):
        world.clock.now_ms = NOW_MS + 1000 * number
        await world.send()


@pytest.mark.parametrize(
    ("after_ms", "lower", "upper"),
    [(-1, 0, 0), (0, 0, 0), (1, 1, 0), (1000, 1, 1), (2500, 3, 2), (4000, 4, 4), (9000, 5, 4)],
)
@within(in_broker, "tmp_path")
async def test_an_offset_is_found_by_time(world, /, after_ms, lower, upper):
    await send_every_second(world, 5)
    for boundary, expected in ((None, lower), ("lower", lower), ("UPPER", upper)):
        answer = await world.call(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            timestamp=NOW_MS + after_ms,
            boundaryType=boundary,
            **QUEUE,
        )
        assert answer.ext_fields == {"offset": str(expected)}


@within(in_broker, "tmp_path")
async def test_a_queue_has_a_first_and_a_next_offset_and_a_first_time(world, /):
    codes = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    empty = [await world.call(code, **QUEUE) for code in codes]
    assert [answer.ext_fields["offset"] for answer in empty] == ["0", "0"]
    never = await world.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **QUEUE)
    assert never.ext_fields == {"timestamp": "-1"}
    await send_every_second(world, 3)
    some = [await world.call(code, **QUEUE) for code in codes]
    assert [answer.ext_fields["offset"] for answer in some] == ["0", "3"]
    first = await world.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **QUEUE)
    assert first.ext_fields == {"timestamp": str(NOW_MS)}


async def test_a_groups_offset_is_kept_over_a_restart(tmp_path):
    async with running(tmp_path) as world:
        await world.send()
        world.core.groups.find("readers")
        answer = await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **GROUP)
        assert answer.code == 0
    async with running(tmp_path) as world:
        answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **GROUP)
        assert answer.ext_fields == {"offset": "1"}


@within(in_broker, "tmp_path")
async def test_a_group_that_never_read_begins_at_0_while_that_is_near(world, /):
    await world.send()
    answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **GROUP)
    assert answer.ext_fields == {"offset": "0"}
    asked = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound=False, **GROUP)
    assert (asked.code, asked.remark) == (
        22,
        "Not found, do not set to zero, maybe this group boot first",
    )


@within(in_broker, "tmp_path", accessMessageInMemoryMaxRatio=0)
async def test_a_group_that_never_read_decides_itself_when_the_begin_is_far(world, /):
    await world.send()
    await world.send()
    answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **GROUP)
    assert (answer.code, answer.remark) == (
        22,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    )


@within(in_broker, "tmp_path")
async def test_an_offset_of_no_topic_or_group_is_not_kept(world, /):
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    answer = await world.call(code, commitOffset=1, **(GROUP | {"topic": "None"}))
    assert (answer.code, answer.remark) == (17, "Topic None not exist!")
    await world.send()
    answer = await world.call(code, commitOffset=1, **(GROUP | {"consumerGroup": "a@b"}))
    assert (answer.code, answer.remark) == (26, "Group a@b not exist!")
    assert world.core.offsets.table == {}


async def test_an_offset_makes_no_group_but_reading_does(world):
    """What 5.5.0 answered to the same steps of a group that nobody knew."""
    await world.send()
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    answer = await world.call(code, commitOffset=0, **GROUP)
    assert (answer.code, answer.remark) == (26, "Group readers not exist!")
    assert "readers" not in world.core.groups.table.entries
    await world.pull(0, consumerGroup="readers")
    assert (await world.call(code, commitOffset=0, **GROUP)).code == 0


@within(in_broker, "tmp_path")
async def test_an_offset_is_kept_only_in_a_queue_that_the_topic_has_or_had(world, /):
    assert (await world.send("T", d=4, e=3)).code == 0
    await world.pull(topic="T", consumerGroup="g")

    async def commit(queue_id, offset=1):
        fields = {"consumerGroup": "g", "topic": "T", "commitOffset": offset}
        return await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **fields, queueId=queue_id)

    for queue_id in range(4):
        assert (await commit(queue_id)).code == 0
    for queue_id in (4, -1, 2**31 - 1):
        refused = await commit(queue_id)
        assert (refused.code, refused.remark) == (1, f"Topic T has no queue {queue_id}")
    config = world.core.topics.get("T")
    world.core.topics.put(replace(config, read_queue_count=1, write_queue_count=1))
    # Groups go on in queues that a topic has no more.
    assert (await commit(2, 5)).code == (await commit(3, 5)).code == 0
    assert world.core.offsets.table == {"T@g": {0: 1, 1: 1, 2: 5, 3: 5}}
    assert world.core.offsets.refused == 3


RESET = {"group": "readers", "topic": "Orders", "timestamp": -1, "isForce": True}


async def reset(world, **changes):
    return await world.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **(RESET | changes))


async def in_queues(world, *counts):
    for queue_id, count in enumerate(counts):
        for _ in range(count):
            await world.send(e=queue_id)
    world.core.groups.find("readers")


def offsets_in(answer):
    assert answer.code == 0, answer.remark
    table = read_body(ResetOffsets, answer.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {0: 3, 1: 1, 2: 0, 3: 0}),
        ({"timestamp": 0}, {0: 0, 1: 0, 2: 0, 3: 0}),
        ({"queueId": 1}, {1: 1}),
        ({"queueId": 0, "offset": 2}, {0: 2}),
        ({"queueId": 0, "offset": -1, "timestamp": 0}, {0: 0}),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_group_is_reset_in_one_queue_or_all(world, /, changes, expected):
    await in_queues(world, 3, 1)
    assert offsets_in(await reset(world, **changes)) == expected
    for queue_id, offset in expected.items():
        answer = await world.call(
            RequestCode.QUERY_CONSUMER_OFFSET, **GROUP | {"queueId": queue_id}
        )
        assert answer.ext_fields["offset"] == str(offset)


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "None"}, 17, "Topic None does not exist"),
        ({"group": "none"}, 26, "Group none does not exist"),
        ({"queueId": 4}, 1, "Topic Orders has no queue 4"),
        ({"queueId": 0, "offset": 9}, 1, "Target offset 9 not in consume queue range [0-3]"),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_reset_that_leads_nowhere_is_refused(world, /, changes, code, remark):
    await in_queues(world, 3)
    answer = await reset(world, **changes)
    assert (answer.code, answer.remark) == (code, remark)
    assert world.core.offsets.table == {}


@within(in_broker, "tmp_path")
async def test_consumers_go_on_there_whatever_they_pull_or_commit(world, /):
    await in_queues(world, 3)
    begun = asyncio.ensure_future(world.pull(3, sysFlag=6, suspendTimeoutMillis=15_000))
    await until(lambda: world.core.held_pulls.count == 1)
    await reset(world, queueId=0, offset=1)
    answer = await begun
    assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
    assert answer.ext_fields["nextBeginOffset"] == "1"
    await reset(world, queueId=0, offset=2)
    late = await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **GROUP, commitOffset=3)
    assert (late.code, late.remark) == (0, "Offset has been previously reset")
    answer = await world.pull(3, sysFlag=5, commitOffset=3)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "2")
    assert world.core.offsets.get("readers", "Orders", 0) == 2
    assert (await world.pull(3)).code == 19
    await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **GROUP, commitOffset=3)
    assert world.core.offsets.get("readers", "Orders", 0) == 3


@within(in_broker, "tmp_path")
async def test_a_consumer_that_begins_where_its_group_was_reset_to_just_goes_on(world, /):
    await in_queues(world, 3)
    await reset(world, queueId=0, offset=1)
    assert (await world.pull(1)).code == 0
    assert (await world.pull(3)).code == 19


@within(in_broker, "tmp_path")
async def test_a_reset_that_no_consumer_comes_for_is_over_after_some_minutes(world, /):
    await in_queues(world, 3)
    await reset(world, queueId=0, offset=1)
    await beat(world, "c1", "Orders")
    world.clock.now_ms += 11 * 60_000
    world.service._save()
    # Its consumer may be busy with what it pulled before.
    late = await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **GROUP, commitOffset=3)
    assert late.remark == "Offset has been previously reset"
    await world.call(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="readers")
    world.service._save()
    late = await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, **GROUP, commitOffset=3)
    assert (late.code, late.remark) == (0, None)
    assert world.core.offsets.get("readers", "Orders", 0) == 3


@within(in_broker, "tmp_path")
async def test_a_reset_ends_with_its_topic_or_group(world, /):
    await in_queues(world, 3)
    await reset(world)
    await world.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="readers", cleanOffset=True)
    assert world.core.offsets.resets == {}
    world.core.groups.find("readers")
    await reset(world)
    await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    assert world.core.offsets.resets == {}


async def clone(world, **changes):
    fields = {"srcGroup": "readers", "destGroup": "others", "topic": "Orders", "offline": False}
    return await world.call(RequestCode.CLONE_GROUP_OFFSET, **(fields | changes))


@within(in_broker, "tmp_path")
async def test_a_group_goes_on_where_another_is(world, /):
    await in_queues(world, 3, 2)
    await world.send(topic="More")
    offsets = world.core.offsets
    for topic, queue_id, offset in (("Orders", 0, 2), ("Orders", 1, 1), ("More", 0, 1)):
        offsets.put("readers", topic, queue_id, offset)
    assert (await clone(world)).code == 0
    assert [offsets.get("others", "Orders", queue_id) for queue_id in (0, 1)] == [2, 1]
    assert offsets.get("others", "More", 0) is None
    assert (await clone(world, topic=None, destGroup="third")).code == 0
    assert sorted(offsets.topics_of("third")) == ["More", "Orders"]
    assert (await clone(world, destGroup="../x")).code == 29
    await beat(world, "c1", "Orders")
    await clone(world, topic=None, destGroup="fourth")
    assert offsets.topics_of("fourth") == ["Orders"]
    await clone(world, topic=None, destGroup="fifth", offline=True)
    assert sorted(offsets.topics_of("fifth")) == ["More", "Orders"]
