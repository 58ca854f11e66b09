"""Producers of RocketMQ 5.5.0 take back messages with a delivery time, here as on its broker."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rocketlens import MQAdmin
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import reap

PROGRAM = Path(__file__).parent / "java" / "Recall.java"
VERSION = "5.5.0"


def told(peer, name_server):
    """Run the program; return what it printed, line by line, without addresses."""

    async def create():
        async with MQAdmin(name_server) as admin:
            await admin.create_topic("Recalls", 1)

    asyncio.run(create())
    printed = peer.java(VERSION, PROGRAM, name_server, "Recalls")
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", printed).splitlines()


def test_a_java_producer_recalls_a_message_on_our_broker_as_on_the_real_one(peer, tmp_path):
    settings = {"recallMessageEnable": True}
    with (
        peer.start(VERSION, tmp_path / "theirs", **settings) as real,
        ExitStack() as running,
        ThreadPoolExecutor() as side_by_side,
    ):
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(tmp_path / "ours", str(namesrv.address), **settings)
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        # It waits for its messages.
        addresses = real.namesrv_address, str(namesrv.address)
        theirs, ours = side_by_side.map(partial(told, peer), addresses)
        broker.stop()
    assert ours == theirs
    assert ours[0] == "recalled: true"
    assert ours[-1] == "received: [kept, last]"
