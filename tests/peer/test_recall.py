"""Producers of RocketMQ 5.5.0 and ours take back messages, here as on RocketMQ's own broker."""

import asyncio
import base64
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from rocketlens import Message, MQAdmin, Producer, PushConsumer
from rocketlens.errors import BrokerError
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import reap
from tests.support.patience import PATIENCE_S

PROGRAM = Path(__file__).parent / "java" / "Recall.java"
VERSION = "5.5.0"
SETTINGS = {"recallMessageEnable": True}
AHEAD_MS = 20_000
"""Far enough off for the recall to be in time on a busy machine, too."""


@pytest.fixture(scope="module")
def name_servers(peer, tmp_path_factory):
    """Return the name servers of the real broker and of ours."""
    directory = tmp_path_factory.mktemp("recall")
    with peer.start(VERSION, directory / "theirs", **SETTINGS) as real, ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(directory / "ours", str(namesrv.address), **SETTINGS)
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        yield {"theirs": real.namesrv_address, "ours": str(namesrv.address)}
        broker.stop()


async def create(name_server, topic):
    async with MQAdmin(name_server) as admin:
        await admin.create_topic(topic, 1)


def told(peer, name_server):
    """Run the program; return what it printed, line by line, without addresses."""
    asyncio.run(create(name_server, "Recalls"))
    printed = peer.java(VERSION, PROGRAM, name_server, "Recalls")
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", printed).splitlines()


def test_a_java_producer_recalls_a_message_on_our_broker_as_on_the_real_one(peer, name_servers):
    # Both wait for their messages.
    with ThreadPoolExecutor() as side_by_side:
        theirs, ours = side_by_side.map(partial(told, peer), name_servers.values())
    assert ours == theirs
    assert ours[0] == "recalled: true"
    assert ours[-1] == "received: [kept, last]"


async def recall_one_of_three(name_server):
    """Return what was received, and how the broker refuses a recall that is too late."""
    topic = "PythonRecalls"
    await create(name_server, topic)
    received, is_over = [], asyncio.Event()

    async def listener(messages, _):
        received.extend(message.body for message in messages)
        if b"last" in received:
            is_over.set()

    consumer = PushConsumer(name_server, group="g_recalls", begin="first")
    consumer.subscribe(topic)
    consumer.listen(listener)
    async with Producer(name_server, group="recalling") as producer, consumer:
        due_ms = time.time_ns() // 1_000_000 + AHEAD_MS
        handles = {}
        for body, at_ms in (("recalled", due_ms), ("kept", due_ms), ("last", due_ms + 2_000)):
            result = await producer.send(Message(topic, body, deliver_at=at_ms))
            handles[body] = result.recall_handle
            if body == "recalled":
                unique_key = result.msg_id
        assert await producer.recall(topic, handles["recalled"]) == unique_key
        async with asyncio.timeout(PATIENCE_S):
            await is_over.wait()
        with pytest.raises(BrokerError) as refused:
            await producer.recall(topic, handles["recalled"])
        at_once = await producer.send(Message(topic, "now", deliver_at=1))
    words = base64.urlsafe_b64decode(handles["kept"]).decode().split(" ")
    assert words[:4] == ["v1", topic, "broker-a", str((due_ms - 1) // 1000 * 1000 + 1)]
    assert at_once.recall_handle is None
    return sorted(set(received) - {b"now"}), (refused.value.code, refused.value.remark)


async def test_a_python_producer_recalls_a_message_on_either_broker(name_servers):
    theirs, ours = await asyncio.gather(*map(recall_one_of_three, name_servers.values()))
    assert ours == theirs
    assert ours == ([b"kept", b"last"], (604, "recall failed, timestamp invalid"))
