"""Checks a store's log, consume queues and consumer offsets against each other; changes nothing.

| checked | against |
|---|---|
| the log | itself: each record is read, and what is between records is damage |
| the end of each consume queue | the last record of the queue in the log |
| the files of each consume queue | each other: one that is missing leaves a hole |
| the last entry of each consume queue | the record that it leads to |
| consumer offsets | the begin and the end of their queues |

Every entry of every queue is compared by ``rocketlens index verify`` only. A log of more than
`rocketlens.limits.MAX_TOPIC_SCAN_BYTES` is not read; then queues are compared with nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, Self

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.batch_body import message_at, message_count
from rocketlens.formats.commitlog_record import Record, has_queue_entry
from rocketlens.model.group import FoundGroup, GroupQueue
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH
from rocketlens.query.facts.groups import groups_of_store
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueName
from rocketlens.store.read.former_topics import TopicEvidence, begins_again, read_evidence
from rocketlens.store.read.log.scan import Chunk, Damage, LogWalk


class Span(NamedTuple):
    """The records of one queue in the log: queue offsets ``first`` to ``stop - 1``."""

    first: int
    stop: int
    last_physical_offset: int


@dataclass(slots=True)
class LogContents:
    """What reading the log found."""

    damage: list[Damage] = field(default_factory=list)
    torn_at: int | None = None
    newest_ms: int | None = None
    """The latest store time, in epoch milliseconds."""
    spans: dict[QueueName, Span] = field(default_factory=dict)


class QueueFaultKind(Enum):
    """What is wrong with a consume queue."""

    MISSING = "missing"
    """It has no file, and the log has messages of it."""
    SHORT = "short"
    """It ends before the last message of it."""
    NOT_YET = "not yet"
    """As short, and no queue has an entry behind that message: it may not be dispatched yet."""
    HOLE = "hole"
    """A file between others is missing."""
    ASTRAY = "astray"
    """Its last entry leads to no record of this queue."""


class QueueFault(NamedTuple):
    """A consume queue without the entries of queue offsets ``first`` to ``stop - 1``."""

    kind: QueueFaultKind
    name: QueueName
    first: int
    stop: int


class OffsetFault(NamedTuple):
    """A group whose offset is before the begin of a queue, or beyond its end."""

    group: str
    queue: GroupQueue
    is_beyond: bool


def read_contents(reader: StoreReader) -> LogContents | None:
    """Read the log; None if it is too long. About a second a GiB."""
    log = reader.log
    if log.max_offset - log.min_offset > limits.MAX_TOPIC_SCAN_BYTES:
        return None
    contents = LogContents()
    evidence = read_evidence(reader.path, log)
    walk = LogWalk(log, log.min_offset, confirm=reader.is_indexed, grows=True)
    for piece in walk.pieces():
        if not isinstance(piece, Chunk):
            _add_time(contents, piece.store_timestamp_ms)
            if has_queue_entry(piece.sys_flag):
                name = QueueName(piece.topic, piece.queue_id)
                _add(contents, evidence, name, _RecordOffsets.of(piece))
            continue
        _add_time(contents, int(piece.rows["store_timestamp_ms"].max()))
        for topic, queue_id, all_rows in piece.queues():
            rows = all_rows[has_queue_entry(all_rows["sys_flag"])]
            # The records between these neither begin the queue again nor end it.
            (anew,) = (rows["queue_offset"] == 0).nonzero()
            ends = {*anew.tolist(), *(anew - 1).tolist(), 0, len(rows) - 1}
            for index in sorted(each for each in ends if 0 <= each < len(rows)):
                row = rows[index]
                offsets = _RecordOffsets(int(row["queue_offset"]), int(row["physical_offset"]))
                if row["sys_flag"] & SYS_FLAG_INNER_BATCH:
                    offsets = _RecordOffsets.of(
                        log.record_at(offsets.physical_offset, check_crc=False)
                    )
                _add(contents, evidence, QueueName(topic, queue_id), offsets)
    contents.damage = walk.damage
    contents.torn_at = walk.torn_at
    return contents


def _add_time(contents: LogContents, store_timestamp_ms: int) -> None:
    contents.newest_ms = max(contents.newest_ms or 0, store_timestamp_ms)


class _RecordOffsets(NamedTuple):
    """Where a record is in its queue and in the log."""

    queue_offset: int
    physical_offset: int
    message_count: int = 1

    @classmethod
    def of(cls, record: Record) -> Self:
        return cls(record.queue_offset, record.physical_offset, message_count(record))


def _add(
    contents: LogContents, evidence: TopicEvidence, name: QueueName, offsets: _RecordOffsets
) -> None:
    queue_offset, physical_offset, count = offsets
    if physical_offset < evidence.known_end_of(name.topic):
        return
    before = contents.spans.get(name)
    last = None if before is None else before.last_physical_offset
    is_new = before is None or begins_again(queue_offset, physical_offset, last)
    first = queue_offset if before is None or is_new else before.first
    contents.spans[name] = Span(first, queue_offset + count, physical_offset)


def queue_faults(reader: StoreReader, contents: LogContents | None) -> Iterator[QueueFault]:
    """Return what is wrong with consume queues, by topic and queue. O(queues).

    :raises OSError: when a queue cannot be read.
    """
    spans: Mapping[QueueName, Span] = {} if contents is None else contents.spans
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
        if queue.files and end and not _leads_home(reader, name, queue, end - 1):
            yield QueueFault(QueueFaultKind.ASTRAY, name, end - 1, end)


def _holes(name: QueueName, queue: ConsumeQueue) -> Iterator[QueueFault]:
    for before, after in pairwise(queue.files):
        stop = before.first_queue_offset + before.entry_count
        if stop < after.first_queue_offset:
            yield QueueFault(QueueFaultKind.HOLE, name, stop, after.first_queue_offset)


def _leads_home(
    reader: StoreReader, name: QueueName, queue: ConsumeQueue, queue_offset: int
) -> bool:
    """Return whether an entry leads to its record, or to one that is deleted."""
    entry = queue.entry(queue_offset)
    if entry is None or entry.physical_offset < reader.log.min_offset:
        return True
    try:
        record = reader.log.record_at(entry.physical_offset, check_crc=False)
    except RecordError:
        return False
    is_of_queue = (record.topic, record.queue_id) == name
    return is_of_queue and message_at(record, queue_offset) is not None


def offset_faults_of_store(
    reader: StoreReader, contents: LogContents | None
) -> Iterator[OffsetFault]:
    """Return consumer offsets before the begin or beyond the end of their queues.

    Queues end where the log ends them, whatever their files have.
    """
    spans: Mapping[QueueName, Span] = {} if contents is None else contents.spans
    configured = reader.topics.configured()
    for group in groups_of_store(reader).groups:
        for queue in group.queues or ():
            span = spans.get(QueueName(queue.topic, queue.queue_id))
            end = max(queue.max_offset, 0 if span is None else span.stop)
            if end == 0 and (contents is None or queue.topic not in configured):
                # Of a deleted topic, or of a queue that is missing in a log that was not read.
                continue
            yield from _offset_faults(group, queue, end)


def offset_faults(group: FoundGroup) -> Iterator[OffsetFault]:
    """Return the offsets of a cluster's group that are beyond the end of their queues."""
    for queue in group.queues or ():
        yield from _offset_faults(group, queue, queue.max_offset)


def _offset_faults(group: FoundGroup, queue: GroupQueue, end: int) -> Iterator[OffsetFault]:
    if queue.consumer_offset > end:
        yield OffsetFault(group.name, queue, is_beyond=True)
    elif 0 <= queue.consumer_offset < queue.min_offset:
        yield OffsetFault(group.name, queue, is_beyond=False)
