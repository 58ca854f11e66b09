"""A broker as a whole: opens the store, listens, registers, keeps house, and stops.

======================  =======================================================================
what                    when
======================  =======================================================================
counts are sampled      every second
delayed messages        every 0.1 s
consumer offsets        every 5 s, and at the end; so is what could not be written before
delay offsets           after a delivery, at most every second, and at the end
expired files           every 10 s
index builder           looked at every 5 s, where it is another process
registration            at the start, every 30 s, and when a topic changes
======================  =======================================================================
"""

import asyncio
import logging
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from rocketlens import limits
from rocketlens.broker.client import ClientProcessor
from rocketlens.broker.config import VIP_DISTANCE, BrokerSettings
from rocketlens.broker.core import BrokerCore
from rocketlens.broker.group import GroupProcessor
from rocketlens.broker.index_process import IndexProcess
from rocketlens.broker.inspection import InspectionProcessor
from rocketlens.broker.offset import OffsetProcessor
from rocketlens.broker.pull import PullProcessor
from rocketlens.broker.query import QueryProcessor
from rocketlens.broker.registration import Registrar
from rocketlens.broker.runtime import RuntimeProcessor
from rocketlens.broker.schedule import Schedule
from rocketlens.broker.send import SendProcessor
from rocketlens.broker.topic import TopicProcessor
from rocketlens.broker.transaction import TransactionProcessor
from rocketlens.errors import RocketLensError
from rocketlens.model.message import Host
from rocketlens.net.channel import Channel, Handler
from rocketlens.net.event_loop import end_on_signals, within
from rocketlens.net.group import ConnectionLimits
from rocketlens.net.server import RemotingServer
from rocketlens.net.tls import ServerTls
from rocketlens.store.disk import Disk
from rocketlens.store.fs import raise_open_file_limit
from rocketlens.store.write.message_store import MessageStore, StoreOptions, system_clock

_log: Final = logging.getLogger("rocketlens.broker")

SAMPLE_INTERVAL_S: Final = 1.0
SCHEDULE_INTERVAL_S: Final = 0.1
DELIVERED_AT_ONCE: Final = 16
"""Delayed messages of one level that are delivered in one piece of work: a millisecond."""
DELAY_SAVE_INTERVAL_S: Final = 1.0
"""Between two saves of delay offsets; ``flushDelayOffsetInterval`` where that is less."""
WATCH_INTERVAL_S: Final = 5.0
LOAD_KERNELS_AFTER_S: Final = 1.0
"""In a process of its own a broker does that before it must, but not while its clients connect."""
PORT_TRIES: Final = 20
OTHER_FILES: Final = 256
"""Files of log and index that are mapped, connections to name servers, and the like."""


class BrokerService:
    """A broker. Made, started and stopped in one event loop; an async context manager.

    ``core`` has its store and tables, and ``address`` where it listens, once it is started.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        tls: ServerTls | None = None,
        build_index: bool = True,
        index_command: Sequence[str] = (),
        load_kernels_after_s: float | None = None,
        max_connections: int | None = None,
        clock: Callable[[], int] = system_clock,
        chance: random.Random | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Prepare; nothing is opened yet.

        ``build_index`` False leaves index files to others; ``index_command`` is a program that
        builds them instead, see :mod:`rocketlens.broker.index_process`. The compiled kernels are
        loaded when there is much log to read, or ``load_kernels_after_s`` seconds after the start.
        ``max_connections``: None for as many as the open files allow that a process may have.
        ``disk``: what the store and the tables are written to.
        """
        self.settings: Final = settings
        self._build_index: Final = build_index and not index_command
        self._index: Final = IndexProcess(index_command) if index_command else None
        self._load_kernels_after_s: Final = load_kernels_after_s
        self._max_connections: Final = max_connections
        self._clock: Final = clock
        self._chance: Final = chance or random.Random()  # noqa: S311 - chooses queues
        self._handlers: Final[dict[int, Handler]] = {}
        self._disk: Final = disk or Disk()
        self._tls: Final = settings.tls.server if tls is None else tls
        self._core: BrokerCore | None = None
        self._server: RemotingServer | None = None
        self._registrar: Registrar | None = None
        self._schedule: Schedule | None = None
        self._timers: Final[dict[str, asyncio.TimerHandle]] = {}
        self._delay_save_s = 0.0
        self._registering_addresses: Callable[[], frozenset[str]] = frozenset
        self.has_left: Final = asyncio.Event()
        """Set when it stops and the name servers were told, or could not be in time."""

    @property
    def core(self) -> BrokerCore:
        """The store and the tables of a started broker."""
        assert self._core is not None  # noqa: S101 - only while it is started
        return self._core

    @property
    def address(self) -> str:
        """Where clients find it, as ``ip:port``."""
        return self.core.address

    def registering_addresses(self) -> frozenset[str]:
        """Return where the connections to name servers begin, each as ``ip:port``; any thread."""
        return self._registering_addresses()

    async def start(self) -> None:
        """Open the store and listen; registered when this returns.

        :raises StoreLocked: at once, when another process has the store.
        :raises OSError: when a port is taken, or the store cannot be used.
        :raises BadInput: when the store does not fit the configuration.
        """
        open_files = raise_open_file_limit()
        most = self._max_connections or max_connections(open_files)
        self._server = RemotingServer(
            self._handlers,
            tls=self._tls,
            on_close=self._closed,
            bounds=ConnectionLimits(connections=most),
        )
        try:
            host = self._listen(self._server)
            # Nobody is served before the next turn of the loop, by when there are handlers.
            self._open(host)
            await self.core.search.open(load_after_s=self._load_kernels_after_s)
            self._registrar = Registrar(self.core)
            self._registering_addresses = self._registrar.local_addresses
            await self._registrar.start()
        except BaseException:
            await self.stop()
            raise
        core = self.core
        if self._index is not None:
            core.index_process = self._index
            self._index.start()
            self._every(WATCH_INTERVAL_S, self._watch_index)
        self._every(SAMPLE_INTERVAL_S, core.figures.sample)
        self._every(SCHEDULE_INTERVAL_S, self._deliver)
        self._every(core.config.flushConsumerOffsetInterval / 1000, self._save)
        self._every(self.settings.store.cleanResourceInterval / 1000, self._clean)
        _log.info("broker %s listens on %s", core.config.brokerName, core.address)

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        """Leave the cluster, answer what is under way, and close the store; once is enough.

        Nobody is waited for longer than some seconds, and not at all once ``hurried`` is set.
        """
        began_s = time.monotonic()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        index, polite = self._index, self._answer_and_close()
        try:
            if index is None:
                await within(polite, limits.MAX_FAREWELL_S, hurried)
            else:
                ending = within(index.stop(limits.MAX_FAREWELL_S), None, hurried)
                await asyncio.gather(within(polite, limits.MAX_FAREWELL_S, hurried), ending)
        finally:
            self.has_left.set()
            server, self._server = self._server, None
            if server is not None:
                await server.abort()
            if index is not None:
                await index.stop(0)
            self._close_store(
                max(began_s + limits.MAX_STOP_S - time.monotonic(), limits.MIN_STOP_INDEX_S)
            )

    async def _answer_and_close(self) -> None:
        """Unregister from the name servers and end the connections of clients."""
        registrar, self._registrar = self._registrar, None
        if registrar is not None:
            await within(registrar.stop(), limits.MAX_UNREGISTER_S)
        self.has_left.set()
        if self._core is not None:
            # Whoever waits for the disk is answered before connections end.
            self._core.store.flush_log()
            await asyncio.sleep(0)
        if self._server is not None:
            await self._server.stop(limits.MAX_STOP_ANSWERS_S)

    def _close_store(self, index_s: float) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.search.close()
            core.saver.close(core.tables)
            if self._index is not None and not self._index.was_killed:
                core.store.adopt_index_builder()
            core.store.close(at_most_seconds=index_s)

    async def close_abruptly(self) -> None:
        """Close everything as if this process were killed; for tests."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
        if self._index is not None:
            await self._index.stop()
        core, self._core = self._core, None
        if core is not None:
            core.saver.close()
            core.search.close()
            core.store.close_abruptly()

    def _listen(self, server: RemotingServer) -> Host:
        """Listen on both ports; return the first."""
        config = self.settings.broker
        address = config.listen_address
        port = config.listenPort or _free_port(address)
        server.listen(address, port)
        server.listen(address, port - VIP_DISTANCE)
        return Host(config.brokerIP1, port)

    def _open(self, host: Host) -> None:
        """Open the store and make the processors."""
        options = StoreOptions(store_host=host, build_index=self._build_index)
        store = MessageStore(
            self.settings.store_path,
            self.settings.store,
            options,
            disk=self._disk,
            clock=self._clock,
        )
        try:
            core = BrokerCore(
                self.settings, store, clock=self._clock, chance=self._chance, disk=self._disk
            )
        except BaseException:
            store.close_abruptly()
            raise
        self._core = core
        if self._server is not None:
            core.network = self._server.group
        self._schedule = Schedule(core)
        for processor in (
            SendProcessor(core),
            QueryProcessor(core),
            PullProcessor(core),
            OffsetProcessor(core),
            TopicProcessor(core),
            ClientProcessor(core),
            TransactionProcessor(core),
            GroupProcessor(core),
            InspectionProcessor(core),
            RuntimeProcessor(core),
        ):
            self._handlers.update(processor.handlers())

    def _closed(self, channel: Channel) -> None:
        if self._core is not None:
            self._core.closed(channel)

    def _deliver(self) -> None:
        """Deliver what is due; the offsets are saved soon after."""
        if self._schedule is not None and self._schedule.deliver_due(DELIVERED_AT_ONCE):
            # There may be more; others have their turn in between.
            self._timers["more"] = asyncio.get_running_loop().call_later(0, self._deliver_more)
        core, now_s = self.core, asyncio.get_running_loop().time()
        if core.delay_offsets.is_changed and now_s >= self._delay_save_s:
            interval_s = core.config.flushDelayOffsetInterval / 1000
            self._delay_save_s = now_s + min(interval_s, DELAY_SAVE_INTERVAL_S)
            core.saver.save(core.delay_offsets)

    def _deliver_more(self) -> None:
        _tried("delayed messages wait", self._deliver)

    def _save(self) -> None:
        self.core.saver.save_changed(self.core.tables)

    def _watch_index(self) -> None:
        if self._index is not None:
            store = self.core.store
            self._index.watch(store.indexed_offset, store.flushed_offset)

    def _clean(self) -> None:
        if self.core.store.clean():
            self.core.search.segments_changed()
        self._clean_more()

    def _clean_more(self) -> None:
        """Look at the files of some queues; others have their turn before the next."""
        if self.core.store.clean_queues():
            loop = asyncio.get_running_loop()
            words = "files of queues could not be deleted"
            self._timers["queues"] = loop.call_later(0, _tried, words, self._clean_more)

    def _every(self, interval_s: float, work: Callable[[], object]) -> None:
        """Do something again and again; what fails is tried again the next time."""
        loop = asyncio.get_running_loop()
        name = f"{getattr(work, '__qualname__', work)}"

        def again() -> None:
            self._timers[name] = loop.call_later(interval_s, again)
            _tried(f"{name} failed", work)

        self._timers[name] = loop.call_later(interval_s, again)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()


async def run(
    settings: BrokerSettings,
    *,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    build_index: bool = True,
    index_command: Sequence[str] = (),
) -> None:
    """Run a broker until a signal or ``stop``; ``ready`` hears its address once it serves.

    Raises what :meth:`BrokerService.start` does.
    """
    ending = end_on_signals(stop)
    service = BrokerService(
        settings,
        build_index=build_index,
        index_command=index_command,
        load_kernels_after_s=LOAD_KERNELS_AFTER_S,
    )
    try:
        await within(service.start(), None, ending.ended)
        if not ending.ended.is_set():
            if ready is not None:
                ready(service.address)
            await ending.ended.wait()
    finally:
        await service.stop(ending.hurried)


def max_connections(open_files: int) -> int:
    """Return how many connections there may be so that the store always has files left to open.

    It may have a quarter of all as queues, two descriptors each, and others beside.
    """
    queues = max(open_files // 2, limits.MIN_QUEUE_FILES)
    others = min(OTHER_FILES, open_files // 4)
    return max(min(open_files - queues - others, limits.MAX_CONNECTIONS), limits.MIN_CONNECTIONS)


def _free_port(address: str) -> int:
    """Return a port that is free now, as is the one two below.

    :raises OSError: when none was found.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for _ in range(PORT_TRIES):
        with socket.create_server((address, 0), family=family) as first:
            port: int = first.getsockname()[1]
            with (
                suppress(OSError, OverflowError),
                socket.create_server((address, port - VIP_DISTANCE), family=family),
            ):
                return port
    raise OSError(f"found no two free ports on {address}")


def _tried(words: str, work: Callable[[], object]) -> None:
    """Do something whose failure is no reason to stop."""
    try:
        work()
    except (OSError, RocketLensError) as error:
        _log.warning("%s: %s", words, error)
