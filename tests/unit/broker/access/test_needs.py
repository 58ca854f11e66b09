"""What requests need in RocketMQ 5; the tables are held against the real one by the peer tests."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.broker.access.needs import BY_FIELDS, ON_THE_CLUSTER, STRICTER, needs_of
from rocketlens.broker.access.policy import Action
from rocketlens.errors import CommandBodyError
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand


def needs(code, fields=None, body=b""):
    command = RemotingCommand(int(code), ext_fields=fields or {}, body=body)
    return [
        (need.resource.key, ",".join(action.value for action in need.actions))
        for need in needs_of(command, "C")
    ]


SEND = RequestCode.SEND_MESSAGE_V2
PULL = RequestCode.PULL_MESSAGE


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (SEND, {"b": "T", "a": "p"}, [("Topic:T", "Pub")]),
        (SEND, {"b": "%RETRY%g", "a": "g"}, [("Group:g", "Sub"), ("Group:g", "Sub")]),
        (SEND, {"b": "%RETRY%g", "a": "mine"}, [("Group:g", "Sub"), ("Group:mine", "Sub")]),
        (SEND, {}, [("Topic:", "Pub")]),
        (PULL, {"topic": "T", "consumerGroup": "g"}, [("Topic:T", "Sub"), ("Group:g", "Sub")]),
        (
            PULL,
            {"topic": "%RETRY%other", "consumerGroup": "g"},
            [("Group:g", "Sub"), ("Group:other", "Sub")],
        ),
        (RequestCode.LITE_PULL_MESSAGE, {"topic": "T"}, [("Topic:T", "Sub")]),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": "p"}, []),
        (RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "g"}, [("Group:g", "Sub")]),
        (
            RequestCode.GET_CONSUME_STATS,
            {"consumerGroup": "g", "topicList": "a;%RETRY%g"},
            [("Group:g", "Get"), ("Topic:a", "Get"), ("Group:g", "Get")],
        ),
        (RequestCode.AUTH_LIST_USER, {}, [("Cluster:C", "Get")]),
        (RequestCode.AUTH_CREATE_USER, {}, [("Cluster:C", "Update")]),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, [("Cluster:C", "Update")]),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "T"}, [("Topic:T", "Get")]),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}, [("Cluster:C", "Get")]),
        (RequestCode.GET_BROKER_RUNTIME_INFO, {}, []),
        (99_999, {}, []),
    ],
)
def test_a_request_needs_what_its_fields_name(code, fields, expected):
    assert needs(code, fields) == expected


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (
            RequestCode.LOCK_BATCH_MQ,
            {
                "consumerGroup": "g",
                "clientId": "c",
                "mqSet": [
                    {"topic": "T", "brokerName": "b", "queueId": 0},
                    {"topic": "%RETRY%g", "brokerName": "b", "queueId": 0},
                ],
            },
            [("Group:g", "Sub"), ("Topic:T", "Sub")],
        ),
        (
            RequestCode.HEART_BEAT,
            {
                "clientID": "c",
                "consumerDataSet": [
                    {
                        "groupName": "g",
                        "subscriptionDataSet": [{"topic": "T"}, {"topic": "%RETRY%g"}],
                    }
                ],
            },
            [("Group:g", "Sub"), ("Topic:T", "Sub")],
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {"groupName": "g"},
            [("Group:g", "Update")],
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {"groupConfigList": [{"groupName": "g"}, {"groupName": "h"}, 7]},
            [("Group:g", "Update"), ("Group:h", "Update")],
        ),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            {"topicConfigList": [{"topicName": "T"}]},
            [("Topic:T", "Create")],
        ),
    ],
)
def test_a_request_needs_what_its_body_names(code, body, expected):
    assert needs(code, body=json.dumps(body).encode()) == expected
    with pytest.raises(CommandBodyError):
        needs(code, body=b"not JSON")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "no JSON object"),
        (b" " * (limits.MAX_CLIENT_JSON_BODY_BYTES + 1), "bytes, .* allowed"),
    ],
)
def test_a_body_that_may_not_be_read_names_nothing_and_is_refused(body, said):
    with pytest.raises(CommandBodyError, match=said):
        needs(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


def test_no_code_is_in_two_tables():
    assert not BY_FIELDS.keys() & ON_THE_CLUSTER.keys()
    assert not STRICTER.keys() & ON_THE_CLUSTER.keys()
    for actions, kinds in BY_FIELDS.values():
        assert actions
        assert kinds
        assert Action.ANY not in actions


@given(st.sampled_from([*RequestCode]), st.text(max_size=5), st.binary(max_size=30))
def test_whatever_is_sent_it_needs_something_known_or_cannot_be_read(code, text, body):
    names = ("topic", "b", "a", "group", "consumerGroup", "producerGroup", "topicList")
    with suppress(CommandBodyError):
        needs(code, dict.fromkeys(names, text), body)


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b"", "Group:"),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b"{}", "Group:"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[]}', "Topic:"),
    ],
)
def test_a_change_of_nothing_needs_a_permission(code, body, kind):
    assert [resource for resource, _ in needs(code, body=body)] == [kind]
