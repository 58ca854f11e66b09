"""``rocketlens dlq list``: the groups that have dead letters."""

import csv
import json

import pytest

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster

TITLES = ["group", "messages", "last_hour", "sent_again", "oldest", "newest", "cause"]


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The directory where jobs are kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def rocketmq(tmp_path):
    """A broker with dead letters of two groups, and a group that had some."""
    with cluster(tmp_path / "store") as running:
        with running.producer() as producer:
            for group, count in (("billing", 3), ("ns%audit", 1)):
                for number in range(count):
                    producer.send(Message(f"%DLQ%{group}", f"{number}"))
        with running.admin() as admin:
            admin.create_topic("%DLQ%empty")
        yield running


def listed(run, rocketmq, *options):
    done = run("dlq", "list", *options, "--namesrv", rocketmq.name_server, "-o", "json")
    return done.code, [json.loads(line) for line in done.out.splitlines()]


def test_groups_are_listed_with_counts_and_the_newest_time(run, rocketmq):
    code, groups = listed(run, rocketmq)
    assert code == 0
    assert [(each["group"], each["messages"]) for each in groups] == [
        ("billing", 3),
        ("ns%audit", 1),
    ]
    with rocketmq.admin() as admin:
        newest = max(each.store_timestamp_ms for each in admin.find(None, "%DLQ%billing"))
    assert groups[0]["newest_ms"] == newest
    done = run("dlq", "list", "--namesrv", rocketmq.name_server)
    lines = [line.split("\t") for line in done.out.splitlines()]
    assert lines[0] == TITLES
    assert [line[:2] for line in lines[1:]] == [["billing", "3"], ["ns%audit", "1"]]


def test_that_there_are_none_is_said(run, rocketmq):
    done = run("dlq", "list", "empty", "--namesrv", rocketmq.name_server)
    assert (done.code, "group empty has no dead letters" in done.err) == (1, True)
    done = run("dlq", "list", "--namespace", "none", "--namesrv", rocketmq.name_server)
    assert (done.code, "no group has dead letters" in done.err) == (1, True)


def test_no_broker_is_not_no_dead_letter(run, rocketmq):
    """The name server forgets the topics of a broker that ended."""
    running = rocketmq._running
    running.thread.run(running.broker.stop())
    done = run("dlq", "list", "--namesrv", rocketmq.name_server)
    assert done.code == 3
    assert "INCOMPLETE: name servers: no broker is registered" in done.err
    for command in ("topics", "groups", "status"):
        done = run(command, "--namesrv", rocketmq.name_server)
        assert done.code == 3
        assert "INCOMPLETE: searched nothing in full" in done.err
        assert "message" not in done.err.splitlines()[0]


def test_a_topic_that_cannot_be_read_is_not_taken_for_an_empty_one(run, rocketmq):
    with rocketmq.admin() as admin:
        admin.create_topic("%DLQ%hidden", perm=2)
    code, groups = listed(run, rocketmq, "hidden")
    assert (code, "permission" in groups[0]["error"]) == (3, True)
    done = run("dlq", "list", "hidden", "--namesrv", rocketmq.name_server)
    assert done.out.splitlines()[0].split("\t") == [*TITLES, "error"]
    done = run("dlq", "redrive", "hidden", "--namesrv", rocketmq.name_server)
    assert (done.code, "permission 6" in done.err) == (2, True)


def test_one_group_and_one_namespace(run, rocketmq):
    code, groups = listed(run, rocketmq, "billing")
    assert (code, [each["group"] for each in groups]) == (0, ["billing"])
    code, groups = listed(run, rocketmq, "--namespace", "ns")
    assert (code, [each["group"] for each in groups]) == (0, ["audit"])
    assert listed(run, rocketmq, "empty") == (1, [])
    assert listed(run, rocketmq, "nobody") == (1, [])


def test_a_broker_that_fails_is_an_error_of_the_group(run, rocketmq):
    rocketmq.kill_broker()
    code, groups = listed(run, rocketmq)
    assert code == 3
    assert [each["group"] for each in groups] == ["billing", "empty", "ns%audit"]
    assert all(each["error"] for each in groups)


def test_csv_has_a_row_for_each_group(run, rocketmq):
    done = run("dlq", "list", "--namesrv", rocketmq.name_server, "-o", "csv")
    rows = list(csv.reader(done.out.splitlines()))
    assert rows[0][:2] == ["group", "messages"]
    assert [row[:2] for row in rows[1:]] == [["billing", "3"], ["ns%audit", "1"]]


def test_the_list_says_how_many_were_sent_again(run, rocketmq, state):
    address = rocketmq.name_server
    with rocketmq.admin() as admin:
        for topic in ("%RETRY%billing", "T"):
            admin.create_topic(topic)
    assert [each["sent_again"] for each in listed(run, rocketmq)[1]] == [0, 0]
    send = ("--send", "--reason", "mended", "--rate", "1000", "--max", "2")
    done = run("dlq", "redrive", "billing", "--namesrv", address, *send)
    assert done.code == 0, done.err
    groups = listed(run, rocketmq)[1]
    assert [(each["group"], each["messages"], each["sent_again"]) for each in groups] == [
        ("billing", 3, 2),
        ("ns%audit", 1, 0),
    ]
    shown = [line.split("\t") for line in run("dlq", "list", "-n", address).out.splitlines()]
    assert [row[3] for row in shown] == ["sent_again", "2", "0"]
    (job,) = state.rglob("*.job")
    job.write_bytes(job.read_bytes().replace(b"mended", b"broken"))
    done = run("dlq", "list", "-n", address)
    assert [line.split("\t")[3] for line in done.out.splitlines()[1:]] == ["?", "?"]
    assert "sent_again is not known" in done.err


def test_jobs_of_another_namespace_are_not_counted(run, rocketmq):
    with rocketmq.admin() as admin:
        for topic in ("%RETRY%audit", "%RETRY%ns%audit"):
            admin.create_topic(topic)
    with rocketmq.producer() as producer:
        producer.send(Message("%DLQ%audit", "of no namespace"))
    done = run(
        *("dlq", "redrive", "audit", "-n", rocketmq.name_server, "--namespace", "ns"),
        *("--send", "--reason", "mended", "--follow", "0"),
    )
    assert done.code == 0, done.err
    assert [each["sent_again"] for each in listed(run, rocketmq, "audit")[1]] == [0]
    assert [
        each["sent_again"] for each in listed(run, rocketmq, "audit", "--namespace", "ns")[1]
    ] == [1]
