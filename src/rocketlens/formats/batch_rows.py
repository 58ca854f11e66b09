"""Rows of the messages in batches, and rows of records that were pulled.

Rows of a scan are of records (batches: see :mod:`rocketlens.formats.batch_body`). Where a record is
a batch, its row becomes one row for each of its messages, with the queue offset of that message,
and the message itself beside it: columns cannot be copied out of the log for it. All other rows are
left as they are.

A pull's body has whole records one after another, from anywhere in the log: the bytes of the log,
so its records have all columns that they have there. But the kernels look for a record where its
physical offset says that it is. So :func:`scan_pulled` returns rows whose offsets are positions in
the bytes at hand (``base_offset`` is 0 for all that takes them), and the physical offsets beside
them.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from rocketlens import limits
from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import HEADS, MIN_RECORD_BYTES, Record, decode
from rocketlens.model.arrow import BATCH_BYTES, BATCH_ROWS
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rocketlens.bulk.ranges import Bytes, Rows

_HEAD = HEADS[0]


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
        members = records_in(record) or (record,)
        messages += members
        counts.append(len(members))
        size += sum(len(each.body) for each in members)
        if len(messages) >= BATCH_ROWS or size >= BATCH_BYTES or number + 1 == len(rows):
            number_of_row = np.repeat(np.arange(first, number + 1), counts)
            piece = rows.take(number_of_row)
            piece["queue_offset"] = [each.queue_offset for each in messages]
            yield MessageRows(piece, offsets[number_of_row], messages)
            messages, counts, first, size = [], [], number + 1, 0


class PulledRows(NamedTuple):
    """Rows of pulled records; see the module for their offsets."""

    content: "npt.NDArray[np.uint8]"
    rows: "npt.NDArray[np.void]"
    physical_offsets: "npt.NDArray[np.int64]"

    def of(self, chosen: "npt.NDArray[np.bool_]") -> "PulledRows":
        """Return the rows for which ``chosen`` is true."""
        if chosen.all():
            return self
        return PulledRows(self.content, self.rows.compress(chosen), self.physical_offsets[chosen])


def scan_pulled(bodies: Sequence[bytes], most: int) -> PulledRows:
    """Return the records of pulls in their order, ``most`` of them at most.

    A body is read up to the first bytes that are not a record. Checksums are not read. Takes the
    memory of the bodies once more, and 150 bytes for each of ``most``. O(records), and quick where
    they follow one another in the log, too.
    """
    import numpy as np

    from rocketlens.formats.compiled import kernels

    content = np.frombuffer(b"".join(bodies), np.uint8)
    most = min(most, len(content) // MIN_RECORD_BYTES)
    rows = np.empty(most, kernels.RECORD_DTYPE)
    physical_offsets = np.empty(most, np.int64)
    count = position = end = 0
    for body in bodies:
        position, end = end, end + len(body)
        while end - position >= MIN_RECORD_BYTES and count < most:
            field = position + _HEAD.offsets["physical_offset"]
            base = int.from_bytes(content[field : field + 8].tobytes(), "big")
            if base > limits.MAX_PHYSICAL_OFFSET:
                break
            rest = content[position:end]
            scanned = kernels.scan_records(rest, base, 0, len(rest), rows[count:])
            if not scanned.count:
                break
            stop = count + scanned.count
            physical_offsets[count:stop] = rows["physical_offset"][count:stop]
            rows["physical_offset"][count:stop] += position - base
            count, position = stop, position + scanned.next_position
    return PulledRows(content, rows[:count], physical_offsets[:count])
