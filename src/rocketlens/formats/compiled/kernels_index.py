"""Compiled writers and a checker of index files and consume queues.

Called through :mod:`rocketlens.formats.compiled.kernels`, which checks the arguments that the
proofs of "inside the buffer" below begin with: slots and entries large enough for the counts given.
The layouts are in :mod:`rocketlens.formats.index_file` and ``consumequeue_entry``.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT32S,
    NUMBER,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    ByteArray,
    device,
    kernel,
    load_i32,
    prefetch,
    store_i32,
    store_i64,
)
from rocketlens.formats.compiled.kernels_scan import READ_ONLY_ROWS, RowArray, has_queue_entry
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT as QUEUE_ENTRY
from rocketlens.formats.index_file import ENTRY_LAYOUT as INDEX_ENTRY
from rocketlens.formats.index_file import SLOT_BYTES

INLINED: Final = "78ea8c462d6a5ca7"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

# numba compiles a module's numbers into its code, but not the values of a dictionary.
_INDEX_ENTRY_BYTES: Final = INDEX_ENTRY.size
_KEY_HASH: Final = INDEX_ENTRY.offsets["key_hash"]
_INDEX_OFFSET: Final = INDEX_ENTRY.offsets["physical_offset"]
_SECONDS: Final = INDEX_ENTRY.offsets["seconds"]
_PREVIOUS_ENTRY: Final = INDEX_ENTRY.offsets["previous_entry"]
_QUEUE_ENTRY_BYTES: Final = QUEUE_ENTRY.size
_QUEUE_OFFSET: Final = QUEUE_ENTRY.offsets["physical_offset"]
_STORE_SIZE: Final = QUEUE_ENTRY.offsets["store_size"]
_TAGS_CODE: Final = QUEUE_ENTRY.offsets["tags_code"]

_INT_MAX: Final = 0x7FFFFFFF
_BATCH: Final = 256
"""Entries whose slots are prefetched before the first of them is used. A slot table of 20 MB does
not fit the caches near the core; without prefetching each entry waits for its slot.
"""


@device
def seconds_since(begin_timestamp_ms: int, timestamp_ms: int) -> int:
    """Return an entry's ``seconds`` as ``IndexFile.putKey`` computes it: 0 .. 2**31 - 1."""
    if begin_timestamp_ms <= 0:
        return 0
    # Wraps like Java's long; truncation and flooring differ only below zero.
    milliseconds = timestamp_ms - begin_timestamp_ms
    if milliseconds < 0:
        return 0
    return min(np.int64(np.uint64(milliseconds) // np.uint64(1000)), _INT_MAX)


@kernel(
    NUMBER,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    READ_ONLY_INT64S,
    NUMBER,
    NUMBER,
    NUMBER,
    NUMBER,
    NUMBER,
    BYTES,
    BYTES,
)
def build(
    hashes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    timestamps: NDArray[np.int64],
    first_entry: int,
    begin_timestamp_ms: int,
    slot_count: int,
    slot_low: int,
    slot_high: int,
    slots: ByteArray,
    entries: ByteArray,
) -> int:
    """Write entries ``first_entry ..`` of slots ``slot_low .. slot_high - 1``.

    Returns how many slots were empty before.
    """
    count = len(hashes)
    numbers = np.empty(_BATCH, np.int64)
    slot_positions = np.empty(_BATCH, np.int64)
    divisor = np.uint32(slot_count)
    filled = 0
    begin = begin_timestamp_ms
    if first_entry == 1 and count > 0:
        begin = timestamps[0]
    for batch in range(0, count, _BATCH):
        picked = 0
        for index in range(batch, min(batch + _BATCH, count)):
            slot = np.int64(np.uint32(hashes[index]) % divisor)
            if slot_low <= slot < slot_high:
                numbers[picked] = index
                slot_positions[picked] = slot * SLOT_BYTES
                picked += 1
                prefetch(slots, slot * SLOT_BYTES)
        for pick in range(picked):
            index = numbers[pick]
            slot_position = slot_positions[pick]
            entry = first_entry + index
            previous = load_i32(slots, slot_position)
            if previous <= 0 or previous >= entry:
                previous = 0
                filled += 1
            # The first entry of a file counts from the end time of the file before.
            since = begin_timestamp_ms if entry == 1 else begin
            position = entry * _INDEX_ENTRY_BYTES
            store_i32(entries, position + _KEY_HASH, hashes[index])
            store_i64(entries, position + _INDEX_OFFSET, offsets[index])
            store_i32(entries, position + _SECONDS, seconds_since(since, timestamps[index]))
            store_i32(entries, position + _PREVIOUS_ENTRY, previous)
            store_i32(slots, slot_position, entry)
    return filled


@kernel(types.UniTuple(NUMBER, 5), READ_ONLY_BYTES, READ_ONLY_BYTES, NUMBER, NUMBER, INT32S)
def check(
    slots: ByteArray,
    entries: ByteArray,
    slot_count: int,
    last_entry: int,
    newest: NDArray[np.int32],
) -> tuple[int, int, int, int, int]:
    """Replay entries 1 .. ``last_entry``; ``newest`` is zeroed work space, one per slot.

    Returns the number of bad entries, the first of them (0: none), the number of bad slots, the
    first of them (-1: none), and the slots used.
    """
    bad_entries = 0
    first_bad_entry = 0
    divisor = np.uint32(slot_count)
    for entry in range(1, last_entry + 1):
        key_hash = load_i32(entries, entry * _INDEX_ENTRY_BYTES + _KEY_HASH)
        previous = load_i32(entries, entry * _INDEX_ENTRY_BYTES + _PREVIOUS_ENTRY)
        slot = np.int64(np.uint32(key_hash) % divisor)
        if key_hash < 0 or previous != newest[slot]:
            bad_entries += 1
            if first_bad_entry == 0:
                first_bad_entry = entry
        newest[slot] = entry
    bad_slots = 0
    first_bad_slot = -1
    used = 0
    for slot in range(slot_count):
        head = load_i32(slots, slot * SLOT_BYTES)
        used += 1 if head != 0 else 0
        if head != newest[slot]:
            bad_slots += 1
            if first_bad_slot < 0:
                first_bad_slot = slot
    return bad_entries, first_bad_entry, bad_slots, first_bad_slot, used


@kernel(NUMBER, READ_ONLY_ROWS, READ_ONLY_INT64S, NUMBER, READ_ONLY_INT64S, BYTES)
def queue_entries(
    rows: RowArray,
    chosen: NDArray[np.int64],
    first_queue_offset: int,
    delays_ms: NDArray[np.int64],
    out: ByteArray,
) -> int:
    """Write the entries of the chosen rows at their queue offsets; return how many were written."""
    room = len(out) // _QUEUE_ENTRY_BYTES
    written = 0
    for index in range(len(chosen)):
        number = chosen[index]
        if number < 0 or number >= len(rows):
            continue
        row = rows[number]
        entry_number = row.queue_offset - first_queue_offset
        if not has_queue_entry(row.sys_flag):
            continue
        if entry_number < 0 or entry_number >= room:
            continue
        tags_code = np.int64(row.tags_hash)
        if len(delays_ms) > 1 and row.delay_level > 0:
            level = min(np.int64(row.delay_level), len(delays_ms) - 1)
            tags_code = row.store_timestamp_ms + delays_ms[level]
        position = entry_number * _QUEUE_ENTRY_BYTES
        store_i64(out, position + _QUEUE_OFFSET, row.physical_offset)
        store_i32(out, position + _STORE_SIZE, row.store_size)
        store_i64(out, position + _TAGS_CODE, tags_code)
        written += 1
    return written
