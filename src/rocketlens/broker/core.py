"""What all processors of a broker share."""

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rocketlens.broker.clients import ClientTable
from rocketlens.broker.config import BrokerSettings
from rocketlens.broker.durable import Durable
from rocketlens.broker.figures import Figures
from rocketlens.broker.large_answers import LargeAnswers
from rocketlens.broker.registry import GroupRegistry, TopicRegistry
from rocketlens.broker.remembered import fit_to_store
from rocketlens.broker.saving import Table, TableSaver
from rocketlens.broker.search import LiveSearch
from rocketlens.broker.tables.log_identity import LogIdentity
from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.broker.tables.topics import GroupTable, TopicTable
from rocketlens.errors import StoreBusy
from rocketlens.formats.commitlog_record import pack_host
from rocketlens.net.channel import Channel
from rocketlens.net.pool import parse_address
from rocketlens.store.disk import Disk
from rocketlens.store.write.message_store import MessageStore

if TYPE_CHECKING:
    from rocketlens.broker.index_process import IndexProcess
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
        chance: random.Random,
        disk: Disk,
    ) -> None:
        """Read the tables of an open store; ``disk`` is what they are written to.

        :raises ConfigError: when one of them is damaged, its backup included.
        """
        layout = store.layout
        self.disk: Final = disk
        self.settings: Final = settings
        self.config: Final = settings.broker
        self.store: Final = store
        self.clock: Final = clock
        self.chance: Final = chance
        self.topics: Final = TopicRegistry(TopicTable(layout, disk, clock), self.config, clock)
        self.groups: Final = GroupRegistry(GroupTable(layout, disk, clock), self.config, clock)
        self.offsets: Final = ConsumerOffsets(layout, disk, clock)
        self.delay_offsets: Final = DelayOffsets(layout, disk, clock, self._make_durable)
        identity = LogIdentity(layout.commit_log)
        self.offsets.log_checksums = self.delay_offsets.log_checksums = identity.checksums
        fit_to_store(store, self.offsets, self.delay_offsets)
        topics, groups = self.topics.table, self.groups.table
        offsets = (self.offsets, self.delay_offsets)
        self.tables: Final[tuple[Table, ...]] = (topics, groups, *offsets, store.deleted)
        """Those that are saved every few seconds, and at the end, if they changed."""
        store.deleted.make_durable = self._make_durable
        self.saver: Final = TableSaver()
        self.topics.save = lambda: self.saver.save(topics)
        self.groups.save = lambda: self.saver.save(groups)
        self.not_told: Final[dict[str, str]] = {}
        """Name servers that could not be told of this broker, and why."""
        self.name_taken: Final[dict[str, str]] = {}
        """By name server: who else is registered under this broker's name there."""
        self.name_taken_times = 0
        self.name_last_taken: tuple[str, int] = "", 0
        """By whom, and when."""
        self.index_process: IndexProcess | None = None
        """Who builds index files, where the broker does not do that itself."""
        self.network: ChannelGroup | None = None
        """The connections, once it listens."""
        self.clients: Final = ClientTable(clock)
        self.figures: Final = Figures(clock)
        self.search: Final = LiveSearch(store)
        self.large_answers: Final = LargeAnswers()
        self.durable: Final = Durable(store.when_durable, settings.store.syncFlushTimeout)
        host = store.store_host
        self.address: Final = str(host)
        """Where clients find this broker, as ``ip:port``."""
        self.store_host: Final = pack_host(host)
        """The same as it is stored."""
        self.id_prefix: Final = self.store_host.hex().upper()
        """How the offset message id of each message begins."""
        self._born_hosts: Final[dict[Channel, bytes]] = {}
        self._memory_bytes: Final = (
            _memory_bytes() * self.config.accessMessageInMemoryMaxRatio // 100
        )

    def born_host(self, channel: Channel) -> bytes:
        """Return the address of a peer as it is stored."""
        packed = self._born_hosts.get(channel)
        if packed is None:
            packed = self._born_hosts[channel] = pack_host(parse_address(channel.address))
        return packed

    def closed(self, channel: Channel) -> None:
        """Forget a connection."""
        self._born_hosts.pop(channel, None)
        self.clients.closed(channel)
        self.search.closed(channel)

    def _make_durable(self) -> None:
        """Make the log durable as it is now; in any thread.

        :raises StoreFailed: when it may never be.
        :raises StoreBusy: when it cannot be now.
        """
        store, end_offset = self.store, self.store.end_offset
        store.flush_log()
        if store.failure is not None:
            raise store.failure
        if store.flushed_offset < end_offset:
            raise StoreBusy("the log cannot be made durable now")

    @property
    def in_memory_from(self) -> int:
        """The physical offset from which on the log is taken to be in memory."""
        return self.store.end_offset - self._memory_bytes


def _memory_bytes() -> int:
    """Return the memory of this machine; 4 GiB where it is not told."""
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ASSUMED_MEMORY_BYTES
