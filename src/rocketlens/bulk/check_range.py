"""Checks the records of one range of the log: checksums, queue entries and index entries."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from rocketlens.bulk import check_index, check_queue, store_settings
from rocketlens.bulk.check_index import Expected, IndexCompared, IndexFileFacts
from rocketlens.bulk.check_queue import QueueCompared, QueueRecords
from rocketlens.bulk.extract import QueueRows
from rocketlens.bulk.ranges import (
    LogRange,
    RangeEnding,
    RangeReader,
    Walked,
    open_range,
    true_start,
)
from rocketlens.bulk.report import Finding, FindingKind, StoreFindings
from rocketlens.formats.commitlog_record import is_indexed
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT
from rocketlens.formats.rows import Rows
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import TopicEvidence
from rocketlens.store.read.log.commitlog import CommitLog


class RangeTask(NamedTuple):
    """One range to check, and the index files to compare it with."""

    log_range: LogRange
    store: str
    files: tuple[IndexFileFacts, ...]
    check_crc: bool
    with_queues: bool
    evidence: TopicEvidence


class RangeChecked(Struct):
    """The result of one range."""

    walked: Walked
    findings: StoreFindings = field(default_factory=StoreFindings)
    index: IndexCompared = field(default_factory=IndexCompared)
    queues: QueueCompared = field(default_factory=QueueCompared)
    newest_timestamp_ms: int = 0


def check_range(task: RangeTask) -> RangeChecked:
    with open_range(task.log_range) as mapped:
        log_range = true_start(task.log_range, mapped.view)
        if log_range is None:
            return RangeChecked(Walked(task.log_range, ending=RangeEnding.CLOSED))
        reader = RangeReader(log_range, mapped.view)
        checked = RangeChecked(reader.walked)
        base_offset = log_range.base_offset
        queue_rows = QueueRows()
        expected: list[tuple[Any, ...]] = []
        for rows in reader:
            if task.check_crc:
                _check_records(checked, rows)
            checked.newest_timestamp_ms = max(checked.newest_timestamp_ms, rows.newest_ms)
            expected.append(_expected(rows))
            if task.with_queues:
                queue_rows.add(rows)
        low = base_offset + log_range.start
        high = base_offset + max(reader.walked.next_position, log_range.stop)
        checked.index = check_index.compare(_join(expected), low, high, task.files)
        _compare_queues(checked.queues, StoreLayout.of(Path(task.store)), queue_rows, task.evidence)
    return checked


def _check_records(checked: RangeChecked, rows: Rows) -> None:
    for offset in compress(rows.offsets(), (not each for each in rows.sound())):
        detail = "its checksum is wrong"
        checked.findings.add(Finding(FindingKind.RECORD_CHECKSUM, detail, physical_offset=offset))


def _expected(rows: Rows) -> tuple[Any, ...]:
    """Return the entries of some rows, and mark those of tags: the last one of a row with tags."""
    fields = rows.as_array
    tagged = fields["physical_offset"][(fields["tags_length"] > 0) & is_indexed(fields["sys_flag"])]
    hashes, offsets, timestamps = map(np.asarray, rows.index_entries(with_tags=True))
    is_tag = np.zeros(len(offsets), np.bool_)
    is_tag[np.searchsorted(offsets, tagged, side="right") - 1] = True
    return hashes.astype(np.int64), offsets, timestamps, is_tag


def _join(pieces: Sequence[tuple[Any, ...]]) -> Expected:
    if not pieces:
        nothing = np.empty(0, np.int64)
        return Expected(nothing, nothing, nothing, nothing.astype(np.bool_))
    return Expected(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _compare_queues(
    compared: QueueCompared, layout: StoreLayout, queue_rows: QueueRows, evidence: TopicEvidence
) -> None:
    grouped = queue_rows.grouped()
    entries = grouped.entries.view(ENTRY_LAYOUT.dtype)
    log = CommitLog.of(layout)
    batch_topics = store_settings.batch_topics(layout.root)
    for topic, queue_id, own in grouped.queues:
        if topic in batch_topics:
            continue
        compared.runs[topic, queue_id] = list(grouped.runs(own))
        ends = (evidence.known_end_of(topic), evidence.end_of(topic))
        first_known, former = np.searchsorted(entries["physical_offset"][own], ends).tolist()
        if former:
            compared.former[topic] += first_known
            compared.inferred[topic] += former - first_known
            own = slice(own.start + former, own.stop)  # noqa: PLW2901 - the rest is compared
        records = QueueRecords(
            topic,
            queue_id,
            grouped.queue_offsets[own],
            entries["physical_offset"][own].astype(np.int64),
            entries["store_size"][own].astype(np.int64),
            entries["tags_code"][own].astype(np.int64),
            grouped.levels[own] > 0,
        )
        check_queue.compare(compared, layout.consume_queue, records, log)
    log.close()
