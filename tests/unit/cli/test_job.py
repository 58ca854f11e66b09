"""``rocketlens job``, and what a job says of the messages that it sent."""

import json
from contextlib import contextmanager

import pytest

from rocketlens.client.blocking.sync_consumer import SyncPushConsumer
from rocketlens.client.consume.consume_service import ConsumeConcurrentlyStatus
from rocketlens.client.send.message import Message
from rocketlens.testing import cluster

NEVER, LATER = -1, 18


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def rocketmq(tmp_path):
    """A broker with three dead letters of the group billing, and a group that reads them."""
    with cluster(tmp_path / "store") as running:
        with running.admin() as admin:
            for topic in ("%RETRY%billing", "payments"):
                admin.create_topic(topic)
        with running.producer() as producer:
            for number in range(3):
                dead = Message("%DLQ%billing", f"{number}", keys=f"K{number}")
                dead.put("RETRY_TOPIC", "payments")
                producer.send(dead)
        yield running


@contextmanager
def consumer(rocketmq, fails, group="billing"):
    """Run a member that fails with some keys, each with a delay level."""

    def listener(messages, context):
        level = fails.get(messages[0].keys[0])
        if level is None:
            return None
        context.delay_level = level
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    member = SyncPushConsumer(rocketmq.name_server, group=group, begin="first")
    member.subscribe("payments")
    member.listen(listener)
    with member:
        yield


def redrive(run, rocketmq, *options):
    send = ("--send", "--reason", "mended", "--rate", "1000", "-n", rocketmq.name_server)
    return run("dlq", "redrive", "billing", *send, *options)


def test_a_job_follows_what_it_sent(run, rocketmq, state):
    with consumer(rocketmq, {"K0": NEVER, "K1": LATER}):
        done = redrive(run, rocketmq)
    assert done.code == 0, done.err
    assert "3 sent: 1 consumed, 1 in retry, 1 dead letter again" in done.err
    (path,) = state.rglob("*.job")
    done = run("job", "show", path.stem, "-o", "json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [each["came_of_it"] for each in rows] == ["dead letter", "in retry", "consumed"]
    assert "3 sent: 1 consumed, 1 in retry, 1 dead letter again" in done.err
    (line,) = run("job", "list", "-o", "json").out.splitlines()
    listed = json.loads(line)
    assert listed["job"] == path.stem
    assert listed["came"] == "1 consumed, 1 in retry, 1 dead letter again"
    # Of those that failed again the newest record is sent: the others are known to be sent.
    done = redrive(run, rocketmq, "--follow", "0")
    assert "1 were sent before, and failed again" in done.err


def test_without_a_member_there_is_nothing_to_wait_for(run, rocketmq, state):
    done = redrive(run, rocketmq, "--follow", "3600")
    assert "3 sent: 3 not consumed yet" in done.err
    assert "group billing has no member online" in done.err
    with consumer(rocketmq, {}):
        (path,) = state.rglob("*.job")
        done = run("job", "show", str(path), "--follow", "60")
    assert "3 sent: 3 consumed" in done.err
    rocketmq.kill_broker()
    done = run("job", "show", str(path))
    assert (done.code, done.out.count("consumed")) == (0, 3)


def test_each_group_of_a_topic_is_told(run, rocketmq):
    fails = {"K0": NEVER}
    with consumer(rocketmq, fails), consumer(rocketmq, {}, group="audit"):
        done = redrive(run, rocketmq, "--to", "original")
    assert "3 sent; audit: 3 consumed; billing: 2 consumed, 1 dead letter again" in done.err


def test_a_job_that_is_not_there_and_no_jobs(run):
    assert run("job", "list").code == 1
    done = run("job", "show", "20261120T101500-0a1b2c3d4e5f")
    assert (done.code, "there is no job" in done.err) == (1, True)
