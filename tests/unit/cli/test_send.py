"""``rocketlens send``: one message, and many from lines or JSON."""

import io
import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from rocketlens import Message
from rocketlens.cli import send_many
from rocketlens.errors import BadInput
from rocketlens.model.life import due_ms
from rocketlens.testing import cluster

PRINTED = re.compile(
    r"SendResult \[sendStatus=SEND_OK, msgId=(?P<msg_id>[0-9A-F]{32,56}), "
    r"offsetMsgId=(?P<offset_msg_id>[0-9A-F]{32}), "
    r"messageQueue=MessageQueue \[topic=(?P<topic>\w+), brokerName=broker-a, "
    r"queueId=(?P<queue_id>\d+)\], queueOffset=(?P<queue_offset>\d+), recallHandle=null\]\n"
)


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


def test_a_message_can_be_delivered_at_a_time(send, admin):
    at = datetime.now(UTC) + timedelta(hours=1)
    sent = json.loads(send("Orders", "later", "--deliver-at", at.isoformat(), "-o", "json").out)
    kept = admin.view_message(sent["offset_msg_id"])
    assert kept.topic == "rmq_sys_wheel_timer"
    # Timers have steps of a second.
    assert 0 <= at.timestamp() * 1000 - due_ms(kept) <= 1_000


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
        (("Orders", "body", "--deliver-at", "soon"), "--deliver-at 'soon' is not a time"),
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


@pytest.fixture
def stored(rocketmq):
    def stored(topic):
        with rocketmq.admin() as admin:
            return admin.find(topic=topic).messages

    return stored


def test_each_line_is_a_message(send, stored, tmp_path):
    lines = [f"line {number} é\t\\".encode() for number in range(3_000)]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines))
    done = send("Lines", "--lines", path, "--tags", "TagA", "--property", "a=b")
    assert (done.code, done.out) == (0, "")
    assert done.err == "rocketlens: sent 3,000 messages, 0 failed\n"
    messages = stored("Lines")
    assert sorted(each.body for each in messages) == sorted(lines)
    assert {(each.tags, each.properties["a"]) for each in messages} == {("TagA", "b")}
    assert len({each.unique_key for each in messages}) == 3_000


def test_one_queue_gets_the_lines_in_their_order(send, stored, monkeypatch):
    text = b"".join(b"%d\n" % number for number in range(2_000))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    done = send("Ordered", "--lines", "-", "--queue", "1", "-o", "json")
    assert json.loads(done.out) == {"sent": 2000, "failed": 0, "stopped_at": None}
    messages = sorted(stored("Ordered"), key=lambda each: each.queue_offset)
    assert [int(each.body) for each in messages] == list(range(2_000))
    assert {each.queue_id for each in messages} == {1}


@pytest.fixture
def printed(run, rocketmq):
    """What ``find`` prints of a topic, as lines of JSON."""

    def printed(topic, form):
        options = ("--body", form) if form else ()
        return run("find", "-t", topic, "-o", "jsonl", "-n", rocketmq.name_server, *options).out

    return printed


@pytest.mark.parametrize("form", ["", "json", "base64"])
def test_what_find_prints_can_be_sent_again(send, stored, printed, tmp_path, form):
    first = {"body_base64": "AP8=", "tags": "A", "keys": ["K1", "K2"], "properties": {"n": "1"}}
    second = {"body": {"sum": 1}, "keys": "K3", "delay_level": None}
    path = tmp_path / "messages.jsonl"
    third = {"body": "/wE=", "body_encoding": "base64"}
    fourth = {"body": None, "body_encoding": "json"}
    fifth = {"body_text": '上海 "\n', "tags": "T"}
    given = (first, second, third, fourth, fifth)
    path.write_text("".join(json.dumps(each) + "\n" for each in given))
    sent, sent_again = f"Sent{form}", f"Again{form}"
    assert send(sent, "--jsonl", path, "--property", "all=1").code == 0
    again = tmp_path / "again.jsonl"
    lines = printed(sent, form)
    assert len(lines.splitlines()) == len(given)
    again.write_text(lines)
    assert send(sent_again, "--jsonl", again).code == 0

    def parts(topic):
        return Counter(
            (each.body, each.tags, each.keys, each.properties.get("n"), each.properties.get("all"))
            for each in stored(topic)
        )

    assert parts(sent_again) == parts(sent)
    sent_parts = parts(sent)
    assert (b"\x00\xff", "A", ("K1", "K2"), "1", "1") in sent_parts
    bodies = {each[0] for each in sent_parts}
    assert bodies > {b"\xff\x01", b"null", '上海 "\n'.encode()}
    assert {each.unique_key for each in stored(sent)}.isdisjoint(
        each.unique_key for each in stored(sent_again)
    )


def test_a_line_that_cannot_be_sent_costs_one_line_and_is_named(send, stored, tmp_path):
    path = tmp_path / "some.jsonl"
    good = json.dumps({"body": "good"})
    bad = ["{", "[]", "{}", '{"body": ""}', '{"body_base64": "?"}', '{"body": "x", "keys": [1]}']
    bad += ['{"body_encoding": "json"}', '{"body": null}', '{"body": "x", "body_text": "x"}']
    bad += ['{"body": "x", "body_encoding": "hex"}', '{"body": 1, "body_encoding": "text"}']
    path.write_text("\n".join([good, *bad, good]) + "\n")
    done = send("Some", "--jsonl", path)
    assert done.code == 2
    said = done.err.splitlines()
    assert said[-1] == "rocketlens: sent 2 messages, 11 failed"
    named = {line.partition(": ")[2].partition(":")[0] for line in said[:-1]}
    assert named == {f"line {number}" for number in range(2, 13)}
    assert [each.body for each in stored("Some")] == [b"good", b"good"]


def test_many_bad_lines_are_counted_and_not_all_shown(send, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text("x\n" * 500)
    done = send("Bad", "--jsonl", path)
    assert (done.code, done.err.count("\n")) == (2, 22)
    assert done.err.endswith("sent 0 messages, 500 failed\n")


def test_a_broker_that_is_gone_ends_it(run, tmp_path):
    path = tmp_path / "lines"
    path.write_text("x\n" * 5_000)
    with cluster() as running:
        with running.producer() as producer:
            producer.send(Message("Gone", "first"))
        running.kill_broker()
        done = run("send", "--namesrv", running.name_server, "Gone", "--lines", path)
    assert done.code == 2
    assert "lines from 1 on were not sent" in done.err
    assert "rocketlens: sent 0 messages, " in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("T",), "BODY"),
        (("T", "x", "--lines", "f"), "exclude BODY"),
        (("T", "--lines", "f", "--sharding-key", "k"), "--sharding-key"),
        (("T", "--lines", "no-such-file"), "no-such-file"),
        (("T", "--lines", "a", "--jsonl", "b"), "not allowed with"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(send, arguments, said):
    done = send(*arguments)
    assert done.code == 2
    assert said in done.err


def test_a_line_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(send_many, "_MAX_LINE_BYTES", 10)
    import asyncio

    async def pieces():
        yield b"x" * 11

    async def send():
        await send_many.ManySender(None, None, print).send(pieces())

    with pytest.raises(BadInput, match="line 1 has more than 10 bytes"):
        asyncio.run(send())
