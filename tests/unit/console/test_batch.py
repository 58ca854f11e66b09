"""Jobs with several messages: exactly those that were shown, or none."""

import asyncio
import io
import re
from contextlib import AsyncExitStack
from html import unescape
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.resend.resend_job import MARKER
from rocketlens.client.send.message import Message
from rocketlens.console.act import plans
from rocketlens.console.act.act_values import JOB_ROWS
from rocketlens.console.act.jobs import new_name
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.users import LocalUsers
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.message.look_up import LookUps
from rocketlens.console.search import search
from rocketlens.console.search.question import Question
from rocketlens.console.search.search import Searches
from rocketlens.console.sources.masks import MaskRule, Masks
from rocketlens.console.sources.sources import open_sources
from rocketlens.decode.rules import BodyRules
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.terminal.contexts import Context
from tests.support.console_client import (
    FormReader,
    answer,
    cluster_at,
    console_client,
    log_in,
    post_form,
    store_at,
)
from tests.support.console_users import user, users
from tests.support.made_stores import NOW_MS, Sent, make_store

COUNT = 7


@pytest.fixture
def topic(rocketmq, request):
    """A topic of the test's own with some messages, the first of them twice."""
    name = request.node.name.split("[")[0][:100]
    with rocketmq.producer() as producer:
        results = [producer.send(Message(name, f"{n}", keys="k")) for n in range(COUNT)]
    with rocketmq.admin() as admin:
        admin.resend(admin.view_message(results[0].offset_msg_id))
    return name


def live(rocketmq):
    return cluster_at(rocketmq.name_server, "live")


def copies(rocketmq, topic):
    with rocketmq.admin() as admin:
        found = admin.find(None, topic)
    return sorted(each.body for each in found if MARKER in each.properties)


def done(path, *contexts, between=None, **changes):
    """Give the page of a plan, the answer to its form, and the page that follows."""

    async def ask():
        async with console_client(*contexts) as client:
            shown = await client.get(path)
            _, fields = post_form(shown.text)
            if between is not None:
                await asyncio.to_thread(between)
            data = {**fields, "reason": "lost", "rate": "1000", **changes}
            posted = await client.post(path, data=data)
            target = posted.headers.get("location")
            return shown, posted, target and (await client.get(target)).text

    return asyncio.run(ask())


ALL = [b"%d" % number for number in range(COUNT)]


def test_what_a_search_found_is_sent_again_each_id_once(rocketmq, topic):
    search = answer(f"/search?topic={topic}", live(rocketmq)).text
    assert f"/resend?topic={topic}" in search
    shown, posted, job = done(f"/resend?topic={topic}", live(rocketmq))
    assert f"Messages: {COUNT}." in shown.text
    assert posted.status_code == 303, posted.text
    assert f"{COUNT} sent, 0 failed, 0 unknown, 0 left" in job
    assert copies(rocketmq, topic) == ALL


def test_a_job_is_paused_resumed_and_stopped_by_those_who_may_act_on_its_topic(rocketmq, topic):
    everyone = users(
        user("li", Grant(Role.OPERATOR, topics=(topic,))), user("wang", Grant(Role.VIEWER))
    )

    async def ask():
        async with console_client(live(rocketmq), users=everyone) as client:

            async def change(job, verb, **values):
                answer = await client.post(f"{job}/{verb}", data=values or {"none": ""})
                return answer.status_code, (await client.get(job)).text

            async def slow_job():
                path = f"/resend?topic={topic}"
                _, fields = post_form((await client.get(path)).text)
                data = {**fields, "reason": "lost", "rate": "1"}
                return (await client.post(path, data=data)).headers["location"]

            await log_in(client, "li")
            job = await slow_job()
            client.cookies.clear()
            await log_in(client, "wang")
            status, page = await change(job, "pause")
            assert (status, f"{job}/pause" in page) == (403, True)
            client.cookies.clear()
            await log_in(client, "li")
            status, page = await change(job, "pause")
            assert (status, f"{job}/resume" in page, f"{job}/pause" in page) == (303, True, False)
            assert "paused by li" in page
            assert copies(rocketmq, topic) != ALL
            for rate in ("0", "1001", "x"):
                assert (await change(job, "resume", rate=rate))[0] == 400
            assert (await change(job, "resume", rate="1000"))[0] == 303
            await client.console._jobs.settled(job.rpartition("/")[2], None)
            assert copies(rocketmq, topic) == ALL
            stopped = await slow_job()
            status, page = await change(stopped, "stop")
            assert (status, f"{stopped}/stop" in page) == (303, False)
            assert "stopped by li" in page
            return copies(rocketmq, topic)

    assert len(asyncio.run(ask())) < 2 * COUNT


def test_a_search_of_many_pages_is_read_to_its_end_or_its_bound(rocketmq, topic, monkeypatch):
    monkeypatch.setattr("rocketlens.console.act.plans._PAGE_ROWS", 3)
    shown, posted, _ = done(f"/resend?topic={topic}&most=100", live(rocketmq))
    assert f"Messages: {COUNT}." in shown.text
    assert posted.status_code == 303
    assert copies(rocketmq, topic) == ALL
    shown, _, job = done(f"/resend?topic={topic}&most=2", live(rocketmq))
    assert "Only the newest 2 are included" in shown.text
    assert "2 sent" in job


def test_a_store_is_read_once_for_a_plan_of_more_messages_than_a_page_has(tmp_path, monkeypatch):
    count = 2 * limits.MAX_CONSOLE_ROWS + 1
    sent = [Sent(unique_key=f"U-{n}", store_timestamp_ms=NOW_MS + n) for n in range(count)]
    again = replace(sent[0], store_timestamp_ms=NOW_MS + count)
    made = make_store(tmp_path / "store", [*sent, again])
    asked, log = [], io.StringIO()
    find = search._find

    async def counted(request, *others, **options):
        asked.append(request)
        return await find(request, *others, **options)

    monkeypatch.setattr(search, "_find", counted)
    cluster = SimpleNamespace(admin=SimpleNamespace(source=SimpleNamespace(full_topic=str)))
    checked = []

    async def allowed(_self, _origin, _cluster, messages):
        checked.extend(messages)

    monkeypatch.setattr(plans, "cluster_for", lambda *_: cluster)
    monkeypatch.setattr(plans, "check_cluster", lambda _: cluster)
    monkeypatch.setattr(plans, "check_topics", lambda *_: None)
    monkeypatch.setattr(plans.Plans, "_check_unmasked", allowed)

    async def run():
        async with AsyncExitStack() as opened:
            sources = await open_sources([store_at(made.path)], opened)
            searches = Searches(sources, BodyRules(), audit=AuditLog(log))
            question = Question.read(topic="Orders")
            made_by = plans.Plans(LookUps(searches), tmp_path)
            return await made_by.of_search(question, plans.ResendOptions(), 5000)

    plan = asyncio.run(run())
    assert [each.queue_offset for each in plan.messages] == list(range(count))
    assert (len(asked), plan.notes, len(checked)) == (1, (), count + 1)
    assert log.getvalue().count('"search"') == 1


def test_of_a_filtered_search_the_matches_only_are_sent_again(rocketmq, topic):
    search = f"topic={topic}&grep=%5E%5B23%5D%24"
    assert (
        f"/resend?{search}".replace("&", "&amp;")
        in answer(f"/search?{search}", live(rocketmq)).text
    )
    shown, posted, job = done(f"/resend?{search}", live(rocketmq))
    assert "Messages: 2." in shown.text
    assert posted.status_code == 303, posted.text
    assert "2 sent, 0 failed" in job
    assert copies(rocketmq, topic) == [b"2", b"3"]


def test_what_came_since_is_shown_first(rocketmq, topic):
    def send():
        with rocketmq.producer() as producer:
            producer.send(Message(topic, "late", keys="k"))

    _, posted, _ = done(f"/resend?topic={topic}", live(rocketmq), between=send)
    assert posted.status_code == 409
    assert f"Messages: {COUNT + 1}." in posted.text
    assert copies(rocketmq, topic) == []


@pytest.mark.parametrize(
    "changes", [{"rate": "0"}, {"rate": "x"}, {"rate": "1001"}, {"reason": ""}, {"name": ""}]
)
def test_a_wrong_form_does_nothing(rocketmq, topic, changes):
    _, posted, _ = done(f"/resend?topic={topic}", live(rocketmq), **changes)
    assert posted.status_code == 400
    assert copies(rocketmq, topic) == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/resend", 400),
        ("/resend?q=NOPE", 400),
        ("/resend?topic=nonsense", 404),
        ("/resend?q=k&most=0", 400),
        ("/redrive?source=live&group=nobody", 404),
        ("/redrive?source=nonsense&group=g", 400),
    ],
)
def test_a_plan_that_cannot_be_has_no_form(rocketmq, topic, path, status):
    shown = answer(path, live(rocketmq))
    assert (topic in path, shown.status_code) == (False, status)
    assert 'name="digest"' not in shown.text


def test_an_incomplete_search_sends_nothing(rocketmq, topic, tmp_path):
    store = store_at(make_store(tmp_path / "s", [Sent(keys="k")]).path, "s")
    several = answer("/resend?q=k", live(rocketmq), store)
    assert several.status_code == 400
    assert "choose one of them first" in several.text
    gone = cluster_at("127.0.0.1:1", "gone")
    incomplete = answer("/resend?q=k", gone)
    assert incomplete.status_code == 502
    assert "nothing was done" in incomplete.text
    assert copies(rocketmq, topic) == []


def test_dead_letters_go_to_their_group_once(rocketmq, topic):
    group = f"g-{topic}"
    with rocketmq.admin() as admin:
        admin.create_topic(f"%RETRY%{group}", 1)
    with rocketmq.producer() as producer:
        for number in range(3):
            dead = Message(f"%DLQ%{group}", f"{number}")
            dead.put("RETRY_TOPIC", topic)
            producer.send(dead)
    listed = answer(f"/groups?group={group}", live(rocketmq)).text
    letters = urlencode([("topic", f"%DLQ%{group}"), ("source", "live")])
    assert f'<a href="/search?{letters}">3</a>'.replace("&", "&amp;") in listed
    path = f"/redrive?source=live&group={group}"
    shown, posted, job = done(path, live(rocketmq))
    assert "Messages: 3." in shown.text
    assert posted.status_code == 303, posted.text
    assert "3 sent" in job
    assert copies(rocketmq, f"%RETRY%{group}") == [b"0", b"1", b"2"]
    nothing = answer(path, live(rocketmq))
    assert nothing.status_code == 400
    assert 'name="digest"' not in nothing.text
    _, _, job = done(f"{path}&again=true&original=true", live(rocketmq))
    assert "3 sent" in job
    assert copies(rocketmq, topic) == [b"0", b"1", b"2"]


async def test_the_api_does_the_same(rocketmq, topic):
    async with console_client(live(rocketmq)) as client:
        path = f"/api/resend/search?topic={topic}"
        plan = (await client.post(path.replace("?", "/plan?"), json={"most": 2})).json()
        asked = {"most": 2, "reason": "lost", "rate": 1000}
        wrong = await client.post(path, json={**asked, "name": new_name(), "digest": "0" * 32})
        right = await client.post(
            path, json={**asked, "name": plan["name"], "digest": plan["digest"]}
        )
        other = await client.post("/api/redrive/plan", json={"group": "g", "cluster": "live"})
    assert (plan["count"], plan["notes"]) == (2, {"newest": 2})
    assert len(plan["messages"]) <= JOB_ROWS
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "changed")
    assert right.json()["counts"]["sent"] == 2
    assert other.status_code == 404


BOX = re.compile(r'<input type="checkbox" form="chosen" name="chosen" value="([^"]+)"')
HIDDEN = re.compile(r'<input type="hidden" name="chosen" value="([^"]+)"')


def start_form(page):
    """Give the fields of the form that does what a page of chosen messages shows."""
    forms = FormReader(page.text).forms
    return next(fields for _, action, fields in forms if action == "/resend/chosen/start")


async def choose(client, search, wanted, **fields):
    """Give the page of a search, and that of those of its messages that have the wanted bodies."""
    listed = await client.get(search)
    rows = (await client.get(f"/api{search}")).json()["messages"]
    paths = [each["path"] for each in rows if each["preview"] in wanted]
    data = {"back": search, "chosen": paths, **fields}
    return listed, await client.post("/resend/chosen", data=data)


def sent_chosen(contexts, search, wanted, fields=(), **options):
    """Give the page of a search, that of chosen messages, the answer to its form, and the job."""

    async def ask():
        async with console_client(*contexts, **options) as client:
            listed, shown = await choose(client, search, wanted, **dict(fields))
            data = {**start_form(shown), "chosen": HIDDEN.findall(shown.text), "reason": "lost"}
            # Both forms of the page have them.
            data["chosen"] = data["chosen"][: len(data["chosen"]) // 2]
            posted = await client.post("/resend/chosen/start", data=data)
            target = posted.headers.get("location")
            return listed, shown, posted, target and (await client.get(target)).text

    return asyncio.run(ask())


def test_exactly_the_chosen_messages_are_sent_again(rocketmq, topic):
    listed, shown, posted, job = sent_chosen([live(rocketmq)], f"/search?topic={topic}", "135")
    assert len(BOX.findall(listed.text)) == COUNT + 1
    assert shown.status_code == 200, shown.text
    assert "Messages: 3." in shown.text
    assert f'href="/search?topic={topic}"' in shown.text
    assert posted.status_code == 303, posted.text
    assert "3 sent, 0 failed, 0 unknown, 0 left" in job
    assert copies(rocketmq, topic) == [b"1", b"3", b"5"]


def test_chosen_messages_go_to_one_group_alone_if_that_is_asked(rocketmq, topic):
    group = f"g-{topic}"
    with rocketmq.admin() as admin:
        admin.create_topic(f"%RETRY%{group}", 1)
    search = f"/search?topic={topic}"
    _, shown, posted, _ = sent_chosen([live(rocketmq)], search, "46", {"group": group}.items())
    assert f"only group {group}" in shown.text
    assert posted.status_code == 303, posted.text
    assert copies(rocketmq, f"%RETRY%{group}") == [b"4", b"6"]
    assert copies(rocketmq, topic) == []


def test_of_two_chosen_records_with_one_id_both_are_sent_and_the_page_says_so(rocketmq, topic):
    _, shown, posted, job = sent_chosen([live(rocketmq)], f"/search?topic={topic}", "0")
    assert "1 have the same message id as another one" in shown.text
    assert posted.status_code == 303, posted.text
    assert "2 sent" in job


def test_chosen_dead_letters_go_to_the_topic_that_they_came_from(rocketmq, topic):
    with rocketmq.producer() as producer:
        for number in range(2):
            dead = Message(f"%DLQ%{topic}", f"{number}")
            dead.put("RETRY_TOPIC", topic)
            producer.send(dead)
    search = f"/search?topic=%25DLQ%25{topic}"
    _, shown, posted, _ = sent_chosen([live(rocketmq)], search, "1")
    assert "the topics that they were first consumed from" in shown.text
    assert posted.status_code == 303, posted.text
    assert copies(rocketmq, topic) == [b"1"]


def test_chosen_messages_of_a_store_are_sent_to_the_cluster_that_is_chosen(
    rocketmq, topic, tmp_path
):
    made = make_store(tmp_path / "s", [Sent(topic=topic, body=b"%d" % n) for n in range(4)])
    store = store_at(made.path, "s")
    search = f"/search?topic={topic}&source=s"
    _, shown, posted, _ = sent_chosen([live(rocketmq), store], search, "12")
    assert '<select name="cluster">' in shown.text
    assert posted.status_code == 303, posted.text
    assert copies(rocketmq, topic) == [b"1", b"2"]


def chosen_error(paths, *contexts, **options):
    """Give the page that follows a form with some values for chosen messages."""

    async def ask():
        async with console_client(*contexts, **options) as client:
            if "users" in options:
                await log_in(client, "li")
            data = {"none": "", "chosen": paths}
            pages = [await client.post("/resend/chosen", data=data)]
            start = {**data, "name": new_name(), "reason": "x", "digest": "0"}
            pages.append(await client.post("/resend/chosen/start", data=start))
            return pages

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("paths", "status", "said"),
    [
        ([], 400, "No message is chosen"),
        (["/m/live/{topic}/-/0"], 400, "is not the address of a message"),
        (["/m/live/{topic}/-/0/" + "9" * 19], 400, "is not the address of a message"),
        (["https://example.com/m/live/{topic}/-/0/0"], 400, "is not the address of a message"),
        (["/m/other/{topic}/-/0/0"], 400, "There is no source"),
        (["/m/live/{topic}/-/0/999"], 404, "There is no message at {topic}/0/999"),
        (["/m/live/{topic}/nobody/0/0"], 404, "There is no message at {topic}/0/0 of nobody"),
        (["/m/live/{topic}/-/0/0", "/m/live/{topic}/-/0/999"], 404, "{topic}/0/999"),
        (["/m/live/{topic}/-/0/0", "/m/s/{topic}/-/0/0"], 400, "choose those of one source"),
        ([f"/m/live/{{topic}}/-/0/{n}" for n in range(501)], 400, "501 messages are chosen"),
    ],
)
def test_what_cannot_be_chosen_is_a_named_error_and_nothing_is_sent(
    rocketmq, topic, paths, status, said
):
    named = [each.replace("{topic}", topic) for each in paths]
    for page in chosen_error(named, live(rocketmq)):
        assert page.status_code == status, page.text
        assert said.replace("{topic}", topic) in unescape(page.text)
        assert 'name="digest"' not in page.text
    assert copies(rocketmq, topic) == []


async def test_chosen_messages_that_changed_since_they_were_shown_are_shown_first(rocketmq, topic):
    async with console_client(live(rocketmq)) as client:
        _, shown = await choose(client, f"/search?topic={topic}", "12")
        paths = HIDDEN.findall(shown.text)
        data = {**start_form(shown), "chosen": paths[:1], "reason": "lost"}
        posted = await client.post("/resend/chosen/start", data=data)
    assert posted.status_code == 409
    assert "Messages: 1." in posted.text
    assert copies(rocketmq, topic) == []


async def test_the_form_that_streams_in_is_one_of_its_page(rocketmq, topic):
    async with console_client(live(rocketmq)) as client:
        streamed = await client.get(f"/search/rows?topic={topic}")
        paths = BOX.findall(streamed.text)[:2]
        shown = await client.post("/resend/chosen", data={"chosen": paths})
    assert "Messages: 2." in shown.text


def test_only_what_a_user_may_send_can_be_chosen(rocketmq, topic):
    other = f"{topic}-other"
    with rocketmq.producer() as producer:
        producer.send(Message(other, "other", keys="k"))
    viewer = Grant(Role.VIEWER, ("live",), (topic, other))
    li = user("li", viewer, Grant(Role.OPERATOR, ("live",), (topic,)))
    wang = user("wang", viewer)

    async def ask(name):
        async with console_client(live(rocketmq), users=users(li, wang)) as client:
            await log_in(client, name)
            search = f"/search?topic={topic},{other}"
            more = f"{search}&max=3".replace("/search", "/search/more")
            rows = f"{search}".replace("/search", "/search/rows")
            return [(await client.get(each)).text for each in (search, more, rows)]

    for page in asyncio.run(ask("li")):
        assert BOX.search(page)
        assert not [each for each in BOX.findall(page) if other in each]
    for page in asyncio.run(ask("wang")):
        assert not BOX.search(page)
        assert "/resend/chosen" not in page
    for path, said in ((f"/m/live/{other}/-/0/0", other), ("/m/live/salary/-/0/0", "salary")):
        for page in chosen_error([path], live(rocketmq), users=users(li)):
            assert page.status_code == 403
            assert f"li may not act on topic {said} of live" in page.text


def test_where_nothing_can_be_sent_nothing_can_be_chosen(rocketmq, topic, tmp_path):
    read_only = ("live", Context(namesrv=rocketmq.name_server, read_only=True))
    assert not BOX.search(answer(f"/search?topic={topic}", read_only).text)
    for page in chosen_error([f"/m/live/{topic}/-/0/0"], read_only):
        assert page.status_code == 403
        assert "read_only" in page.text
    store = store_at(make_store(tmp_path / "s", [Sent(keys="k")]).path, "s")
    assert not BOX.search(answer("/search?q=k", store).text)
    assert copies(rocketmq, topic) == []


async def test_the_api_sends_chosen_messages_as_well(rocketmq, topic):
    async with console_client(live(rocketmq)) as client:
        rows = (await client.get(f"/api/search?topic={topic}")).json()["messages"]
        names = ("source", "topic", "broker", "queue_id", "queue_offset")
        chosen = [{n: each[n] for n in names} for each in rows if each["preview"] in "25"]
        path = "/api/resend/chosen"
        plan = (await client.post(f"{path}/plan", json={"messages": chosen})).json()
        asked = {"messages": chosen, "reason": "lost", "name": plan["name"]}
        wrong = await client.post(path, json={**asked, "digest": "0" * 32})
        right = await client.post(path, json={**asked, "digest": plan["digest"]})
        none = await client.post(f"{path}/plan", json={"messages": []})
    assert plan["count"] == 2
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "changed")
    assert right.json()["counts"]["sent"] == 2
    assert none.status_code == 400
    assert copies(rocketmq, topic) == [b"2", b"5"]


@pytest.fixture
def dead(rocketmq, topic):
    """A group with five dead letters of the topic."""
    group = f"g-{topic}"[:100]
    with rocketmq.admin() as admin:
        admin.create_topic(f"%RETRY%{group}", 1)
        admin.create_topic(f"%DLQ%{group}", 1)
    with rocketmq.producer() as producer:
        for number in range(5):
            letter = Message(f"%DLQ%{group}", f"dead-{number}", keys=f"K-{number}")
            letter.put("RETRY_TOPIC", topic)
            producer.send(letter)
    return group


LETTER = re.compile(r'<input type="checkbox" form="chosen" name="chosen" value="([0-9A-F]+)"')


def forms_to(page, action):
    return [fields for _, to, fields in FormReader(page.text).forms if to == action]


async def test_dead_letters_are_shown_with_time_key_body_and_link_before_they_are_sent(
    rocketmq, dead
):
    log = io.StringIO()
    async with console_client(live(rocketmq), audit=AuditLog(log)) as client:
        shown = await client.get(f"/redrive?source=live&group={dead}")
        (link, *_) = re.findall(r'<td class="time"><a href="(/m/[^"]+)">2', shown.text)
        message = await client.get(f"{unescape(link)}?tab=body")
    for number in range(5):
        assert f"K-{number}" in shown.text
        assert f"dead-{number}" in shown.text
    assert "dead-0" in message.text
    # Each body that is shown is a view.
    assert log.getvalue().count('"view"') == 6


def sent_letters(rocketmq, group, numbers, between=None):
    """Choose some dead letters, and send them."""

    async def ask():
        async with console_client(live(rocketmq)) as client:
            listed = await client.get(f"/redrive?source=live&group={group}")
            boxes = LETTER.findall(listed.text)
            (fields,) = forms_to(listed, "/redrive/chosen")
            data = {**fields, "chosen": [boxes[each] for each in numbers]}
            shown = await client.post("/redrive/chosen", data=data)
            if between is not None:
                await asyncio.to_thread(between)
            (fields,) = forms_to(shown, "/redrive/chosen/start")
            chosen = [boxes[each] for each in numbers]
            data = {**fields, "chosen": chosen, "reason": "some", "rate": "1000"}
            posted = await client.post("/redrive/chosen/start", data=data)
            target = posted.headers.get("location")
            again = await client.get(f"/redrive?source=live&group={group}")
            return shown, posted, target and (await client.get(target)).text, again

    return asyncio.run(ask())


def test_of_dead_letters_exactly_the_chosen_ones_are_sent_and_left_out_next_time(rocketmq, dead):
    shown, posted, job, again = sent_letters(rocketmq, dead, [1, 3])
    assert "Messages: 2." in shown.text
    assert "dead-3" in shown.text
    assert "dead-2" not in shown.text
    assert posted.status_code == 303, posted.text
    assert "2 sent, 0 failed" in job
    assert copies(rocketmq, f"%RETRY%{dead}") == [b"dead-1", b"dead-3"]
    assert "Left out, because earlier jobs have sent them, or possibly have: 2." in again.text
    assert "Messages: 3." in again.text


def test_a_chosen_dead_letter_that_was_sent_since_is_not_sent_twice(rocketmq, dead):
    _, posted, _, _ = sent_letters(
        rocketmq, dead, [1, 3], between=lambda: sent_letters(rocketmq, dead, [3])
    )
    assert posted.status_code == 409
    assert copies(rocketmq, f"%RETRY%{dead}") == [b"dead-3"]


def test_no_dead_letter_that_was_chosen_is_an_error(rocketmq):
    assert "No dead letter is chosen" in answer("/redrive/chosen", live(rocketmq)).text


def test_when_all_dead_letters_were_sent_again_their_number_is_said(rocketmq, dead):
    path = f"/redrive?source=live&group={dead}"
    done(path, live(rocketmq))
    nothing, chinese = (
        answer(path, live(rocketmq), cookies={"rl_language": each}) for each in ("en", "zh")
    )
    assert nothing.status_code == 400
    assert "Earlier jobs have sent all 5 dead letters again, or may have" in nothing.text
    assert "全部 5 条死信" in chinese.text


def test_a_plan_of_many_messages_is_paged_and_every_page_is_of_the_same_plan(
    rocketmq, dead, monkeypatch
):
    for module in ("act.actions", "act.act_pages"):
        monkeypatch.setattr(f"rocketlens.console.{module}.JOB_ROWS", 2)
    path = f"/redrive?source=live&group={dead}"
    answered = [answer(f"{path}&page={number}", live(rocketmq)) for number in range(3)]
    pages = [each.text for each in answered]
    assert [each.status_code for each in answered] == [200] * 3, pages
    shown = [sorted(set(re.findall(r"dead-\d", each))) for each in pages]
    assert shown == [["dead-0", "dead-1"], ["dead-2", "dead-3"], ["dead-4"]]
    assert "Messages 3 to 4 of 5" in pages[1]
    assert len({re.search(r'name="digest" value="(\w+)"', each)[1] for each in pages}) == 1
    assert 'name="page" value="2"' in pages[1]
    assert 'name="page" value="3"' not in pages[2]


async def test_the_api_sends_some_dead_letters_only(rocketmq, dead):
    async with console_client(live(rocketmq)) as client:
        asked = {"group": dead, "cluster": "live"}
        plan = (await client.post("/api/redrive/plan", json=asked)).json()
        asked["only"] = [plan["messages"][2]["offset_msg_id"]]
        plan = (await client.post("/api/redrive/plan", json=asked)).json()
        act = {"name": plan["name"], "digest": plan["digest"], "reason": "one", "rate": 1000}
        job = (await client.post("/api/redrive", json={**asked, **act})).json()
    assert plan["count"] == 1
    assert job["counts"]["sent"] == 1
    assert copies(rocketmq, f"%RETRY%{dead}") == [b"dead-2"]


async def test_what_is_masked_is_masked_in_a_plan(rocketmq, dead):
    rule = MaskRule(("*",), pattern=TextPattern("dead-[0-9]+"))
    masked = LocalUsers([user("li", Grant(Role.OPERATOR))], Masks([rule]))
    async with console_client(live(rocketmq), users=masked) as client:
        await log_in(client, "li")
        text = (await client.get(f"/redrive?source=live&group={dead}")).text
    assert "dead-1" not in text
    assert "***" in text
