"""``dlq list``, ``show`` and ``redrive``: causes, and filters that say which dead letters."""

import asyncio
import json
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketlens.client.consume.consume_service import ConsumeConcurrentlyStatus
from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.patience import PATIENCE_S

LETTERS = [
    ("order-1", "TimeoutError: no answer in 5012 ms", {"amount": 5}),
    ("order-2", "TimeoutError: no answer in 6120 ms", {"amount": 50}),
    ("order-3", "KeyError: 'sku-77'", {"amount": 500}),
    ("order-4", None, {"amount": 5000}),
]
COMMANDS = [
    (("--cause", "TimeoutError"), [1, 2]),
    (("--cause", "timeouterror: no answer in 999 ms"), [1, 2]),
    (("--cause", "topic payments"), [4]),
    (("--key", "order-3"), [3]),
    (("--where", "body.$.amount > 100"), [3, 4]),
    (("--grep", '"amount": 5[^0]'), [1]),
    (("--cause", "TimeoutError", "--where", "body.$.amount > 10"), [2]),
    (("--since", "1h", "--key", "order-4"), [4]),
    (("--until", "yesterday"), []),
]


def fail(address):
    """Have the group billing fail with each message once, so that it is a dead letter."""
    failures = {key: failure for key, failure, _ in LETTERS}

    async def work():
        done = asyncio.Event()

        async def listener(messages, context):
            context.delay_level = -1
            failure = failures.pop(messages[0].keys[0])
            if not failures:
                done.set()
            if failure is None:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            name, text = failure.split(": ", 1)
            raise type(name, (Exception,), {})(text)

        consumer = PushConsumer(address, group="billing", begin="first", concurrency=1)
        consumer.subscribe("payments")
        consumer.listen(listener)
        async with consumer, asyncio.timeout(PATIENCE_S):
            await done.wait()

    asyncio.run(work())


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("filters")) as running:
        with running.admin() as admin:
            admin.create_topic("payments", 1)
        with running.producer() as producer:
            for key, _, body in LETTERS:
                producer.send(Message("payments", json.dumps(body), keys=key))
        fail(running.name_server)
        yield running


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def numbers(rows):
    return sorted(int(each.rpartition("-")[2]) for each in rows)


@pytest.mark.parametrize(("options", "expected"), COMMANDS)
def test_all_that_match_are_listed_shown_and_sent(run, rocketmq, options, expected):
    source = ("-n", rocketmq.name_server)
    (line,) = run("dlq", "list", "billing", *options, *source, "-o", "json").out.splitlines() or [0]
    group = json.loads(line) if line else {"messages": 0, "causes": []}
    assert group["messages"] == len(expected)
    assert sum(each["messages"] for each in group["causes"]) == len(expected)
    for where in (source, ("--store", str(rocketmq.store))):
        done = run("dlq", "show", "billing", *options, *where, "-o", "jsonl")
        shown = [json.loads(line) for line in done.out.splitlines()]
        assert numbers(each["keys"][0] for each in shown) == expected
    done = run("dlq", "redrive", "billing", *options, *source)
    rows = [line.split("\t") for line in done.out.splitlines()[1:]]
    assert numbers(row[6] for row in rows) == expected
    assert done.code == (0 if expected else 1)


def test_causes_have_counts_and_times_and_no_numbers(run, rocketmq):
    done = run("dlq", "list", "-n", rocketmq.name_server, "-o", "json")
    causes = json.loads(done.out)["causes"]
    assert [(each["cause"], each["messages"], each["last_hour"]) for each in causes] == [
        ("TimeoutError: no answer in # ms", 2, 2),
        ("KeyError: 'sku-#'", 1, 1),
        ("topic payments", 1, 1),
    ]
    assert all(each["oldest_ms"] <= each["newest_ms"] for each in causes)


def test_causes_are_printed_as_prometheus_reads_them(run, rocketmq):
    done = run("dlq", "list", "-n", rocketmq.name_server, "-o", "prometheus")
    families = {each.name: each for each in text_string_to_metric_families(done.out)}
    prefix = "rocketlens_dead_letters_by_cause"
    assert {name.removeprefix(prefix) for name in families} == {
        "",
        "_last_hour",
        "_oldest_timestamp_seconds",
        "_newest_timestamp_seconds",
    }
    assert [(each.labels, each.value) for each in families[prefix].samples] == [
        ({"consumer_group": "billing", "cause": "TimeoutError: no answer in # ms"}, 2),
        ({"consumer_group": "billing", "cause": "KeyError: 'sku-#'"}, 1),
        ({"consumer_group": "billing", "cause": "topic payments"}, 1),
    ]


def test_of_many_the_newest_are_read_and_the_rest_is_a_row(run, rocketmq, monkeypatch):
    monkeypatch.setattr("rocketlens.client.resend.dead_letters.MAX_CAUSES_READ", 2)
    done = run("dlq", "list", "-n", rocketmq.name_server)
    rows = [line.split("\t") for line in done.out.splitlines()[1:]]
    assert sorted((row[1], row[-1]) for row in rows) == [
        ("1", "KeyError: 'sku-#'"),
        ("1", "topic payments"),
        ("2", "older ones, not read"),
    ]


def test_the_newest_are_meant_by_max_in_every_command(run, rocketmq):
    source = ("-n", rocketmq.name_server)
    done = run("dlq", "show", "billing", "--max", "1", *source, "-o", "jsonl")
    assert json.loads(done.out)["keys"] == ["order-4"]
    done = run("dlq", "show", "billing", "--max", "1", "--cause", "time", *source, "-o", "jsonl")
    assert json.loads(done.out)["keys"] == ["order-2"]
    done = run("dlq", "redrive", "billing", "--max", "1", *source)
    assert [line.split("\t")[6] for line in done.out.splitlines()[1:]] == ["order-4"]
    assert "only the newest 1 are taken" in done.err


def test_last_failure_is_what_the_dead_letter_says(run, rocketmq):
    done = run("dlq", "show", "billing", "--key", "order-3", "-n", rocketmq.name_server)
    assert f"KeyError: 'sku-77' (on {socket.gethostname()})" in done.out


def test_the_group_that_failed_is_filled_in(run, rocketmq):
    source = ("-n", rocketmq.name_server)
    done = run("resend", "payments/0/2", *source, "--to-group")
    assert (done.code, "group billing failed with it" in done.err) == (0, True), done
    assert "%RETRY%billing" in done.out
    with rocketmq.producer() as producer:
        producer.send(Message("payments", "5", keys="order-5"))
    done = run("resend", "--key", "order-5", "-t", "payments", *source, "--to-group")
    assert (done.code, "none did" in done.err) == (2, True), done


def test_a_job_is_of_its_filters(run, rocketmq, tmp_path):
    """The same command resumes it, and one with other filters does not."""
    job = ("--job", str(tmp_path / "one.job"), "-n", rocketmq.name_server)
    send = ("--send", "--reason", "mended", "--rate", "1000")
    done = run("dlq", "redrive", "billing", "--cause", "KeyError", *job, *send)
    assert (done.code, done.out.count("\tsent\t")) == (0, 1), done
    done = run("dlq", "redrive", "billing", "--cause", "TimeoutError", *job)
    assert (done.code, "another request" in done.err) == (2, True)
    assert run("dlq", "redrive", "billing", "--cause", "KeyError", *job).code == 0
