"""The compiled parts of a look-up: its request, and the records of a key or at an offset.

They leave what is out of the ordinary to ``broker.lookup`` and ``store.read.index``, which are the
definition: they return a number that says so, and nothing else happens. The layouts are in
:mod:`rocketlens.formats.commitlog_record`; :mod:`.kernels_answer` puts the parts together.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np

from rocketlens.formats.commitlog_record import HEADS
from rocketlens.formats.compiled.kernels_candidates import (
    CANDIDATE_ROOM,
    UNUSUAL,
)
from rocketlens.formats.compiled.kernels_device import (
    ByteArray,
    device,
    hash_text,
    index_hash,
    load_i32,
    load_i64,
)
from rocketlens.formats.compiled.kernels_scan import measure_record
from rocketlens.formats.compiled.kernels_send_header import (
    CODE,
    FLAGS,
    HEADER_SCRATCH,
    LAST_PRINTABLE,
    NO_NUMBER,
    NONE,
    NUMBERS,
    OPAQUES,
    SHORT_CODE,
    SPACE,
    Numbers,
    are_same,
    number_in,
    read_header,
)
from rocketlens.formats.compiled.kernels_send_parse import frame_at
from rocketlens.formats.compiled.kernels_text import checksums_agree
from rocketlens.limits import MAX_INT, MAX_KEY_BYTES, MAX_TOPIC_CHARACTERS
from rocketlens.model.rocketmq import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)

INLINED: Final = "2dc344ca54efbe50"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

# Fields of a query, and of a view, in the order of their names.
Q_TOPIC, Q_KEY, Q_MAX_NUM, Q_BEGIN, Q_END, Q_IS_UNIQUE, Q_TYPE, Q_LAST_KEY = range(8)
V_OFFSET, V_TOPIC = range(2)

# Numbers of a request, behind those of its header.
OPAQUE: Final = NUMBERS + OPAQUES
REQUEST_CODE: Final = NUMBERS + CODE
HASH, MAX_NUM, BEGIN, END, IS_UNIQUE_QUERY, IS_UNIQUE, OFFSET = range(
    HEADER_SCRATCH, HEADER_SCRATCH + 7
)
QUEUE_ID, QUEUE_OFFSET, TOPIC_START, TOPIC_BYTES = range(OFFSET + 1, OFFSET + 5)
"""Of the record that was viewed; its topic begins so many bytes behind it."""
REQUEST_NUMBERS: Final = TOPIC_BYTES + 1

OTHER_TIME: Final = -1
SPARE: Final = 8
"""Candidates beyond what is wanted: an offset may come from memory and from a file."""

_PREFIX_BYTES: Final = 8
_I32_DIGITS: Final = 10
_I64_DIGITS: Final = 19
_MINUS: Final = 0x2D
_NUMBER_SIGN: Final = 0x23
_KEY_TYPE, _UNIQUE_TYPE = ord("K"), ord("U")
_PROPERTY_END: Final = 2
_KEYS: Final = np.frombuffer(b"KEYS\x01", np.uint8)
_UNIQUE_KEY: Final = np.frombuffer(b"UNIQ_KEY\x01", np.uint8)
_TRUE: Final = np.frombuffer(b"true", np.uint8)
_FALSE: Final = np.frombuffer(b"false", np.uint8)
_AT: Final = HEADS[0].offsets
_BODY_CRC, _SYS_FLAG, _STORE_TIMESTAMP = (
    _AT["body_crc"],
    _AT["sys_flag"],
    _AT["store_timestamp_ms"],
)
_QUEUE_ID_AT, _QUEUE_OFFSET_AT = _AT["queue_id"], _AT["queue_offset"]
_BORN_HOST_V6, _MORE_BYTES_V6 = SYS_FLAG_BORN_HOST_V6, 12
_TRANSACTION, _ROLLBACK = SYS_FLAG_TRANSACTION_MASK, SYS_FLAG_ROLLBACK
_LENGTH_BYTES: Final = 2


@device
def is_printable(buffer: ByteArray, start: int, length: int) -> bool:
    """Return whether a slice is printable ASCII."""
    for position in range(start, start + length):
        if buffer[position] < SPACE or buffer[position] > LAST_PRINTABLE:
            return False
    return True


@device
def long_in(buffer: ByteArray, start: int, length: int) -> int:
    """Return the 64-bit number of a slice, or `NO_NUMBER`."""
    number = number_in(buffer, start, length, _I64_DIGITS)
    # A number of 19 digits may be too large, and has the wrong sign then.
    is_known = number != NO_NUMBER and number != 0  # noqa: PLR1714 - a tuple is slower
    return NO_NUMBER if is_known and (number < 0) != (buffer[start] == _MINUS) else number


@device
def truth_in(buffer: ByteArray, start: int, length: int) -> int:
    """Return 1 for a slice that is true, 0 for one that is false or absent, -1 for others."""
    if length < 0 or (length == len(_FALSE) and are_same(buffer, start, _FALSE, 0, length)):
        return 0
    return 1 if length == len(_TRUE) and are_same(buffer, start, _TRUE, 0, length) else NONE


@device
def read_query(buffer: ByteArray, numbers: Numbers) -> bool:
    """Read the fields of a query; return False if it is out of the ordinary."""
    topic, topic_bytes = numbers[2 * Q_TOPIC], numbers[2 * Q_TOPIC + 1]
    key, key_bytes = numbers[2 * Q_KEY], numbers[2 * Q_KEY + 1]
    if topic_bytes < 1 or topic_bytes > MAX_TOPIC_CHARACTERS:
        return False
    if key_bytes < 1 or key_bytes > MAX_KEY_BYTES:
        return False
    if not is_printable(buffer, topic, topic_bytes) or not is_printable(buffer, key, key_bytes):
        return False
    numbers[MAX_NUM] = number_in(
        buffer, numbers[2 * Q_MAX_NUM], numbers[2 * Q_MAX_NUM + 1], _I32_DIGITS
    )
    numbers[BEGIN] = long_in(buffer, numbers[2 * Q_BEGIN], numbers[2 * Q_BEGIN + 1])
    numbers[END] = long_in(buffer, numbers[2 * Q_END], numbers[2 * Q_END + 1])
    if numbers[MAX_NUM] < 1 or numbers[MAX_NUM] > MAX_INT:
        return False
    if numbers[BEGIN] == NO_NUMBER or numbers[END] == NO_NUMBER:
        return False
    if numbers[BEGIN] <= 0:
        numbers[BEGIN] = NO_NUMBER
    is_unique = truth_in(buffer, numbers[2 * Q_IS_UNIQUE], numbers[2 * Q_IS_UNIQUE + 1])
    kind_bytes = numbers[2 * Q_TYPE + 1]
    if is_unique < 0 or kind_bytes == 0 or kind_bytes > 1:
        return False
    numbers[IS_UNIQUE_QUERY] = numbers[IS_UNIQUE] = is_unique
    if kind_bytes == 1:
        kind = buffer[numbers[2 * Q_TYPE]]
        if kind == _UNIQUE_TYPE:
            numbers[IS_UNIQUE] = 1
        elif kind != _KEY_TYPE:
            return False
    state = hash_text(buffer, topic, topic + topic_bytes, 0) * 31 + _NUMBER_SIGN
    state = hash_text(buffer, key, key + key_bytes, state & 0xFFFFFFFF)
    numbers[HASH] = index_hash(state)
    return True


@device
def request_end(
    buffer: ByteArray,
    position: int,
    length: int,
    cells: ByteArray,
    bounds: Numbers,
    out: Numbers,
) -> int:
    """Read the request at ``position``; return where its frame ends, 0 if it is not plain.

    ``bounds`` are the settings of a header, with the codes of a query and of a view.
    """
    codec, header_end, end = frame_at(buffer, position, length, bounds)
    if codec < 0:
        return 0
    if not read_header(buffer, codec, position + _PREFIX_BYTES, header_end, cells, bounds, out):
        return 0
    if out[NUMBERS + FLAGS] != 0:
        return 0
    if out[REQUEST_CODE] == bounds[SHORT_CODE]:
        return end if read_query(buffer, out) else 0
    out[OFFSET] = long_in(buffer, out[2 * V_OFFSET], out[2 * V_OFFSET + 1])
    return end if out[OFFSET] >= 0 else 0


@device
def has_key(
    buffer: ByteArray,
    numbers: Numbers,
    content: ByteArray,
    start: int,
    stop: int,
    name: ByteArray,
    is_unique: bool,
) -> int:
    """Return 1 if properties have the key of a request, 0 if not, -1 if that is not clear."""
    key, key_bytes = numbers[2 * Q_KEY], numbers[2 * Q_KEY + 1]
    value = NONE
    for position in range(start, stop - len(name) + 1):
        if content[position] == name[0] and are_same(content, position, name, 0, len(name)):
            if value >= 0 or (position > start and content[position - 1] != _PROPERTY_END):
                return NONE
            value = position + len(name)
    if value < 0:
        return 0
    position = value
    while True:
        is_end = position == stop or content[position] == _PROPERTY_END
        if is_end or (not is_unique and content[position] == SPACE):
            if position - value == key_bytes and are_same(content, value, buffer, key, key_bytes):
                return 1
            if is_end:
                return 0
            value = position + 1
        position += 1


@device
def has_wanted_key(
    buffer: ByteArray, numbers: Numbers, content: ByteArray, start: int, stop: int
) -> int:
    """Do :func:`has_key` for the property that a request means."""
    if numbers[IS_UNIQUE] == 1:
        return has_key(buffer, numbers, content, start, stop, _UNIQUE_KEY, True)
    return has_key(buffer, numbers, content, start, stop, _KEYS, False)


@device
def has_topic(
    buffer: ByteArray, numbers: Numbers, content: ByteArray, start: int, length: int
) -> bool:
    """Return whether a slice is the topic of a request."""
    return length == numbers[2 * Q_TOPIC + 1] and are_same(
        content, start, buffer, numbers[2 * Q_TOPIC], length
    )


@device
def store_timestamp_at(content: ByteArray, position: int) -> int:
    """Return the store time of the whole record at ``position``."""
    is_long = load_i32(content, position + _SYS_FLAG) & _BORN_HOST_V6 != 0
    return load_i64(content, position + _STORE_TIMESTAMP + (_MORE_BYTES_V6 if is_long else 0))


@device
def is_sound(
    content: ByteArray, position: int, size: int, body: int, body_bytes: int, properties: int
) -> bool:
    """Return whether a whole record has its checksums."""
    crc = load_i32(content, position + _BODY_CRC)
    return checksums_agree(content, position, size, body, body_bytes, crc, size - properties)


@device
def compared(
    buffer: ByteArray,
    request: Numbers,
    content: ByteArray,
    content_bytes: int,
    base_offset: int,
    out: Numbers,
    first: int,
    count: int,
    max_num: int,
) -> int:
    """Compare candidates with a request, newest first, until ``max_num`` match.

    Those from ``first`` to below ``count`` are compared, up to one that is not in the segment,
    whose bytes begin at ``base_offset``. Writes the size of each, or `OTHER_TIME`. Returns the
    number of the first that was not compared, `UNUSUAL` if one is not recognized.
    """
    number = first
    while number < count and max_num > 0:
        position = out[number] - base_offset
        if position < 0 or position >= content_bytes:
            break
        size, body, body_bytes, topic, topic_bytes = measure_record(
            content, out[number], position, content_bytes
        )
        if size == 0 or not has_topic(buffer, request, content, position + topic, topic_bytes):
            return UNUSUAL
        timestamp_ms = store_timestamp_at(content, position)
        if timestamp_ms < request[BEGIN] or timestamp_ms > request[END]:
            out[CANDIDATE_ROOM + number] = OTHER_TIME
            number += 1
            continue
        start = topic + topic_bytes + _LENGTH_BYTES
        if has_wanted_key(
            buffer, request, content, position + start, position + size
        ) != 1 or not is_sound(content, position, size, body, body_bytes, start):
            return UNUSUAL
        out[CANDIDATE_ROOM + number] = size
        max_num -= 1
        number += 1
    return number


@device
def scanned(
    buffer: ByteArray,
    request: Numbers,
    content: ByteArray,
    content_bytes: int,
    base_offset: int,
    start: int,
    stop: int,
    out: Numbers,
) -> int:
    """Find the records of the request's key in a part of the log that no index has yet.

    ``start`` and ``stop`` are physical offsets in the segment. Writes their offsets, the oldest
    first; returns how many there are, or `UNUSUAL`.
    """
    limit = stop - base_offset
    if start < base_offset or limit > content_bytes:
        return UNUSUAL
    count = 0
    while start < stop:
        position = start - base_offset
        size, _, _, topic, topic_bytes = measure_record(content, start, position, limit)
        if size == 0:
            return UNUSUAL
        is_indexed = load_i32(content, position + _SYS_FLAG) & _TRANSACTION != _ROLLBACK
        if is_indexed and has_topic(buffer, request, content, position + topic, topic_bytes):
            properties = position + topic + topic_bytes + _LENGTH_BYTES
            state = has_wanted_key(buffer, request, content, properties, position + size)
            if state < 0 or count >= CANDIDATE_ROOM:
                return UNUSUAL
            if state == 1:
                out[count] = start
                count += 1
        start += size
    return count


@device
def viewed(
    content: ByteArray, content_bytes: int, base_offset: int, physical_offset: int, out: Numbers
) -> int:
    """Return the size of the record at an offset, or 0; write down its queue and its topic.

    The bytes of the segment begin at ``base_offset``.
    """
    position = physical_offset - base_offset
    if position < 0:
        return 0
    size, body, body_bytes, topic, topic_bytes = measure_record(
        content, physical_offset, position, content_bytes
    )
    start = topic + topic_bytes + _LENGTH_BYTES
    if size == 0 or not is_sound(content, position, size, body, body_bytes, start):
        return 0
    out[QUEUE_ID] = load_i32(content, position + _QUEUE_ID_AT)
    out[QUEUE_OFFSET] = load_i64(content, position + _QUEUE_OFFSET_AT)
    out[TOPIC_START] = topic
    out[TOPIC_BYTES] = topic_bytes
    return size
