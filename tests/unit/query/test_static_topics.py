"""Static topics: the mappings that two brokers of RocketMQ 5.5.0 wrote, and stores that have one.

Topic ``st`` has two queues. They were on broker-a, and ``remappingStaticTopic`` moved them to
broker-b, where they go on at 10,000.
"""

import json
from pathlib import Path

import pytest

import rocketlens
from rocketlens import GroupState
from rocketlens.errors import CommandBodyError
from rocketlens.model.text import json_dialect
from rocketlens.query.static_topics import MAPPING_FILE
from rocketlens.wire.bodies.static_topics import StaticTopic, parse_mapping
from tests.support.made_stores import Sent, make_store

WRITTEN = Path(__file__).parent / "static_topics"


def mapping_of(broker):
    table = json_dialect.loads_file((WRITTEN / f"{broker}.json").read_bytes())
    return table["topicQueueMappingInfoMap"]["st"]


BOTH = [parse_mapping(mapping_of(each)) for each in ("broker-a", "broker-b")]
NEW = "broker-b"


@pytest.fixture
def store(tmp_path):
    """The store of broker-b: five messages in each queue, and two of a topic that is not static."""
    sent = [Sent("st", f"k{number}", queue_id=number % 2) for number in range(10)]
    sent += [Sent("plain", "10"), Sent("plain", "11")]
    make_store(tmp_path, sent)
    write_mapping(tmp_path, (WRITTEN / f"{NEW}.json").read_bytes())
    return tmp_path


def write_mapping(store, content):
    file = store / MAPPING_FILE
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


def positions(messages):
    return [each.position for each in messages]


@pytest.mark.parametrize("mappings", [BOTH, BOTH[::-1]])
def test_positions_are_translated_both_ways(mappings):
    static = StaticTopic(mappings)
    assert static.broker_names == {"broker-a", "broker-b"}
    assert static.logical("broker-a", 1, 7) == (1, 7)
    assert static.logical("broker-b", 1, 7) == (1, 10_007)
    assert static.logical("broker-b", 2, 7) is None
    assert static.stored(0, 10_003) == ("broker-b", 0, 3)
    assert static.stored(0, 9_999) == ("broker-a", 0, 9_999)
    assert static.stored(2, 0) is None


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ({}, None),
        ({("broker-a", 0): (9, 10)}, 9),
        ({("broker-a", 0): (9, 10), ("broker-b", 0): (-1, 5)}, 9),
        ({("broker-a", 0): (9, 10), ("broker-b", 0): (3, 5)}, 10_003),
        # As a pull of Java's consumer commits it.
        ({("broker-b", 0): (10_003, 5)}, 10_003),
        ({("broker-b", 1): (3, 5)}, None),
    ],
)
def test_the_offset_of_a_group_is_that_of_the_last_part(offsets, expected):
    assert StaticTopic(BOTH).group_offset(0, offsets) == expected


def test_a_part_that_is_closed_has_nothing_behind_its_end():
    mapping = mapping_of(NEW)
    mapping["hostedQueues"]["0"][0]["endOffset"] = 10
    static = StaticTopic([parse_mapping(mapping)])
    assert static.logical("broker-a", 0, 9) == (0, 9)
    assert static.logical("broker-a", 0, 10) is None
    assert static.stored(0, 10) is None


@pytest.mark.parametrize(
    "mapping", [[], {}, {"bname": "b", "hostedQueues": {"x": []}}, {"bname": "b", "epoch": "?"}]
)
def test_what_is_no_mapping_is_refused(mapping):
    with pytest.raises(CommandBodyError):
        parse_mapping(mapping)


def test_a_store_is_searched_by_the_positions_that_producers_were_told(store):
    told = [f"st/{number % 2}/{10_000 + number // 2}" for number in range(10)]
    with rocketlens.open_store(store) as opened:
        for number, position in enumerate(told):
            for text in (position, f"k{number}"):
                answer = opened.find(text)
                assert (positions(answer.messages), answer.complete) == ([position], True)
            [message] = answer.messages
            assert positions(opened.find(message.offset_msg_id).messages) == [position]
        assert positions(opened.find(topic="st").messages) == told
        assert positions(opened.find(topic="st", where="queue_id = 1").messages) == told[1::2]
        assert positions(opened.scan("st")) == told
        assert opened.scan("st").to_arrow()["queue_offset"].to_pylist()[-1] == 10_004
        assert positions(opened.query_message("st", "k3").messages) == [told[3]]
        assert positions(opened.find("plain/0/1").messages) == ["plain/0/1"]
        [topic] = opened.topics("st").topics
        assert topic.messages == 10


def test_a_position_of_another_broker_is_not_searched_and_that_is_said(store):
    with rocketlens.open_store(store) as opened:
        answer = opened.find("st/0/3")
        assert (answer.messages, answer.complete) == ((), False)
        assert "st/0/3 is on broker-a, and this store is broker-b's" in answer.failures[0].error
        # The store does not have it as the third message of its queue either.
        for beyond in ("st/0/10005", "st/7/0"):
            answer = opened.find(beyond)
            assert (answer.messages, answer.complete) == ((), True)
    write_mapping(store, (WRITTEN / "broker-a.json").read_bytes())
    with rocketlens.open_store(store) as opened:
        assert positions(opened.find("st/0/3").messages) == ["st/0/3"]
        answer = opened.find("st/0/10000")
        assert (answer.messages, answer.complete) == ((), False)
        assert "may be on broker-b" in answer.failures[0].error


@pytest.mark.parametrize("offset", [4, 10_004])
def test_the_story_knows_what_a_group_consumed(store, offset):
    offsets = {"offsetTable": {"st@g": {"0": offset}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    with rocketlens.open_store(store) as opened:
        states = {}
        for position in ("st/0/10003", "st/0/10004"):
            [group] = opened.story(position).groups
            states[position] = group.state
        assert states == {"st/0/10003": GroupState.PASSED, "st/0/10004": GroupState.NOT_YET}
        # An offset of the logical queue is no sign of lost messages.
        assert opened.find("k1").complete


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ((WRITTEN / f"{NEW}.json").read_bytes()[:700], "cannot be read"),
        (b'{"topicQueueMappingInfoMap": {"st": {"bname": 3, "hostedQueues": []}}}', "st: "),
        (b'{"topicQueueMappingInfoMap": {"st": {}}}', "st: bname is missing"),
    ],
)
def test_without_a_mapping_an_answer_is_incomplete_and_says_why(store, content, problem):
    write_mapping(store, content)
    with rocketlens.open_store(store) as opened:
        answer = opened.find(topic="st")
        assert (len(answer.messages), answer.complete) == (10, False)
        [failure] = answer.failures
        assert failure.source == MAPPING_FILE
        assert problem in failure.error
        assert "positions in static topics are those of the broker's own queues" in failure.error
        # The mapping is read again once it is whole.
        write_mapping(store, (WRITTEN / f"{NEW}.json").read_bytes())
        assert opened.find("st/1/10000").complete


def test_a_wrong_mapping_of_one_topic_is_nothing_to_another(store):
    write_mapping(store, b'{"topicQueueMappingInfoMap": {"st": {}}}')
    with rocketlens.open_store(store) as opened:
        assert opened.find(topic="plain").complete
        assert not opened.find(topic="st").complete
