"""A broker as a whole: opens the store, listens, registers, runs periodic work, and stops.

======================  =======================================================================
work                    when
======================  =======================================================================
counts                  sampled every second
delayed messages        every 0.1 s, delay levels and timers
held pulls              every 0.2 s, those whose time is over
consumer offsets        every 5 s and at the stop, with tables not written before
delay offsets           after a delivery, at most every second, and at the stop
open transactions       every 30 s
expired files           every 10 s
index builder           checked every 5 s, if it is another process
registration            at the start, every 30 s, and when a topic changes
======================  =======================================================================
"""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from rocketlens import limits
from rocketlens.broker.access import control
from rocketlens.broker.config import HA_DISTANCE, VIP_DISTANCE, BrokerSettings
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.delivery.held_pulls import TICK_S
from rocketlens.broker.delivery.schedule import Schedule
from rocketlens.broker.life import metrics
from rocketlens.broker.life.index_process import IndexProcess
from rocketlens.broker.life.registration import Registrar
from rocketlens.broker.requests import (
    group,
    heartbeat,
    inspection,
    offset,
    query,
    recall,
    relay,
    reply,
    runtime,
    send,
    send_back,
    topic,
    users,
)
from rocketlens.broker.requests.answers import handlers_of
from rocketlens.broker.requests.transaction import TransactionProcessor
from rocketlens.errors import RocketLensError
from rocketlens.model.message import Host
from rocketlens.net.channel import Channel, Handler
from rocketlens.net.channel_group import ChannelGroup, ConnectionLimits
from rocketlens.net.event_loop import end_on_signals, keep_objects, within
from rocketlens.net.server import RemotingServer
from rocketlens.net.status_port import StatusPort, StatusSource
from rocketlens.store.disk import Disk
from rocketlens.store.fs import raise_open_file_limit
from rocketlens.store.write.message_store import MessageStore, StoreOptions, system_clock
from rocketlens.wire.codes import RequestCode

if TYPE_CHECKING:
    from prometheus_client import Metric

    from rocketlens.broker.requests.transaction_checks import TransactionChecks

MIN_STOP_INDEX_S: Final = 1.0
"""Minimum seconds for index entries when a server stops."""
MIN_CONNECTIONS: Final = 16
"""Minimum number of connections, whatever the limit on open files."""
MIN_QUEUE_FILES: Final = 128
"""Minimum number of open files of queues, whatever that limit."""
_log: Final = logging.getLogger("rocketlens.broker")

SAMPLE_INTERVAL_S: Final = 1.0
SCHEDULE_INTERVAL_S: Final = 0.1
DELIVERED_AT_ONCE: Final = 16
"""Delayed messages of one level that are delivered in one step: 1 ms."""
DELAY_SAVE_INTERVAL_S: Final = 1.0
"""Maximum seconds between two saves of delay offsets, as ``flushDelayOffsetInterval``."""
WATCH_INTERVAL_S: Final = 5.0
_FAMILIES: Final = (
    *(group, heartbeat, inspection, offset, query, recall, relay, reply, runtime, send_back, topic),
)
PORT_TRIES: Final = 20
OTHER_FILES: Final = 256
"""Descriptors for mapped files of log and index, connections to name servers, and others."""


class BrokerService:
    """A broker: created, started and stopped in one event loop; an async context manager."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        build_index: bool = True,
        index_command: Sequence[str] = (),
        with_kernels: bool = True,
        max_connections: int | None = None,
        clock: Callable[[], int] = system_clock,
        rng: random.Random | None = None,
        disk: Disk | None = None,
    ) -> None:
        """``build_index`` False leaves index files to other programs; ``index_command`` is a
        program that builds them, see :mod:`rocketlens.broker.life.index_process`. ``with_kernels``
        enables compiled handling of plain requests. ``max_connections`` None: as many as the limit
        on open files permits. ``disk`` writes the store and the tables.
        """
        self.settings: Final = settings
        self._build_index: Final = build_index and not index_command
        self._index: Final = IndexProcess(index_command) if index_command else None
        self._with_kernels: Final = with_kernels
        self._max_connections: Final = max_connections
        self._clock: Final = clock
        self._rng: Final = rng or random.Random()  # noqa: S311 - chooses queues
        self._handlers: Final[dict[int, Handler]] = {}
        self._disk: Final = disk or Disk()
        self._core: BrokerCore | None = None
        self._server: RemotingServer | None = None
        self._registrar: Registrar | None = None
        self._schedule: Schedule | None = None
        self._checks: TransactionChecks | None = None
        self._timers: Final[dict[str, asyncio.TimerHandle]] = {}
        self._delay_save_s = 0.0
        self._registering_addresses: Callable[[], frozenset[str]] = frozenset
        self._state = "starting"
        self.is_unregistered: Final = asyncio.Event()
        """Set when the broker is unregistered at its stop, or the attempt failed."""

    @property
    def core(self) -> BrokerCore:
        assert self._core is not None  # noqa: S101 - only while it is started
        return self._core

    @property
    def address(self) -> str:
        return self.core.address

    def status_source(self) -> StatusSource:
        """Return the metrics and problems of this broker. Call it in the broker's event loop."""
        reader = metrics.CauseReader()

        async def collect() -> "Iterable[Metric]":
            return [] if self._core is None else await metrics.collect(self._core, reader)

        def problems() -> list[str]:
            core = self._core
            return metrics.problems(core) if core and self._state == "running" else [self._state]

        name = f"broker {self.settings.broker.brokerName}"
        return StatusSource(name, asyncio.get_running_loop(), collect, problems)

    def registering_addresses(self) -> frozenset[str]:
        """Return the local addresses of connections to name servers, as ``ip:port``; any thread."""
        return self._registering_addresses()

    async def start(self) -> None:
        """Open the store and listen; the broker is registered when this returns.

        :raises StoreLocked: if another process has the store open.
        :raises OSError: if a port is in use, or the store cannot be used.
        :raises BadInput: if the store does not fit the configuration.
        """
        open_files = raise_open_file_limit()
        most = self._max_connections or max_connections(open_files)
        self._server = RemotingServer(
            self._handlers,
            tls=self.settings.tls.server,
            on_close=self._on_close,
            bounds=ConnectionLimits(connections=most),
        )
        try:
            host = self._listen(self._server)
            # Requests are handled from the next turn of the loop on: `_open` sets the handlers.
            self._open(host, self._server.group)
            if self._with_kernels:
                # Now: under load there may be no descriptor left for imports.
                self.core.load_kernels()
            keep_objects()
            await self._listen_for_slaves()
            await self.core.search.open()
            self._registrar = Registrar(self.core)
            self._registering_addresses = self._registrar.local_addresses
            await self._registrar.start()
        except BaseException:
            await self.stop()
            raise
        core = self.core
        if self._index is not None:
            self._index.start()
            self._every(WATCH_INTERVAL_S, self._watch_index)
        self._every(SAMPLE_INTERVAL_S, core.stats.sample)
        self._every(SCHEDULE_INTERVAL_S, self._deliver)
        self._every(TICK_S, core.held_pulls.tick)
        self._every(core.config.flushConsumerOffsetInterval / 1000, self._save)
        if self._checks is not None:
            self._every(core.config.transactionCheckInterval / 1000, self._checks.tick)
        clean_interval_s = self.settings.store.cleanResourceInterval / 1000
        self._every(clean_interval_s, self._clean)
        self._every(clean_interval_s, core.store.clean_queues)
        if core.access is not None:
            self._every(control.WATCH_INTERVAL_S, core.access.watch)
        self._state = "running"
        line = "broker %s of %s listens on %s and port %d; clients are told %s"
        port = core.store.store_host.port
        _log.info(
            *(line, core.config.brokerName, core.config.brokerClusterName),
            *(Host(core.config.listen_address, port), port - VIP_DISTANCE, core.address),
        )

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        """Unregister, answer current requests, and close the store; later calls have no effect.

        Waits some seconds for clients, or until ``hurried`` is set.
        """
        began_s = time.monotonic()
        self._state = "stopping"
        self._cancel_timers()
        index, polite = self._index, self._answer_and_close()
        try:
            if index is None:
                await within(polite, limits.MAX_FAREWELL_S, hurried)
            else:
                shutdown = within(index.stop(limits.MAX_FAREWELL_S), None, hurried)
                await asyncio.gather(within(polite, limits.MAX_FAREWELL_S, hurried), shutdown)
        finally:
            self.is_unregistered.set()
            server, self._server = self._server, None
            if server is not None:
                await server.abort()
            if index is not None:
                await index.stop(0)
            self._close_store(max(began_s + limits.MAX_STOP_S - time.monotonic(), MIN_STOP_INDEX_S))

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._checks is not None:
            self._checks.close()

    async def _answer_and_close(self) -> None:
        registrar, self._registrar = self._registrar, None
        if registrar is not None:
            await within(registrar.stop(), limits.MAX_UNREGISTER_S)
        self.is_unregistered.set()
        if self._core is not None:
            # Requests that wait for the disk are answered before connections are closed.
            self._core.store.flush_log()
            await self._core.held_pulls.answer_all()
            await asyncio.sleep(0)
        if self._server is not None:
            await self._server.stop(limits.MAX_STOP_ANSWERS_S)

    def _close_store(self, index_s: float) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.replicas.close()
            if core.access is not None:
                core.access.close()
            core.search.close()
            core.saver.close(core.tables)
            if self._index is not None and not self._index.was_killed:
                core.store.adopt_index_builder()
            core.store.close(at_most_seconds=index_s)
            _log.info("broker %s stopped", core.config.brokerName)

    async def close_abruptly(self) -> None:
        """Close the broker as if this process were killed; for tests."""
        self._cancel_timers()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
        if self._index is not None:
            await self._index.stop()
        core, self._core = self._core, None
        if core is not None:
            core.replicas.close()
            core.saver.close()
            core.search.close()
            core.store.close_abruptly()

    def _listen(self, server: RemotingServer) -> Host:
        config = self.settings.broker
        address = config.listen_address
        port = config.listenPort or _free_port(address)
        server.listen(address, port)
        server.listen(address, port - VIP_DISTANCE)
        return Host(config.brokerIP1, port)

    async def _listen_for_slaves(self) -> None:
        """:raises OSError: if the port is in use, and it was configured."""
        config, core = self.settings.broker, self.core
        port = self.settings.ha_port(core.store.store_host.port)
        if not port:
            return
        try:
            await core.replicas.listen(config.listen_address, port)
        except OSError as error:
            if config.haListenPort or config.is_sync_master:
                raise
            _log.warning("slaves cannot connect, because port %d is in use: %s", port, error)

    def _open(self, host: Host, network: ChannelGroup) -> None:
        options = StoreOptions(store_host=host, build_index=self._build_index)
        store = MessageStore(
            self.settings.layout, self.settings.store, options, disk=self._disk, clock=self._clock
        )
        try:
            core = BrokerCore(
                self.settings,
                store,
                clock=self._clock,
                rng=self._rng,
                disk=self._disk,
                network=network,
                index_process=self._index,
            )
        except BaseException:
            store.close_abruptly()
            raise
        self._core = core
        levels = self.settings.store.messageDelayLevel
        self._schedule = Schedule(store, core.copies, core.delay_offsets, core.clock, levels)
        transactions = TransactionProcessor(core)
        self._checks = transactions.checks
        self._handlers[RequestCode.END_TRANSACTION] = transactions.end
        self._handlers.update(dict.fromkeys(send.CODES, send.SendProcessor(core).send))
        self._handlers.update(handlers_of(core, *(each.HANDLERS for each in _FAMILIES)))
        if core.access is not None:
            of_users, of_accounts = users.USER_HANDLERS, users.ACCOUNT_HANDLERS
            family = of_accounts if core.access.users is None else of_users
            self._handlers.update(handlers_of(core, family))
            self._handlers.update(core.access.guard_handlers(self._handlers))

    def _on_close(self, channel: Channel) -> None:
        if self._core is not None:
            self._core.on_close(channel)

    def _deliver(self) -> bool:
        """Deliver some due messages, and save progress; return True if there may be more."""
        core = self.core
        delivered = core.timers.step(DELIVERED_AT_ONCE)
        if self._schedule is not None:
            delivered += self._schedule.deliver_due(DELIVERED_AT_ONCE)
        now_s = asyncio.get_running_loop().time()
        tables = (core.delay_offsets, core.timers.progress)
        if now_s >= self._delay_save_s and any(table.is_changed for table in tables):
            interval_s = core.config.flushDelayOffsetInterval / 1000
            self._delay_save_s = now_s + min(interval_s, DELAY_SAVE_INTERVAL_S)
            core.saver.save_changed(tables)
        return delivered > 0

    def _save(self) -> None:
        self.core.offsets.expire_resets(self.core.clients.consumers)
        self.core.saver.save_changed(self.core.tables)

    def _watch_index(self) -> None:
        if self._index is not None:
            store = self.core.store
            self._index.watch(store.indexed_offset, store.flushed_offset)

    def _clean(self) -> None:
        if self.core.store.clean():
            self.core.search.refresh_readers()

    def _every(self, interval_s: float, work: Callable[[], object]) -> None:
        """Run ``work`` periodically, and soon again if it returns True; log its failures."""
        loop = asyncio.get_running_loop()
        name = f"{getattr(work, '__qualname__', work)}"

        def run() -> None:
            self._timers[name] = loop.call_later(interval_s, run)
            try:
                is_more = work() is True
            except (OSError, RocketLensError) as error:
                _log.warning("%s failed: %s", name, error)
                return
            if is_more:
                self._timers[name].cancel()
                self._timers[name] = loop.call_later(0, run)

        self._timers[name] = loop.call_later(interval_s, run)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def run(
    settings: BrokerSettings,
    *,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    build_index: bool = True,
    index_command: Sequence[str] = (),
    status: StatusPort | None = None,
) -> None:
    """Run a broker until a signal or ``stop``; ``ready`` is called with its address.

    ``status`` serves its metrics and health. Raises what :meth:`BrokerService.start` raises.
    """
    shutdown = end_on_signals(stop)
    service = BrokerService(settings, build_index=build_index, index_command=index_command)
    if status is not None:
        status.add(service.status_source())
    try:
        await within(service.start(), None, shutdown.ended)
        if not shutdown.ended.is_set():
            if ready is not None:
                ready(service.address)
            await shutdown.ended.wait()
    finally:
        await service.stop(shutdown.hurried)


def max_connections(open_files: int) -> int:
    """Return the maximum number of connections that leaves enough files for the store.

    It can open a quarter of the files as queues, two descriptors each, and some others.
    """
    queues = max(open_files // 2, MIN_QUEUE_FILES)
    others = min(OTHER_FILES, open_files // 4)
    return max(min(open_files - queues - others, limits.MAX_CONNECTIONS), MIN_CONNECTIONS)


def _free_port(address: str) -> int:
    """Return a free port with free ports two below and one above."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for _ in range(PORT_TRIES):
        with socket.create_server((address, 0), family=family) as first:
            port: int = first.getsockname()[1]
            with (
                suppress(OSError, OverflowError),
                socket.create_server((address, port - VIP_DISTANCE), family=family),
                socket.create_server((address, port + HA_DISTANCE), family=family),
            ):
                return port
    raise OSError(f"found no three free ports on {address}")
