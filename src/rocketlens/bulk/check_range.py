"""Compare one range of the log with its checksums, and its records with queues and index files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketlens import limits
from rocketlens.bulk import check_index, check_queue, store_settings
from rocketlens.bulk.check_index import Expected, IndexCompared, IndexFileFacts
from rocketlens.bulk.check_queue import QueueCompared, QueueRecords
from rocketlens.bulk.extract import ENTRIES_AT_ONCE, QueueRows
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
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import TopicEvidence
from rocketlens.store.read.log.commitlog import CommitLog

if TYPE_CHECKING:
    from rocketlens.bulk.ranges import Bytes, Rows


class RangeTask(NamedTuple):
    """Compare the records of one range with queues and index."""

    log_range: LogRange
    store: str
    files: tuple[IndexFileFacts, ...]
    check_crc: bool
    with_queues: bool
    evidence: TopicEvidence


@dataclass(slots=True)
class RangeChecked:
    """The result of one range."""

    walked: Walked
    findings: StoreFindings = field(default_factory=StoreFindings)
    index: IndexCompared = field(default_factory=IndexCompared)
    queues: QueueCompared = field(default_factory=QueueCompared)
    newest_timestamp_ms: int = 0


def check_range(task: RangeTask) -> RangeChecked:
    """Read one range and compare; runs in an executor."""
    from rocketlens.formats.compiled import kernels

    mapped, content = open_range(task.log_range)
    with mapped:
        log_range = true_start(task.log_range, content)
        if log_range is None:
            return RangeChecked(Walked(task.log_range, ending=RangeEnding.CLOSED))
        room = max(ENTRIES_AT_ONCE, limits.MAX_RECORD_ENTRIES)
        entries = kernels.EntryArrays.allocate(room)
        reader = RangeReader(log_range, content, entries, with_tags=True)
        checked = RangeChecked(reader.walked)
        base_offset = log_range.base_offset
        queue_rows = QueueRows(content, base_offset)
        expected: list[tuple[Any, ...]] = []
        for rows in reader:
            if task.check_crc:
                _check_records(checked, content, base_offset, rows)
            checked.newest_timestamp_ms = max(
                checked.newest_timestamp_ms, int(rows["store_timestamp_ms"].max())
            )
            expected.append(_expected(rows, entries.part(0, reader.entry_count)))
            if task.with_queues:
                queue_rows.add(rows)
        low = base_offset + log_range.start
        high = base_offset + max(reader.walked.next_position, log_range.stop)
        checked.index = check_index.compare(_join(expected), low, high, task.files)
        _compare_queues(checked.queues, StoreLayout.of(Path(task.store)), queue_rows, task.evidence)
        del content
    return checked


def _check_records(checked: RangeChecked, content: "Bytes", base_offset: int, rows: "Rows") -> None:
    from rocketlens.formats.compiled import kernels

    for row in rows[~kernels.crc_ok(content, base_offset, rows)]:
        offset = int(row["physical_offset"])
        detail = "it does not have its checksum"
        checked.findings.add(Finding(FindingKind.RECORD_CHECKSUM, detail, physical_offset=offset))


def _expected(rows: "Rows", entries: Any) -> tuple[Any, ...]:
    """Copy the entries of some rows, and mark those of tags: the last of each row with tags."""
    import numpy as np

    tagged = rows["physical_offset"][(rows["tags_length"] > 0) & is_indexed(rows["sys_flag"])]
    offsets = entries.offsets.copy()
    is_tag = np.zeros(len(offsets), np.bool_)
    is_tag[np.searchsorted(offsets, tagged, side="right") - 1] = True
    hashes = entries.hashes.astype(np.int64)
    return hashes, offsets, entries.timestamps.copy(), is_tag


def _join(pieces: Sequence[tuple[Any, ...]]) -> Expected:
    import numpy as np

    if not pieces:
        nothing = np.empty(0, np.int64)
        return Expected(nothing, nothing, nothing, nothing.astype(np.bool_))
    return Expected(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _compare_queues(
    compared: QueueCompared, layout: StoreLayout, queue_rows: QueueRows, evidence: TopicEvidence
) -> None:
    import numpy as np

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
