"""The index entries of a stretch of log as Arrow batches: the table ``index_entries`` of streams.

===================  =======  ====================================================================
column               type     meaning
===================  =======  ====================================================================
physical_offset      bigint   the record that an entry is of; ascending
key_hash             int      the hash of one of its keys, in RocketMQ's order; null: see below
store_timestamp_ms   bigint   when it was stored
next_offset          bigint   null, but in the last row of a stretch
===================  =======  ====================================================================

The last row of each stretch has no ``key_hash``. It says that the rows before it are all entries
of the records that begin from ``physical_offset`` to before ``next_offset``: so the collector
of a batch's stretches sees that none is missing.
"""

from collections.abc import Iterator
from typing import Any, Final

from rocketlens.bulk.ranges import LogRange, RangeReader
from rocketlens.formats.rows import IndexEntries
from rocketlens.late import np, pa

INDEX_ENTRY_COLUMNS: Final = (
    "physical_offset bigint, key_hash int, store_timestamp_ms bigint, next_offset bigint"
)


def batches(
    stretch: LogRange, first: LogRange | None, content: memoryview, *, with_tags: bool
) -> Iterator[Any]:
    """Return the entries of a stretch of one segment, whose bytes are ``content``.

    ``first`` is the stretch from its first record on; None if no record begins in it.
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


_NAMES: Final = [column.split()[0] for column in INDEX_ENTRY_COLUMNS.split(", ")]


class Gap(Exception):
    """The stretches of a batch are not contiguous from its start on."""


def collected(table: Any, begin: int) -> tuple[IndexEntries, int]:
    """Return the entries of all stretches of a batch, and where the last stretch ends.

    ``table``: a ``pyarrow.Table`` of the columns above, stretches in log order. Stretches that end
    at or before ``begin`` may be missing.

    :raises Gap: if the stretches do not reach from ``begin`` or before it to one end.
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
