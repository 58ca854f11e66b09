"""Compiled walks over commit log bytes: records to rows, index entries, record starts.

The proofs of "inside the buffer" below begin with ``0 <= start <= len(buffer)`` and ``0 <=
base_offset <= 2**62``, which each call checks. ``records.pxd`` defines a record.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    byte_mask,
    hash_text,
    index_hash,
    load_i32,
    load_i64,
    lowest_bit,
    mix_bytes,
    need,
    read_bytes,
    read_int32s,
    read_int64s,
    utf8_parse_int,
    write_bytes,
    write_int32s,
    write_int64s,
    write_rows,
)
from cython.cimports.rocketlens.formats.compiled.record_constants import *
from cython.cimports.rocketlens.formats.compiled.records import (
    Measured,
    is_indexed,
    measure_record,
    more_of_born_host,
    more_of_hosts,
    open_rows,
    row_position,
)

Entries = cython.struct(
    hashes=cython.p_int,
    offsets=cython.p_longlong,
    timestamps=cython.p_longlong,
    room=cython.longlong,
    count=cython.longlong,
)
Walked = cython.struct(rows=cython.longlong, position=cython.longlong, reason=cython.longlong)


@cython.cfunc
@cython.nogil
def bytes_before_record(
    buffer: Bytes,
    physical_offset: cython.longlong,
    position: cython.longlong,
    limit: cython.longlong,
) -> cython.longlong:
    """As :func:`rocketlens.formats.dledger.bytes_before_record`."""
    if limit - position < ENTRY_HEADER_BYTES or load_i32(buffer, position) != ENTRY_MAGIC:
        return 0
    if load_i64(buffer, position + DLEDGER_POSITION) != physical_offset:
        return 0
    body_length: cython.longlong = load_i32(buffer, position + DLEDGER_BODY_LENGTH)
    if body_length <= 0:
        return 0
    size: cython.longlong = load_i32(buffer, position + DLEDGER_SIZE)
    return ENTRY_HEADER_BYTES if size == body_length + ENTRY_HEADER_BYTES else 0


@cython.cfunc
@cython.nogil
def reason_without_record(
    buffer: Bytes, position: cython.longlong, limit: cython.longlong
) -> cython.longlong:
    """Return the reason why no record begins at ``position``: BLANK, END or BAD."""
    if limit - position < 8:
        return END
    size: cython.longlong = load_i32(buffer, position)
    magic: cython.longlong = load_i32(buffer, position + MAGIC)
    if magic == MAGIC_BLANK or (size == BLANK_MAGIC and magic == limit - position):
        return BLANK
    if magic == 0 and size == 0:
        return END
    return BAD


@cython.cfunc
@cython.nogil
def set_property(
    buffer: Bytes,
    record: cython.longlong,
    row: cython.pointer(Row),
    name_start: cython.longlong,
    separator: cython.longlong,
    end: cython.longlong,
) -> cython.void:
    """Store the position of a property's value in ``row``, if ``row`` has that property.

    The name is before ``separator``, the value from there to ``end``: positions in the buffer, like
    ``record``, the start of the record. ``separator > name_start``.
    """
    length: cython.longlong = separator - name_start
    value_length: cython.int = cython.cast(cython.int, end - separator - 1)
    value: cython.int = cython.cast(cython.int, separator + 1 - record)
    word: cython.longlong
    if length == 8:
        if load_i64(buffer, name_start) == UNIQ_KEY:
            row.unique_key_start = value
            row.unique_key_length = value_length
    elif length == 4:
        word = load_i32(buffer, name_start)
        if word == KEYS:
            row.keys_start = value
            row.keys_length = value_length
        elif word == TAGS:
            row.tags_start = value
            row.tags_length = value_length
    elif length == 5 and load_i32(buffer, name_start) == DELA and buffer[name_start + 4] == 0x59:
        level: cython.longlong = utf8_parse_int(buffer, separator + 1, end)
        row.delay_level = cython.cast(cython.int, 0 if level == NOT_AN_INTEGER else level)


@cython.cfunc
@cython.nogil
def find_properties(
    buffer: Bytes,
    record: cython.longlong,
    row: cython.pointer(Row),
    start: cython.longlong,
    stop: cython.longlong,
) -> cython.void:
    """Walk ``buffer[start:stop]`` as ``MessageDecoder.string2messageProperties`` does.

    The first name separator divides a segment; the segment counts if neither side is empty.
    ``stop`` must be at least 64.
    """
    name_start: cython.longlong = start
    separator: cython.longlong = -1
    block: cython.longlong = start
    origin: cython.longlong = start
    at: cython.longlong
    names: cython.ulonglong = 0
    marks: cython.ulonglong = 0
    bit: cython.ulonglong
    is_last: cython.bint = False
    while not is_last:
        while marks == 0 and block < stop:
            origin = block
            at = min(block, stop - 64)
            names = byte_mask(buffer, at, NAME_BYTE) >> (block - at)
            marks = names | byte_mask(buffer, at, PROPERTY_BYTE) >> (block - at)
            block += 64
        at = stop
        if marks == 0:
            is_last = True
        else:
            bit = marks & (~marks + 1)
            at = origin + lowest_bit(marks)
            marks ^= bit
            if names & bit:
                if separator < 0:
                    separator = at
                continue
        if name_start < separator and separator < at - 1:
            set_property(buffer, record, row, name_start, separator, at)
        name_start = at + 1
        separator = -1


@cython.cfunc
@cython.nogil
def read_row(
    buffer: Bytes, row: cython.pointer(Row), position: cython.longlong, measured: Measured
) -> cython.void:
    sys_flag: cython.longlong = load_i32(buffer, position + SYS_FLAG)
    born_more: cython.longlong = more_of_born_host(sys_flag)
    more: cython.longlong = more_of_hosts(sys_flag)
    row.store_size = cython.cast(cython.int, measured.size)
    row.body_crc = cython.cast(cython.int, load_i32(buffer, position + BODY_CRC))
    row.queue_id = cython.cast(cython.int, load_i32(buffer, position + QUEUE_ID))
    row.flag = cython.cast(cython.int, load_i32(buffer, position + FLAG))
    row.queue_offset = load_i64(buffer, position + QUEUE_OFFSET)
    row.physical_offset = load_i64(buffer, position + PHYSICAL_OFFSET)
    row.sys_flag = cython.cast(cython.int, sys_flag)
    row.born_timestamp_ms = load_i64(buffer, position + BORN_TIMESTAMP)
    row.store_timestamp_ms = load_i64(buffer, position + STORE_TIMESTAMP + born_more)
    row.store_host_start = cython.cast(cython.int, STORE_HOST + born_more)
    reconsume_times: cython.longlong = load_i32(buffer, position + RECONSUME_TIMES + more)
    row.reconsume_times = cython.cast(cython.int, reconsume_times)
    row.prepared_transaction_offset = load_i64(buffer, position + PREPARED_OFFSET + more)
    row.body_start = cython.cast(cython.int, measured.body_start)
    row.body_length = cython.cast(cython.int, measured.body_length)
    row.topic_start = cython.cast(cython.int, measured.topic_start)
    row.topic_length = cython.cast(cython.int, measured.topic_length)
    topic: cython.longlong = position + measured.topic_start
    row.topic_hash = mix_bytes(buffer, topic, topic + measured.topic_length)
    seed: cython.longlong = hash_text(buffer, topic, topic + measured.topic_length, 0)
    row.key_seed = cython.cast(cython.uint, seed * 31 + HASH_SIGN)
    start: cython.longlong = measured.topic_start + measured.topic_length + LENGTH_BYTES
    row.properties_start = cython.cast(cython.int, start)
    row.properties_length = cython.cast(cython.int, measured.size - start)
    row.unique_key_start = 0
    row.unique_key_length = -1
    row.keys_start = 0
    row.keys_length = -1
    row.tags_start = 0
    row.tags_length = -1
    row.tags_hash = 0
    row.delay_level = 0
    find_properties(buffer, position, row, position + start, position + measured.size)
    if row.tags_length > 0:
        tags: cython.longlong = position + row.tags_start
        row.tags_hash = cython.cast(
            cython.int, cython.cast(cython.uint, hash_text(buffer, tags, tags + row.tags_length, 0))
        )


@cython.cfunc
@cython.nogil
def put_entry(
    state: cython.longlong, row: cython.pointer(cython.const[Row]), entries: cython.pointer(Entries)
) -> cython.void:
    """Count the next entry, and write it if there is room."""
    number: cython.longlong = entries.count
    if number < entries.room:
        entries.hashes[number] = cython.cast(cython.int, index_hash(state))
        entries.offsets[number] = row.physical_offset
        entries.timestamps[number] = row.store_timestamp_ms
    entries.count = number + 1


@cython.cfunc
@cython.nogil
def put_keys(
    buffer: Bytes,
    start: cython.longlong,
    stop: cython.longlong,
    row: cython.pointer(cython.const[Row]),
    entries: cython.pointer(Entries),
) -> cython.void:
    """Write one entry for each non-empty key between spaces of ``buffer[start:stop]``."""
    token: cython.longlong = start
    block: cython.longlong = start
    origin: cython.longlong = start
    at: cython.longlong
    marks: cython.ulonglong = 0
    is_last: cython.bint = False
    while not is_last:
        while marks == 0 and block < stop:
            origin = block
            at = min(block, stop - 64)
            marks = byte_mask(buffer, at, SPACE) >> (block - at)
            block += 64
        at = stop
        if marks == 0:
            is_last = True
        else:
            at = origin + lowest_bit(marks)
            marks &= marks - 1
        if at > token:
            put_entry(hash_text(buffer, token, at, row.key_seed), row, entries)
        token = at + 1


@cython.cfunc
@cython.nogil
def put_entries(
    buffer: Bytes,
    position: cython.longlong,
    row: cython.pointer(cython.const[Row]),
    with_tags: cython.bint,
    entries: cython.pointer(Entries),
) -> cython.void:
    """Write the index entries of the record at ``position``, in RocketMQ's order.

    Entries beyond the arrays are counted, not written. The row's slices must be in the buffer, at
    position 64 or later.
    """
    start: cython.longlong
    state: cython.longlong
    if not is_indexed(row.sys_flag):
        return
    if row.unique_key_length > 0:
        start = position + row.unique_key_start
        state = hash_text(buffer, start, start + row.unique_key_length, row.key_seed)
        put_entry(state, row, entries)
    if row.keys_length > 0:
        start = position + row.keys_start
        put_keys(buffer, start, start + row.keys_length, row, entries)
    if with_tags and row.tags_length > 0:
        start = position + row.tags_start
        # "T#"
        state = cython.cast(cython.uint, (row.key_seed * 31 + 0x54) * 31 + HASH_SIGN)
        state = hash_text(buffer, start, start + row.tags_length, state)
        put_entry(state, row, entries)


@cython.cfunc
@cython.nogil
def _scan(
    memory: Bytes,
    limit: cython.longlong,
    base_offset: cython.longlong,
    position: cython.longlong,
    stop: cython.longlong,
    rows: cython.pointer(Row),
    room: cython.longlong,
) -> Walked:
    walked: Walked
    measured: Measured
    header: cython.longlong
    walked.rows = 0
    walked.reason = STOP
    while position < stop:
        measured = measure_record(memory, base_offset + position, position, limit)
        if measured.size == 0:
            header = bytes_before_record(memory, base_offset + position, position, limit)
            position += header
            if header > 0:
                continue
            walked.reason = reason_without_record(memory, position, limit)
            break
        if walked.rows == room:
            walked.reason = FULL
            break
        read_row(memory, cython.address(rows[walked.rows]), position, measured)
        walked.rows += 1
        position += measured.size
    if walked.reason == STOP and position >= stop:
        position += bytes_before_record(memory, base_offset + position, position, limit)
    walked.position = position
    return walked


def scan(
    buffer: object,
    base_offset: cython.longlong,
    start: cython.longlong,
    stop: cython.longlong,
    rows: object,
) -> tuple[int, int, int]:
    """Walk records; return rows filled, next position, reason."""
    walked: Walked
    limit: cython.longlong = 0
    room: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, buffer, cython.address(limit))
    row_memory = cython.cast(
        cython.pointer(Row), write_rows(held, rows, cython.sizeof(Row), cython.address(room))
    )
    check_start(base_offset, start, limit)
    with cython.nogil:
        walked = _scan(memory, limit, base_offset, start, stop, row_memory, room)
    return walked.rows, walked.position, walked.reason


@cython.cfunc
@cython.exceptval(-1)
def check_start(
    base_offset: cython.longlong, start: cython.longlong, limit: cython.longlong
) -> cython.int:
    if not 0 <= start <= limit or not 0 <= base_offset <= 1 << 62:
        raise ValueError(f"position {start} is not in {limit} bytes from offset {base_offset} on")
    return 0


@cython.cfunc
@cython.exceptval(-1)
def open_entries(
    held: HeldArrays,
    hashes: object,
    offsets: object,
    timestamps: object,
    entries: cython.pointer(Entries),
) -> cython.int:
    counts: cython.longlong[3]
    entries.hashes = write_int32s(held, hashes, cython.address(counts[0]))
    entries.offsets = write_int64s(held, offsets, cython.address(counts[1]))
    entries.timestamps = write_int64s(held, timestamps, cython.address(counts[2]))
    if not counts[0] == counts[1] == counts[2]:
        raise ValueError("the three arrays of index entries differ in length")
    entries.room = counts[0]
    entries.count = 0
    return 0


def entries_of_rows(
    buffer: object,
    base_offset: cython.longlong,
    rows: object,
    with_tags: cython.bint,
    hashes: object,
    offsets: object,
    timestamps: object,
) -> int:
    """Write the index entries of rows; return their number, or -1 - n if row n does not fit."""
    entries: Entries
    limit: cython.longlong = 0
    count: cython.longlong = 0
    index: cython.longlong
    position: cython.longlong
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, buffer, cython.address(limit))
    row_memory = open_rows(held, rows, cython.address(count))
    open_entries(held, hashes, offsets, timestamps, cython.address(entries))
    check_start(base_offset, 0, limit)
    with cython.nogil:
        for index in range(count):
            position = row_position(limit, base_offset, cython.address(row_memory[index]))
            if position < 0:
                entries.count = -1 - index
                break
            put_entries(
                memory,
                position,
                cython.address(row_memory[index]),
                with_tags,
                cython.address(entries),
            )
    return entries.count


def find_start(
    buffer: object, base_offset: cython.longlong, start: cython.longlong, stop: cython.longlong
) -> int:
    """Return the first position in ``start .. stop - 1`` where a record begins, or -1."""
    limit: cython.longlong = 0
    found: cython.longlong
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, buffer, cython.address(limit))
    check_start(base_offset, start, limit)
    with cython.nogil:
        found = _find_start(memory, limit, base_offset, start, stop)
    return found


@cython.cfunc
@cython.nogil
def _find_start(
    memory: Bytes,
    limit: cython.longlong,
    base_offset: cython.longlong,
    block: cython.longlong,
    stop: cython.longlong,
) -> cython.longlong:
    # The first two bytes of the magic are at 4 and 5 of a record; a record has at least 91 bytes.
    last: cython.longlong = min(stop, limit - MIN_RECORD_BYTES + 1)
    position: cython.longlong
    marks: cython.ulonglong
    while block < last:
        # 69 bytes from ``block`` are read: inside, as block + 91 <= limit.
        marks = byte_mask(memory, block + MAGIC, 0xDA) & byte_mask(memory, block + MAGIC + 1, 0xA3)
        while marks != 0:
            position = block + lowest_bit(marks)
            marks &= marks - 1
            if position >= last:
                return -1
            if measure_record(memory, base_offset + position, position, limit).size > 0:
                return position
        block += 64
    return -1


def walk(
    buffer: object, base_offset: cython.longlong, start: cython.longlong, target: cython.longlong
) -> tuple[int, int]:
    """Step over records from ``start`` to the first that begins at ``target`` or later."""
    limit: cython.longlong = 0
    position: cython.longlong = start
    size: cython.longlong
    reason: cython.longlong = STOP
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, buffer, cython.address(limit))
    check_start(base_offset, start, limit)
    with cython.nogil:
        while position < target:
            size = measure_record(memory, base_offset + position, position, limit).size
            if size == 0:
                size = bytes_before_record(memory, base_offset + position, position, limit)
            if size == 0:
                reason = reason_without_record(memory, position, limit)
                break
            position += size
    return position, reason


def summarize(rows: object) -> tuple[int, int]:
    """Return the latest store time of rows, and all bits of their sys_flags; 0 without rows."""
    count: cython.longlong = 0
    newest: cython.longlong = 0
    flags: cython.int = 0
    index: cython.longlong
    held: HeldArrays = HeldArrays()
    items = open_rows(held, rows, cython.address(count))
    with cython.nogil:
        for index in range(count):
            if index == 0 or items[index].store_timestamp_ms > newest:
                newest = items[index].store_timestamp_ms
            flags |= items[index].sys_flag
    return newest, flags


def choose(
    rows: object,
    begin: cython.longlong,
    end: cython.longlong,
    position: object,
    groups: object,
    wanted: object,
    out: object,
) -> None:
    """Write for each row 1 if it is chosen, else 0.

    Its store time must be in ``begin .. end``. ``position`` is empty, or a queue id and a queue
    offset. ``groups`` is empty, or has the group of each row, and ``wanted`` is 1 for chosen
    groups.
    """
    count: cython.longlong = 0
    room: cython.longlong = 0
    number_count: cython.longlong = 0
    group_count: cython.longlong = 0
    wanted_count: cython.longlong = 0
    index: cython.longlong
    is_chosen: cython.bint
    held: HeldArrays = HeldArrays()
    items = open_rows(held, rows, cython.address(count))
    numbers = read_int64s(held, position, cython.address(number_count))
    group_of_row = read_int32s(held, groups, cython.address(group_count))
    is_wanted = read_bytes(held, wanted, cython.address(wanted_count))
    mask: cython.p_uchar = write_bytes(held, out, cython.address(room))
    need(room, count)
    if number_count:
        need(number_count, 2)
    if group_count:
        need(group_count, count)
    with cython.nogil:
        for index in range(count):
            is_chosen = (
                items[index].store_timestamp_ms >= begin and items[index].store_timestamp_ms <= end
            )
            if number_count:
                is_chosen = (
                    is_chosen
                    and items[index].queue_id == numbers[0]
                    and items[index].queue_offset == numbers[1]
                )
            if group_count:
                is_chosen = (
                    is_chosen
                    and group_of_row[index] >= 0
                    and group_of_row[index] < wanted_count
                    and is_wanted[group_of_row[index]] != 0
                )
            mask[index] = is_chosen


def compress(rows: object, mask: object, out: object) -> None:
    """Copy the rows for which the mask has a byte that is not zero, in order."""
    count: cython.longlong = 0
    room: cython.longlong = 0
    mask_count: cython.longlong = 0
    copied: cython.longlong = 0
    index: cython.longlong
    held: HeldArrays = HeldArrays()
    items = open_rows(held, rows, cython.address(count))
    is_chosen = read_bytes(held, mask, cython.address(mask_count))
    target = cython.cast(
        cython.pointer(Row), write_rows(held, out, cython.sizeof(Row), cython.address(room))
    )
    need(mask_count, count)
    for index in range(count):
        copied += is_chosen[index] != 0
    need(room, copied)
    copied = 0
    with cython.nogil:
        for index in range(count):
            if is_chosen[index]:
                target[copied] = items[index]
                copied += 1
