"""``rocketlens send``."""

import io
import re
from types import SimpleNamespace

import pytest

from rocketlens.testing import cluster

PRINTED = re.compile(
    r"SendResult \[sendStatus=SEND_OK, msgId=(?P<msg_id>[0-9A-F]{32,56}), "
    r"offsetMsgId=(?P<offset_msg_id>[0-9A-F]{32}), "
    r"messageQueue=MessageQueue \[topic=(?P<topic>\w+), brokerName=broker-a, "
    r"queueId=(?P<queue_id>\d+)\], queueOffset=(?P<queue_offset>\d+), recallHandle=null\]\n"
)


@pytest.fixture(scope="module")
def rocketmq():
    """A cluster of one broker for all tests here."""
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def admin(rocketmq):
    with rocketmq.admin() as admin:
        yield admin


@pytest.fixture
def send(run, rocketmq):
    """Give ``send(*arguments)``."""
    return lambda *arguments: run("send", "--namesrv", rocketmq.name_server, *arguments)


def stdin_of(content):
    return SimpleNamespace(buffer=io.BytesIO(content))


def test_a_message_is_stored_with_all_that_was_given(send, admin):
    done = send(
        *("Orders", "héllo", "--tags", "TagA", "--keys", "ORDER-1 ORDER-2", "--queue", "2"),
        *("--property", "colour=red", "--property", "sum=1=1"),
    )
    assert (done.code, done.err) == (0, "")
    printed = PRINTED.fullmatch(done.out)
    message = admin.view_message(printed["offset_msg_id"])
    assert message.unique_key == printed["msg_id"]
    assert (message.body, message.tags, message.keys, message.queue_id) == (
        "héllo".encode(),
        "TagA",
        ("ORDER-1", "ORDER-2"),
        2,
    )
    assert message.properties["colour"] == "red"
    assert message.properties["sum"] == "1=1"


def test_a_body_from_stdin_is_sent_byte_for_byte(send, admin, monkeypatch):
    body = bytes(range(256)) * 3
    monkeypatch.setattr("sys.stdin", stdin_of(body))
    printed = PRINTED.fullmatch(send("Orders", "-").out)
    assert admin.view_message(printed["offset_msg_id"]).body == body


def test_an_argument_that_is_no_text_is_sent_byte_for_byte(send, admin):
    printed = PRINTED.fullmatch(send("Orders", b"caf\xe9".decode("utf-8", "surrogateescape")).out)
    assert admin.view_message(printed["offset_msg_id"]).body == b"caf\xe9"


def test_one_sharding_key_has_one_queue(send):
    queues = {
        PRINTED.fullmatch(send("Orders", "body", "--sharding-key", "user-7").out)["queue_id"]
        for _ in range(4)
    }
    assert len(queues) == 1


def test_a_queue_can_be_named_with_its_broker(send):
    printed = PRINTED.fullmatch(send("Orders", "body", "--queue", "broker-a/1").out)
    assert printed["queue_id"] == "1"


def test_a_delayed_message_waits(send, admin):
    printed = PRINTED.fullmatch(send("Orders", "later", "--delay-level", "18").out)
    assert admin.view_message(printed["offset_msg_id"]).topic == "SCHEDULE_TOPIC_XXXX"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Orders", ""), "empty"),
        (("../../x", "body"), "topic"),
        (("SCHEDULE_TOPIC_XXXX", "body"), "topic"),
        (("Orders", "body", "--property", "novalue"), "NAME=VALUE"),
        (("Orders", "body", "--property", "KEYS=x"), "KEYS"),
        (("Orders", "body", "--property", "a=b\x02c"), "a"),
        (("Orders", "body", "--queue", "99"), "broker-a/0"),
        (("Orders", "body", "--queue", "nobody/0"), "nobody/0"),
        (("Orders", "body", "--queue", "x"), "BROKER/NUMBER"),
        (("Orders", "body", "--queue", "1", "--sharding-key", "k"), "give only one"),
        (("Orders", "body", "--delay-level", "19"), "delay level"),
    ],
)
def test_what_cannot_be_sent_is_one_line_and_code_2(send, arguments, words):
    done = send(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


def test_a_body_over_the_limit_is_refused_and_not_cut(send, monkeypatch):
    monkeypatch.setattr("sys.stdin", stdin_of(bytes(5 << 20)))
    done = send("Orders", "-")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_without_standard_input_that_is_said(send, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    done = send("Orders", "-")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "standard input" in done.err


def test_the_name_server_can_be_in_the_environment(run, rocketmq, monkeypatch):
    assert run("send", "Orders", "body").code == 2
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq.name_server)
    assert run("send", "Orders", "body").code == 0


def test_a_cluster_that_is_not_there_is_one_line_and_code_2(run):
    done = run("send", "--namesrv", "127.0.0.1:1", "Orders", "body")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "127.0.0.1:1: no connection: Connection refused; a name server is expected" in done.err
    assert "check the address, and that it runs (`rocketlens serve` starts one" in done.err
