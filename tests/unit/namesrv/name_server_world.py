"""What tests of a name server share: one in this process, a client of it, and requests."""

import asyncio
from contextlib import asynccontextmanager

from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.pool import ClientPool
from rocketlens.wire.bodies.tables import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
)
from rocketlens.wire.declare import write_body
from tests.support.clocks import Seconds
from tests.support.patience import PATIENCE_S

BROKER = "127.0.0.1:10911"
TOPICS = ("TBW102", "T")
NAMES = {"brokerName": "broker-a", "brokerAddr": BROKER, "clusterName": "c", "brokerId": "0"}
REGISTER = {**NAMES, "haServerAddr": "127.0.0.1:10912"}


def registration(version=1):
    table = TopicConfigTable(
        data_version=DataVersion(counter=version),
        topic_config_table={each: TopicConfig(topic_name=each) for each in TOPICS},
    )
    return write_body(RegisterBrokerBody(topic_config_table=table))


class Asking:
    """A name server, and a client of it."""

    def __init__(self, server, address, pool):
        self.server = server
        self.address = address
        self.pool = pool

    async def ask(self, code, body=b"", **fields):
        return await self.pool.call(self.address, code, fields, body)

    async def register(self, version=1, **fields):
        return await self.ask(103, registration(version), **REGISTER, **fields)


@asynccontextmanager
async def asking(clock=None, **config):
    server = NameServer(NameServerConfig(listenPort=0, **config), clock=clock or Seconds(0.0))
    address = str(server.start())
    pool = ClientPool(lambda _: True)
    try:
        yield Asking(server, address, pool)
    finally:
        await pool.close()
        await server.stop()


def on_a_name_server(**config):
    """Run an async test with a name server."""

    def decorate(test):
        def plain(tmp_path):
            async def main():
                given = {
                    name: str(tmp_path / value) if name == "kvConfigPath" else value
                    for name, value in config.items()
                }
                async with asyncio.timeout(PATIENCE_S), asking(**given) as name_server:
                    await test(name_server)

            asyncio.run(main())

        plain.__name__ = test.__name__
        return plain

    return decorate
