"""Look-ups in a store that is being written, done in pieces.

Candidates are verified newest first, until enough match: by `FastPathMatcher` where it recognizes
the record, otherwise as for a store directory (`rocketlens.query.lookup.message_filter`). A look-up
that takes too long ends with what it has found, and reports what it did not compare.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from rocketlens import limits
from rocketlens.broker.lookup.by_tag import deleted_part, tagged_newest_first
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.turns import Busy, Piece, Work
from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.index_file import key_hash
from rocketlens.query.lookup.message_filter import (
    OTHER_TIME,
    FastPathMatcher,
    MessageFilter,
    check_entry,
    read_candidate,
)
from rocketlens.store.read.index.index import TakesLong
from rocketlens.store.read.index.index_files import CorruptIndexFile, Hit, newest_first
from rocketlens.store.read.log.commitlog import CommitLog, SegmentLost
from rocketlens.store.write.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Stored records in the log's order, and what could not be searched."""

    body: bytes = b""
    count: int = 0
    failures: tuple[str, ...] = ()


class LookUp(NamedTuple):
    """A filter, and the maximum number of messages."""

    message_filter: MessageFilter
    max_num: int
    may_read: Callable[[memoryview], bool] | None = None
    """Whether a record may be returned that passes the filter; None if each may."""


def by_key(
    index: LiveIndex, look_up: LookUp, corrupt: CorruptIndexFile | None = None
) -> Work[FoundRecords]:
    """Read the new part of the log in pieces, then search; skip corrupt index files."""
    while True:
        if corrupt is not None:
            index.reject(corrupt)
        while index.is_far_behind:
            index.catch_up()
            if (yield):
                return FoundRecords(failures=(_late("the log was not read to its end"),))
        try:
            with index.using(index.reader):
                return (yield from by_key_once(index, look_up))
        except CorruptIndexFile as another:
            corrupt = another


def by_key_once(index: LiveIndex, look_up: LookUp, *, at_once: bool = False) -> Work[FoundRecords]:
    """Read the new part of the log, then search newest first, until enough is found.

    :raises CorruptIndexFile: if an index file turns out to be damaged.
    :raises TakesLong: with `at_once`, before any work that may take more than some milliseconds.
    """
    message_filter = look_up.message_filter
    hashes = {key_hash(message_filter.topic or "", message_filter.index_key)}
    tail, reader = index.catch_up(to_end=True), index.reader
    hits = reader.index.find(hashes, at_once=at_once, pauses=not at_once)
    candidates = newest_first(hits, tail.find(hashes))
    first = index.first_offset(message_filter.begin, at_once=at_once)
    records = yield from verified(
        index.store, reader.log, look_up, candidates, first_offset=first, at_once=at_once
    )
    if not records.count and at_once:
        reader.index.count_slots(at_once=True)
    elif not records.count and not records.failures:
        for _ in reader.index.counting_slots():
            if (yield):
                return FoundRecords(failures=(_late("the index was not checked to its end"),))
    if not tail.damage:
        return records
    damage = tuple(map(str, tail.damage[: limits.MAX_DAMAGE_REPORTS]))
    return replace(records, failures=damage + records.failures)


def is_record_start(index: LiveIndex, record: Record) -> Work[bool]:
    """Return whether a record starts at its offset, by walking to it.

    :raises Busy: if time runs out.
    """
    reader = index.reader
    with index.using(reader):
        for _ in reader.approach_start(record):
            if (yield):
                raise Busy(_late(f"whether a record begins at {record.physical_offset} is open"))
        return reader.is_record_start(record)


def by_tag(store: MessageStore, log: CommitLog, look_up: LookUp) -> Work[FoundRecords]:
    """Search the queues of the topic, newest first. O(entries of its queues)."""
    if store.end_offset > log.max_offset:
        log.refresh()
    failures: list[str] = []
    candidates = tagged_newest_first(store, log, look_up.message_filter, failures)
    records = yield from verified(store, log, look_up, candidates)
    if records.count < look_up.max_num:
        failures += deleted_part(store, look_up.message_filter.topic or "")
    return replace(records, failures=records.failures + tuple(failures))


def verified(
    store: MessageStore,
    log: CommitLog,
    look_up: LookUp,
    candidates: Iterable[tuple[int, Hit | None]],
    *,
    first_offset: int = 0,
    at_once: bool = False,
) -> Work[FoundRecords]:
    """Return the newest matching candidates; candidates must come newest first.

    None before ``first_offset`` matches.
    """
    records: list[memoryview] = []
    failures: list[str] = []
    room = limits.MAX_ANSWER_FRAME_BYTES
    matcher = FastPathMatcher.of(look_up.message_filter)
    view, begin, end = memoryview(b""), 0, 0
    min_offset = max(store.min_offset, first_offset)
    compared_from = -1
    piece = None if at_once else Piece()
    check = _check_later if at_once else check_entry
    may_read = look_up.may_read
    for number, (offset, hit) in enumerate(candidates):
        if offset >= 0 and (len(records) == look_up.max_num or room <= 0 or offset < min_offset):
            break
        if piece is None:
            if (
                number == limits.MAX_LOOP_CANDIDATES
                or limits.MAX_ANSWER_FRAME_BYTES - room > limits.MAX_LOOP_LOOK_UP_BYTES
            ):
                raise TakesLong
        elif piece.is_over:
            if (yield):
                before = "" if compared_from < 0 else f" before {compared_from}"
                failures.append(_late(f"the log{before} was not searched"))
                break
            piece.begin()
        if offset < 0:
            continue
        compared_from = offset
        if not begin <= offset < end:
            view, begin = segment_at(log, offset)
            end = begin + len(view)
        size = matcher.record_size_if_match(view, offset - begin, offset)
        if size == OTHER_TIME:
            continue
        if not size:
            record = read_candidate(
                log,
                look_up.message_filter,
                offset,
                hit,
                failures,
                min_offset=store.min_offset,
                check=check,
            )
            size = record.total_size if record else 0
        if size and may_read is not None:
            start = offset - begin
            size = size if may_read(view[start : start + size]) else 0
        if size:
            room -= size
            if room >= 0 or not records:
                records.append(view[offset - begin : offset - begin + size])
    return FoundRecords(b"".join(reversed(records)), len(records), tuple(failures))


def _late(part: str) -> str:
    return f"the look-up took too long and was ended: {part}"


def segment_at(log: CommitLog, offset: int) -> tuple[memoryview, int]:
    """Return the bytes of the segment with an offset, and its base offset.

    Returns an empty view if it cannot be read: then the record cannot be read, either.
    """
    segment = log.segment_of(offset)
    if segment is None:
        return memoryview(b""), offset
    try:
        return log.map(segment).view, segment.base_offset
    except SegmentLost:
        return memoryview(b""), offset


def _check_later(_: CommitLog, hit: Hit | None) -> None:
    """Leave the check of an index entry to the thread: it may take some milliseconds.

    :raises TakesLong: if there is an entry to check.
    """
    if hit is not None:
        raise TakesLong
