"""Lite topics of a real broker of RocketMQ 5.5, and the offsets that it keeps of a broadcast."""

import csv
import io

import pytest

from rocketlens import Message, SyncMQAdmin, SyncProducer, open_store
from rocketlens.errors import TopicNotFound
from rocketlens.model.rocketmq import lite_topic
from tests.unit.client.consume.behaviour import Collecting, push, until
from tests.unit.conftest import run  # noqa: F401 - a fixture

VERSION = "5.5.0"
PARENT, GROUP = "Sessions", "readers"
SENT = ("alice", "bob", "alice", "alice", "bob")


@pytest.fixture(scope="module")
def broker(peer, tmp_path_factory):
    settings = {"enableLmq": True, "enableMultiDispatch": True}
    with peer.start(VERSION, tmp_path_factory.mktemp("lite"), **settings) as running:
        at = ("-n", running.namesrv_address, "-c", "DefaultCluster")
        of_topic = "+message.type=LITE,+lite.topic.expiration=60"
        peer.mqadmin(
            VERSION, "updateTopic", *at, "-t", PARENT, "-r", "2", "-w", "2", "-a", of_topic
        )
        of_group = f"+lite.bind.topic={PARENT}"
        peer.mqadmin(VERSION, "updateSubGroup", *at, "-g", GROUP, "--attributes", of_group)
        with SyncProducer(running.namesrv_address) as producer:
            for number, name in enumerate(SENT):
                message = Message(PARENT, f"{number}", keys=f"k{number}")
                message.properties["__LITE_TOPIC"] = name
                producer.send(message)
            producer.send(Message("Plain", "0"))
        yield running


@pytest.fixture(scope="module")
def store(broker):
    """The store of the broker, which has ended."""
    broker.stop()
    return broker.store


def rows_of(done):
    return {row["topic"]: row for row in csv.DictReader(io.StringIO(done.out))}


def check(command, *source):
    done = command("topics", "--lite", PARENT, *source, "-o", "csv")
    assert {name: row["messages"] for name, row in rows_of(done).items()} == {
        "alice": "3",
        "bob": "2",
    }, done
    assert done.code == 0
    assert f"{PARENT}: 2 lite topics, each kept 60 min after its last message" in done.err
    assert f"groups: {GROUP}" in done.err
    done = command("topics", "--lite", PARENT, "al*", *source, "-o", "csv")
    assert list(rows_of(done)) == ["alice"]
    done = command("topics", *source, "-o", "csv")
    notes = {name: row["note"] for name, row in rows_of(done).items()}
    assert (notes[PARENT], notes["Plain"]) == ("2 lite topics", "")
    assert not any(name.startswith("%") for name in rows_of(done))
    done = command("topics", "--lite", "Plain", *source)
    assert (done.code, done.out) == (1, "")
    assert "Plain is no parent of lite topics" in done.err
    done = command("topics", "--lite", PARENT, "carol", *source)
    assert done.code == 2
    assert "has no topic '%LMQ%$Sessions$carol'" in done.err
    done = command("find", "-t", PARENT, "--lite", "alice", *source, "-o", "csv")
    assert done.code == 0
    assert {row["body"] for row in csv.DictReader(io.StringIO(done.out))} == {"0", "2", "3"}
    done = command("find", "k1", "-t", PARENT, "--lite", "alice", *source)
    assert (done.code, done.out) == (1, "")


def test_a_cluster_tells_the_lite_topics_of_a_parent_as_the_real_tool(run, peer, broker):  # noqa: F811
    words = ("-n", broker.namesrv_address, "-p", PARENT)
    [row] = [
        line.split()
        for line in peer.mqadmin(VERSION, "getParentTopicInfo", *words).splitlines()
        if line.startswith("broker-a")
    ]
    assert row[1:3] == ["60", "2"]
    assert row[-1] == f"[{GROUP}]"
    check(run, "-n", broker.namesrv_address)


def test_the_names_that_were_not_read_are_said(broker, monkeypatch):
    monkeypatch.setattr("rocketlens.client.admin.cluster_topics.MAX_LITE_MESSAGES", 1)
    with SyncMQAdmin(broker.namesrv_address) as admin:
        found = admin.topics(lite_topic(PARENT, "*"))
        assert not found.complete
        assert "more lite topics than its newest 1 messages name" in found.failures[0].error
        # A name that is given needs no list of them.
        [alice] = admin.topics(lite_topic(PARENT, "alice"))
        assert (alice.messages, alice.kind) == (3, "light")
        with pytest.raises(TopicNotFound):
            admin.topics(lite_topic(PARENT, "carol"))


async def test_the_offset_of_a_broadcast_is_no_group(broker, tmp_path):
    listener = Collecting()
    options = {"group": "waves", "broadcasting": True, "offsets_directory": tmp_path}
    file = broker.store / "config" / "lmqConsumerOffset.json"
    async with push(broker.namesrv_address, "Plain", listener, **options):
        await until(lambda: file.exists() and "Plain@waves@broadcast" in file.read_text())
    with open_store(broker.store) as store:
        models = {each.name: each.message_model for each in store.groups().groups}
    assert models["waves"] == "BROADCASTING"
    assert not any("broadcast" in name for name in models)


def test_a_store_tells_its_lite_topics(run, store):  # noqa: F811
    check(run, "--store", store)
