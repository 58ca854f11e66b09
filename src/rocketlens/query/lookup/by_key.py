"""Finds messages by key or unique key, with index files and tail; the log decides."""

from collections import deque
from collections.abc import Collection, Iterator
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from rocketlens.formats.commitlog_record import Record
from rocketlens.model.text.java import key_hashes
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.by_time import Scan, find_in_time
from rocketlens.query.lookup.message_filter import MessageFilter, read_candidate
from rocketlens.query.store_reader import StoreReader
from rocketlens.query.tiered import find_in_tiers
from rocketlens.store.read.index.index_files import CorruptIndexFile, newest_first
from rocketlens.store.read.index.tail import Tail

_INDEXED_TO_MS: Final = attrgetter("indexed_to_ms")


def find_by_key(reader: StoreReader, message_filter: MessageFilter, findings: Findings) -> None:
    """Add the messages with the filter's key or unique key, including those in tiered storage.

    If the filter has no topic, all known topics are searched. Messages are added newest first, as
    many as the answer takes. A damaged index file is rejected, and its part of the log read.
    """
    log_end_offset = reader.least_end(reader.tail_end)
    topics = message_filter.record_topics
    found_before = findings.count
    while True:
        named = reader.topics.known() if topics is None else topics
        hashes = key_hashes(named, message_filter.index_key)
        # The tail first: its update can open new index files and drop the log that they cover.
        tail = reader.tail
        failures: list[str] = []
        try:
            records = _matching(reader, message_filter, hashes, tail, failures)
            if findings.messages.oldest:
                records = _oldest(records, findings)
            for record in records:
                if not findings.take_all(message_filter.matching_in(record)):
                    break
            if findings.count == found_before:
                reader.index.count_slots()
        except CorruptIndexFile as corrupt:
            reader.reject_index_file(corrupt)
            findings.count = found_before
            continue
        is_found = findings.count > found_before
        if is_found or topics is not None or not reader.topics.may_be_more():
            break
        reader.topics.read_log()
    coverage = reader.key_coverage(tail, log_end_offset)
    if topics is None:
        coverage += tuple(reader.topics.coverage(is_found=is_found))
    failures += reader.lost_of_queues(message_filter.takes_topic)
    if failures:
        coverage += tuple(reader.log_failures(failures))
    coverage += reader.missing_older(message_filter.begin)
    findings.cover(coverage)
    _find_in_batches(reader, message_filter, findings)
    newest_ms = max(filter(None, map(_INDEXED_TO_MS, coverage)), default=0)
    findings.indexed_to_ms = max(findings.indexed_to_ms, newest_ms)
    find_in_tiers(reader, message_filter, findings, find_by_key)


def _find_in_batches(
    reader: StoreReader, message_filter: MessageFilter, findings: Findings
) -> None:
    """Read the log for messages in batches (topics with ``queue.type=BatchCQ``, RocketMQ 5).

    No index has their keys.
    """
    topics = frozenset(filter(message_filter.takes_topic, reader.topics.batch_topics()))
    if topics:
        find_in_time(Scan(reader, replace(message_filter, topic=None, topics=topics)), findings)


def _oldest(records: Iterator[Record], findings: Findings) -> Iterator[Record]:
    """Return the oldest records that the answer takes; the others are not decompressed."""
    kept: deque[Record] = deque(maxlen=findings.messages.max_num)
    for record in records:
        findings.messages.truncated |= len(kept) == kept.maxlen
        kept.append(record)
    return iter(kept)


def _matching(
    reader: StoreReader,
    message_filter: MessageFilter,
    hashes: Collection[int],
    tail: Tail,
    failures: list[str],
) -> Iterator[Record]:
    """Yield matching records, newest first; lazy."""
    log = reader.log
    given: set[int] = set()
    for offset, hit in newest_first(reader.index.find(hashes), tail.find(hashes)):
        if offset < log.min_offset:
            break
        record = read_candidate(log, message_filter, offset, hit, failures)
        if record is None or record.queue_offset in given:
            continue
        if reader.is_log_of_queue:
            # A killed broker can write a message twice.
            given.add(record.queue_offset)
        yield record
