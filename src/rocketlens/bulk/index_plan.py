"""Second phase of dispatch: writes index files from index parts.

Every new file begins with empty slots, so files are independent.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketlens.bulk.extract import HASHES, RECORD_FIELDS, RECORDS, IndexPart
from rocketlens.formats.compiled import index
from rocketlens.formats.index_file import HEADER_BYTES, SLOT_BYTES, Geometry, IndexHeader
from rocketlens.formats.rows import IndexEntries
from rocketlens.store.disk import Disk
from rocketlens.store.layout import index_file_name

_TASKS_PER_CORE: Final = 4


class IndexSlice(NamedTuple):
    """Entries of a part, ``entry_count`` from entry ``start`` on."""

    part: IndexPart
    start: int
    entry_count: int


class IndexPlan(NamedTuple):
    """One index file to create."""

    name: str
    slices: tuple[IndexSlice, ...]
    header: IndexHeader
    since_timestamp_ms: int


class IndexTask(NamedTuple):
    """The files in ``directory`` that one task creates."""

    plans: tuple[IndexPlan, ...]
    directory: str
    geometry: Geometry
    disk: Disk


def plan_files(parts: Sequence[IndexPart], geometry: Geometry) -> list[IndexPlan]:
    room = geometry.entry_count - 1
    cuts: list[list[IndexSlice]] = []
    left = 0
    for part in parts:
        start = 0
        while start < part.entry_count:
            if not left:
                cuts.append([])
                left = room
            count = min(left, part.entry_count - start)
            cuts[-1].append(IndexSlice(part, start, count))
            start += count
            left -= count
    plans: list[IndexPlan] = []
    for slices in cuts:
        first_offset, first_timestamp_ms = _entry(slices[0], 0)
        last_offset, last_timestamp_ms = _entry(slices[-1], slices[-1].entry_count - 1)
        header = IndexHeader(
            begin_timestamp_ms=first_timestamp_ms,
            end_timestamp_ms=last_timestamp_ms,
            begin_offset=first_offset,
            end_offset=last_offset,
            used_slot_count=0,
            next_entry=sum(piece.entry_count for piece in slices) + 1,
        )
        before = plans[-1] if plans else None
        name = index_file_name(first_timestamp_ms, before.name if before else "")
        since_ms = before.header.end_timestamp_ms if before else 0
        plans.append(IndexPlan(name, tuple(slices), header, since_ms))
    return plans


def tasks_of(
    plans: Sequence[IndexPlan], directory: Path, geometry: Geometry, parallelism: int, disk: Disk
) -> list[IndexTask]:
    """Return the tasks that write the files; small files share a task."""
    share = -(-len(plans) // (_TASKS_PER_CORE * parallelism))
    return [
        IndexTask(tuple(plans[start : start + share]), str(directory), geometry, disk)
        for start in range(0, len(plans), share or 1)
    ]


def build(task: IndexTask) -> None:
    for plan in task.plans:
        path = Path(task.directory, plan.name)
        task.disk.make_reserved_file(path, task.geometry.file_bytes)
        with closing(task.disk.open_file(path)) as file:
            used = _fill(plan, file.array(), task.geometry.slot_count)
            file.content[:HEADER_BYTES] = plan.header._replace(used_slot_count=used).encode()


def _fill(plan: IndexPlan, content: npt.NDArray[np.uint8], slot_count: int) -> int:
    """Put the entries of a plan into an empty file; return the number of used slots."""
    entries_start = HEADER_BYTES + slot_count * SLOT_BYTES
    used, first_entry, begin_ms = 0, 1, plan.since_timestamp_ms
    for piece in plan.slices:
        slots, entries = content[HEADER_BYTES:entries_start], content[entries_start:]
        used += index.build(*_read(piece), first_entry, begin_ms, slot_count, slots, entries)
        first_entry += piece.entry_count
        begin_ms = plan.header.begin_timestamp_ms
    return used


def _read(piece: IndexSlice) -> IndexEntries:
    start, stop = piece.start, piece.start + piece.entry_count
    hashes = np.fromfile(
        piece.part.stem + HASHES, np.int32, piece.entry_count, offset=start * np.int32().itemsize
    )
    records = np.fromfile(piece.part.stem + RECORDS, RECORD_FIELDS)

    def column(name: str) -> Any:
        return np.repeat(records[name], records["entry_count"])[start:stop]

    return IndexEntries(hashes, column("offset"), column("timestamp_ms"))


def _entry(piece: IndexSlice, number: int) -> tuple[int, int]:
    records = np.fromfile(piece.part.stem + RECORDS, RECORD_FIELDS)
    ends = np.cumsum(records["entry_count"])
    record = records[np.searchsorted(ends, piece.start + number, side="right")]
    return int(record["offset"]), int(record["timestamp_ms"])
