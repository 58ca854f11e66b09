"""Messages of compacted topics have the ids that lead to them, however they are found."""

import asyncio

import pytest

from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.compacted_topics import is_compacted, topic_attributes
from rocketlens.client.resend.resend_job import Target, planned
from rocketlens.console.message.message_view import decoded_ids
from rocketlens.errors import BadInput, BrokerError
from rocketlens.model.rocketmq import CLEANUP_POLICY, COMPACTION
from rocketlens.query.request import name_of
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.fake_cluster import ask, running
from tests.support.layouts import ids

COUNT = 40


def fill(cluster):
    """Store messages in a compacted queue, and others between them; return those of the queue."""
    (broker,) = cluster.masters
    broker.topic_attributes = {"T": {CLEANUP_POLICY: COMPACTION}}
    stored = []
    for number in range(COUNT):
        broker.store("Other", b"other" * 9)
        stored.append(broker.store("T", b"x", keys=f"k{number}", unique_key=f"u{number}"))
    return stored


@within(ask)
async def test_each_way_to_a_message_of_a_compacted_topic_has_the_id_of_the_commit_log(
    cluster, admin, /
):
    stored = fill(cluster)
    every = [each.offset_msg_id for each in stored]
    for question in ({"topic": "T"}, {"topic": "T", "begin": 1}, {"where": "topic = 'T'"}):
        answer = await admin.find(**question)
        assert (ids(answer), answer.complete) == (every, True)
    for read in (admin.scan("T"), admin.tail("T", COUNT)):
        assert [each.offset_msg_id async for each in read] == every
    for number in (0, 7, COUNT - 1):
        for exhaustive in (False, True):
            answer = await admin.find(f"k{number}", "T", exhaustive=exhaustive)
            assert (ids(answer), answer.complete) == ([every[number]], True)
        assert ids(await admin.find(f"T/0/{number}")) == [every[number]]
        assert ids(await admin.find(every[number])) == [every[number]]


@within(ask)
async def test_what_is_pulled_from_tiered_storage_has_the_id_of_the_commit_log_or_none(
    cluster, admin, /
):
    (broker,) = cluster.masters
    plug_in = "org.apache.rocketmq.tieredstore.TieredMessageStore"
    broker.config = {"messageStorePlugIn": plug_in}
    stored = fill(cluster)
    broker.topic_attributes = {}
    every = [each.offset_msg_id for each in stored]
    answer = await admin.find(topic="T")
    assert (ids(answer), answer.complete) == (every, True)
    assert ids(await admin.find("T/0/7")) == [every[7]]
    broker.refused = {RequestCode.QUERY_CONSUME_QUEUE}
    assert ids(await admin.find("T/0/7")) == [""]


@within(ask)
async def test_a_position_that_is_not_pulled_any_more_is_found_in_the_commit_log(cluster, admin, /):
    stored = fill(cluster)
    (broker,) = cluster.masters
    broker.replaced = [stored[3], stored[-1]]
    for each in broker.replaced:
        answer = await admin.find(f"T/0/{each.queue_offset}")
        assert (ids(answer), answer.complete) == ([each.offset_msg_id], True)
    answer = await admin.find(f"T/0/{COUNT}")
    assert (len(answer.messages), answer.complete) == (0, True)


@within(ask)
async def test_a_list_without_the_messages_that_were_replaced_is_incomplete(cluster, admin, /):
    stored = fill(cluster)
    (broker,) = cluster.masters
    broker.replaced = stored[3:20]
    expected = [each.offset_msg_id for each in stored if each not in broker.replaced]
    for question in ({"topic": "T"}, {"topic": "T", "begin": 1}, {"where": "topic = 'T'"}):
        answer = await admin.find(**question)
        assert "T/0: the broker compacts" in " ".join(each.error for each in answer.failures)
        assert ids(answer) == expected
    for read in (admin.scan("T"), admin.tail("T", COUNT)):
        assert [each.offset_msg_id async for each in read] == expected
        assert not read.complete
    # What was read of the queue has no gap.
    answer = await admin.find(topic="T", begin=stored[20].store_timestamp_ms)
    assert len(answer) == COUNT - 20
    for each in stored[:5]:
        answer = await admin.find(f"k{each.queue_offset}", "T")
        assert (ids(answer), answer.complete) == ([each.offset_msg_id], True)


@pytest.mark.parametrize("code", [RequestCode.QUERY_CONSUME_QUEUE, RequestCode.VIEW_MESSAGE_BY_ID])
@within(ask)
async def test_a_position_that_cannot_be_found_there_makes_an_answer_incomplete(
    cluster, admin, /, code
):
    stored = fill(cluster)
    (broker,) = cluster.masters
    broker.replaced = [stored[3]]
    broker.refused = {code}
    answer = await admin.find("T/0/3")
    assert not answer.messages
    assert not answer.complete
    (failure,) = answer.failures
    assert "T/0/3: the broker compacts this topic" in failure.error


@within(ask)
async def test_a_message_that_no_queue_leads_to_has_no_offset_message_id(cluster, admin, /):
    fill(cluster)
    (broker,) = cluster.masters
    broker.refused = {RequestCode.QUERY_CONSUME_QUEUE}
    answer = await admin.find(topic="T")
    assert ids(answer) == [""] * COUNT
    assert [each.msg_id for each in answer] == [f"u{number}" for number in range(COUNT)]
    message = answer.first
    assert [each.name for each in decoded_ids(message)] == ["unique_key"]
    name, kind = name_of(message)
    assert (await admin.story(name, "T", kind=kind)).events
    with pytest.raises(BadInput, match="T/0/0 cannot be sent again"):
        planned(message, Target(), str)


def test_the_attributes_of_a_topic_are_asked_for_once_and_so_is_a_refusal():
    asked = []

    async def scenario():
        async with running() as cluster:
            calls = ClusterCalls(cluster.given)
            (broker,) = cluster.masters
            calls.allow({"broker-a": type("B", (), {"addresses": {0: broker.address}})()})
            for tells, expected in ((True, True), (False, False)):
                broker.topic_attributes = {"T": {CLEANUP_POLICY: COMPACTION}}
                broker.tells_attributes = tells
                topic = "T" if tells else "U"
                for _ in range(2):
                    assert await is_compacted(calls, topic, broker.address) is expected
            with pytest.raises(BrokerError):
                await topic_attributes(calls, "U", broker.address)
            asked.extend(broker.codes())
            await calls.close()

    asyncio.run(scenario())
    assert asked == [RequestCode.GET_TOPIC_CONFIG] * 2
