"""The compiled taking apart of a batch: its members to records, queue entries and ids.

Three calls store a batch, as far as it is plain: :func:`measure` checks all members before anything
is written, :func:`write` writes records without their sizes, and :func:`commit_members` writes
sizes and magics, which make records readable. ``formats.batch_body`` and
``store.write.append.Appender.append_batch`` are the definition of it.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

from numba import types

from rocketlens.formats.batch_body import (
    BODY_LENGTH_AT,
    FLAG_AT,
    HEAD_BYTES,
    MIN_MEMBER_BYTES,
    PROPERTIES_LENGTH_BYTES,
)
from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    ByteArray,
    copy_bytes,
    device,
    hash_text,
    kernel,
    load_i16,
    load_i32,
    raw,
    store_i32,
    store_i64,
)
from rocketlens.formats.compiled.kernels_send import Hosts, write_hex, write_record
from rocketlens.formats.compiled.kernels_send_header import LENGTH_BYTES, NONE, Numbers
from rocketlens.formats.compiled.kernels_send_parse import (
    BODY,
    BODY_BYTES,
    FLAG,
    NEXT_OFFSET,
    TEXT,
    TEXT_BYTES,
)
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT
from rocketlens.limits import MAX_RUN_MESSAGES

INLINED: Final = "1a49b84023323830"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

_NAME_END, _PROPERTY_END = 1, 2
_TAGS: Final = int.from_bytes(b"TAGS", "big")
_TAGS_BYTES: Final = 4
_COMMA: Final = 0x2C
_SIGN: Final = 0x80000000
_ENTRY_BYTES: Final = ENTRY_LAYOUT.size
_ENTRY_SIZE: Final = ENTRY_LAYOUT.offsets["store_size"]
_ENTRY_TAGS: Final = ENTRY_LAYOUT.offsets["tags_code"]
_DELAY_START: Final = ord("D")
_DELAY_REST: Final = int.from_bytes(b"ELAY", "big")
_DELAY_BYTES: Final = 5


@device
def member_end(body: ByteArray, position: int, size: int, columns: Numbers) -> int:
    """Find the parts of a member; return the position behind it, or -1 if it is not one."""
    if size - position < MIN_MEMBER_BYTES:
        return NONE
    member_bytes = load_i32(body, position)
    body_bytes = load_i32(body, position + BODY_LENGTH_AT)
    text_bytes = member_bytes - MIN_MEMBER_BYTES - body_bytes
    if body_bytes < 0 or text_bytes < 0 or member_bytes > size - position:
        return NONE
    start = position + HEAD_BYTES
    if load_i16(body, start + body_bytes) != text_bytes:
        return NONE
    columns[FLAG * MAX_RUN_MESSAGES] = load_i32(body, position + FLAG_AT)
    columns[BODY * MAX_RUN_MESSAGES] = start
    columns[BODY_BYTES * MAX_RUN_MESSAGES] = body_bytes
    columns[TEXT * MAX_RUN_MESSAGES] = start + body_bytes + PROPERTIES_LENGTH_BYTES
    columns[TEXT_BYTES * MAX_RUN_MESSAGES] = text_bytes
    return position + member_bytes


@device
def tags_of(body: ByteArray, start: int, stop: int) -> tuple[int, int]:
    """Return begin and end of the last TAGS of properties, 0 and 0 if there is none.

    The end is -1 if a byte is zero, or there is a name that ends with DELAY.
    """
    name = start
    between = NONE
    tags = tags_end = 0
    for position in range(start, stop + 1):
        byte = _PROPERTY_END if position == stop else body[position]
        if byte == 0:
            return 0, NONE
        if byte == _NAME_END:
            delay_at = position - _DELAY_BYTES
            if (
                delay_at >= start
                and body[delay_at] == _DELAY_START
                and load_i32(body, delay_at + 1) == _DELAY_REST
            ):
                return 0, NONE
            if between < 0:
                between = position
        elif byte == _PROPERTY_END:
            if (
                between - name == _TAGS_BYTES
                and between < position - 1
                and load_i32(body, name) == _TAGS
            ):
                tags = between + 1
                tags_end = position
            name = position + 1
            between = NONE
    return tags, tags_end


@kernel(
    types.UniTuple(NUMBER, 2),
    READ_ONLY_BYTES,
    NUMBER,
    NUMBER,
    INT64S,
    BYTES,
)
def measure(
    body_array: ByteArray, max_body: int, fixed: int, columns: Numbers, entry_array: ByteArray
) -> tuple[int, int]:
    """Check all members, and write size and tags code of each into its entry.

    ``fixed`` bytes of a record are neither body nor properties. Returns how many members there are
    and the bytes of their records; -1 if one is not plain: it is none, too large, has a zero byte
    or a delay in its properties, or there are more than entries.
    """
    body, entries = raw(body_array), raw(entry_array)
    size = len(body_array)
    room = len(entry_array)
    count = position = total = at = 0
    while position < size:
        position = member_end(body, position, size, columns)
        if position < 0 or columns[BODY_BYTES * MAX_RUN_MESSAGES] > max_body:
            return NONE, 0
        if at + _ENTRY_BYTES > room:
            return NONE, 0
        text_bytes = columns[TEXT_BYTES * MAX_RUN_MESSAGES]
        text = columns[TEXT * MAX_RUN_MESSAGES]
        tags, tags_end = tags_of(body, text, text + text_bytes)
        if tags_end < 0:
            return NONE, 0
        code = 0
        if tags > 0:
            code = hash_text(body, tags, tags_end, 0)
        record_bytes = fixed + columns[BODY_BYTES * MAX_RUN_MESSAGES] + text_bytes
        store_i32(entries, at + _ENTRY_SIZE, record_bytes)
        store_i64(entries, at + _ENTRY_TAGS, code - 2 * _SIGN if code & _SIGN else code)
        total += record_bytes
        at += _ENTRY_BYTES
        count += 1
    return count, total


@kernel(
    types.void,
    READ_ONLY_BYTES,
    types.Tuple((INT64S, INT64S, READ_ONLY_BYTES)),
    types.Tuple((BYTES, NUMBER, NUMBER, NUMBER)),
    BYTES,
    NUMBER,
    NUMBER,
    READ_ONLY_BYTES,
    types.Tuple((BYTES, BYTES)),
)
def write(
    body_array: ByteArray,
    target: tuple[Numbers, Numbers, ByteArray],
    hosts: Hosts,
    log_array: ByteArray,
    physical_offset: int,
    timestamp_ms: int,
    prefix: ByteArray,
    written: tuple[ByteArray, ByteArray],
) -> None:
    """Write records without their sizes, where they begin into their entries, and ids.

    ``target``: columns with what all members have, the row of the queue, its topic. ``log_array``
    begins at ``physical_offset``, and has room for the records that :func:`measure` measured.
    ``written``: entries, as :func:`measure` left them, and ids: each behind ``prefix`` and before a
    comma.
    """
    body, log = raw(body_array), raw(log_array)
    columns, row, topic = raw(target[0]), raw(target[1]), raw(target[2])
    read = (body, columns, body, topic, row, row)
    packed = (raw(hosts[0]), hosts[1], hosts[2], hosts[3])
    start, entries, ids = raw(prefix), raw(written[0]), raw(written[1])
    size = len(body_array)
    position = at = entry = end = 0
    while position < size:
        position = member_end(body, position, size, columns)
        offset = physical_offset + at
        write_record(log, at, 0, read, packed, offset, timestamp_ms)
        store_i64(entries, entry, offset)
        copy_bytes(ids, end, start, 0, len(prefix))
        end = write_hex(ids, end + len(prefix), offset)
        ids[end] = _COMMA
        end += 1
        row[NEXT_OFFSET] += 1
        at += load_i32(entries, entry + _ENTRY_SIZE)
        entry += _ENTRY_BYTES


@kernel(types.void, BYTES, NUMBER, NUMBER, READ_ONLY_BYTES)
def commit_members(log_array: ByteArray, count: int, magic: int, entry_array: ByteArray) -> None:
    """Write size and magic of each record, in order, so that no gap precedes one."""
    log, entries = raw(log_array), raw(entry_array)
    at = 0
    for number in range(count):
        record_bytes = load_i32(entries, number * _ENTRY_BYTES + _ENTRY_SIZE)
        store_i32(log, at, record_bytes)
        store_i32(log, at + LENGTH_BYTES, magic)
        at += record_bytes
