"""Compiled copies of text from records (columns, key lists, property maps), and checks of bodies.

Slices are positions in the buffer and lengths; every kernel checks each slice against the buffer
before it reads.
"""

import cython
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    Step,
    copy_bytes,
    is_ascii,
    is_utf8,
    mix,
    mix_bytes,
    need,
    read_bytes,
    read_int32s,
    read_int64s,
    same_memory,
    utf8_step,
    write_booleans,
    write_bytes,
    write_int32s,
    write_int64s,
)
from cython.cimports.rocketlens.formats.compiled.headers import json_end
from cython.cimports.rocketlens.formats.compiled.record_constants import (
    NAME_BYTE,
    NAME_SLOTS,
    PROPERTY_BYTE,
    REPLACEMENT,
    SPACE,
    Row,
)
from cython.cimports.rocketlens.formats.compiled.records import (
    checksums_agree,
    open_rows,
    row_position,
)
from cython.cimports.rocketlens.formats.compiled.request_constants import NONE, NOT_KNOWN

Rows = cython.struct(
    buffer=Bytes,
    limit=cython.longlong,
    base_offset=cython.longlong,
    items=cython.pointer(cython.const[Row]),
    count=cython.longlong,
)
Slices = cython.struct(starts=cython.p_longlong, lengths=cython.p_int, room=cython.longlong)


@cython.cfunc
@cython.exceptval(-1)
def open_log_rows(
    held: HeldArrays,
    buffer: object,
    base_offset: cython.longlong,
    rows: object,
    opened: cython.pointer(Rows),
) -> cython.int:
    if base_offset < 0:
        raise ValueError(f"{base_offset} is not a physical offset")
    opened.buffer = read_bytes(held, buffer, cython.address(opened.limit))
    opened.base_offset = base_offset
    opened.items = open_rows(held, rows, cython.address(opened.count))
    return 0


@cython.cfunc
@cython.exceptval(-1)
def open_slices(
    held: HeldArrays, starts: object, lengths: object, opened: cython.pointer(Slices)
) -> cython.int:
    """Open two output arrays; the shorter one gives the room for slices."""
    count: cython.longlong = 0
    opened.starts = write_int64s(held, starts, cython.address(opened.room))
    opened.lengths = write_int32s(held, lengths, cython.address(count))
    opened.room = min(opened.room, count)
    return 0


@cython.cfunc
@cython.nogil
def position_of(
    rows: cython.pointer(cython.const[Rows]), index: cython.longlong
) -> cython.longlong:
    """Return the position of a row's record in the buffer; -1 if it is not entirely inside."""
    return row_position(rows.limit, rows.base_offset, cython.address(rows.items[index]))


@cython.cfunc
@cython.nogil
def text_length(buffer: Bytes, start: cython.longlong, stop: cython.longlong) -> cython.longlong:
    """Return the UTF-8 length of the slice as Java decodes it."""
    length: cython.longlong = 0
    step: Step
    if is_ascii(buffer, start, stop):
        return stop - start
    while start < stop:
        step = utf8_step(buffer, start, stop)
        length += 3 if step.code_point == REPLACEMENT else step.after - start
        start = step.after
    return length


@cython.cfunc
@cython.nogil
def copy_text(
    target: cython.p_uchar,
    at: cython.longlong,
    limit: cython.longlong,
    buffer: Bytes,
    start: cython.longlong,
    stop: cython.longlong,
) -> cython.void:
    """Write the slice as Java decodes it, in UTF-8, up to ``limit``."""
    step: Step
    needed: cython.longlong
    while start < stop:
        step = utf8_step(buffer, start, stop)
        # A mapped file that changes can need more room than was measured.
        needed = 3 if step.code_point == REPLACEMENT else step.after - start
        if at + needed > limit:
            return
        if step.code_point == REPLACEMENT:
            target[at] = 0xEF
            target[at + 1] = 0xBF
            target[at + 2] = 0xBD
        else:
            copy_bytes(target, at, buffer, start, needed)
        at += needed
        start = step.after


def offsets_of(
    buffer: object, starts: object, lengths: object, as_text: cython.bint, offsets: object
) -> int:
    """Write the ``len(starts) + 1`` offsets of the copies; -1 - n if slice n is outside."""
    limit: cython.longlong = 0
    count: cython.longlong = 0
    other: cython.longlong = 0
    total: cython.longlong = 0
    index: cython.longlong
    length: cython.longlong
    start: cython.longlong
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, buffer, cython.address(limit))
    begins = read_int64s(held, starts, cython.address(count))
    sizes = read_int32s(held, lengths, cython.address(other))
    need(other, count)
    out: cython.p_longlong = write_int64s(held, offsets, cython.address(other))
    need(other, count + 1)
    with cython.nogil:
        out[0] = 0
        for index in range(count):
            length = sizes[index]
            if length > 0:
                start = begins[index]
                if start < 0 or start > limit - length:
                    total = -1 - index
                    break
                total += text_length(memory, start, start + length) if as_text else length
            out[index + 1] = total
    return total


def copy_slices(
    buffer: object,
    starts: object,
    lengths: object,
    offsets: object,
    as_text: cython.bint,
    out: object,
) -> None:
    """Copy each slice to its offset from :func:`offsets_of`, as text as Java decodes it."""
    limit: cython.longlong = 0
    count: cython.longlong = 0
    other: cython.longlong = 0
    room: cython.longlong = 0
    index: cython.longlong
    length: cython.longlong
    start: cython.longlong
    at: cython.longlong
    is_good: cython.bint = True
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, buffer, cython.address(limit))
    begins = read_int64s(held, starts, cython.address(count))
    sizes = read_int32s(held, lengths, cython.address(other))
    need(other, count)
    targets = read_int64s(held, offsets, cython.address(other))
    need(other, count + 1)
    target: cython.p_uchar = write_bytes(held, out, cython.address(room))
    with cython.nogil:
        for index in range(count):
            length = sizes[index]
            if length <= 0:
                continue
            start = begins[index]
            at = targets[index]
            if (
                start < 0
                or start > limit - length
                or at < 0
                or targets[index + 1] > room
                or at > targets[index + 1]
            ):
                is_good = False
                break
            if as_text and not is_ascii(memory, start, start + length):
                copy_text(target, at, targets[index + 1], memory, start, start + length)
            elif length <= targets[index + 1] - at:
                copy_bytes(target, at, memory, start, length)
    if not is_good:
        raise ValueError(f"slice {index} or its copy lies outside the buffers")


def key_slices(
    buffer: object,
    base_offset: cython.longlong,
    rows: object,
    list_offsets: object,
    starts: object,
    lengths: object,
) -> int:
    """Split KEYS at spaces; return the number of keys, or -1 - n if row n does not fit the buffer.

    Keys beyond the arrays are counted, not written.
    """
    read: Rows
    keys: Slices
    room: cython.longlong = 0
    count: cython.longlong = 0
    index: cython.longlong
    record: cython.longlong
    held: HeldArrays = HeldArrays()
    open_log_rows(held, buffer, base_offset, rows, cython.address(read))
    ends: cython.p_int = write_int32s(held, list_offsets, cython.address(room))
    need(room, read.count + 1)
    open_slices(held, starts, lengths, cython.address(keys))
    with cython.nogil:
        ends[0] = 0
        for index in range(read.count):
            record = position_of(cython.address(read), index)
            if record < 0:
                count = -1 - index
                break
            if read.items[index].keys_length > 0:
                count = cut_keys(
                    read.buffer,
                    record + read.items[index].keys_start,
                    read.items[index].keys_length,
                    cython.address(keys),
                    count,
                )
            ends[index + 1] = cython.cast(cython.int, count)
    return count


@cython.cfunc
@cython.nogil
def cut_keys(
    buffer: Bytes,
    token: cython.longlong,
    length: cython.longlong,
    keys: cython.pointer(Slices),
    count: cython.longlong,
) -> cython.longlong:
    """Write the keys of one record from number ``count`` on; return the next number."""
    stop: cython.longlong = token + length
    position: cython.longlong
    for position in range(token, stop + 1):
        if position == stop or buffer[position] == SPACE:
            if position > token:
                if count < keys.room:
                    keys.starts[count] = token
                    keys.lengths[count] = cython.cast(cython.int, position - token)
                count += 1
            token = position + 1
    return count


@cython.cfunc
@cython.nogil
def name_hash(buffer: Bytes, start: cython.longlong, stop: cython.longlong) -> cython.ulonglong:
    """Hash a name; names that decode to the same text have the same hash."""
    state: cython.ulonglong = 0
    step: Step
    if is_ascii(buffer, start, stop):
        return mix_bytes(buffer, start, stop)
    while start < stop:
        step = utf8_step(buffer, start, stop)
        state = mix(state, cython.cast(cython.ulonglong, step.code_point))
        start = step.after
    return state


@cython.cfunc
@cython.nogil
def same_text(
    buffer: Bytes,
    start: cython.longlong,
    length: cython.longlong,
    other: cython.longlong,
    other_length: cython.longlong,
) -> cython.bint:
    """Return True if two slices decode to the same text."""
    stop: cython.longlong = start + length
    other_stop: cython.longlong = other + other_length
    one: Step
    two: Step
    if length == other_length and same_memory(buffer, start, buffer, other, length):
        return True
    while start < stop and other < other_stop:
        one = utf8_step(buffer, start, stop)
        two = utf8_step(buffer, other, other_stop)
        if one.code_point != two.code_point:
            return False
        start = one.after
        other = two.after
    return start == stop and other == other_stop


@cython.cfunc
@cython.nogil
def name_slot(
    buffer: Bytes,
    start: cython.longlong,
    stop: cython.longlong,
    first: cython.longlong,
    names: cython.pointer(cython.const[Slices]),
    table: cython.p_longlong,
) -> cython.longlong:
    """Return the slot of a name in the hash table, or a free one for it.

    A slot holds the number of a property plus one. Slots with a number up to ``first`` belong to
    earlier records, and are free.
    """
    slot: cython.ulonglong = name_hash(buffer, start, stop) >> 20 & (NAME_SLOTS - 1)
    known: cython.longlong
    while table[slot] > first:
        known = table[slot] - 1
        if same_text(buffer, start, stop - start, names.starts[known], names.lengths[known]):
            break
        slot = (slot + 1) & (NAME_SLOTS - 1)
    return slot


@cython.cfunc
@cython.nogil
def cut_properties(
    buffer: Bytes,
    name_start: cython.longlong,
    length: cython.longlong,
    names: cython.pointer(Slices),
    values: cython.pointer(Slices),
    count: cython.longlong,
    table: cython.p_longlong,
) -> cython.longlong:
    """Write the properties of one record from number ``count`` on; return the next number."""
    first: cython.longlong = count
    stop: cython.longlong = name_start + length
    separator: cython.longlong = -1
    position: cython.longlong
    slot: cython.longlong
    number: cython.longlong
    for position in range(name_start, stop + 1):
        if position < stop:
            if buffer[position] == NAME_BYTE and separator < 0:
                separator = position
            if buffer[position] != PROPERTY_BYTE:
                continue
        if name_start < separator and separator < position - 1:
            slot = name_slot(buffer, name_start, separator, first, names, table)
            number = table[slot] - 1
            if number < first:
                number = count
                table[slot] = count + 1
                names.starts[count] = name_start
                names.lengths[count] = cython.cast(cython.int, separator - name_start)
                count += 1
            values.starts[number] = separator + 1
            values.lengths[number] = cython.cast(cython.int, position - separator - 1)
        name_start = position + 1
        separator = -1
    return count


def property_slices(
    buffer: object,
    base_offset: cython.longlong,
    rows: object,
    first_row: cython.longlong,
    list_offsets: object,
    name_starts: object,
    value_starts: object,
    name_lengths: object,
    value_lengths: object,
) -> tuple[int, int]:
    """Split properties into names and values, one per name, from ``first_row`` on.

    Stop before a row whose properties might not fit; return the rows done (or -1 - n if row n
    doesn't fit the buffer) and the properties written: they continue from
    ``list_offsets[first_row]``.
    """
    read: Rows
    names: Slices
    values: Slices
    room: cython.longlong = 0
    count: cython.longlong = 0
    index: cython.longlong
    record: cython.longlong
    done: cython.longlong
    table: cython.p_longlong = cython.NULL
    held: HeldArrays = HeldArrays()
    try:
        open_log_rows(held, buffer, base_offset, rows, cython.address(read))
        ends: cython.p_int = write_int32s(held, list_offsets, cython.address(room))
        need(room, read.count + 1)
        open_slices(held, name_starts, name_lengths, cython.address(names))
        open_slices(held, value_starts, value_lengths, cython.address(values))
        need(values.room, names.room)
        if first_row < 0 or first_row > read.count or ends[first_row] < 0:
            raise ValueError(f"{read.count} rows cannot continue from row {first_row}")
        table = cython.cast(cython.p_longlong, calloc(NAME_SLOTS, cython.sizeof(cython.longlong)))
        if table == cython.NULL:
            raise MemoryError
        with cython.nogil:
            count = ends[first_row]
            done = read.count
            for index in range(first_row, read.count):
                record = position_of(cython.address(read), index)
                if record < 0:
                    done = -1 - index
                    break
                if count + read.items[index].properties_length // 4 + 1 > names.room:
                    done = index
                    break
                count = cut_properties(
                    read.buffer,
                    record + read.items[index].properties_start,
                    read.items[index].properties_length,
                    cython.address(names),
                    cython.address(values),
                    count,
                    table,
                )
                ends[index + 1] = cython.cast(cython.int, count)
    finally:
        free(table)
    return done, count


@cython.cfunc
@cython.nogil
def is_of_group(
    rows: cython.pointer(cython.const[Rows]),
    record: cython.longlong,
    index: cython.longlong,
    known: cython.longlong,
    by_queue: cython.bint,
) -> cython.bint:
    row: cython.pointer(cython.const[Row]) = cython.address(rows.items[index])
    other: cython.pointer(cython.const[Row]) = cython.address(rows.items[known])
    return (
        other.topic_length == row.topic_length
        and (not by_queue or other.queue_id == row.queue_id)
        and same_memory(
            rows.buffer,
            record + row.topic_start,
            rows.buffer,
            other.physical_offset - rows.base_offset + other.topic_start,
            row.topic_length,
        )
    )


def group(
    buffer: object,
    base_offset: cython.longlong,
    rows: object,
    by_queue: cython.bint,
    table: object,
    groups: object,
    first_rows: object,
) -> int:
    """Number rows by topic (and queue); return the number of groups, or -1 - n if row n doesn't
    fit.

    ``table`` is zeroed work space: a power of two, at least twice the rows. Hashes only choose
    where to look; topics are compared byte by byte.
    """
    read: Rows
    size: cython.longlong = 0
    room: cython.longlong = 0
    count: cython.longlong = 0
    index: cython.longlong
    record: cython.longlong
    slot: cython.ulonglong
    key: cython.ulonglong
    held: HeldArrays = HeldArrays()
    open_log_rows(held, buffer, base_offset, rows, cython.address(read))
    slots: cython.p_longlong = write_int64s(held, table, cython.address(size))
    group_of_row: cython.p_int = write_int32s(held, groups, cython.address(room))
    need(room, read.count)
    firsts: cython.p_longlong = write_int64s(held, first_rows, cython.address(room))
    need(room, read.count)
    need(size, 2 * read.count)
    if size & (size - 1):
        raise ValueError(f"a table of {size} slots is not a power of two")
    with cython.nogil:
        for index in range(read.count):
            record = position_of(cython.address(read), index)
            if record < 0:
                count = -1 - index
                break
            key = read.items[index].topic_hash
            if by_queue:
                key = mix(
                    key,
                    cython.cast(
                        cython.ulonglong, cython.cast(cython.longlong, read.items[index].queue_id)
                    ),
                )
            slot = key >> 8 & cython.cast(cython.ulonglong, size - 1)
            while slots[slot] > 0 and not is_of_group(
                cython.address(read), record, index, firsts[slots[slot] - 1], by_queue
            ):
                slot = (slot + 1) & cython.cast(cython.ulonglong, size - 1)
            if slots[slot] == 0:
                firsts[count] = index
                count += 1
                slots[slot] = count
            group_of_row[index] = cython.cast(cython.int, slots[slot] - 1)
    return count


def check_records(buffer: object, base_offset: cython.longlong, rows: object, out: object) -> int:
    """Compare each record with its checksums; return how many differ, or -1 - n if row n doesn't
    fit.

    As in RocketMQ, an empty body has none, and the checksum of the whole record is optional.
    """
    read: Rows
    room: cython.longlong = 0
    different: cython.longlong = 0
    index: cython.longlong
    record: cython.longlong
    row: cython.pointer(cython.const[Row])
    held: HeldArrays = HeldArrays()
    open_log_rows(held, buffer, base_offset, rows, cython.address(read))
    is_good: cython.p_uchar = write_booleans(held, out, cython.address(room))
    need(room, read.count)
    with cython.nogil:
        for index in range(read.count):
            record = position_of(cython.address(read), index)
            if record < 0:
                different = -1 - index
                break
            row = cython.address(read.items[index])
            is_good[index] = checksums_agree(
                read.buffer,
                record,
                cython.cast(cython.longlong, row.properties_start) + row.properties_length,
                row.body_start,
                row.body_length,
                row.body_crc,
                row.properties_length,
            )
            different += not is_good[index]
    return different


def check_texts(
    content: object, offsets: object, max_json_bytes: cython.longlong, texts: object, json: object
) -> None:
    """Write whether each text of an Arrow array is UTF-8, and whether it is JSON.

    2 if only :func:`rocketlens.model.fields.is_json`, the definition, can decide.
    """
    limit: cython.longlong = 0
    offset_count: cython.longlong = 0
    room: cython.longlong = 0
    index: cython.longlong = 0
    end: cython.longlong
    held: HeldArrays = HeldArrays()
    memory: Bytes = read_bytes(held, content, cython.address(limit))
    ends = read_int32s(held, offsets, cython.address(offset_count))
    are_texts: cython.p_uchar = write_bytes(held, texts, cython.address(room))
    need(room, offset_count - 1)
    are_json: cython.p_uchar = write_bytes(held, json, cython.address(room))
    need(room, offset_count - 1)
    with cython.nogil:
        while index < offset_count - 1 and 0 <= ends[index] <= ends[index + 1] <= limit:
            end = NONE
            are_texts[index] = is_utf8(memory, ends[index], ends[index + 1])
            if are_texts[index] and ends[index + 1] - ends[index] <= max_json_bytes:
                end = json_end(memory, ends[index], ends[index + 1], 0)
            are_json[index] = 2 if end == NOT_KNOWN else end == ends[index + 1]
            index += 1
    if index < offset_count - 1:
        raise ValueError(f"text {index} lies outside the buffer")
