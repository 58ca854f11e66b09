"""A search as a command line finds the same."""

import json
import shlex
from types import SimpleNamespace

import pytest

from rocketlens.console import addresses
from rocketlens.console.question import Question
from rocketlens.main import build_parser
from tests.support.console_client import answer, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store

STORE = SimpleNamespace(kind="store", title="/data/my store", name="store")
CLUSTER = SimpleNamespace(kind="cluster", title="10.0.0.1:9876;10.0.0.2:9876", name="prod")


@pytest.mark.parametrize(
    "values",
    [
        {"q": "ORDER 42'; rm -rf /"},
        {"q": "-77", "kind": "key"},
        {"q": "-77"},
        {"topic": "order-*", "since": "2h", "until": "1h"},
        {"q": "t/1/2", "kind": "queue-offset", "exhaustive": True},
        {"topic": "t", "where": "-1 < body.$.n AND tag = 'a b'", "grep": "--x|'y'"},
    ],
)
@pytest.mark.parametrize("source", [STORE, CLUSTER], ids=lambda each: each.kind)
def test_the_command_line_is_understood_and_asks_the_same(values, source):
    question = Question.read(**values)
    words = shlex.split(addresses.find_command(question, [source]))
    arguments = build_parser().parse_args(words[1:])
    assert (arguments.key or arguments.text or "") == question.text
    assert arguments.topic == ([question.topic] if question.topic else None)
    assert (arguments.since or "", arguments.until or "") == (question.since, question.until)
    assert (arguments.where or "", arguments.grep or "") == (question.where, question.grep)
    assert arguments.exhaustive == question.exhaustive
    assert (arguments.store or arguments.namesrv) == source.title


def test_a_time_without_a_zone_is_written_as_it_was_read():
    question = Question.read(topic="t", since="2026-11-20", zone_name="Asia/Shanghai")
    words = shlex.split(addresses.find_command(question, [STORE]))
    assert words[words.index("--since") + 1] == str(question.begin)


def test_there_is_no_command_line_that_would_ask_something_else():
    assert addresses.find_command(Question(topic="t", tag="A"), [STORE]) == ""
    assert addresses.find_command(Question(grep="x"), [STORE], has_rules=True) == ""
    assert addresses.find_command(Question(text="x"), [STORE], has_rules=True) != ""


def test_several_sources_have_a_line_each():
    lines = addresses.find_command(Question(text="x"), [STORE, CLUSTER]).splitlines()
    assert ["--store" in lines[0], "--namesrv" in lines[1]] == [True, True]


def test_a_message_and_a_url_are_quoted():
    assert shlex.split(addresses.show_command("%RETRY%g/1/2", STORE))[2] == "%RETRY%g/1/2"
    url = "http://x/api/search?q=a'b&max=2"
    assert shlex.split(addresses.curl_command(url)) == ["curl", "-sS", url]


@pytest.mark.parametrize(
    "values",
    [
        {"topic": "Orders"},
        {"topic": "Orders,Other"},
        {"topic": "Ord*"},
        {"topic": "Orders", "tag": "A || B'"},
        {"topic": "Orders", "tag": "*", "max_num": 2},
        {"q": "it's", "kind": "key"},
        {"q": "all", "kind": "key", "topic": "Orders", "tag": "A"},
        {"topic": "Orders", "where": "body.$.n > 2", "since": str(NOW_MS + 1)},
        {"topic": "Orders", "grep": "-|:3", "until": str(NOW_MS + 4)},
    ],
)
def test_the_command_line_of_sql_finds_the_same(values, tmp_path, run):
    sent = [
        Sent(
            topic="Orders" if n % 4 else "Other",
            keys=f"all it's ORDER-{n}",
            tags=("A", "B'", None)[n % 3],
            body=b'{"n":%d}' % n,
            store_timestamp_ms=NOW_MS + n // 2,
        )
        for n in range(12)
    ]
    made = make_store(tmp_path / "a store", sent)
    source = SimpleNamespace(kind="store", title=str(made.path), name="s")
    question = Question.read(**values)
    expected = answer(question.address("/api/search"), store_at(made.path)).json()["messages"]
    words = shlex.split(addresses.sql_command(question, [source]))
    done = run(*words[1:], "-o", "json")
    assert done.code == 0, done.err
    found = [(each["topic"], each["queue_offset"]) for each in json.loads(done.out)]
    assert found
    assert found == [(each["topic"], each["queue_offset"]) for each in expected]


@pytest.mark.parametrize(
    "question",
    [
        Question(text="ORDER-1"),
        Question(text="x", kind="unique-key"),
        Question(text="t/1/2", kind="queue-offset"),
        Question(since="2h"),
        Question(tag="A"),
        Question(topic="t", exhaustive=True),
    ],
)
def test_sql_is_not_offered_where_it_would_not_find_the_same(question):
    assert addresses.sql_command(question, [STORE]) == ""


def test_sql_is_not_offered_with_a_filter_if_bodies_have_rules():
    question = Question(topic="t", grep="x")
    assert addresses.sql_command(question, [STORE], has_rules=True) == ""
    assert addresses.sql_command(question, [STORE]) != ""


def test_sql_of_several_sources_has_a_line_each():
    lines = addresses.sql_command(Question(topic="t"), [STORE, CLUSTER]).splitlines()
    assert ["--store" in lines[0], "--namesrv" in lines[1]] == [True, True]
