"""The state of a store directory, of an archive, and of a cluster, as they are found."""

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from rocketlens.model.answer import Coverage, ListAnswer, is_complete
from rocketlens.model.group import FoundGroup
from rocketlens.model.tables import TableView, utc_time


class StoreClosing(StrEnum):
    """The state in which the last process that wrote a store left it."""

    CLEAN = "clean"
    """Its broker closed it."""
    KILLED = "killed"
    """Its broker was killed, or it is a copy of a store in use: ends of files may be unfinished."""
    IN_USE = "in_use"
    """A broker or job has it open now."""


class IndexBuilderStatus(Struct, frozen=True):
    """The progress of RocketLens's own index builder."""

    is_running: bool
    safe_offset: int
    """The physical offset below which index files are synced."""
    behind_bytes: int
    """Bytes of synced log that they do not have yet."""
    silent_since_ms: int
    """When it wrote its progress last, in epoch milliseconds."""


class IndexStatus(Struct, frozen=True):
    """The index files of a store."""

    files: int
    """Those that can be used."""
    damaged_files: int
    entries: int
    size_bytes: int
    newest_ms: int | None
    """Store time of the newest message with an entry, in epoch milliseconds."""
    uncovered_bytes: int
    """Bytes of log that a look-up by key reads because no index file covers them."""
    builder: IndexBuilderStatus | None = None
    """None if no broker of RocketLens has written the store."""


class TapStatus(Struct, frozen=True):
    """Of which broker's log a store is the copy, and how far it came, when it was written last."""

    broker_name: str
    address: str
    behind_bytes: int
    """Bytes of the broker's log that were not copied, as far as was known."""
    behind_ms: int
    """How old the last copied message was if something was not copied; otherwise 0."""
    written_ms: int
    """When this was written, in epoch milliseconds; 0 if nothing was copied yet."""
    gaps: tuple[tuple[int, int], ...]
    """Physical offsets that the broker deleted before they were copied: from, and to before."""
    replaced: tuple[str, ...]
    """Directories beside it with copies of logs that the broker had before."""
    problem: str
    """Why nothing was copied then; empty if it was."""


class Status(TableView):
    """The state of a store, an archive or a cluster, as a table of its fields."""

    __slots__ = ()
    _titles = ("name", "value")
    coverage: tuple[Coverage, ...]
    """The sources that were asked or read."""
    __struct_fields__: ClassVar[tuple[str, ...]]
    _name: ClassVar[str]
    """The field that names what the state is of."""

    @property
    def complete(self) -> bool:
        """Whether no source failed that the state needs."""
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
        """Return whose state it is, and whether it is complete."""
        worth = "complete" if self.complete else "INCOMPLETE"
        return f"{type(self).__name__}({getattr(self, self._name)!r}, {worth})"


class StoreStatus(Status, Struct, frozen=True):
    """The state of one store directory. Times are epoch milliseconds."""

    _name = "path"
    path: str
    closing: StoreClosing
    written_by: str
    """The broker that opened it last, as far as its files tell: ``RocketLens``, ``RocketMQ 4``,
    ``RocketMQ 5``, ``RocketMQ 5.5``."""
    log_files: int
    log_bytes: int
    """Bytes of its files up to the log's end: a broker reserves the last one as a whole."""
    min_offset: int
    """The physical offset of the log's first byte."""
    end_offset: int
    """The physical offset of the log's end."""
    queue_bytes: int
    """Bytes of its consume queue files."""
    index: IndexStatus
    disk_total_bytes: int
    disk_free_bytes: int
    """Bytes that can still be written to its disk."""
    topics: int
    """Topics but for those of RocketMQ itself and of groups."""
    broker_topics: int
    """Those of them that a broker created by itself, under its own name or its cluster's."""
    messages: int | None
    """Messages in these topics; None if those of a topic are not known."""
    oldest_ms: int | None
    """Store time of the oldest message of any topic."""
    newest_ms: int | None
    """Store time of the newest message of any topic."""
    groups: tuple[FoundGroup, ...]
    coverage: tuple[Coverage, ...]
    tap: TapStatus | None = None
    """None if it is no copy that a tap wrote."""


class ArchivedSourceStatus(Struct, frozen=True):
    """What an archive has of one source: a broker, or the topics of a cluster."""

    name: str
    topics: tuple[str, ...]
    """The topics and patterns that are archived of it; none for all."""
    batches: int
    messages: int
    """Messages that were archived, those of days that are not kept any more included."""
    oldest_ms: int | None
    """Store time of the oldest message that is kept; None without messages."""
    newest_ms: int | None
    archived_ms: int
    """When the last batch was added."""
    gaps: tuple[str, ...]
    """Lines on what could not be archived."""
    behind: tuple[str, ...]
    """Lines on what the source was known to have, and was not archived yet."""


class ArchiveStatus(Status, Struct, frozen=True):
    """The state of one archive. Times are epoch milliseconds."""

    _name = "root"
    root: str
    sources: tuple[ArchivedSourceStatus, ...]
    topics: int
    files: int
    """Files of messages and of keys."""
    size_bytes: int
    """Bytes of these files."""
    coverage: tuple[Coverage, ...]


class BrokerStatus(Struct, frozen=True):
    """The state of one broker, a master or a slave, by its own report; None where that lacks it."""

    cluster_name: str
    name: str
    broker_id: int
    """0 is the master."""
    address: str
    error: str | None = None
    """Why it could not be asked."""
    version: str | None = None
    """``V5_5_0``, as RocketMQ writes it."""
    put_per_second: float | None = None
    """Messages stored a second, in the last 10 seconds or so; RocketMQ tells none before that."""
    get_per_second: float | None = None
    """Messages sent to consumers a second, in the last 10 seconds or so."""
    disk_ratio: float | None = None
    """The used part of the disk of its log, 0 to 1."""
    min_offset: int | None = None
    end_offset: int | None = None
    oldest_ms: int | None = None
    """Store time of its oldest message, in epoch milliseconds."""
    started_ms: int | None = None
    """When it was started, in epoch milliseconds."""
    producers: int | None = None
    """Connected producers; None also at a slave."""
    put_total: int | None = None
    """Messages stored since the start of the broker."""
    put_today: int | None = None
    """Messages stored since midnight by the broker's clock, or since its start if that is later."""
    get_today: int | None = None
    """Messages sent to consumers since then."""
    dispatch_behind_bytes: int | None = None
    """Bytes of its log that are in no queue yet, and at RocketMQ's brokers in no index either."""
    index_behind_bytes: int | None = None
    """Bytes of its log that its index files do not cover; RocketLens's brokers say it."""
    index_builder: str | None = None
    """What builds these, and how it is: ``spark, running``; RocketLens's brokers say it."""

    @property
    def is_master(self) -> bool:
        """Whether it is the master of its name."""
        return self.broker_id == 0

    @property
    def log_bytes(self) -> int | None:
        """Bytes from the first to the last physical offset of its log."""
        if self.min_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.min_offset

    @property
    def behind_bytes(self) -> int | None:
        """Bytes of its log that its queues or its index files lack: how far its pipeline is behind.

        None if it tells neither.
        """
        lags = [
            each
            for each in (self.dispatch_behind_bytes, self.index_behind_bytes)
            if each is not None
        ]
        return max(lags, default=None)


class BrokersAnswer(ListAnswer[BrokerStatus], Struct, frozen=True):
    """The brokers of a cluster, by cluster, name and broker id, and which of them answered."""

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
    """All that were asked; ``coverage`` names those that did not answer."""
    brokers: tuple[BrokerStatus, ...]
    """By cluster, name and broker id."""
    topics: int
    """Topics but for those of RocketMQ itself and of groups."""
    broker_topics: int
    """Those of them that a broker created by itself, under its own name or its cluster's."""
    groups: tuple[FoundGroup, ...]
    coverage: tuple[Coverage, ...]

    @property
    def producers(self) -> int | None:
        """Connections of producers to masters; None if one does not say."""
        counts = [each.producers for each in self.brokers if each.is_master]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def consumers(self) -> int | None:
        """Consumers that are connected; None if a broker could not be asked for a group."""
        if any(group.members is None for group in self.groups):
            return None
        return len({member for group in self.groups for member in group.members or ()})
