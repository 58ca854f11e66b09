"""Topics and groups that make themselves, or are made by operators."""

from rocketlens.broker.tables import registry
from rocketlens.wire.codes import RequestCode, ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker
from tests.unit.broker.heartbeats import (
    beat,
    table_of,
)


@within(in_broker, "tmp_path")
async def test_an_unknown_topic_is_made_from_the_default_topic(world, /):
    await world.send("New", d=3)
    await world.send("Many", d=64)
    made = world.core.topics.get("New")
    assert (made.read_queue_count, made.write_queue_count, made.perm) == (3, 3, 6)
    assert world.core.topics.get("Many").write_queue_count == 8


@within(in_broker, "tmp_path", autoCreateTopicEnable=False)
async def test_topics_make_themselves_only_where_that_is_allowed(world, /):
    assert (await world.send()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_its_topics_and_groups_are_those_of_a_real_broker(world, golden):
    import json

    config = golden("5.5.0").store / "config"
    theirs = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    topics = world.core.topics.topics
    assert len(topics) >= 10
    for name, topic in topics.items():
        assert topic.encode() == theirs[name]
    for name in world.core.groups.table.entries:
        assert name in groups


@within(in_broker, "tmp_path")
async def test_no_more_topics_and_groups_are_made_than_there_is_room_for(
    world, /, monkeypatch, caplog
):
    core = world.core
    monkeypatch.setattr(registry, "MAX_TOPICS", len(core.topics.topics) + 2)
    monkeypatch.setattr(registry, "MAX_GROUPS", len(core.groups.table.entries) + 3)
    for group in ("g0", "g1", "g2", "g3"):
        # A consumer is welcome, whether its retry topic has room or not.
        assert (await beat(world, "c", group=group)).code == 0
    assert {"%RETRY%g0", "%RETRY%g1"} < core.topics.topics.keys()
    assert len(core.topics.topics) == registry.MAX_TOPICS
    assert len(core.groups.table.entries) == registry.MAX_GROUPS
    assert (await world.send("New")).code == 17
    fields = {"defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    fields |= {"topicFilterType": "SINGLE_TAG", "order": False}
    refused = await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topic="New")
    assert refused.code == 1
    assert "topics are allowed" in refused.remark
    # What is there is changed and used as ever.
    changed = await world.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topic="%RETRY%g0")
    assert changed.code == 0
    assert (await world.send("%RETRY%g0")).code == 0
    table = await table_of(world)
    assert (table["topicsRefused"], table["groupsRefused"]) == ("3", "1")
    assert caplog.text.count("no room for another") == 2
    world.clock.now_ms += 60_000
    await world.send("New")
    assert caplog.text.count("no room for another") == 3
