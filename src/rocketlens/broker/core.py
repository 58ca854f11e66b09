"""Creates the parts of a broker that all processors share, each from the parts that it needs.

Only `BrokerCore.batches` is assigned later. Processors, compiled requests, the reader of pulls and
`life` use the core; other parts get only what they need.
"""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rocketlens.broker.access.control import AccessControl
from rocketlens.broker.config import BrokerSettings
from rocketlens.broker.delivery.held_pulls import HeldPulls
from rocketlens.broker.delivery.large_answers import LargeAnswers
from rocketlens.broker.delivery.pull_reader import PullReader
from rocketlens.broker.delivery.relays import Relays
from rocketlens.broker.delivery.schedule import CopyWriter
from rocketlens.broker.delivery.timers import Timers
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.broker.replication.replicas import Replicas, SafeReplies
from rocketlens.broker.tables.clients import ClientTable
from rocketlens.broker.tables.name_servers import NameServers
from rocketlens.broker.tables.offsets import (
    ConsumerOffsets,
    DelayOffsets,
    LogIdentity,
    fit_to_store,
)
from rocketlens.broker.tables.queue_locks import QueueLocks
from rocketlens.broker.tables.registry import GroupRegistry, TopicRegistry
from rocketlens.broker.tables.stats import BrokerStats
from rocketlens.broker.tables.table_saver import Table, TableSaver
from rocketlens.broker.tables.timer_progress import TimerProgress
from rocketlens.broker.tables.topics import GroupTable, TopicTable
from rocketlens.formats.commitlog_record import pack_host
from rocketlens.net.channel import Channel
from rocketlens.net.channel_group import RunsByCode
from rocketlens.net.pool import parse_address
from rocketlens.store.disk import Disk
from rocketlens.store.write.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlens.broker.life.index_process import IndexProcess
    from rocketlens.broker.sends.send_runs import Batches
    from rocketlens.net.channel_group import ChannelGroup, Runs


_log: Final = logging.getLogger("rocketlens.broker")

ASSUMED_MEMORY_BYTES: Final = 4 * 1024**3


class BrokerCore:
    """Tables, store, clock and randomness; belongs to the running event loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        clock: Callable[[], int],
        rng: random.Random,
        disk: Disk,
        network: "ChannelGroup",
        index_process: "IndexProcess | None" = None,
    ) -> None:
        """Read the tables of an open store; later changes are written to ``disk``.

        :raises ConfigError: if a table and its backup are damaged.
        :raises BadInput: if the accounts of access control cannot be read.
        """
        layout, config, loop = store.layout, settings.broker, asyncio.get_running_loop()
        durable, checksums = store.make_durable, LogIdentity(store.layout.commit_log).checksums
        self.disk: Final = disk
        self.settings: Final = settings
        self.config: Final = config
        self.store: Final = store
        self.clock: Final = clock
        self.rng: Final = rng
        self.network: Final = network
        self.index_process: Final = index_process
        """The process that builds index files; None if the broker builds them itself."""
        self.saver: Final = TableSaver()
        self.name_servers: Final = NameServers(config.namesrv_addresses)
        self.topics: Final = TopicRegistry(
            TopicTable(layout, disk, clock),
            config,
            clock,
            save=self.saver.save,
            announce=self.name_servers.announce,
        )
        groups = GroupTable(layout, disk, clock)
        self.groups: Final = GroupRegistry(groups, config, clock, save=self.saver.save)
        self.offsets: Final = ConsumerOffsets(layout, disk, clock, checksums)
        self.delay_offsets: Final = DelayOffsets(layout, disk, clock, durable, checksums)
        fit_to_store(store, self.offsets, self.delay_offsets)
        self.clients: Final = ClientTable(self.groups.notifies)
        self.queue_locks: Final = QueueLocks(loop.time)
        self.stats: Final = BrokerStats(clock)
        self.search: Final = LiveSearch(store)
        self.copies: Final = CopyWriter(store, self.stats)
        progress = TimerProgress(layout, disk, clock, durable, checksums)
        self.timers: Final = Timers(
            store, self.copies, progress, settings.store, clock, by_topic=settings.auth.is_on
        )
        self.pull_reader: Final = self._new_pull_reader()
        self.held_pulls: Final = self._new_held_pulls(loop.time)
        self.batches: Batches | None = None
        """Stores the members of a batch together; None until kernels are loaded."""
        self.large_answers: Final = LargeAnswers()
        self.relays: Final = Relays()
        self.replicas: Final = Replicas(store, config.slaveTimeout, config.haSlaveFallbehindMax)
        self.replies: Final = self._new_replies()
        self.access: Final = self._new_access_control()
        """None without access control."""
        self.tables: Final = self._all_tables()
        """Tables that are saved periodically and at shutdown, if they changed."""
        self.address: Final = str(store.store_host)
        """The address of this broker for clients, as ``ip:port``."""
        self.store_host: Final = pack_host(store.store_host)
        """The same address in the format of records."""
        self.id_prefix: Final = self.store_host.hex().upper()
        """The first part of the offset message id of each message."""
        self._born_hosts: Final[dict[Channel, bytes]] = {}

    def load_kernels(self) -> None:
        """Handle plain requests by compiled code from now on. First call: 0.1 s for numpy."""
        from rocketlens.broker.delivery import compiled_pulls as pulls
        from rocketlens.broker.lookup import compiled as look_ups
        from rocketlens.broker.sends import send_runs as sends

        self.batches = sends.Batches(self)
        send_runs = sends.SendRuns(self)
        runs: dict[tuple[int, ...], Runs] = {
            sends.CODES: send_runs,
            look_ups.CODES: look_ups.CompiledLookUps(
                self.store, self.search, self.config, self.access
            ),
            pulls.CODES: pulls.CompiledPulls(self.pull_reader, self.access),
        }
        self.network.runs = RunsByCode(runs, send_runs)

    def _new_pull_reader(self) -> PullReader:
        ratio = self.config.accessMessageInMemoryMaxRatio
        return PullReader(self, _memory_bytes() * ratio // 100)

    def _new_held_pulls(self, clock: Callable[[], float]) -> HeldPulls:
        reader = self.pull_reader
        held_pulls = HeldPulls(reader.scan, reader.pull_again, clock)
        if self.config.longPollingEnable:
            self.store.watch_queues(held_pulls.queues, held_pulls.on_entry)
        return held_pulls

    def _new_replies(self) -> SafeReplies:
        config = self.settings.store
        return SafeReplies(
            self.store.when_durable if config.is_sync_flush else None,
            config.syncFlushTimeout,
            self.replicas if self.config.is_sync_master else None,
        )

    def _new_access_control(self) -> AccessControl | None:
        if not self.settings.auth.is_on:
            return None
        return AccessControl(self.settings, self.topics, self.disk, self.clock, self.saver.save)

    def _all_tables(self) -> tuple[Table, ...]:
        registries, offsets = (self.topics, self.groups), (self.offsets, self.delay_offsets)
        of_access = () if self.access is None else self.access.tables
        tables = (each.table for each in registries)
        return (*tables, *offsets, self.timers.progress, self.store.deleted, *of_access)

    def born_host(self, channel: Channel) -> bytes:
        """Return the address of a client in the format of records."""
        packed = self._born_hosts.get(channel)
        if packed is None:
            packed = self._born_hosts[channel] = pack_host(parse_address(channel.address))
        return packed

    def on_close(self, channel: Channel) -> None:
        self._born_hosts.pop(channel, None)
        self.clients.on_close(channel)
        self.held_pulls.on_close(channel)
        self.search.on_close(channel)


def _memory_bytes() -> int:
    """Return the physical memory; 4 GiB if the system does not report it."""
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ASSUMED_MEMORY_BYTES
