"""Second phase of dispatch: index files from index parts, several tasks writing one file.

Slots are empty in every new file, so files are independent; within one file a chain never leaves
its slot, so tasks that own different slots of a file write different bytes of it.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketlens.bulk.extract import HASHES, RECORD_FIELDS, RECORDS, IndexPart
from rocketlens.formats.index_file import HEADER_BYTES, SLOT_BYTES, Geometry, IndexHeader
from rocketlens.store.disk import Disk
from rocketlens.store.layout import index_file_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketlens.formats.compiled.kernels import EntryArrays

_TASKS_PER_CORE: Final = 4


class IndexSlice(NamedTuple):
    """``entry_count`` entries of a part from entry ``start`` on."""

    part: IndexPart
    start: int
    entry_count: int


class IndexPlan(NamedTuple):
    """One index file to create."""

    name: str
    slices: tuple[IndexSlice, ...]
    header: IndexHeader
    since_timestamp_ms: int


class BuildUnit(NamedTuple):
    """Write the entries of slots ``slot_low .. slot_high - 1`` into a file of the right size."""

    path: str
    plan: IndexPlan
    slot_count: int
    slot_low: int
    slot_high: int


class IndexTask(NamedTuple):
    """Units that one task writes to ``disk``, one after the other."""

    units: tuple[BuildUnit, ...]
    disk: Disk


def plan_files(parts: Sequence[IndexPart], geometry: Geometry) -> list[IndexPlan]:
    """Split the entries of all parts, in log order, into files of ``geometry``."""
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
    """Create the files, all zeros, and return the tasks that fill them.

    Each task looks at all entries of its file, so files are only split as far as that many tasks
    can run at once; and small files share a task.
    """
    splits = min(-(-parallelism // max(len(plans), 1)), geometry.slot_count)
    units: list[BuildUnit] = []
    for plan in plans:
        path = directory / plan.name
        disk.make_reserved_file(path, geometry.file_bytes)
        edges = [geometry.slot_count * number // splits for number in range(splits + 1)]
        units += [
            BuildUnit(str(path), plan, geometry.slot_count, low, high)
            for low, high in pairwise(edges)
        ]
    share = -(-len(units) // (_TASKS_PER_CORE * parallelism))
    if share == 0:
        return []
    return [IndexTask(tuple(units[n : n + share]), disk) for n in range(0, len(units), share)]


def build(task: IndexTask) -> list[int]:
    """Write all units; return the number of slots that each uses. Runs in an executor."""
    return [_build(unit, task.disk) for unit in task.units]


def _build(unit: BuildUnit, disk: Disk) -> int:
    with closing(disk.open_file(Path(unit.path))) as file:
        return _fill(unit, file.array())


def _fill(unit: BuildUnit, content: "npt.NDArray[np.uint8]") -> int:
    from rocketlens.formats.compiled import kernels

    entries_start = HEADER_BYTES + unit.slot_count * SLOT_BYTES
    slots, entries = content[HEADER_BYTES:entries_start], content[entries_start:]
    used = 0
    first_entry = 1
    for piece in unit.plan.slices:
        new = _read(piece)
        is_first = first_entry == 1
        header = unit.plan.header
        used += kernels.build_index_file(
            new,
            slots,
            entries,
            slot_count=unit.slot_count,
            begin_timestamp_ms=unit.plan.since_timestamp_ms
            if is_first
            else header.begin_timestamp_ms,
            first_entry=first_entry,
            slot_range=(unit.slot_low, unit.slot_high),
        )
        first_entry += piece.entry_count
    return used


def finish(tasks: Sequence[IndexTask], used: Sequence[Sequence[int]], disk: Disk) -> None:
    """Write the headers, which need the slots used by all tasks of a file."""
    slots_used: dict[str, int] = {}
    units = [unit for task in tasks for unit in task.units]
    for unit, count in zip(units, chain.from_iterable(used), strict=True):
        slots_used[unit.path] = slots_used.get(unit.path, 0) + count
    for unit in {unit.path: unit for unit in units}.values():
        header = unit.plan.header._replace(used_slot_count=slots_used[unit.path])
        with closing(disk.open_file(Path(unit.path))) as file:
            file.content[:HEADER_BYTES] = header.encode()


def _read(piece: IndexSlice) -> "EntryArrays":
    """Return the entries of a slice."""
    import numpy as np

    from rocketlens.formats.compiled.kernels import EntryArrays

    start, stop = piece.start, piece.start + piece.entry_count
    hashes = np.fromfile(
        piece.part.stem + HASHES, np.int32, piece.entry_count, offset=start * np.int32().itemsize
    )
    records = np.fromfile(piece.part.stem + RECORDS, RECORD_FIELDS)

    def column(name: str) -> Any:
        return np.repeat(records[name], records["entry_count"])[start:stop]

    return EntryArrays(hashes, column("offset"), column("timestamp_ms"))


def _entry(piece: IndexSlice, number: int) -> tuple[int, int]:
    """Return physical offset and store timestamp of one entry of a slice.

    The driver asks for them, which does not load the kernels.
    """
    import numpy as np

    records = np.fromfile(piece.part.stem + RECORDS, RECORD_FIELDS)
    ends = np.cumsum(records["entry_count"])
    record = records[np.searchsorted(ends, piece.start + number, side="right")]
    return int(record["offset"]), int(record["timestamp_ms"])
