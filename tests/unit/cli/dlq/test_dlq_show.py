"""``rocketlens dlq show``: the dead letters of one group."""

import csv
import json

import pytest

import rocketlens
from rocketlens.cli.last_failures import last_failures_in
from rocketlens.client.send.message import Message
from rocketlens.errors import StoreFailed
from rocketlens.formats.trace_body import TraceRecord, TraceType, encode
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("dlq")) as running, running.producer() as producer:
        for number in range(4):
            producer.send(Message("%DLQ%billing", f"bad order {number}", keys=f"K{number}"))
        yield running


def test_dead_letters_have_times_keys_and_bodies(run, rocketmq):
    for source in (("-n", rocketmq.name_server), ("--store", str(rocketmq.store))):
        done = run("dlq", "show", "billing", *source)
        assert done.code == 0, done.err
        titles, *rows = (line.split("\t") for line in done.out.splitlines())
        assert (titles[0], titles[3], *titles[-2:]) == ("time", "keys", "last_failure", "body")
        found = [(row[3], *row[-2:]) for row in rows]
        assert found == [(f"K{n}", "-", f"bad order {n}") for n in range(4)]


def test_only_the_newest_are_shown(run, rocketmq):
    done = run("dlq", "show", "billing", "--max", "1", "-o", "json", "-n", rocketmq.name_server)
    answer = json.loads(done.out)
    assert [each["keys"] for each in answer["messages"]] == [["K3"]]
    assert answer["truncated"]


def test_a_group_without_dead_letters_has_none(run, rocketmq):
    done = run("dlq", "show", "nobody", "-n", rocketmq.name_server)
    assert (done.code, done.out) == (1, "")
    assert "group nobody has no dead letters" in done.err


@pytest.mark.parametrize("command", ["list", "show", "redrive"])
def test_a_misspelt_group_is_told_the_one_that_was_probably_meant(run, rocketmq, command):
    done = run("dlq", command, "biling", "-n", rocketmq.name_server)
    assert "group biling has no dead letters; did you mean billing?" in done.err
    assert done.code == 1


def trace(unique_key, group="billing", retry_times=0, **outcome):
    """Return the trace message of one call of a listener."""
    call = {"msg_id": unique_key, "request_id": f"{group}{retry_times}", "group": group}
    begin = TraceRecord(
        TraceType.SUB_BEFORE,
        timestamp_ms=1_700_000_000_000 + retry_times,
        region_id="R",
        retry_times=retry_times,
        keys="K",
        **call,
    )
    end = TraceRecord(
        TraceType.SUB_AFTER,
        timestamp_ms=1_700_000_000_000 + retry_times,
        cost_ms=7,
        keys="K",
        **call,
        **outcome,
    )
    return Message("RMQ_SYS_TRACE_TOPIC", encode(begin) + encode(end), keys=[unique_key])


@pytest.fixture
def traced(tmp_path):
    """Dead letters of a group whose clients told how they failed with some of them."""
    failed, done = {"is_success": False}, {"is_success": True, "context_code": 0}
    with cluster(tmp_path / "traced") as running, running.producer() as producer:
        ids = [
            producer.send(Message("%DLQ%billing", f"{number}", keys=f"K{number}")).msg_id
            for number in range(5)
        ]
        producer.send(trace(ids[0], context_code=1, **failed))
        producer.send(trace(ids[0], retry_times=1, context_code=2, **failed))
        producer.send(trace(ids[1], context_code=4, **failed))
        producer.send(trace(ids[2], group="audit", context_code=2, **failed))
        producer.send(trace(ids[3], **done))
        yield running


WORDS = [": an exception", "failed to consume it", None, None, None]


def test_the_last_failure_is_what_traces_tell_and_else_a_dash(run, traced):
    for source in (("-n", traced.name_server), ("--store", str(traced.store))):
        done = run("dlq", "show", "billing", *source)
        titles, *rows = (line.split("\t") for line in done.out.splitlines())
        shown = [row[titles.index("last_failure")] for row in rows]
        for text, words in zip(shown, WORDS, strict=True):
            assert text == "-" if words is None else words in text
        lines = run("dlq", "show", "billing", *source, "-o", "jsonl").out.splitlines()
        in_json = [json.loads(line)["last_failure"] for line in lines]
        assert in_json == [None if text == "-" else text for text in shown]
        in_csv = list(
            csv.DictReader(run("dlq", "show", "billing", *source, "-o", "csv").out.splitlines())
        )
        assert [row["last_failure"] for row in in_csv] == [text or "" for text in in_json]
        fields = run("dlq", "show", "billing", *source, "--fields", "keys,last_failure").out
        assert [line.split("\t")[1] for line in fields.splitlines()] == ["last_failure", *shown]


def test_a_preview_of_a_redrive_has_the_last_failure(run, traced):
    with traced.admin() as admin:
        admin.create_topic("%RETRY%billing")
    done = run("dlq", "redrive", "billing", "-n", traced.name_server)
    titles, *rows = (line.split("\t") for line in done.out.splitlines())
    assert titles[-2:] == ["body", "last_failure"]
    by_body = {row[-2]: row[-1] for row in rows}
    assert (": an exception" in by_body["0"], by_body["2"], by_body["4"]) == (True, "-", "-")


def test_traces_that_cannot_be_read_take_no_dead_letter_away(write_store):
    class Damaged:
        def find_for(self, _request):
            raise StoreFailed("damaged")

    with rocketlens.open_store(
        write_store({"body": b"x", "properties": {"UNIQ_KEY": "u"}})
    ) as store:
        messages = store.find("u").messages
    assert len(messages) == 1
    assert last_failures_in(Damaged(), messages) == {}
