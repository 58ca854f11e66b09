"""The bodies that are declared, each held against what RocketMQ and its brokers wrote."""

import pytest

from rocketlens.errors import CommandBodyError
from rocketlens.model.json_dialect import loads
from rocketlens.wire.bodies import consumer
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


def test_a_consumers_answer_is_written_as_rocketmqs_tools_expect_it():
    result = consumer.ConsumeMessageDirectlyResult(
        consume_result=consumer.ConsumeResult.CR_SUCCESS, spent_time_ms=3
    )
    assert write_body(result) == (
        b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}'
    )
