"""The compiled parts of a look-up: its request, candidates of a hash, and their comparison.

Each kernel leaves what is out of the ordinary to ``broker.lookup`` and ``store.read.index``, which
are the definition: it returns a number that says so, and nothing else happens. The layouts are in
:mod:`rocketlens.formats.commitlog_record` and ``index_file``.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from rocketlens.formats.commitlog_record import HEADS
from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    ByteArray,
    device,
    hash_text,
    index_hash,
    kernel,
    load_i32,
    load_i64,
    raw,
)
from rocketlens.formats.compiled.kernels_scan import measure_record
from rocketlens.formats.compiled.kernels_send_header import (
    CODE,
    FIELD_COUNT,
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
    read_binary,
    read_json,
)
from rocketlens.formats.compiled.kernels_send_parse import frame_at
from rocketlens.formats.compiled.kernels_text import checksums_agree
from rocketlens.formats.index_file import ENTRY_LAYOUT, HEADER_BYTES, HEADER_LAYOUT, SLOT_BYTES
from rocketlens.limits import MAX_INT, MAX_KEY_BYTES, MAX_LOOP_CANDIDATES, MAX_TOPIC_CHARACTERS
from rocketlens.model.rocketmq import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)

INLINED: Final = "63837fe39d73ed2a"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

Packed = NDArray[np.uint64]
READ_ONLY_UINT64S: Final = types.Array(types.uint64, 1, "C", readonly=True)

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
"""Of the record that was viewed."""
REQUEST_NUMBERS: Final = TOPIC_BYTES + 1

# Numbers of an index file.
SLOT_COUNT, ENTRY_COUNT, LAST_ENTRY, NEXT_ENTRY, BEGIN_OFFSET, END_OFFSET = range(6)
FILE_NUMBERS: Final = 6

CANDIDATE_ROOM: Final = 4 * MAX_LOOP_CANDIDATES
"""Offsets that there is room for; behind them is room for as many sizes."""
UNUSUAL: Final = -1
OTHER_TIME: Final = -1

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
_ENTRY_BYTES: Final = ENTRY_LAYOUT.size
_ENTRY_OFFSET: Final = ENTRY_LAYOUT.offsets["physical_offset"]
_PREVIOUS_ENTRY: Final = ENTRY_LAYOUT.offsets["previous_entry"]
_NEXT_ENTRY_AT: Final = HEADER_LAYOUT.offsets["next_entry"]
_PAGE_BYTES: Final = 4096
_WINDOW_BITS: Final = np.uint64(32)
_OFFSET_MASK: Final = np.uint64(0xFFFFFFFF)


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


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, BYTES, INT64S, INT64S)
def read_request(
    frames: ByteArray, position: int, names: ByteArray, settings: Numbers, numbers: Numbers
) -> int:
    """Read the request at ``position``; return where its frame ends, 0 if it is not plain.

    ``settings`` are those of a header's, with the codes of a query and of a view.
    """
    buffer, cells, bounds, out = raw(frames), raw(names), raw(settings), raw(numbers)
    codec, header_end, end = frame_at(buffer, position, len(frames), bounds)
    if codec < 0:
        return 0
    for field in range(FIELD_COUNT):
        out[2 * field + 1] = NONE
    header = position + _PREFIX_BYTES
    if codec == 0:
        if not read_json(buffer, header, header_end, cells, bounds, out):
            return 0
    elif not read_binary(buffer, header, header_end, cells, bounds, out):
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


@kernel(NUMBER, READ_ONLY_BYTES, INT64S, READ_ONLY_BYTES, NUMBER, INT64S, NUMBER, NUMBER, NUMBER)
def match(
    frames: ByteArray,
    numbers: Numbers,
    content_array: ByteArray,
    base_offset: int,
    offsets: Numbers,
    first: int,
    count: int,
    max_num: int,
) -> int:
    """Compare candidates with a request, newest first, until ``max_num`` match.

    Those from ``first`` to below ``count`` are compared, up to one that is not in the segment,
    whose bytes begin at ``base_offset``. Writes the size of each, or `OTHER_TIME`. Returns the
    number of the first that was not compared, `UNUSUAL` if one is not recognized.
    """
    buffer, request, content, out = raw(frames), raw(numbers), raw(content_array), raw(offsets)
    number = first
    while number < count and max_num > 0:
        position = out[number] - base_offset
        if position < 0 or position >= len(content_array):
            break
        size, body, body_bytes, topic, topic_bytes = measure_record(
            content, out[number], position, len(content_array)
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


@kernel(NUMBER, READ_ONLY_BYTES, INT64S, READ_ONLY_BYTES, NUMBER, NUMBER, NUMBER, INT64S)
def scan(
    frames: ByteArray,
    numbers: Numbers,
    content_array: ByteArray,
    base_offset: int,
    start: int,
    stop: int,
    offsets: Numbers,
) -> int:
    """Find the records of the request's key in a part of the log that no index has yet.

    ``start`` and ``stop`` are physical offsets in the segment. Writes their offsets, the oldest
    first; returns how many there are, or `UNUSUAL`.
    """
    buffer, request, content, out = raw(frames), raw(numbers), raw(content_array), raw(offsets)
    limit = stop - base_offset
    if start < base_offset or limit > len(content_array):
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


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, NUMBER, INT64S)
def view(content_array: ByteArray, base_offset: int, physical_offset: int, numbers: Numbers) -> int:
    """Return the size of the record at an offset, or 0; write down its queue and its topic.

    TOPIC_START is a position in the segment, whose bytes begin at ``base_offset``.
    """
    content, out = raw(content_array), raw(numbers)
    position = physical_offset - base_offset
    if position < 0:
        return 0
    size, body, body_bytes, topic, topic_bytes = measure_record(
        content, physical_offset, position, len(content_array)
    )
    start = topic + topic_bytes + _LENGTH_BYTES
    if size == 0 or not is_sound(content, position, size, body, body_bytes, start):
        return 0
    out[QUEUE_ID] = load_i32(content, position + _QUEUE_ID_AT)
    out[QUEUE_OFFSET] = load_i64(content, position + _QUEUE_OFFSET_AT)
    out[TOPIC_START] = position + topic
    out[TOPIC_BYTES] = topic_bytes
    return size


@kernel(
    types.UniTuple(NUMBER, 2), READ_ONLY_UINT64S, NUMBER, NUMBER, NUMBER, INT64S, NUMBER, NUMBER
)
def newest_of_run(
    packed: Packed,
    is_sorted: int,
    key_hash: int,
    base_offset: int,
    offsets: Numbers,
    count: int,
    limit: int,
) -> tuple[int, int]:
    """Add the newest ``limit`` entries of a hash in a run; return the count, and 1 if all fitted.

    A run that is not sorted has its entries in the log's order.
    """
    entries, out = raw(packed), raw(offsets)
    wanted = np.uint64(key_hash)
    low = 0
    high = len(packed)
    if is_sorted == 0:
        low = high
    while low < high:
        middle = (low + high) >> 1
        if entries[middle] >> _WINDOW_BITS <= wanted:
            low = middle + 1
        else:
            high = middle
    index = low - 1
    stop = min(count + limit, CANDIDATE_ROOM)
    while index >= 0:
        if entries[index] >> _WINDOW_BITS == wanted:
            if count >= stop:
                return count, 0
            out[count] = base_offset + np.int64(entries[index] & _OFFSET_MASK)
            count += 1
        elif is_sorted != 0:
            break
        index -= 1
    return count, 1


@device
def entry_at(file: Numbers, number: int) -> int:
    """Return the position of an entry of an index file."""
    slots: int = file[SLOT_COUNT]
    return HEADER_BYTES + slots * SLOT_BYTES + number * _ENTRY_BYTES


@device
def is_near(key_hash: int, wanted: int) -> bool:
    """Do :func:`rocketlens.store.read.index.index.is_near`."""
    changed = key_hash ^ wanted
    return (
        changed & 0xFFFFFF00 == 0
        or changed & 0xFFFF00FF == 0
        or changed & 0xFF00FFFF == 0
        or changed & 0x00FFFFFF == 0
    )


@device
def is_in_order(content: ByteArray, file: Numbers, number: int, offset: int) -> bool:
    """Return whether an entry's offset is between those of its neighbours."""
    if number > file[LAST_ENTRY]:
        return True
    limit: int = file[END_OFFSET]
    if number < file[LAST_ENTRY]:
        limit = min(limit, load_i64(content, entry_at(file, number + 1) + _ENTRY_OFFSET))
    below: int = file[BEGIN_OFFSET]
    if number > 1:
        below = load_i64(content, entry_at(file, number - 1) + _ENTRY_OFFSET)
    return below <= offset <= limit


@device
def is_page_used(content: ByteArray, file: Numbers, slot: int) -> bool:
    """Return whether a slot is used on the page of an empty one."""
    start = (HEADER_BYTES + slot * SLOT_BYTES) // _PAGE_BYTES * _PAGE_BYTES
    for position in range(max(start, HEADER_BYTES), min(start + _PAGE_BYTES, entry_at(file, 0))):
        if content[position] != 0:
            return True
    return False


@kernel(types.UniTuple(NUMBER, 2), READ_ONLY_BYTES, INT64S, NUMBER, NUMBER, INT64S, NUMBER, NUMBER)
def newest_of_file(
    content_array: ByteArray,
    file_numbers: Numbers,
    are_slots_counted: int,
    key_hash: int,
    offsets: Numbers,
    count: int,
    limit: int,
) -> tuple[int, int]:
    """Add the newest ``limit`` entries of a hash in an index file; return the count, and 1 if all
    fitted.

    Checks what a walk of ``store.read.index.index`` checks; `UNUSUAL` in place of the count says
    that this one cannot be done here.
    """
    content, file, out = raw(content_array), raw(file_numbers), raw(offsets)
    slot_count = file[SLOT_COUNT]
    if slot_count < 1 or entry_at(file, file[ENTRY_COUNT]) > len(content_array):
        return UNUSUAL, 0
    slot = key_hash % slot_count
    number = load_i32(content, HEADER_BYTES + slot * SLOT_BYTES)
    if number == 0:
        is_empty = are_slots_counted != 0 or is_page_used(content, file, slot)
        return (count if is_empty else UNUSUAL), 1
    counted = max(file[NEXT_ENTRY], load_i32(content, _NEXT_ENTRY_AT))
    above = max(counted, number + 1)
    offset_above = -1
    stop = min(count + limit, CANDIDATE_ROOM)
    for _ in range(MAX_LOOP_CANDIDATES):
        if number == 0:
            return count, 1
        if number < 1 or number >= above or number >= file[ENTRY_COUNT]:
            return UNUSUAL, 0
        position = entry_at(file, number)
        own_hash = load_i32(content, position)
        offset = load_i64(content, position + _ENTRY_OFFSET)
        least = file[END_OFFSET] if number >= counted else file[BEGIN_OFFSET]
        if own_hash < 0 or own_hash % slot_count != slot or offset < least:
            return UNUSUAL, 0
        if 0 <= offset_above < offset:
            return UNUSUAL, 0
        if own_hash == key_hash:
            if not is_in_order(content, file, number, offset):
                return UNUSUAL, 0
            if count >= stop:
                return count, 0
            out[count] = offset
            count += 1
        elif is_near(own_hash, key_hash):
            return UNUSUAL, 0
        above, offset_above = number, offset
        number = load_i32(content, position + _PREVIOUS_ENTRY)
    return UNUSUAL, 0
