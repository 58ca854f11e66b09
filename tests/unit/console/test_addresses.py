"""A search as a command line finds the same."""

import shlex
from types import SimpleNamespace

import pytest

from rocketlens.console import addresses
from rocketlens.console.question import Question
from rocketlens.main import build_parser

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
