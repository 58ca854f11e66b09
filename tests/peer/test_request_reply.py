"""Requests as messages: Java's producers ask, and get their replies through the broker."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import VERSIONS, reap

PROGRAM = Path(__file__).parent / "java" / "RequestReply.java"


def lines_of(printed):
    return sorted(
        line.partition(" BROKER: ")[0]
        for line in printed.splitlines()
        if line.startswith(("answer: ", "replied: ", "lost: "))
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_producer_gets_replies_through_our_broker_as_through_the_real_one(
    peer, real_broker, tmp_path, version
):
    theirs = peer.java(version, PROGRAM, real_broker(version).namesrv_address, "Asked")
    with ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(tmp_path, str(namesrv.address))
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        ours = peer.java(version, PROGRAM, str(namesrv.address), "Asked")
        broker.stop()
    assert lines_of(ours) == lines_of(theirs)
    assert lines_of(ours)[:2] == ["answer: answer to one", "answer: answer to two"]
    assert lines_of(ours)[-1] == "replied: SEND_OK"
