"""Second phase of dispatch: writes consume queue files from queue parts.

The position of an entry follows from its queue offset, so files are independent. In a healthy log
the queue offsets of a queue rise by one from record to record, and its files are consecutive slices
of the parts. Otherwise (records were lost, or dispatched twice) one task builds the whole queue.
Records of deleted topics are left out (:mod:`rocketlens.store.read.former_topics`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketlens import limits
from rocketlens.bulk.extract import QueuePart
from rocketlens.formats.commitlog_record import MIN_RECORD_BYTES
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, ENTRY_LAYOUT, FILLER
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.store.disk import Disk
from rocketlens.store.read.former_topics import Run, TopicEvidence, ends_of_former

Entries = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

ENTRIES_PER_TASK: Final = 1_000_000
_SINGLE_CORRECTIONS: Final = 1_000
_WITNESSES: Final = 3
"""Consecutive records that together overrule the first one of a queue."""


class QueueUnit(NamedTuple):
    """A unit of work: one file of a regular queue, or a whole irregular queue.

    ``queue_offset``: that of the first row of ``parts`` for a regular queue, else None.
    """

    directory: str
    parts: tuple[QueuePart, ...]
    queue_offset: int | None
    entry_count: int


class QueueBuildTask(NamedTuple):
    """Units to write. ``delays_ms[level]`` is added to the store time of delayed messages."""

    units: tuple[QueueUnit, ...]
    file_entries: int
    delays_ms: tuple[int, ...]
    disk: Disk


class QueueResult(NamedTuple):
    """The result of a task. ``repeated`` records have the queue offset of an earlier record."""

    files: int
    entries: int
    repeated: int
    impossible: int


class PartsToBuild(NamedTuple):
    """The parts whose records get entries.

    ``former``: counts of records of deleted topics, by topic. ``inferred``: topics that are deleted
    only according to missing queue files.
    """

    parts: list[QueuePart]
    former: Counter[str]
    inferred: set[str]


def parts_to_build(parts: Sequence[QueuePart], evidence: TopicEvidence) -> PartsToBuild:
    runs: dict[str, dict[int, list[Run]]] = {}
    for part in parts:
        runs.setdefault(part.topic, {}).setdefault(part.queue_id, []).append(part.run)
    ends: dict[tuple[str, int], int] = {}
    for topic, queues in runs.items():
        begins = ends_of_former(queues)
        end = evidence.end_of(topic)
        ends |= {(topic, queue_id): max(end, begins.get(queue_id, 0)) for queue_id in queues}
    living: list[QueuePart] = []
    former: Counter[str] = Counter()
    inferred: set[str] = set()
    for part in parts:
        rest = _from(part, ends[part.topic, part.queue_id])
        if rest.record_count:
            living.append(rest)
        if rest.record_count < part.record_count:
            former[part.topic] += part.record_count - rest.record_count
            if part.last_offset >= evidence.known_end_of(part.topic) and (
                part.last_offset < evidence.end_of(part.topic)
            ):
                inferred.add(part.topic)
    return PartsToBuild(living, former, inferred)


def _from(part: QueuePart, end: int) -> QueuePart:
    """Return the rows of a part with records at or after physical offset ``end``."""
    if part.first_offset >= end:
        return part
    if part.last_offset < end:
        return part._replace(record_count=0)
    entries = read_entries(part, (0,))
    offsets = np.ascontiguousarray(entries[:, :8]).view(">i8").ravel()
    left_out = int(np.searchsorted(offsets, end))
    rest = part._replace(
        start=part.start + left_out,
        record_count=part.record_count - left_out,
        first_offset=int(offsets[left_out]),
    )
    queue_offsets = read_queue_offsets(part)[left_out:]
    return rest._replace(
        first_queue_offset=int(queue_offsets[0]),
        is_consecutive=bool((np.diff(queue_offsets) == 1).all()),
    )


def plan_queues(
    parts: Sequence[QueuePart], directory: Path, file_entries: int
) -> tuple[list[QueueUnit], int, list[str]]:
    """Return the units of work, the number of queues, and topics with an invalid name."""
    queues: dict[tuple[str, int], list[QueuePart]] = {}
    unsafe: set[str] = set()
    for part in parts:
        if is_topic_name(part.topic) and part.queue_id >= 0:
            queues.setdefault((part.topic, part.queue_id), []).append(part)
        else:
            unsafe.add(part.topic)
    units: list[QueueUnit] = []
    for (topic, queue_id), own in queues.items():
        path = directory / topic / str(queue_id)
        if has_consecutive_offsets(own):
            units += _file_units(str(path), own, file_entries)
        else:
            units.append(
                QueueUnit(str(path), tuple(own), None, sum(part.record_count for part in own))
            )
    return units, len(queues), sorted(unsafe)


def has_consecutive_offsets(parts: Sequence[QueuePart]) -> bool:
    if not 0 <= parts[0].first_queue_offset <= limits.MAX_QUEUE_OFFSET:
        return False
    return all(part.is_consecutive for part in parts) and all(
        after.first_queue_offset == before.last_queue_offset + 1
        for before, after in pairwise(parts)
    )


def _file_units(
    directory: str, parts: Sequence[QueuePart], file_entries: int
) -> Iterator[QueueUnit]:
    taken: list[QueuePart] = []
    queue_offset = parts[0].first_queue_offset
    for part in parts:
        rest = part
        while rest.record_count:
            edge = (rest.first_queue_offset // file_entries + 1) * file_entries
            count = min(rest.record_count, edge - rest.first_queue_offset)
            taken.append(rest._replace(record_count=count))
            rest = rest._replace(
                start=rest.start + count,
                record_count=rest.record_count - count,
                first_queue_offset=rest.first_queue_offset + count,
            )
            if rest.first_queue_offset == edge:
                yield QueueUnit(directory, tuple(taken), queue_offset, edge - queue_offset)
                taken, queue_offset = [], edge
    if taken:
        yield QueueUnit(directory, tuple(taken), queue_offset, sum(p.record_count for p in taken))


def tasks_of(
    units: Sequence[QueueUnit],
    file_entries: int,
    delays_ms: Sequence[int],
    parallelism: int,
    disk: Disk,
) -> list[QueueBuildTask]:
    for directory in sorted({unit.directory for unit in units}):
        disk.make_directory(Path(directory))
    total = sum(unit.entry_count + 1 for unit in units)
    share = min(-(-total // max(2 * parallelism, 1)), ENTRIES_PER_TASK)
    tasks: list[QueueBuildTask] = []
    batch: list[QueueUnit] = []
    size = 0
    for unit in units:
        batch.append(unit)
        size += unit.entry_count + 1
        if size >= share:
            tasks.append(QueueBuildTask(tuple(batch), file_entries, tuple(delays_ms), disk))
            batch, size = [], 0
    if batch:
        tasks.append(QueueBuildTask(tuple(batch), file_entries, tuple(delays_ms), disk))
    return tasks


def build(task: QueueBuildTask) -> QueueResult:
    results = [
        _build_irregular(unit, task)
        if unit.queue_offset is None
        else _build_file(unit, unit.queue_offset, task)
        for unit in task.units
    ]
    return QueueResult(*map(sum, zip(*results, strict=True)))


def _build_file(unit: QueueUnit, queue_offset: int, task: QueueBuildTask) -> QueueResult:
    first, fillers = divmod(queue_offset, task.file_entries)
    with _create(unit.directory, first, task) as file:
        file.write(FILLER.encode() * fillers)
        for part in unit.parts:
            file.write(read_entries(part, task.delays_ms).data)
        file.truncate(task.file_entries * ENTRY_BYTES)
    return QueueResult(1, unit.entry_count, 0, 0)


def _build_irregular(unit: QueueUnit, task: QueueBuildTask) -> QueueResult:
    """Write all files of a queue. Fill its holes, and leave out repeated queue offsets."""
    entries = np.concatenate([read_entries(part, task.delays_ms) for part in unit.parts])
    queue_offsets = np.concatenate([read_queue_offsets(part) for part in unit.parts])
    offsets = np.ascontiguousarray(entries[:, :8]).view(">i8").ravel().astype(np.int64)
    is_kept, is_impossible = resolve_repeated(queue_offsets, offsets)
    entries, kept = entries[is_kept], queue_offsets[is_kept]
    filler = np.frombuffer(FILLER.encode(), np.uint8)
    files = 0
    if len(kept):
        for number in range(kept[0] // task.file_entries, kept[-1] // task.file_entries + 1):
            base = number * task.file_entries
            low, high = np.searchsorted(kept, [base, base + task.file_entries])
            is_last = bool(high == len(kept))
            length = int(kept[-1]) + 1 - base if is_last else task.file_entries
            content = np.tile(filler, (length, 1))
            content[kept[low:high] - base] = entries[low:high]
            with _create(unit.directory, number, task) as file:
                file.write(content.tobytes())
                file.truncate(task.file_entries * ENTRY_BYTES)
            files += 1
    impossible = int(np.count_nonzero(is_impossible))
    return QueueResult(files, len(kept), len(queue_offsets) - len(kept) - impossible, impossible)


def resolve_repeated(queue_offsets: Numbers, offsets: Numbers) -> "tuple[Any, Any]":
    """Return masks of the records that get their queue offset, and of impossible queue offsets.

    Both arguments are in log order. As in RocketMQ, the first record with a queue offset gets it,
    and an offset below the end of the queue is a repetition. An offset is damage if the log between
    two records of the queue is too short for the records between them.
    """
    is_impossible = (queue_offsets < 0) | (queue_offsets > limits.MAX_QUEUE_OFFSET)
    kept = np.flatnonzero(~is_impossible)
    for correction in range(_SINGLE_CORRECTIONS + 1):
        possible = np.flatnonzero(~is_impossible)
        claims = queue_offsets[possible]
        end = np.maximum.accumulate(np.concatenate((np.full(1, -1, np.int64), claims[:-1])))
        kept = possible[claims > end]
        if not correction and _is_first_odd(claims):
            is_impossible[possible[0]] = True
            continue
        room = 1 + np.diff(offsets[kept]) // MIN_RECORD_BYTES
        jumps = np.flatnonzero(np.diff(queue_offsets[kept]) > room) + 1
        if not len(jumps):
            break
        once = correction < _SINGLE_CORRECTIONS
        is_impossible[kept[jumps[:1] if once else jumps]] = True
    is_kept = np.zeros(len(queue_offsets), np.bool_)
    is_kept[kept] = True
    return is_kept, is_impossible


def _is_first_odd(claims: Numbers) -> bool:
    """Return whether the first queue offset contradicts the next ones.

    If it is too high, all later ones would count as repeated.
    """
    if len(claims) < _WITNESSES + 1:
        return False
    after = claims[1 : _WITNESSES + 1]
    return bool(claims[0] > after[0] and (after[1:] == after[:-1] + 1).all())


def read_entries(part: QueuePart, delays_ms: Sequence[int]) -> Entries:
    """Return the entries of a part, 20 bytes each, with the delivery times of delayed messages."""
    with Path(part.path).open("rb") as file:
        file.seek(part.start * ENTRY_BYTES)
        content = np.fromfile(file, np.uint8, part.record_count * ENTRY_BYTES)
        file.seek(part.file_rows * (ENTRY_BYTES + 8) + part.start * 4)
        levels = np.fromfile(file, np.int32, part.record_count)
    entries = content.reshape(-1, ENTRY_BYTES)
    # Empty if the file has no delay levels.
    if levels.any():
        delayed = np.flatnonzero(levels)
        delays = np.array(delays_ms, np.int64)[np.minimum(levels[delayed], len(delays_ms) - 1)]
        # Their tags code is the store time.
        entries.view(ENTRY_LAYOUT.dtype)["tags_code"][delayed, 0] += delays
    return entries


def read_queue_offsets(part: QueuePart) -> Numbers:
    if part.is_consecutive:
        first = part.first_queue_offset
        return np.arange(first, first + part.record_count, dtype=np.int64)
    with Path(part.path).open("rb") as file:
        file.seek(part.file_rows * ENTRY_BYTES + part.start * 8)
        return np.fromfile(file, np.int64, part.record_count)


def _create(directory: str, number: int, task: QueueBuildTask) -> BinaryIO:
    name = f"{number * task.file_entries * ENTRY_BYTES:020}"
    return task.disk.new_file(Path(directory, name))
