import json

import pytest

from rocketlens.errors import CommandBodyError
from rocketlens.model.json_dialect import loads
from rocketlens.wire.bodies import consumer, heartbeat, route, stats, topic
from rocketlens.wire.declare import declared_classes, java_name_of, read_body, write_body
from tests.unit.wire.wire_samples import VERSIONS, all_vectors, bodies

CLASSES = {java_name_of(cls): cls for cls in declared_classes()}
BODIES = bodies()

each_body = pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)


# Members of RocketMQ's that say nothing to us, and what they hold when nothing was said.
EMPTY_IN_5 = {
    "attributes": {},
    "heartbeatFingerprint": 0,
    "mappingDataVersion": None,
    "mqPopTable": {},
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
    [sent] = [body for body in BODIES if java_name_of(type(body)) == java_name]
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


def test_maps_by_queue_have_objects_for_keys_and_are_read_with_quoted_ones_too():
    table = stats.TopicStatsTable(
        offset_table={
            stats.MessageQueueBody(topic="t", broker_name="b", queue_id=number): stats.TopicOffset(
                max_offset=number
            )
            for number in range(3)
        }
    )
    written = write_body(table)
    assert written.startswith(
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"lastUpdateTimestamp":0,'
    )
    assert read_body(stats.TopicStatsTable, written) == table
    quoted = {
        json.dumps({"topic": "t", "brokerName": "b", "queueId": number}): {"maxOffset": number}
        for number in range(3)
    }
    assert read_body(stats.TopicStatsTable, json.dumps({"offsetTable": quoted}).encode()) == table


@pytest.mark.parametrize("key", ["0", '"0"', " 0 ", '"0" '])
def test_broker_ids_are_read_with_and_without_quotes_and_written_with(key):
    text = f'{{"brokerName":"b","brokerAddrs":{{{key}:"10.0.0.1:10911"}}}}'
    brokers = read_body(route.BrokerData, text.encode())
    assert brokers.broker_addrs == {0: "10.0.0.1:10911"}
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in write_body(brokers)


def test_unknown_members_and_names_of_newer_releases_are_ignored():
    text = (
        b'{"clientID":"c","new":{"a":[{0:1}]},"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":"CONSUME_BY_DREAM","subscriptionDataSet":null},null]}'
    )
    data = read_body(heartbeat.HeartbeatData, text)
    assert data.consumer_datas == (heartbeat.ConsumerData(group_name="g"),)


def test_numbers_in_quotes_are_numbers():
    text = b'{"topicName":"t","perm":"6","order":"TRUE","readQueueNums":"4"}'
    assert read_body(topic.TopicConfig, text) == topic.TopicConfig(
        topic_name="t", perm=6, order=True, read_queue_nums=4
    )


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
        read_body(route.TopicList, hostile)
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
        read_body(topic.TopicConfig, text)


@pytest.mark.parametrize("text", ["1e999", '"nan"', '"inf"', "[]", '"x"', "9" * 400])
def test_a_rate_is_a_finite_number(text):
    with pytest.raises(CommandBodyError):
        read_body(stats.ConsumeStats, f'{{"consumeTps":{text}}}'.encode())


def test_where_plain_json_is_asked_for_the_other_dialect_is_an_error():
    text = b'{"clientID":"c","x":{1:2}}'
    read_body(heartbeat.HeartbeatData, text)
    with pytest.raises(CommandBodyError):
        read_body(heartbeat.HeartbeatData, text, is_plain=True)


def test_a_body_over_its_bound_is_not_even_read():
    written = write_body(route.TopicList(topic_list=("t",) * 100))
    assert read_body(route.TopicList, written, len(written))
    with pytest.raises(CommandBodyError):
        read_body(route.TopicList, written, len(written) - 1)


def test_a_consumers_answer_is_written_as_rocketmqs_tools_expect_it():
    result = consumer.ConsumeMessageDirectlyResult(
        consume_result=consumer.ConsumeResult.CR_SUCCESS, spent_time_ms=3
    )
    assert write_body(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
    )
