"""Registers this broker's topics with the name servers (103), and unregisters it (104).

It registers at the start, every 30 seconds, and when a topic changes. Changes during a registration
are sent together with the next one. Each name server has its own task, so a slow one does not delay
others. A request that changes a topic waits for the name servers that know this broker, but not for
one that must receive all topics first, which can take seconds.

======================================  ========================================================
a name server that                      is sent
======================================  ========================================================
may not know this broker                all topics, in parts if there are many
knows it from this connection           the topics that changed
knows it, and no topic changed          all topics; if there are many, a query of the version that
                                        it has (322), which also keeps the broker alive there
======================================  ========================================================

A RocketMQ name server accepts topics only with a version that it does not have. So each part has a
version that no table ever has, and the last part has the true one. If a name server received only
some parts, its version shows that.

A name server accepts every registration: also of another broker with the same ``brokerName``, or of
any other program. Clients then send to that address. So before and after a registration, each name
server is asked for the route of the broker's own name, which is a topic of every broker. A conflict
is logged, and reported in the runtime information (28) and in ``rocketlens/name_taken.json`` of the
store, for ``doctor``::

    {"brokerName":"broker-a","takenBy":{"10.0.0.5:9876":"10.0.0.9:10911"},"times":1,
     "lastBy":"10.0.0.9:10911","lastTimestampMs":1700000000000}

``takenBy`` is empty once all name servers return this broker again. The start of the broker deletes
the file.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from rocketlens.broker.config import HA_DISTANCE
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.tables.name_servers import NameServerState
from rocketlens.broker.tables.table_saver import Table
from rocketlens.broker.tables.topics import StoredTopic, is_registrable, wire_topic
from rocketlens.errors import BrokerError, CommandBodyError, ProtocolError, RocketLensError
from rocketlens.model.rocketmq import CRC_MASK
from rocketlens.net.channel import Channel
from rocketlens.net.pace import WorkThreads, in_thread
from rocketlens.net.pool import NAME_SERVER_EXPECTED, ClientPool
from rocketlens.wire.bodies.tables import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigTable,
    TopicRouteData,
)
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.commands import brokers as commands
from rocketlens.wire.declare import read_body, write_body

_log: Final = logging.getLogger("rocketlens.broker")

TOPICS_IN_A_PART: Final = 1_000
"""At most 600 KB, which a name server must parse before the timeout. RocketMQ: all topics in one
body, or 800 topics (``splitRegistrationSize``) if that is enabled.
"""
REMINDER_MS: Final = 600_000
"""Milliseconds between two log lines about the same lasting conflict."""
_MAX_SHOWN: Final = 300
"""Maximum length of an address in the log and in the file."""

_THREAD: Final = WorkThreads(1, "registration")
"""A separate thread: a broker must stay registered, even if many bodies wait to be parsed."""


async def _all_topics(core: BrokerCore, *, is_forced: bool) -> AsyncIterator[bytes]:
    """Yield bodies with all current topics; the last one has the true version.

    ``is_forced``: yield at least two, so that a name server accepts them whatever version it has.
    """
    table, now_ms = core.topics.table, core.clock()
    version, topics = table.data_version, list(table.entries.items())
    starts = list(range(0, len(topics), TOPICS_IN_A_PART))
    if is_forced and len(starts) == 1:
        starts *= 2
    for later_count, start in zip(reversed(range(len(starts))), starts, strict=True):
        part, of_part = dict(topics[start : start + TOPICS_IN_A_PART]), version
        if later_count:
            # Counters of tables start at 0, so parts use negative ones.
            of_part = replace(version, counter=-later_count, timestamp_ms=now_ms)
        yield await _body_with(part, of_part, core.config.brokerPermission)


class Registrar:
    """Keeps this broker registered with the name servers."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        config = core.config
        self._servers: Final = core.name_servers
        self._namesrvs: Final = tuple(self._servers.states)
        self._timeout_s: Final = config.registerBrokerTimeoutMills / 1000
        self._period_s: Final = config.registerNameServerPeriod / 1000
        self._pool: Final = ClientPool(
            lambda address: address in self._namesrvs,
            tls=core.settings.tls.client,
            connect_timeout_s=self._timeout_s,
            call_timeout_s=self._timeout_s,
            expected=lambda _: NAME_SERVER_EXPECTED,
        )
        self._local_addresses: Final[dict[str, str]] = {}
        """By name server: the local address of the connection to it."""
        self._logged_ms: Final[dict[str, int]] = {}
        """By name server: the time of the last logged failure."""
        self._watch: Final = NameWatch(core)
        self._tasks: list[asyncio.Task[None]] = []

    def local_addresses(self) -> frozenset[str]:
        """Return the local addresses of connections to name servers, as ``ip:port``; any thread."""
        return frozenset(self._local_addresses.values())

    async def start(self) -> None:
        if not self._namesrvs:
            return
        await _log_failure(self.register())
        self._tasks = [asyncio.create_task(self._keep(address)) for address in self._namesrvs]
        self._servers.are_served = True

    async def stop(self) -> None:
        self._servers.are_served = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for state in self._servers.states.values():
            _end(state.next)
        fields = commands.UNREGISTER_BROKER.request.encode(
            commands.UnregisterBrokerRequest(**self._own_fields())
        )
        try:
            await asyncio.gather(*(self._unregister(address, fields) for address in self._namesrvs))
        finally:
            # Also if the time for responses is over.
            await self._pool.close()

    async def _unregister(self, address: str, fields: dict[str, str]) -> None:
        try:
            channel = await self._channel(address)
            await self._ask(channel, RequestCode.UNREGISTER_BROKER, fields)
        except RocketLensError as error:
            self._note(address, error)

    async def register(self) -> None:
        """Update all name servers, and wait for each until the timeout."""
        await asyncio.gather(*(self._update(address) for address in self._namesrvs))

    async def _keep(self, address: str) -> None:
        state = self._servers.states[address]
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await state.wake.wait()
            state.wake.clear()
            announced, state.next = state.next, None
            try:
                await _log_failure(self._update(address))
            finally:
                _end(announced)

    async def _update(self, address: str) -> None:
        state = self._servers.states[address]
        async with state.turn:
            try:
                channel = await self._channel(address)
                if state.channel is not channel or not await self._send_changes(address, state):
                    await self._send_all(address, channel, state)
            except RocketLensError as error:
                state.channel = None
                self._note(address, error)
            else:
                self._servers.failures.pop(address, None)
        # Do not wait: a slow disk must not end the broker's registration.
        self.core.saver.save_changed([self._watch])

    async def _channel(self, address: str) -> Channel:
        channel = await self._pool.channel(address)
        self._local_addresses[address] = channel.local_address
        return channel

    async def _send_changes(self, address: str, state: NameServerState) -> bool:
        """Send changed topics, O(changes); return False if the name server needs all topics."""
        channel, table = state.channel, self.core.topics.table
        assert channel is not None  # noqa: S101 - it received all topics over it
        names = table.changed_since(state.counter)
        if names is None or len(names) > TOPICS_IN_A_PART:
            return False
        counter = table.data_version.counter
        if state.counter == counter:
            is_small = len(table.entries) <= TOPICS_IN_A_PART
            if not await self._is_ours(address, channel) or is_small:
                return False
            return not await self._is_forgotten(channel, table.data_version)
        topics = {name: table.entries[name] for name in names if name in table.entries}
        body = await _body_with(topics, table.data_version, self.core.config.brokerPermission)
        try:
            await self._ask(channel, *self._registration(body))
        except BrokerError:
            # The name server does not know this broker.
            return False
        state.counter = counter
        return True

    async def _send_all(self, address: str, channel: Channel, state: NameServerState) -> None:
        state.channel = None
        is_forced = address in self._servers.name_taken
        counter = self.core.topics.table.data_version.counter
        async for body in _all_topics(self.core, is_forced=is_forced):
            await self._ask(channel, *self._registration(body))
        state.channel, state.counter = channel, counter
        if not await self._is_ours(address, channel) and not is_forced:
            # Again, so that the topics' routes lead to this broker, too.
            await self._send_all(address, channel, state)

    async def _is_ours(self, address: str, channel: Channel) -> bool:
        try:
            answer = await self._ask(channel, *self._watch.question())
        except BrokerError:
            return True
        return self._watch.note(address, answer.body)

    async def _is_forgotten(self, channel: Channel, version: DataVersion) -> bool:
        """Return True if the name server has another version; the query keeps the broker alive."""
        fields = commands.QUERY_DATA_VERSION.request.encode(
            commands.QueryDataVersionRequest(**self._own_fields())
        )
        body = write_body(version)
        try:
            answer = await self._ask(channel, RequestCode.QUERY_DATA_VERSION, fields, body)
            return commands.QUERY_DATA_VERSION.response.decode(answer.ext_fields).changed
        except (BrokerError, ProtocolError):
            return True

    def _own_fields(self) -> dict[str, Any]:
        config = self.core.config
        return {
            "broker_name": config.brokerName,
            "broker_addr": self.core.address,
            "cluster_name": config.brokerClusterName,
            "broker_id": config.brokerId,
        }

    def _registration(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        host = self.core.store.store_host
        ha_port = self.core.settings.ha_port(host.port)
        request = commands.RegisterBrokerRequest(
            **self._own_fields(),
            ha_server_addr=str(host._replace(port=ha_port or host.port + HA_DISTANCE)),
            body_crc32=zlib.crc32(body) & CRC_MASK,
        )
        return RequestCode.REGISTER_BROKER, commands.REGISTER_BROKER.request.encode(request), body

    async def _ask(
        self, channel: Channel, code: int, fields: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """:raises BrokerError: if the response has another code than 0.
        :raises RemotingError: if there is no response.
        """
        answer = await channel.request(code, fields, body, timeout_s=self._timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(channel.address, answer.code, answer.remark, retriable=True)
        return answer

    def _note(self, address: str, error: RocketLensError) -> None:
        now_ms = self.core.clock()
        is_new = address not in self._servers.failures
        if is_new or now_ms - self._logged_ms.get(address, 0) >= REMINDER_MS:
            self._logged_ms[address] = now_ms
            _log.warning(
                "registration with name server %s failed: %s", address, _words(address, error)
            )
        self._servers.failures[address] = _words(address, error)


class NameWatch(Table):
    """Tracks conflicts: addresses of other brokers that name servers return for this one's name."""

    def __init__(self, core: BrokerCore) -> None:
        self.core: Final = core
        self._path: Final = core.store.layout.name_taken
        core.disk.remove_file(self._path)

    def question(self) -> tuple[int, dict[str, str]]:
        request = commands.GetRouteInfoRequest(
            topic=self.core.config.brokerName, accept_standard_json_only=True
        )
        return RequestCode.GET_ROUTEINFO_BY_TOPIC, commands.GET_ROUTEINFO_BY_TOPIC.request.encode(
            request
        )

    def note(self, name_server: str, body: bytes) -> bool:
        """Compare a route with this broker's address; return False if they differ."""
        config, core = self.core.config, self.core
        try:
            route = read_body(TopicRouteData, body)
        except CommandBodyError:
            return True
        addresses = [
            each.broker_addrs.get(config.brokerId, core.address)
            for each in route.broker_datas
            if each.broker_name == config.brokerName
        ]
        other = next((each for each in addresses if each != core.address), None)
        if other is not None:
            self._record_conflict(name_server, other[:_MAX_SHOWN])
        elif core.name_servers.name_taken.pop(name_server, None) is not None:
            self.is_changed = True
            line = "name server %s returns this broker again under the name %s"
            _log.warning(line, name_server, config.brokerName)
        return other is None

    def _record_conflict(self, name_server: str, other: str) -> None:
        core = self.core
        is_known = core.name_servers.name_taken.get(name_server) == other
        if is_known and core.clock() - core.name_servers.name_last_taken[1] < REMINDER_MS:
            return
        core.name_servers.name_taken[name_server] = other
        core.name_servers.name_taken_times += not is_known
        core.name_servers.name_last_taken = other, core.clock()
        self.is_changed = True
        _log.warning(
            "name server %s returns %s under the name %s, not this broker at %s: another broker "
            "registered under it and gets its messages; each broker needs its own brokerName",
            name_server,
            other,
            core.config.brokerName,
            core.address,
        )

    def snapshot(self) -> Callable[[], None]:
        core = self.core
        last_by, last_ms = core.name_servers.name_last_taken
        value = {
            "brokerName": core.config.brokerName,
            "takenBy": dict(core.name_servers.name_taken),
            "times": core.name_servers.name_taken_times,
            "lastBy": last_by,
            "lastTimestampMs": last_ms,
        }
        content = json.dumps(value).encode()
        return lambda: core.disk.write_durably(self._path, content)


async def _log_failure(work: Coroutine[Any, Any, None]) -> None:
    """Await a registration; log any failure, because the next attempt can succeed."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - see above
        _log.error("registration with the name servers failed: %s", error)


def _end(announced: asyncio.Future[None] | None) -> None:
    if announced is not None and not announced.done():
        announced.set_result(None)


async def _body_with(topics: Mapping[str, StoredTopic], version: DataVersion, perm: int) -> bytes:
    def write() -> bytes:
        table = {
            name: wire_topic(topic, perm) for name, topic in topics.items() if is_registrable(name)
        }
        topic_table = TopicConfigTable(data_version=version, topic_config_table=table)
        return write_body(RegisterBrokerBody(topic_config_table=topic_table))

    return await in_thread(write, _THREAD)


def _words(address: str, error: RocketLensError) -> str:
    return str(error).removeprefix(f"{address}: ")
