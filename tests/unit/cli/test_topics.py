"""``rocketlens topics`` and ``status`` over a store and over a cluster.

Each command names the topic, group, queue or broker that is not there, and the nearest one.
"""

import csv
import io
import json
import os
import re

import pytest

from rocketlens import SyncPushConsumer
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster
from tests.support.archives import archive_store
from tests.support.made_stores import Sent, make_store


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
        "note": "",
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
    assert (row["messages"], row["size"]) == ("5", "")
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
        dict.fromkeys(("queues", "messages", "waiting", "oldest", "newest"), "?")
        | {"topic": "Orders", "size": "", "note": ""}
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
    done = run("topics", "-n", rocketmq.name_server)
    notes = {row["topic"]: row["note"] for row in rows_of(done.out)}
    assert notes["DefaultCluster"] == notes["broker-a"] == "of the broker"
    assert not notes["Orders"]
    done = run("topics", "--store", str(golden("5.5.0").store))
    own = {row["topic"] for row in rows_of(done.out) if row["note"] == "of the broker"}
    assert {"DefaultCluster", "DefaultCluster_REPLY_TOPIC"} <= own
    listed = json.loads(run("topics", "-n", rocketmq.name_server, "-o", "json").out)["topics"]
    assert {each["name"] for each in listed if each["is_of_broker"]} >= {"broker-a"}


def test_topics_can_be_csv(run, rocketmq):
    done = run("topics", "Orders", "-n", rocketmq.name_server, "-o", "csv")
    titles, row = csv.reader(io.StringIO(done.out))
    assert titles == ["topic", "queues", "messages", "waiting", "oldest", "newest", "size", "note"]
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


@pytest.fixture(scope="module")
def named_cluster(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("rocketmq")) as running, running.producer() as producer:
        for number in range(5):
            producer.send(Message("Orders", f"{number}"))
        yield running


def lines_of(text):
    return dict(line.split("\t", 1) for line in text.partition("\n\n")[0].splitlines())


def test_a_store_has_its_state_on_one_screen(run, golden):
    done = run("status", "--store", str(golden("5.5.0").store))
    assert (done.code, done.err) == (0, "")
    lines = lines_of(done.out)
    assert lines["written by"] == "RocketMQ 5.5"
    assert lines["closed"] == "cleanly"
    assert lines["messages"] == (
        "1,703 in 6 topics, 3 of them the broker's own, "
        "2026-11-21 02:40:33.352+00:00 to 2026-11-21 02:40:44.893+00:00"
    )
    assert lines["log"] == "868.3K in 4 files, physical offsets 0 to 889173"
    assert lines["index"].startswith("150.7K in 7 files, 6,783 entries, up to 2026-11-21 02:40:44")
    assert " free of " in lines["disk"]
    titles, golden_cg = done.out.partition("\n\n")[2].splitlines()
    assert titles.split("\t") == ["group", "members", "lag", "to_retry", "dead_letters"]
    assert golden_cg.split("\t") == ["golden_cg", "?", "0", "50", "0"]


def test_a_store_that_was_not_closed_and_damaged_index_files_are_told(run, golden, copy):
    done = run("status", "--store", str(golden("4.9.7").path / "store-crashed"))
    assert lines_of(done.out)["closed"].startswith("no: its broker was killed")
    assert lines_of(done.out)["written by"] == "RocketMQ 4"
    oldest = min((copy / "index").iterdir())
    oldest.write_bytes(os.urandom(2000))
    assert "in 7 files, 1 of them damaged" in lines_of(run("status", "--store", copy).out)["index"]


def test_what_cannot_be_read_makes_it_incomplete(run, copy):
    for each in (copy / "config").glob("consumerOffset.json*"):
        each.write_text("{")
    done = run("status", "--store", copy)
    assert done.code == 3
    assert "failed: config/consumerOffset.json: it cannot be read" in done.err
    assert lines_of(done.out)["closed"] == "cleanly"


def test_a_cluster_shows_brokers_with_version_rates_and_disk(run, named_cluster):
    done = run("status", "--namesrv", named_cluster.name_server)
    assert done.code == 0
    head, brokers = done.out.split("\n\n")[:2]
    lines = lines_of(head)
    assert lines["nameserver"] == named_cluster.name_server
    assert lines["topics"] == "4 topics, 3 of them the brokers' own"
    assert lines["clients"].startswith("1 producers, 0 consumers")
    titles, row = (line.split("\t") for line in brokers.splitlines())
    broker = dict(zip(titles, row, strict=True))
    assert (broker["broker"], broker["role"], broker["version"]) == ("broker-a", "master", "5.5.0")
    assert broker["address"] == named_cluster.broker
    assert broker["disk"].endswith("%")
    assert broker["oldest"]


def test_json_has_all_of_it(run, named_cluster, golden):
    found = json.loads(run("status", "--namesrv", named_cluster.name_server, "-o", "json").out)
    assert found["complete"]
    [broker] = found["brokers"]
    assert (found["topics"], found["broker_topics"]) == (4, 3)
    assert (broker["broker_id"], broker["version"], broker["producers"]) == (0, "V5_5_0", 1)
    assert broker["end_offset"] > broker["min_offset"] == 0
    found = json.loads(run("status", "--store", golden("5.5.0").store, "-o", "json").out)
    assert (found["closing"], found["messages"], found["complete"]) == ("clean", 1703, True)
    assert found["index"]["builder"] is None
    assert [group["to_retry"] for group in found["groups"]] == [50]


def test_a_store_in_use_says_so_and_has_its_index_builder(run, named_cluster):
    lines = lines_of(run("status", "--store", named_cluster.store).out)
    assert lines["closed"] == "no: a broker or job has it open"
    assert lines["written by"] == "RocketLens"
    assert lines["messages"].startswith("5 in ")
    assert "builder " in lines["index"]


def test_a_broker_that_cannot_be_asked_is_shown_without_values(run, tmp_path):
    with cluster(tmp_path) as running:
        running.kill_broker()
        done = run("status", "--namesrv", running.name_server)
    assert done.code == 3
    titles, row = (line.split("\t") for line in done.out.split("\n\n")[1].splitlines())
    broker = dict(zip(titles, row, strict=True))
    assert (broker["broker"], broker["version"], broker["disk"]) == ("broker-a", "?", "?")
    assert "failed: broker-a" in done.err


def test_long_lines_are_wrapped_on_a_terminal(run, golden, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    lines = run("status", "--store", golden("5.5.0").store).out.split("\n\n")[0].splitlines()
    assert lines[1] == "written by  RocketMQ 5.5"
    assert all(len(line) <= 60 for line in lines if not line.startswith("store"))
    assert " " * 12 in {line[:12] for line in lines}


def test_csv_is_the_brokers_of_a_cluster_and_one_row_of_a_store(run, named_cluster, golden):
    done = run("status", "--namesrv", named_cluster.name_server, "-o", "csv")
    titles, row = csv.reader(done.out.splitlines())
    assert (titles[0], row[0], row[2]) == ("broker", "broker-a", named_cluster.broker)
    store = str(golden("5.5.0").store)
    titles, row = csv.reader(run("status", "--store", store, "-o", "csv").out.splitlines())
    assert dict(zip(titles, row, strict=True))["written by"] == "RocketMQ 5.5"


PAYMENTS = r"paymets.*; did you mean payments\?"
TOPIC, GROUP = r"'paymets'; did you mean payments\?", r"biling.*; did you mean billing"
ENDS, NO_QUEUE = r"payments/0 ends at 2", r"no queue payments/9.*: its topic has queues 0 to 3"


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    lake = tmp_path_factory.mktemp("lake")
    sent = [Sent("payments", f"key-{n}", queue_id=n % 4) for n in range(8)]
    made = make_store(lake / "store", sent)
    archive_store(lake, made.path)
    (made.path / "config").mkdir()
    for name, table in (
        ("consumerOffset", {"offsetTable": {"payments@billing": {"0": 2}}}),
        ("subscriptionGroup", {"subscriptionGroupTable": {"billing": {}}}),
    ):
        (made.path / f"config/{name}.json").write_text(json.dumps(table))
    with cluster() as running:
        with running.producer() as producer:
            for number in range(8):
                producer.send(Message("payments", f"{number}", keys=f"key-{number}"))
            producer.send(Message("%DLQ%billing", "dead", keys="key-0"))
        consumer = SyncPushConsumer(running.name_server, group="billing", begin="first")
        consumer.subscribe("payments")
        consumer.listen(lambda *_: None)
        with consumer, running.admin() as admin:
            admin.expect("key-1", "payments", by="in 1h", consumed_by="billing")
        yield {
            "cluster": ("-n", running.name_server),
            "store": ("--store", made.path),
            "archive": ("--archive", lake),
        }


@pytest.mark.parametrize(
    ("command", "names", "said"),
    [
        *((f"{each} paymets/0/1", "cluster store archive", TOPIC) for each in ("find", "show")),
        *((f"{each} payments/0/99", "cluster store archive", ENDS) for each in ("find", "story")),
        *((f"{each} payments/9/0", "cluster store archive", NO_QUEUE) for each in ("find", "show")),
        ("find key-1 -t paymets", "cluster store archive", TOPIC),
        ("find -t paymets --grep x", "cluster store archive", TOPIC),
        ("show key-1 -t paymets", "cluster store archive", TOPIC),
        ("story key-1 -t paymets", "cluster store archive", TOPIC),
        ("story payments/0/1 --group biling", "cluster store", GROUP),
        ("story payments/0/1 --group biling -o json", "cluster store", GROUP),
        ("topics paymets", "cluster store archive", TOPIC),
        ("groups biling", "cluster store", GROUP),
        ("tail paymets", "cluster store", PAYMENTS),
        ("export /nowhere.csv -t paymets", "cluster store archive", TOPIC),
        ("dlq list biling", "cluster", GROUP),
        ("dlq show biling", "cluster", GROUP),
        ("dlq redrive biling", "cluster", GROUP),
        ("resend payments/0/1 --send --reason x --to-group biling", "cluster", rf"{GROUP}\?"),
        ("resend payments/0/1 --send --reason x --to-topic paymets", "cluster", PAYMENTS),
        ("resend -t paymets --key key-1", "cluster", TOPIC),
    ],
)
def test_what_is_not_there_is_named_with_what_is(run, doors, command, names, said):
    for name in names.split():
        done = run(*command.split(), *doors[name])
        assert done.code or "--group biling" in command, (name, done.out)
        assert re.search(said, done.err + done.out), (name, done.err, done.out)
