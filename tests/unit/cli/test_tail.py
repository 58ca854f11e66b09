"""``rocketlens tail`` over a cluster and over a store directory."""

import json
import os
import signal
import subprocess
import sys

import pytest

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster


@pytest.fixture(scope="module")
def rocketmq():
    """A cluster with twelve messages, numbered, in two queues."""
    with cluster() as running:
        with running.producer() as producer:
            for number in range(12):
                message = Message(
                    "Orders",
                    f"{number}",
                    tags="AB"[number % 2],
                    keys=f"K{number}",
                    properties={"n": str(number)},
                )
                queue = MessageQueue("Orders", "broker-a", number % 2)
                producer.send(message, queue=queue)
        yield running


def rows(done):
    titles, *lines = (line.split("\t") for line in done.out.splitlines())
    assert titles[0] == "time"
    return [line[-1] for line in lines]


def test_the_newest_are_printed_oldest_first(run, rocketmq):
    done = run("tail", "-t", "Orders", "--namesrv", rocketmq.name_server)
    assert (done.code, rows(done)) == (0, [str(number) for number in range(2, 12)])
    assert run("tail", "Orders", "--namesrv", rocketmq.name_server).out == done.out
    done = run("tail", "-t", "Orders", "--max", "3", "--tag", "A", "-n", rocketmq.name_server)
    assert (done.code, rows(done)) == (0, ["6", "8", "10"])


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--sql", "n BETWEEN 3 AND 4"), ["3", "4"]),
        (("--key", "K7"), ["7"]),
        (("--tag", "A || B", "--newest", "1"), ["11"]),
        (("--since", "2100-01-01"), []),
    ],
)
def test_a_cluster_and_its_store_show_the_same(run, rocketmq, options, found):
    for source in (("--namesrv", rocketmq.name_server), ("--store", str(rocketmq.store))):
        done = run("tail", "-t", "Orders", *options, *source, "-o", "json")
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert [each["properties"]["n"] for each in lines] == found
        assert done.code == (0 if found else 1)


def test_from_the_beginning_has_everything(run, rocketmq):
    done = run("tail", "-t", "Orders", "--from", "beginning", "--namesrv", rocketmq.name_server)
    assert sorted(map(int, rows(done))) == list(range(12))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "end"), "give -f"),
        (("--from", "beginning", "--max", "3"), "give only one"),
        (("--sql", "n <"), "a value is expected"),
        (("--tag", ""), "names no tag"),
        (("--max", "-1"), "invalid number"),
        (("--since", "soon"), "--since"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, rocketmq, options, said):
    done = run("tail", "-t", "Orders", *options, "--namesrv", rocketmq.name_server)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize("topics", [(), ("Orders", "-t", "Orders")])
def test_one_topic_is_followed(run, topics):
    done = run("tail", *topics)
    assert (done.code, done.out) == (2, "")
    assert "give one topic: rocketlens tail TOPIC" in done.err


def test_n_is_the_name_server_as_everywhere(run):
    done = run("tail", "-t", "Orders", "-n", "3")
    assert (done.code, done.out) == (2, "")
    assert "-n is the name server: for 3 messages give --max" in done.err


def test_a_store_is_not_followed_and_a_topic_must_exist(run, rocketmq):
    store = ("--store", str(rocketmq.store))
    done = run("tail", "-t", "Orders", "-f", *store)
    assert (done.code, "--namesrv" in done.err) == (2, True)
    for source in (store, ("--namesrv", rocketmq.name_server)):
        done = run("tail", "-t", "Ordres", *source)
        assert (done.code, done.out) == (2, "")
        assert "'Ordres'" in done.err or "topic Ordres" in done.err
        assert done.err.endswith("; did you mean Orders?\n")


def test_a_broker_that_fails_makes_it_incomplete(run, tmp_path):
    with cluster(tmp_path) as rocketmq:
        with rocketmq.producer() as producer:
            producer.send(Message("Orders", "1"))
        rocketmq.kill_broker()
        done = run("tail", "-t", "Orders", "--namesrv", rocketmq.name_server)
    assert (done.code, done.out) == (3, "")
    assert "INCOMPLETE" in done.err
    assert "broker-a" in done.err


def test_following_prints_what_arrives_until_ctrl_c(rocketmq, tmp_path):
    command = [sys.executable, "-m", "rocketlens.main", "tail", "-t", "Live", "-f", "-o", "json"]
    with rocketmq.producer() as producer:
        producer.send(Message("Live", "first"))
        with subprocess.Popen(
            [*command, "--namesrv", rocketmq.name_server],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        ) as followed:
            first = json.loads(followed.stdout.readline())
            second = producer.send(Message("Live", "second"))
            assert json.loads(followed.stdout.readline())["msg_id"] == second.msg_id
            assert first["msg_id"] != second.msg_id
            followed.send_signal(signal.SIGINT)
            out, err = followed.communicate()
    assert (followed.returncode, out, err) == (130, "", "")
