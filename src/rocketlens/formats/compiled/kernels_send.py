"""The compiled writing of plain sends: columns to records, queue entries and replies.

Three calls handle what a connection received, as far as it is plain:
:func:`rocketlens.formats.compiled.kernels_send_parse.parse` reads it, :func:`encode` writes records
without their sizes, entries and replies, and :func:`commit` writes sizes and magics, which make
records readable. The same is done, message by message, by ``store.write.append`` and
``wire.connection``, which are the definition of it.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numba import types

from rocketlens.formats.commitlog_record import (
    HEADS,
    HOST_BITS,
    HOST_BYTES_V4,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
)
from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    ByteArray,
    copy_bytes,
    device,
    kernel,
    raw,
    store_i32,
    store_i64,
)
from rocketlens.formats.compiled.kernels_send_header import (
    LENGTH_BYTES,
    ZERO_DIGIT,
    Numbers,
    write_number,
)
from rocketlens.formats.compiled.kernels_send_parse import (
    AT,
    BODY,
    BODY_BYTES,
    BORN,
    COUNT,
    FLAG,
    IS_ONE_WAY,
    KEY,
    KEY_BYTES,
    MORE_FLAGS,
    NEXT_OFFSET,
    OPAQUE,
    QUEUE_ID,
    RECONSUMED,
    RECORD,
    RECORD_BYTES,
    ROOM,
    ROW,
    ROW_NUMBERS,
    SYS_FLAG,
    TAGS_CODE,
    TEXT,
    TEXT_BYTES,
    TOPIC,
    TOPIC_BYTES,
)
from rocketlens.formats.compiled.kernels_text import crc32
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT
from rocketlens.limits import MAX_RUN_MESSAGES
from rocketlens.model.rocketmq import CRC_MASK

Read = tuple[ByteArray, Numbers, ByteArray, ByteArray, Numbers, Numbers]
"""Frames, columns, properties, topics, rows and touched rows, as `parse` left them."""
Hosts = tuple[ByteArray, int, int, int]
"""The producer's and the broker's address as bytes, the length of each, and their flags."""
Template = tuple[ByteArray, Numbers]
"""The parts of a reply, and where each begins: offset, queue, queue offset, key and opaque are
between them."""
INLINED: Final = "b5c8728b26e76653"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

REPLY_BYTES: Final = 1024
"""Room for one reply."""
_PREFIX_BYTES: Final = 8
_HEX_DIGITS: Final = 16
_AT: Final = HEADS[0].offsets
_CRC_AT, _QUEUE_ID_AT, _FLAG_AT = _AT["body_crc"], _AT["queue_id"], _AT["flag"]
_QUEUE_OFFSET_AT, _OFFSET_AT = _AT["queue_offset"], _AT["physical_offset"]
_SYS_FLAG_AT, _BORN_AT, _BORN_HOST_AT = _AT["sys_flag"], _AT["born_timestamp_ms"], _AT["born_host"]
_HEAD_BYTES: Final = HEADS[0].size - 2 * HOST_BYTES_V4
"""Fixed fields without the two hosts."""
_NO_HOST_BITS: Final = ~HOST_BITS
_CRC_BITS: Final = np.uint64(CRC_MASK)
_ENTRY_BYTES: Final = ENTRY_LAYOUT.size
_ENTRY_SIZE: Final = ENTRY_LAYOUT.offsets["store_size"]
_ENTRY_TAGS: Final = ENTRY_LAYOUT.offsets["tags_code"]


@device
def note_sizes(columns: Numbers, rows: Numbers, count: int, fixed: int) -> None:
    """Write down the bytes of each record; ``fixed`` of them are head and hosts."""
    for number in range(count):
        topic_bytes = rows[columns[ROW * MAX_RUN_MESSAGES + number] * ROW_NUMBERS + TOPIC_BYTES]
        columns[RECORD_BYTES * MAX_RUN_MESSAGES + number] = (
            fixed
            + columns[BODY_BYTES * MAX_RUN_MESSAGES + number]
            + (1 if topic_bytes <= MAX_TOPIC_BYTES_V1 else 2)
            + topic_bytes
            + 2
            + columns[TEXT_BYTES * MAX_RUN_MESSAGES + number]
        )


@device
def write_record(
    log: ByteArray,
    at: int,
    number: int,
    read: Read,
    hosts: Hosts,
    physical_offset: int,
    timestamp_ms: int,
) -> None:
    """Write a record without its size and magic, for which there are zeros."""
    frames, columns, texts, topics, rows, _ = read
    addresses, born_bytes, store_bytes, host_flags = hosts
    row = columns[ROW * MAX_RUN_MESSAGES + number] * ROW_NUMBERS
    body, body_bytes = (
        columns[BODY * MAX_RUN_MESSAGES + number],
        columns[BODY_BYTES * MAX_RUN_MESSAGES + number],
    )
    sys_flag = columns[SYS_FLAG * MAX_RUN_MESSAGES + number] | rows[row + MORE_FLAGS]
    store_i64(log, at, 0)
    crc = crc32(frames, body, body + body_bytes) & _CRC_BITS
    store_i32(log, at + _CRC_AT, np.int64(crc))  # type: ignore[arg-type]
    store_i32(log, at + _QUEUE_ID_AT, rows[row + QUEUE_ID])
    store_i32(log, at + _FLAG_AT, columns[FLAG * MAX_RUN_MESSAGES + number])
    store_i64(log, at + _QUEUE_OFFSET_AT, rows[row + NEXT_OFFSET])
    store_i64(log, at + _OFFSET_AT, physical_offset)
    store_i32(log, at + _SYS_FLAG_AT, sys_flag & _NO_HOST_BITS | host_flags)
    store_i64(log, at + _BORN_AT, columns[BORN * MAX_RUN_MESSAGES + number])
    at += _BORN_HOST_AT
    copy_bytes(log, at, addresses, 0, born_bytes)
    at += born_bytes
    store_i64(log, at, timestamp_ms)
    copy_bytes(log, at + 8, addresses, born_bytes, store_bytes)
    at += 8 + store_bytes
    store_i32(log, at, columns[RECONSUMED * MAX_RUN_MESSAGES + number])
    store_i64(log, at + 4, 0)
    store_i32(log, at + 12, body_bytes)
    copy_bytes(log, at + 16, frames, body, body_bytes)
    at += 16 + body_bytes
    topic_bytes = rows[row + TOPIC_BYTES]
    if topic_bytes > MAX_TOPIC_BYTES_V1:
        log[at] = topic_bytes >> 8
        at += 1
    log[at] = topic_bytes & 0xFF
    copy_bytes(log, at + 1, topics, rows[row + TOPIC], topic_bytes)
    at += 1 + topic_bytes
    text_bytes = columns[TEXT_BYTES * MAX_RUN_MESSAGES + number]
    log[at] = text_bytes >> 8
    log[at + 1] = text_bytes & 0xFF
    copy_bytes(log, at + 2, texts, columns[TEXT * MAX_RUN_MESSAGES + number], text_bytes)


@device
def write_hex(out: ByteArray, at: int, number: int) -> int:
    """Write 16 hexadecimal digits; return the position behind them."""
    for index in range(_HEX_DIGITS):
        digit = number >> 4 * (_HEX_DIGITS - 1 - index) & 0xF
        out[at + index] = digit + (ZERO_DIGIT if digit < 10 else 0x37)
    return at + _HEX_DIGITS


@device
def write_part(out: ByteArray, at: int, template: Template, part: int) -> int:
    """Copy a part of the template; return the position behind it."""
    content, parts = template
    length: int = parts[part + 1] - parts[part]
    copy_bytes(out, at, content, parts[part], length)
    return at + length


@device
def write_reply(
    out: ByteArray, start: int, template: Template, number: int, read: Read, physical_offset: int
) -> int:
    """Write the reply to one message, of at most REPLY_BYTES; return the position behind it."""
    _, columns, texts, _, rows, _ = read
    row = columns[ROW * MAX_RUN_MESSAGES + number] * ROW_NUMBERS
    key_bytes = columns[KEY_BYTES * MAX_RUN_MESSAGES + number]
    at = write_part(out, start + _PREFIX_BYTES, template, 0)
    at = write_hex(out, at, physical_offset)
    at = write_part(out, at, template, 1)
    at = write_number(out, at, rows[row + QUEUE_ID])
    at = write_part(out, at, template, 2)
    at = write_number(out, at, rows[row + NEXT_OFFSET])
    at = write_part(out, at, template, 3)
    copy_bytes(out, at, texts, columns[KEY * MAX_RUN_MESSAGES + number], key_bytes)
    at = write_part(out, at + key_bytes, template, 4)
    at = write_number(out, at, columns[OPAQUE * MAX_RUN_MESSAGES + number])
    at = write_part(out, at, template, 5)
    header_bytes = at - start - _PREFIX_BYTES
    store_i32(out, start, header_bytes + LENGTH_BYTES)
    store_i32(out, start + LENGTH_BYTES, header_bytes)
    return at


@device
def count_fitting(columns: Numbers, rows: Numbers, count: int, log_bytes: int) -> int:
    """Write down where records begin; return how many have room in the log and in their queues."""
    record = 0
    for number in range(count):
        row = columns[ROW * MAX_RUN_MESSAGES + number] * ROW_NUMBERS
        size = columns[RECORD_BYTES * MAX_RUN_MESSAGES + number]
        if record + size > log_bytes or rows[row + COUNT] >= rows[row + ROOM]:
            return number
        rows[row + COUNT] += 1
        columns[RECORD * MAX_RUN_MESSAGES + number] = record
        record += size
    return count


@device
def lay_out(
    columns: Numbers,
    rows: Numbers,
    touched: Numbers,
    touched_count: int,
    count: int,
    log_bytes: int,
) -> int:
    """Write down where records and entries begin; return how many messages find room."""
    for number in range(touched_count):
        rows[touched[number] * ROW_NUMBERS + COUNT] = 0
    fitting = count_fitting(columns, rows, count, log_bytes)
    entry = 0
    for number in range(touched_count):
        row = touched[number] * ROW_NUMBERS
        rows[row + AT] = entry
        entry += rows[row + COUNT]
        rows[row + COUNT] = 0
    return fitting


@kernel(
    types.UniTuple(NUMBER, 3),
    READ_ONLY_BYTES,
    types.Tuple((INT64S, BYTES, BYTES, INT64S, INT64S)),
    NUMBER,
    NUMBER,
    types.Tuple((BYTES, NUMBER, NUMBER, NUMBER)),
    BYTES,
    NUMBER,
    NUMBER,
    types.Tuple((BYTES, INT64S)),
    types.Tuple((BYTES, BYTES)),
)
def encode(
    frames: ByteArray,
    parsed: tuple[Numbers, ByteArray, ByteArray, Numbers, Numbers],
    count: int,
    touched_count: int,
    hosts: Hosts,
    log_array: ByteArray,
    physical_offset: int,
    timestamp_ms: int,
    template: Template,
    written: tuple[ByteArray, ByteArray],
) -> tuple[int, int, int]:
    """Write records without sizes, entries side by side for each queue, and replies.

    ``parsed``: columns, properties, topics, rows, touched rows. ``rows`` has the next offset of
    each touched queue and its room in entries; after it, COUNT says how many entries it got, and AT
    at which entry they begin. ``log_array`` begins at ``physical_offset``. Returns how many
    messages found room, and the bytes of their records and replies.
    """
    columns, texts, topics = raw(parsed[0]), raw(parsed[1]), raw(parsed[2])
    rows, touched = raw(parsed[3]), raw(parsed[4])
    read = (raw(frames), columns, texts, topics, rows, touched)
    packed = (raw(hosts[0]), hosts[1], hosts[2], hosts[3])
    pattern = (raw(template[0]), raw(template[1]))
    log, entries, replies = raw(log_array), raw(written[0]), raw(written[1])
    note_sizes(columns, rows, count, _HEAD_BYTES + hosts[1] + hosts[2])
    fitting = lay_out(columns, rows, touched, touched_count, count, len(log_array))
    log_bytes = reply_bytes = 0
    for number in range(fitting):
        row = columns[ROW * MAX_RUN_MESSAGES + number] * ROW_NUMBERS
        offset = physical_offset + log_bytes
        write_record(log, log_bytes, number, read, packed, offset, timestamp_ms)
        at = (rows[row + AT] + rows[row + COUNT]) * _ENTRY_BYTES
        store_i64(entries, at, offset)
        store_i32(entries, at + _ENTRY_SIZE, columns[RECORD_BYTES * MAX_RUN_MESSAGES + number])
        store_i64(entries, at + _ENTRY_TAGS, columns[TAGS_CODE * MAX_RUN_MESSAGES + number])
        if columns[IS_ONE_WAY * MAX_RUN_MESSAGES + number] == 0:
            reply_bytes = write_reply(replies, reply_bytes, pattern, number, read, offset)
        rows[row + COUNT] += 1
        rows[row + NEXT_OFFSET] += 1
        log_bytes += columns[RECORD_BYTES * MAX_RUN_MESSAGES + number]
    return fitting, log_bytes, reply_bytes


@kernel(types.void, BYTES, NUMBER, INT64S, INT64S)
def commit(log_array: ByteArray, count: int, columns: Numbers, rows: Numbers) -> None:
    """Write size and magic of each record, in order, so that no gap precedes one."""
    log = raw(log_array)
    for number in range(count):
        record = columns[RECORD * MAX_RUN_MESSAGES + number]
        row = columns[ROW * MAX_RUN_MESSAGES + number] * ROW_NUMBERS
        is_long = rows[row + TOPIC_BYTES] > MAX_TOPIC_BYTES_V1
        store_i32(log, record, columns[RECORD_BYTES * MAX_RUN_MESSAGES + number])
        store_i32(log, record + LENGTH_BYTES, MAGIC_V2 if is_long else MAGIC_V1)
