"""What consumers of the real RocketMQ pull is read and answered by compiled code."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from rocketlens.broker.delivery.compiled_pulls import CODES
from tests.peer.java_member import JavaMember
from tests.peer.our_servers import OurNameServer
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.broker_world import create_topic, running
from tests.support.patience import PATIENCE_S
from tests.unit.broker.access.acl_world import SECRET, with_accounts
from tests.unit.client.consume.behaviour import until

COUNT = 400
"""Several pulls of each queue, most of which come alone."""
ACL_CLIENT = Path(__file__).parent / "java" / "AclClient.java"


@pytest.fixture
def name_server():
    """A name server of ours; the broker is in the loop of the test."""
    with closing(OurNameServer()) as server:
        yield str(server.address)


def messages_of_compiled_pulls(core):
    """Return a list that gets how many messages each compiled pull of a broker answers."""
    core.load_kernels()
    pulls, answered = core.network.runs._by_number[CODES[0].to_bytes(2)], []
    pull = pulls._pull

    def counted(*given):
        before = core.stats.get_total
        reply = pull(*given)
        answered.append(core.stats.get_total - before)
        return reply

    pulls._pull = counted
    return answered


@pytest.mark.parametrize("version", VERSIONS)
def test_most_of_what_a_java_consumer_pulls_is_answered_by_compiled_code(
    peer, tmp_path, name_server, version
):
    async def main():
        async with running(tmp_path / "ours", namesrvAddr=name_server) as world:
            await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
            for number in range(COUNT):
                assert (await world.send(body=b"%d" % number, e=number % 4)).code == 0
            answered = messages_of_compiled_pulls(world.core)
            arguments = version, tmp_path, name_server, "readers", "Orders"
            java = await asyncio.to_thread(JavaMember, peer, *arguments)
            try:
                await until(lambda: len(java.bodies) >= COUNT)
            finally:
                await asyncio.to_thread(java.kill)
            assert sorted(java.bodies) == list(range(COUNT))
            assert sum(answered) > COUNT / 2

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_java_consumer_with_an_account_pulls_is_answered_by_compiled_code(
    peer, tmp_path, name_server, version
):
    async def main():
        async with with_accounts(tmp_path, namesrvAddr=name_server) as (world, admin, _):
            world.call = admin
            await create_topic(world, topic="Orders", writeQueueNums=1, readQueueNums=1)
            for number in range(COUNT):
                assert (await world.send(body=b"%d" % number)).code == 0
            answered = messages_of_compiled_pulls(world.core)
            arguments = version, ACL_CLIENT, name_server, "orders-app", SECRET, "readers", "Orders"
            printed = await asyncio.to_thread(peer.java, *arguments)
            assert "> consumed true" in printed
            assert sum(answered) > 0

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
