"""Compiled walks over commit log bytes: records to rows, record starts, body checksums.

Called through :mod:`rocketlens.formats.compiled.kernels`, which checks the arguments that the
proofs of "inside the buffer" below begin with: arrays of the right type and ``0 <= start <=
len(buffer)``, ``0 <= base_offset <= 2**62``.

What counts as a record is what :func:`rocketlens.formats.commitlog_record.decode` takes with
``check_crc=False``; a test holds the two together.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Any, Final

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from rocketlens.formats.commitlog_record import (
    HEADS,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
)
from rocketlens.formats.compiled.kernels_device import (
    INT32S,
    INT64S,
    MASK_BYTES,
    NUMBER,
    ONE,
    READ_ONLY_BYTES,
    ZERO,
    ByteArray,
    byte_mask,
    device,
    hash_text,
    index_hash,
    kernel,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    lowest_bit,
    mix_bytes,
    raw,
)
from rocketlens.formats.dledger import BLANK_MAGIC, ENTRY_FIELDS, ENTRY_HEADER_BYTES, ENTRY_MAGIC
from rocketlens.limits import MAX_RECORD_BYTES
from rocketlens.model.rocketmq import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from rocketlens.model.text import java

INLINED: Final = "7648ddca3c10cc75"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

RECORD_DTYPE: Final = np.dtype(
    [
        ("physical_offset", np.int64),
        ("queue_offset", np.int64),
        ("store_timestamp_ms", np.int64),
        ("born_timestamp_ms", np.int64),
        ("prepared_transaction_offset", np.int64),
        ("topic_hash", np.uint64),
        ("store_size", np.int32),
        ("body_crc", np.int32),
        ("queue_id", np.int32),
        ("flag", np.int32),
        ("sys_flag", np.int32),
        ("reconsume_times", np.int32),
        ("body_start", np.int32),
        ("body_length", np.int32),
        ("topic_start", np.int32),
        ("topic_length", np.int32),
        ("properties_start", np.int32),
        ("properties_length", np.int32),
        ("unique_key_start", np.int32),
        ("unique_key_length", np.int32),
        ("keys_start", np.int32),
        ("keys_length", np.int32),
        ("tags_start", np.int32),
        ("tags_length", np.int32),
        ("tags_hash", np.int32),
        ("delay_level", np.int32),
        ("key_seed", np.uint32),
        ("store_host_start", np.int32),
    ],
    align=True,
)

STOP: Final = 0
FULL: Final = 1
BLANK: Final = 2
END: Final = 3
BAD: Final = 4

# Offsets in a record with IPv4 hosts. numba compiles a module's numbers into its code.
_HEAD: Final = HEADS[0]
_HEAD_BYTES: Final = _HEAD.size
_MAGIC: Final = _HEAD.offsets["magic"]
_BODY_CRC: Final = _HEAD.offsets["body_crc"]
_QUEUE_ID: Final = _HEAD.offsets["queue_id"]
_FLAG: Final = _HEAD.offsets["flag"]
_QUEUE_OFFSET: Final = _HEAD.offsets["queue_offset"]
_PHYSICAL_OFFSET: Final = _HEAD.offsets["physical_offset"]
_SYS_FLAG: Final = _HEAD.offsets["sys_flag"]
_BORN_TIMESTAMP: Final = _HEAD.offsets["born_timestamp_ms"]
_BORN_PORT: Final = _HEAD.offsets["born_port"]
_STORE_TIMESTAMP: Final = _HEAD.offsets["store_timestamp_ms"]
_STORE_HOST: Final = _HEAD.offsets["store_host"]
_STORE_PORT: Final = _HEAD.offsets["store_port"]
_RECONSUME_TIMES: Final = _HEAD.offsets["reconsume_times"]
_PREPARED_OFFSET: Final = _HEAD.offsets["prepared_transaction_offset"]
_BODY_LENGTH: Final = _HEAD.offsets["body_length"]
_ENTRY_SIZE: Final = ENTRY_FIELDS.offsets["size"]
_ENTRY_POSITION: Final = ENTRY_FIELDS.offsets["position"]
_ENTRY_BODY_LENGTH: Final = ENTRY_FIELDS.offsets["body_length"]
_MORE_BYTES: Final = HOST_BYTES_V6 - HOST_BYTES_V4
LENGTH_BYTES: Final = 2
"""Bytes of the length of properties, and of a V2 topic's length."""
NAME_BYTE: Final = 0x01
PROPERTY_BYTE: Final = 0x02
SPACE: Final = 0x20
_HASH_SIGN: Final = 0x23
_KEYS: Final = int.from_bytes(b"KEYS", "big")
_TAGS: Final = int.from_bytes(b"TAGS", "big")
_DELA: Final = int.from_bytes(b"DELA", "big")
_UNIQ_KEY: Final = int.from_bytes(b"UNIQ_KEY", "big")
_NOT_AN_INTEGER: Final = java.NOT_AN_INTEGER

ROWS: Final = types.Array(from_dtype(RECORD_DTYPE), 1, "C")
READ_ONLY_ROWS: Final = types.Array(from_dtype(RECORD_DTYPE), 1, "C", readonly=True)
_ENTRY_ARRAYS: Final = (INT32S, INT64S, INT64S)

Row = Any
RowArray = NDArray[np.void]
Entries = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], int]
"""The raw output arrays of index entries, and their size."""
_NO_RECORD: Final = (0, 0, 0, 0, 0)


@device
def host_bytes(sys_flag: int) -> tuple[int, int]:
    """Return how many more bytes than with IPv4 the born host takes, and both hosts take."""
    born = _MORE_BYTES if sys_flag & SYS_FLAG_BORN_HOST_V6 else 0
    store = _MORE_BYTES if sys_flag & SYS_FLAG_STORE_HOST_V6 else 0
    return born, born + store


@device
def is_indexed(sys_flag: int) -> bool:
    """Do what :func:`rocketlens.formats.commitlog_record.is_indexed` does."""
    return sys_flag & SYS_FLAG_TRANSACTION_MASK != SYS_FLAG_ROLLBACK


@device
def has_queue_entry(sys_flag: int) -> bool:
    """Do what :func:`rocketlens.formats.commitlog_record.has_queue_entry` does."""
    return sys_flag & SYS_FLAG_PREPARED == 0


@device
def measure_record(
    buffer: ByteArray, physical_offset: int, position: int, limit: int
) -> tuple[int, int, int, int, int]:
    """Return whether a whole record begins at ``position`` and ends by ``limit``, and measure it.

    Returns its size (0: no record), and within the record the start of the body, its length, the
    start of the topic and its length. All parts add up to the size exactly. ``limit`` must not be
    above the length of the buffer.
    """
    if limit - position < MIN_RECORD_BYTES:
        return _NO_RECORD
    size = load_i32(buffer, position)
    magic = load_i32(buffer, position + _MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:  # noqa: PLR1714 - a tuple is slower
        return _NO_RECORD
    if size < MIN_RECORD_BYTES or size > limit - position or size > MAX_RECORD_BYTES:
        return _NO_RECORD
    if load_i64(buffer, position + _PHYSICAL_OFFSET) != physical_offset:
        return _NO_RECORD
    born_more, more = host_bytes(load_i32(buffer, position + _SYS_FLAG))
    body_start = _HEAD_BYTES + more
    wide = 1 if magic == MAGIC_V1 else LENGTH_BYTES
    # The rest is the body, the topic and the properties with their lengths.
    parts = size - (body_start + wide + LENGTH_BYTES)
    if parts < 0:
        return _NO_RECORD
    born_port = load_i32(buffer, position + _BORN_PORT + born_more)
    store_port = load_i32(buffer, position + _STORE_PORT + more)
    if (born_port | store_port) >> 16 != 0:
        return _NO_RECORD
    body_length = load_i32(buffer, position + _BODY_LENGTH + more)
    if body_length < 0 or body_length > parts:
        return _NO_RECORD
    topic_start = body_start + body_length + wide
    if wide == 1:
        topic_length = load_i8(buffer, position + topic_start - 1)
    else:
        topic_length = load_i16(buffer, position + topic_start - LENGTH_BYTES)
    if topic_length < 0 or topic_length > parts - body_length:
        return _NO_RECORD
    properties_length = load_i16(buffer, position + topic_start + topic_length)
    if properties_length != parts - body_length - topic_length:
        return _NO_RECORD
    return size, body_start, body_length, topic_start, topic_length


@device
def bytes_before_record(buffer: ByteArray, physical_offset: int, position: int, limit: int) -> int:
    """Do what :func:`rocketlens.formats.dledger.bytes_before_record` does."""
    if limit - position < ENTRY_HEADER_BYTES or load_i32(buffer, position) != ENTRY_MAGIC:
        return 0
    size = load_i32(buffer, position + _ENTRY_SIZE)
    body_length = np.int64(load_i32(buffer, position + _ENTRY_BODY_LENGTH))
    is_here = load_i64(buffer, position + _ENTRY_POSITION) == physical_offset
    is_entry = is_here and size == body_length + ENTRY_HEADER_BYTES > ENTRY_HEADER_BYTES
    return ENTRY_HEADER_BYTES if is_entry else 0


@device
def reason_without_record(buffer: ByteArray, position: int, limit: int) -> int:
    """Return why no record begins at ``position``: BLANK, END or BAD."""
    if limit - position < 8:
        return END
    size = load_i32(buffer, position)
    magic = load_i32(buffer, position + _MAGIC)
    if magic == MAGIC_BLANK or (size == BLANK_MAGIC and magic == limit - position):
        return BLANK
    if magic == 0 and size == 0:
        return END
    return BAD


@device
def set_property(
    buffer: ByteArray, record: int, row: Row, name_start: int, separator: int, end: int
) -> int:
    """Store in ``row`` where the value of a property is, if it is one that ``row`` has.

    The name is before ``separator``, the value from there to ``end``. All are positions in the
    buffer; ``record`` is the begin of the record. ``separator > name_start``.
    """
    length = separator - name_start
    value_length = end - separator - 1
    value = separator + 1 - record
    if length == 8:
        if load_i64(buffer, name_start) == _UNIQ_KEY:
            row.unique_key_start = value
            row.unique_key_length = value_length
    elif length == 4:
        word = load_i32(buffer, name_start)
        if word == _KEYS:
            row.keys_start = value
            row.keys_length = value_length
        elif word == _TAGS:
            row.tags_start = value
            row.tags_length = value_length
    elif length == 5 and load_i32(buffer, name_start) == _DELA and buffer[name_start + 4] == 0x59:
        level = java.utf8_parse_int(buffer, separator + 1, end)
        row.delay_level = 0 if level == _NOT_AN_INTEGER else level
    return 0


@device
def find_properties(buffer: ByteArray, record: int, row: Row, start: int, stop: int) -> int:
    """Walk ``buffer[start:stop]`` as ``MessageDecoder.string2messageProperties`` does.

    It looks for the first name separator from the beginning of each segment, and takes the segment
    if that lies inside with something on both sides. ``stop`` must be at least 64.
    """
    name_start = start
    separator = -1
    block = start
    origin = start
    names = ZERO
    marks = ZERO
    is_last = False
    while not is_last:
        while marks == ZERO and block < stop:
            origin = block
            at = min(block, stop - MASK_BYTES)
            shift = np.uint64(block - at)
            names = byte_mask(buffer, at, NAME_BYTE) >> shift
            marks = names | byte_mask(buffer, at, PROPERTY_BYTE) >> shift
            block += MASK_BYTES
        at = stop
        if marks == ZERO:
            is_last = True
        else:
            bit = marks & (~marks + ONE)
            at = origin + lowest_bit(marks)
            marks ^= bit
            if names & bit:
                if separator < 0:
                    separator = at
                continue
        if name_start < separator < at - 1:
            set_property(buffer, record, row, name_start, separator, at)
        name_start = at + 1
        separator = -1
    return 0


@device
def read_row(
    buffer: ByteArray,
    row: Row,
    position: int,
    measured: tuple[int, int, int, int, int],
) -> int:
    """Fill ``row`` from the measured record at ``position``."""
    size, body_start, body_length, topic_start, topic_length = measured
    born_more, more = host_bytes(load_i32(buffer, position + _SYS_FLAG))
    row.store_size = size
    row.body_crc = load_i32(buffer, position + _BODY_CRC)
    row.queue_id = load_i32(buffer, position + _QUEUE_ID)
    row.flag = load_i32(buffer, position + _FLAG)
    row.queue_offset = load_i64(buffer, position + _QUEUE_OFFSET)
    row.physical_offset = load_i64(buffer, position + _PHYSICAL_OFFSET)
    row.sys_flag = load_i32(buffer, position + _SYS_FLAG)
    row.born_timestamp_ms = load_i64(buffer, position + _BORN_TIMESTAMP)
    row.store_timestamp_ms = load_i64(buffer, position + _STORE_TIMESTAMP + born_more)
    row.store_host_start = _STORE_HOST + born_more
    row.reconsume_times = load_i32(buffer, position + _RECONSUME_TIMES + more)
    row.prepared_transaction_offset = load_i64(buffer, position + _PREPARED_OFFSET + more)
    row.body_start = body_start
    row.body_length = body_length
    row.topic_start = topic_start
    row.topic_length = topic_length
    topic = position + topic_start
    row.topic_hash = mix_bytes(buffer, topic, topic + topic_length)
    seed = hash_text(buffer, topic, topic + topic_length, 0)
    row.key_seed = (seed * 31 + _HASH_SIGN) & 0xFFFFFFFF
    properties_start = topic_start + topic_length + LENGTH_BYTES
    row.properties_start = properties_start
    row.properties_length = size - properties_start
    row.unique_key_start = 0
    row.unique_key_length = -1
    row.keys_start = 0
    row.keys_length = -1
    row.tags_start = 0
    row.tags_length = -1
    row.tags_hash = 0
    row.delay_level = 0
    find_properties(buffer, position, row, position + properties_start, position + size)
    if row.tags_length > 0:
        tags = position + row.tags_start
        state = hash_text(buffer, tags, tags + row.tags_length, 0)
        row.tags_hash = state - 0x100000000 if state >= 0x80000000 else state
    return 0


@device
def put_entry(
    state: int,
    row: Row,
    number: int,
    entries: Entries,
) -> int:
    """Write entry ``number`` if there is room for it; return the next number in any case."""
    hashes, offsets, timestamps, room = entries
    if number < room:
        hashes[number] = index_hash(state)
        offsets[number] = row.physical_offset
        timestamps[number] = row.store_timestamp_ms
    return number + 1


@device
def put_entries(
    buffer: ByteArray,
    position: int,
    row: Row,
    with_tags: bool,
    number: int,
    entries: Entries,
) -> int:
    """Write the index entries of the record at ``position``, in RocketMQ's order.

    Returns the number of the next entry; those beyond the arrays are counted, not written. The
    row's slices must lie in the buffer at 64 or more.
    """
    if not is_indexed(row.sys_flag):
        return number
    seed = np.int64(row.key_seed)
    if row.unique_key_length > 0:
        start = position + row.unique_key_start
        state = hash_text(buffer, start, start + row.unique_key_length, seed)
        number = put_entry(state, row, number, entries)
    if row.keys_length > 0:
        start = position + row.keys_start
        number = put_keys(buffer, start, start + row.keys_length, seed, row, number, entries)
    if with_tags and row.tags_length > 0:
        start = position + row.tags_start
        # "T#"
        state = (((seed * 31 + 0x54) * 31) + _HASH_SIGN) & 0xFFFFFFFF
        state = hash_text(buffer, start, start + row.tags_length, state)
        number = put_entry(state, row, number, entries)
    return number


@device
def put_keys(
    buffer: ByteArray,
    start: int,
    stop: int,
    seed: int,
    row: Row,
    number: int,
    entries: Entries,
) -> int:
    """Write one entry for each non-empty key between spaces of ``buffer[start:stop]``."""
    token = start
    block = start
    origin = start
    marks = ZERO
    is_last = False
    while not is_last:
        while marks == ZERO and block < stop:
            origin = block
            at = min(block, stop - MASK_BYTES)
            marks = byte_mask(buffer, at, SPACE) >> np.uint64(block - at)
            block += MASK_BYTES
        at = stop
        if marks == ZERO:
            is_last = True
        else:
            at = origin + lowest_bit(marks)
            marks &= marks - ONE
        if at > token:
            state = hash_text(buffer, token, at, seed)
            number = put_entry(state, row, number, entries)
        token = at + 1
    return number


@kernel(
    types.UniTuple(NUMBER, 4),
    READ_ONLY_BYTES,
    NUMBER,
    NUMBER,
    NUMBER,
    ROWS,
    types.boolean,
    types.boolean,
    *_ENTRY_ARRAYS,
)
def scan(
    buffer: ByteArray,
    base_offset: int,
    start: int,
    stop: int,
    rows: RowArray,
    with_entries: bool,
    with_tags: bool,
    hashes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Walk records; return rows filled, entries filled, next position, reason."""
    limit = len(buffer)
    memory = raw(buffer)
    entries = (raw(hashes), raw(offsets), raw(timestamps), len(hashes))
    position = start
    count = 0
    number = 0
    reason = STOP
    while position < stop:
        measured = measure_record(memory, base_offset + position, position, limit)
        if measured[0] == 0:
            header = bytes_before_record(memory, base_offset + position, position, limit)
            position += header
            if header > 0:
                continue
            reason = reason_without_record(memory, position, limit)
            break
        if count == len(rows):
            reason = FULL
            break
        row = rows[count]
        read_row(memory, row, position, measured)
        if with_entries:
            after = put_entries(memory, position, row, with_tags, number, entries)
            if after > len(hashes):
                reason = FULL
                break
            number = after
        count += 1
        position += measured[0]
    if reason == STOP and position >= stop:
        position += bytes_before_record(memory, base_offset + position, position, limit)
    return count, number, position, reason


@device
def row_position(limit: int, base_offset: int, row: Row) -> int:
    """Return the position of a row's record in ``limit`` bytes; -1 where a slice isn't inside it.

    Rows come from :func:`scan`, but nothing stops a caller from pairing them with another buffer.
    """
    position = row.physical_offset - base_offset
    size = np.int64(row.store_size)
    if position < 0 or size < MIN_RECORD_BYTES or position > limit - size:
        return -1
    if not is_inside(row.topic_start, row.topic_length, size):
        return -1
    if not is_inside(row.properties_start, row.properties_length, size):
        return -1
    if not is_inside(row.body_start, row.body_length, size):
        return -1
    if row.unique_key_length > 0 and not is_inside(
        row.unique_key_start, row.unique_key_length, size
    ):
        return -1
    if row.keys_length > 0 and not is_inside(row.keys_start, row.keys_length, size):
        return -1
    if row.tags_length > 0 and not is_inside(row.tags_start, row.tags_length, size):
        return -1
    return position


@device
def is_inside(start: int, length: int, size: int) -> bool:
    """Return whether a slice lies behind the fixed fields of a record of ``size`` bytes."""
    begin = np.int64(start)
    count = np.int64(length)
    return begin >= MASK_BYTES and count >= 0 and begin + count <= size


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, READ_ONLY_ROWS, types.boolean, *_ENTRY_ARRAYS)
def entries_of_rows(
    buffer: ByteArray,
    base_offset: int,
    rows: RowArray,
    with_tags: bool,
    hashes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
) -> int:
    """Write the index entries of rows; return their number, or -1 - n if row n does not fit the
    buffer.
    """
    memory = raw(buffer)
    entries = (raw(hashes), raw(offsets), raw(timestamps), len(hashes))
    number = 0
    for index in range(len(rows)):
        row = rows[index]
        position = row_position(len(buffer), base_offset, row)
        if position < 0:
            return -1 - index
        number = put_entries(memory, position, row, with_tags, number, entries)
    return number


@kernel(NUMBER, READ_ONLY_BYTES, NUMBER, NUMBER, NUMBER)
def find_start(buffer: ByteArray, base_offset: int, start: int, stop: int) -> int:
    """Return the first position in ``start .. stop - 1`` where a record begins, or -1."""
    limit = len(buffer)
    memory = raw(buffer)
    # The first two bytes of the magic are at 4 and 5 of a record; a record has at least 91 bytes.
    last = min(stop, limit - MIN_RECORD_BYTES + 1)
    block = start
    while block < last:
        # 69 bytes from ``block`` are read: inside, as block + 91 <= limit.
        marks = byte_mask(memory, block + _MAGIC, 0xDA) & byte_mask(
            memory, block + _MAGIC + 1, 0xA3
        )
        while marks != ZERO:
            position = block + lowest_bit(marks)
            marks &= marks - ONE
            if position >= last:
                return -1
            if measure_record(memory, base_offset + position, position, limit)[0] > 0:
                return position
        block += MASK_BYTES
    return -1


@kernel(types.UniTuple(NUMBER, 2), READ_ONLY_BYTES, NUMBER, NUMBER, NUMBER)
def walk(buffer: ByteArray, base_offset: int, start: int, target: int) -> tuple[int, int]:
    """Step over records from ``start`` to the first that begins at ``target`` or later."""
    limit = len(buffer)
    memory = raw(buffer)
    position = start
    while position < target:
        size = measure_record(memory, base_offset + position, position, limit)[0]
        size = size or bytes_before_record(memory, base_offset + position, position, limit)
        if size == 0:
            return position, reason_without_record(memory, position, limit)
        position += size
    return position, STOP
