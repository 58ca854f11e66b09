"""The compiled search for candidates of a look-up: entries of a hash, in memory and in index files.

What is out of the ordinary is left to ``store.read.index``, which is the definition: a number that
is returned says so. The layout of index files is in :mod:`rocketlens.formats.index_file`, that of
runs in ``store.read.index.entry_runs``.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats.compiled.kernels_device import (
    ByteArray,
    device,
    load_i32,
    load_i64,
)
from rocketlens.formats.index_file import ENTRY_LAYOUT, HEADER_BYTES, HEADER_LAYOUT, SLOT_BYTES
from rocketlens.limits import MAX_LOOP_CANDIDATES

INLINED: Final = "c7604e1558036aed"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

Numbers = NDArray[np.int64]
Packed = NDArray[np.uint64]

# Numbers of an index file.
SLOT_COUNT, ENTRY_COUNT, LAST_ENTRY, NEXT_ENTRY, BEGIN_OFFSET, END_OFFSET = range(6)
FILE_NUMBERS: Final = 6

CANDIDATE_ROOM: Final = 4 * MAX_LOOP_CANDIDATES
"""Offsets that there is room for; behind them is room for as many sizes."""
UNUSUAL: Final = -1

_ENTRY_BYTES: Final = ENTRY_LAYOUT.size
_ENTRY_OFFSET: Final = ENTRY_LAYOUT.offsets["physical_offset"]
_PREVIOUS_ENTRY: Final = ENTRY_LAYOUT.offsets["previous_entry"]
_NEXT_ENTRY_AT: Final = HEADER_LAYOUT.offsets["next_entry"]
_PAGE_BYTES: Final = 4096
_WINDOW_BITS: Final = np.uint64(32)
_OFFSET_MASK: Final = np.uint64(0xFFFFFFFF)


@device
def add_of_run(
    entries: Packed,
    entry_count: int,
    is_sorted: int,
    key_hash: int,
    base_offset: int,
    out: Numbers,
    count: int,
    limit: int,
) -> tuple[int, int]:
    """Add the newest ``limit`` entries of a hash in a run; return the count, and 1 if all fitted.

    A run that is not sorted has its entries in the log's order.
    """
    wanted = np.uint64(key_hash)
    low = 0
    high = entry_count
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
def in_order(out: Numbers, count: int, floor: int) -> int:
    """Sort candidates, the newest first and each once, without those below ``floor``; return how
    many there are.
    """
    kept = 0
    for number in range(count):
        offset = out[number]
        index = kept
        while index > 0 and out[index - 1] < offset:
            index -= 1
        if offset < floor or (index > 0 and out[index - 1] == offset):
            continue
        for at in range(kept, index, -1):
            out[at] = out[at - 1]
        out[index] = offset
        kept += 1
    return kept


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


@device
def add_of_file(
    content: ByteArray,
    content_bytes: int,
    file: Numbers,
    are_slots_counted: int,
    key_hash: int,
    out: Numbers,
    count: int,
    limit: int,
) -> tuple[int, int]:
    """Add the newest ``limit`` entries of a hash in an index file; return the count, and 1 if all
    fitted.

    Checks what a walk of ``store.read.index.index`` checks; `UNUSUAL` in place of the count says
    that this one cannot be done here.
    """
    slot_count = file[SLOT_COUNT]
    if slot_count < 1 or entry_at(file, file[ENTRY_COUNT]) > content_bytes:
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
