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
from itertools import groupby
from typing import NamedTuple

from rocketlens import limits
from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import HEADS, MIN_RECORD_BYTES, Record, decode
from rocketlens.formats.rows import ROW_BYTES, Rows, scan_rows
from rocketlens.late import np, npt
from rocketlens.model.arrow import BATCH_BYTES, BATCH_ROWS
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH

_HEAD = HEADS[0]


def runs(rows: Rows) -> Iterator[tuple[bool, Rows]]:
    """Yield the runs of rows that are batches, and of those that are not, in order.

    Each with whether its rows are batches. Rows without a batch are one run.
    """
    if not rows.sys_flags & SYS_FLAG_INNER_BATCH:
        yield False, rows
        return
    stop = 0
    flags = (flag & SYS_FLAG_INNER_BATCH != 0 for flag in rows.column("sys_flag"))
    for is_batch, run in groupby(flags):
        start, stop = stop, stop + sum(1 for _ in run)
        yield is_batch, rows.part(start, stop)


def messages_of(rows: Rows) -> Iterator[tuple[Rows, list[Record]]]:
    """Yield the messages of batches, of which ``rows`` are, in pieces of bounded size: a row, and a
    record, for each.

    A batch whose body cannot be taken apart is a message as it is. Checksums are not looked at.
    """
    messages: list[Record] = []
    counts: list[int] = []
    first = size = 0
    for number, offset in enumerate(rows.offsets()):
        record = decode(rows.content, offset - rows.base_offset, check_crc=False)
        members = records_in(record) or (record,)
        messages += members
        counts.append(len(members))
        size += sum(len(each.body) for each in members)
        if len(messages) >= BATCH_ROWS or size >= BATCH_BYTES or number + 1 == len(rows):
            piece = rows.as_array.take(np.repeat(np.arange(first, number + 1), counts))
            piece["queue_offset"] = [each.queue_offset for each in messages]
            yield Rows.of(rows.content, rows.base_offset, piece), messages
            messages, counts, first, size = [], [], number + 1, 0


class PulledRows(NamedTuple):
    """Rows of pulled records; see the module for their offsets."""

    rows: Rows
    physical_offsets: "npt.NDArray[np.int64]"

    def of(self, chosen: "npt.NDArray[np.bool_]") -> "PulledRows":
        """Return the rows for which ``chosen`` is true."""
        if chosen.all():
            return self
        return PulledRows(self.rows.compress(chosen.tobytes()), self.physical_offsets[chosen])


def scan_pulled(bodies: Sequence[bytes], most: int) -> PulledRows:
    """Return the records of pulls in their order, ``most`` of them at most.

    A body is read up to the first bytes that are not a record. Checksums are not read. Takes the
    memory of the bodies once more, and 150 bytes for each of ``most``. O(records), and quick where
    they follow one another in the log, too.
    """
    content = memoryview(b"".join(bodies))
    most = min(most, len(content) // MIN_RECORD_BYTES)
    memory = memoryview(bytearray(most * ROW_BYTES))
    physical_offsets = np.empty(most, np.int64)
    count = position = end = 0
    for body in bodies:
        position, end = end, end + len(body)
        while end - position >= MIN_RECORD_BYTES and count < most:
            field = position + _HEAD.offsets["physical_offset"]
            base = int.from_bytes(content[field : field + 8], "big")
            if base > limits.MAX_PHYSICAL_OFFSET:
                break
            rest = content[position:end]
            rows, size, _ = scan_rows(rest, base, 0, len(rest), memory[count * ROW_BYTES :])
            if not len(rows):
                break
            stop = count + len(rows)
            offsets = rows.as_array["physical_offset"]
            physical_offsets[count:stop] = offsets
            offsets += position - base
            count, position = stop, position + size
    return PulledRows(Rows(content, 0, memory[: count * ROW_BYTES]), physical_offsets[:count])
