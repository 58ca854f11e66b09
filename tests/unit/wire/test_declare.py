"""How declared headers and bodies are read and written, whatever they declare."""

import dataclasses
import json

import pytest

from rocketlens.errors import CommandBodyError, FieldError
from rocketlens.wire.bodies.clients import ConsumerData, HeartbeatData
from rocketlens.wire.bodies.tables import (
    BrokerData,
    ConsumeStats,
    MessageQueue,
    TopicConfig,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketlens.wire.commands.brokers import UPDATE_AND_CREATE_TOPIC
from rocketlens.wire.commands.messages import (
    SEND_MESSAGE_V2,
    SendMessageRequest,
    ViewMessageRequest,
)
from rocketlens.wire.declare import TABLES, read_body, read_i32, read_i64, write_body
from tests.support.wire_samples import sample


@pytest.mark.parametrize(
    ("read", "largest"), [(read_i32, 2**31 - 1), (read_i64, 2**63 - 1)], ids=["i32", "i64"]
)
def test_numbers_are_read_as_java_reads_them(read, largest):
    for number in (0, 7, largest, -largest - 1, largest // 10):
        assert read(str(number)) == number
    assert read("+5") == 5
    assert read("-0") == 0
    assert read("0" * 40 + "18") == 18
    assert read("\uff11\uff18") == 18
    for wrong in (str(largest + 1), str(-largest - 2), "²", "三"):
        with pytest.raises(FieldError):
            read(wrong)


def test_a_boolean_is_true_in_any_case_of_letters_or_else_false():
    codec = UPDATE_AND_CREATE_TOPIC.request
    ext_fields = codec.encode(sample(codec.header_class, 1000))
    for text, expected in (("true", True), ("TRUE", True), ("yes", False), ("1", False)):
        assert codec.decode(ext_fields | {"order": text}).order is expected


def test_a_picker_reads_what_decode_reads():
    codec = SEND_MESSAGE_V2.request
    header = sample(SendMessageRequest, 1000)
    names = tuple(field.name for field in TABLES[SendMessageRequest].fields)
    picked = codec.picker(*names)(codec.encode(header))
    assert picked == tuple(getattr(header, name) for name in names)


def test_a_header_cannot_be_changed_and_takes_names_only():
    header = sample(ViewMessageRequest, 1000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        header.topic = "other"
    with pytest.raises(TypeError):
        ViewMessageRequest(5)


def test_maps_by_queue_have_objects_for_keys_and_are_read_with_quoted_ones_too():
    table = TopicStatsTable(
        offset_table={
            MessageQueue(topic="t", broker_name="b", queue_id=number): TopicOffset(
                max_offset=number
            )
            for number in range(3)
        }
    )
    written = write_body(table)
    assert written.startswith(
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"lastUpdateTimestamp":0,'
    )
    assert read_body(TopicStatsTable, written) == table
    quoted = {
        json.dumps({"topic": "t", "brokerName": "b", "queueId": number}): {"maxOffset": number}
        for number in range(3)
    }
    assert read_body(TopicStatsTable, json.dumps({"offsetTable": quoted}).encode()) == table


@pytest.mark.parametrize("key", ["0", '"0"', " 0 ", '"0" '])
def test_broker_ids_are_read_with_and_without_quotes_and_written_with(key):
    text = f'{{"brokerName":"b","brokerAddrs":{{{key}:"10.0.0.1:10911"}}}}'
    brokers = read_body(BrokerData, text.encode())
    assert brokers.broker_addrs == {0: "10.0.0.1:10911"}
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in write_body(brokers)


def test_unknown_members_and_names_of_newer_releases_are_ignored():
    text = (
        b'{"clientID":"c","new":{"a":[{0:1}]},"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":"CONSUME_BY_DREAM","subscriptionDataSet":null},null]}'
    )
    data = read_body(HeartbeatData, text)
    assert data.consumer_datas == (ConsumerData(group_name="g"),)


def test_numbers_in_quotes_are_numbers():
    text = b'{"topicName":"t","perm":"6","order":"TRUE","readQueueNums":"4"}'
    assert read_body(TopicConfig, text) == TopicConfig(
        topic_name="t", perm=6, order=True, read_queue_nums=4
    )


def test_numbers_and_booleans_are_texts_where_a_text_is_declared():
    for written, read in ((b"true", "true"), (b"false", "false"), (b"17", "17"), (b"1.5", "1.5")):
        text = b'{"topicName":%s,"perm":6}' % written
        assert read_body(TopicConfig, text).topic_name == read


def test_of_all_numbers_only_1_is_true():
    for number, expected in ((1, True), (0, False), (2, False)):
        text = f'{{"topicName":"t","perm":6,"order":{number}}}'
        assert read_body(TopicConfig, text.encode()).order is expected


HOSTILE = {
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep in the other dialect": b"{1:" * 100_000 + b"1" + b"}" * 100_000,
    "65 levels": b'{"topicList":[],"x":' + b"[" * 65 + b"]" * 65 + b"}",
    "a huge integer": b'{"topicList":[],"x":' + b"9" * 10_000 + b"}",
    "a huge integer for a key": b'{"topicList":[],"x":{' + b"9" * 10_000 + b":1}}",
    "NaN": b'{"topicList":[],"x":NaN}',
    "NaN in the other dialect": b'{"topicList":[],"x":{1:NaN}}',
    "infinity": b'{"topicList":[],"x":-Infinity}',
    "a lone surrogate": b'{"topicList":["\\ud800"]}',
    "a lone surrogate elsewhere": b'{"topicList":[],"\\udc00":1}',
    "a name twice": b'{"topicList":[],"topicList":["a"]}',
    "a name twice in the other dialect": b'{"topicList":[],"x":{0:1,"0":2}}',
    "not UTF-8": b'{"topicList":["\xff"]}',
    "an array": b"[]",
    "nothing": b"",
    "text behind": b'{"topicList":[]}x',
    "a text for an array": b'{"topicList":"abc"}',
    "an object in an array of texts": b'{"topicList":[{}]}',
    "true for a key": b'{"topicList":[],"x":{true:1}}',
    "an open array": b'{"topicList":[',
    "an open object in the other dialect": b'{"x":{1:',
    "nothing between commas": b'{"topicList":[],"x":{1:2,,3:4}}',
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_a_command_body_error_and_nothing_else(hostile):
    with pytest.raises(CommandBodyError) as caught:
        read_body(TopicList, hostile)
    assert len(str(caught.value)) < 300
    assert caught.value.remark == str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"topicName":1.5,"perm":true}',
        b'{"topicName":"t","perm":2147483648}',
        b'{"topicName":"t","perm":"x"}',
        b'{"topicName":"t","attributes":[]}',
        b'{"topicName":[],"perm":6}',
        b'{"topicName":"t","order":{}}',
        b'{"topicName":"t","topicFilterType":{}}',
    ],
)
def test_a_member_that_is_missing_or_of_another_type_is_an_error(text):
    with pytest.raises(CommandBodyError):
        read_body(TopicConfig, text)


@pytest.mark.parametrize("text", ["1e999", '"nan"', '"inf"', "[]", '"x"', "9" * 400])
def test_a_rate_is_a_finite_number(text):
    with pytest.raises(CommandBodyError):
        read_body(ConsumeStats, f'{{"consumeTps":{text}}}'.encode())


def test_where_plain_json_is_asked_for_the_other_dialect_is_an_error():
    text = b'{"clientID":"c","x":{1:2}}'
    read_body(HeartbeatData, text)
    with pytest.raises(CommandBodyError):
        read_body(HeartbeatData, text, is_plain=True)


def test_a_body_over_its_bound_is_not_even_read():
    written = write_body(TopicList(topic_list=("t",) * 100))
    assert read_body(TopicList, written, len(written))
    with pytest.raises(CommandBodyError):
        read_body(TopicList, written, len(written) - 1)
