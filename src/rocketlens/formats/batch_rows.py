"""Rows of records that are batches (see :mod:`rocketlens.formats.batch_body`), as their messages.

Rows of a scan are of records. Where a record is a batch, its row becomes one row for each of its
messages, with the queue offset of that message, and the message itself beside it: columns cannot
be copied out of the log for it. All other rows are left as they are.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import Record, decode
from rocketlens.model.arrow import BATCH_BYTES, BATCH_ROWS
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketlens.bulk.ranges import Bytes, Rows


class MessageRows(NamedTuple):
    """Messages of batches: a row, a physical offset and a message for each."""

    rows: "Rows"
    physical_offsets: "npt.NDArray[np.int64]"
    messages: list[Record]


def runs(rows: "Rows") -> Iterator[tuple[bool, slice]]:
    """Yield the runs of rows that are batches, and of those that are not, in order.

    Each is a slice, and whether its rows are batches. Rows without a batch are one run.
    """
    import numpy as np

    is_batch = rows["sys_flag"] & SYS_FLAG_INNER_BATCH != 0
    if not is_batch.any():
        yield False, slice(len(rows))
        return
    changes = np.flatnonzero(is_batch[1:] != is_batch[:-1]) + 1
    ends = [0, *changes.tolist(), len(rows)]
    for start, stop in pairwise(ends):
        yield bool(is_batch[start]), slice(start, stop)


def messages_of(
    content: "Bytes",
    base_offset: int,
    rows: "Rows",
    physical_offsets: "npt.NDArray[np.int64] | None" = None,
) -> Iterator[MessageRows]:
    """Return the messages of batches, of which ``rows`` are, in pieces of bounded size.

    A batch whose body cannot be taken apart is a message as it is. Checksums are not looked at.
    ``physical_offsets``: as :func:`rocketlens.formats.columns.batches` has them.
    """
    import numpy as np

    offsets = rows["physical_offset"] if physical_offsets is None else physical_offsets
    messages: list[Record] = []
    counts: list[int] = []
    first = size = 0
    for number, start in enumerate((rows["physical_offset"] - base_offset).tolist()):
        record = decode(content.data, start, check_crc=False)
        found = records_in(record) or (record,)
        messages += found
        counts.append(len(found))
        size += sum(len(each.body) for each in found)
        if len(messages) >= BATCH_ROWS or size >= BATCH_BYTES or number + 1 == len(rows):
            number_of_row = np.repeat(np.arange(first, number + 1), counts)
            piece = rows[number_of_row]
            piece["queue_offset"] = [each.queue_offset for each in messages]
            yield MessageRows(piece, offsets[number_of_row], messages)
            messages, counts, first, size = [], [], number + 1, 0
