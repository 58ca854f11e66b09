"""A message is sent or consumed on request, by form or API: once, and never as a false success."""

import asyncio
import base64
import html
import json
import re
import threading

import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.blocking.sync_consumer import SyncPushConsumer
from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.console.act.act_values import NewMessage, form_fields
from rocketlens.console.act.jobs import Acts, ActValue, may_be_done, new_name, now_text
from rocketlens.errors import (
    BadInput,
    BrokerError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    MessageNotFound,
    SendFailed,
)
from rocketlens.terminal.contexts import Context
from rocketlens.wire.codes import ResponseCode
from tests.support.console_client import answer, cluster_at, console_client, post_form


@pytest.fixture
def topic(rocketmq, request):
    """A topic of the test's own."""
    name = request.node.name.split("[")[0][:100]
    with rocketmq.admin() as admin:
        admin.create_topic(name, 1)
    return name


def live(rocketmq):
    return cluster_at(rocketmq.name_server, "live")


def filled(path, to, changes, *contexts):
    """Give the answers to a form that is changed and sent twice, and the page that follows."""

    async def ask():
        async with console_client(*contexts) as client:
            _, fields = post_form((await client.get(path)).text)
            data = {**fields, "reason": "a test", **changes}
            posted = [await client.post(to, data=data) for _ in range(2)]
            target = posted[0].headers.get("location")
            return posted, target and (await client.get(target)).text

    return asyncio.run(ask())


def stored(rocketmq, topic):
    with rocketmq.admin() as admin:
        return list(admin.find(None, topic))


MESSAGE = {
    "cluster": "live",
    "tags": "PAY",
    "keys": " ORDER-1   USER-2 ",
    "properties": "colour=red\r\nshape=a=b\r\n",
    "encoding": "text",
    "body": "一\r\ntwo",
}


def test_a_new_message_is_stored_once_with_all_its_parts(rocketmq, topic):
    data = {**MESSAGE, "topic": topic}
    posted, result = filled("/send", "/send", data, live(rocketmq))
    assert [each.status_code for each in posted] == [303, 303]
    (message,) = stored(rocketmq, topic)
    assert (message.body, message.tags) == ("一\ntwo".encode(), "PAY")
    assert message.keys == ("ORDER-1", "USER-2")
    assert (message.properties["colour"], message.properties["shape"]) == ("red", "a=b")
    assert "The broker has stored it." in result
    assert message.offset_msg_id in result
    listed = answer("/jobs", live(rocketmq)).text
    assert topic in listed


def test_bytes_are_sent_as_base64(rocketmq, topic):
    body = base64.b64encode(bytes(range(256))).decode()
    data = {"cluster": "live", "topic": topic, "encoding": "base64", "body": body}
    filled("/send", "/send", data, live(rocketmq))
    assert [each.body for each in stored(rocketmq, topic)] == [bytes(range(256))]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"topic": "no-such-topic"}, 404),
        ({"topic": "a b"}, 400),
        ({"topic": ""}, 400),
        ({"cluster": "nonsense"}, 400),
        ({"encoding": "base64", "body": "%"}, 400),
        ({"properties": "no value"}, 400),
        ({"properties": "KEYS=x"}, 400),
        ({"reason": ""}, 400),
        ({"name": "x"}, 400),
        ({"body": "x" * (limits.MAX_MESSAGE_BYTES + 1)}, 303),
    ],
)
def test_what_cannot_be_sent_is_said_with_the_form(rocketmq, topic, changes, status):
    data = {**MESSAGE, "topic": topic, **changes}
    posted, result = filled("/send", "/send", data, live(rocketmq))
    assert posted[0].status_code == status
    shown = result or posted[0].text
    assert 'role="alert"' in shown
    assert result is not None or 'name="body"' in shown
    assert stored(rocketmq, topic) == []
    with rocketmq.admin() as admin:
        assert "no-such-topic" not in {each.name for each in admin.topics().topics}


def test_an_edited_message_is_a_new_one(rocketmq, topic):
    with rocketmq.producer() as producer:
        first = producer.send(
            Message(topic, b"one", tags="A", keys="k", properties={"colour": "red"})
        )
    path = f"/m/live/{topic}/-/0/{first.queue_offset}/edit"
    page = answer(path, live(rocketmq)).text
    assert "This is a new message" in page
    posted, _ = filled(path, "/send", {"body": "other", "cluster": "live"}, live(rocketmq))
    assert posted[0].status_code == 303, posted[0].text
    old, new = stored(rocketmq, topic)
    assert (old.body, new.body) == (b"one", b"other")
    assert (new.tags, new.keys, new.properties["colour"]) == ("A", ("k",), "red")
    assert new.unique_key != old.unique_key


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"text\n\tmore", "text"),
        ("订单".encode(), "text"),
        (b"\nfirst", "text"),
        (b"a\r\nb", "base64"),
        (b"\xff\x00", "base64"),
        (b"", "text"),
    ],
)
def test_a_body_comes_back_from_its_form_as_it_was(rocketmq, topic, body, encoding):
    with rocketmq.producer() as producer:
        sent = producer.send(Message(topic, body or b"x"))
    with rocketmq.admin() as admin:
        message = admin.view_message(sent.offset_msg_id)
    fields = form_fields(replace(message, body=body))
    assert fields["encoding"] == encoding
    # As a browser sends it.
    again = {**fields, "body": fields["body"].replace("\n", "\r\n")}
    assert NewMessage.of_form(again).content == body


def failing(monkeypatch, error):
    async def send(*_, **__):
        raise error

    monkeypatch.setattr(Producer, "send", send)


def test_a_send_without_an_answer_is_not_known_and_can_be_looked_for(rocketmq, topic, monkeypatch):
    failing(monkeypatch, SendFailed("x", [("b", CallTimeout("b:1", "no answer in 3 s"))]))
    _, result = filled("/send", "/send", {**MESSAGE, "topic": topic}, live(rocketmq))
    assert "It is not known whether it is stored" in result
    assert "kind=unique-key" in result
    failing(monkeypatch, BrokerError("b:1", 17, "topic is sealed", retriable=False))
    _, result = filled("/send", "/send", {**MESSAGE, "topic": topic}, live(rocketmq))
    assert "It was not stored." in result
    assert "topic is sealed" in result


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (CallTimeout("b", "x"), True),
        (ConnectionLost("b", "x"), True),
        (ConnectFailed("b", "x"), False),
        (BrokerError("b", ResponseCode.CONSUME_MSG_TIMEOUT, "x", retriable=False), True),
        (BrokerError("b", ResponseCode.SYSTEM_ERROR, "x", retriable=False), False),
        (SendFailed("x", [("b", ConnectFailed("b", "x"))]), False),
        (SendFailed("x", [("b", ConnectFailed("b", "x")), ("b", CallTimeout("b", "x"))]), True),
        (BadInput("x"), False),
    ],
)
def test_which_errors_leave_it_open_whether_it_was_done(error, is_open):
    assert may_be_done(error) is is_open


def test_a_read_only_context_has_no_form(rocketmq, topic):
    context = ("live", Context(namesrv=rocketmq.name_server, read_only=True))
    shown = answer("/send", context)
    assert shown.status_code == 403
    assert 'name="body"' not in shown.text


def test_a_client_consumes_a_message_once_and_its_answer_is_shown(rocketmq, topic):
    with rocketmq.producer() as producer:
        sent = producer.send(Message(topic, b"one"))
    path = f"/m/live/{topic}/-/0/{sent.queue_offset}/consume"
    got, consumed = [], threading.Event()

    def listener(messages, _context):
        got.extend(each.body for each in messages)
        consumed.set()
        if len(got) > 2:
            raise ValueError("a mistake of the listener")

    consumer = SyncPushConsumer(rocketmq.name_server, group="direct", begin="first")
    consumer.subscribe(topic)
    consumer.listen(listener)
    with consumer:
        assert consumed.wait(60)
        page = answer(path, live(rocketmq)).text
        clients = set(re.findall(r'href="([^"]*client=[^"]*)"', page))
        (chosen,) = map(html.unescape, clients)
        for said in ("The client has consumed it.", "The client did not consume it."):
            posted, result = filled(chosen, path, {}, live(rocketmq))
            assert [each.status_code for each in posted] == [303, 303]
            assert said in result
    assert got == [b"one"] * 3
    gone, result = filled(chosen, path, {}, live(rocketmq))
    assert gone[0].status_code == 303
    assert "The client did not consume it." in result
    assert got == [b"one"] * 3


async def test_acts_survive_the_console_and_one_that_has_no_end_is_not_known(tmp_path):
    def new():
        options = {"kind": "send", "cluster": "c", "reason": "r", "user": "u", "facts": {}}
        return ActValue(name=new_name(), time=now_text(), **options)

    acts, first = Acts(tmp_path), new()

    async def work():
        return {"msg_id": "m"}

    await acts.do(first, work)
    done = await Acts(tmp_path).act(first.name)
    assert (done.state, done.results) == ("done", {"msg_id": "m"})
    path = acts.path(first.name)
    path.write_text(json.dumps({**json.loads(path.read_text()), "state": "begun"}))
    left = await Acts(tmp_path).act(first.name)
    assert left.state == "unknown"
    for wrong in ("../x", new_name()):
        with pytest.raises(MessageNotFound):
            await acts.act(wrong)


def test_an_act_whose_outcome_cannot_be_written_is_done_and_not_offered_again(
    rocketmq, topic, monkeypatch
):
    written = Acts._write

    def full(self, act):
        if act.state != "begun":
            raise OSError(28, "No space left on device")
        written(self, act)

    monkeypatch.setattr(Acts, "_write", full)
    posted, result = filled("/send", "/send", {**MESSAGE, "topic": topic}, live(rocketmq))
    assert posted[0].status_code == 303
    assert "The broker has stored it." in result
    assert "No space left on device" in result


@pytest.fixture
def message(rocketmq, request):
    """A message of a topic of the test's own, as the API names it."""
    topic = request.node.name.split("[")[0][:100]
    with rocketmq.producer() as producer:
        sent = producer.send(Message(topic, b"a body", keys="k"))
    queue = sent.message_queue.queue_id
    return {"source": "live", "topic": topic, "queue_id": queue, "queue_offset": sent.queue_offset}


def posted(rocketmq, *requests, read_only=False):
    async def ask():
        context = Context(namesrv=rocketmq.name_server, read_only=read_only)
        async with console_client(("live", context)) as client:
            return [await client.post(path, **options) for path, options in requests]

    return asyncio.run(ask())


def copies(rocketmq, topic):
    with rocketmq.admin() as admin:
        return [each for each in admin.find(None, topic) if MARKER in each.properties]


def test_a_plan_sends_nothing_and_its_name_sends_once(rocketmq, message):
    (planned,) = posted(rocketmq, ("/api/resend/plan", {"json": {"message": message}}))
    plan = planned.json()
    assert (plan["count"], plan["messages"][0]["target"]) == (1, message["topic"])
    assert plan["properties"]["KEYS"] == "k"
    assert copies(rocketmq, message["topic"]) == []
    asked = {"message": message, "name": plan["name"], "reason": "lost"}
    answers = posted(rocketmq, *[("/api/resend", {"json": asked})] * 2)
    assert [each.json()["state"] for each in answers] == ["done", "done"]
    (copy,) = copies(rocketmq, message["topic"])
    (row,) = answers[0].json()["messages"]
    assert row["new_offset_msg_id"] == copy.offset_msg_id
    listed = answer("/api/jobs", cluster_at(rocketmq.name_server)).json()["jobs"]
    assert [(each["name"], each["state"]) for each in listed] == [(plan["name"], "done")]
    job = answer(f"/api/jobs/{plan['name']}?state=failed", cluster_at(rocketmq.name_server)).json()
    assert (job["shown"], job["messages"]) == (0, [])


@pytest.mark.parametrize(
    ("changes", "headers", "status"),
    [
        ({"reason": " "}, {}, 400),
        ({"name": "../x"}, {}, 400),
        ({"unknown": 1}, {}, 400),
        ({}, {"origin": "http://evil.example"}, 403),
        ({}, {"sec-fetch-site": "cross-site"}, 403),
        ({}, {"content-type": "text/plain"}, 415),
        ({}, {"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_what_is_refused_does_nothing(rocketmq, message, changes, headers, status):
    asked = {"message": message, "name": new_name(), "reason": "x", **changes}
    (found,) = posted(rocketmq, ("/api/resend", {"json": asked, "headers": headers}))
    assert found.status_code == status
    assert found.json()["error"]["message"]
    assert copies(rocketmq, message["topic"]) == []


def test_a_read_only_cluster_is_not_acted_on(rocketmq, message):
    asked = {"message": message, "name": new_name(), "reason": "x"}
    (found,) = posted(rocketmq, ("/api/resend", {"json": asked}), read_only=True)
    assert (found.status_code, found.json()["error"]["code"]) == (403, "not_allowed")


def test_a_job_that_is_not_there_is_not_found(rocketmq):
    for path in (f"/api/jobs/{new_name()}", "/api/jobs/x"):
        assert answer(path, cluster_at(rocketmq.name_server)).status_code == 404


def test_a_new_message_is_sent_by_the_api(rocketmq, message):
    name = answer("/api/name", cluster_at(rocketmq.name_server)).json()["name"]
    asked = {"cluster": "live", "topic": message["topic"], "name": name, "reason": "a test"}
    requests = [{**asked, "body": "text"}, {**asked, "body": "again"}]
    requests += [{**asked, "name": new_name(), "body": "a", "body_base64": "YQ=="}]
    requests += [{**asked, "name": new_name(), "body": "\ud800"}]
    headers = {"content-type": "application/json"}
    bodies = [{"content": json.dumps(each), "headers": headers} for each in requests]
    found = posted(rocketmq, *[("/api/send", each) for each in bodies])
    assert [each.status_code for each in found] == [200, 200, 400, 400]
    assert found[0].json()["state"] == "done"
    assert found[0].json() == found[1].json()
    kept = answer(f"/api/acts/{name}", cluster_at(rocketmq.name_server))
    assert kept.json() == found[0].json()
    with rocketmq.admin() as admin:
        bodies = sorted(each.body for each in admin.find(None, message["topic"]))
    assert bodies == [b"a body", b"text"]


def test_a_client_that_is_not_there_consumes_nothing(rocketmq, message):
    asked = {"message": message, "group": "g", "client_id": "c", "name": new_name(), "reason": "x"}
    (found,) = posted(rocketmq, ("/api/consume", {"json": asked}))
    assert found.status_code == 200
    assert found.json()["state"] == "failed"
    assert found.json()["why"]
