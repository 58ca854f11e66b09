"""The compiled check of the records that a stretch of a consume queue leads to.

Called through :mod:`rocketlens.formats.compiled.kernels`, which checks what the proofs of "inside
the buffer" begin with: the stretch ``first .. stop`` lies in the buffer, and ``slices`` has room
for every entry.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from rocketlens.formats.commitlog_record import HEADS
from rocketlens.formats.compiled.kernels_device import (
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    ByteArray,
    device,
    kernel,
    load_i32,
    load_i64,
    raw,
)
from rocketlens.formats.compiled.kernels_scan import LENGTH_BYTES, measure_record
from rocketlens.formats.compiled.kernels_text import checksums_agree
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT

INLINED: Final = "2b25fdd89c53b7f5"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

_ENTRY_BYTES: Final = ENTRY_LAYOUT.size
_ENTRY_OFFSET: Final = ENTRY_LAYOUT.offsets["physical_offset"]
_ENTRY_SIZE: Final = ENTRY_LAYOUT.offsets["store_size"]
_ENTRY_TAGS: Final = ENTRY_LAYOUT.offsets["tags_code"] + 4
"""The low half of the tags code, which is the Java hash."""
_BODY_CRC: Final = HEADS[0].offsets["body_crc"]
_QUEUE_ID: Final = HEADS[0].offsets["queue_id"]
_QUEUE_OFFSET: Final = HEADS[0].offsets["queue_offset"]


Owner = tuple[ByteArray, int, int]
"""The bytes of a topic, how many they are, and a queue id."""


@device
def has_number(numbers: NDArray[np.int32], count: int, number: int) -> bool:
    """Return whether a number is among ``count`` ascending ones."""
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if np.int64(numbers[middle]) < number:
            low = middle + 1
        else:
            high = middle
    return low < count and np.int64(numbers[low]) == number


@device
def begins_with(buffer: ByteArray, start: int, text: ByteArray, length: int) -> bool:
    """Return whether ``length`` bytes of the buffer from ``start`` on are those of ``text``."""
    for index in range(length):  # noqa: SIM110 - numba compiles no generator
        if buffer[start + index] != text[index]:
            return False
    return True


@device
def is_of_entry(
    buffer: ByteArray,
    record: int,
    limit: int,
    physical_offset: int,
    size: int,
    owner: Owner,
    queue_offset: int,
) -> bool:
    """Return whether a whole, undamaged record of a queue's entry begins at ``record``."""
    topic, topic_bytes, queue_id = owner
    measured = measure_record(buffer, physical_offset, record, limit)
    if measured[0] == 0 or measured[0] != size:
        return False
    _, body, body_length, topic_start, topic_length = measured
    if (
        load_i32(buffer, record + _QUEUE_ID) != queue_id
        or load_i64(buffer, record + _QUEUE_OFFSET) != queue_offset
        or topic_length != topic_bytes
        or not begins_with(buffer, record + topic_start, topic, topic_length)
    ):
        return False
    body_crc = load_i32(buffer, record + _BODY_CRC)
    properties_length = size - (topic_start + topic_length + LENGTH_BYTES)
    return checksums_agree(buffer, record, size, body, body_length, body_crc, properties_length)


@kernel(
    types.UniTuple(NUMBER, 5),
    READ_ONLY_BYTES,
    NUMBER,
    NUMBER,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    types.boolean,
    READ_ONLY_BYTES,
    NUMBER,
    NUMBER,
    NUMBER,
    NUMBER,
    NUMBER,
    NUMBER,
    NUMBER,
    INT64S,
)
def take(
    entries: ByteArray,
    queue_id: int,
    queue_offset: int,
    topic: ByteArray,
    tag_codes: NDArray[np.int32],
    by_tags: bool,
    buffer: ByteArray,
    base_offset: int,
    first: int,
    stop: int,
    count: int,
    total_bytes: int,
    max_count: int,
    max_bytes: int,
    slices: NDArray[np.int64],
) -> tuple[int, int, int, int, int]:
    """Take records of entries up to the first that needs another look, or finds no room.

    Returns entries done, records and bytes taken, slices written, and 1 if there was no room.
    """
    memory = raw(buffer)
    owner = (raw(topic), len(topic), queue_id)
    queue = raw(entries)
    codes = raw(tag_codes)
    slice_count = 0
    end = np.int64(-1)
    for number in range(len(entries) // _ENTRY_BYTES):
        at = number * _ENTRY_BYTES
        if by_tags and not has_number(codes, len(tag_codes), load_i32(queue, at + _ENTRY_TAGS)):
            continue
        physical_offset = load_i64(queue, at + _ENTRY_OFFSET)
        if physical_offset < first or physical_offset >= stop:
            return number, count, total_bytes, slice_count, 0
        size = load_i32(queue, at + _ENTRY_SIZE)
        record = physical_offset - base_offset
        if not is_of_entry(
            memory, record, len(buffer), physical_offset, size, owner, queue_offset + number
        ):
            return number, count, total_bytes, slice_count, 0
            return number, count, total_bytes, slice_count, 0
        if count > 0 and (count >= max_count or total_bytes + size > max_bytes):
            return number, count, total_bytes, slice_count, 1
        if record != end:
            # Records of one sender's batch follow one another, and become one slice.
            slices[2 * slice_count] = record
            slice_count += 1
        end = record + size
        slices[2 * slice_count - 1] = end
        count += 1
        total_bytes += size
    return len(entries) // _ENTRY_BYTES, count, total_bytes, slice_count, 0
