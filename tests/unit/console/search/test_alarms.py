"""An alarm says whether a message came by a time, or that this is not known, and to whom it may."""

import asyncio
import json
import time
from html import unescape

import pytest

from rocketlens import testing
from rocketlens.client.send.message import Message
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.search import saved_searches
from rocketlens.terminal.cluster_access import saved_searches_path
from tests.support.console_client import cluster_at, console_client, log_in, store_at
from tests.support.console_users import user, users
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.support.patience import PATIENCE_S

HOUR_MS = 3_600_000
API = "/api/saved-searches"
GONE = cluster_at("127.0.0.1:1", "s")
LI = user("li", Grant(Role.VIEWER, ("s",), ("order-*",)))
WU = user("wu", Grant(Role.VIEWER, ("s",), ("order-*",)))
ROOT = user("root", Grant(Role.ADMIN))


@pytest.fixture
def store(tmp_path):
    sent = [Sent(topic=topic, keys="k") for topic in ("order-paid", "salary")]
    return store_at(make_store(tmp_path / "store", sent).path, "s")


def asked(steps, *contexts, **options):
    async def ask():
        async with console_client(*contexts, **options) as client:
            return await steps(client)

    return asyncio.run(ask())


async def made(client, query="q=k", by="in 1h", **fields):
    """Make an alarm; return the answer of the API."""
    body = {"title": fields.pop("title", query), "by": by, **fields}
    return await client.post(f"{API}?{query}", json=body)


async def ended(client):
    """Return the alarms, when each has its result."""
    client.console.start()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await client.get(API)
            alarms = [each["alarm"] for each in answer.json()["searches"]]
            if alarms and all(each["state"] != "waiting" for each in alarms):
                return alarms
            await asyncio.sleep(0.01)


def passed(key, title, by_ms, group=""):
    """Write the file of a console that ended before an alarm's time, which has passed."""
    search = {
        "name": "20261120T000000-000000000000",
        "title": "t",
        "user": "",
        "is_shared": False,
        "time_ms": 1,
        "asked": [["q", key], ["source", "s"]],
        "topics": [],
        "sources": ["s"],
        "alarm": {"by_ms": by_ms, "group": group, "source": "s", "source_title": title},
    }
    saved_searches_path().parent.mkdir(parents=True, exist_ok=True)
    saved_searches_path().write_text(json.dumps({"version": 1, "searches": [search]}))


@pytest.mark.parametrize(
    ("expected", "state", "why", "shown"),
    [
        (("k", NOW_MS + HOUR_MS), "came", "", None),
        (("k", NOW_MS - HOUR_MS), "missed", "", "did not come by"),
        (("x", NOW_MS + HOUR_MS), "missed", "", "did not come by"),
        (("k", NOW_MS + HOUR_MS, "g"), "unknown", "group g is not known", "whether g consumed it"),
        (("x", NOW_MS + HOUR_MS, "g"), "missed", "x is not in", "not consumed by g by"),
    ],
)
def test_one_whose_time_passed_is_asked_when_a_console_starts(store, expected, state, why, shown):
    key, *rest = expected
    passed(key, store[1].store, *rest)

    async def steps(client):
        (alarm,) = await ended(client)
        return alarm, *[await client.get(p) for p in ("/overview", "/saved", "/api/overview", "/")]

    alarm, home, listed, api, first = asked(steps, store)
    assert (alarm["state"], bool(alarm["path"])) == (state, state == "came")
    assert why in alarm["why"]
    assert (shown or "came 20") in listed.text
    assert (shown or "came 20") in first.text
    assert ("✖ needs help" in home.text) is (shown is not None)
    assert [each["alarm"] for each in api.json()["alarms"]] == ([alarm] if shown else [])
    # It is kept: another console does not ask.
    (kept,) = json.loads(saved_searches_path().read_text())["searches"]
    assert kept["alarm"]["state"] == state


def test_what_could_not_be_asked_is_never_an_absence():
    passed("k", "127.0.0.1:1", NOW_MS)

    async def steps(client):
        (alarm,) = await ended(client)
        return alarm, await client.get("/overview")

    alarm, home = asked(steps, GONE)
    assert alarm["state"] == "unknown"
    assert "127.0.0.1:1" in alarm["why"]
    assert "not known whether it came by" in home.text


def test_one_that_no_console_asked_is_not_known_and_a_file_that_is_damaged_is_said(store):
    passed("k", "/another/store", NOW_MS)

    async def steps(client):
        unasked = await client.get("/overview")
        saved_searches_path().write_text("{")
        return unasked, await client.get("/overview"), await client.get("/api/overview")

    unasked, damaged, api = asked(steps, store)
    assert "no console asked at that time" in unasked.text
    assert "is damaged" in damaged.text
    assert "is damaged" in api.json()["alarms_error"]


def test_a_message_that_comes_over_a_restart_of_its_console_is_told(monkeypatch):
    monkeypatch.setattr("rocketlens.console.search.alarms._PAUSE_S", 0.01)
    with testing.cluster() as running, running.producer() as producer:
        producer.send(Message("order-paid", b"other"))
        source = cluster_at(running.name_server, "s")

        async def begin(client):
            client.console.start()
            alarm = (await made(client, "q=k&topic=order-paid")).json()["alarm"]
            return alarm, await client.get("/overview")

        alarm, home = asked(begin, source)
        producer.send(Message("order-paid", b"it", keys=["k"]))

        async def steps(client):
            (result,) = await ended(client)
            page = await client.get(result["path"])
            return result, page

        result, page = asked(steps, source)
    assert alarm["state"] == "waiting"
    assert "did not come" not in home.text
    assert result["state"] == "came"
    assert (page.status_code, result["came_ms"] <= result["by_ms"]) == (200, True)


@pytest.mark.parametrize(
    ("query", "fields", "said"),
    [
        ("topic=order-paid", {}, "an alarm is for a key"),
        ("q=k&tag=A", {}, "leave out tag"),
        ("q=k&where=n=1", {}, "leave out tag"),
        ("q=k", {"by": "2h"}, "has passed: give a future time"),
        ("q=k", {"by": "", "group": "g"}, "has passed: give a future time"),
        ("q=k", {"by": "soon"}, "is not a time"),
        ("q=k&source=nowhere", {}, "there is no source"),
        ("q=k", {"group": "g" * 4001}, "over 4000 characters"),
    ],
)
def test_what_cannot_be_an_alarm_is_said_in_both_languages_and_the_form_stays(
    store, query, fields, said
):
    async def steps(client):
        api = await made(client, query, **fields)
        form = {"title": "t", "by": "in 1h", **fields}
        pages = []
        for language in ("en", "zh"):
            client.cookies.set("rl_language", language)
            pages.append(await client.post(f"/saved?{query}", data=form))
        return api, *pages

    api, english, chinese = asked(steps, store)
    assert (api.status_code, said in api.json()["error"]["message"]) == (400, True)
    assert said[1:] in unescape(english.text)
    assert english.status_code == chinese.status_code == 400
    if "q=" in query:
        assert f'name="by" value="{fields.get("by", "in 1h")}"' in english.text
    if "source" not in query:
        assert said not in unescape(chinese.text)


def test_several_sources_need_a_choice_and_a_cluster_is_chosen(store):
    other = (f"{store[0]}-2", store[1])

    async def steps(client):
        return [await made(client, query, title=query) for query in ("q=k", "q=k&source=s")]

    refused, taken = asked(steps, store, other)
    assert "choose one" in refused.json()["error"]["message"]
    assert taken.json()["alarm"]["source"] == "s"
    assert asked(steps, store, cluster_at("127.0.0.1:1", "c"))[0].json()["alarm"]["source"] == "c"


def test_times_are_those_of_the_readers_zone(store):
    async def steps(client):
        client.cookies.set("rl_zone", "Asia/Shanghai")
        day = await made(client, by="2100-01-01", title="day")
        clock = await made(client, by="23:59:59.999", title="clock")
        return day.json()["alarm"]["by_ms"], clock.json()["alarm"]["by_ms"]

    day_ms, clock_ms = asked(steps, store)
    assert day_ms == 4_102_502_399_999
    assert (clock_ms + 8 * HOUR_MS + 1) % (24 * HOUR_MS) == 0
    assert 0 <= clock_ms - time.time_ns() // 1_000_000 + 60_000 < 24 * HOUR_MS + 60_000


def test_users_make_and_see_alarms_of_topics_that_they_may_see(store):
    async def steps(client):
        await log_in(client, "li")
        refused = [
            (await made(client, query)).json()["error"]["message"]
            for query in (
                "q=k",
                "q=k&topic=order-*",
                "q=k&topic=salary",
                "q=k&topic=%25DLQ%25order-g",
            )
        ]
        await made(client, "q=k&topic=order-paid", title="named", is_shared=True)
        client.cookies.clear()
        await log_in(client, "root")
        await made(client, "q=k", title="all", is_shared=True)
        await made(client, "q=k&topic=order-paid", title="own")
        seen = {}
        for name in ("wu", "li", "root"):
            client.cookies.clear()
            await log_in(client, name)
            alarms = await ended(client)
            titles = [each["title"] for each in (await client.get(API)).json()["searches"]]
            seen[name] = dict(zip(titles, alarms, strict=True))
        return refused, seen

    refused, seen = asked(steps, store, users=users(LI, WU, ROOT))
    assert all("must name topics in full" in each for each in refused), refused
    assert {name: set(each) for name, each in seen.items()} == {
        "wu": {"named"},
        "li": {"named"},
        "root": {"own", "all", "named"},
    }
    assert {each["state"] for alarms in seen.values() for each in alarms.values()} == {"came"}


def test_ones_own_alarm_has_no_result_when_ones_rights_have_changed(store):
    async def make(client):
        await log_in(client, "li")
        await made(client, "q=k&topic=order-paid")
        await ended(client)

    asked(make, store, users=users(LI))

    async def look(client):
        await log_in(client, "li")
        return (await client.get(API)).json()["searches"][0]["alarm"]

    less = user("li", Grant(Role.VIEWER, ("s",), ("other",)))
    alarm = asked(look, store, users=users(less))
    assert (alarm["state"], alarm["path"]) == ("unknown", "")
    assert alarm["why"] == "the reason is shown to users who may see every topic"


def test_so_many_wait_and_no_more(store, monkeypatch):
    monkeypatch.setattr(saved_searches, "MAX_USER_ALARMS", 1)

    async def steps(client):
        first, second = [await made(client, f"q={key}") for key in "ab"]
        await client.delete(
            f"{API}/{first.json()['name']}", headers={"content-type": "application/json"}
        )
        return second, await made(client, "q=c")

    second, third = asked(steps, store)
    assert "1 alarms wait already" in second.json()["error"]["message"]
    assert third.status_code == 200
