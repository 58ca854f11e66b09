"""Checks consume queues: the entries of a range's records, and surplus entries of a queue."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rocketlens.bulk.report import Finding, FindingKind, StoreFindings
from rocketlens.errors import RecordError
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT, FILLER_SIZE, LOWEST_TAGS_CODE
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueFile
from rocketlens.store.read.former_topics import Run
from rocketlens.store.read.log.commitlog import CommitLog

Numbers = npt.NDArray[np.int64]


class QueueRecords(NamedTuple):
    """The expected entries of records of one queue. ``tags``: the store time if delayed."""

    topic: str
    queue_id: int
    queue_offsets: Numbers
    offsets: Numbers
    sizes: Numbers
    tags: Numbers
    is_delayed: npt.NDArray[np.bool_]


class QueueCompared(Struct):
    """The comparison of a range's records with the queues."""

    findings: StoreFindings = field(default_factory=StoreFindings)
    sound: dict[tuple[str, int], int] = field(default_factory=dict)
    undispatched: int = 0
    """Records after the end of their queue: perhaps not dispatched yet."""
    former: Counter[str] = field(default_factory=Counter)
    """Records without an entry because their topic was deleted, by topic."""
    inferred: Counter[str] = field(default_factory=Counter)
    """Records whose topic is deleted only according to missing queue files, by topic."""
    runs: dict[tuple[str, int], list[Run]] = field(default_factory=dict)
    """All records of each queue, to find deleted topics."""
    repeated: dict[tuple[str, int], list[Numbers]] = field(default_factory=dict)
    """Physical offsets of records whose queue offset belongs to an earlier record."""


def compare(compared: QueueCompared, consumequeue: Path, records: QueueRecords, log: Any) -> None:
    """Compare the entries of some records of one queue with those expected.

    ``log``: to read the record that a wrong entry leads to.
    """
    if not is_topic_name(records.topic):
        return
    queue = ConsumeQueue(consumequeue / records.topic / str(records.queue_id))
    is_compared = np.zeros(len(records.queue_offsets), np.bool_)
    repeated: list[int] = []
    sound = 0
    for file in queue.files:
        index = records.queue_offsets - file.first_queue_offset
        inside = np.flatnonzero((index >= 0) & (index < file.entry_count))
        if not len(inside):
            continue
        with fs.MappedFile(file.path) as mapped:
            actual = _entries(mapped, file.entry_count)[index[inside]]
        is_there = (actual["store_size"] > 0) & (actual["store_size"] != FILLER_SIZE)
        is_compared[inside] |= is_there
        is_right = (
            is_there
            & (actual["physical_offset"] == records.offsets[inside])
            & (actual["store_size"] == records.sizes[inside])
            & _tags_agree(actual["tags_code"].astype(np.int64), records, inside)
        )
        sound += int(np.count_nonzero(is_right))
        for number in np.flatnonzero(is_there & ~is_right).tolist():
            one = inside[number]
            if _is_repetition(log, records, int(one), int(actual["physical_offset"][number])):
                repeated.append(int(records.offsets[one]))
            else:
                detail = f"it names physical offset {int(actual['physical_offset'][number])}"
                compared.findings.add(
                    _finding(FindingKind.QUEUE_WRONG, detail, records, int(one), str(file.path))
                )
    name = (records.topic, records.queue_id)
    if repeated:
        compared.repeated.setdefault(name, []).append(np.array(repeated, np.int64))
    compared.sound[name] = compared.sound.get(name, 0) + sound
    end = queue.max_offset
    for one in np.flatnonzero(~is_compared).tolist():
        if records.queue_offsets[one] >= end and queue.files:
            compared.undispatched += 1
        else:
            compared.findings.add(
                _finding(FindingKind.QUEUE_MISSING, "it has no entry", records, one)
            )
    queue.close()


def _tags_agree(tags: Numbers, records: QueueRecords, inside: Numbers) -> Any:
    """Return which tags codes match; the durations of delay levels are unknown."""
    wanted = records.tags[inside]
    is_right = np.where(records.is_delayed[inside], tags >= wanted, tags == wanted)
    return is_right | (tags < LOWEST_TAGS_CODE)


def _is_repetition(log: CommitLog, records: QueueRecords, one: int, offset: int) -> bool:
    """Return whether an earlier record has the same queue offset, and with it the entry."""
    if offset >= records.offsets[one]:
        return False
    try:
        other = log.record_at(offset, check_crc=False)
    except RecordError:
        # If the cleaner has deleted the record, its entry is correct.
        return offset < log.min_offset
    own = (records.topic, records.queue_id, int(records.queue_offsets[one]))
    return (other.topic, other.queue_id, other.queue_offset) == own


def _finding(
    kind: FindingKind, detail: str, records: QueueRecords, one: int, file: str | None = None
) -> Finding:
    return Finding(
        kind,
        detail,
        file,
        records.topic,
        records.queue_id,
        int(records.queue_offsets[one]),
        int(records.offsets[one]),
    )


def _entries(mapped: fs.MappedFile, count: int) -> Any:
    return np.frombuffer(mapped.view, ENTRY_LAYOUT.dtype, count).copy()


class QueueCheckTask(NamedTuple):
    """One queue in which to find entries without a record; ``sound`` of its entries have one.

    Records below ``end`` belong to a deleted topic, so no entry may lead to them.
    """

    store: str
    topic: str
    queue_id: int
    sound: int
    end: int = 0


class QueueChecked(NamedTuple):
    """The findings, and the number of entries whose records are not deleted."""

    findings: StoreFindings
    entries: int


def check_queue(task: QueueCheckTask) -> QueueChecked:
    findings = StoreFindings()
    layout = StoreLayout.of(Path(task.store))
    log = CommitLog.of(layout)
    directory = layout.consume_queue / task.topic / str(task.queue_id)
    queue = ConsumeQueue(directory)
    names = {file.path.name for file in queue.files}
    for entry in fs.entries(directory):
        if entry.name not in names:
            findings.add(
                Finding(FindingKind.QUEUE_FILE, "this is no name of a queue file", file=entry.path)
            )
    live = [(file, _live(file, log.min_offset)) for file in queue.files]
    entries = sum(len(found) for _, found in live)
    has_former = any((found[:, 1] < task.end).any() for _, found in live)
    if entries > task.sound or has_former:
        for file, found in live:
            for queue_offset, offset, size in found.tolist():
                reason = _entry_error(log, task, queue_offset, offset, size)
                if reason:
                    own = (task.topic, task.queue_id, queue_offset, offset)
                    findings.add(Finding(FindingKind.QUEUE_EXTRA, reason, str(file.path), *own))
    log.close()
    return QueueChecked(findings, entries)


def _live(file: QueueFile, min_offset: int) -> Any:
    """Return queue offset, physical offset and size of entries whose record is not deleted."""
    with fs.MappedFile(file.path) as mapped:
        entries = _entries(mapped, file.entry_count)
    is_live = (entries["store_size"] > 0) & (entries["store_size"] != FILLER_SIZE)
    is_live &= entries["physical_offset"] >= min_offset
    numbers = np.flatnonzero(is_live)
    columns = (
        numbers + file.first_queue_offset,
        entries["physical_offset"][numbers],
        entries["store_size"][numbers],
    )
    return np.stack([column.astype(np.int64) for column in columns], axis=1)


def _entry_error(
    log: CommitLog, task: QueueCheckTask, queue_offset: int, offset: int, size: int
) -> str:
    """Return the reason why no record belongs to an entry, or an empty text."""
    try:
        record = log.record_at(offset, check_crc=False)
    except RecordError as error:
        return f"it names no record: {error}"
    if (record.topic, record.queue_id, record.queue_offset) != (
        task.topic,
        task.queue_id,
        queue_offset,
    ):
        return f"it names a record of {record.topic}/{record.queue_id}/{record.queue_offset}"
    if offset < task.end:
        return "it names a record from before its topic was deleted"
    return "" if record.total_size == size else f"its size is {size}, not {record.total_size}"
