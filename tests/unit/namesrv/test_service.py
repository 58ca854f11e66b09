"""A name server over the loopback interface."""

import asyncio
import logging
import os
import signal

import pytest

from rocketlens.errors import BadInput
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer, run
from rocketlens.net.pool import ClientPool
from rocketlens.net.server import RemotingServer
from tests.support.patience import PATIENCE_S
from tests.unit.namesrv.name_server_world import (
    NAMES,
    Asking,
    Clock,
    asking,
)


async def test_a_broker_is_dropped_with_its_connection_or_when_it_is_silent():
    clock = Clock()
    async with asyncio.timeout(PATIENCE_S), asking(clock) as broker:
        client = Asking(broker.server, broker.address, ClientPool(lambda _: True))
        await broker.register()
        clock.now_s = 100.0
        assert (await broker.ask(904, **NAMES)).code == 0
        clock.now_s = 220.0
        broker.server.sweep()
        assert (await client.ask(105, topic="T")).code == 0
        clock.now_s = 221.0
        broker.server.sweep()
        assert (await client.ask(105, topic="T")).code == 17
        # Its connection was closed, too. It comes back with another, and goes.
        for channel in list(broker.pool.group.channels):
            channel.close()
        await broker.register()
        assert (await client.ask(105, topic="T")).code == 0
        for channel in list(broker.pool.group.channels):
            channel.close()
        while (await client.ask(105, topic="T")).code == 0:
            pass
        await client.pool.close()


async def test_two_name_servers_on_one_port_is_an_error_that_names_it():
    async with asking() as name_server:
        port = int(name_server.address.rpartition(":")[2])
        with pytest.raises(BadInput, match=f"cannot listen on 127.0.0.1:{port}"):
            NameServer(NameServerConfig(listenPort=port)).start()


@pytest.mark.usefixtures("takes_hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_runs_until_a_signal_and_frees_its_port(number):
    bound = []

    def ready(address):
        bound.append(address)
        os.kill(os.getpid(), number)

    async with asyncio.timeout(PATIENCE_S):
        await run(NameServerConfig(listenPort=0), ready=ready)
    again = NameServer(NameServerConfig(listenPort=bound[0].port))
    again.start()
    await again.stop()


def test_more_signals_while_it_stops_are_logged_once_and_so_is_its_end(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    abort = RemotingServer.abort

    async def signal_and_hang(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def abort_after_signals(self):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        await abort(self)

    monkeypatch.setattr(RemotingServer, "stop", signal_and_hang)
    monkeypatch.setattr(RemotingServer, "abort", abort_after_signals)

    async def main():
        async with asyncio.timeout(PATIENCE_S):
            await run(
                NameServerConfig(listenPort=0),
                ready=lambda _: os.kill(os.getpid(), signal.SIGTERM),
            )

    asyncio.run(main())
    assert [each for each in caplog.messages if each.startswith("stop")] == [
        "stopping: SIGTERM",
        "stops without waiting for clients: SIGTERM",
        "stopped",
    ]
