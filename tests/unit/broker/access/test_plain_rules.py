"""Accounts of RocketMQ 4: who may do what, decided on a request and an address."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.broker.access.addresses import parse_pattern
from rocketlens.broker.access.plain_rules import (
    ADMIN_CODES,
    Permission,
    PlainRules,
    account_of,
)
from rocketlens.errors import BadInput
from rocketlens.wire.acl import signed_fields
from rocketlens.wire.bodies.auth import PlainAccessConfig
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand

SECRET = "12345678"
HOST = "10.0.0.7"


def account(name="orders-app", **changes):
    return account_of(PlainAccessConfig(access_key=name, secret_key=SECRET, **changes))


APP = account(
    default_group_perm="DENY",
    topic_perms=("Orders=PUB", "Both=SUB|PUB", "Closed=DENY", "ReadOnly=SUB", "Typo=PUBSUB"),
    group_perms=("readers=SUB",),
)
RULES = PlainRules({"orders-app": APP, "admin-app": account("admin-app", admin=True)})


def refusal(code, fields, body=b"", *, user="orders-app", secret=SECRET, rules=RULES, host=HOST):
    signed = signed_fields(fields, body, user, secret)
    answer = rules.decide(RemotingCommand(int(code), ext_fields=signed, body=body), host)
    if answer is None:
        return None
    assert answer.code == 1
    return answer.remark.removeprefix("org.apache.rocketmq.acl.common.AclException: ")


@pytest.mark.parametrize(
    ("topic", "sends", "reads"),
    [
        ("Orders", True, False),
        ("Both", True, True),
        ("ReadOnly", False, True),
        ("Closed", False, False),
        ("Typo", False, False),
        ("Other", False, False),
    ],
)
def test_a_topic_is_sent_to_and_read_with_its_permission(topic, sends, reads):
    for code, name in (
        (RequestCode.SEND_MESSAGE, "topic"),
        (RequestCode.SEND_MESSAGE_V2, "b"),
        (RequestCode.SEND_BATCH_MESSAGE, "b"),
    ):
        assert (refusal(code, {name: topic}) is None) is sends
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        fields = {"topic": topic, "consumerGroup": "readers"}
        assert (refusal(code, fields) is None) is reads
        assert refusal(code, fields | {"consumerGroup": "others"}) is not None
    assert (refusal(RequestCode.QUERY_MESSAGE, {"topic": topic}) is None) is reads


def test_a_retry_topic_stands_for_its_group_whatever_the_producer_says():
    send = RequestCode.SEND_MESSAGE_V2
    assert refusal(send, {"b": "%RETRY%readers", "a": "readers"}) is None
    words = "No default permission for group:others"
    assert refusal(send, {"b": "%RETRY%others", "a": "readers"}) == words
    assert refusal(send, {"b": "%RETRY%others"}) == words
    assert refusal(RequestCode.SEND_MESSAGE, {"topic": "%RETRY%others"}) == words


def test_a_heartbeat_needs_every_group_and_topic_in_it():
    def beat(group, topic):
        consumer = {"groupName": group, "subscriptionDataSet": [{"topic": topic}]}
        body = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
        return refusal(RequestCode.HEART_BEAT, {}, body)

    assert beat("readers", "ReadOnly") is None
    assert beat("readers", "Orders") == "No default permission for topic:Orders"
    assert beat("others", "ReadOnly") == "No default permission for group:others"
    assert refusal(RequestCode.HEART_BEAT, {}, b"not JSON") is not None


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_an_administrators_request_needs_one(code):
    words = f"Need admin permission for request code={code}, but accessKey=orders-app is not"
    assert refusal(code, {}) == words
    assert refusal(code, {}, user="admin-app") is None


def test_an_administrator_without_permissions_may_do_everything_and_one_with_only_those():
    send = RequestCode.SEND_MESSAGE_V2
    assert refusal(send, {"b": "Other"}, user="admin-app") is None
    some = account("admin-app", admin=True, topic_perms=("Orders=PUB",))
    rules = PlainRules({"admin-app": some})
    assert refusal(send, {"b": "Orders"}, user="admin-app", rules=rules) is None
    assert refusal(send, {"b": "Other"}, user="admin-app", rules=rules) is not None


def test_a_request_without_an_account_or_with_a_wrong_signature_is_refused():
    command = RemotingCommand(int(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert RULES.decide(command, HOST).remark.endswith("No accessKey is configured")
    assert refusal(28, {}, user="nobody") == "No acl config for nobody"
    words = "Check signature failed for accessKey=orders-app"
    assert refusal(28, {}, secret="87654321") == words
    unsigned = RemotingCommand(28, ext_fields={"AccessKey": "orders-app"})
    assert RULES.decide(unsigned, HOST).remark.endswith(words)


def test_every_account_may_trace_its_messages():
    assert refusal(RequestCode.SEND_MESSAGE_V2, {"b": "RMQ_SYS_TRACE_TOPIC"}) is None
    assert refusal(RequestCode.QUERY_MESSAGE, {"topic": "RMQ_SYS_TRACE_TOPIC"}) is not None


def test_a_white_address_needs_no_signature():
    everybody = PlainRules({}, (parse_pattern("10.0.*.*"),))
    command = RemotingCommand(int(RequestCode.UPDATE_BROKER_CONFIG))
    assert everybody.decide(command, HOST) is None
    assert everybody.decide(command, "11.0.0.7") is not None
    assert everybody.decide(command, "unknown") is not None
    own = PlainRules({"orders-app": account(white_remote_address=HOST)})
    assert refusal(25, {}, secret="wrong", rules=own) is None
    assert refusal(25, {}, secret="wrong", rules=own, host="10.0.0.8") is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"access_key": "short"}, "longer than 6"),
        ({"secret_key": "secret"}, "longer than 6"),
        ({"secret_key": None}, "longer than 6"),
        ({"topic_perms": ("Orders",)}, "failed for topic:Orders"),
        ({"group_perms": ("a=b=c",)}, "failed for group:a=b=c"),
        ({"white_remote_address": "10.0.0"}, "'10.0.0' is not an address"),
    ],
)
def test_an_account_that_cannot_be_read_is_bad_input_without_its_secret(changes, words):
    members = {"access_key": "orders-app", "secret_key": "s3cret-s3cret", **changes}
    with pytest.raises(BadInput, match=words) as caught:
        account_of(PlainAccessConfig(**members))
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(APP)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8)), st.binary(max_size=20))
def test_whatever_a_stranger_sends_is_refused(fields, body):
    for code in (*RequestCode, 99_999):
        command = RemotingCommand(int(code), ext_fields=fields, body=body)
        assert RULES.decide(command, HOST) is not None


@given(st.sampled_from([*RequestCode]), st.binary(max_size=30), st.text(max_size=6))
def test_whatever_an_account_sends_is_decided(code, body, text):
    names = ("topic", "b", "a", "group", "consumerGroup", "producerGroup")
    refusal(code, dict.fromkeys(names, text), body)


def test_deny_counts_more_than_any_other_permission():
    mixed = Permission.DENY | Permission.PUB
    denied = account()
    assert not denied.may("Orders", Permission.PUB)
    assert not type(APP)("a", "s", permissions={"T": mixed}).may("T", Permission.PUB)
