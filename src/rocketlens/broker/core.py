"""State that all processors of a broker share."""

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rocketlens.broker.config import BrokerSettings
from rocketlens.broker.delivery.held_pulls import HeldPulls
from rocketlens.broker.delivery.queue_locks import QueueLocks
from rocketlens.broker.delivery.timers import Timers
from rocketlens.broker.lookup.search import LiveSearch
from rocketlens.broker.requests.durable import GroupCommitReplies
from rocketlens.broker.requests.large_answers import LargeAnswers
from rocketlens.broker.tables.clients import ClientTable
from rocketlens.broker.tables.log_identity import LogIdentity
from rocketlens.broker.tables.offset_corrections import fit_to_store
from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.broker.tables.registry import GroupRegistry, TopicRegistry
from rocketlens.broker.tables.saving import Table, TableSaver
from rocketlens.broker.tables.stats import BrokerStats
from rocketlens.broker.tables.timer_progress import TimerProgress
from rocketlens.broker.tables.topics import GroupTable, TopicTable
from rocketlens.errors import StoreBusy
from rocketlens.formats.commitlog_record import Record, pack_host
from rocketlens.model import properties as props
from rocketlens.net.channel import Channel
from rocketlens.net.pool import parse_address
from rocketlens.store.disk import Disk
from rocketlens.store.write.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlens.broker.access.control import AccessControl
    from rocketlens.broker.life.index_process import IndexProcess
    from rocketlens.net.group import ChannelGroup


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
    ) -> None:
        """Read the tables of an open store; they are written to ``disk``.

        :raises ConfigError: if a table and its backup are damaged.
        """
        layout = store.layout
        self.disk: Final = disk
        self.settings: Final = settings
        self.config: Final = settings.broker
        self.store: Final = store
        self.clock: Final = clock
        self.rng: Final = rng
        self.topics: Final = TopicRegistry(TopicTable(layout, disk, clock), self.config, clock)
        self.groups: Final = GroupRegistry(GroupTable(layout, disk, clock), self.config, clock)
        self.offsets: Final = ConsumerOffsets(layout, disk, clock)
        self.delay_offsets: Final = DelayOffsets(layout, disk, clock, self._make_durable)
        self.timer_progress: Final = TimerProgress(layout, disk, clock, self._make_durable)
        identity = LogIdentity(layout.commit_log)
        self.offsets.log_checksums = self.delay_offsets.log_checksums = identity.checksums
        self.timer_progress.log_checksums = identity.checksums
        fit_to_store(store, self.offsets, self.delay_offsets)
        topics, groups = self.topics.table, self.groups.table
        offsets = (self.offsets, self.delay_offsets, self.timer_progress)
        self.tables: tuple[Table, ...] = (topics, groups, *offsets, store.deleted)
        """Tables that are saved every few seconds and at shutdown, if they changed."""
        store.deleted.make_durable = self._make_durable
        self.saver: Final = TableSaver()
        self.topics.save = lambda: self.saver.save(topics)
        self.groups.save = lambda: self.saver.save(groups)
        self.registration_failures: Final[dict[str, str]] = {}
        """Name servers at which this broker could not be registered, and why."""
        self.name_taken: Final[dict[str, str]] = {}
        """By name server: the address of another broker registered under this broker's name."""
        self.name_taken_times = 0
        self.name_last_taken: tuple[str, int] = "", 0
        """The address of that broker, and when it was first seen."""
        self.index_process: IndexProcess | None = None
        """The process that builds index files; None if the broker builds them itself."""
        self.network: ChannelGroup | None = None
        """The connections; None until the broker listens."""
        self.access: AccessControl | None = None
        """Which requests are refused; None if none is for want of a permission."""
        self.held_pulls: Final = HeldPulls(asyncio.get_running_loop().time)
        self.clients: Final = ClientTable(clock)
        self.queue_locks: Final = QueueLocks(asyncio.get_running_loop().time)
        self.clients.on_subscriptions_changed = self.held_pulls.group_changed
        self.stats: Final = BrokerStats(clock)
        self.timers: Final = Timers(self)
        self.search: Final = LiveSearch(store)
        self.large_answers: Final = LargeAnswers()
        timeout_ms = settings.store.syncFlushTimeout
        self.replies: Final = GroupCommitReplies(store.when_durable, timeout_ms)
        host = store.store_host
        self.address: Final = str(host)
        """The address of this broker for clients, as ``ip:port``."""
        self.store_host: Final = pack_host(host)
        """The same address as records have it."""
        self.id_prefix: Final = self.store_host.hex().upper()
        """The first part of the offset message id of each message."""
        self._born_hosts: Final[dict[Channel, bytes]] = {}
        ratio = self.config.accessMessageInMemoryMaxRatio
        self._memory_bytes: Final = _memory_bytes() * ratio // 100

    def born_host(self, channel: Channel) -> bytes:
        """Return the address of a peer as records have it."""
        packed = self._born_hosts.get(channel)
        if packed is None:
            packed = self._born_hosts[channel] = pack_host(parse_address(channel.address))
        return packed

    def store_again(
        self,
        record: Record,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str] | None = None,
        *,
        sys_flag: int | None = None,
        reconsume_times: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> None:
        """Store a message that is stored already in a queue, as its own unless told otherwise.

        :raises StoreError: if the store cannot append now.
        """
        packed = record.properties
        if properties is not None:
            packed = props.format_properties(props.java_order(properties)).encode()
        self.store.append(
            topic,
            queue_id,
            record.body,
            packed,
            pack_host(record.born_host),
            born_timestamp_ms=record.born_timestamp_ms,
            flag=record.flag,
            sys_flag=record.sys_flag if sys_flag is None else sys_flag,
            reconsume_times=record.reconsume_times if reconsume_times is None else reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        self.stats.put_total += 1

    def closed(self, channel: Channel) -> None:
        """Remove what is kept for a connection."""
        self._born_hosts.pop(channel, None)
        self.clients.closed(channel)
        self.held_pulls.closed(channel)
        self.search.closed(channel)

    def _make_durable(self) -> None:
        """Flush the log up to its current end; in any thread.

        :raises StoreFailed: if the log can never become durable.
        :raises StoreBusy: if it cannot be flushed now.
        """
        store, end_offset = self.store, self.store.end_offset
        store.flush_log()
        if store.failure is not None:
            raise store.failure
        if store.flushed_offset < end_offset:
            raise StoreBusy("the log cannot be made durable now")

    @property
    def in_memory_from(self) -> int:
        """The physical offset from which on the log is assumed to be in memory."""
        return self.store.end_offset - self._memory_bytes


def _memory_bytes() -> int:
    """Return the memory of this machine in bytes; 4 GiB if the system does not report it."""
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ASSUMED_MEMORY_BYTES
