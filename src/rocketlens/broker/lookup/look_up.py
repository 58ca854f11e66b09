"""Look-ups in a store that is being written, in pieces.

Candidates are verified newest first, until enough match, as for a store directory
(`rocketlens.query.lookup.message_filter`). A look-up that exceeds its time returns its matches, and
reports the part that it did not search.

For a tag, candidates are entries of a topic's queues with the tag's hash code, which several tags
can share. Entries whose tags code is not a hash code are candidates, too: in DELAY_TOPIC it is the
time of delivery, and with RocketMQ's ``enableConsumeQueueExt`` an address in another file. Store
times are read from the records. They are not sorted, because a clock can be set back.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from time import perf_counter
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.turns import Busy, Work, piece_end_s
from rocketlens.errors import RecordError
from rocketlens.formats.columns import store_timestamps
from rocketlens.formats.commitlog_record import MIN_RECORD_BYTES, Record
from rocketlens.formats.consumequeue_entry import (
    ENTRY_BYTES,
    ENTRY_LAYOUT,
    FILLER_SIZE,
    LOWEST_TAGS_CODE,
)
from rocketlens.formats.index_file import key_hash
from rocketlens.late import np, npt
from rocketlens.model.rocketmq import DELAY_TOPIC
from rocketlens.model.text.java import string_hash
from rocketlens.query.lookup.message_filter import MessageFilter, read_candidate
from rocketlens.store.read.index.index_files import PAUSE, CorruptIndexFile, Hit, newest_first
from rocketlens.store.read.log.commitlog import CommitLog, SegmentLost
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter, read_entries

_ENTRIES_READ: Final = 8192


_NOT_LOOKED_AT: Final = (2**63, False)
"""The first bound of a queue: its newest message can be the newest of all."""


def tagged_newest_first(
    store: MessageStore, log: CommitLog, message_filter: MessageFilter, failures: list[str]
) -> Iterator[tuple[int, None]]:
    """Yield the physical offsets of candidates, newest first.

    Entries are read during the iteration; after entries without a candidate it yields
    :data:`~rocketlens.store.read.index.index_files.PAUSE`. For any thread that owns ``log``. Read
    errors are added to ``failures``.
    """
    topic = message_filter.topic
    queues = [] if topic is None else store.queues.of_topic(topic)
    candidates = [
        _candidates(queue, log, message_filter, store.min_offset, failures) for queue in queues
    ]
    for offset, is_candidate in merge(*candidates, reverse=True):
        yield (offset, None) if is_candidate else PAUSE


def deleted_part(store: MessageStore, topic: str) -> list[str]:
    """Return the reason why messages of a deleted topic that the log can have are not found."""
    end_offset = store.deleted.ends.get(topic, 0)
    if end_offset <= store.min_offset:
        return []
    return [f"{topic} was deleted: no queue has its messages below physical offset {end_offset}"]


def _candidates(
    queue: QueueWriter,
    log: CommitLog,
    message_filter: MessageFilter,
    min_offset: int,
    failures: list[str],
) -> Iterator[tuple[int, bool]]:
    """Yield the physical offsets of the candidates of one queue, newest first.

    An offset with False is an upper bound of all that follow: one comes first, and one after each
    block of entries.
    """
    yield _NOT_LOOKED_AT

    code = string_hash(next(iter(message_filter.tags or {""})))
    file_entries = queue.file_bytes // ENTRY_BYTES
    stop = queue.next_offset
    first = min((base // ENTRY_BYTES for base, _ in queue.files()), default=stop)
    while stop > first:
        start = max(first, stop - _ENTRIES_READ, (stop - 1) // file_entries * file_entries)
        entries = _read(queue, start, stop, failures)
        stop = start
        if not len(entries):
            continue
        offsets = entries["physical_offset"].astype(np.int64)
        if offsets.max() < min_offset:
            return
        tags_codes = entries["tags_code"].astype(np.int64)
        is_candidate = (
            (tags_codes == code) | (tags_codes < LOWEST_TAGS_CODE) | (tags_codes > limits.MAX_INT)
        )
        if queue.topic == DELAY_TOPIC:
            is_candidate[:] = True
        is_candidate &= (entries["store_size"] != FILLER_SIZE) & (offsets >= min_offset)
        for offset in _in_time(log, message_filter, offsets[is_candidate])[::-1].tolist():
            yield offset, True
        yield int(offsets[0]), False


def _read(queue: QueueWriter, start: int, stop: int, failures: list[str]) -> "npt.NDArray[np.void]":
    name = f"{queue.topic}/{queue.queue_id}"
    try:
        entries = read_entries(queue, start, stop)
    except OSError as error:
        if not queue.is_removed:
            failures.append(f"queue {name} cannot be read from {start} on: {error.strerror}")
        return np.empty(0, ENTRY_LAYOUT.dtype)
    if len(entries) < stop - start or (entries["store_size"] <= 0).any():
        failures.append(f"queue {name} lacks entries from {start} on")
    return entries[entries["store_size"] > 0]


def _in_time(
    log: CommitLog, message_filter: MessageFilter, offsets: "npt.NDArray[np.int64]"
) -> "npt.NDArray[np.int64]":
    """Drop the offsets of messages stored outside the filter's time range."""
    is_in_time = np.ones(len(offsets), np.bool_)
    start = 0
    while start < len(offsets):
        segment = log.segment_of(int(offsets[start]))
        if segment is None:
            start += 1
            continue
        last = segment.end_offset - MIN_RECORD_BYTES
        here = (offsets >= segment.base_offset) & (offsets <= last)
        here[:start] = False
        try:
            content = log.map(segment).array()
        except RecordError:
            # The verification of candidates reports the unreadable segment.
            return offsets
        times = store_timestamps(content, offsets[here] - segment.base_offset)
        is_late = times > message_filter.end
        begin_ms = message_filter.begin
        is_early = np.zeros(len(times), np.bool_) if begin_ms is None else times < begin_ms
        is_in_time[here] = ~(is_late | is_early)
        start = max(int(np.flatnonzero(here)[-1]) + 1 if here.any() else 0, start + 1)
    return offsets[is_in_time]


class FoundRecords(Struct, frozen=True):
    """Records in the log's order, and the parts that could not be searched."""

    body: bytes = b""
    count: int = 0
    failures: tuple[str, ...] = ()


class LookUp(NamedTuple):
    """A filter, and the maximum number of messages."""

    message_filter: MessageFilter
    max_num: int
    may_read: Callable[[memoryview], bool] | None = None
    """Decides if the client can read a matching record; None if it can read all."""


def by_key(index: LiveIndex, look_up: LookUp) -> Work[FoundRecords]:
    """Read the new part of the log in pieces, then search; skip corrupt index files."""
    while True:
        while index.is_far_behind:
            index.catch_up()
            if (yield):
                return FoundRecords(failures=(_late("the log was not read to its end"),))
        try:
            with index.using(index.reader):
                return (yield from _by_key_once(index, look_up))
        except CorruptIndexFile as corrupt:
            index.reject(corrupt)


def _by_key_once(index: LiveIndex, look_up: LookUp) -> Work[FoundRecords]:
    """:raises CorruptIndexFile: if an index file is damaged."""
    message_filter = look_up.message_filter
    hashes = {key_hash(message_filter.topic or "", message_filter.index_key)}
    tail, reader = index.catch_up(to_end=True), index.reader
    hits = reader.index.find(hashes, pauses=True)
    candidates = newest_first(hits, tail.find(hashes))
    first = index.first_offset(message_filter.begin)
    records = yield from verify(index.store, reader.log, look_up, candidates, first_offset=first)
    if not records.count and not records.failures:
        for _ in reader.index.counting_slots():
            if (yield):
                return FoundRecords(failures=(_late("the index was not checked to its end"),))
    if not tail.damage:
        return records
    damage = tuple(map(str, tail.damage[: limits.MAX_DAMAGE_REPORTS]))
    return replace(records, failures=damage + records.failures)


def is_record_start(index: LiveIndex, record: Record) -> Work[bool]:
    """Walk to the record's offset; raises Busy if time runs out."""
    reader = index.reader
    with index.using(reader):
        for _ in reader.approach_start(record):
            if (yield):
                raise Busy(_late(f"offset {record.physical_offset} was not checked"))
        return reader.is_record_start(record)


def by_tag(store: MessageStore, log: CommitLog, look_up: LookUp) -> Work[FoundRecords]:
    """Search the queues of the topic, newest first. O(entries of its queues)."""
    if store.end_offset > log.max_offset:
        log.refresh()
    failures: list[str] = []
    candidates = tagged_newest_first(store, log, look_up.message_filter, failures)
    records = yield from verify(store, log, look_up, candidates)
    if records.count < look_up.max_num:
        failures += deleted_part(store, look_up.message_filter.topic or "")
    return replace(records, failures=records.failures + tuple(failures))


def verify(
    store: MessageStore,
    log: CommitLog,
    look_up: LookUp,
    candidates: Iterable[tuple[int, Hit | None]],
    *,
    first_offset: int = 0,
) -> Work[FoundRecords]:
    """Return the newest matches. ``candidates`` come newest first, none before ``first_offset``."""
    records: list[memoryview] = []
    failures: list[str] = []
    room = limits.MAX_ANSWER_FRAME_BYTES
    view, begin, end = memoryview(b""), 0, 0
    min_offset = max(store.min_offset, first_offset)
    compared_from = -1
    ends_s = piece_end_s()
    may_read = look_up.may_read
    for offset, hit in candidates:
        if offset >= 0 and (len(records) == look_up.max_num or room <= 0 or offset < min_offset):
            break
        if perf_counter() > ends_s:
            if (yield):
                before = "" if compared_from < 0 else f" before {compared_from}"
                failures.append(_late(f"the log{before} was not searched"))
                break
            ends_s = piece_end_s()
        if offset < 0:
            continue
        compared_from = offset
        record = read_candidate(
            log, look_up.message_filter, offset, hit, failures, min_offset=store.min_offset
        )
        if record is None:
            continue
        if not begin <= offset < end:
            view, begin = segment_at(log, offset)
            end = begin + len(view)
        content = view[offset - begin : offset - begin + record.total_size]
        if may_read is None or may_read(content):
            room -= len(content)
            if room >= 0 or not records:
                records.append(content)
    return FoundRecords(b"".join(reversed(records)), len(records), tuple(failures))


def _late(part: str) -> str:
    return f"the look-up exceeded its time: {part}"


def segment_at(log: CommitLog, offset: int) -> tuple[memoryview, int]:
    """Return the segment with an offset, and its base offset; empty if it cannot be read."""
    segment = log.segment_of(offset)
    if segment is None:
        return memoryview(b""), offset
    try:
        return log.map(segment).view, segment.base_offset
    except SegmentLost:
        return memoryview(b""), offset
