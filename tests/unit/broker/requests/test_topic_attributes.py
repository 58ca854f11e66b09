"""Attributes of topics, as operators change them."""

import pytest

from tests.support.async_tests import within
from tests.support.broker_world import (
    create_topic,
    in_broker,
)

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
def test_attributes_that_cannot_be_are_refused_in_rocketmqs_words(
    tmp_path, made_with, changes, words
):
    """What 5.5.0 answered to the same; ``made_with`` None: the topic is not there yet."""

    async def test(world):
        if made_with is not None:
            assert (await create_topic(world, attributes=made_with)).code == 0
        before = dict(world.core.topics.topics)
        answer = await create_topic(world, attributes=changes)
        assert (answer.code, answer.remark[: len(words)]) == (1, words)
        assert world.core.topics.topics == before

    in_broker(tmp_path, test)


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
