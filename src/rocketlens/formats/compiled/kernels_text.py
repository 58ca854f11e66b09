"""Compiled copies of text from records: columns, key lists, property maps; and body checksums.

Called through :mod:`rocketlens.formats.compiled.kernels`. Slices are positions in the buffer and
lengths; every kernel checks each slice against the buffer before it reads.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

import zlib
from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from rocketlens.formats.commitlog_record import CRC_PROPERTY_BYTES
from rocketlens.formats.compiled.kernels_device import (
    BOOLEANS,
    BYTES,
    INT32S,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    ZERO,
    ByteArray,
    copy_bytes,
    device,
    is_ascii,
    kernel,
    load_word,
    mix,
    mix_bytes,
    raw,
    same_bytes,
)
from rocketlens.formats.compiled.kernels_scan import (
    NAME_BYTE,
    PROPERTY_BYTE,
    READ_ONLY_ROWS,
    SPACE,
    RowArray,
    row_position,
)
from rocketlens.model.rocketmq import CRC_MASK
from rocketlens.model.text import java

INLINED: Final = "c050f1e404d5271b"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

NAME_SLOTS: Final = 32768
"""Size of the table of names of one record: properties have at most 32767 bytes, a property at
least 4 with its separators, so it is never more than a quarter full."""

_REPLACEMENT: Final = java.REPLACEMENT
_REPLACEMENT_BYTES: Final = 3


@device
def text_length(buffer: ByteArray, start: int, stop: int) -> int:
    """Return the UTF-8 length of the slice as Java decodes it."""
    if is_ascii(buffer, start, stop):
        return stop - start
    length = 0
    position = start
    while position < stop:
        code_point, after = java.utf8_step(buffer, position, stop)
        length += _REPLACEMENT_BYTES if code_point == _REPLACEMENT else after - position
        position = after
    return length


@device
def copy_text(
    target: ByteArray, at: int, limit: int, buffer: ByteArray, start: int, stop: int
) -> int:
    """Write the slice as Java decodes it, in UTF-8, at most to ``limit``; return the position
    behind it.
    """
    position = start
    while position < stop:
        code_point, after = java.utf8_step(buffer, position, stop)
        # A file that changes under its memory map may need more room than was measured.
        needed = _REPLACEMENT_BYTES if code_point == _REPLACEMENT else after - position
        if at + needed > limit:
            return at
        if code_point == _REPLACEMENT:
            target[at] = 0xEF
            target[at + 1] = 0xBF
            target[at + 2] = 0xBD
            at += _REPLACEMENT_BYTES
        else:
            for index in range(position, after):
                target[at] = buffer[index]
                at += 1
        position = after
    return at


@kernel(NUMBER, READ_ONLY_BYTES, READ_ONLY_INT64S, READ_ONLY_INT32S, types.boolean, INT64S)
def offsets_of(
    buffer: ByteArray,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    as_text: bool,
    offsets: NDArray[np.int64],
) -> int:
    """Write the ``len(starts) + 1`` offsets of the copies; -1 - n if slice n is outside."""
    memory = raw(buffer)
    total = 0
    offsets[0] = 0
    for index in range(len(starts)):
        length = np.int64(lengths[index])
        if length > 0:
            start = starts[index]
            if start < 0 or start > len(buffer) - length:
                return -1 - index
            total += text_length(memory, start, start + length) if as_text else length
        offsets[index + 1] = total
    return total


@kernel(types.void, READ_ONLY_BYTES, READ_ONLY_INT64S, READ_ONLY_INT32S, READ_ONLY_INT64S, BYTES)
def copy_slices(
    buffer: ByteArray,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    offsets: NDArray[np.int64],
    out: ByteArray,
) -> None:
    """Copy each slice to its offset; after :func:`offsets_of`, not for text."""
    memory = raw(buffer)
    raw_out = raw(out)
    for index in range(len(starts)):
        length = np.int64(lengths[index])
        if length > 0:
            copy_bytes(raw_out, offsets[index], memory, starts[index], length)


@kernel(types.void, READ_ONLY_BYTES, READ_ONLY_INT64S, READ_ONLY_INT32S, READ_ONLY_INT64S, BYTES)
def copy_texts(
    buffer: ByteArray,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    offsets: NDArray[np.int64],
    out: ByteArray,
) -> None:
    """Copy each slice to its offset as Java decodes it; after :func:`offsets_of` for text."""
    memory = raw(buffer)
    raw_out = raw(out)
    for index in range(len(starts)):
        length = np.int64(lengths[index])
        if length > 0:
            start = starts[index]
            if is_ascii(memory, start, start + length):
                copy_bytes(raw_out, offsets[index], memory, start, length)
            else:
                copy_text(
                    raw_out, offsets[index], offsets[index + 1], memory, start, start + length
                )


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, READ_ONLY_ROWS, INT32S, INT64S, INT32S)
def key_slices(
    buffer: ByteArray,
    base_offset: int,
    rows: RowArray,
    list_offsets: NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
) -> int:
    """Cut KEYS at spaces; return the number of keys, or -1 - n if row n does not fit the buffer.

    Keys beyond the arrays are counted, not written.
    """
    memory = raw(buffer)
    count = 0
    list_offsets[0] = 0
    for index in range(len(rows)):
        row = rows[index]
        record = row_position(len(buffer), base_offset, row)
        if record < 0:
            return -1 - index
        if row.keys_length > 0:
            token = record + row.keys_start
            stop = token + row.keys_length
            for position in range(token, stop + 1):
                if position == stop or memory[position] == SPACE:
                    if position > token:
                        if count < len(starts):
                            starts[count] = token
                            lengths[count] = position - token
                        count += 1
                    token = position + 1
        list_offsets[index + 1] = count
    return count


@device
def name_hash(buffer: ByteArray, start: int, stop: int) -> np.uint64:
    """Hash a name so that names which decode to the same text have the same hash."""
    if is_ascii(buffer, start, stop):
        return mix_bytes(buffer, start, stop)
    state = ZERO
    position = start
    while position < stop:
        code_point, position = java.utf8_step(buffer, position, stop)
        state = mix(state, np.uint64(code_point))
    return state


@device
def same_text(buffer: ByteArray, start: int, length: int, other: int, other_length: int) -> bool:
    """Return whether two slices decode to the same text."""
    if length == other_length and same_bytes(buffer, start, other, length):
        return True
    stop = start + length
    other_stop = other + other_length
    while start < stop and other < other_stop:
        code_point, start = java.utf8_step(buffer, start, stop)
        other_code_point, other = java.utf8_step(buffer, other, other_stop)
        if code_point != other_code_point:
            return False
    return start == stop and other == other_stop


@device
def name_slot(
    buffer: ByteArray,
    start: int,
    stop: int,
    first: int,
    names: tuple[NDArray[np.int64], NDArray[np.int32]],
    table: NDArray[np.int64],
) -> int:
    """Return the slot of a name in the hash table: its own, or the free one for it.

    A slot holds the number of a property plus one. Numbers below ``first`` are those of earlier
    records: their slots are free.
    """
    starts, lengths = names
    mask = np.int64(NAME_SLOTS - 1)
    slot = np.int64(name_hash(buffer, start, stop) >> np.uint64(20)) & mask
    while table[slot] > first:
        known = table[slot] - 1
        if same_text(buffer, start, stop - start, starts[known], lengths[known]):
            break
        slot = (slot + 1) & mask
    return slot


@kernel(
    types.UniTuple(NUMBER, 2),
    READ_ONLY_BYTES,
    NUMBER,
    READ_ONLY_ROWS,
    NUMBER,
    INT32S,
    INT64S,
    INT64S,
    INT32S,
    INT32S,
)
def property_slices(
    buffer: ByteArray,
    base_offset: int,
    rows: RowArray,
    first_row: int,
    list_offsets: NDArray[np.int32],
    name_starts: NDArray[np.int64],
    value_starts: NDArray[np.int64],
    name_lengths: NDArray[np.int32],
    value_lengths: NDArray[np.int32],
) -> tuple[int, int]:
    """Cut properties into names and values, one per name, from ``first_row`` on.

    Stops before a row whose properties might not fit; returns the rows done (or -1 - n if row n
    doesn't fit the buffer) and the properties written: they go on from ``list_offsets[first_row]``.
    """
    memory = raw(buffer)
    names = (raw(name_starts), raw(name_lengths))
    table = np.zeros(NAME_SLOTS, np.int64)
    slots = raw(table)
    count = np.int64(list_offsets[first_row])
    for index in range(first_row, len(rows)):
        row = rows[index]
        record = row_position(len(buffer), base_offset, row)
        if record < 0:
            return -1 - index, count
        if count + row.properties_length // 4 + 1 > len(name_starts):
            return index, count
        first = count
        name_start = record + row.properties_start
        stop = name_start + row.properties_length
        separator = np.int64(-1)
        for position in range(name_start, stop + 1):
            if position < stop:
                byte = memory[position]
                if byte == NAME_BYTE and separator < 0:
                    separator = position
                if byte != PROPERTY_BYTE:
                    continue
            if name_start < separator < position - 1:
                slot = name_slot(memory, name_start, separator, first, names, slots)
                number = table[slot] - 1
                if number < first:
                    number = count
                    table[slot] = count + 1
                    name_starts[count] = name_start
                    name_lengths[count] = separator - name_start
                    count += 1
                value_starts[number] = separator + 1
                value_lengths[number] = position - separator - 1
            name_start = position + 1
            separator = np.int64(-1)
        list_offsets[index + 1] = count
    return len(rows), count


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, READ_ONLY_ROWS, types.boolean, INT64S, INT32S, INT64S)
def group(
    buffer: ByteArray,
    base_offset: int,
    rows: RowArray,
    by_queue: bool,
    table: NDArray[np.int64],
    groups: NDArray[np.int32],
    first_rows: NDArray[np.int64],
) -> int:
    """Number rows by topic (and queue); the number of groups, or -1 - n if row n doesn't fit.

    ``table`` is zeroed work space: a power of two, at least twice the rows. Hashes only choose
    where to look; topics are compared byte by byte.
    """
    memory = raw(buffer)
    mask = np.int64(len(table) - 1)
    count = 0
    for index in range(len(rows)):
        row = rows[index]
        record = row_position(len(buffer), base_offset, row)
        if record < 0:
            return -1 - index
        key = row.topic_hash
        if by_queue:
            key = mix(key, np.uint64(np.int64(row.queue_id)))
        slot = np.int64(key >> np.uint64(8)) & mask
        while table[slot] > 0:
            known = rows[first_rows[table[slot] - 1]]
            other = known.physical_offset - base_offset + known.topic_start
            if (
                known.topic_length == row.topic_length
                and (not by_queue or known.queue_id == row.queue_id)
                and same_bytes(memory, record + row.topic_start, other, row.topic_length)
            ):
                break
            slot = (slot + 1) & mask
        if table[slot] == 0:
            first_rows[count] = index
            count += 1
            table[slot] = count
        groups[index] = table[slot] - 1
    return count


def _crc_tables() -> NDArray[np.uint64]:
    """Make the eight tables of "slicing by eight", flat: CRC of byte b followed by t zeros."""
    tables = np.zeros(8 * 256, np.uint64)
    for byte in range(256):
        # zlib inverts before and after; what is left is the plain remainder.
        crc = zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0")
        tables[byte] = crc
    for table in range(1, 8):
        for byte in range(256):
            before = int(tables[(table - 1) * 256 + byte])
            tables[table * 256 + byte] = (before >> 8) ^ int(tables[before & 0xFF])
    return tables


_CRC_TABLES: Final = _crc_tables()
_BYTE: Final = np.uint64(0xFF)
_START_CRC: Final = np.uint64(0xFFFFFFFF)
_CRC_MASK: Final = np.uint64(CRC_MASK)
_EIGHT: Final = np.uint64(8)
_CRC_NAME: Final = np.uint64(int.from_bytes(b"__CRC32#", "little"))
_ZERO_DIGIT: Final = 0x30


@device
def crc32(buffer: ByteArray, start: int, stop: int) -> np.uint64:
    """Compute zlib's CRC-32 of a slice."""
    crc = _START_CRC
    position = start
    while position + 8 <= stop:
        word = load_word(buffer, position) ^ crc
        crc = ZERO
        for table in range(7, -1, -1):
            crc ^= _CRC_TABLES[np.uint64(table * 256) + (word & _BYTE)]
            word >>= _EIGHT
        position += 8
    while position < stop:
        crc = (crc >> _EIGHT) ^ _CRC_TABLES[(crc ^ np.uint64(buffer[position])) & _BYTE]
        position += 1
    return crc ^ _START_CRC


@device
def has_crc_tail(buffer: ByteArray, start: int) -> bool:
    """Return whether the last bytes of a record are the checksum of those before ``start``."""
    return (
        load_word(buffer, start) == _CRC_NAME
        and buffer[start + 8] == NAME_BYTE
        and buffer[start + CRC_PROPERTY_BYTES - 1] == PROPERTY_BYTE
    )


@device
def crc_tail_agrees(buffer: ByteArray, record: int, start: int) -> bool:
    """Compare the checksum at ``start``, least significant digit first, with the record's."""
    rest = np.int64(crc32(buffer, record, start) & _CRC_MASK)
    for position in range(start + 9, start + 19):
        if np.int64(buffer[position]) != _ZERO_DIGIT + rest % 10:
            return False
        rest //= 10
    return True


@device
def checksums_agree(
    buffer: ByteArray,
    record: int,
    size: int,
    body: int,
    body_length: int,
    body_crc: int,
    properties_length: int,
) -> bool:
    """Compare the record at ``record`` with its checksums; its parts must be inside the buffer.

    As in RocketMQ, an empty body has none, and the checksum of the whole record is optional.
    """
    if body_length > 0:
        start = record + body
        crc = crc32(buffer, start, start + body_length)
        if np.int64(crc & _CRC_MASK) != body_crc:
            return False
    if properties_length >= CRC_PROPERTY_BYTES:
        tail = record + size - CRC_PROPERTY_BYTES
        if has_crc_tail(buffer, tail):
            return crc_tail_agrees(buffer, record, tail)
    return True


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, READ_ONLY_ROWS, BOOLEANS)
def check_records(
    buffer: ByteArray, base_offset: int, rows: RowArray, out: NDArray[np.bool_]
) -> int:
    """Compare each record with its checksums; how many differ, or -1 - n if row n doesn't fit.

    As in RocketMQ, an empty body has none, and the checksum of the whole record is optional.
    """
    memory = raw(buffer)
    different = 0
    for index in range(len(rows)):
        row = rows[index]
        record = row_position(len(buffer), base_offset, row)
        if record < 0:
            return -1 - index
        is_good = checksums_agree(
            memory,
            record,
            np.int64(row.properties_start) + np.int64(row.properties_length),
            np.int64(row.body_start),
            np.int64(row.body_length),
            np.int64(row.body_crc),
            np.int64(row.properties_length),
        )
        out[index] = is_good
        different += 0 if is_good else 1
    return different
