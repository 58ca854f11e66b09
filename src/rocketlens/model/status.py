"""The state of a store directory, an archive, and a cluster."""

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from rocketlens.model.answer import Coverage, ListAnswer, is_complete
from rocketlens.model.group import FoundGroup
from rocketlens.model.tables import TableView, utc_time


class StoreClosing(StrEnum):
    """How the last process that wrote a store left it."""

    CLEAN = "clean"
    """The broker closed it."""
    KILLED = "killed"
    """The broker was killed, or this is a copy of a store in use: files can be incomplete."""
    IN_USE = "in_use"
    """A broker or a job has it open."""


class IndexBuilderStatus(Struct, frozen=True):
    """The progress of RocketLens's index builder."""

    is_running: bool
    safe_offset: int
    """The physical offset up to which index files are complete and synced."""
    behind_bytes: int
    """Bytes of synced log without index entries."""
    silent_since_ms: int
    """The time of its last progress report, in epoch milliseconds."""


class IndexStatus(Struct, frozen=True):
    """The index files of a store."""

    files: int
    """The number of usable files."""
    damaged_files: int
    entries: int
    size_bytes: int
    newest_ms: int | None
    """Store time of the newest indexed message, in epoch milliseconds."""
    uncovered_bytes: int
    """Bytes of log that no index file covers; a look-up by key reads them."""
    builder: IndexBuilderStatus | None = None
    """None if no RocketLens broker has written the store."""


class TapStatus(Struct, frozen=True):
    """The progress of a tap, which copies a broker's log to a store, when it was last written."""

    broker_name: str
    address: str
    behind_bytes: int
    """Known bytes of the broker's log that were not copied."""
    behind_ms: int
    """Age of the last copied message; 0 if everything was copied."""
    written_ms: int
    """The time of this report, in epoch milliseconds; 0 if nothing was copied yet."""
    gaps: tuple[tuple[int, int], ...]
    """Ranges of physical offsets that the broker deleted before they were copied; ends excluded."""
    replaced: tuple[str, ...]
    """Directories beside the store with copies of former logs of the broker."""
    problem: str
    """Why copying fails; empty if it works."""


class Status(TableView):
    """The state of a store, an archive or a cluster; notebooks show its fields as a table."""

    __slots__ = ()
    _titles = ("name", "value")
    coverage: tuple[Coverage, ...]
    """The sources that were read or asked."""
    __struct_fields__: ClassVar[tuple[str, ...]]
    _name: ClassVar[str]
    """The field with the name of the store, archive or cluster."""

    @property
    def complete(self) -> bool:
        """Whether all required sources were read."""
        return is_complete(self.coverage)

    def _rows(self) -> Iterator[tuple[str, object]]:
        for name in self.__struct_fields__:
            if name == "coverage":
                continue
            value = getattr(self, name)
            if name.endswith("_ms"):
                yield name.removesuffix("_ms"), utc_time(value)
            elif isinstance(value, tuple) and value and not isinstance(value[0], str):
                yield name, len(value)
            else:
                yield name, ", ".join(value) if isinstance(value, tuple) else value

    def __repr__(self) -> str:
        """Return the name, and whether the state is complete."""
        worth = "complete" if self.complete else "INCOMPLETE"
        return f"{type(self).__name__}({getattr(self, self._name)!r}, {worth})"


class StoreStatus(Status, Struct, frozen=True):
    """The state of one store directory. Times are epoch milliseconds."""

    _name = "path"
    path: str
    closing: StoreClosing
    written_by: str
    """The broker that opened it last, according to its files: ``RocketLens``, ``RocketMQ 4``,
    ``RocketMQ 5``, ``RocketMQ 5.5``."""
    log_files: int
    log_bytes: int
    """Bytes of its files up to the end of the log: a broker preallocates the last file."""
    min_offset: int
    """The physical offset of the start of the log."""
    end_offset: int
    """The physical offset of the end of the log."""
    queue_bytes: int
    """Bytes of its consume queue files."""
    index: IndexStatus
    disk_total_bytes: int
    disk_free_bytes: int
    """Bytes of free disk space."""
    topics: int
    """The number of topics, without those of RocketMQ and of groups."""
    broker_topics: int
    """How many of these a broker created for itself, with its own name or its cluster's."""
    messages: int | None
    """Messages in these topics; None if unknown for a topic."""
    oldest_ms: int | None
    """Store time of the oldest message of any topic."""
    newest_ms: int | None
    """Store time of the newest message of any topic."""
    groups: tuple[FoundGroup, ...]
    coverage: tuple[Coverage, ...]
    tap: TapStatus | None = None
    """None if the store was not written by a tap."""


class ArchivedSourceStatus(Struct, frozen=True):
    """The archived part of one source: a broker, or the topics of a cluster."""

    name: str
    topics: tuple[str, ...]
    """The archived topics and topic patterns; empty for all topics."""
    batches: int
    messages: int
    """Archived messages, including those of deleted days."""
    oldest_ms: int | None
    """Store time of the oldest message in the archive; None without messages."""
    newest_ms: int | None
    archived_ms: int
    """When the last batch was added."""
    gaps: tuple[str, ...]
    """Descriptions of messages that could not be archived."""
    behind: tuple[str, ...]
    """Descriptions of known messages that are not archived yet."""


class ArchiveStatus(Status, Struct, frozen=True):
    """The state of one archive. Times are epoch milliseconds."""

    _name = "root"
    root: str
    sources: tuple[ArchivedSourceStatus, ...]
    topics: int
    files: int
    """The number of files with messages and keys."""
    size_bytes: int
    """The size of these files."""
    coverage: tuple[Coverage, ...]


class BrokerStatus(Struct, frozen=True):
    """The state of one master or slave, by its own report; unreported values are None."""

    cluster_name: str
    name: str
    broker_id: int
    """0 for the master."""
    address: str
    error: str | None = None
    """Why the broker did not answer."""
    version: str | None = None
    """RocketMQ's name for the version, such as ``V5_5_0``."""
    put_per_second: float | None = None
    """Messages stored per second, over about 10 seconds; unknown for the first 10 seconds."""
    get_per_second: float | None = None
    """Messages sent to consumers per second, over about 10 seconds."""
    disk_ratio: float | None = None
    """The used fraction of the disk with the log, 0 to 1."""
    min_offset: int | None = None
    end_offset: int | None = None
    oldest_ms: int | None = None
    """Store time of its oldest message, in epoch milliseconds."""
    started_ms: int | None = None
    """Start time, in epoch milliseconds."""
    producers: int | None = None
    """Connected producers; None for a slave."""
    put_total: int | None = None
    """Messages stored since the broker started."""
    put_today: int | None = None
    """Messages stored since midnight by the broker's clock, or since its start if that is later."""
    get_today: int | None = None
    """Messages sent to consumers in the same time."""
    dispatch_behind_bytes: int | None = None
    """Bytes of its log that are not in consume queues yet, nor, with RocketMQ, in the index."""
    index_behind_bytes: int | None = None
    """Bytes of its log that index files do not cover; only RocketLens's brokers report it."""
    index_builder: str | None = None
    """Kind and state of the index builder, such as ``spark, running``; only RocketLens's brokers
    report it."""

    @property
    def is_master(self) -> bool:
        """Whether it is the master of its broker name."""
        return self.broker_id == 0

    @property
    def log_bytes(self) -> int | None:
        """The distance from the first to the last physical offset of its log."""
        if self.min_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.min_offset

    @property
    def behind_bytes(self) -> int | None:
        """Bytes of its log that its consume queues or its index lack, or None if unknown."""
        lags = [
            each
            for each in (self.dispatch_behind_bytes, self.index_behind_bytes)
            if each is not None
        ]
        return max(lags, default=None)


class BrokersAnswer(ListAnswer[BrokerStatus], Struct, frozen=True):
    """The brokers of a cluster, by cluster, name and broker id."""

    _field = "brokers"
    _noun = "broker"
    _titles = ("cluster", "broker", "broker_id", "address", "version", "disk_ratio", "error")
    brokers: tuple[BrokerStatus, ...]
    coverage: tuple[Coverage, ...]

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for each in self.brokers:
            yield (
                *(each.cluster_name, each.name, each.broker_id, each.address),
                *(each.version, each.disk_ratio, each.error),
            )


class ClusterStatus(Status, Struct, frozen=True):
    """The state of a cluster."""

    _name = "name_servers"
    name_servers: tuple[str, ...]
    """All name servers; ``coverage`` names those that did not answer."""
    brokers: tuple[BrokerStatus, ...]
    """Ordered by cluster, name and broker id."""
    topics: int
    """The number of topics, without those of RocketMQ and of groups."""
    broker_topics: int
    """How many of these a broker created for itself, with its own name or its cluster's."""
    groups: tuple[FoundGroup, ...]
    coverage: tuple[Coverage, ...]

    @property
    def producers(self) -> int | None:
        """Connections of producers to masters; None if a master does not report them."""
        counts = [each.producers for each in self.brokers if each.is_master]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def consumers(self) -> int | None:
        """Connected consumers; None if the members of a group are unknown."""
        if any(group.members is None for group in self.groups):
            return None
        return len({member for group in self.groups for member in group.members or ()})
