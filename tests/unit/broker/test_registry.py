"""Topics and groups that make themselves, or are made by operators."""

from rocketlens.wire.codes import ResponseCode
from tests.unit.broker.broker_world import in_broker


def test_an_unknown_topic_is_made_from_the_default_topic(tmp_path):
    async def test(world):
        await world.send("New", d=3)
        await world.send("Many", d=64)
        made = world.core.topics.get("New")
        assert (made.read_queue_count, made.write_queue_count, made.perm) == (3, 3, 6)
        assert world.core.topics.get("Many").write_queue_count == 8

    in_broker(tmp_path, test)


def test_topics_make_themselves_only_where_that_is_allowed(tmp_path):
    async def test(world):
        assert (await world.send()).code == ResponseCode.TOPIC_NOT_EXIST

    in_broker(tmp_path, test, autoCreateTopicEnable=False)


def test_its_topics_and_groups_are_those_of_a_real_broker(tmp_path, golden):
    import json

    config = golden("5.5.0").store / "config"
    theirs = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]

    async def test(world):
        topics = world.core.topics.topics
        assert len(topics) >= 10
        for name, topic in topics.items():
            assert topic.encode() == theirs[name]
        for name in world.core.groups.table.groups:
            assert name in groups

    in_broker(tmp_path, test)
