"""The state of all sources: what needs a look is named, and what failed is never fine."""

import asyncio
import json
import time

import pytest
from msgspec.structs import replace

from rocketlens import testing
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message
from rocketlens.console.login.viewer import Grant, Role
from rocketlens.console.sources.sources import ClusterOfConsole
from rocketlens.console.status.state import MAX_OVERVIEW_GROUPS
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.group import FoundGroup, GroupClient, GroupQueue, GroupsAnswer
from rocketlens.model.status import BrokersAnswer, BrokerStatus
from rocketlens.model.text.sentences import Sentence
from tests.support.console_client import (
    answer,
    answers,
    cluster_at,
    console_client,
    log_in,
    post_form,
    store_at,
)
from tests.support.console_users import user, users
from tests.support.made_stores import Sent, make_store

GONE = cluster_at("127.0.0.1:1", "live")
SEARCHED = Coverage("broker-a", SourceKind.BROKER, SourceState.SEARCHED)
FAILED = Coverage("broker-b", SourceKind.BROKER, SourceState.FAILED, None, "connection refused")
WELL = BrokerStatus("C", "broker-a", 0, "10.0.0.1:1", disk_ratio=0.5, dispatch_behind_bytes=0)
FULL = BrokerStatus("C", "broker-b", 0, "10.0.0.2:1", disk_ratio=0.91, index_behind_bytes=5 << 20)
SILENT = BrokerStatus("C", "broker-b", 0, "10.0.0.2:1", error="connection refused")


HOUR_MS = 3_600_000
MEMBER = GroupClient("c@1", "10.0.0.9:5", "JAVA", 407)


def group(name, lag, dead, members=(MEMBER,), dead_hours_ago=48):
    now_ms = time.time_ns() // 1_000_000
    queue = GroupQueue("T", "broker-a", 0, lag, 0, now_ms - 2 * HOUR_MS)
    newest_ms = now_ms - dead_hours_ago * HOUR_MS
    return FoundGroup(name, members, None, {"T": "*"}, (queue,), dead, newest_ms)


def state_of(monkeypatch, brokers, groups=(), failed=()):
    """Give the state of a cluster with these brokers and groups, and its page."""

    async def status(_, on_answer=None):
        return BrokersAnswer(tuple(brokers), (SEARCHED, *failed))

    async def found(_, asked=None):
        return GroupsAnswer(tuple(groups), (SEARCHED,))

    monkeypatch.setattr(ClusterOfConsole, "status", status)
    monkeypatch.setattr(ClusterOfConsole, "groups", found)
    api, *pages = answers(["/api/overview", "/overview", "/groups"], GONE)
    (state,) = api.json()["sources"]
    return state, *(each.text for each in pages)


def test_a_cluster_without_trouble_is_fine(monkeypatch):
    state, page, _ = state_of(monkeypatch, [WELL], [group("quiet", 0, 0)])
    assert (state["complete"], state["silent"], state["full_disk"]) == (True, [], None)
    assert "✓ fine" in page
    assert "No group is behind." in page


@pytest.mark.parametrize(
    ("found", "on_home", "in_list"),
    [
        # Old dead letters, and lag that members work at, are shown and are no alarm.
        (("busy", 7, 66), None, ">2 h<"),
        (
            ("left", 7, 0, ()),
            "<strong>7</strong> · 2 h behind · no member",
            'data-label="Lag" class="figure bad"',
        ),
        (("failing", 0, 66, (MEMBER,), 3), "<strong>66</strong> · in the last", ">✖ <a"),
        # Its members are not known, as with a proxy.
        (("proxy", 7, 0, None), None, ">2 h<"),
    ],
    ids=["busy", "left", "failing", "proxy"],
)
def test_groups_without_members_and_with_new_dead_letters_are_alarms(
    monkeypatch, found, on_home, in_list
):
    state, page, listed = state_of(monkeypatch, [WELL], [group("quiet", 0, 0, ()), group(*found)])
    assert state["needs_help"] is (on_home is not None)
    assert ("✓ fine" in page, "✖ needs help" in page) == (on_home is None, on_home is not None)
    if on_home is not None:
        assert on_home in page
    assert in_list in listed


def test_a_full_disk_and_a_pipeline_that_is_behind_are_named(monkeypatch):
    state, page, _ = state_of(monkeypatch, [WELL, FULL])
    assert (state["full_disk"], state["behind_bytes"]) == (0.91, 5 << 20)
    assert "a disk is 91% full" in page
    assert "5.0 MiB behind" in page
    assert "✓ fine" not in page


def test_a_broker_that_does_not_answer_is_named_and_nothing_is_fine(monkeypatch):
    state, page, _ = state_of(monkeypatch, [WELL, SILENT], failed=[FAILED])
    assert (state["silent"], state["complete"]) == (["broker-b"], False)
    assert "broker-b does not answer" in page
    assert "connection refused" in page
    assert "✓ fine" not in page


def test_a_broker_that_is_gone_is_named_once_and_an_operator_forgets_it(monkeypatch):
    missing = Sentence("broker_missing", time="T", addresses="10.0.0.2:1", name="broker-b")
    failed = Coverage("broker-b", SourceKind.BROKER, SourceState.FAILED, None, missing)
    again = replace(FAILED, source="broker-b (10.0.0.2:1)")
    forgotten = []
    monkeypatch.setattr(MQAdmin, "forget_broker", lambda _, name: forgotten.append(name))
    _, page, _ = state_of(monkeypatch, [WELL], failed=[failed, again])
    assert page.count("broker-b") == 2
    assert "forget it on the page of brokers" in page
    assert "--forget-broker" not in page

    async def forget(client, viewer):
        await log_in(client, viewer)
        action, fields = post_form((await client.get("/brokers")).text)
        return await client.post(action, data={**fields, "broker": "broker-b"})

    async def ask():
        several = users(user("op", Grant(Role.OPERATOR)), user("li", Grant(Role.VIEWER)))
        async with console_client(GONE, users=several) as client:
            allowed = await forget(client, "op")
            await log_in(client, "li")
            seen = await client.get("/brokers")
            refused = await client.post(
                "/brokers/forget", data={"source": "live", "broker": "broker-b"}
            )
            return allowed.status_code, "/brokers/forget" in seen.text, refused.status_code

    assert asyncio.run(ask()) == (303, False, 403)
    assert forgotten == ["broker-b"]


def test_the_groups_with_the_most_lag_and_dead_letters_are_named_and_the_others_counted(
    monkeypatch,
):
    some = [group(f"g{n}", n, 10 - n) for n in range(MAX_OVERVIEW_GROUPS + 3)]
    state, page, _ = state_of(monkeypatch, [WELL], some)
    assert [(each["group"], each["count"]) for each in state["lag"]] == [
        ("g5", 5),
        ("g4", 4),
        ("g3", 3),
    ]
    assert [each["group"] for each in state["dead_letters"]] == ["g0", "g1", "g2"]
    assert (state["more_lag"], state["more_dead_letters"]) == (2, 3)
    assert 'href="/groups?group=g5&amp;source=live"' in page
    assert 'href="/topics/%25DLQ%25g0?source=live"' in page
    assert 'href="/groups?source=live&amp;sort=-lag"' in page


def test_a_cluster_that_cannot_be_asked_is_never_fine():
    api, page = answers(["/api/overview", "/overview"], GONE)
    assert api.json()["sources"][0]["complete"] is False
    assert "127.0.0.1:1" in page.text
    assert "✓ fine" not in page.text
    assert "No lag is known." in page.text


def test_a_store_directory_says_how_it_was_closed_and_the_lag_that_its_files_have(tmp_path):
    made = make_store(tmp_path / "store", [Sent() for _ in range(9)])
    (made.path / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"Orders@billing": {"0": 2}}}
    (made.path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    page = answer("/overview", store_at(made.path, "s")).text
    assert "cleanly" in page
    assert "billing <strong>7</strong>" in page


def test_the_first_page_comes_without_waiting_and_asks_for_the_state(monkeypatch):
    async def never(*_, **__):
        raise AssertionError("the first page asked a cluster")

    for name in ("status", "groups", "topics"):
        monkeypatch.setattr(ClusterOfConsole, name, never)
    page = answer("/", GONE).text
    assert 'data-refresh="/overview" data-every="60000" data-at-once' in page
    assert '<section id="recent" hidden>' in page


@pytest.fixture(scope="module")
def running():
    with testing.cluster() as cluster, cluster.producer() as producer:
        producer.send(Message("salary", b"x"))
        producer.send(Message("order-paid", b"x"))
        yield cluster


def test_one_who_may_see_some_topics_sees_no_state_of_others(running):
    viewer = user("paid", Grant(Role.VIEWER, ("*",), ("order-*",)))

    async def ask():
        async with console_client(
            cluster_at(running.name_server, "live"), users=users(viewer)
        ) as client:
            await log_in(client, "paid")
            return (await client.get("/api/overview")).json()

    (state,) = asyncio.run(ask())["sources"]
    assert (state["brokers"], state["full_disk"], state["behind_bytes"]) == (1, None, 0)
    assert (state["lag"], state["dead_letters"]) == ([], [])


def test_the_state_is_there_in_chinese(running):
    page = answer(
        "/overview", cluster_at(running.name_server, "live"), cookies={"rl_language": "zh"}
    ).text
    assert "数据源状态" in page
    assert "State of the sources" not in page
