"""The console over a real cluster: an order is found, followed, and sent again to one group."""

import asyncio
import html
import re
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest

from tests.peer.console_shop import Group, copies_in, make_topics, order, send_orders
from tests.peer.java_member import JavaMember
from tests.peer.rocketmq_peer import POLL_SECONDS, VERSIONS, wait_until
from tests.support.console_client import cluster_at, console_client, post_form
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import until

TOPIC = "ConsoleShop"
GONE, PYTHON, JAVA = "g_console_gone", "g_console_python", "g_console_java"
EARLY, LATE = range(3), range(3, 8)
"""Numbers of the orders from before a group went, and from after that."""
LANGUAGES = ("en", "zh")
COMPLETE = {"en": "✓ Complete", "zh": "✓ 完整"}
INCOMPLETE = {"en": "✖ Incomplete", "zh": "✖ 不完整"}


class Shop:
    """A topic with orders, and its groups: in Python, in Java, and one whose members are gone."""

    def __init__(self, broker, peer, directory, running):
        self.broker, self.name_server = broker, broker.namesrv_address
        make_topics(self.name_server, TOPIC, GONE, PYTHON, JAVA)
        self.sent = send_orders(self.name_server, TOPIC, EARLY)
        with Group(self.name_server, GONE, TOPIC) as gone:
            self.wait(lambda: len(gone.bodies) == len(EARLY))
        self.sent |= send_orders(self.name_server, TOPIC, LATE)
        self.python = running.enter_context(Group(self.name_server, PYTHON, TOPIC))
        arguments = (self.name_server, JAVA, TOPIC)
        self.java = JavaMember(peer, broker.version, directory, *arguments)
        running.callback(self.java.kill)
        self.wait(lambda: len(self.python.bodies) == len(set(self.java.bodies)) == len(self.sent))

    def wait(self, condition):
        wait_until(condition, self.broker.broker, PATIENCE_S)

    def path(self, number):
        queue = self.sent[number].message_queue
        return f"/m/live/{TOPIC}/-/{queue.queue_id}/{self.sent[number].queue_offset}"


@pytest.fixture(scope="module", params=VERSIONS)
def shop(request, peer, real_broker, tmp_path_factory):
    with ExitStack() as running:
        directory = tmp_path_factory.mktemp("console")
        yield Shop(real_broker(request.param), peer, directory, running)


def asked(shop, steps):
    """Return what a function returns that is given a client of a console."""

    async def ask():
        async with (
            asyncio.timeout(2 * PATIENCE_S),
            console_client(cluster_at(shop.name_server, "live")) as client,
        ):
            return await steps(client)

    return asyncio.run(ask())


async def told(client, path, is_told):
    """Return an answer of the API once it has what is waited for."""
    last = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                last = (await client.get(f"/api{path}")).json()
                if not last.get("error") and is_told(last):
                    return last
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{path}: {last}") from None


async def pages(client, path):
    """Return the text of a page in each language; one that is complete says so."""
    found = {}
    for language in LANGUAGES:
        client.cookies.set("rl_language", language)
        page = await client.get(path)
        assert page.status_code == 200, page.text
        assert f'<html lang="{language}' in page.text
        found[language] = page.text
    return found


async def job_of(client, form_path, **changes):
    """Fill in the form of a page and send it; return the job once it ended, and its page."""
    _, fields = post_form((await client.get(form_path)).text)
    data = {**fields, "reason": "ticket 7", **changes}
    posted = await client.post(form_path, data=data)
    assert posted.status_code == 303, posted.text
    path = posted.headers["location"]
    job = await told(client, path, lambda each: each["state"] not in {"running", "ending"})
    return job, (await client.get(path)).text


def cells(page, name):
    """Return the texts of the row of a table that has a name."""
    for row in re.findall(r"<tr data-path.*?</tr>", page, re.DOTALL):
        texts = [
            html.unescape(re.sub(r"<[^>]*>", "", each)).strip()
            for each in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        if name in texts:
            return texts
    raise AssertionError(f"no row {name}: {page}")


# Who knows only an order number finds its message.


@pytest.mark.parametrize("way", ["anything", "words", "time", "key", "offset-id", "unique-key"])
def test_an_order_is_found_in_every_way(shop, way):
    sent, number = shop.sent[4], order(TOPIC, 4)

    async def steps(client):
        by_key = await told(client, f"/search?q={number}", lambda each: each["messages"])
        (row,) = by_key["messages"]
        at = row["store_timestamp_ms"]
        query = {
            "anything": {"q": number},
            "words": {"q": f"{number} topic:{TOPIC} tag:PAY since:{at}"},
            "time": {"topic": TOPIC, "since": at, "until": at},
            "key": {"q": number, "kind": "key", "topic": TOPIC},
            "offset-id": {"q": sent.offset_msg_id},
            "unique-key": {"q": sent.msg_id},
        }[way]
        path = f"/search?{urlencode(query)}"
        answer = await told(client, path, lambda each: row in each["messages"])
        form = {"time": "time", "key": "key", "offset-id": "id", "unique-key": "id"}
        return row, answer, await pages(client, f"{path}&form={form.get(way, 'any')}")

    row, answer, shown = asked(shop, steps)
    assert (row["offset_msg_id"], row["unique_key"]) == (sent.offset_msg_id, sent.msg_id)
    assert (row["broker"], row["tags"], row["keys"][0]) == ("broker-a", "PAY", number)
    assert answer["complete"]
    for language, page in shown.items():
        assert COMPLETE[language] in page
        assert f'data-path="{row["path"]}"' in page


async def both(first, second):
    return await first, await second


# Which group consumed it.

STATES = {
    "consumed": {"en": "consumed", "zh": "已消费"},
    "not_yet": {"en": "not yet", "zh": "未消费"},
    "passed_offline": {"en": "offline, its offset passed", "zh": "不在线，位点已越过"},
}


@pytest.mark.parametrize(("number", "gone"), [(1, "passed_offline"), (4, "not_yet")])
def test_page_and_story_show_which_group_consumed_it(shop, number, gone):
    expected = {GONE: gone, PYTHON: "consumed", JAVA: "consumed"}
    path = shop.path(number)

    def states(story):
        return {each["group"]: each["state"] for each in story["groups"]}

    async def steps(client):
        story = f"/story{path.removeprefix('/m')}"
        await told(client, story, lambda each: states(each) == expected)
        return await pages(client, f"{path}?tab=body"), await pages(client, path)

    details, stories = asked(shop, steps)
    for language in LANGUAGES:
        assert order(TOPIC, number) in details[language]
        assert f'">{number}</pre>' in details[language]
        table = stories[language].partition("<table")[2]
        for group, state in expected.items():
            row = next(each for each in table.split("<tr>") if f">{group}</a>" in each)
            assert f">{STATES[state][language]}</span>" in row


# It is sent again to one group.

RESENT = {
    PYTHON: (5, "zh", f"只有消费组 {PYTHON}", "已发送 1，失败 0，结果未知 0，剩余 0"),
    JAVA: (6, "en", f"only group {JAVA}", "1 sent, 0 failed, 0 unknown, 0 left"),
}


@pytest.mark.parametrize("group", [PYTHON, JAVA])
def test_only_the_chosen_group_gets_it_again(shop, group):
    number, language, who, counts = RESENT[group]
    path, body = shop.path(number), str(number).encode()

    async def steps(client):
        client.cookies.set("rl_language", language)
        chooser = (await client.get(f"{path}/resend?to=group")).text
        for each in (GONE, PYTHON, JAVA):
            assert f'<option value="{each}">' in chooser
        form = f"{path}/resend?to=group&group={group}"
        assert who in (await client.get(form)).text
        times_before = shop.java.bodies.count(number)
        job, page = await job_of(client, form)
        if group == PYTHON:
            await until(lambda: body in shop.python.copies)
        else:
            await until(lambda: shop.java.bodies.count(number) > times_before)
        return job, page

    job, page = asked(shop, steps)
    assert (job["state"], job["total"], job["counts"]["sent"]) == ("done", 1, 1)
    (result,) = job["messages"]
    assert (result["state"], result["target"]) == ("sent", f"%RETRY%{group}")
    assert result["offset_msg_id"] == shop.sent[number].offset_msg_id
    assert counts in page
    assert result["new_offset_msg_id"] in page
    # What the others can consume has no copy of it.
    others = {TOPIC, *(f"%RETRY%{each}" for each in (GONE, PYTHON, JAVA))} - {f"%RETRY%{group}"}
    assert all(body not in copies_in(shop.name_server, each) for each in others)
    assert body in copies_in(shop.name_server, f"%RETRY%{group}")
    assert (body in shop.python.copies) == (group == PYTHON)


# A chosen client consumes it, past its queue.


async def consumed_by(client, path, group):
    """Choose the client of a group on the page that lists them; return the result's page."""
    chooser = (await client.get(f"{path}/consume")).text
    links = map(html.unescape, re.findall(r'data-path="([^"]*)"', chooser))
    (chosen,) = [each for each in links if f"group={group}&" in each]
    _, fields = post_form((await client.get(chosen)).text)
    data = {**fields, "reason": "a test"}
    posted = await client.post(f"{path}/consume", data=data)
    assert posted.status_code == 303, posted.text
    assert f"group={GONE}&" not in html.unescape(chooser)
    return (await pages(client, posted.headers["location"])).values()


@pytest.mark.parametrize("group", [PYTHON, JAVA])
def test_a_chosen_client_consumes_it_and_its_result_is_shown(shop, group):
    before = len(shop.python.got), len(shop.java.bodies)
    english, chinese = asked(shop, lambda client: consumed_by(client, shop.path(3), group))
    assert "The client has consumed it." in english
    assert "客户端已消费。" in chinese
    assert "CR_SUCCESS" in english
    if group == PYTHON:
        assert b"3" in {each.body for each in shop.python.got[before[0] :]}
    else:
        # What it prints is read by a thread.
        shop.wait(lambda: 3 in shop.java.bodies[before[1] :])


# New messages, and copies that were edited.


# Dead letters.


def test_dead_letters_are_listed_and_go_to_their_group_again(shop):
    topic, group, bodies = "ConsoleBuried", "g_console_buried", {b"0", b"1", b"2"}
    make_topics(shop.name_server, topic, group)
    redrive = f"/redrive?source=live&group={group}"

    async def steps(client):
        await told(
            client,
            f"/groups?group={group}",
            lambda each: each["groups"] and each["groups"][0]["dead_letters"] == len(bodies),
        )
        listed = await pages(client, f"/groups?group={group}")
        plans = await pages(client, redrive)
        buried.refused.clear()
        job, page = await job_of(client, redrive, rate="1000")
        await until(lambda: buried.copies >= bodies)
        return listed, plans, job, page, await client.get(redrive)

    with Group(shop.name_server, group, topic) as buried:
        buried.refused |= bodies
        send_orders(shop.name_server, topic, range(3))
        listed, plans, job, page, again = asked(shop, steps)
    assert cells(listed["en"], group)[6] == "✖ 3"
    assert all("/redrive?group=" in each for each in listed.values())
    assert "Messages: 3." in plans["en"]
    assert "消息数：3。" in plans["zh"]
    assert (job["state"], job["counts"]["sent"]) == ("done", 3)
    assert "已发送 3，失败 0" in page
    assert copies_in(shop.name_server, f"%RETRY%{group}") == bodies
    assert copies_in(shop.name_server, topic) == set()
    assert (again.status_code, 'name="digest"' in again.text) == (400, False)


# What there is.


def test_groups_have_their_lag_and_members(shop):
    expected = {GONE: (len(LATE), 0), PYTHON: (0, 1), JAVA: (0, 1)}

    async def steps(client):
        for group, (lag, members) in expected.items():
            await told(
                client,
                f"/groups?group={group}",
                lambda each, expected=(lag, members): (
                    [(one["lag"], len(one["members"])) for one in each["groups"]] == [expected]
                ),
            )
        return await pages(client, "/groups"), await pages(client, f"/groups?group={JAVA}")

    listed, java = asked(shop, steps)
    for page in listed.values():
        for group, (lag, members) in expected.items():
            row = cells(page, group)
            left = "" if members else "✖ "
            assert (row[1], row[3]) == (f"{left}{members}", str(lag))
    assert not any(INCOMPLETE[each] in listed[each] for each in LANGUAGES)
    assert ">JAVA<" in java["en"]
    assert "集群" in cells(java["zh"], JAVA)


def test_the_page_of_a_topic_has_its_queues_groups_and_configuration(shop):
    async def steps(client):
        return await told(
            client,
            f"/topics/{TOPIC}",
            lambda each: (
                {one["name"] for one in each["sources"][0]["groups"]} == {GONE, PYTHON, JAVA}
            ),
        ), await pages(client, f"/topics/{TOPIC}")

    value, shown = asked(shop, steps)
    (found,) = value["sources"]
    assert found["complete"]
    assert found["topic"]["messages"] == len(shop.sent)
    # They can be of the last minute or not, but are never more.
    assert 0 <= found["last_minute"] <= len(shop.sent)
    (settings,) = found["settings"]
    assert (settings["permissions"], settings["error"]) == (["read", "write"], None)
    assert (settings["read_queues"], settings["write_queues"]) == (2, 2)
    # Brokers of RocketMQ 4 have no request for it.
    is_new = shop.broker.version.startswith("5")
    assert (settings["is_ordered"], settings["attributes"]) == (
        (False, {}) if is_new else (None, None)
    )
    lags = {each["name"]: each["lag"] for each in found["groups"]}
    assert lags[GONE] == len(LATE)
    for page in shown.values():
        assert GONE in page
        assert f'href="/groups?group={GONE}&amp;source=live"' in page
