"""Tells the name servers which topics this broker has (103), and that it stops (104).

All name servers are told at the start, every 30 seconds, and at once when a topic changes. Changes
that come while they are being told go together with the next time. A name server that cannot be
reached holds nobody up for longer than the timeout.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rocketlens.broker.core import BrokerCore
from rocketlens.errors import RocketLensError
from rocketlens.net.pace import in_thread
from rocketlens.net.pool import ClientPool
from rocketlens.store.topics import TopicConfig as StoredTopic
from rocketlens.wire.bodies import schema
from rocketlens.wire.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicFilterType,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.commands.namesrv import (
    REGISTER_BROKER,
    UNREGISTER_BROKER,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)

_log: Final = logging.getLogger("rocketlens.broker")

CRC_MASK: Final = 0x7FFFFFFF
HA_DISTANCE: Final = 1
"""RocketMQ's replication port is so far above the first; nothing listens there."""


class Registrar:
    """Keeps the name servers up to date."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        config = core.config
        self._namesrvs: Final = config.namesrv_addresses
        self._timeout_s: Final = config.registerBrokerTimeoutMills / 1000
        self._period_s: Final = config.registerNameServerPeriod / 1000
        self._pool: Final = ClientPool(
            lambda address: address in self._namesrvs,
            tls=core.settings.tls.client,
            connect_timeout_s=self._timeout_s,
            call_timeout_s=self._timeout_s,
        )
        self._wake: Final = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failing: Final[set[str]] = set()

    async def start(self) -> None:
        """Tell the name servers now, and from now on."""
        if not self._namesrvs:
            return
        await self.register()
        self.core.topics.announce = self.announce
        self._task = asyncio.get_running_loop().create_task(self._run())

    def announce(self) -> asyncio.Future[None] | None:
        """Have the name servers told of a change; the future ends when they were."""
        if self._task is None:
            return None
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._wake.set()
        return self._next

    async def stop(self) -> None:
        """Tell the name servers that this broker stops."""
        if self._task is not None:
            self.core.topics.announce = lambda: None
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            self._end(self._next)
        config = self.core.config
        request = UnregisterBrokerRequest(
            broker_name=config.brokerName,
            broker_addr=self.core.address,
            cluster_name=config.brokerClusterName,
            broker_id=config.brokerId,
        )
        fields = UNREGISTER_BROKER.request.encode(request)
        await self._tell_all(RequestCode.UNREGISTER_BROKER, fields, b"")
        await self._pool.close()

    async def register(self) -> None:
        """Tell all name servers, and wait for them as long as the timeout."""
        body = await in_thread(registration_of(self.core))
        config = self.core.config
        host = self.core.store.options.store_host
        request = RegisterBrokerRequest(
            broker_name=config.brokerName,
            broker_addr=self.core.address,
            cluster_name=config.brokerClusterName,
            ha_server_addr=str(host._replace(port=host.port + HA_DISTANCE)),
            broker_id=config.brokerId,
            body_crc32=zlib.crc32(body) & CRC_MASK,
        )
        fields = REGISTER_BROKER.request.encode(request)
        await self._tell_all(RequestCode.REGISTER_BROKER, fields, body)

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._period_s)
            self._wake.clear()
            told, self._next = self._next, None
            try:
                await self.register()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next time may pass
                _log.error("the name servers cannot be told: %s", error)
            finally:
                self._end(told)

    def _end(self, told: asyncio.Future[None] | None) -> None:
        if told is not None and not told.done():
            told.set_result(None)

    async def _tell_all(self, code: int, fields: dict[str, str], body: bytes) -> None:
        tellings = [self._tell(address, code, fields, body) for address in self._namesrvs]
        await asyncio.gather(*tellings)

    async def _tell(self, address: str, code: int, fields: dict[str, str], body: bytes) -> None:
        try:
            answer = await self._pool.call(address, code, fields, body)
        except RocketLensError as error:
            self._note(address, str(error))
            return
        if answer.code != ResponseCode.SUCCESS:
            self._note(address, f"code {answer.code}: {answer.remark}")
        else:
            self._failing.discard(address)

    def _note(self, address: str, why: str) -> None:
        """Log a failure, the first time only."""
        if address not in self._failing:
            self._failing.add(address)
            _log.warning("name server %s cannot be told: %s", address, why)


def registration_of(core: BrokerCore) -> Callable[[], bytes]:
    """Take what a name server is told about this broker; what is returned writes it."""
    table_of = topic_table(core, core.config.brokerPermission)
    return lambda: schema.write(RegisterBrokerBody(topic_config_table=table_of()))


def topic_table(core: BrokerCore, broker_perm: int = 7) -> Callable[[], TopicConfigTable]:
    """Take all topics; what is returned makes them what commands have, in any thread.

    They get no more permission than the broker has.
    """
    table = core.topics.table
    version = DataVersion(
        counter=table.data_version.counter,
        state_version=table.data_version.state_version,
        timestamp_ms=table.data_version.timestamp_ms,
    )
    stored = dict(table.topics)

    def make() -> TopicConfigTable:
        topics = {name: wire_topic(topic, broker_perm) for name, topic in stored.items()}
        return TopicConfigTable(data_version=version, topic_config_table=topics)

    return make


def wire_topic(topic: StoredTopic, broker_perm: int = 7) -> TopicConfig:
    """Give a topic as commands have it, with no more permission than the broker has.

    Inheritance is no permission of a broker.
    """
    return TopicConfig(
        topic_name=topic.topic,
        read_queue_nums=topic.read_queue_count,
        write_queue_nums=topic.write_queue_count,
        perm=topic.perm & (broker_perm | 1),
        topic_filter_type=TopicFilterType[topic.filter_type],
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=dict(topic.attributes),
    )
