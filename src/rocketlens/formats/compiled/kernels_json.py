"""Compiled writer of messages as lines of JSON, called by :mod:`rocketlens.formats.json_lines`.

It writes the usual message: one whose body is ASCII text and stored as it was sent, whose hosts are
IPv4, and whose other texts are printable ASCII without quotes and backslashes. A line of such a
message is the same in every encoding of stdout. All others are left to the caller.

``find -o jsonl`` writes some 300,000 messages a second by it, and 22,000 without it.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats.body_compression import COMPRESSED
from rocketlens.formats.commitlog_record import HEADS
from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    ByteArray,
    device,
    kernel,
    load_i32,
    raw,
)
from rocketlens.formats.compiled.kernels_scan import READ_ONLY_ROWS, Row, RowArray, row_position
from rocketlens.model.rocketmq import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

INLINED: Final = "a3d114d15d89c92d"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

FIELDS: Final = (
    "topic", "tags", "keys", "unique_key", "msg_id", "offset_msg_id", "queue_id", "queue_offset",
    "physical_offset", "store_size", "sys_flag", "flag", "body_crc", "born_timestamp_ms",
    "born_host", "store_timestamp_ms", "store_host", "reconsume_times",
    "prepared_transaction_offset", "properties", "body_error", "body", "body_encoding",
)  # fmt: skip
"""Members of a line, in order."""

_LABEL_TEXTS: Final = [("{" if name == FIELDS[0] else ",") + f'"{name}":' for name in FIELDS]
_LABELS: Final = np.frombuffer("".join(_LABEL_TEXTS).encode(), np.uint8)
_LABEL_ENDS: Final = np.cumsum([0, *map(len, _LABEL_TEXTS)])
FIXED_LINE_BYTES: Final = 2048
"""More than a line takes besides its texts and its body."""
LINE_FACTOR: Final = 4
"""Bytes of a line for each byte of the record, at most: a property of one key of one letter."""

_UNUSUAL: Final = COMPRESSED | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_BORN_HOST: Final = HEADS[0].offsets["born_host"]
_MAX_PORT: Final = 65_535
_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_COMMA: Final = ord(",")
_COLON: Final = ord(":")
_DOT: Final = ord(".")
_MINUS: Final = ord("-")
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_OPEN_ARRAY: Final = ord("[")
_CLOSE_ARRAY: Final = ord("]")
_NEWLINE: Final = ord("\n")
_ZERO_DIGIT: Final = ord("0")
_NULL: Final = np.frombuffer(b"null", np.uint8)
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_TEXT: Final = np.frombuffer(b'"text"}\n', np.uint8)
"""The end of a line: its last member."""
_ESCAPED: Final = np.frombuffer(b'"\\\b\f\n\r\t', np.uint8)
_ESCAPES: Final = np.frombuffer(b'"\\bfnrt', np.uint8)
"""What stands behind a backslash for a byte of `_ESCAPED`."""


@device
def put_label(out: ByteArray, at: int, number: int) -> int:
    """Write the name of a member; return the position behind it, as all of these do."""
    for index in range(_LABEL_ENDS[number], _LABEL_ENDS[number + 1]):
        out[at] = _LABELS[index]
        at += 1
    return at


@device
def put_null(out: ByteArray, at: int) -> int:
    """Write ``null``."""
    for index in range(4):
        out[at + index] = _NULL[index]
    return at + 4


@device
def put_number(out: ByteArray, at: int, value: int) -> int:
    """Write a whole number that is not the least of 64 bits."""
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    stop = at + 1
    rest = value // 10
    while rest > 0:
        stop += 1
        rest //= 10
    position = stop
    while position > at:
        position -= 1
        out[position] = _ZERO_DIGIT + value % 10
        value //= 10
    return stop


@device
def put_text(out: ByteArray, at: int, buffer: ByteArray, start: int, length: int) -> int:
    """Write text in quotes; return -1 if a character of it is not written as it is."""
    out[at] = _QUOTE
    at += 1
    for position in range(start, start + length):
        byte = buffer[position]
        if byte < 0x20 or byte > 0x7E or byte == _QUOTE or byte == _BACKSLASH:  # noqa: PLR1714, SIM109
            return -1
        out[at] = byte
        at += 1
    out[at] = _QUOTE
    return at + 1


@device
def put_host(out: ByteArray, at: int, buffer: ByteArray, start: int) -> int:
    """Write an IPv4 address and its port in quotes; return -1 if it is not a port."""
    port = load_i32(buffer, start + 4)
    if port < 0 or port > _MAX_PORT:
        return -1
    out[at] = _QUOTE
    at += 1
    for index in range(4):
        at = put_number(out, at, np.int64(buffer[start + index]))
        out[at] = _DOT if index < 3 else _COLON
        at += 1
    at = put_number(out, at, np.int64(port))
    out[at] = _QUOTE
    return at + 1


@device
def put_offset_id(out: ByteArray, at: int, buffer: ByteArray, host: int, offset: int) -> int:
    """Write an offset message id in quotes: host, port and physical offset in hex."""
    out[at] = _QUOTE
    at += 1
    for index in range(8):
        byte = np.int64(buffer[host + index])
        out[at] = _HEX[byte >> 4]
        out[at + 1] = _HEX[byte & 15]
        at += 2
    for index in range(16):
        out[at] = _HEX[(offset >> np.int64(60 - 4 * index)) & 15]
        at += 1
    out[at] = _QUOTE
    return at + 1


@device
def put_body(out: ByteArray, at: int, buffer: ByteArray, start: int, length: int) -> int:
    """Write the text of a body in quotes, with JSON's short escapes; return -1 as `put_text`."""
    out[at] = _QUOTE
    at += 1
    for position in range(start, start + length):
        byte = buffer[position]
        if byte >= 0x20 and byte <= 0x7E and byte != _QUOTE and byte != _BACKSLASH:  # noqa: PLR1714
            out[at] = byte
            at += 1
            continue
        number = 0
        while number < len(_ESCAPED) and _ESCAPED[number] != byte:
            number += 1
        if number == len(_ESCAPED):
            return -1
        out[at] = _BACKSLASH
        out[at + 1] = _ESCAPES[number]
        at += 2
    out[at] = _QUOTE
    return at + 1


@device
def put_texts(
    out: ByteArray,
    at: int,
    buffer: ByteArray,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    first: int,
    stop: int,
) -> int:
    """Write an array of texts; return -1 as `put_text`."""
    out[at] = _OPEN_ARRAY
    at += 1
    for index in range(first, stop):
        if index > first:
            out[at] = _COMMA
            at += 1
        at = put_text(out, at, buffer, starts[index], np.int64(lengths[index]))
        if at < 0:
            return -1
    out[at] = _CLOSE_ARRAY
    return at + 1


@device
def put_part(
    out: ByteArray, at: int, buffer: ByteArray, start: int, length: int, label: int
) -> int:
    """Write a member that is text or null; return -1 for text that is empty or unusual."""
    at = put_label(out, at, label)
    if length < 0:
        return put_null(out, at)
    return -1 if length == 0 else put_text(out, at, buffer, start, length)


@device
def put_member(out: ByteArray, at: int, label: int, value: int) -> int:
    """Write a member that is a number."""
    return put_number(out, put_label(out, at, label), np.int64(value))


@device
def put_head(
    out: ByteArray,
    at: int,
    buffer: ByteArray,
    record: int,
    row: Row,
    keys: tuple[NDArray[np.int64], NDArray[np.int32], int, int],
) -> int:
    """Write the members up to the ids; return -1 if one is unusual."""
    at = put_part(out, at, buffer, record + row.topic_start, np.int64(row.topic_length), 0)
    if at < 0:
        return -1
    at = put_part(out, at, buffer, record + row.tags_start, np.int64(row.tags_length), 1)
    if at < 0:
        return -1
    starts, lengths, first, stop = keys
    at = put_texts(out, put_label(out, at, 2), buffer, starts, lengths, first, stop)
    if at < 0:
        return -1
    unique_key, length = record + row.unique_key_start, np.int64(row.unique_key_length)
    at = put_part(out, at, buffer, unique_key, length, 3)
    if at < 0:
        return -1
    host, offset = record + row.store_host_start, np.int64(row.physical_offset)
    at = put_label(out, at, 4)
    if length > 0:
        at = put_text(out, at, buffer, unique_key, length)
    else:
        at = put_offset_id(out, at, buffer, host, offset)
    return put_offset_id(out, put_label(out, at, 5), buffer, host, offset)


@device
def put_numbers(out: ByteArray, at: int, buffer: ByteArray, record: int, row: Row) -> int:
    """Write the members between the ids and the properties; return -1 if a host is unusual."""
    at = put_member(out, at, 6, row.queue_id)
    at = put_member(out, at, 7, row.queue_offset)
    at = put_member(out, at, 8, row.physical_offset)
    at = put_member(out, at, 9, row.store_size)
    at = put_member(out, at, 10, row.sys_flag)
    at = put_member(out, at, 11, row.flag)
    at = put_member(out, at, 12, row.body_crc)
    at = put_member(out, at, 13, row.born_timestamp_ms)
    at = put_host(out, put_label(out, at, 14), buffer, record + _BORN_HOST)
    if at < 0:
        return -1
    at = put_member(out, at, 15, row.store_timestamp_ms)
    at = put_host(out, put_label(out, at, 16), buffer, record + row.store_host_start)
    if at < 0:
        return -1
    at = put_member(out, at, 17, row.reconsume_times)
    return put_member(out, at, 18, row.prepared_transaction_offset)


@device
def put_properties(
    out: ByteArray,
    at: int,
    buffer: ByteArray,
    slices: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]],
    first: int,
    stop: int,
) -> int:
    """Write an object of texts; return -1 as `put_text`."""
    name_starts, name_lengths, value_starts, value_lengths = slices
    out[at] = _OPEN
    at += 1
    for index in range(first, stop):
        if index > first:
            out[at] = _COMMA
            at += 1
        at = put_text(out, at, buffer, name_starts[index], np.int64(name_lengths[index]))
        if at < 0:
            return -1
        out[at] = _COLON
        at = put_text(out, at + 1, buffer, value_starts[index], np.int64(value_lengths[index]))
        if at < 0:
            return -1
    out[at] = _CLOSE
    return at + 1


@kernel(
    NUMBER,
    READ_ONLY_BYTES,
    NUMBER,
    READ_ONLY_ROWS,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    READ_ONLY_INT32S,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    READ_ONLY_INT64S,
    READ_ONLY_INT32S,
    READ_ONLY_INT32S,
    BYTES,
    INT64S,
)
def json_lines(
    buffer: ByteArray,
    base_offset: int,
    rows: RowArray,
    key_offsets: NDArray[np.int32],
    key_starts: NDArray[np.int64],
    key_lengths: NDArray[np.int32],
    property_offsets: NDArray[np.int32],
    name_starts: NDArray[np.int64],
    value_starts: NDArray[np.int64],
    name_lengths: NDArray[np.int32],
    value_lengths: NDArray[np.int32],
    out: ByteArray,
    ends: NDArray[np.int64],
) -> int:
    """Write a line for each usual row, and where it ends; a row without a line ends where it began.

    Return the bytes written, or -1 - n if row n does not fit the buffer or what is left of ``out``.
    """
    memory = raw(buffer)
    target = raw(out)
    at = np.int64(0)
    for index in range(len(rows)):
        row = rows[index]
        record = row_position(len(buffer), base_offset, row)
        size = np.int64(row.store_size)
        if record < 0 or at + FIXED_LINE_BYTES + LINE_FACTOR * size > len(out):
            return -1 - index
        ends[index] = at
        smallest = min(row.queue_offset, row.born_timestamp_ms, row.store_timestamp_ms)
        if row.sys_flag & _UNUSUAL or smallest < 0 or row.prepared_transaction_offset < 0:
            continue
        keys = (
            raw(key_starts),
            raw(key_lengths),
            np.int64(key_offsets[index]),
            np.int64(key_offsets[index + 1]),
        )
        line = put_head(target, at, memory, record, row, keys)
        if line < 0:
            continue
        line = put_numbers(target, line, memory, record, row)
        if line < 0:
            continue
        line = put_label(target, line, 19)
        line = put_properties(
            target,
            line,
            memory,
            (raw(name_starts), raw(name_lengths), raw(value_starts), raw(value_lengths)),
            np.int64(property_offsets[index]),
            np.int64(property_offsets[index + 1]),
        )
        if line < 0:
            continue
        line = put_null(target, put_label(target, line, 20))
        body, length = record + row.body_start, np.int64(row.body_length)
        line = put_body(target, put_label(target, line, 21), memory, body, length)
        if line < 0:
            continue
        line = put_label(target, line, 22)
        for position in range(len(_TEXT)):
            target[line] = _TEXT[position]
            line += 1
        at = line
        ends[index] = at
    return at
