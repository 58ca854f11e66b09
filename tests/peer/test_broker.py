"""Producers, consumers and tools of the real RocketMQ on our name server and broker.

And then the real broker on the store that ours wrote: stopped cleanly, or killed.
"""

import re
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketlens.model.text import json_dialect
from tests.peer.our_servers import BROKER_NAME, OurBroker, OurNameServer, broker_conf
from tests.peer.rocketmq_peer import (
    BROKER_MAIN,
    POLL_SECONDS,
    START_SECONDS,
    reap,
    registered_brokers,
    wait_until,
)

JAVA = Path(__file__).parent / "java"
TOPIC = "OrderTopic"
SENT = 5 * 12 + 1 + 2
"""Messages that the client sends and does not take back."""
SAVE_SECONDS = 180


@pytest.fixture(scope="module", params=["4.9.7", "5.5.0"])
def world(request, peer, tmp_path_factory):
    """Our servers after the Java client of one version sent, looked up and consumed."""
    directory = tmp_path_factory.mktemp("ours")
    with ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(directory, str(namesrv.address))
        running.callback(reap, broker.process)
        file = directory / "sent.txt"
        printed = peer.java(
            request.param,
            JAVA / "BrokerClient.java",
            "send",
            str(namesrv.address),
            TOPIC,
            str(file),
        )
        sent = [line.split() for line in file.read_text().splitlines()]
        yield SimpleNamespace(
            version=request.param,
            namesrv=str(namesrv.address),
            broker=broker,
            file=file,
            sent=sent,
            printed=printed,
            peer=peer,
        )


def has_delivered_offset(store):
    """Whether delayOffset.json has the one delayed message, which is of the first level."""
    file = store / "config" / "delayOffset.json"
    return file.exists() and json_dialect.loads_file(file.read_bytes())["offsetTable"].get("1") == 1


def is_registered(world):
    """Return whether our name server knows a broker."""
    return BROKER_NAME in registered_brokers(int(world.namesrv.rpartition(":")[2]))


def sent_as(world, key):
    """Kind, key, msgId and offsetMsgId of one message."""
    return next(words for words in world.sent if words[1] == key)


@pytest.fixture(scope="module")
def shown(world):
    """What mqadmin prints for each of its commands, by its first words."""
    _, _, msg_id, offset_msg_id = sent_as(world, "sync-0")
    topic = ["-t", TOPIC]
    # Since 5.3 a topic must be named.
    with_topic = topic if world.version.startswith("5") else []
    commands = {
        "queryMsgById": ["-i", offset_msg_id, *with_topic],
        "queryMsgByKey": ["-k", "sync-11", *topic],
        "queryMsgByUniqueKey": ["-i", msg_id, *topic],
        "queryMsgByOffset": ["-b", BROKER_NAME, "-i", "0", "-o", "0", *topic],
        "printMsg": [*topic, "-d", "true"],
        "topicList": [],
        "topicRoute": topic,
        "topicStatus": topic,
        "clusterList": [],
        "brokerStatus": ["-b", world.broker.address],
        "consumerProgress": ["-g", "broker_client_consumers"],
        "consumerConnection": ["-g", "broker_client_consumers"],
        "updateSubGroup": ["-c", "DefaultCluster", "-g", "made_group", "-r", "5"],
        "brokerConsumeStats": ["-b", world.broker.address],
        "producerConnection": ["-g", "broker_client", *topic],
        "queryCq": [*topic, "-q", "0", "-i", "0", "-c", "2", "-b", world.broker.address],
        "getBrokerConfig": ["-b", world.broker.address],
        "updateTopic": ["-t", "NewTopic", "-c", "DefaultCluster", "-r", "3", "-w", "3"],
        "deleteTopic": ["-t", "NewTopic", "-c", "DefaultCluster"],
        "sendMessage": ["-t", "OtherTopic", "-p", "text", "-k", "tool"],
    }
    asked = [*commands.items(), ("topicRoute", ["-t", "NewTopic"])]
    shown = {}
    for name, words in asked:
        text = world.peer.mqadmin(world.version, name, "-n", world.namesrv, *words)
        shown.setdefault(name, []).append(text)
    return shown


def test_a_java_client_finds_every_message_the_moment_it_is_acknowledged(world):
    assert "wrong" not in world.printed
    assert f"found {SENT} of {SENT}" in world.printed


def test_a_java_consumer_gets_every_message_once(world):
    assert f"consumed {SENT}, not []" in world.printed


def test_mqadmin_finds_a_message_by_id_key_unique_key_and_offset(world, shown):
    offset_msg_id = sent_as(world, "sync-0")[3]
    (by_id,), (by_unique_key,) = shown["queryMsgById"], shown["queryMsgByUniqueKey"]
    for text in (by_id, by_unique_key):
        assert "sync-0 common 键" in text
        assert "trackType=NOT_ONLINE" in text
    assert f"OffsetID:            {offset_msg_id}" in by_id
    assert "Queue Offset:        0" in shown["queryMsgByOffset"][0]
    assert sent_as(world, "sync-11")[2] in shown["queryMsgByKey"][0]


def test_mqadmin_prints_every_message(world, shown):
    (printed,) = shown["printMsg"]
    assert printed.count("MSGID: ") == SENT
    for _, key, msg_id, _ in world.sent:
        assert msg_id in printed
        assert f"body of {key}" in printed


def test_mqadmin_shows_topics_and_their_routes(world, shown):
    assert TOPIC in shown["topicList"][0]
    assert "%RETRY%broker_client_consumers" in shown["topicList"][0]
    assert world.broker.address in shown["topicRoute"][0]
    offsets = re.findall(rf"^{BROKER_NAME} +\d+ +0 +(\d+)", shown["topicStatus"][0], re.MULTILINE)
    assert len(offsets) == 4
    assert sum(map(int, offsets)) == SENT


def test_mqadmin_shows_the_cluster_and_the_broker(world, shown):
    assert re.search(
        rf"^DefaultCluster +{BROKER_NAME} +0 +{world.broker.address} +V5_5_0 ",
        shown["clusterList"][0],
        re.MULTILINE,
    )
    assert re.search(r"^putTps +: [\d.]+ [\d.]+ [\d.]+$", shown["brokerStatus"][0], re.MULTILINE)


def test_mqadmin_shows_how_far_a_group_came(shown):
    (progress,) = shown["consumerProgress"]
    rows = re.findall(rf"^{TOPIC} +{BROKER_NAME} +\d+ +(\d+) +(\d+) ", progress, re.MULTILINE)
    assert len(rows) == 4
    assert all(broker == consumer for broker, consumer in rows)


def test_mqadmin_makes_groups_and_looks_at_queues_and_configuration(world, shown):
    assert "create subscription group to 127.0.0.1:" in shown["updateSubGroup"][0]
    assert re.search(
        rf"^{TOPIC} +broker_client_consumers ", shown["brokerConsumeStats"][0], re.MULTILINE
    )
    assert "the producer group[broker_client] not exist" in shown["producerConnection"][0]
    assert re.search(r"ConsumeQueueData\{physicOffset=\d+", shown["queryCq"][0])
    assert re.search(rf"^brokerName += +{BROKER_NAME}$", shown["getBrokerConfig"][0], re.MULTILINE)


def test_mqadmin_makes_and_deletes_a_topic(shown):
    assert "create topic to 127.0.0.1:" in shown["updateTopic"][0]
    assert (
        "delete topic [NewTopic] from cluster [DefaultCluster] success" in shown["deleteTopic"][0]
    )
    assert "No topic route info" in shown["topicRoute"][1]


def test_mqadmin_sends_a_message(shown):
    assert "SEND_OK" in shown["sendMessage"][0]


def test_the_real_broker_finds_everything_in_the_store_ours_wrote(world, shown):
    """Stopped cleanly before 4.9.7 takes over, killed before 5.5.0 does."""
    assert shown
    broker = world.broker
    if world.version == "4.9.7":
        broker.stop()
        assert not (broker.store / "abort").exists()
    else:
        # What was delivered after the offsets were written is delivered again after a kill.
        wait_until(lambda: has_delivered_offset(broker.store), broker.process, SAVE_SECONDS)
        broker.kill()
        assert (broker.store / "abort").exists()
    # Java asks for the route once: it must be there, and not that of the broker that ended.
    while is_registered(world):
        time.sleep(POLL_SECONDS)
    conf = broker_conf(broker.directory, broker.port, world.namesrv)
    theirs = world.peer.launch(world.version, broker.directory, BROKER_MAIN, conf)
    try:
        wait_until(lambda: is_registered(world), theirs, START_SECONDS)
        found = world.peer.java(
            world.version, JAVA / "BrokerClient.java", "find", world.namesrv, TOPIC, str(world.file)
        )
    finally:
        reap(theirs)
    assert "wrong" not in found
    assert f"found {SENT} of {SENT}" in found
