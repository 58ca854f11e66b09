"""A group over two masters, one of which is killed and comes back: nothing acknowledged is lost."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from rocketlens import Message, MQAdmin, Producer, SendStatus
from tests.crash.test_consumer_soak import (
    FILES,
    PATIENCE_S,
    TOPICS,
    Group,
    Journal,
)
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import VERSIONS

# A client that lost a broker asks for the route every 30 s.
pytestmark = pytest.mark.slow

QUEUES = 3
FIRST, SECOND = "broker-a", "broker-b"


async def queues_of(producer, topic, *broker_names):
    """Return the queues of a topic, once the name server has them of these brokers only."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            queues = await producer.write_queues(topic)
            if {each.broker_name for each in queues} == set(broker_names):
                return queues
            await asyncio.sleep(0.2)


async def send_some(producer, queues, name, sent):
    """Send to each of the queues; ``sent`` gets the bodies that were acknowledged."""
    for queue in queues:
        for number in range(5):
            body = f"{name}-{queue.topic}-{queue.broker_name}-{queue.queue_id}-{number}"
            result = await producer.send(Message(queue.topic, body), queue=queue)
            assert result.send_status is SendStatus.SEND_OK
            sent[queue.topic].add(body)


async def consumed(journal, sent):
    """Wait until both groups have everything."""

    def missing():
        return {kind: sent[topic] - journal.bodies[kind] for kind, topic in TOPICS.items()}

    try:
        await journal.until(lambda: not any(missing().values()))
    except TimeoutError:
        raise AssertionError(missing()) from None


async def scenario(masters, group, in_java):
    journal, name_server = group.journal, group.broker.name_server
    sent = {topic: set() for topic in TOPICS.values()}
    async with MQAdmin(name_server) as admin, Producer(name_server) as producer:
        for topic in TOPICS.values():
            await admin.create_topic(topic, QUEUES)
        group.join(in_java=in_java)
        await journal.until(lambda: set(group.members) <= journal.ready)
        for topic in TOPICS.values():
            await send_some(producer, await queues_of(producer, topic, FIRST, SECOND), "1", sent)
        await consumed(journal, sent)
        for topic in TOPICS.values():
            # What is acknowledged and not consumed yet waits for the broker to come back.
            await send_some(producer, await queues_of(producer, topic, FIRST, SECOND), "2", sent)
        masters[FIRST].kill()
        there = {topic: {each for each in sent[topic] if FIRST not in each} for topic in sent}
        await consumed(journal, there)
        for topic in TOPICS.values():
            queues = await queues_of(producer, topic, SECOND)
            await send_some(producer, queues, "3", sent)
            await send_some(producer, queues, "3", there)
        await consumed(journal, there)
        await asyncio.to_thread(masters.start, FIRST)
        for topic in TOPICS.values():
            await send_some(producer, await queues_of(producer, topic, FIRST, SECOND), "4", sent)
        # A member that sends says what was acknowledged.
        sent[TOPICS["concurrent"]] |= journal.sent
        await consumed(journal, sent)


class Masters(dict):
    """Two brokers under one name server."""

    def __init__(self, directory, name_server, running):
        super().__init__()
        self.directory = directory
        self.name_server = name_server
        self.running = running
        for name in (FIRST, SECOND):
            self.start(name)

    def start(self, name):
        """Start a broker, for the first time or again."""
        settings = FILES | {"brokerName": name}
        if name in self:
            settings["listenPort"] = self[name].port
        broker = OurBroker(self.directory / name, self.name_server, **settings)
        self.running.callback(broker.kill)
        self[name] = broker


@pytest.mark.parametrize("version", [None, *VERSIONS])
def test_a_group_goes_on_with_one_of_two_masters_and_loses_nothing(version, tmp_path, request):
    peer = request.getfixturevalue("peer") if version else None
    directory = tmp_path / "members"
    directory.mkdir()
    with ExitStack() as running:
        name_server = OurNameServer()
        running.callback(name_server.close)
        masters = Masters(tmp_path, str(name_server.address), running)
        cluster = SimpleNamespace(name_server=str(name_server.address))
        group = Group(peer, cluster, Journal(directory), running)
        if version is not None:
            # The count decides which version the next Java member has.
            group.count = VERSIONS.index(version) + len(VERSIONS) - 1
        asyncio.run(scenario(masters, group, version is not None))
        for name in list(group.members):
            group.end(name, orderly=True)
