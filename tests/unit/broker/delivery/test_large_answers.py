"""An answer that fits no frame is refused before it is built, and large ones come in turn."""

import asyncio

import pytest

from rocketlens import limits
from rocketlens.broker.delivery import large_answers
from rocketlens.broker.requests import heartbeat
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.net.pool import ClientPool
from rocketlens.wire import declare
from rocketlens.wire.bodies.clients import HeartbeatData, ProducerData
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.declare import write_body
from tests.support.async_tests import within
from tests.support.broker_world import in_broker
from tests.support.patience import PATIENCE_S

QUESTIONS = {
    RequestCode.GET_TOPIC_STATS_INFO: {"topic": "Wide"},
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": "group0"},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": False},
    RequestCode.GET_ALL_PRODUCER_INFO: {},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
    RequestCode.GET_ALL_TOPIC_CONFIG: {},
}


async def fill(world, queue_count=200, count=30):
    """Make a topic of many queues, groups that read it, and producers."""
    core = world.core
    core.topics.table.put(StoredTopic("Wide", queue_count, queue_count))
    for number in range(count):
        core.topics.table.put(StoredTopic(f"Topic{number}", 1, 1))
        core.groups.table.put(f"group{number}")
        core.offsets.put(f"group{number}", "Wide", 0, 1)
    producers = tuple(ProducerData(group_name=f"producer{number}") for number in range(count))
    body = write_body(HeartbeatData(client_id="me", producer_datas=producers))
    assert (await world.call(RequestCode.HEART_BEAT, body)).code == 0


def not_built(*_):
    raise AssertionError("it was built")


@pytest.mark.parametrize("code", QUESTIONS)
@within(in_broker, "tmp_path")
async def test_an_answer_that_fits_no_frame_is_refused_before_it_is_built(
    world, /, monkeypatch, code
):
    await fill(world)
    whole = await world.call(code, **QUESTIONS[code])
    assert whole.code == 0
    # What is estimated is at least a third of what there is, and never more.
    monkeypatch.setattr(limits, "MAX_ANSWER_FRAME_BYTES", len(whole.body))
    assert (await world.call(code, **QUESTIONS[code])).body == whole.body
    monkeypatch.setattr(limits, "MAX_ANSWER_FRAME_BYTES", len(whole.body) // 3)
    monkeypatch.setattr(declare, "write_object", not_built)
    monkeypatch.setattr(large_answers, "row_bytes", lambda *_: 90)
    for module in ("heartbeat", "topic"):
        monkeypatch.setattr(f"rocketlens.broker.requests.{module}.row_bytes", lambda *_: 90)
    monkeypatch.setattr(heartbeat, "_progress", not_built)
    refused = await world.call(code, **QUESTIONS[code])
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert f"{len(whole.body) // 3} are the most: " in refused.remark


async def test_the_progress_of_20_groups_in_65536_queues_is_refused_at_once(world, monkeypatch):
    monkeypatch.setattr(heartbeat, "_progress", not_built)
    await fill(world, 65_536, 20)
    answer = await world.call(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.endswith("ask for one group and topic at a time (208)")


async def test_large_answers_are_built_one_at_a_time_and_few_of_a_connection_wait(
    world, monkeypatch
):
    monkeypatch.setattr(
        "rocketlens.broker.delivery.large_answers.MAX_LARGE_ANSWERS_OF_CONNECTION", 2
    )
    monkeypatch.setattr("rocketlens.broker.delivery.large_answers.MAX_LARGE_ANSWERS", 3)
    monkeypatch.setattr(large_answers, "SMALL_ANSWER_BYTES", 10_000)
    await fill(world)
    large, code = world.core.large_answers, RequestCode.GET_TOPIC_STATS_INFO
    async with large._building:
        asked = [asyncio.ensure_future(world.call(code, topic="Wide")) for _ in range(3)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result().code for each in done] == [ResponseCode.SYSTEM_BUSY]
        assert (await world.call(code, topic="Topic1")).code == 0
        own, world.pool = world.pool, ClientPool(lambda _: True)
        waiting.add(asyncio.ensure_future(world.call(code, topic="Wide")))
        async with asyncio.timeout(PATIENCE_S):
            while large._waiting.total() < 3:  # noqa: ASYNC110 - it is told by nobody
                await asyncio.sleep(0)
        assert (await world.call(code, topic="Wide")).code == ResponseCode.SYSTEM_BUSY
    assert {each.code for each in await asyncio.gather(*waiting)} == {0}
    assert not large._waiting
    await world.pool.close()
    world.pool = own
