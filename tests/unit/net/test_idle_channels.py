"""Which connections end for others when there are too many."""

import asyncio

import pytest

from rocketlens.net.channel import Response
from rocketlens.net.channel_group import ConnectionLimits
from tests.support.async_tests import within
from tests.support.clocks import Seconds
from tests.unit.net.loopback import (
    ECHO,
    LATER,
    answered,
    connect,
    echo,
    run,
    serving,
    until,
)


@pytest.mark.parametrize("bound", [{"connections": 5}, {"connections_of_address": 5}])
def test_when_there_are_too_many_connections_the_longest_idle_ends_for_a_new_one(bound):
    """First who never said anything, and last who waits for an answer."""

    async def main():
        clock = Seconds()
        waiting = asyncio.Event()

        async def later(command, channel):
            await waiting.wait()
            return Response()

        handlers = {ECHO: echo, LATER: later}
        async with serving(handlers, clock=clock, bounds=ConnectionLimits(**bound)) as (
            server,
            address,
        ):
            peers = {}
            for name in ("spoke first", "waits", "silent", "spoke last", "busy"):
                peers[name] = await connect(address)
                if name == "waits":
                    peers[name].ask(LATER)
                elif name != "silent":
                    assert await answered(peers[name])
                await until(lambda: len(server.group.channels) == len(peers))
                await until(lambda: not server._arriving)
                clock.now_s += 10
                server.group.sweep()
                server.sweep_arrivals()
            assert await answered(peers["busy"])
            for ends in ("silent", "spoke first", "spoke last", "waits"):
                another = await connect(address)
                assert await answered(another)
                assert await peers[ends].read() is None
            assert server.group.closed_idle == 4
            # Whoever was heard of just now does not end for others.
            refused = await connect(address)
            assert await refused.read() is None
            assert server.group.refused == 1
            assert await answered(peers["busy"])

    run(main)


@within(run)
async def test_whoever_has_most_connections_has_them_closed_for_others():
    clock = Seconds()
    async with serving(clock=clock, bounds=ConnectionLimits(connections=8)) as (
        server,
        address,
    ):
        one = await connect(address, local_addr=("127.0.0.2", 0))
        assert await answered(one)
        await until(lambda: not server._arriving)
        clock.now_s += 10
        server.group.sweep()
        server.sweep_arrivals()
        many = [await connect(address) for _ in range(7)]
        for each in many:
            assert await answered(each)
        await until(lambda: not server._arriving)
        clock.now_s += 10
        server.group.sweep()
        server.sweep_arrivals()
        for _ in range(6):
            assert await answered(await connect(address, local_addr=("127.0.0.3", 0)))
        # It had been idle for longest, and alone.
        assert await answered(one)
        assert server.group.closed_idle == 6


@within(run)
async def test_one_address_has_three_quarters_of_all_connections_however_busy_they_are():
    # No time passes, so none of them is idle.
    async with serving(clock=Seconds(), bounds=ConnectionLimits(connections=24)) as (
        server,
        address,
    ):
        for _ in range(18):
            assert await answered(await connect(address))
        assert await (await connect(address)).read() is None
        assert server.group.refused == 1
        assert await answered(await connect(address, local_addr=("127.0.0.2", 0)))
