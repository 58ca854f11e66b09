"""Rows of the messages in batches, and rows of pulled records.

Rows of a scan are of records (batches: see :mod:`rocketlens.formats.batch_body`). The row of a
batch becomes one row for each of its messages, with the queue offset of that message. The message
itself is returned beside it, since columns cannot be copied from the log. Other rows stay as they
are.

A pull's body has whole records of the log, from any positions. Kernels look for a record at its
physical offset minus ``base_offset``. So :func:`scan_pulled` returns rows whose offsets are
positions in the pulled bytes (``base_offset`` is 0), and the physical offsets beside them.
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
    """Yield the runs of batch rows and of other rows, in order, each with True for batches."""
    if not rows.sys_flags & SYS_FLAG_INNER_BATCH:
        yield False, rows
        return
    stop = 0
    flags = (flag & SYS_FLAG_INNER_BATCH != 0 for flag in rows.column("sys_flag"))
    for is_batch, run in groupby(flags):
        start, stop = stop, stop + sum(1 for _ in run)
        yield is_batch, rows.part(start, stop)


def messages_of(rows: Rows) -> Iterator[tuple[Rows, list[Record]]]:
    """Yield the messages of batch ``rows`` in pieces of bounded size: a row and a record for each.

    A batch whose body cannot be parsed is one message. Checksums are not compared.
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
        if chosen.all():
            return self
        return PulledRows(self.rows.compress(chosen.tobytes()), self.physical_offsets[chosen])


def scan_pulled(bodies: Sequence[bytes], most: int) -> PulledRows:
    """Return the records of pulls in their order, at most ``most``.

    A body is read up to the first bytes that are not a record. Checksums are not compared. Copies
    the bodies, and allocates 150 bytes for each of ``most``. O(records); faster if they are
    contiguous in the log.
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
