"""What is printed is what the real tool printed of the same store."""

import re

import pytest
from msgspec.structs import replace

from rocketlens import open_store
from rocketlens.client.admin.track import MessageTrack, TrackType
from rocketlens.mqadmin.printing.blocks import (
    key_table,
    message_block,
    route_json,
    status_table,
    track_block,
)
from rocketlens.wire.bodies.tables import MessageQueue as QueueKey
from rocketlens.wire.bodies.tables import TopicOffset, TopicRouteData
from rocketlens.wire.declare import read_body
from tests.unit.mqadmin.printed_by_rocketmq import VERSIONS, both, bounds, form_of, printed

TRACK = re.compile(r"MessageTrack \[consumerGroup=(\w+), trackType=(\w+), exceptionDesc=(.*)\]")


@pytest.fixture(autouse=True)
def in_utc(zone):
    zone("UTC")


def field(text, label):
    return re.search(rf"^{label}: +(.*)$", text, re.MULTILINE)[1]


def shown(golden, version, expected, *, with_offset_id):
    with open_store(golden(version).store) as store:
        message = store.query_by_queue_offset(
            field(expected, "Topic"),
            int(field(expected, "Queue ID")),
            int(field(expected, "Queue Offset")),
        )
    # A pull adds them to the message, as the real client does.
    message = replace(message, properties={**message.properties, **bounds(expected)})
    path = f"/tmp/rocketmq/msgbodys/{message.msg_id}"
    form = form_of(version)
    tracks = [
        MessageTrack(group, TrackType[kind], None if why == "null" else why)
        for group, kind, why in TRACK.findall(expected)
    ]
    text = message_block(form, message, path, with_offset_id=with_offset_id)
    return text + track_block(form, tracks, with_line_ends=with_offset_id and form.is_5)


@pytest.mark.parametrize(
    ("version", "name"),
    [("4.9.7", "queryMsgById"), ("5.5.0", "queryMsgById-topic")]
    + [(version, "queryMsgByOffset") for version in VERSIONS],
)
def test_a_message_by_id_or_offset_is_printed_as_the_real_tool_does(golden, version, name):
    expected = printed(golden, version, name)
    assert shown(golden, version, expected, with_offset_id=True).strip("\n") == expected


def test_messages_of_several_ids_run_together_in_4_9_as_in_the_real_tool(golden):
    expected = printed(golden, "4.9.7", "queryMsgById-two")
    second = expected.rindex("OffsetID:")
    parts = (expected[:second], expected[second:])
    texts = [shown(golden, "4.9.7", part, with_offset_id=True) for part in parts]
    assert "".join(texts) == expected


@both
@pytest.mark.parametrize("kind", ["", "-batch", "-compressed", "-delay", "-tx"])
def test_a_message_by_unique_key_is_printed_as_the_real_tool_does(golden, version, kind):
    expected = printed(golden, version, f"queryMsgByUniqueKey{kind}")
    assert shown(golden, version, expected, with_offset_id=False).strip("\n") == expected


@both
@pytest.mark.parametrize("kind", ["", "-collision"])
def test_the_rows_of_a_key_are_printed_as_the_real_tool_does(golden, version, kind):
    file = golden(version).mqadmin / f"queryMsgByKey{kind}.txt"
    command = file.read_text(encoding="utf-8").split("\n", 1)[0]
    topic, key = re.search(r"-t (\S+) -k (\S+)", command).groups()
    expected = printed(golden, version, f"queryMsgByKey{kind}")
    rows = [line.split() for line in expected.splitlines()[1:]]
    assert rows
    with open_store(golden(version).store) as store:
        messages = [store.query_by_queue_offset(topic, int(row[1]), int(row[2])) for row in rows]
    assert key_table(form_of(version), messages, topic, key, "K").strip("\n") == expected


@both
def test_a_route_is_printed_as_the_real_tool_does(golden, version):
    expected = printed(golden, version, "topicRoute")
    route = read_body(TopicRouteData, expected.encode())
    assert route_json(form_of(version), route) == f"{expected}\n"


@both
def test_the_status_of_a_topic_is_printed_as_the_real_tool_does(golden, version):
    expected = printed(golden, version, "topicStatus")
    topic = re.search(r"-t (\w+)", (golden(version).mqadmin / "topicStatus.txt").read_text())[1]
    offsets = {}
    with open_store(golden(version).store) as store:
        for line in expected.splitlines()[1:5]:
            broker, queue, least, most = line.split()[:4]
            last = store.query_by_queue_offset(topic, int(queue), int(most) - 1)
            queue_key = QueueKey(topic=topic, broker_name=broker, queue_id=int(queue))
            offsets[queue_key] = TopicOffset(
                min_offset=int(least),
                max_offset=int(most),
                last_update_timestamp_ms=last.store_timestamp_ms,
            )
    assert status_table(form_of(version), offsets).strip("\n") == expected
