"""A search as a command line finds the same."""

import json
import re
import shlex
from base64 import b64encode
from html import unescape
from types import SimpleNamespace

import pytest

from rocketlens import testing
from rocketlens.client.message import Message
from rocketlens.console import addresses
from rocketlens.console.question import Question
from rocketlens.console.sources import cluster_options
from rocketlens.main import build_parser
from rocketlens.terminal.contexts import Context
from tests.support.console_client import answer, store_at
from tests.support.made_stores import NOW_MS, Sent, make_store

STORE = SimpleNamespace(command_options=("--store", "/data/my store"))
CLUSTER = SimpleNamespace(command_options=("--namesrv", "10.0.0.1:9876;10.0.0.2:9876"))


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
@pytest.mark.parametrize("source", [STORE, CLUSTER], ids=["store", "cluster"])
def test_the_command_line_is_understood_and_asks_the_same(values, source):
    question = Question.read(**values)
    words = shlex.split(addresses.find_command(question, [source]))
    arguments = build_parser().parse_args(words[1:])
    assert (arguments.key or arguments.text or "") == question.text
    assert arguments.topic == ([question.topic] if question.topic else None)
    assert (arguments.since or "", arguments.until or "") == (question.since, question.until)
    assert (arguments.where or "", arguments.grep or "") == (question.where, question.grep)
    assert arguments.exhaustive == question.exhaustive
    assert (arguments.store or arguments.namesrv) == source.command_options[1]


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


@pytest.mark.parametrize("path", ["/search?q=all&kind=key", "/search?topic=Orders"])
def test_the_command_line_of_a_cluster_finds_the_same_in_its_namespace(path, run):
    with testing.cluster() as running:
        for namespace in ("shop", ""):
            with running.producer(namespace=namespace) as producer:
                producer.send(Message("Orders", f"of {namespace}", keys="all"))
        context = ("s", Context(namesrv=running.name_server, namespace="shop"))
        shown = map(unescape, re.findall("<pre[^>]*>(.*?)</pre>", answer(path, context).text))
        (line,) = (each for each in shown if each.startswith("rocketlens find"))
        done = run(*shlex.split(line)[1:], "-o", "json")
    assert done.code == 0, done.err
    bodies = [each["body_base64"] for each in json.loads(done.out)["messages"]]
    assert bodies == [b64encode(b"of shop").decode()]


@pytest.mark.parametrize(
    ("given", "settings", "options"),
    [
        ("prod", {}, "--namesrv a:1"),
        ("prod", {"namespace": "-shop", "read_only": True}, "--namesrv a:1 --namespace=-shop"),
        ("prod", {"access_key": "k", "secret_key": "very-secret"}, "--context=prod"),
        ("my prod", {"tls": True}, "'--context=my prod'"),
        ("prod", {"cert": "/secret/cert"}, "--context=prod"),
        (
            None,
            {"access_key": "k", "secret_key": "very-secret", "cert": "/c", "check_hostname": True},
            "--namesrv a:1 --check-hostname",
        ),
        (None, {"ca": "/ca", "insecure": False, "tls": True}, "--namesrv a:1 --ca=/ca --tls"),
        (None, {"ca": "/ca", "tls": False, "namespace": "n"}, "--namesrv a:1 --namespace=n"),
    ],
)
def test_a_command_line_has_what_the_same_answer_needs_and_no_secret(given, settings, options):
    context = Context(namesrv="a:1", **settings)
    words = cluster_options(given, context)
    assert shlex.join(words) == options
    arguments = build_parser().parse_args(["find", "x", *words])
    assert (arguments.context or context.namesrv) in {given, arguments.namesrv}
    assert arguments.namespace == context.namespace


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
    source = SimpleNamespace(command_options=("--store", str(made.path)))
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
