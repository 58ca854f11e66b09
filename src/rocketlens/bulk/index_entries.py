"""Converts index entries of the log to and from Arrow: the table ``index_entries`` of streams.

===================  =======  ====================================================================
column               type     meaning
===================  =======  ====================================================================
physical_offset      bigint   the record of the entry; ascending
key_hash             int      the hash of one of its keys, in RocketMQ's order; null: see below
store_timestamp_ms   bigint   the store time of the record
next_offset          bigint   null except in the last row of a stretch
===================  =======  ====================================================================

The last row of each stretch has no ``key_hash``. The rows before it are all entries of the records
that begin from ``physical_offset`` to before ``next_offset``. So a missing stretch is detected.
"""

from collections.abc import Iterator
from typing import Any, Final

from rocketlens.bulk.ranges import LogRange, RangeReader
from rocketlens.formats.rows import IndexEntries
from rocketlens.late import np, pa

INDEX_ENTRY_COLUMNS: Final = (
    "physical_offset bigint, key_hash int, store_timestamp_ms bigint, next_offset bigint"
)
_NAMES: Final = [column.split()[0] for column in INDEX_ENTRY_COLUMNS.split(", ")]


def batches(
    stretch: LogRange, first: LogRange | None, content: memoryview, *, with_tags: bool
) -> Iterator[Any]:
    """Yield the entries of a stretch of one segment, whose bytes are ``content``.

    ``first``: the stretch from its first record on, or None if no record begins in it.
    """
    if first is not None:
        for rows in RangeReader(first, content):
            hashes, offsets, timestamps = map(np.asarray, rows.index_entries(with_tags=with_tags))
            columns = [*map(pa.array, (offsets, hashes, timestamps))]
            columns.append(pa.nulls(len(offsets), pa.int64()))
            yield pa.RecordBatch.from_arrays(columns, _NAMES)
    base = stretch.base_offset
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([base + stretch.start], pa.int64()),
            pa.array([None], pa.int32()),
            pa.array([None], pa.int64()),
            pa.array([base + stretch.stop], pa.int64()),
        ],
        _NAMES,
    )


class Gap(Exception):
    """The stretches of a batch are not contiguous."""


def collect(table: Any, begin: int) -> tuple[IndexEntries, int]:
    """Return the entries of all stretches of a batch, and the end of the last stretch.

    ``table``: a ``pyarrow.Table`` of the columns above, stretches in log order. Stretches that end
    at or before ``begin`` can be missing.

    :raises Gap: if another stretch is missing.
    """
    is_end = table["key_hash"].is_null().to_numpy(zero_copy_only=False)
    ends = table.filter(is_end)
    reached = begin
    for start, stop in zip(
        ends["physical_offset"].to_pylist(), ends["next_offset"].to_pylist(), strict=True
    ):
        if start > reached:
            raise Gap(f"nothing was read of physical offsets {reached} to {start}")
        reached = max(reached, stop)
    rows = table.filter(~is_end)

    def column(name: str, kind: Any) -> Any:
        return np.ascontiguousarray(rows[name].to_numpy(), kind)

    entries = IndexEntries(
        column("key_hash", np.int32),
        column("physical_offset", np.int64),
        column("store_timestamp_ms", np.int64),
    )
    return entries, reached
