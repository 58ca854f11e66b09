"""Finds candidates of a look-up: entries of a hash, in memory and in index files.

Unusual cases are left to ``store.read.index``, the definition: a function returns `UNUSUAL`. The
layout of index files is in :mod:`rocketlens.formats.index_file`, that of runs in
``store.read.index.entry_runs``.
"""

from rocketlens.formats.compiled.device cimport Bytes, load_i32, load_i64
from rocketlens.formats.compiled.look_up_constants cimport *
from rocketlens.formats.compiled.record_constants cimport (
    INDEX_ENTRY_BYTES,
    INDEX_OFFSET,
    INDEX_PREVIOUS,
    SLOT_BYTES,
)


cdef struct Found:
    long long count
    long long is_whole


cdef inline Found found_of(long long count, long long is_whole) noexcept nogil:
    cdef Found found
    found.count = count
    found.is_whole = is_whole
    return found


cdef inline Found add_of_run(
    const unsigned long long *entries,
    long long entry_count,
    bint is_sorted,
    long long key_hash,
    long long base_offset,
    long long *out,
    long long count,
    long long limit,
) noexcept nogil:
    """Add the newest ``limit`` entries of a hash in a run; return the count, and 1 if all fit.

    An unsorted run has its entries in the log's order.
    """
    cdef unsigned long long wanted = <unsigned long long>key_hash
    cdef long long low = 0 if is_sorted else entry_count
    cdef long long high = entry_count
    cdef long long middle, index
    cdef long long stop = min(count + limit, CANDIDATE_ROOM)
    while low < high:
        middle = (low + high) >> 1
        if entries[middle] >> 32 <= wanted:
            low = middle + 1
        else:
            high = middle
    index = low - 1
    while index >= 0:
        if entries[index] >> 32 == wanted:
            if count >= stop:
                return found_of(count, 0)
            out[count] = base_offset + <long long>(entries[index] & 0xFFFFFFFFULL)
            count += 1
        elif is_sorted:
            break
        index -= 1
    return found_of(count, 1)


cdef inline long long sort_candidates(long long *out, long long count, long long floor) noexcept nogil:
    """Sort candidates, the newest first, without duplicates and those below ``floor``; return their
    number.
    """
    cdef long long kept = 0
    cdef long long number, offset, index, at
    for number in range(count):
        offset = out[number]
        index = kept
        while index > 0 and out[index - 1] < offset:
            index -= 1
        if offset < floor or (index > 0 and out[index - 1] == offset):
            continue
        at = kept
        while at > index:
            out[at] = out[at - 1]
            at -= 1
        out[index] = offset
        kept += 1
    return kept


cdef inline void sort_newest_first(
    long long *offsets, long long *numbers, long long count
) noexcept nogil:
    """Sort entries by their numbers, the highest first."""
    cdef long long index, at, number, offset
    for index in range(1, count):
        number = numbers[index]
        offset = offsets[index]
        at = index
        while at > 0 and numbers[at - 1] < number:
            numbers[at] = numbers[at - 1]
            offsets[at] = offsets[at - 1]
            at -= 1
        numbers[at] = number
        offsets[at] = offset


cdef inline long long entry_at(const long long *file, long long number) noexcept nogil:
    return HEADER_BYTES + file[SLOT_COUNT] * SLOT_BYTES + number * INDEX_ENTRY_BYTES


cdef inline bint is_near(long long key_hash, long long wanted) noexcept nogil:
    """As :func:`rocketlens.store.read.index.index.is_near`."""
    cdef unsigned int changed = <unsigned int>(key_hash ^ wanted)
    return (
        changed & 0xFFFFFF00U == 0
        or changed & 0xFFFF00FFU == 0
        or changed & 0xFF00FFFFU == 0
        or changed & 0x00FFFFFFU == 0
    )


cdef inline bint is_in_order(
    Bytes content, const long long *file, long long number, long long offset
) noexcept nogil:
    """Return True if an entry's offset is between those of its neighbours."""
    cdef long long limit = file[END_OFFSET]
    cdef long long below = file[BEGIN_OFFSET]
    if number > file[LAST_ENTRY]:
        return True
    if number < file[LAST_ENTRY]:
        limit = min(limit, load_i64(content, entry_at(file, number + 1) + INDEX_OFFSET))
    if number > 1:
        below = load_i64(content, entry_at(file, number - 1) + INDEX_OFFSET)
    return below <= offset <= limit


cdef inline bint is_page_used(Bytes content, const long long *file, long long slot) noexcept nogil:
    """Return True if the page of an empty slot has a used one."""
    cdef long long start = (HEADER_BYTES + slot * SLOT_BYTES) // PAGE_BYTES * PAGE_BYTES
    cdef long long position
    for position in range(max(start, HEADER_BYTES), min(start + PAGE_BYTES, entry_at(file, 0))):
        if content[position] != 0:
            return True
    return False


cdef inline Found add_of_file(
    const long long *row,
    long long key_hash,
    long long *out,
    long long *numbers,
    long long count,
    long long limit,
) noexcept nogil:
    """Add the newest ``limit`` entries of a hash in the index file of a row of sources; return the
    count, and 1 if all fit. Their physical offsets go into ``out``, and their numbers into
    ``numbers`` unless that is NULL.

    Makes the same checks as a walk of ``store.read.index.index``; the count is `UNUSUAL` if one
    fails.
    """
    cdef Bytes content = <Bytes><size_t>row[ADDRESS]
    cdef const long long *file = <const long long *><size_t>row[FILE_NUMBERS_AT]
    cdef long long slot_count = file[SLOT_COUNT]
    cdef long long slot, number, counted, above, position, own_hash, offset, least, step
    cdef long long offset_above = -1
    cdef long long stop = min(count + limit, CANDIDATE_ROOM)
    if (
        slot_count < 1
        or file[ENTRY_COUNT] < 1
        or file[LAST_ENTRY] >= file[ENTRY_COUNT]
        or entry_at(file, file[ENTRY_COUNT]) > row[LENGTH]
    ):
        return found_of(UNUSUAL, 0)
    slot = key_hash % slot_count
    number = load_i32(content, HEADER_BYTES + slot * SLOT_BYTES)
    if number == 0:
        if file[ARE_COUNTED] != 0 or is_page_used(content, file, slot):
            return found_of(count, 1)
        return found_of(UNUSUAL, 1)
    counted = max(file[NEXT_ENTRY], load_i32(content, NEXT_ENTRY_AT))
    above = max(counted, number + 1)
    for step in range(MAX_LOOP_CANDIDATES):
        if number == 0:
            return found_of(count, 1)
        if number < 1 or number >= above or number >= file[ENTRY_COUNT]:
            return found_of(UNUSUAL, 0)
        position = entry_at(file, number)
        own_hash = load_i32(content, position)
        offset = load_i64(content, position + INDEX_OFFSET)
        least = file[END_OFFSET] if number >= counted else file[BEGIN_OFFSET]
        if own_hash < 0 or own_hash % slot_count != slot or offset < least:
            return found_of(UNUSUAL, 0)
        if 0 <= offset_above and offset_above < offset:
            return found_of(UNUSUAL, 0)
        if own_hash == key_hash:
            if not is_in_order(content, file, number, offset):
                return found_of(UNUSUAL, 0)
            if count >= stop:
                return found_of(count, 0)
            out[count] = offset
            if numbers != NULL:
                numbers[count] = number
            count += 1
        elif is_near(own_hash, key_hash):
            return found_of(UNUSUAL, 0)
        above = number
        offset_above = offset
        number = load_i32(content, position + INDEX_PREVIOUS)
    return found_of(UNUSUAL, 0)
