"""The check before handlers: what a request needs, what is refused, and the settings of both."""

import json
import logging
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.broker.access.guard import (
    AUDITED,
    LARGE_SIGNED_BYTES,
    LINES_PER_S,
    Audit,
    guard_handlers,
)
from rocketlens.broker.access.needs import BY_FIELDS, ON_THE_CLUSTER, STRICTER, needs_of
from rocketlens.broker.access.policy import Action
from rocketlens.broker.access_config import AuthConfig, codes_in
from rocketlens.errors import BadInput, CommandBodyError
from rocketlens.net.channel import Response
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import RemotingCommand
from tests.support.broker_world import settings_of
from tests.support.clocks import Seconds


class Peer:
    """The address of a connection."""

    address = "10.0.0.7:4321"
    is_open = True


class Rules:
    """Lets through what has a field."""

    def decide(self, command, host):
        assert host == "10.0.0.7"
        refused = Response(16, remark="no\nway")
        return None if "AccessKey" in command.ext_fields else refused


def command(code, user=None, body=b"", **fields):
    signed = fields if user is None else {"AccessKey": user, **fields}
    return RemotingCommand(int(code), ext_fields=signed, body=body)


def test_a_handler_runs_only_if_the_request_is_let_through():
    done = []

    def handler(request, _):
        done.append(request.code)
        return Response()

    audit = Audit()
    handlers = guard_handlers({10: handler}, Rules().decide, audit)
    assert handlers[10](command(10), Peer()).code == 16
    assert done == []
    assert handlers[10](command(10, "app"), Peer()).code == 0
    assert done == [10]
    assert audit.refused == 1


def test_every_code_is_guarded():
    handlers = guard_handlers({}, Rules().decide, Audit())
    assert handlers.keys() == set(map(int, RequestCode))
    for code, handler in handlers.items():
        assert handler(command(code), Peer()).code == 16
        assert handler(command(code, "app"), Peer()).code == 3


@pytest.mark.parametrize("user", ["app", None])
async def test_a_large_body_is_checked_in_a_thread_and_then_handled(user):
    async def slow(request, _):
        return Response(remark=str(len(request.body)))

    large = bytes(LARGE_SIGNED_BYTES + 1)
    for handler in (slow, lambda request, _: Response(remark=str(len(request.body)))):
        handlers = guard_handlers({10: handler, 25: handler}, Rules().decide, Audit())
        for code in (10, 25):
            answer = await handlers[code](command(code, user, large), Peer())
            assert answer.remark == ("no\nway" if user is None else str(len(large)))


def test_the_audit_log_has_lines_of_what_was_refused_and_what_administrators_did(caplog):
    caplog.set_level(logging.INFO, "rocketlens.audit")
    handlers = guard_handlers({}, Rules().decide, Audit(Seconds(5.0)))
    handlers[10](command(10, topic="a\x1b[2J"), Peer())
    handlers[17](command(17, "admin\n", topic="New"), Peer())
    handlers[10](command(10, "app", topic="Quiet"), Peer())
    assert [record.getMessage() for record in caplog.records] == [
        "refused 10 SEND_MESSAGE topic=a\\x1b[2J of nobody from 10.0.0.7:4321: no\\nway",
        "admitted 17 UPDATE_AND_CREATE_TOPIC topic=New of admin\\n from 10.0.0.7:4321",
    ]
    assert RequestCode.AUTH_LIST_USER in AUDITED


def test_many_refusals_are_counted_instead_of_written(caplog):
    clock = Seconds(5.0)
    audit = Audit(clock)
    handlers = guard_handlers({}, Rules().decide, audit)
    for _ in range(LINES_PER_S + 5):
        handlers[10](command(10), Peer())
    assert len(caplog.records) == LINES_PER_S
    clock.now_s += 1
    handlers[10](command(10), Peer())
    assert caplog.records[-1].getMessage().endswith("(5 refusals before it are not shown)")
    assert audit.refused == LINES_PER_S + 6


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
        (b"[]", "not a JSON object"),
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


PACKAGE = "org.apache.rocketmq.auth."
USER = '{"username":"admin","password":"s3cret-s3cret"}'


def read(**values):
    return AuthConfig.from_properties(values)[0]


def test_it_is_off_unless_it_is_switched_on():
    assert not read().is_on
    assert read(aclEnable="true").is_on
    assert read(authenticationEnabled="true").is_on


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"aclEnable": "true", "authenticationEnabled": "true"}, "two kinds"),
        ({"authorizationEnabled": "true"}, "set authenticationEnabled=true, too"),
        ({"migrateAuthFromV1Enabled": "true"}, "set authenticationEnabled=true, too"),
        ({"authenticationProvider": "com.example.Mine"}, "authenticationProvider"),
        ({"authorizationProvider": "com.example.Mine"}, "authorizationProvider"),
        ({"authenticationMetadataProvider": "com.example.Mine"}, "MetadataProvider"),
        ({"authorizationMetadataProvider": "com.example.Mine"}, "MetadataProvider"),
        ({"authenticationStrategy": "com.example.Mine"}, "authenticationStrategy"),
        ({"authorizationStrategy": "com.example.Mine"}, "authorizationStrategy"),
        ({"authenticationWhitelist": "10,send"}, "request codes"),
        ({"authorizationWhitelist": "10,-1"}, "request codes"),
        ({"aclEnable": "yes"}, "neither true nor false"),
    ],
)
def test_what_is_not_supported_is_refused(values, words):
    with pytest.raises(BadInput, match=words):
        read(**values)


@pytest.mark.parametrize(
    "text",
    ['{"username":"admin"}', "admin:s3cret", "{", "[1]", '{"username":1,"password":"s3cret"}'],
)
def test_a_first_user_that_cannot_be_read_is_refused_without_its_password(text):
    with pytest.raises(BadInput, match="initAuthenticationUser is not of the form") as caught:
        read(initAuthenticationUser=text)
    assert "s3cret" not in str(caught.value)


def test_no_secret_is_shown(tmp_path):
    inner = '{"accessKey":"proxy","secretKey":"s3cret-s3cret"}'
    values = {"initAuthenticationUser": USER, "innerClientAuthenticationCredentials": inner}
    config = read(authenticationEnabled="true", **values)
    assert config.first_users() == [("admin", "s3cret-s3cret"), ("proxy", "s3cret-s3cret")]
    assert "s3cret" not in f"{config!r} {config} {config.properties()}"
    settings = settings_of(tmp_path, authenticationEnabled=True, **values)
    assert "s3cret" not in str(settings.properties_in_effect(10911))
    assert "s3cret" not in repr(settings)


def test_rocketmqs_own_classes_are_accepted():
    read(
        authenticationEnabled="true",
        authenticationProvider=f"{PACKAGE}authentication.provider.DefaultAuthenticationProvider",
        authenticationStrategy=f"{PACKAGE}authentication.strategy.StatefulAuthenticationStrategy",
        authorizationStrategy=f"{PACKAGE}authorization.strategy.StatelessAuthorizationStrategy",
    )


def test_a_white_list_has_codes_and_names_of_the_proxy():
    config = read(authenticationWhitelist=" 105, 34,apache.rocketmq.v2.QueryRouteRequest")
    assert codes_in(config.authenticationWhitelist) == {105, 34}


def test_the_directory_of_accounts_is_a_key_or_the_environments(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(BadInput, match="set rocketmqHome"):
        _ = read(aclEnable="true").home
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
    assert read(aclEnable="true").home == Path("/opt/rocketmq")
    assert read(aclEnable="true", rocketmqHome="/srv").home == Path("/srv")
