"""How declared headers and bodies are read and written, against what RocketMQ wrote."""

import json
import struct
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.errors import CommandBodyError, FieldError
from rocketlens.model.text.json_dialect import loads
from rocketlens.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketlens.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumeResult,
    HeartbeatData,
)
from rocketlens.wire.bodies.tables import (
    BrokerData,
    ConsumeStats,
    DataVersion,
    MessageQueue,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    decode_registration,
)
from rocketlens.wire.commands.brokers import UPDATE_AND_CREATE_TOPIC
from rocketlens.wire.commands.messages import (
    SEND_MESSAGE_V2,
    SendMessageRequest,
    ViewMessageRequest,
)
from rocketlens.wire.declare import fields_of, read_body, read_i32, read_i64, write_body
from tests.support.wire_samples import CLASSES, VERSIONS, all_vectors, bodies, java_names_of, sample

BODIES = bodies()
each_body = pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
# Members of RocketMQ's that say nothing to us, and what they hold when nothing was said.
EMPTY_IN_5 = {
    "attributes": {},
    "heartbeatFingerprint": 0,
    "mappingDataVersion": None,
    "topicQueueMappingDetailMap": {},
    "topicQueueMappingInfoMap": {},
}


def agree(theirs, ours):
    """Say whether theirs holds nothing that ours has not, but for empty members."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(
            agree(value, ours[name])
            if name in ours
            else name == "mappingDataVersion" or EMPTY_IN_5[name] == value
            for name, value in theirs.items()
        )
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(agree, theirs, ours))
    return bool(theirs == ours)


@pytest.mark.parametrize(("version", "words"), all_vectors("body"))
def test_a_body_of_the_real_rocketmq_is_read_and_written_again(version, words):
    java_name, theirs = words[0], bytes.fromhex(words[1])
    [sent] = [body for body in BODIES if java_name in java_names_of(type(body))]
    made = read_body(type(sent), theirs)
    assert read_body(type(sent), write_body(made)) == made
    assert agree(loads(theirs, CommandBodyError), loads(write_body(sent), CommandBodyError))
    assert agree(loads(theirs, CommandBodyError), loads(write_body(made), CommandBodyError))
    if version == "5.5.0":
        assert made == sent


@pytest.mark.parametrize(("version", "words"), all_vectors("live"))
def test_a_body_of_a_running_broker_is_read_and_written_again(version, words):
    java_name, theirs = words[0], bytes.fromhex(words[1])
    made = read_body(CLASSES[java_name], theirs)
    assert read_body(CLASSES[java_name], write_body(made)) == made
    if b"{0:" not in theirs and java_name != "TopicConfigSerializeWrapper":
        ours = write_body(made)
        if VERSIONS[version] < 413:
            ours = ours.replace(b',"enableActingMaster":false', b"")
        assert ours == theirs


@each_body
def test_a_body_comes_back_as_it_was(body):
    assert read_body(type(body), write_body(body)) == body


@each_body
def test_every_prefix_of_a_body_is_an_error(body):
    written = write_body(body)
    for cut in range(len(written)):
        with pytest.raises(CommandBodyError) as caught:
            read_body(type(body), written[:cut])
        assert not caught.value.closes


@each_body
def test_every_flipped_bit_gives_a_body_or_an_error(body):
    written = write_body(body)
    for at in range(len(written)):
        for bit in range(8):
            flipped = bytearray(written)
            flipped[at] ^= 1 << bit
            try:
                made = read_body(type(body), bytes(flipped))
            except CommandBodyError:
                continue
            assert read_body(type(body), write_body(made)) == made


def test_a_consumers_answer_is_written_as_rocketmqs_tools_expect_it():
    result = ConsumeMessageDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS, spent_time_ms=3)
    assert write_body(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
    )


ALICE = UserInfo(username="alice", password="12345678", user_type="Normal", user_status="enable")
ENTRY = PolicyEntryInfo(
    resource="Topic:orders*", actions=("Pub", "Sub"), source_ips=("10.0.0.0/8",), decision="Allow"
)
ACL = AclInfo(subject="User:alice", policies=(PolicyInfo(policy_type="Custom", entries=(ENTRY,)),))
NOT_LISTS = [b"{}", b"7", b"null", b'["alice"]', b"[[]]", b'[{"username":[],"subject":[]}]']
each_list = pytest.mark.parametrize(
    ("cls", "values"),
    [
        (tuple[UserInfo, ...], (ALICE, UserInfo(username="bob"))),
        (tuple[AclInfo, ...], (ACL, AclInfo(subject="User:bob"))),
    ],
    ids=["users", "acls"],
)


@each_list
def test_lists_of_users_and_of_policies_come_back(cls, values):
    assert read_body(cls, write_body(values)) == values
    assert read_body(cls, write_body(())) == ()


@each_list
def test_every_prefix_of_a_list_of_users_or_policies_is_an_error(cls, values):
    written = write_body(values)
    for cut in range(1, len(written)):
        with pytest.raises(CommandBodyError):
            read_body(cls, written[:cut])


@each_list
@pytest.mark.parametrize("body", [*NOT_LISTS, b"[" * 100_000])
def test_a_body_that_is_no_list_of_users_or_policies_is_an_error(cls, values, body):
    with pytest.raises(CommandBodyError):
        read_body(cls, body)


VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_000}
TOPICS = {
    "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6),
    "%RETRY%g": TopicConfig(
        topic_name="%RETRY%g",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=7,
        topic_filter_type=TopicFilterType.MULTI_TAG,
    ),
}
BODY = RegisterBrokerBody(
    topic_config_table=TopicConfigTable(
        data_version=DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
        topic_config_table=TOPICS,
    ),
    filter_server_list=("10.0.0.1:7000",),
)


def part(content):
    return struct.pack(">i", len(content)) + content


def parts(version=5):
    """Write BODY in parts, as the Java class does."""
    written = part(json.dumps(VERSION).encode()) + struct.pack(">i", len(TOPICS))
    for each in TOPICS.values():
        words = [each.topic_name, each.read_queue_nums, each.write_queue_nums, each.perm]
        line = " ".join(map(str, [*words, each.topic_filter_type.name, ""]))
        written += part(f"{line}{{}}".encode() if version >= 5 else line.encode())
    written += part(b'["10.0.0.1:7000"]')
    return written + struct.pack(">i", 0) if version >= 5 else written


@pytest.mark.parametrize("version", [4, 5])
def test_a_compressed_registration_says_the_same_as_a_plain_one(version):
    assert decode_registration(write_body(BODY)) == BODY
    assert decode_registration(zlib.compress(parts(version)), compressed=True) == BODY


def test_no_body_is_a_broker_without_topics():
    assert decode_registration(b"") == RegisterBrokerBody()


def test_a_broker_before_3_0_11_sends_its_topics_alone():
    content = write_body(BODY.topic_config_table)
    read = decode_registration(content, version=0)
    assert read.topic_config_table == BODY.topic_config_table
    assert read.filter_server_list == ()


def test_a_compressed_registration_cut_anywhere_is_an_error():
    packed = zlib.compress(parts())
    for length in range(1, len(packed)):
        with pytest.raises(CommandBodyError):
            decode_registration(packed[:length], compressed=True)
    plain = parts(4)
    for length in range(len(plain)):
        with pytest.raises(CommandBodyError):
            decode_registration(zlib.compress(plain[:length]), compressed=True)


@given(st.data())
def test_whatever_is_in_it_is_a_registration_or_an_error(data):
    plain = bytearray(parts())
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CommandBodyError):
        decode_registration(zlib.compress(bytes(plain)), compressed=True)


def test_a_bomb_stops_at_the_limit():
    bomb = zlib.compress(bytes(8 * limits.MAX_JSON_BODY_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(CommandBodyError, match="over"):
            decode_registration(bomb, compressed=True)
        assert tracemalloc.get_traced_memory()[1] <= 3 * limits.MAX_JSON_BODY_BYTES
    finally:
        tracemalloc.stop()


def test_a_count_of_topics_that_cannot_be_is_an_error_before_any_work():
    lie = part(json.dumps(VERSION).encode()) + struct.pack(">i", 2**31 - 1)
    with pytest.raises(CommandBodyError, match="a length of 2147483647"):
        decode_registration(zlib.compress(lie), compressed=True)


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
    names = tuple(field.name for field in fields_of(SendMessageRequest))
    picked = codec.picker(*names)(codec.encode(header))
    assert picked == tuple(getattr(header, name) for name in names)


def test_a_header_cannot_be_changed_and_takes_names_only():
    header = sample(ViewMessageRequest, 1000)
    with pytest.raises(AttributeError):
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
