"""Tells the name servers which topics this broker has (103), and that it stops (104).

All name servers are told at the start, every 30 seconds, and at once when a topic changes. Changes
that come while they are being told go together with the next time. A name server that cannot be
reached holds nobody up for longer than the timeout.

======================================  ========================================================
a name server                           is told
======================================  ========================================================
that may not know this broker           all topics, in parts if there are many
that was told over this connection      the topics that changed
where nothing changed                   all topics; where they are many, it is asked for the
                                        version that it knows (322), and told one part in turn
======================================  ========================================================

A RocketMQ name server takes topics only with a version that it does not know. So each part has a
version of its own that no table ever has, and the last part has the true one: a name server that
was told a part of the topics is known by its version.

Whoever can reach a name server can register under this broker's name. So its route is looked up
before and after it is told: see :mod:`rocketlens.broker.name_watch`.
"""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from rocketlens import limits
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.name_watch import REMINDER_MS, NameWatch
from rocketlens.broker.tables.topics import StoredTopic
from rocketlens.errors import BrokerError, ProtocolError, RocketLensError
from rocketlens.model.rocketmq import CRC_MASK
from rocketlens.net.channel import Channel
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.net.pool import ClientPool
from rocketlens.wire.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicFilterType,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands.namesrv import (
    QUERY_DATA_VERSION,
    REGISTER_BROKER,
    UNREGISTER_BROKER,
    QueryDataVersionRequest,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)
from rocketlens.wire.declare import write_body

_log: Final = logging.getLogger("rocketlens.broker")

HA_DISTANCE: Final = 1
"""RocketMQ's replication port is so far above the first; nothing listens there."""
TOPICS_IN_A_PART: Final = 1_000
"""At most 600 KB, of which a name server must make sense before the timeout. RocketMQ: all topics
in one body, or 800 (``splitRegistrationSize``) where that is switched on."""


@dataclass(slots=True)
class _Told:
    """What one name server was told."""

    channel: Channel | None = None
    """The connection over which it was told of all topics; it knows them while that is open."""
    counter: int = -1
    """Of the last change that it was told of."""
    next_part: int = 0
    """Which part of the topics it is told in the next period without a change."""


_THREAD: Final = WorkThreads(1)
"""Of its own: a broker must stay registered, however many bodies of others wait to be read."""


class _Round:
    """What the name servers are told at one time: the topics as they are now."""

    def __init__(self, core: BrokerCore) -> None:
        table = core.topics.table
        self.counter: Final = table.data_version.counter
        self.state_version: Final = table.data_version.state_version
        self.version: Final = DataVersion(
            counter=self.counter,
            state_version=self.state_version,
            timestamp_ms=table.data_version.timestamp_ms,
        )
        self.changed_since: Final = table.changed_since
        self._perm: Final = core.config.brokerPermission
        self._now_ms: Final = core.clock()
        self._topics: Final = dict(table.topics)
        self._names: Final = list(table.topics)
        self._bodies: Final[dict[tuple[int, DataVersion], bytes]] = {}
        """Of parts of the topics; several name servers are told the same."""

    @property
    def part_count(self) -> int:
        """How many parts the topics have."""
        return -(-len(self._names) // TOPICS_IN_A_PART)

    async def all_parts(self, *, is_forced: bool) -> AsyncIterator[bytes]:
        """Yield the bodies that together have all topics; the last one has the true version.

        ``is_forced``: there are at least two, so that topics are taken whatever is known.
        """
        parts = list(range(self.part_count))
        if is_forced and len(parts) == 1:
            parts *= 2
        for left, number in zip(reversed(range(len(parts))), parts, strict=True):
            if left == 0:
                yield await self.part(number)
            else:
                # No table has counted fewer changes than none.
                version = replace(self.version, counter=-left, timestamp_ms=self._now_ms)
                yield await self._body_of(number, version)

    async def part(self, number: int) -> bytes:
        """Return the body with one part of the topics, and the true version."""
        return await self._body_of(number, self.version)

    async def changes(self, names: Sequence[str]) -> bytes:
        """Return the body with some topics; those that are not there any more are left out."""
        return await in_thread(lambda: self._write(names, self.version), _THREAD)

    async def _body_of(self, number: int, version: DataVersion) -> bytes:
        key = number, version
        if key not in self._bodies:
            start = number * TOPICS_IN_A_PART
            names = self._names[start : start + TOPICS_IN_A_PART]
            self._bodies[key] = await in_thread(lambda: self._write(names, version), _THREAD)
        return self._bodies[key]

    def _write(self, names: Sequence[str], version: DataVersion) -> bytes:
        topics = {
            name: wire_topic(self._topics[name], self._perm)
            for name in names
            if name in self._topics and is_tellable(name)
        }
        table = TopicConfigTable(data_version=version, topic_config_table=topics)
        return write_body(RegisterBrokerBody(topic_config_table=table))


class Registrar:
    """Keeps the name servers up to date."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        config = core.config
        self._namesrvs: Final = tuple(dict.fromkeys(config.namesrv_addresses))
        self._timeout_s: Final = config.registerBrokerTimeoutMills / 1000
        self._period_s: Final = config.registerNameServerPeriod / 1000
        self._pool: Final = ClientPool(
            lambda address: address in self._namesrvs,
            tls=core.settings.tls.client,
            connect_timeout_s=self._timeout_s,
            call_timeout_s=self._timeout_s,
        )
        self._told: Final = {address: _Told() for address in self._namesrvs}
        self._local_addresses: Final[dict[str, str]] = {}
        """By name server: where the connection to it begins."""
        self._logged_ms: Final[dict[str, int]] = {}
        """By name server: when it was last logged that it cannot be told."""
        self._watch: Final = NameWatch(core)
        self._wake: Final = asyncio.Event()
        self._next: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def local_addresses(self) -> frozenset[str]:
        """Return where the connections to name servers begin, each as ``ip:port``; any thread."""
        return frozenset(self._local_addresses.values())

    async def start(self) -> None:
        """Register with the name servers now, and from now on."""
        if not self._namesrvs:
            return
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.core.topics.announce = self.announce
        told = self.announce()
        if told is not None:
            await asyncio.shield(told)

    def announce(self) -> asyncio.Future[None] | None:
        """Have the name servers told of a change; the future ends when they were."""
        if self._task is None:
            return None
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._wake.set()
        return self._next

    async def stop(self) -> None:
        """Unregister from the name servers."""
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
        try:
            await asyncio.gather(*(self._leave(address, fields) for address in self._namesrvs))
        finally:
            # Also when there is no time left to wait for an answer.
            await self._pool.close()

    async def _leave(self, address: str, fields: dict[str, str]) -> None:
        try:
            channel = await self._channel(address)
            await self._ask(channel, RequestCode.UNREGISTER_BROKER, fields)
        except RocketLensError as error:
            self._note(address, error)

    async def register(self) -> None:
        """Send all name servers what they lack, and wait for each as long as the timeout."""
        now = _Round(self.core)
        await asyncio.gather(*(self._update(address, now) for address in self._namesrvs))
        await self._watch.save()

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

    async def _update(self, address: str, now: _Round) -> None:
        """Send one name server what it lacks."""
        told = self._told[address]
        try:
            channel = await self._channel(address)
            if told.channel is not channel or not await self._tell_changes(address, told, now):
                await self._tell_everything(address, channel, told, now)
        except RocketLensError as error:
            told.channel = None
            self._note(address, error)
        else:
            self.core.not_told.pop(address, None)

    async def _channel(self, address: str) -> Channel:
        channel = await self._pool.channel(address)
        self._local_addresses[address] = channel.local_address
        return channel

    async def _tell_changes(self, address: str, told: _Told, now: _Round) -> bool:
        """Send what changed to a name server that knows this broker; False if it needs all."""
        channel = told.channel
        assert channel is not None  # noqa: S101 - it was told over it
        names = now.changed_since(told.counter)
        if names is None or len(names) > TOPICS_IN_A_PART:
            return False
        if told.counter == now.counter:
            if not await self._is_ours(address, channel) or now.part_count < 2:
                return False
            if await self._is_forgotten(channel, now):
                return False
            told.next_part = (told.next_part + 1) % now.part_count
            body = await now.part(told.next_part)
        else:
            body = await now.changes(names)
        try:
            await self._ask(channel, *self._registration(body))
        except BrokerError:
            # It does not know this broker any more, or never did.
            return False
        told.counter = now.counter
        return True

    async def _tell_everything(
        self, address: str, channel: Channel, told: _Told, now: _Round
    ) -> None:
        told.channel = None
        is_forced = address in self.core.name_taken
        async for body in now.all_parts(is_forced=is_forced):
            await self._ask(channel, *self._registration(body))
        told.channel, told.counter = channel, now.counter
        if not await self._is_ours(address, channel) and not is_forced:
            # Once more, so that its topics are this broker's again, too.
            await self._tell_everything(address, channel, told, now)

    async def _is_ours(self, address: str, channel: Channel) -> bool:
        """Look up to whom this broker's name leads, and note it."""
        try:
            answer = await self._ask(channel, *self._watch.question())
        except BrokerError:
            return True
        return self._watch.note(address, answer.body)

    async def _is_forgotten(self, channel: Channel, now: _Round) -> bool:
        """Ask whether the name server knows another version of the topics; that keeps it awake."""
        config = self.core.config
        request = QueryDataVersionRequest(
            broker_name=config.brokerName,
            broker_addr=self.core.address,
            cluster_name=config.brokerClusterName,
            broker_id=config.brokerId,
        )
        fields = QUERY_DATA_VERSION.request.encode(request)
        body = write_body(now.version)
        try:
            answer = await self._ask(channel, RequestCode.QUERY_DATA_VERSION, fields, body)
            return QUERY_DATA_VERSION.response.decode(answer.ext_fields).changed
        except (BrokerError, ProtocolError):
            return True

    def _registration(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        config = self.core.config
        host = self.core.store.store_host
        request = RegisterBrokerRequest(
            broker_name=config.brokerName,
            broker_addr=self.core.address,
            cluster_name=config.brokerClusterName,
            ha_server_addr=str(host._replace(port=host.port + HA_DISTANCE)),
            broker_id=config.brokerId,
            body_crc32=zlib.crc32(body) & CRC_MASK,
        )
        return RequestCode.REGISTER_BROKER, REGISTER_BROKER.request.encode(request), body

    async def _ask(
        self, channel: Channel, code: int, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Ask over one connection.

        :raises BrokerError: when the answer has another code than 0.
        :raises RemotingError: when there is no answer.
        """
        answer = await channel.request(code, fields, body, timeout_s=self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(channel.address, answer.code, answer.remark, retriable=True)
        return answer

    def _note(self, address: str, error: RocketLensError) -> None:
        """Note a failure; it is logged at first, and again while it lasts."""
        now_ms = self.core.clock()
        is_new = address not in self.core.not_told
        if is_new or now_ms - self._logged_ms.get(address, 0) >= REMINDER_MS:
            self._logged_ms[address] = now_ms
            _log.warning("name server %s cannot be told: %s", address, _words(address, error))
        self.core.not_told[address] = _words(address, error)


def _words(address: str, error: RocketLensError) -> str:
    return str(error).removeprefix(f"{address}: ")


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


def is_tellable(topic: str) -> bool:
    """Return whether a name server accepts this topic name; a table may have any name."""
    return 0 < len(topic) <= limits.MAX_TOPIC_CHARACTERS and topic.isprintable()


def wire_topic(topic: StoredTopic, broker_perm: int = 7) -> TopicConfig:
    """Return a topic as commands have it, with no more permission than the broker has.

    Inheritance is no permission of a broker.
    """
    return TopicConfig(
        topic_name=topic.topic,
        read_queue_nums=topic.read_queue_count,
        write_queue_nums=topic.write_queue_count,
        perm=topic.perm & (broker_perm | 1),
        topic_filter_type=TopicFilterType.__members__.get(
            topic.filter_type, TopicFilterType.SINGLE_TAG
        ),
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=dict(topic.attributes),
    )
