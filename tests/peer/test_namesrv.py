"""Brokers, producers and tools of the real RocketMQ on our name server.

Whatever a tool prints through our name server it must print through theirs: the same broker is
registered with both.
"""

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.sync import LoopThread
from tests.peer.rocketmq_peer import (
    BROKER_MAIN,
    BROKER_NAME,
    NAMESRV_MAIN,
    START_SECONDS,
    STOP_SECONDS,
    accepts_connections,
    free_ports,
    reap,
    registered_brokers,
    wait_until,
)

VERSIONS = ("4.9.7", "5.5.0")
CLIENT = Path(__file__).parent / "java" / "NameServerClient.java"
CLUSTER = "DefaultCluster"

ATTEMPTS = 10
TOO_LATE = re.compile("Remoting(Timeout|Connect|SendRequest|TooMuchRequest)Exception")

ASKED = (
    ["topicRoute", "-t", "Made"],
    ["topicRoute", "-t", "Nowhere"],
    ["topicStatus", "-t", "Made"],
    ["topicClusterList", "-t", "Made"],
    ["clusterList"],
    ["topicList"],
    ["topicList", "-c"],
    ["wipeWritePerm", "-b", BROKER_NAME],
    ["addWritePerm", "-b", BROKER_NAME],
)
"""Commands whose output must be the same through either name server."""


class OurNameServer:
    """Our name server in a thread of this process."""

    def __init__(self, directory):
        self.thread = LoopThread()
        config = NameServerConfig(listenPort=0, kvConfigPath=str(directory / "ours.json"))

        async def start():
            server = NameServer(config)
            return server, server.start()

        self.server, self.address = self.thread.run(start())

    def close(self):
        self.thread.run(self.server.stop())
        self.thread.close()


@contextmanager
def broker_on_both(peer, version, directory):
    """Run a broker of theirs that is registered with our name server and with theirs."""
    directory.mkdir()
    their_port, broker_port = free_ports(), free_ports(-2, 1)
    with ExitStack() as running:
        ours = OurNameServer(directory)
        running.callback(ours.close)
        namesrv_conf = {
            "listenPort": their_port,
            "kvConfigPath": directory / "theirs.json",
            "configStorePath": directory / "namesrv.properties",
        }
        theirs = peer.launch(version, directory, NAMESRV_MAIN, namesrv_conf)
        running.callback(reap, theirs)
        wait_until(lambda: accepts_connections(their_port), theirs, START_SECONDS)
        broker_conf = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER_NAME,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": broker_port,
            "namesrvAddr": f"{ours.address};127.0.0.1:{their_port}",
            "storePathRootDir": directory / "store",
            "storePathCommitLog": directory / "store" / "commitlog",
            "diskMaxUsedSpaceRatio": 95,
        }
        broker = peer.launch(version, directory, BROKER_MAIN, broker_conf)
        running.callback(reap, broker)
        for port in (ours.address.port, their_port):
            wait_until(
                lambda port=port: BROKER_NAME in registered_brokers(port), broker, START_SECONDS
            )
        addresses = (str(ours.address), f"127.0.0.1:{their_port}", f"127.0.0.1:{broker_port}")
        yield ours, *addresses, broker, theirs


def mqadmin(peer, version, *commands):
    """Run commands one after another; return what each printed.

    The tool waits for seconds, also on a busy machine: it is asked again then.
    """
    printed = []
    for words in commands:
        for _ in range(ATTEMPTS):
            text = peer.mqadmin(version, *words).strip("\n")
            if not TOO_LATE.search(text):
                break
        printed.append(text)
    return printed


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_broker_producer_and_mqadmin_work_and_print_the_same(peer, version, tmp_path):
    with broker_on_both(peer, version, tmp_path / "broker") as running:
        name_server, ours, theirs, broker_address, broker, their_name_server = running
        tables = name_server.server.routes

        (created,) = mqadmin(
            peer,
            version,
            ["updateTopic", "-n", ours, "-c", CLUSTER, "-t", "Made", "-r", "3", "-w", "3"],
        )
        assert "success" in created
        # The second topic is made by its first message: its route is asked for before it exists.
        sent = peer.java(version, CLIENT, ours, "Made", "Unmade").splitlines()
        assert sent.count("SEND_OK") == 20
        assert f"Made: 3 queues of {BROKER_NAME}" in sent
        assert f"Unmade: 4 queues of {BROKER_NAME}" in sent

        questions = [[word, "-n", each, *rest] for word, *rest in ASKED for each in (ours, theirs)]
        answers = mqadmin(peer, version, *questions)
        for words, mine, real in zip(ASKED, answers[::2], answers[1::2], strict=True):
            mine, real = mine.replace(ours, "N"), real.replace(theirs, "N")  # noqa: PLW2901
            assert comparable(words, mine) == comparable(words, real), words
        by_command = dict(zip(map(tuple, ASKED), answers[::2], strict=True))
        assert BROKER_NAME in by_command["clusterList",]
        assert broker_address in by_command["topicRoute", "-t", "Made"]
        assert "Unmade" in by_command["topicList",].split()

        pair = ["-s", "ns", "-k", "key"]
        stored, deleted, topic_deleted = mqadmin(
            peer,
            version,
            ["updateKvConfig", "-n", ours, *pair, "-v", "value"],
            ["deleteKvConfig", "-n", theirs, *pair],
            ["deleteTopic", "-n", ours, "-c", CLUSTER, "-t", "Made"],
        )
        assert "success" in stored
        assert "success" in deleted
        assert name_server.server.kv.get("ns", "key") == "value"
        assert "success" in topic_deleted
        assert "Made" not in set(tables.topic_names())
        assert "Unmade" in set(tables.topic_names())

        # It takes itself out, and where it gives up waiting for that, its connection's end does.
        broker.terminate()
        wait_until(lambda: not tables.topic_count, their_name_server, STOP_SECONDS)


def comparable(arguments, printed):
    """Leave out what differs between two runs on one name server, too."""
    command = arguments[0]
    lines = printed.splitlines()
    if command == "clusterList":
        # Rates and times change from second to second.
        return [line.split()[:5] for line in lines]
    if command == "topicList":
        return sorted(lines)
    if command == "topicStatus":
        return [line.split()[:4] for line in lines]
    if command == "topicRoute" and "Nowhere" in arguments:
        return [line for line in lines if line.startswith("org.apache")]
    return lines
