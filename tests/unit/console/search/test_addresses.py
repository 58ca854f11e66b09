"""A search as a command line finds the same."""

import json
import re
import shlex
from html import unescape
from types import SimpleNamespace

import pytest

from rocketlens import testing
from rocketlens.cli.source import selected
from rocketlens.client.send.message import Message
from rocketlens.console.search import addresses
from rocketlens.console.search.question import Question
from rocketlens.console.sources.sources import cluster_options
from rocketlens.console.values import MessageRow
from rocketlens.main import build_parser
from rocketlens.terminal.contexts import Context
from tests.support.console_client import answer, cluster_at, store_at
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
        {"q": "ORDER-1", "all_topics": True},
        {"topic": "t", "tag": "-A || B"},
        {"topic": "t", "where": "-1 < body.$.n AND tag = 'a b'", "grep": "--x|'y'"},
    ],
)
@pytest.mark.parametrize("source", [STORE, CLUSTER], ids=["store", "cluster"])
def test_the_command_line_is_understood_and_asks_the_same(values, source):
    question = Question.read(**values)
    words = shlex.split(addresses.find_command(question, [source]))
    arguments = build_parser().parse_args(words[1:])
    assert (arguments.key or " ".join(arguments.text)) == question.text
    assert (arguments.tag or "") == question.tag
    assert arguments.topic == ([question.topic] if question.topic else None)
    assert (arguments.since or "", arguments.until or "") == (question.since, question.until)
    assert (arguments.where or "", arguments.grep or "") == (question.where, question.grep)
    assert arguments.exhaustive == question.exhaustive
    assert arguments.all == question.all_topics
    assert (arguments.store or arguments.namesrv) == source.command_options[1]


def test_a_time_without_a_zone_is_written_as_it_was_read():
    question = Question.read(topic="t", since="2026-11-20", zone_name="Asia/Shanghai")
    words = shlex.split(addresses.find_command(question, [STORE]))
    assert words[words.index("--since") + 1] == str(question.begin)


def test_there_is_no_command_line_that_would_ask_something_else():
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
    bodies = [each["body"] for each in json.loads(done.out)["messages"]]
    assert bodies == ["of shop"]


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


def test_a_url_is_quoted():
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
        {"q": "it's-U-3", "kind": "unique-key"},
        {"q": "it's-U-3", "kind": "unique-key", "topic": "Orders", "tag": "A || B'"},
        {"q": "it's-U-3", "kind": "unique-key", "since": str(NOW_MS + 1), "max_num": 1},
    ],
)
def test_the_command_line_of_sql_finds_the_same(values, tmp_path, run):
    sent = [
        Sent(
            topic="Orders" if n % 4 else "Other",
            keys=f"all it's ORDER-{n}",
            tags=("A", "B'", None)[n % 3],
            # Two records of each.
            unique_key=f"it's-U-{n % 6}",
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
        Question(text="a b", kind="unique-key"),
        Question(text="x", kind="unique-key", where="a = 'b'"),
        Question(text="x", kind="unique-key", exhaustive=True),
        Question(text="7F00000100002A9F0000000000000000", kind="offset-id"),
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


def sql_on_page(page):
    """Give the words of the command line of SQL that a page has; None if it has none."""
    found = re.search(r"rocketlens sql [^<]*", page.text)
    return None if found is None else shlex.split(unescape(found[0]))


def test_the_sql_of_a_message_finds_that_message_by_its_unique_key(tmp_path, run):
    sent = [Sent(topic="Orders", unique_key="it's-U", body=b"%d" % n) for n in range(3)]
    made = make_store(tmp_path / "a store", [*sent, Sent(topic="Orders")])
    words = sql_on_page(answer("/m/s/Orders/-/0/1", store_at(made.path, "s")))
    done = run(*words[1:], "-o", "json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)
    assert (found["topic"], found["queue_id"], found["queue_offset"]) == ("Orders", 0, 1)
    # Without a unique key it would be compared with every message of the topic.
    assert sql_on_page(answer("/m/s/Orders/-/0/3", store_at(made.path, "s"))) is None


@pytest.mark.parametrize("kind", ["search", "message"])
def test_the_sql_of_a_unique_key_is_looked_up_and_no_scan(kind):
    question = Question.read(q="it's-U", kind="unique-key", topic="Orders")
    row = MessageRow.model_construct(
        unique_key="it's-U", topic="Orders", queue_id=0, queue_offset=7
    )
    lines = {
        "search": addresses.sql_command(question, [STORE]),
        "message": addresses.sql_of_message(row, STORE),
    }
    arguments = build_parser().parse_args(shlex.split(lines[kind])[1:])
    request = selected(arguments)
    assert (request.text, request.kind) == ("it's-U", "unique-key")


def test_the_sql_of_ids_finds_the_same_in_a_cluster(run):
    with testing.cluster() as running:
        with running.producer() as producer:
            results = [producer.send(Message("orders", b"%d" % n)) for n in range(5)]
        live = cluster_at(running.name_server, "live")
        search = f"/search?q={results[2].msg_id}&kind=unique-key"
        (row,) = answer(f"/api{search}", live).json()["messages"]
        for path in (search, row["path"]):
            words = sql_on_page(answer(path, live))
            done = run(*words[1:], "-o", "json")
            assert done.code == 0, done.err
            (found,) = json.loads(done.out)
            position = (found["queue_id"], found["queue_offset"])
            assert position == (row["queue_id"], row["queue_offset"])
