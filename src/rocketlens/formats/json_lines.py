"""Messages as lines of JSON, many at once, by the kernel of
`rocketlens.formats.compiled.kernels_json`.

A message with a body of 200 bytes takes 1.0 us, and 33 us without the kernel
(`rocketlens.terminal.as_json.write_message`).

Importing this module loads numba: see `rocketlens.formats.compiled.kernels`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rocketlens import limits
from rocketlens.formats.compiled import kernels, kernels_json
from rocketlens.formats.compiled.kernels_device import ByteArray
from rocketlens.formats.compiled.kernels_scan import RowArray


class JsonLines(NamedTuple):
    """Lines of JSON side by side, and the position behind each row's; some rows have none."""

    text: ByteArray
    ends: NDArray[np.int64]


def json_lines(buffer: ByteArray, base_offset: int, rows: RowArray) -> Iterator[JsonLines]:
    """Write usual messages as lines of JSON: see `rocketlens.formats.compiled.kernels_json`.

    Yields the lines of some rows after the other, each time up to 16 MiB or one row's. They hold
    until the next.

    :raises BadInput: when a row doesn't belong to the buffer.
    """
    room = rows["store_size"].astype(np.int64) * kernels_json.LINE_FACTOR
    room += kernels_json.FIXED_LINE_BYTES
    ends = np.cumsum(room)
    out = np.empty(0, np.uint8)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + limits.MAX_JSON_PIECE_BYTES, side="right"))
        stop = max(stop, start + 1)
        needed = int(ends[stop - 1]) - before
        out = out if len(out) >= needed else np.empty(needed, np.uint8)
        part = rows[start:stop]
        line_ends = np.empty(len(part), np.int64)
        keys, properties = (
            kernels.key_slices(buffer, base_offset, part),
            kernels.property_slices(buffer, base_offset, part),
        )
        # Rows of another buffer are refused above, and each line has room.
        count = kernels_json.json_lines(
            buffer,
            base_offset,
            part,
            *keys,
            properties.list_offsets,
            properties.name_starts,
            properties.value_starts,
            properties.name_lengths,
            properties.value_lengths,
            out,
            line_ends,
        )
        yield JsonLines(out[:count], line_ends)
        start = stop
