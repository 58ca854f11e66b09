"""``rocketlens dlq list``: the groups that have dead letters."""

import csv
import json

import pytest

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster


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
    assert lines[0] == ["group", "messages", "newest"]
    assert [line[:2] for line in lines[1:]] == [["billing", "3"], ["ns%audit", "1"]]


def test_a_topic_that_cannot_be_read_is_not_taken_for_an_empty_one(run, rocketmq):
    with rocketmq.admin() as admin:
        admin.create_topic("%DLQ%hidden", perm=2)
    code, groups = listed(run, rocketmq, "hidden")
    assert (code, "permission" in groups[0]["error"]) == (3, True)
    done = run("dlq", "list", "hidden", "--namesrv", rocketmq.name_server)
    assert done.out.splitlines()[0].split("\t") == ["group", "messages", "newest", "error"]
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
