"""Topics as operators and tools meet them."""

import json

import pytest

from rocketlens.errors import StoreFailed
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import (
    NOW_MS,
    Clock,
    create_topic,
    in_broker,
    properties_of,
    records_of,
    running,
)


@within(in_broker, "tmp_path")
async def test_a_topic_is_made_changed_shown_and_deleted(world, /):
    assert (await create_topic(world, attributes="+message.type=FIFO,+reserve.time=2")).code == 0
    changes = "-message.type,+reserve.time=3"
    assert (await create_topic(world, perm=4, order=True, attributes=changes)).code == 0
    shown = await world.call(RequestCode.GET_TOPIC_CONFIG, topic="New")
    assert json.loads(shown.body) == {
        "attributes": {"reserve.time": "3"},
        "order": True,
        "perm": 4,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "New",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    world.core.offsets.put("g", "New", 0, 5)
    assert (await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="New")).code == 0
    gone = await world.call(RequestCode.GET_TOPIC_CONFIG, topic="New")
    assert (gone.code, gone.remark) == (17, "No topic in this broker. topic: New")
    assert world.core.offsets.get("g", "New", 0) is None


async def test_a_topic_made_again_is_empty_as_in_rocketmq_and_keys_still_find_what_it_had(tmp_path):
    """What 5.5.0 answered to the same steps."""
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        await create_topic(world)
        for number in range(5):
            await world.send("New", b"old%d" % number, properties_of(KEYS=f"k{number}"))
        world.core.offsets.put("g", "New", 0, 4)
        assert (await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="New")).code == 0
        assert not (world.core.store.layout.consume_queue / "New").exists()
        await create_topic(world)
        assert (await world.pull(0, topic="New")).remark == "NO_MESSAGE_IN_QUEUE"
        for number in range(3):
            answer = await world.send("New", b"new", properties_of(KEYS=f"k{number}"))
            assert answer.ext_fields["queueOffset"] == str(number)
        await world.service.close_abruptly()
    async with running(tmp_path, clock=clock) as world:
        assert world.core.offsets.groups_of("New") == []
        pulled = await world.pull(0, topic="New")
        assert [each.body for each in records_of(pulled.body)] == [b"new"] * 3
        assert (await world.pull(5, topic="New")).remark == "OFFSET_OVERFLOW_BADLY"
        found = await world.query("k0", "New")
        assert {each.body for each in records_of(found.body)} == {b"new", b"old0"}


@pytest.mark.parametrize("topic", ["../commitlog", "NoSuchTopic", "a/b"])
@within(in_broker, "tmp_path")
async def test_deleting_what_is_no_topic_touches_nothing(world, /, topic):
    await world.send()
    answer = await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
    assert answer.code == 0
    assert world.core.store.layout.commit_log.exists()
    assert (await world.pull()).code == 0


@within(in_broker, "tmp_path")
async def test_a_topic_whose_deletion_cannot_be_written_down_is_not_deleted(world, /):
    await world.send()
    world.core.store._durability.group_commit.fail(StoreFailed("no disk"))
    answer = await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    assert (answer.code, "is not deleted" in answer.remark) == (1, True)
    assert (await world.pull()).code == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": " "}, "The specified topic is blank."),
        ({"topic": "../x"}, "The specified topic: ../x, contains illegal characters, allowing"),
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"readQueueNums": -1}, "readQueueNums -1: give 0 to 65536"),
        ({"writeQueueNums": 2**31 - 1}, "writeQueueNums 2147483647: give 0 to 65536"),
        ({"perm": 8}, "perm 8: give 0 to 7"),
        ({"topicFilterType": "ANY"}, "topicFilterType 'ANY': give SINGLE_TAG or MULTI_TAG"),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_topic_that_cannot_be_is_not_made(world, /, changes, words):
    before = dict(world.core.topics.topics)
    answer = await create_topic(world, **changes)
    assert answer.code == 29
    assert words in answer.remark
    assert world.core.topics.topics == before


@within(in_broker, "tmp_path")
async def test_a_system_topic_cannot_be_deleted(world, /):
    answer = await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="TBW102")
    assert answer.remark == "The topic[TBW102] is conflict with system topic."
    assert world.core.topics.get("TBW102")


@within(in_broker, "tmp_path")
async def test_statistics_show_every_queue(world, /):
    await create_topic(world)
    await world.send("New", e=1)
    answer = await world.call(RequestCode.GET_TOPIC_STATS_INFO, topic="New")
    queue = '{"brokerName":"broker-a","queueId":%d,"topic":"New"}'
    place = '{"lastUpdateTimestamp":%d,"maxOffset":%d,"minOffset":0}'
    entries = [(0, 0, 0), (1, NOW_MS, 1), (2, 0, 0)]
    table = ",".join(f"{queue % n}:{place % (time, high)}" for n, time, high in entries)
    assert answer.body.decode() == f'{{"offsetTable":{{{table}}},"topicPutTps":0.0}}'
    missing = await world.call(RequestCode.GET_TOPIC_STATS_INFO, topic="None")
    assert (missing.code, missing.remark) == (17, "topic[None] not exist")


TYPES = "UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, LITE, NORMAL"


@pytest.mark.parametrize(
    ("made_with", "changes", "words"),
    [
        (None, "-message.type", "only add attribute is supported while creating topic. key: mess"),
        (None, "+bogus=1", "unsupported key: bogus"),
        (None, "+queue.type=BatchCQ", "value is not in set: [SimpleCQ]"),
        ("", "a=1", "add/alter attribute format is wrong: a"),
        ("", "-a=1", "add/alter attribute format is wrong: -a"),
        ("", "==x", "add/alter attribute format is wrong: "),
        ("", "+a", "delete attribute format is wrong: +a"),
        ("", " ", "delete attribute format is wrong:  "),
        ("", "+reserve.time=1,,-b", "delete attribute format is wrong: "),
        ("", "-b", "attempt to delete a nonexistent key: b"),
        ("", "+=x", "kv string format wrong."),
        ("", "-", "kv string format wrong."),
        ("", "message.type+=NORMAL", "kv string format wrong."),
        ("", " +message.type=DELAY", "kv string format wrong."),
        ("", "=", "Index 0 out of bounds for length 0"),
        ("", "+reserve.time=", "Index 1 out of bounds for length 1"),
        ("", "+message.type=FIFO,+message.type=DELAY", "key duplication: +message.type"),
        ("", "+message.type=X", f"value is not in set: [{TYPES}]"),
        ("", "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        ("", "+lite.topic.expiration=43201", "value is not in range(-1, 43200)"),
        ("", "+reserve.time= 5", 'For input string: " 5"'),
        ("", "+reserve.time=" + "9" * 20, f'For input string: "{"9" * 20}"'),
        ("", "+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.ty"),
        (
            "+cleanup.policy=DELETE",
            "-cleanup.policy",
            "attempt to update an unchangeable attribute. key: cleanup.policy",
        ),
    ],
)
async def test_attributes_that_cannot_be_are_refused_in_rocketmqs_words(
    world, made_with, changes, words
):
    """What 5.5.0 answered to the same; ``made_with`` None: the topic is not there yet."""
    if made_with is not None:
        assert (await create_topic(world, attributes=made_with)).code == 0
    before = dict(world.core.topics.topics)
    answer = await create_topic(world, attributes=changes)
    assert (answer.code, answer.remark[: len(words)]) == (1, words)
    assert world.core.topics.topics == before


@pytest.mark.parametrize(
    ("changes", "attributes"),
    [
        ("+message.type=NORMAL=x", {"message.type": "NORMAL"}),
        ("+reserve.time=+7,", {"reserve.time": "+7"}),
        (
            "+queue.type=SimpleCQ,+message.type=LITE",
            {"queue.type": "SimpleCQ", "message.type": "LITE"},
        ),
        (",", {}),
    ],
)
@within(in_broker, "tmp_path")
async def test_attributes_are_read_as_rocketmq_reads_them(world, /, changes, attributes):
    assert (await create_topic(world, attributes=changes)).code == 0
    assert world.core.topics.get("New").attributes == attributes
