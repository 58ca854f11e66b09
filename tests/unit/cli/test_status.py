"""``rocketlens status`` over a store and over a cluster."""

import csv
import json
import os

import pytest

from rocketlens.client.send.message import Message
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory):
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
        "2026-11-21T02:40:33.352+00:00 to 2026-11-21T02:40:44.893+00:00"
    )
    assert lines["log"] == "1.0M in 4 files, physical offsets 0 to 889173"
    assert lines["index"].startswith("150.7K in 7 files, 6,783 entries, up to 2026-11-21T02:40:44")
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


def test_a_cluster_shows_brokers_with_version_rates_and_disk(run, rocketmq):
    done = run("status", "--namesrv", rocketmq.name_server)
    assert done.code == 0
    head, brokers = done.out.split("\n\n")[:2]
    lines = lines_of(head)
    assert lines["nameserver"] == rocketmq.name_server
    assert lines["topics"] == "4 topics, 3 of them the brokers' own"
    assert lines["clients"].startswith("1 producers, 0 consumers")
    titles, row = (line.split("\t") for line in brokers.splitlines())
    broker = dict(zip(titles, row, strict=True))
    assert (broker["broker"], broker["role"], broker["version"]) == ("broker-a", "master", "5.5.0")
    assert broker["address"] == rocketmq.broker
    assert broker["disk"].endswith("%")
    assert broker["oldest"]


def test_json_has_all_of_it(run, rocketmq, golden):
    found = json.loads(run("status", "--namesrv", rocketmq.name_server, "-o", "json").out)
    assert found["complete"]
    [broker] = found["brokers"]
    assert (found["topics"], found["broker_topics"]) == (4, 3)
    assert (broker["broker_id"], broker["version"], broker["producers"]) == (0, "V5_5_0", 1)
    assert broker["end_offset"] > broker["min_offset"] == 0
    found = json.loads(run("status", "--store", golden("5.5.0").store, "-o", "json").out)
    assert (found["closing"], found["messages"], found["complete"]) == ("clean", 1703, True)
    assert found["index"]["builder"] is None
    assert [group["to_retry"] for group in found["groups"]] == [50]


def test_a_store_in_use_says_so_and_has_its_index_builder(run, rocketmq):
    lines = lines_of(run("status", "--store", rocketmq.store).out)
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


def test_csv_is_the_brokers_of_a_cluster_and_one_row_of_a_store(run, rocketmq, golden):
    done = run("status", "--namesrv", rocketmq.name_server, "-o", "csv")
    titles, row = csv.reader(done.out.splitlines())
    assert (titles[0], row[0], row[2]) == ("broker", "broker-a", rocketmq.broker)
    store = str(golden("5.5.0").store)
    titles, row = csv.reader(run("status", "--store", store, "-o", "csv").out.splitlines())
    assert dict(zip(titles, row, strict=True))["written by"] == "RocketMQ 5.5"
