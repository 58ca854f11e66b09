"""``rocketlens story`` over a cluster and over a store: text for people, JSON for programs."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocketlens import ConsumeConcurrentlyStatus, SyncPushConsumer
from rocketlens.cli.printing import cells
from rocketlens.cli.story import story_lines
from rocketlens.client.send.message import Message
from rocketlens.query.facts.group_state import GroupState
from rocketlens.query.story.story import GroupStory
from rocketlens.query.story.story_events import EventKind
from rocketlens.testing import cluster
from tests.support.story_world import copy, dead, known, retried, story, waiting

GROUP = "billing"


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    """A cluster with a message that its group failed to consume, and one with another tag."""
    with (
        cluster(tmp_path_factory.mktemp("rocketmq")) as running,
        running.admin() as admin,
        running.producer() as producer,
    ):
        for key, tag in (("failed", "A"), ("filtered", "B")):
            producer.send(Message("Orders", key, tags=tag, keys=key))
        consumer = SyncPushConsumer(running.name_server, group=GROUP, begin="first")
        consumer.subscribe("Orders", "A")
        consumer.listen(lambda *_: ConsumeConcurrentlyStatus.RECONSUME_LATER)
        with consumer:
            while not _is_settled(admin):
                consumer.commit()
            yield running


def _is_settled(admin):
    stories = [admin.story(key).groups for key in ("failed", "filtered")]
    return [[each.state.value for each in groups] for groups in stories] == [
        ["retrying"],
        ["filtered"],
    ]


def test_a_retry_is_told_with_its_number_and_what_it_rests_on(run, rocketmq):
    done = run("story", "failed", "--namesrv", rocketmq.name_server)
    assert done.code == 0, done.err
    assert f"{GROUP}: in retry 1 of 16 since " in done.out
    assert "returned by group billing: retry 1 is kept in" in done.out
    assert re.search(r"due 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", " ".join(done.out.split()))
    assert "[broker-a]" in done.out
    assert "What was not searched, or is not recorded" in done.out
    assert "What could not be learnt" not in done.out


def test_show_has_the_groups_if_they_are_asked_for(run, rocketmq, write_store):
    done = run("show", "filtered", "--groups", "--namesrv", rocketmq.name_server)
    assert done.code == 0, done.err
    assert f"\n  {GROUP}: filtered out\n" in done.out
    assert "What groups did" not in run("show", "k", "--namesrv", rocketmq.name_server).out
    # The store has no file of offsets, so what groups did is not known.
    done = run("show", "T/0/0", "--groups", "--store", write_store({}))
    assert (done.code, "hello" in done.out) == (3, True)


def test_json_has_all_of_it(run, rocketmq):
    done = run("story", "filtered", "--namesrv", rocketmq.name_server, "-o", "json")
    told = json.loads(done.out)
    assert (done.code, told["complete"], told["message"]["keys"]) == (0, True, ["filtered"])
    assert [each["kind"] for each in told["events"]] == ["sent", "stored"]
    [group] = told["groups"]
    assert (group["group"], group["state"], group["retries"]) == (GROUP, "filtered", 0)
    assert "subscribe to A" in group["rests_on"]
    text = (Path(__file__).parents[3] / "docs/reference/life.md").read_text("utf-8")
    table = text.partition("| member | value |")[2].partition("\n\n")[0]
    rows = {tuple(re.findall(r"`(\w+)`", row.split("|")[1])): row for row in table.splitlines()[2:]}
    assert {name for names in rows for name in names} == {*told, "summary", "more"}
    for name in ("events", "groups", "unlearnt"):
        documented = re.findall(r"`(\w+)`", rows[name,].split("|")[2])
        assert all(set(each) == set(documented) for each in told[name]), name
    kinds, _, states = text.partition("Kinds of events: ")[2].partition("States of groups: ")
    assert re.findall(r"`(\w+)`", kinds) == list(EventKind)
    assert re.findall(r"`(\w+)`", states.partition("\n\n")[0].partition(" A test")[0]) == list(
        GroupState
    )


def test_what_is_not_there_is_not_found_and_a_wrong_topic_is_refused(run, rocketmq):
    assert run("story", "nothing", "--namesrv", rocketmq.name_server).code == 1
    done = run("story", "failed", "--topic", "Order", "--namesrv", rocketmq.name_server)
    assert (done.code, done.out) == (2, "")


def test_a_group_that_never_subscribed_is_said_to_be_so(run, rocketmq):
    arguments = ("--group", "TOOLS_CONSUMER", "--namesrv", rocketmq.name_server)
    done = run("story", "failed", *arguments)
    assert "TOOLS_CONSUMER: " in done.out
    assert f"\n  {GROUP}: " not in done.out


def test_other_messages_with_the_key_are_told_or_named(run, write_store):
    store = write_store(*({"properties": {"KEYS": "k", "UNIQ_KEY": f"{n:032X}"}} for n in (1, 2)))
    done = run("story", "k", "--store", store)
    # The store has no file of offsets.
    assert done.code == 3
    assert done.out.startswith("k: 2 messages; none is a dead letter, in retry or waiting\n\nT/0/0")
    assert "\nT/0/1\n" in done.out
    told = json.loads(run("story", "k", "--store", store, "-o", "json").out)
    assert [each["message"]["queue_offset"] for each in (told, *told["more"])] == [0, 1]
    assert told["summary"].startswith("k: 2 messages")
    done = run("story", "k", "--store", store, "--one")
    assert "1 other message matches" in done.err
    assert "T/0/1" in done.err


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lines_fit_the_terminal_and_positions_are_whole(columns):
    told = story(
        [copy(), copy(at_ms=1, queue_offset=8), waiting(1, 5), retried(1, 9), dead(17, 12)],
        groups=[known()],
    )
    lines = list(story_lines(told, columns))
    assert max(map(cells, lines)) <= columns
    assert any("T/0/8 has the same unique key" in line for line in lines)
    assert any("after 16 retries" in line for line in lines)


def test_text_of_others_cannot_command_the_terminal():
    told = story([copy(properties={"TAGS": "\x1b[2J"})])
    assert not any("\x1b" in line for line in story_lines(told, 80))


@pytest.mark.parametrize("state", GroupState)
def test_every_state_has_a_word(state):
    group = GroupStory("g", state, "because", "broker-a")
    told = replace(story([copy()]), groups=(group,))
    assert any(line.startswith("  g: ") for line in story_lines(told, 80))
