"""First phase of dispatch: writes the entries of a range of the log to files, the parts.

A job reads the parts only once, so they repeat nothing. Numbers are in native byte order.

An index part is two files, in log order. Entries of one record are consecutive.

============  ==========  =======================================================
suffix        an element  fields
============  ==========  =======================================================
``.hashes``   an entry    i32 key_hash
``.records``  a record    i64 physical_offset, i64 store_timestamp_ms, i32 entry_count
============  ==========  =======================================================

A queue part is grouped by queue, in log order within each:

===========  ========  ==================================================================
type         count     field
===========  ========  ==================================================================
20 bytes     n         consume queue entries in RocketMQ's format, big endian; with a delay level,
                       tags_code is the store timestamp
i64          n or 0    queue_offset; absent if it rises by one in all queues and no message has a
                       delay level
i32          n or 0    delay level; 0 if tags_code is final; absent if all are 0; only set in the
                       topic of delay levels
===========  ========  ==================================================================
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct, field

from rocketlens.bulk.ranges import LogRange, RangeReader, Walked, open_range
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, ENTRY_LAYOUT
from rocketlens.formats.rows import IndexEntries, Rows
from rocketlens.model.rocketmq import DELAY_TOPIC
from rocketlens.store.disk import Disk
from rocketlens.store.read.former_topics import Run, runs_of

MAX_QUEUE_RUNS: Final = 1_000
"""Runs of one queue in a range. If its topic was deleted more often, all records are one run."""
HASHES, RECORDS = ".hashes", ".records"
"""Suffixes of an index part."""
RECORD_FIELDS: Final = [("offset", "i8"), ("timestamp_ms", "i8"), ("entry_count", "i4")]


class ExtractTask(NamedTuple):
    """The range to read, the kinds of entries, and the directory of the parts."""

    log_range: LogRange
    directory: str
    with_index: bool
    with_tags: bool
    with_queues: bool
    disk: Disk


class IndexPart(NamedTuple):
    """The index entries of one range; ``stem``: the path of its files without suffix."""

    stem: str
    entry_count: int


class QueuePart(NamedTuple):
    """The entries of one queue in one range: ``record_count`` rows of a file from row ``start`` on.

    A new part begins at each queue offset 0.
    """

    topic: str
    queue_id: int
    path: str
    file_rows: int
    start: int
    record_count: int
    first_queue_offset: int
    last_queue_offset: int
    is_consecutive: bool
    """Whether the queue offsets rise by one from row to row."""
    second_queue_offset: int = -1
    """-1 if there is only one row."""
    first_offset: int = 0
    last_offset: int = 0

    @property
    def run(self) -> Run:
        return Run(*(getattr(self, name) for name in Run._fields))


class Extracted(Struct):
    """The result of one range."""

    walked: Walked
    index: IndexPart
    queues: list[QueuePart] = field(default_factory=list)


def extract(task: ExtractTask) -> Extracted:
    with open_range(task.log_range) as mapped:
        reader = RangeReader(task.log_range, mapped.view)
        queues = QueueRows()
        stem = Path(task.directory, uuid.uuid4().hex)
        index_count = 0
        with ExitStack() as stack:
            files = [
                stack.enter_context(task.disk.new_file(stem.with_suffix(suffix)))
                for suffix in ((HASHES, RECORDS) if task.with_index else ())
            ]
            for rows in reader:
                if files:
                    new = rows.index_entries(with_tags=task.with_tags)
                    for file, column in zip(files, (new.hashes, _records(new)), strict=True):
                        file.write(column)
                    index_count += len(new.hashes)
                if task.with_queues:
                    queues.add(rows)
        return Extracted(
            reader.walked,
            IndexPart(str(stem), index_count),
            queues.grouped().write(stem.with_suffix(".queue"), task.disk),
        )


def _records(new: IndexEntries) -> Any:
    """Return the records of entries, with the number of entries of each."""
    offsets = np.asarray(new.offsets)
    starts = np.flatnonzero(np.diff(offsets, prepend=-1))
    records = np.empty(len(starts), RECORD_FIELDS)
    records["offset"] = offsets[starts]
    records["timestamp_ms"] = np.asarray(new.timestamps)[starts]
    records["entry_count"] = np.diff(starts, append=len(offsets))
    return records


class _Chunk(NamedTuple):
    """Columns of records in log order. ``times`` and ``levels``: None without delay levels."""

    group: Any
    queue_offsets: Any
    entries: Any
    levels: Any
    times: Any


class QueueRows:
    """Collects the columns of consume queue entries."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._groups: dict[tuple[str, int], int] = {}

    def add(self, rows: Rows) -> None:
        rows = rows.queued()
        names, number_of_row = rows.queue_names()
        own = [self._groups.setdefault(name, len(self._groups)) for name in names]
        fields = rows.as_array
        levels = fields["delay_level"]
        has_levels = bool(levels.any())
        queue_offsets = fields["queue_offset"].copy()
        # The kernel writes an entry at its queue offset: here this is its place in log order.
        fields["queue_offset"] = np.arange(len(rows))
        entries = np.frombuffer(rows.queue_entries(0), f"V{ENTRY_BYTES}")
        self._chunks.append(
            _Chunk(
                np.array(own, np.int32)[number_of_row],
                queue_offsets,
                entries,
                levels.copy() if has_levels else None,
                fields["store_timestamp_ms"].copy() if has_levels else None,
            )
        )

    def grouped(self) -> "Grouped":
        if not self._groups:
            nothing = np.empty(0, np.int64)
            return Grouped([], np.empty(0, f"V{ENTRY_BYTES}"), nothing, nothing.astype(np.int32))
        group = np.concatenate([chunk.group for chunk in self._chunks])
        if len(self._groups) <= 1 << 16:
            group = group.astype(np.uint16)  # A stable sort of 16-bit numbers is a radix sort.
        order = np.argsort(group, kind="stable")
        edges = np.concatenate(([0], np.cumsum(np.bincount(group)))).tolist()
        queue_offsets = np.concatenate([chunk.queue_offsets for chunk in self._chunks])[order]
        entries = np.concatenate([chunk.entries for chunk in self._chunks])[order]
        levels = np.zeros(len(order), np.int32)
        queues: list[tuple[str, int, slice]] = []
        for (topic, queue_id), start, stop in zip(self._groups, edges, edges[1:], strict=False):
            own = slice(start, stop)
            if topic == DELAY_TOPIC:
                self._delay(order[own], entries[own], levels[own])
            queues.append((topic, queue_id, own))
        return Grouped(queues, entries, queue_offsets, levels)

    def _delay(self, chosen: Any, entries: Any, levels: Any) -> None:
        """Set store time and delay level of the chosen rows that have a level."""

        def column(name: str, kind: Any) -> Any:
            pieces = [getattr(chunk, name) for chunk in self._chunks]
            return np.concatenate(
                [
                    np.zeros(len(chunk.group), kind) if piece is None else piece
                    for piece, chunk in zip(pieces, self._chunks, strict=True)
                ]
            )[chosen]

        levels[:] = np.maximum(column("levels", np.int32), 0)
        is_delayed = levels > 0
        times = column("times", np.int64)
        entries.view(ENTRY_LAYOUT.dtype)["tags_code"][is_delayed] = times[is_delayed]


class Grouped(NamedTuple):
    """Consume queue entries by queue: each queue has a slice of the arrays."""

    queues: list[tuple[str, int, slice]]
    entries: Any
    """20 bytes each, as one ``V20``."""
    queue_offsets: Any
    levels: Any
    """Delay levels; above 0, the tags code is still the store time."""

    def write(self, path: Path, disk: Disk) -> list[QueuePart]:
        """Write a queue part; return the location of each queue's rows in it."""
        if not self.queues:
            return []
        parts = [part for queue in self.queues for part in self._parts(path, *queue)]
        columns = [self.entries]
        if self.levels.any():
            columns += [self.queue_offsets, self.levels]
        elif not all(part.is_consecutive for part in parts):
            columns.append(self.queue_offsets)
        with disk.new_file(path) as file:
            for column in columns:
                column.tofile(file)
        return parts

    def _parts(self, path: Path, topic: str, queue_id: int, own: slice) -> Iterator[QueuePart]:
        start = own.start
        for run in self.runs(own):
            stop = start + run.record_count
            yield QueuePart(
                topic=topic,
                queue_id=queue_id,
                path=str(path),
                file_rows=len(self.entries),
                start=start,
                is_consecutive=bool((np.diff(self.queue_offsets[start:stop]) == 1).all()),
                **run._asdict(),
            )
            start = stop

    def runs(self, own: slice) -> "Iterator[Run]":
        queue_offsets = self.queue_offsets[own]
        zeros = np.flatnonzero(queue_offsets == 0).tolist()
        entries = self.entries[own].view(ENTRY_LAYOUT.dtype)
        offsets: Any = np.ascontiguousarray(entries["physical_offset"])
        return runs_of(zeros if len(zeros) <= MAX_QUEUE_RUNS else [], queue_offsets, offsets)
