"""A stored message is sent again: shown first, with a reason, once, and with what became of it."""

import asyncio
import io
import json
from urllib.parse import quote

import pytest

from rocketlens import limits
from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.masks import MaskRule, Masks
from rocketlens.errors import BrokerError, CallTimeout, SendFailed
from rocketlens.terminal.contexts import Context
from tests.support.console_client import (
    answer,
    cluster_at,
    console_client,
    log_in,
    post_form,
    store_at,
)
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store


@pytest.fixture
def topic(rocketmq, request):
    """A topic of the test's own with one message."""
    name = request.node.name.split("[")[0][:100]
    with rocketmq.producer() as producer:
        sent = producer.send(Message(name, b"a body", tags="A", keys="k"))
    queue = sent.message_queue
    return name, f"/m/live/{name}/-/{queue.queue_id}/{sent.queue_offset}"


def copies(rocketmq, topic):
    with rocketmq.admin() as admin:
        return [each for each in admin.find(None, topic) if MARKER in each.properties]


def asked(steps, *contexts, **options):
    """Give what a function returns that is given a client of a console."""

    async def ask():
        async with console_client(*contexts, **options) as client:
            return await steps(client)

    return asyncio.run(ask())


def resend(path, query="", reason="ticket 7"):
    """Give steps that show a form, send it twice and follow it: all answers."""

    async def steps(client):
        shown = await client.get(f"{path}/resend{query}")
        _, fields = post_form(shown.text)
        posted = [
            await client.post(f"{path}/resend", data={**fields, "reason": reason}) for _ in range(2)
        ]
        target = posted[0].headers.get("location")
        return shown, posted, target and await client.get(target)

    return steps


def live(rocketmq):
    return cluster_at(rocketmq.name_server, "live")


def test_it_is_shown_sent_once_and_its_result_has_an_address(rocketmq, topic):
    log = io.StringIO()
    name, path = topic
    shown, posted, result = asked(resend(path), live(rocketmq), audit=AuditLog(log))
    assert "every consumer group of the topic" in shown.text
    assert [each.status_code for each in posted] == [303, 303]
    assert posted[0].headers["location"] == posted[1].headers["location"]
    (copy,) = copies(rocketmq, name)
    assert (copy.body, copy.tags, copy.keys) == (b"a body", "A", ("k",))
    assert "1 sent, 0 failed, 0 unknown, 0 left" in result.text
    assert copy.offset_msg_id in result.text
    assert "ticket 7" in result.text
    lines = map(json.loads, log.getvalue().splitlines())
    (line,) = [each for each in lines if each["event"] == "resend"]
    assert (line["reason"], line["count"]) == ("ticket 7", 1)


def test_one_group_gets_it_by_its_retry_topic(rocketmq, topic):
    name, path = topic
    with rocketmq.admin() as admin:
        admin.create_topic("%RETRY%billing", 1)
    chooser = answer(f"{path}/resend?to=group", live(rocketmq))
    assert chooser.status_code == 200
    assert "<datalist" in chooser.text
    shown, posted, _ = asked(resend(path, "?to=group&group=billing"), live(rocketmq))
    assert "only group billing" in shown.text
    assert posted[0].status_code == 303
    assert copies(rocketmq, name) == []
    (copy,) = copies(rocketmq, "%RETRY%billing")
    assert copy.properties["RETRY_TOPIC"] == name


def test_without_a_reason_nothing_is_sent_and_the_form_stays(rocketmq, topic):
    name, path = topic
    _, posted, _ = asked(resend(path, reason=" "), live(rocketmq))
    assert posted[0].status_code == 400
    assert "A reason is needed" in posted[0].text
    assert 'name="reason"' in posted[0].text
    long = "x" * (limits.MAX_CONSOLE_REASON + 1)
    _, posted, _ = asked(resend(path, reason=long), live(rocketmq))
    assert posted[0].status_code == 400
    assert copies(rocketmq, name) == []


def test_what_is_not_what_was_shown_is_not_sent(rocketmq, topic):
    name, path = topic

    async def steps(client):
        _, fields = post_form((await client.get(f"{path}/resend")).text)
        changed = {**fields, "reason": "x", "digest": "0" * 32}
        forged = {**fields, "reason": "x", "name": "../../x"}
        return [await client.post(f"{path}/resend", data=each) for each in (changed, forged)]

    changed, forged = asked(steps, live(rocketmq))
    assert (changed.status_code, forged.status_code) == (409, 400)
    assert copies(rocketmq, name) == []


@pytest.mark.parametrize("group", ["nobody", "a b"])
def test_a_group_that_never_was_is_said_and_nothing_created(rocketmq, topic, group):
    _, path = topic
    shown = answer(f"{path}/resend?to=group&group={group}", live(rocketmq))
    assert shown.status_code in {400, 404}
    assert group in shown.text
    assert 'name="reason"' not in shown.text


def test_a_context_that_is_read_only_refuses(rocketmq, topic):
    name, path = topic
    context = ("live", Context(namesrv=rocketmq.name_server, read_only=True))
    page = answer(path, context)
    assert "/resend" not in page.text
    shown = answer(f"{path}/resend", context)
    assert shown.status_code == 403
    assert "read_only" in shown.text

    async def steps(client):
        fields = {"name": "20260101T000000-000000000000", "digest": "", "reason": "x"}
        return await client.post(f"{path}/resend", data=fields)

    assert asked(steps, context).status_code == 403
    assert copies(rocketmq, name) == []


def test_a_message_of_a_store_is_sent_to_a_chosen_cluster(rocketmq, tmp_path):
    store = store_at(make_store(tmp_path / "old", [Sent(keys="k", body=b"old")]).path, "old")
    refused = answer("/m/old/Orders/-/0/0/resend", store)
    assert refused.status_code == 400
    assert "has no cluster to send to" in refused.text
    assert "/resend" not in answer("/m/old/Orders/-/0/0", store).text
    with rocketmq.admin() as admin:
        admin.create_topic("Orders", 1)
    _, posted, result = asked(resend("/m/old/Orders/-/0/0", "?cluster=live"), store, live(rocketmq))
    assert posted[0].status_code == 303
    assert "1 sent" in result.text
    (copy,) = copies(rocketmq, "Orders")
    assert copy.body == b"old"


def failing(monkeypatch, error):
    async def send(*_, **__):
        raise error

    monkeypatch.setattr(Producer, "send", send)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            SendFailed("no answer", [("b", CallTimeout("b:1", "no answer in 3 s"))]),
            ("0 sent, 0 failed, 1 unknown, 0 left", "unknown whether some are stored"),
        ),
        (
            BrokerError("b:1", 17, "topic is sealed <b>", retriable=False),
            ("0 sent, 1 failed, 0 unknown, 0 left", "topic is sealed &lt;b&gt;"),
        ),
    ],
    ids=["timeout", "refused"],
)
def test_a_failure_is_never_shown_as_success(rocketmq, topic, monkeypatch, error, shown):
    _, path = topic
    failing(monkeypatch, error)
    _, posted, result = asked(resend(path), live(rocketmq))
    assert posted[0].status_code == 303
    assert all(each in result.text for each in shown)
    assert ">done<" not in result.text


def test_a_form_of_another_site_or_type_is_refused(rocketmq, topic):
    name, path = topic

    async def steps(client):
        _, fields = post_form((await client.get(f"{path}/resend")).text)
        fields["reason"] = "x"
        others = {"origin": "http://evil.example"}
        return (
            await client.post(f"{path}/resend", data=fields, headers=others),
            await client.post(f"{path}/resend", json=fields),
            await client.post(
                f"{path}/resend",
                content=b"name=%ff",
                headers={"content-type": "application/x-www-form-urlencoded"},
            ),
        )

    found = asked(steps, live(rocketmq))
    assert [each.status_code for each in found] == [403, 400, 400]
    assert copies(rocketmq, name) == []


def test_jobs_are_listed_and_each_language_has_them(rocketmq, topic):
    _, path = topic

    async def steps(client):
        await resend(path)(client)
        english = await client.get("/jobs")
        client.cookies.set("rl_language", "zh")
        return english, await client.get("/jobs"), await client.get("/jobs/nonsense")

    english, chinese, missing = asked(steps, live(rocketmq))
    assert "done" in english.text
    assert "已完成" in chinese.text
    assert missing.status_code == 404


def test_a_viewer_without_the_right_sees_no_button_and_is_refused(rocketmq, topic):
    name, path = topic
    li = user("li", Grant(Role.VIEWER), Grant(Role.OPERATOR, topics=("other",)))

    async def steps(client):
        await log_in(client, "li")
        return await client.get(path), await client.get(f"{path}/resend")

    message, shown = asked(steps, live(rocketmq), users=users(li))
    assert message.status_code == 200
    assert "/resend" not in message.text
    assert shown.status_code == 403
    assert f"li may not act on topic {name}" in shown.text


def test_a_user_who_may_only_look_is_offered_nothing_to_send(rocketmq, topic):
    name, _ = topic
    with rocketmq.producer() as producer:
        dead = Message(f"%DLQ%{name}", "dead")
        dead.put("RETRY_TOPIC", name)
        producer.send(dead)
    several = user("li", Grant(Role.VIEWER)), user("otto", Grant(Role.OPERATOR))
    paths = ("/jobs", f"/search?topic={name}", f"/groups?group={name}")
    buttons = ('href="/send"', 'href="/resend?', 'href="/redrive?')

    def offered(who):
        async def steps(client):
            await log_in(client, who)
            return [(await client.get(path)).text for path in paths]

        pages = asked(steps, live(rocketmq), users=users(*several))
        return [button in page for button, page in zip(buttons, pages, strict=True)]

    assert offered("li") == [False] * 3
    assert offered("otto") == [True] * 3


def test_what_cannot_be_written_down_is_not_done(rocketmq, topic):
    name, path = topic
    closed = io.StringIO()
    closed.close()
    log = AuditLog(closed)
    shown = answer(f"{path}/resend", live(rocketmq), audit=log)
    assert shown.status_code >= 400
    assert "audit log cannot be written" in shown.text
    assert 'name="reason"' not in shown.text
    assert copies(rocketmq, name) == []


def test_a_masked_message_is_sent_again_as_it_is_and_cannot_be_edited(rocketmq, topic):
    name, _ = topic
    with rocketmq.producer() as producer:
        sent = producer.send(Message(name, b"a body", properties={"PHONE": "no. 555"}))
    path = f"/m/live/{name}/-/{sent.message_queue.queue_id}/{sent.queue_offset}"
    li = user("li", Grant(Role.OPERATOR))
    masks = Masks([MaskRule(topics=(name,), properties=("PHONE",))])

    async def steps(client):
        await log_in(client, "li")
        edited = await client.get(f"{path}/edit")
        return edited, await resend(path)(client)

    edited, (shown, posted, _) = asked(steps, live(rocketmq), users=LocalUsers([li], masks=masks))
    assert edited.status_code == 400
    assert "Parts of this message are masked for you" in edited.text
    assert "***" in shown.text
    assert "no. 555" not in shown.text
    assert [each.status_code for each in posted] == [303, 303]
    (copy,) = copies(rocketmq, name)
    assert copy.properties["PHONE"] == "no. 555"


def test_jobs_are_seen_by_who_made_them_and_by_who_sees_all_their_clusters_topics(rocketmq, topic):
    name, path = topic
    everyone = users(
        user("li", Grant(Role.OPERATOR, topics=(name,))),
        user("wang", Grant(Role.OPERATOR, topics=("*-other",))),
        user("root", Grant(Role.ADMIN)),
    )
    seen = {}

    async def steps(client):
        await log_in(client, "li")
        _, posted, _ = await resend(path)(client)
        job = posted[0].headers["location"]
        for who in ("li", "wang", "root"):
            client.cookies.clear()
            await log_in(client, who)
            listed = (await client.get("/jobs")).text
            seen[who] = (job in listed, (await client.get(job)).status_code)

    asked(steps, live(rocketmq), users=everyone)
    assert seen == {"li": (True, 200), "wang": (False, 404), "root": (True, 200)}


@pytest.mark.parametrize("prefix", ["%DLQ%", "%RETRY%"])
def test_a_dead_letter_goes_to_its_own_group_unless_another_is_chosen(rocketmq, topic, prefix):
    group = f"own-{topic[0]}"[:90]
    with rocketmq.admin() as admin:
        for name in (f"%RETRY%{group}", f"%DLQ%{group}", "%RETRY%another"):
            admin.create_topic(name, 1)
    with rocketmq.producer() as producer:
        sent = producer.send(Message(f"{prefix}{group}", b"dead"))
    path = f"/m/live/{quote(prefix + group)}/-/0/{sent.queue_offset}"
    own = answer(f"{path}/resend?to=group", live(rocketmq)).text
    assert f"only group {group}" in own
    assert 'name="digest"' in own
    other = answer(f"{path}/resend?to=group&group=another", live(rocketmq)).text
    assert "only group another" in other
    # Both are one click away.
    for name in (group, "another"):
        assert f"group={name}&amp;cluster=" in own
        assert f"group={name}&amp;cluster=" in other
