"""``rocketlens topics`` over a store and over a cluster."""

import csv
import io
import json

import pytest

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("rocketmq")) as running, running.producer() as producer:
        for number in range(5):
            producer.send(Message("Orders", f"{number}"))
        producer.send(Message("%RETRY%billing", "again"))
        yield running


def rows_of(text):
    titles, *rows = (line.split("\t") for line in text.splitlines())
    return [dict(zip(titles, row, strict=True)) for row in rows]


def test_topics_of_a_store_have_messages_times_and_size(run, golden):
    done = run("topics", "--store", str(golden("5.5.0").store))
    assert done.code == 0
    [row] = [row for row in rows_of(done.out) if row["topic"] == "PayTopic"]
    assert row == {
        "topic": "PayTopic",
        "queues": "4",
        "messages": "491",
        "waiting": "0",
        "oldest": "2026-11-21T02:40:33.459+00:00",
        "newest": "2026-11-21T02:40:40.853+00:00",
        "size": "236.7K",
    }
    assert "not shown: 2 retry, 12 system (--all shows them)" in done.err


def test_topics_of_brokers_and_groups_are_listed_when_they_are_asked_for(run, golden):
    store = str(golden("5.5.0").store)
    listed = {row["topic"] for row in rows_of(run("topics", "--store", store, "--all").out)}
    assert {"PayTopic", "%RETRY%golden_cg", "SCHEDULE_TOPIC_XXXX"} <= listed
    done = run("topics", "%RETRY%*", "--store", store)
    assert [row["topic"] for row in rows_of(done.out)] == [
        "%RETRY%TOOLS_CONSUMER",
        "%RETRY%golden_cg",
    ]
    assert done.err == ""


def test_one_topic_is_shown_with_its_queues(run, golden):
    done = run("topics", "PayTopic", "--store", str(golden("5.5.0").store))
    topic, queues = done.out.split("\n\n")
    assert rows_of(topic)[0]["topic"] == "PayTopic"
    assert [(row["queue_id"], row["max_offset"]) for row in rows_of(queues)] == [
        ("0", "123"),
        ("1", "123"),
        ("2", "122"),
        ("3", "123"),
    ]


def test_a_topic_that_is_not_there_is_refused_with_a_suggestion(run, golden):
    done = run("topics", "PayTopc", "--store", str(golden("5.5.0").store))
    assert (done.code, done.out) == (2, "")
    assert "this store has no topic 'PayTopc'; did you mean PayTopic?" in done.err


def test_a_cluster_lists_the_same_but_sizes(run, rocketmq):
    done = run("topics", "--namesrv", rocketmq.name_server)
    assert done.code == 0
    [row] = [row for row in rows_of(done.out) if row["topic"] == "Orders"]
    assert (row["messages"], row["size"]) == ("5", "?")
    assert row["oldest"] <= row["newest"]
    assert "%RETRY%billing" not in done.out
    done = run("topics", "--namesrv", rocketmq.name_server, "-o", "json", "Orders")
    answer = json.loads(done.out)
    [topic] = answer["topics"]
    assert (answer["complete"], topic["kind"], topic["messages"]) == (True, "normal", 5)
    assert sum(queue["max_offset"] for queue in topic["queues"]) == 5


def test_a_broker_that_cannot_be_asked_is_named(run, tmp_path):
    with cluster(tmp_path) as running:
        with running.producer() as producer:
            producer.send(Message("Orders", "1"))
        running.kill_broker()
        done = run("topics", "Orders", "--namesrv", running.name_server)
    assert done.code == 3
    assert rows_of(done.out) == [
        dict.fromkeys(("queues", "messages", "waiting", "oldest", "newest", "size"), "?")
        | {"topic": "Orders"}
    ]
    assert "broker-a" in done.err
    assert "INCOMPLETE" in done.err


def test_on_a_terminal_of_80_columns_no_line_is_wider(run, golden, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in ((), ("--all",), ("PayTopic",)):
        done = run("topics", *arguments, "--store", str(golden("5.5.0").store))
        assert max(map(len, done.out.splitlines())) <= 80
        assert "PayTopic" in done.out
        assert "2026-11-21 02:40:33" in done.out


def test_topics_that_a_broker_creates_by_itself_are_marked(run, rocketmq, golden):
    marked = {"DefaultCluster (of the broker)", "broker-a (of the broker)"}
    done = run("topics", "-n", rocketmq.name_server)
    names = {row["topic"] for row in rows_of(done.out)}
    assert marked <= names
    assert "Orders" in names
    done = run("topics", "--store", str(golden("5.5.0").store))
    own = {row["topic"] for row in rows_of(done.out) if "(of the broker)" in row["topic"]}
    assert {"DefaultCluster (of the broker)", "DefaultCluster_REPLY_TOPIC (of the broker)"} <= own
    listed = json.loads(run("topics", "-n", rocketmq.name_server, "-o", "json").out)["topics"]
    assert {each["name"] for each in listed if each["is_of_broker"]} >= {"broker-a"}


def test_topics_can_be_csv(run, rocketmq):
    done = run("topics", "Orders", "-n", rocketmq.name_server, "-o", "csv")
    titles, row = csv.reader(io.StringIO(done.out))
    assert titles == ["topic", "queues", "messages", "waiting", "oldest", "newest", "size"]
    assert (row[0], row[2], row[3], row[6]) == ("Orders", "5", "0", "")
    assert row[4].startswith("20")


def test_messages_that_wait_are_counted_for_the_topic_that_they_are_for(run, tmp_path):
    with cluster(tmp_path / "waiting", timerWheelEnable=True) as running:
        with running.admin() as admin:
            admin.create_topic("Reminders")
        with running.producer() as producer:
            for number in range(3):
                producer.send(Message("Reminders", f"{number}", delay_level=18))
            producer.send(Message("Reminders", "now"))
        for source in (("-n", running.name_server), ("--store", str(running.store))):
            [row] = rows_of(run("topics", "Reminders", *source, "-o", "table").out.split("\n\n")[0])
            assert (row["messages"], row["waiting"]) == ("1", "3"), source
            listed = json.loads(run("topics", *source, "-o", "json").out)
            assert {each["name"]: each["waiting"] for each in listed["topics"]}["Reminders"] == 3
            assert listed["waiting_is_exact"]
