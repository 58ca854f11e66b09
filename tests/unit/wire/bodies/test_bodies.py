"""The bodies that are declared, each held against what RocketMQ and its brokers wrote."""

import pytest

from rocketlens.errors import CommandBodyError
from rocketlens.model.text.json_dialect import loads
from rocketlens.wire.bodies.auth import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from rocketlens.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumeResult
from rocketlens.wire.declare import TABLES, read_body, write_body
from tests.support.wire_samples import VERSIONS, all_vectors, bodies, java_names_of

CLASSES = {name: cls for cls, table in TABLES.items() for name in table.java_names}

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
