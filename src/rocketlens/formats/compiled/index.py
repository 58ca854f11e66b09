"""Compiled writers of index files and consume queues, and checks and look-ups of index files.

The layouts are in :mod:`rocketlens.formats.index_file` and ``consumequeue_entry``.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.candidates import (
    Found,
    add_of_file,
    sort_newest_first,
)
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    load_i32,
    load_i64,
    prefetch,
    read_bytes,
    read_int32s,
    read_int64s,
    store_i32,
    store_i64,
    write_bytes,
    write_int32s,
    write_int64s,
)
from cython.cimports.rocketlens.formats.compiled.look_up_constants import (
    CANDIDATE_ROOM,
    MAX_LOOP_CANDIDATES,
    ROW_NUMBERS,
    UNUSUAL,
)
from cython.cimports.rocketlens.formats.compiled.record_constants import *
from cython.cimports.rocketlens.formats.compiled.records import (
    has_queue_entry,
    more_of_born_host,
    open_rows,
)

NewEntries = cython.struct(
    hashes=cython.pointer(cython.const[cython.int]),
    offsets=cython.pointer(cython.const[cython.longlong]),
    timestamps=cython.pointer(cython.const[cython.longlong]),
    count=cython.longlong,
    first=cython.longlong,
    begin_timestamp_ms=cython.longlong,
)


@cython.cfunc
@cython.nogil
def seconds_since(
    begin_timestamp_ms: cython.longlong, timestamp_ms: cython.longlong
) -> cython.longlong:
    """Return an entry's ``seconds`` as ``IndexFile.putKey`` computes it: 0 .. 2**31 - 1."""
    if begin_timestamp_ms <= 0:
        return 0
    # Wraps like Java's long; truncation and flooring differ only below zero.
    milliseconds: cython.longlong = timestamp_ms - begin_timestamp_ms
    if milliseconds < 0:
        return 0
    return min(milliseconds // 1000, MAX_INT)


def build(
    hashes: object,
    offsets: object,
    timestamps: object,
    first_entry: cython.longlong,
    begin_timestamp_ms: cython.longlong,
    slot_count: cython.longlong,
    slots: object,
    entries: object,
) -> int:
    """Put entries ``first_entry ..`` into an index file, as ``IndexFile.putKey`` does.

    ``slots``: the bytes from 40 on, ``slot_count * 4``, all zero for a new file; ``entries``: the
    bytes after them. ``begin_timestamp_ms``: for a new file (``first_entry`` 1) the end time of the
    previous file or 0, else that of this file's header. Return the number of slots that were empty
    before; the caller writes the header.

    :raises ValueError: if the entries don't fit, or a count is impossible.
    """
    new: NewEntries
    counts: cython.longlong[2]
    slot_room: cython.longlong = 0
    entry_room: cython.longlong = 0
    filled: cython.longlong
    held: HeldArrays = HeldArrays()
    new.hashes = read_int32s(held, hashes, cython.address(new.count))
    new.offsets = read_int64s(held, offsets, cython.address(counts[0]))
    new.timestamps = read_int64s(held, timestamps, cython.address(counts[1]))
    new.first = first_entry
    new.begin_timestamp_ms = begin_timestamp_ms
    if new.count != counts[0] or new.count != counts[1]:
        raise ValueError("the three arrays of index entries differ in length")
    slot_bytes: cython.p_uchar = write_bytes(held, slots, cython.address(slot_room))
    entry_bytes: cython.p_uchar = write_bytes(held, entries, cython.address(entry_room))
    check_room(slot_room, entry_room, slot_count, first_entry + new.count - 1)
    if first_entry < 1:
        raise ValueError("the entries are out of range")
    with cython.nogil:
        filled = _build(cython.address(new), slot_count, slot_bytes, entry_bytes)
    return filled


@cython.cfunc
@cython.exceptval(-1)
def check_room(
    slot_room: cython.longlong,
    entry_room: cython.longlong,
    slot_count: cython.longlong,
    last_entry: cython.longlong,
) -> cython.int:
    if not 0 < slot_count <= slot_room // SLOT_BYTES or slot_count > MAX_INT:
        raise ValueError(f"{slot_room} bytes hold no {slot_count} slots")
    if not 0 <= last_entry <= MAX_INT or (last_entry + 1) * INDEX_ENTRY_BYTES > entry_room:
        raise ValueError(f"{entry_room} bytes hold no entries 0 .. {last_entry}")
    return 0


@cython.cfunc
@cython.nogil
def _build(
    new: cython.pointer(cython.const[NewEntries]),
    slot_count: cython.longlong,
    slots: cython.p_uchar,
    entries: cython.p_uchar,
) -> cython.longlong:
    # The slots of a batch are prefetched before the first is used: a slot table of 20 MB does not
    # fit the inner caches, and without prefetching each entry waits for its slot.
    slot_positions: cython.longlong[256]
    divisor: cython.uint = cython.cast(cython.uint, slot_count)
    begin: cython.longlong = new.begin_timestamp_ms
    filled: cython.longlong = 0
    batch: cython.longlong = 0
    stop: cython.longlong
    index: cython.longlong
    slot: cython.longlong
    entry: cython.longlong
    previous: cython.longlong
    position: cython.longlong
    since: cython.longlong
    if new.first == 1 and new.count > 0:
        begin = new.timestamps[0]
    while batch < new.count:
        stop = min(batch + 256, new.count)
        for index in range(batch, stop):
            slot = cython.cast(cython.uint, new.hashes[index]) % divisor
            slot_positions[index - batch] = slot * SLOT_BYTES
            prefetch(slots, slot * SLOT_BYTES)
        for index in range(batch, stop):
            entry = new.first + index
            previous = load_i32(slots, slot_positions[index - batch])
            if previous <= 0 or previous >= entry:
                previous = 0
                filled += 1
            # The first entry of a file counts from the end time of the previous file.
            since = new.begin_timestamp_ms if entry == 1 else begin
            position = entry * INDEX_ENTRY_BYTES
            store_i32(entries, position + INDEX_KEY_HASH, new.hashes[index])
            store_i64(entries, position + INDEX_OFFSET, new.offsets[index])
            store_i32(
                entries, position + INDEX_SECONDS, seconds_since(since, new.timestamps[index])
            )
            store_i32(entries, position + INDEX_PREVIOUS, previous)
            store_i32(slots, slot_positions[index - batch], entry)
        batch = stop
    return filled


def check(
    slots: object,
    entries: object,
    slot_count: cython.longlong,
    last_entry: cython.longlong,
    newest: object,
) -> tuple[int, int, int, int, int]:
    """Replay entries 1 .. ``last_entry``; ``newest`` is zeroed work space, one per slot.

    Return the number of bad entries, the first of them (0: none), the number of bad slots, the
    first of them (-1: none), and the number of used slots.
    """
    slot_room: cython.longlong = 0
    entry_room: cython.longlong = 0
    room: cython.longlong = 0
    bad_entries: cython.longlong = 0
    first_bad_entry: cython.longlong = 0
    bad_slots: cython.longlong = 0
    first_bad_slot: cython.longlong = -1
    used: cython.longlong = 0
    divisor: cython.uint
    entry: cython.longlong
    slot: cython.longlong
    key_hash: cython.longlong
    head: cython.longlong
    held: HeldArrays = HeldArrays()
    slot_bytes: Bytes = read_bytes(held, slots, cython.address(slot_room))
    entry_bytes: Bytes = read_bytes(held, entries, cython.address(entry_room))
    last: cython.p_int = write_int32s(held, newest, cython.address(room))
    check_room(slot_room, entry_room, slot_count, last_entry)
    if room < slot_count:
        raise ValueError(f"{room} numbers are too few for {slot_count} slots")
    with cython.nogil:
        divisor = cython.cast(cython.uint, slot_count)
        for entry in range(1, last_entry + 1):
            key_hash = load_i32(entry_bytes, entry * INDEX_ENTRY_BYTES + INDEX_KEY_HASH)
            slot = cython.cast(cython.uint, key_hash) % divisor
            if key_hash < 0 or last[slot] != load_i32(
                entry_bytes, entry * INDEX_ENTRY_BYTES + INDEX_PREVIOUS
            ):
                bad_entries += 1
                if first_bad_entry == 0:
                    first_bad_entry = entry
            last[slot] = cython.cast(cython.int, entry)
        for slot in range(slot_count):
            head = load_i32(slot_bytes, slot * SLOT_BYTES)
            used += head != 0
            if head != last[slot]:
                bad_slots += 1
                if first_bad_slot < 0:
                    first_bad_slot = slot
    return bad_entries, first_bad_entry, bad_slots, first_bad_slot, used


def list_records(
    entries: object,
    last_entry: cython.longlong,
    min_offset: cython.longlong,
    starts: object,
    last_entries: object,
) -> int:
    """Write the physical offset and last entry of each record that entries 1 .. ``last_entry`` lead
    to, without records before ``min_offset``. Return their number.

    Return -1 if the entries are not in the order of the log, or entry 0 is used.
    """
    room: cython.longlong = 0
    counts: cython.longlong[2]
    count: cython.longlong = 0
    entry: cython.longlong
    offset: cython.longlong
    before: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, entries, cython.address(room))
    offsets: cython.p_longlong = write_int64s(held, starts, cython.address(counts[0]))
    lasts: cython.p_longlong = write_int64s(held, last_entries, cython.address(counts[1]))
    check_room(SLOT_BYTES, room, 1, last_entry)
    if min(counts[0], counts[1]) < last_entry:
        raise ValueError(f"{min(counts[0], counts[1])} rows are too few")
    with cython.nogil:
        if load_i32(memory, INDEX_KEY_HASH) != 0 or load_i32(memory, INDEX_PREVIOUS) != 0:
            count = -1
        for entry in range(1, last_entry + 1):
            offset = load_i64(memory, entry * INDEX_ENTRY_BYTES + INDEX_OFFSET)
            if count < 0 or (entry > 1 and offset < before):
                count = -1
                break
            before = offset
            if offset < min_offset:
                continue
            if count == 0 or offsets[count - 1] != offset:
                offsets[count] = offset
                count += 1
            lasts[count - 1] = entry
    return count


@cython.cfunc
@cython.nogil
def record_bytes(
    memory: Bytes, position: cython.longlong, room: cython.longlong, offset: cython.longlong
) -> cython.longlong:
    """Return the size of the record at ``position``, by its head; 0 if there is none."""
    if room < MIN_RECORD_BYTES:
        return 0
    magic: cython.longlong = load_i32(memory, position + MAGIC)
    size: cython.longlong = load_i32(memory, position)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return 0
    if size < MIN_RECORD_BYTES or size > room:
        return 0
    return size if load_i64(memory, position + PHYSICAL_OFFSET) == offset else 0


@cython.cfunc
@cython.nogil
def has_seconds(
    time_ms: cython.longlong, seconds: cython.longlong, begin_ms: cython.longlong
) -> cython.bint:
    """Return True if ``IndexFile.putKey`` computes an entry's ``seconds`` from a store time."""
    if begin_ms <= 0:
        return seconds == 0
    least: cython.longlong = time_ms - begin_ms - seconds * 1000
    return seconds >= 0 and (least >= 0 or seconds == 0) and (least < 1000 or seconds == MAX_INT)


def check_records(
    content: object,
    base_offset: cython.longlong,
    entries: object,
    begin_timestamp_ms: cython.longlong,
    records: object,
    row: cython.longlong,
    row_count: cython.longlong,
) -> int:
    """Check the heads of the records of rows ``row ..`` that begin in a segment; return the next
    row.

    ``records``: start and last entry of each, as `list_records` wrote them, and three outputs: the
    end of each record, or its start if there is no record; its store time; and 1 if that is the
    time of its last entry.
    """
    size: cython.longlong = 0
    entry_room: cython.longlong = 0
    counts: cython.longlong[5]
    position: cython.longlong
    length: cython.longlong
    time_ms: cython.longlong
    entry: cython.longlong
    number: cython.int
    starts, last_entries, ends, times, good = records
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, content, cython.address(size))
    index: Bytes = read_bytes(held, entries, cython.address(entry_room))
    start = read_int64s(held, starts, cython.address(counts[0]))
    last = read_int64s(held, last_entries, cython.address(counts[1]))
    end: cython.p_longlong = write_int64s(held, ends, cython.address(counts[2]))
    stored: cython.p_longlong = write_int64s(held, times, cython.address(counts[3]))
    is_good: cython.p_uchar = write_bytes(held, good, cython.address(counts[4]))
    for number in range(5):
        if row < 0 or counts[number] < row_count:
            raise ValueError(f"there are no rows {row} to {row_count}")
    with cython.nogil:
        while row < row_count and start[row] >= base_offset and start[row] - base_offset < size:
            position = start[row] - base_offset
            entry = last[row]
            length = record_bytes(memory, position, size - position, start[row])
            if length > 0 and entry > 0 and entry < entry_room // INDEX_ENTRY_BYTES:
                position += more_of_born_host(load_i32(memory, position + SYS_FLAG))
                time_ms = load_i64(memory, position + STORE_TIMESTAMP)
                end[row] = start[row] + length
                stored[row] = time_ms
                is_good[row] = time_ms == begin_timestamp_ms
                if entry > 1:
                    is_good[row] = has_seconds(
                        time_ms,
                        load_i32(index, entry * INDEX_ENTRY_BYTES + INDEX_SECONDS),
                        begin_timestamp_ms,
                    )
            row += 1
    return row


def address_of(array: object) -> int:
    """Return the address of an array's bytes; it is valid as long as a view of them exists."""
    count: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    return cython.cast(cython.size_t, read_bytes(held, array, cython.address(count)))


def find_entries(
    rows: object, first: cython.longlong, hashes: object
) -> tuple[list[tuple[int, int, int]], int]:
    """Return the entries with one of the hashes in index files, newest first, and the file to
    search next. An entry is the number of its file, its own number, and its physical offset.

    ``rows`` are addresses, those of the newest file first: see `answer`. The file to search next is
    ``first`` itself if it has very many of these entries, or anything that
    :mod:`rocketlens.store.read.index.index` has to check.
    """
    number_count: cython.longlong = 0
    hash_count: cython.longlong = 0
    count: cython.longlong = 0
    of_file: cython.longlong
    file: cython.longlong = first
    index: cython.longlong
    found: Found
    files: cython.longlong[1024]
    entries: cython.longlong[1024]
    offsets: cython.longlong[1024]
    held: HeldArrays = HeldArrays()
    numbers = read_int64s(held, rows, cython.address(number_count))
    wanted = read_int64s(held, hashes, cython.address(hash_count))
    if first < 0 or number_count % ROW_NUMBERS or CANDIDATE_ROOM > 1024:
        raise ValueError("these are not rows of index files")
    with cython.nogil:
        while file < number_count // ROW_NUMBERS:
            of_file = count
            for index in range(hash_count):
                found.count = UNUSUAL
                if of_file <= CANDIDATE_ROOM - MAX_LOOP_CANDIDATES and wanted[index] >= 0:
                    found = add_of_file(
                        numbers + file * ROW_NUMBERS,
                        wanted[index],
                        offsets,
                        entries,
                        of_file,
                        MAX_LOOP_CANDIDATES,
                    )
                if found.count < 0 or found.is_whole == 0:
                    of_file = UNUSUAL
                    break
                of_file = found.count
            if of_file < 0:
                break
            sort_newest_first(offsets + count, entries + count, of_file - count)
            for index in range(count, of_file):
                files[index] = file
            count = of_file
            file += 1
    return [(files[index], entries[index], offsets[index]) for index in range(count)], file


def queue_entries(
    rows: object, first_queue_offset: cython.longlong, delays_ms: object, out: object
) -> int:
    """Write the entries of rows at their queue offsets; return the number written."""
    count: cython.longlong = 0
    delay_count: cython.longlong = 0
    room: cython.longlong = 0
    written: cython.longlong = 0
    index: cython.longlong
    entry_number: cython.longlong
    tags_code: cython.longlong
    position: cython.longlong
    row: cython.pointer(cython.const[Row])
    held: HeldArrays = HeldArrays()
    items = open_rows(held, rows, cython.address(count))
    delays = read_int64s(held, delays_ms, cython.address(delay_count))
    target: cython.p_uchar = write_bytes(held, out, cython.address(room))
    with cython.nogil:
        room = room // QUEUE_ENTRY_BYTES
        for index in range(count):
            row = cython.address(items[index])
            if not has_queue_entry(row.sys_flag):
                continue
            entry_number = row.queue_offset - first_queue_offset
            if entry_number < 0 or entry_number >= room:
                continue
            tags_code = row.tags_hash
            if delay_count > 1 and row.delay_level > 0:
                tags_code = row.store_timestamp_ms + delays[min(row.delay_level, delay_count - 1)]
            position = entry_number * QUEUE_ENTRY_BYTES
            store_i64(target, position + QUEUE_ENTRY_OFFSET, row.physical_offset)
            store_i32(target, position + QUEUE_ENTRY_SIZE, row.store_size)
            store_i64(target, position + QUEUE_ENTRY_TAGS, tags_code)
            written += 1
    return written
