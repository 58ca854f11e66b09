"""Examines a store: its state, and the consistency of its log, queues and consumer offsets.

:class:`StoreExamination` determines each fact on first use, and changes nothing. `Store.status`,
the console and ``rocketlens doctor`` print the facts.

``rocketlens index verify`` (`rocketlens.pipeline.verify`) compares every queue entry. A log of more
than `rocketlens.limits.MAX_TOPIC_SCAN_BYTES` is not read, so its queues are not checked.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from itertools import chain, pairwise
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.formats.batch_body import message_count
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.model.answer import Coverage, SourceKind
from rocketlens.model.group import FoundGroup, GroupQueue, GroupsAnswer
from rocketlens.model.rocketmq import ROCKSDB_HALF_MESSAGE_TOPIC, SYS_FLAG_INNER_BATCH, TIMER_TOPIC
from rocketlens.model.status import (
    IndexBuilderStatus,
    IndexStatus,
    StoreClosing,
    StoreStatus,
    TapStatus,
)
from rocketlens.model.topic import TopicKind
from rocketlens.query.facts.groups import groups_of_store
from rocketlens.query.facts.topic_list import topics_of_store
from rocketlens.query.store_reader import StoreReader
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import INDEX_LOCK, StoreLayout
from rocketlens.store.lock import LOCK_FILE, OUR_TEXT, is_locked
from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueName
from rocketlens.store.read.former_topics import TopicEvidence, begins_again, read_evidence
from rocketlens.store.read.index.index_state import safe_offset_of
from rocketlens.store.read.log.scan import Damage, LogWalk
from rocketlens.store.read.state import read_synced_offset
from rocketlens.store.read.tap_note import read_tap_note


class Span(NamedTuple):
    """The records of one queue in the log: queue offsets ``first`` to ``stop - 1``."""

    first: int
    stop: int
    last_physical_offset: int


class LogContents(Struct):
    """The content of the log."""

    damage: list[Damage] = []
    torn_at: int | None = None
    newest_ms: int | None = None
    """The latest store time, in epoch milliseconds."""
    spans: dict[QueueName, Span] = {}


class QueueFaultKind(Enum):
    """The kind of a consume queue's fault."""

    MISSING = "missing"
    """It has no file, but messages in the log."""
    SHORT = "short"
    """It ends before its last message in the log."""
    NOT_YET = "not yet"
    """As short, but no queue has an entry after that message, so it may not be dispatched yet."""
    HOLE = "hole"
    """A file between others is missing."""
    ASTRAY = "astray"
    """Its last entry does not lead to a record of this queue."""


class QueueFault(NamedTuple):
    """A consume queue without the entries of queue offsets ``first`` to ``stop - 1``."""

    kind: QueueFaultKind
    name: QueueName
    first: int
    stop: int


class OffsetFault(NamedTuple):
    """A group's offset that is before the start or after the end of a queue."""

    group: str
    queue: GroupQueue
    is_beyond: bool


class Depth(Enum):
    """The parts of a store that an examination reads."""

    FILES = "files"
    """Files, queues and index; the log only if no index file covers it."""
    LOG = "log"
    """Also the whole log, about a second per GiB."""


class StoreExamination:
    """The facts about one store, each determined on first use."""

    def __init__(self, reader: StoreReader, depth: Depth = Depth.FILES) -> None:
        self.reader: Final = reader
        self.depth: Final = depth
        self.layout: Final = StoreLayout(reader.path)

    @property
    def closing(self) -> StoreClosing:
        """Whether a process has the store open, or how the last one left it.

        :raises OSError: if the lock file cannot be opened.
        """
        if is_locked(self.layout.root):
            return StoreClosing.IN_USE
        return StoreClosing.KILLED if self.layout.abort.exists() else StoreClosing.CLEAN

    @property
    def written_by(self) -> str:
        """The broker that opened the store last: see `writer_of`."""
        return writer_of(self.layout)

    @property
    def log_bytes(self) -> int:
        return sum(segment.size for segment in self.reader.log.segments)

    @cached_property
    def index_builder(self) -> IndexBuilderStatus | None:
        """The progress of a RocketLens broker's index builder; None without one.

        :raises OSError: if its files cannot be read.
        """
        layout = self.layout
        synced = read_synced_offset(layout)
        if synced is None:
            return None
        safe = safe_offset_of(layout)
        changed = layout.index_state if layout.index_state.exists() else layout.own
        return IndexBuilderStatus(
            is_running=is_locked(layout.own, INDEX_LOCK),
            safe_offset=safe,
            behind_bytes=max(synced - safe, 0),
            silent_since_ms=changed.stat().st_mtime_ns // 1_000_000,
        )

    @property
    def tap(self) -> TapStatus | None:
        """The progress of the tap that writes the store; None without one.

        :raises OSError: if its file cannot be read.
        """
        note = read_tap_note(self.layout)
        if note is None:
            return None
        return TapStatus(
            note.broker_name,
            note.address,
            note.behind_bytes,
            note.behind_ms,
            note.written_ms,
            tuple((gap.start, gap.stop) for gap in note.gaps),
            note.replaced,
            note.problem,
        )

    @cached_property
    def contents(self) -> LogContents | None:
        """The content of the log; None if it is too long, or `depth` is not `Depth.LOG`.

        :raises OSError: if the file of topics cannot be read.
        """
        return _read_log(self.reader) if self.depth is Depth.LOG else None

    @property
    def _spans(self) -> Mapping[QueueName, Span]:
        return {} if self.contents is None else self.contents.spans

    def missing_log(self) -> Iterator[tuple[int, int]]:
        """Return the ranges of physical offsets without a file, between files of the log."""
        for before, after in pairwise(self.reader.log.segments):
            if before.end_offset < after.base_offset:
                yield before.end_offset, after.base_offset

    def damage(self) -> list[Damage]:
        """Return the damage in the part of the log that was read."""
        return self.reader.tail.damage if self.contents is None else self.contents.damage

    def queue_faults(self) -> Iterator[QueueFault]:
        """Return the faults of consume queues, by topic and queue. O(queues).

        :raises OSError: if a queue cannot be read.
        """
        reader, spans = self.reader, self._spans
        dispatched = reader.queues_end()
        for name in sorted({*reader.queues.names(), *spans}):
            queue = reader.queues.queue(*name)
            if queue is None:
                continue
            yield from _holes(name, queue)
            span = spans.get(name)
            end = queue.max_offset
            if span is not None and end < span.stop:
                first = max(span.first, end)
                kind = QueueFaultKind.SHORT if queue.files else QueueFaultKind.MISSING
                if span.last_physical_offset >= dispatched > reader.log.min_offset:
                    kind = QueueFaultKind.NOT_YET
                yield QueueFault(kind, name, first, span.stop)
            if queue.files and end and not _leads_to_own_record(reader, name, queue, end - 1):
                yield QueueFault(QueueFaultKind.ASTRAY, name, end - 1, end)

    def offset_faults(self) -> Iterator[OffsetFault]:
        """Return consumer offsets before the start or after the end of their queues.

        The end of a queue is that in the log if the log was read.
        """
        reader, spans = self.reader, self._spans
        configured = reader.topics.configured()
        for group in groups_of_store(reader).groups:
            for queue in group.queues or ():
                span = spans.get(QueueName(queue.topic, queue.queue_id))
                end = max(queue.max_offset, 0 if span is None else span.stop)
                if end == 0 and (self.contents is None or queue.topic not in configured):
                    # A deleted topic, or a missing queue while the log was not read.
                    continue
                yield from _offset_faults(group, queue, end)

    def status(self, disk: Disk, *, with_groups: bool = True) -> StoreStatus:
        """Return the state of the store, with or without its groups.

        O(entries of all queues, and log after them).

        :raises OSError: if the directory cannot be read.
        """
        reader = self.reader
        topics = topics_of_store(reader, ())
        groups = groups_of_store(reader) if with_groups else GroupsAnswer((), ())
        normal = [each for each in topics.topics if each.kind is TopicKind.NORMAL]
        counts = [each.messages for each in normal if not each.is_deleted]
        times = [(each.oldest_ms, each.newest_ms) for each in topics.topics]
        known_ms = [moment for moment in chain.from_iterable(times) if moment is not None]
        end_offset = _log_end(topics.coverage, reader.log.min_offset)
        space = disk.space(self.layout.root)
        return StoreStatus(
            path=str(reader.path),
            closing=self.closing,
            written_by=self.written_by,
            log_files=len(reader.log.segments),
            log_bytes=sum(
                max(min(each.end_offset, end_offset) - each.base_offset, 0)
                for each in reader.log.segments
            ),
            min_offset=reader.log.min_offset,
            end_offset=end_offset,
            queue_bytes=_queue_bytes(reader),
            index=replace(_index_of(reader, end_offset), builder=self.index_builder),
            disk_total_bytes=space.total,
            disk_free_bytes=space.free,
            topics=len(normal),
            broker_topics=sum(each.is_of_broker for each in normal),
            messages=None if None in counts else sum(count or 0 for count in counts),
            oldest_ms=min(known_ms, default=None),
            newest_ms=max(known_ms, default=None),
            groups=groups.groups,
            coverage=(*topics.coverage, *groups.coverage),
            tap=self.tap,
        )


def _read_log(reader: StoreReader) -> LogContents | None:
    log = reader.log
    if log.max_offset - log.min_offset > limits.MAX_TOPIC_SCAN_BYTES:
        return None
    contents = LogContents()
    evidence = read_evidence(reader.path, log)
    walk = LogWalk(log, log.min_offset, confirm=reader.is_indexed, grows=True)
    for read in walk.rows():
        contents.newest_ms = max(contents.newest_ms or 0, read.newest_ms)
        for topic, queue_id, of_queue in read.queued().queues():
            rows = of_queue.as_array
            # Only the first and last record between two restarts of the queue matter.
            (anew,) = (rows["queue_offset"] == 0).nonzero()
            ends = {*anew.tolist(), *(anew - 1).tolist(), 0, len(rows) - 1}
            for index in sorted(each for each in ends if 0 <= each < len(rows)):
                row, count = rows[index], 1
                first, physical_offset = int(row["queue_offset"]), int(row["physical_offset"])
                if row["sys_flag"] & SYS_FLAG_INNER_BATCH:
                    count = message_count(log.record_at(physical_offset, check_crc=False))
                span = Span(first, first + count, physical_offset)
                _add(contents, evidence, QueueName(topic, queue_id), span)
    contents.damage = walk.damage
    contents.torn_at = walk.torn_at
    return contents


def _add(contents: LogContents, evidence: TopicEvidence, name: QueueName, record: Span) -> None:
    if record.last_physical_offset < evidence.known_end_of(name.topic):
        return
    before = contents.spans.get(name)
    last = None if before is None else before.last_physical_offset
    if before is not None and not begins_again(record.first, record.last_physical_offset, last):
        record = record._replace(first=before.first)
    contents.spans[name] = record


def _holes(name: QueueName, queue: ConsumeQueue) -> Iterator[QueueFault]:
    for before, after in pairwise(queue.files):
        stop = before.first_queue_offset + before.entry_count
        if stop < after.first_queue_offset:
            yield QueueFault(QueueFaultKind.HOLE, name, stop, after.first_queue_offset)


def _leads_to_own_record(
    reader: StoreReader, name: QueueName, queue: ConsumeQueue, queue_offset: int
) -> bool:
    """Return whether an entry leads to its record, or to a deleted one."""
    entry = queue.entry(queue_offset)
    if entry is None or entry.physical_offset < reader.log.min_offset:
        return True
    return reader.log.record_of(entry, name, queue_offset) is not None


def offset_faults(group: FoundGroup) -> Iterator[OffsetFault]:
    """Return the offsets of a cluster's group that are outside of their queues."""
    for queue in group.queues or ():
        yield from _offset_faults(group, queue, queue.max_offset)


def _offset_faults(group: FoundGroup, queue: GroupQueue, end: int) -> Iterator[OffsetFault]:
    if queue.consumer_offset > end:
        yield OffsetFault(group.name, queue, is_beyond=True)
    elif 0 <= queue.consumer_offset < queue.min_offset:
        yield OffsetFault(group.name, queue, is_beyond=False)


def writer_of(layout: StoreLayout) -> str:
    """Return the broker that opened a store last, as precisely as its files reveal."""
    if fs.read_part(layout.root / LOCK_FILE, 0, len(OUR_TEXT)) == OUR_TEXT:
        return "RocketLens"
    topics = read_table(layout.root, TOPICS_FILE, TOPICS_MEMBER).entries
    if (layout.root / "rocksdbstore").is_dir() or ROCKSDB_HALF_MESSAGE_TOPIC in topics:
        return "RocketMQ 5.5"
    if (layout.root / "timerwheel").exists() or TIMER_TOPIC in topics:
        return "RocketMQ 5"
    return "RocketMQ 4" if topics else "RocketMQ"


def _index_of(reader: StoreReader, end_offset: int) -> IndexStatus:
    index = reader.index
    newest = [file.header.end_timestamp_ms for file in index.sound if file.last_entry]
    return IndexStatus(
        files=len(index.sound),
        damaged_files=sum(state.file is None for state in index.states),
        entries=sum(file.last_entry for file in index.sound),
        size_bytes=sum(fs.file_size(state.path) or 0 for state in index.states),
        newest_ms=max(newest, default=None),
        uncovered_bytes=sum(
            max((end_offset if stop is None else stop) - start, 0)
            for start, stop in index.uncovered()
        ),
    )


def _log_end(coverage: tuple[Coverage, ...], min_offset: int) -> int:
    """Return the end of the log that was found while listing topics."""
    logs = (each for each in coverage if each.kind is SourceKind.COMMIT_LOG)
    return max((each.end_offset or 0 for each in logs), default=min_offset)


def _queue_bytes(reader: StoreReader) -> int:
    """Return the size of all entries; the coverage of the topics has unreadable queues."""
    files = (file for _, queue in reader.queues.readable() for file in queue.files)
    return sum(file.entry_count for file in files) * ENTRY_BYTES
