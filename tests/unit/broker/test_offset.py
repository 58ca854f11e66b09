"""Offsets of queues and of groups."""

from dataclasses import replace

import pytest

from rocketlens.wire.codes import RequestCode
from tests.unit.broker.broker_world import NOW_MS, in_broker, running

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
def test_an_offset_is_found_by_time(tmp_path, after_ms, lower, upper):
    async def test(world):
        await send_every_second(world, 5)
        for boundary, expected in ((None, lower), ("lower", lower), ("UPPER", upper)):
            answer = await world.call(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                timestamp=NOW_MS + after_ms,
                boundaryType=boundary,
                **QUEUE,
            )
            assert answer.ext_fields == {"offset": str(expected)}

    in_broker(tmp_path, test)


def test_a_queue_has_a_first_and_a_next_offset_and_a_first_time(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)


def test_a_groups_offset_is_kept_over_a_restart(tmp_path):
    import asyncio

    async def main():
        async with running(tmp_path) as world:
            await world.send()
            world.core.groups.find("readers")
            answer = await world.call(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **GROUP)
            assert answer.code == 0
        async with running(tmp_path) as world:
            answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **GROUP)
            assert answer.ext_fields == {"offset": "1"}

    asyncio.run(main())


def test_a_group_that_never_read_begins_at_0_while_that_is_near(tmp_path):
    async def test(world):
        await world.send()
        answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **GROUP)
        assert answer.ext_fields == {"offset": "0"}
        asked = await world.call(
            RequestCode.QUERY_CONSUMER_OFFSET, setZeroIfNotFound=False, **GROUP
        )
        assert (asked.code, asked.remark) == (
            22,
            "Not found, do not set to zero, maybe this group boot first",
        )

    in_broker(tmp_path, test)


def test_a_group_that_never_read_decides_itself_when_the_begin_is_far(tmp_path):
    async def test(world):
        await world.send()
        await world.send()
        answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **GROUP)
        assert (answer.code, answer.remark) == (
            22,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    in_broker(tmp_path, test, accessMessageInMemoryMaxRatio=0)


def test_an_offset_of_no_topic_or_group_is_not_kept(tmp_path):
    async def test(world):
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        answer = await world.call(code, commitOffset=1, **(GROUP | {"topic": "None"}))
        assert (answer.code, answer.remark) == (17, "Topic None not exist!")
        await world.send()
        answer = await world.call(code, commitOffset=1, **(GROUP | {"consumerGroup": "a@b"}))
        assert (answer.code, answer.remark) == (26, "Group a@b not exist!")
        assert world.core.offsets.table == {}

    in_broker(tmp_path, test)


def test_an_offset_makes_no_group_but_reading_does(tmp_path):
    """What 5.5.0 answered to the same steps of a group that nobody knew."""

    async def test(world):
        await world.send()
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        answer = await world.call(code, commitOffset=0, **GROUP)
        assert (answer.code, answer.remark) == (26, "Group readers not exist!")
        assert "readers" not in world.core.groups.table.groups
        await world.pull(0, consumerGroup="readers")
        assert (await world.call(code, commitOffset=0, **GROUP)).code == 0

    in_broker(tmp_path, test)


def test_an_offset_is_kept_only_in_a_queue_that_the_topic_has_or_had(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)
