"""Consumers of the real RocketMQ on our name server and broker."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import VERSIONS, reap

PROGRAM = Path(__file__).parent / "java" / "Consumers.java"
ALL = "received, missing [], others []"
EXPECTED = {
    "concurrent": f"50 {ALL}",
    "tags": f"21 {ALL}",
    "sql92": f"8 {ALL}, refused",
    "orderly": "100 in order in 4 queues",
    "broadcast": f"20 {ALL}; 20 {ALL}",
    "retries": "consumed [0, 1, 2], dead [k7 after 3 of topic_retries]",
    "subscribe": f"7 {ALL}",
    "assign": "assigned 10, sought [k7, k8, k9], from the begin 10",
    "directly": "CR_SUCCESS [k1, k1] CONSUME_PASSIVELY not online",
    "members": "every message at least once",
}


@pytest.fixture(scope="module", params=VERSIONS)
def seen(request, peer, tmp_path_factory):
    """What the consumers of one version saw, by scenario."""
    with ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        directory = tmp_path_factory.mktemp("ours")
        broker = OurBroker(directory, str(namesrv.address), enablePropertyFilter=True)
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        printed = peer.java(
            request.param, program_for(request.param, directory), str(namesrv.address)
        )
        broker.stop()
        return dict(re.findall(r"^(\w+): (.*)$", printed, re.MULTILINE)), printed


def program_for(version, directory):
    """Return the program for a version; 5.x has a class elsewhere, and topics with attributes."""
    source = PROGRAM.read_text(encoding="utf-8")
    if version != "4.9.7":
        source = source.replace(
            "rocketmq.common.protocol.heart", "rocketmq.remoting.protocol.heart"
        )
        source = source.replace("+ name, 4);", "+ name, 4, Collections.emptyMap());")
    file = directory / PROGRAM.name
    file.write_text(source, encoding="utf-8")
    return file


@pytest.mark.parametrize("scenario", EXPECTED)
def test_a_java_consumer_sees_what_it_should(seen, scenario):
    by_scenario, printed = seen
    assert by_scenario.get(scenario) == EXPECTED[scenario], printed
