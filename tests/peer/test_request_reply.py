"""Requests as messages: producers ask, here and in Java, and get replies through the broker."""

import asyncio
from pathlib import Path

import pytest

from rocketlens import Message, MQAdmin, Producer, reply_to
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.patience import PATIENCE_S
from tests.unit.client.consume.behaviour import push

PROGRAM = Path(__file__).parent / "java" / "RequestReply.java"


def lines_of(printed):
    return sorted(
        line.partition(" BROKER: ")[0]
        for line in printed.splitlines()
        if line.startswith(("answer: ", "replied: ", "lost: "))
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_producer_gets_replies_through_our_broker_as_through_the_real_one(
    peer, real_broker, our_name_server, version
):
    topic = f"Asked{version[0]}"
    theirs = peer.java(version, PROGRAM, real_broker(version).namesrv_address, topic)
    ours = peer.java(version, PROGRAM, our_name_server, topic)
    assert lines_of(ours) == lines_of(theirs)
    assert lines_of(ours)[:2] == ["answer: answer to one", "answer: answer to two"]
    assert lines_of(ours)[-1] == "replied: SEND_OK"


@pytest.fixture(params=["ours", "theirs"])
def name_server(request, version, real_broker, our_name_server):
    return our_name_server if request.param == "ours" else real_broker(version).namesrv_address


@pytest.mark.parametrize("version", VERSIONS)
def test_our_consumer_replies_to_a_java_producer(peer, name_server, version):
    topic = f"AskedByJava{version[0]}"

    async def main():
        async with MQAdmin(name_server) as admin:
            await admin.create_topic(topic, 4)
        async with Producer(name_server, send_timeout_s=PATIENCE_S) as producer:

            async def listener(messages, _):
                for each in messages:
                    await producer.send(reply_to(each, f"answer to {each.body.decode()}"))

            async with push(name_server, topic, listener):
                return await asyncio.to_thread(
                    peer.java, version, PROGRAM, name_server, topic, "ask"
                )

    assert lines_of(asyncio.run(main())) == ["answer: answer to one", "answer: answer to two"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_our_producer_gets_the_replies_of_a_java_consumer(peer, name_server, version):
    topic = f"AnsweredByJava{version[0]}"
    async with MQAdmin(name_server) as admin:
        await admin.create_topic(topic, 4)
    async with Producer(name_server, send_timeout_s=PATIENCE_S) as producer:
        java = asyncio.to_thread(peer.java, version, PROGRAM, name_server, topic, "reply")
        *replies, printed = await asyncio.gather(
            *[producer.request(Message(topic, each), PATIENCE_S) for each in ("one", "two")], java
        )
    replies = [each.text for each in replies]
    assert replies == ["answer to one", "answer to two"]
    lost, *replied = lines_of(printed)
    assert "channel of <nobody> not found" in lost
    assert set(replied) == {"replied: SEND_OK"}
