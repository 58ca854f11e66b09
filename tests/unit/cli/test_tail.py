"""``rocketlens tail`` over a cluster and over a store directory.

``rocketlens watch``: exit codes, the command that it runs, and what it refuses.
"""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import chain, repeat

import pytest

from rocketlens import SyncPushConsumer
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.send.message import Message
from rocketlens.query import expect
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


GROUP = "billing"


@pytest.fixture(scope="module")
def watched_cluster(tmp_path_factory):
    """A cluster with a message that its group has consumed."""
    with cluster(tmp_path_factory.mktemp("rocketmq")) as running:
        with running.producer() as producer:
            producer.send(Message("Orders", "paid", keys="K"))
        consumer = SyncPushConsumer(running.name_server, group=GROUP, begin="first")
        consumer.subscribe("Orders")
        consumer.listen(lambda *_: None)
        with consumer, running.admin() as admin:
            consumed = admin.expect("K", "Orders", by="in 1h", consumed_by=GROUP)
            assert consumed.body == b"paid"
            yield running


@pytest.fixture
def passed(monkeypatch):
    """The time passes while the first question is asked."""
    clock = chain([0], repeat(2**62))
    monkeypatch.setattr(expect, "_now_ms", lambda: next(clock))


@pytest.mark.parametrize("options", [(), ("-t", "Orders"), ("--consumed-by", GROUP), ("--store",)])
def test_a_message_that_is_there_is_printed_at_once(run, watched_cluster, options):
    source = (
        (watched_cluster.store,) if options == ("--store",) else ("-n", watched_cluster.name_server)
    )
    done = run("watch", "K", "--by", "in 1h", *options, *source)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Orders/")
    assert "  stored 20" in done.out


def test_a_store_is_watched_as_a_cluster_is(run, watched_cluster, passed):
    source = ("--store", watched_cluster.store)
    # Its files do not tell whether clients are online, and offsets are written now and then.
    done = run("watch", "K", "--by", "in 1h", "--consumed-by", GROUP, *source)
    assert (done.code, done.out) == (3, "")
    assert re.search(
        f"group {GROUP} is not known to have consumed it: (passed|unknown): ", done.err
    )


def test_a_group_that_no_broker_knows_may_be_one_of_a_broker_that_is_gone(
    run, watched_cluster, passed
):
    words = (
        "watch",
        "K",
        "--by",
        "in 1h",
        "--consumed-by",
        "biling",
        "-n",
        watched_cluster.name_server,
    )
    done = run(*words)
    assert (done.code, done.out) == (3, "")
    assert "what group biling did: group 'biling' does not exist" in done.err


def test_a_command_gets_the_message_and_its_failure_is_told(run, watched_cluster, tmp_path):
    file = tmp_path / "found"
    there = ("watch", "K", "--by", "in 1h", "-n", watched_cluster.name_server, "--exec")
    names = " ".join(f'"$ROCKETLENS_{name}"' for name in ("ID", "TOPIC", "KEY"))
    done = run(*there, f"echo {names} > '{file}'")
    assert done.code == 0
    assert file.read_text().split() == [done.out.split()[1], "Orders", "K"]
    done = run(*there, "exit 7")
    assert (done.code, done.err) == (2, "rocketlens: --exec ended with exit code 7\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("other",), "other is not in any topic that was searched"),
        (("K", "-t", "Odrers"), "did you mean Orders?"),
        (
            ("K", "--consumed-by", "TOOLS_CONSUMER"),
            "group TOOLS_CONSUMER is not known to have consumed it: never_subscribed: ",
        ),
    ],
)
def test_a_time_that_passes_is_no(run, watched_cluster, passed, words, said):
    done = run("watch", *words, "--by", "in 1h", "-n", watched_cluster.name_server)
    assert (done.code, done.out) == (1, ""), done.err
    assert said in done.err, done.err


@pytest.mark.parametrize("group", [(), ("--consumed-by", GROUP)])
def test_what_cannot_be_known_at_the_deadline_is_neither(run, tmp_path, passed, group):
    with cluster(tmp_path) as watched_cluster:
        watched_cluster.kill_broker()
        done = run("watch", "K", "--by", "in 1h", *group, "-n", watched_cluster.name_server)
    assert (done.code, done.out) == (3, "")
    assert "broker-a" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "2h"), "which has passed: give a future time, such as 'in 2h'"),
        (("--by", "soon"), "--by 'soon' is not a time"),
        (("--by", "in 1h", "-t", ""), "topic"),
        (("--by", "in 1h", "--archive", "a"), "--archive stands alone here"),
    ],
)
def test_what_cannot_be_watched_is_refused(run, watched_cluster, words, said):
    done = run("watch", "K", *words, "-n", watched_cluster.name_server)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
