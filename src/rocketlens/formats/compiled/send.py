# cython: infer_types=True
"""The compiled writing of plain sends and of batches: to records, queue entries and replies.

Three calls handle the plain requests at the start of a connection's bytes:
:func:`rocketlens.formats.compiled.send_parse.parse` reads them, :func:`encode` writes records
without their sizes, entries and replies, and :func:`commit` writes sizes and magics, which make
records readable. The definition, message by message, is in ``store.write.append`` and
``wire.connection``.

Three calls store a batch, if it is plain: :func:`measure` checks all members before anything is
written, :func:`write` writes records without their sizes, and :func:`commit_members` writes sizes
and magics. The definition is in ``formats.batch_body`` and
``store.write.append.Appender.append_batch``.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    copy_bytes,
    hash_text,
    load_i16,
    load_i32,
    need,
    read_bytes,
    read_int64s,
    store_i32,
    store_i64,
    write_bytes,
    write_int64s,
)
from cython.cimports.rocketlens.formats.compiled.headers import write_hex, write_number
from cython.cimports.rocketlens.formats.compiled.record_constants import BODY_CRC as CRC_AT
from cython.cimports.rocketlens.formats.compiled.record_constants import BORN_TIMESTAMP as BORN_AT
from cython.cimports.rocketlens.formats.compiled.record_constants import (
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_ENTRY_BYTES,
    QUEUE_ENTRY_SIZE,
    QUEUE_ENTRY_TAGS,
)
from cython.cimports.rocketlens.formats.compiled.record_constants import FLAG as FLAG_AT
from cython.cimports.rocketlens.formats.compiled.record_constants import (
    PHYSICAL_OFFSET as OFFSET_AT,
)
from cython.cimports.rocketlens.formats.compiled.record_constants import QUEUE_ID as QUEUE_ID_AT
from cython.cimports.rocketlens.formats.compiled.record_constants import (
    QUEUE_OFFSET as QUEUE_OFFSET_AT,
)
from cython.cimports.rocketlens.formats.compiled.record_constants import SYS_FLAG as SYS_FLAG_AT
from cython.cimports.rocketlens.formats.compiled.records import crc32
from cython.cimports.rocketlens.formats.compiled.request_constants import *

Read = cython.struct(
    # The parsed requests: frames, properties and topics, columns, rows.
    frames=Bytes,
    frame_bytes=cython.longlong,
    texts=Bytes,
    text_bytes=cython.longlong,
    topics=Bytes,
    topic_bytes=cython.longlong,
    columns=cython.p_longlong,
    rows=cython.p_longlong,
    row_count=cython.longlong,
    # The producer's and the broker's address, and their flags.
    addresses=Bytes,
    born_bytes=cython.longlong,
    store_bytes=cython.longlong,
    host_flags=cython.longlong,
    # The parts of a reply, and their starts: between them are offset, queue, queue offset, key and
    # opaque.
    template=Bytes,
    parts=cython.pointer(cython.const[cython.longlong]),
    timestamp_ms=cython.longlong,
)
Wrote = cython.struct(count=cython.longlong, log_bytes=cython.longlong, reply_bytes=cython.longlong)
Slice = cython.struct(start=cython.longlong, stop=cython.longlong)


@cython.cfunc
@cython.nogil
def column(
    read: cython.pointer(cython.const[Read]), name: cython.longlong, number: cython.longlong
) -> cython.longlong:
    return read.columns[name * MAX_RUN_MESSAGES + number]


@cython.cfunc
@cython.nogil
def measure_records(
    read: cython.pointer(cython.const[Read]), count: cython.longlong
) -> cython.void:
    number: cython.longlong
    fixed: cython.longlong = HOSTLESS_HEAD_BYTES + read.born_bytes + read.store_bytes
    for number in range(count):
        topic_bytes = read.rows[column(read, ROW, number) * ROW_NUMBERS + TOPIC_BYTES]
        read.columns[RECORD_BYTES * MAX_RUN_MESSAGES + number] = (
            fixed
            + column(read, BODY_BYTES, number)
            + (1 if topic_bytes <= MAX_TOPIC_BYTES_V1 else 2)
            + topic_bytes
            + 2
            + column(read, TEXT_BYTES, number)
        )


@cython.cfunc
@cython.nogil
def write_record(
    log: cython.p_uchar,
    at: cython.longlong,
    number: cython.longlong,
    read: cython.pointer(cython.const[Read]),
    row: cython.p_longlong,
    physical_offset: cython.longlong,
) -> cython.void:
    """Write a record with zeros for its size and magic."""
    body: cython.longlong = column(read, BODY, number)
    body_bytes: cython.longlong = column(read, BODY_BYTES, number)
    sys_flag: cython.longlong = column(read, SYS_FLAG, number) | row[MORE_FLAGS]
    crc: cython.longlong = crc32(read.frames, body, body + body_bytes) & CRC_MASK
    store_i64(log, at, 0)
    store_i32(log, at + CRC_AT, crc)
    store_i32(log, at + QUEUE_ID_AT, row[QUEUE_ID])
    store_i32(log, at + FLAG_AT, column(read, FLAG, number))
    store_i64(log, at + QUEUE_OFFSET_AT, row[NEXT_OFFSET])
    store_i64(log, at + OFFSET_AT, physical_offset)
    store_i32(log, at + SYS_FLAG_AT, sys_flag & NO_HOST_BITS | read.host_flags)
    store_i64(log, at + BORN_AT, column(read, BORN, number))
    at += BORN_HOST_AT
    copy_bytes(log, at, read.addresses, 0, read.born_bytes)
    at += read.born_bytes
    store_i64(log, at, read.timestamp_ms)
    copy_bytes(log, at + 8, read.addresses, read.born_bytes, read.store_bytes)
    at += 8 + read.store_bytes
    store_i32(log, at, column(read, RECONSUMED, number))
    store_i64(log, at + 4, 0)
    store_i32(log, at + 12, body_bytes)
    copy_bytes(log, at + 16, read.frames, body, body_bytes)
    at += 16 + body_bytes
    topic_bytes: cython.longlong = row[TOPIC_BYTES]
    if topic_bytes > MAX_TOPIC_BYTES_V1:
        log[at] = cython.cast(cython.uchar, topic_bytes >> 8)
        at += 1
    log[at] = cython.cast(cython.uchar, topic_bytes)
    copy_bytes(log, at + 1, read.topics, row[TOPIC], topic_bytes)
    at += 1 + topic_bytes
    text_bytes: cython.longlong = column(read, TEXT_BYTES, number)
    log[at] = cython.cast(cython.uchar, text_bytes >> 8)
    log[at + 1] = cython.cast(cython.uchar, text_bytes)
    copy_bytes(log, at + 2, read.texts, column(read, TEXT, number), text_bytes)


@cython.cfunc
@cython.nogil
def write_part(
    out: cython.p_uchar,
    at: cython.longlong,
    read: cython.pointer(cython.const[Read]),
    part: cython.longlong,
) -> cython.longlong:
    """Copy a part of the template; return the position after it."""
    length: cython.longlong = read.parts[part + 1] - read.parts[part]
    copy_bytes(out, at, read.template, read.parts[part], length)
    return at + length


@cython.cfunc
@cython.nogil
def write_reply(
    out: cython.p_uchar,
    start: cython.longlong,
    number: cython.longlong,
    read: cython.pointer(cython.const[Read]),
    physical_offset: cython.longlong,
) -> cython.longlong:
    """Write the reply to one message, at most REPLY_BYTES; return the position after it."""
    row: cython.p_longlong = read.rows + column(read, ROW, number) * ROW_NUMBERS
    key_bytes: cython.longlong = column(read, KEY_BYTES, number)
    at: cython.longlong = write_part(out, start + PREFIX_BYTES, read, 0)
    at = write_hex(out, at, physical_offset)
    at = write_part(out, at, read, 1)
    at = write_number(out, at, row[QUEUE_ID])
    at = write_part(out, at, read, 2)
    at = write_number(out, at, row[NEXT_OFFSET])
    at = write_part(out, at, read, 3)
    copy_bytes(out, at, read.texts, column(read, KEY, number), key_bytes)
    at = write_part(out, at + key_bytes, read, 4)
    at = write_number(out, at, column(read, OPAQUE, number))
    at = write_part(out, at, read, 5)
    header_bytes: cython.longlong = at - start - PREFIX_BYTES
    store_i32(out, start, header_bytes + LENGTH_BYTES)
    store_i32(out, start + LENGTH_BYTES, header_bytes)
    return at


@cython.cfunc
@cython.nogil
def count_fitting(
    read: cython.pointer(cython.const[Read]), count: cython.longlong, log_bytes: cython.longlong
) -> cython.longlong:
    """Store the starts of records; return how many have room in the log and in their queues."""
    record: cython.longlong = 0
    number: cython.longlong
    for number in range(count):
        row: cython.p_longlong = read.rows + column(read, ROW, number) * ROW_NUMBERS
        size: cython.longlong = column(read, RECORD_BYTES, number)
        if record + size > log_bytes or row[COUNT] >= row[ROOM]:
            return number
        row[COUNT] += 1
        read.columns[RECORD * MAX_RUN_MESSAGES + number] = record
        record += size
    return count


@cython.cfunc
@cython.nogil
def lay_out(
    read: cython.pointer(cython.const[Read]),
    touched: cython.pointer(cython.const[cython.longlong]),
    touched_count: cython.longlong,
    count: cython.longlong,
    log_bytes: cython.longlong,
) -> cython.longlong:
    """Store the starts of records and entries; return how many messages have room."""
    number: cython.longlong
    entry: cython.longlong = 0
    row: cython.p_longlong
    for number in range(touched_count):
        read.rows[touched[number] * ROW_NUMBERS + COUNT] = 0
    fitting: cython.longlong = count_fitting(read, count, log_bytes)
    for number in range(touched_count):
        row = read.rows + touched[number] * ROW_NUMBERS
        row[AT] = entry
        entry += row[COUNT]
        row[COUNT] = 0
    return fitting


@cython.cfunc
@cython.nogil
def write_run(
    read: cython.pointer(cython.const[Read]),
    fitting: cython.longlong,
    log: cython.p_uchar,
    physical_offset: cython.longlong,
    entries: cython.p_uchar,
    entry_bytes: cython.longlong,
    replies: cython.p_uchar,
) -> Wrote:
    wrote: Wrote
    number: cython.longlong
    row: cython.p_longlong
    wrote.count = fitting
    wrote.log_bytes = wrote.reply_bytes = 0
    for number in range(fitting):
        row = read.rows + column(read, ROW, number) * ROW_NUMBERS
        offset = physical_offset + wrote.log_bytes
        write_record(log, wrote.log_bytes, number, read, row, offset)
        at = (row[AT] + row[COUNT]) * QUEUE_ENTRY_BYTES
        if at < 0 or at > entry_bytes - QUEUE_ENTRY_BYTES:
            # The row is not among the touched ones.
            wrote.count = number
            break
        store_i64(entries, at, offset)
        store_i32(entries, at + QUEUE_ENTRY_SIZE, column(read, RECORD_BYTES, number))
        store_i64(entries, at + QUEUE_ENTRY_TAGS, column(read, TAGS_CODE, number))
        if column(read, IS_ONE_WAY, number) == 0:
            wrote.reply_bytes = write_reply(replies, wrote.reply_bytes, number, read, offset)
        row[COUNT] += 1
        row[NEXT_OFFSET] += 1
        wrote.log_bytes += column(read, RECORD_BYTES, number)
    return wrote


@cython.cfunc
@cython.exceptval(-1)
def need_slice(
    size: cython.longlong, start: cython.longlong, length: cython.longlong
) -> cython.int:
    if start < 0 or length < 0 or start > size - length:
        raise ValueError(f"{length} bytes from {start} on are not inside {size} bytes")
    return 0


@cython.cfunc
@cython.exceptval(-1)
def open_hosts(held: HeldArrays, read: cython.pointer(Read), hosts: tuple) -> cython.int:
    count: cython.longlong = 0
    addresses, born_bytes, store_bytes, flags = hosts
    read.addresses = read_bytes(held, addresses, cython.address(count))
    read.born_bytes = born_bytes
    read.store_bytes = store_bytes
    read.host_flags = flags
    need_slice(count, read.born_bytes, read.store_bytes)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def check_messages(read: cython.pointer(Read), count: cython.longlong) -> cython.int:
    number: cython.longlong
    for number in range(count):
        row = column(read, ROW, number)
        if row < 0 or row >= read.row_count:
            raise ValueError(f"message {number} has no row")
        need_slice(read.frame_bytes, column(read, BODY, number), column(read, BODY_BYTES, number))
        need_slice(read.text_bytes, column(read, TEXT, number), column(read, TEXT_BYTES, number))
        need_slice(read.text_bytes, column(read, KEY, number), column(read, KEY_BYTES, number))
        # A reply has three numbers of at most 20 digits, and one of 16.
        need(
            REPLY_BYTES - PREFIX_BYTES - 76,
            read.parts[6] - read.parts[0] + column(read, KEY_BYTES, number),
        )
        row = row * ROW_NUMBERS
        need_slice(read.topic_bytes, read.rows[row + TOPIC], read.rows[row + TOPIC_BYTES])
    return 0


@cython.cfunc
@cython.exceptval(-1)
def check_rows(
    rows: cython.pointer(cython.const[cython.longlong]),
    count: cython.longlong,
    row_count: cython.longlong,
) -> cython.int:
    index: cython.longlong
    for index in range(count):
        if rows[index] < 0 or rows[index] >= row_count:
            raise ValueError(f"there is no row {rows[index]}")
    return 0


@cython.cfunc
@cython.exceptval(-1)
def check_parts(
    parts: cython.pointer(cython.const[cython.longlong]), size: cython.longlong
) -> cython.int:
    index: cython.longlong
    for index in range(6):
        need_slice(size, parts[index], parts[index + 1] - parts[index])
    return 0


def encode(
    frames: object,
    parsed: tuple,
    count: cython.longlong,
    touched_count: cython.longlong,
    hosts: tuple,
    log_array: object,
    physical_offset: cython.longlong,
    timestamp_ms: cython.longlong,
    template: tuple,
    written: tuple,
) -> tuple[int, int, int]:
    """Write records without sizes, entries side by side for each queue, and replies.

    ``parsed``: columns, properties, topics, rows, touched rows. ``rows`` has the next offset of
    each touched queue and its room in entries; afterwards, COUNT is the number of its new entries,
    and AT the index of the first. ``log_array`` begins at ``physical_offset``. Return the number of
    messages that had room, and the bytes of their records and replies.
    """
    read: Read
    wrote: Wrote
    log_bytes: cython.longlong = 0
    entry_bytes: cython.longlong = 0
    size: cython.longlong = 0
    index: cython.longlong
    columns, texts, topics, rows, touched_rows = parsed
    content, parts = template
    entry_array, reply_array = written
    held: HeldArrays = HeldArrays()
    if count > MAX_RUN_MESSAGES:
        raise ValueError(f"a run has at most {MAX_RUN_MESSAGES} messages")
    read.frames = read_bytes(held, frames, cython.address(read.frame_bytes))
    read.columns = write_int64s(held, columns, cython.address(size))
    need(size, COLUMN_COUNT * MAX_RUN_MESSAGES)
    read.texts = read_bytes(held, texts, cython.address(read.text_bytes))
    read.topics = read_bytes(held, topics, cython.address(read.topic_bytes))
    read.rows = write_int64s(held, rows, cython.address(read.row_count))
    read.row_count //= ROW_NUMBERS
    touched = read_int64s(held, touched_rows, cython.address(size))
    need(size, touched_count)
    check_rows(touched, touched_count, read.row_count)
    open_hosts(held, cython.address(read), hosts)
    read.template = read_bytes(held, content, cython.address(size))
    read.parts = read_int64s(held, parts, cython.address(index))
    need(index, 7)
    check_parts(read.parts, size)
    read.timestamp_ms = timestamp_ms
    log = write_bytes(held, log_array, cython.address(log_bytes))
    entries = write_bytes(held, entry_array, cython.address(entry_bytes))
    need(entry_bytes, count * QUEUE_ENTRY_BYTES)
    replies = write_bytes(held, reply_array, cython.address(size))
    need(size, count * REPLY_BYTES)
    check_messages(cython.address(read), count)
    with cython.nogil:
        measure_records(cython.address(read), count)
        index = lay_out(cython.address(read), touched, touched_count, count, log_bytes)
        wrote = write_run(
            cython.address(read), index, log, physical_offset, entries, entry_bytes, replies
        )
    return wrote.count, wrote.log_bytes, wrote.reply_bytes


def commit(log_array: object, count: cython.longlong, columns: object, rows: object) -> None:
    """Write size and magic of each record, in order, so that no gap precedes one."""
    read: Read
    log_bytes: cython.longlong = 0
    size: cython.longlong = 0
    number: cython.longlong
    held: HeldArrays = HeldArrays()
    if count > MAX_RUN_MESSAGES:
        raise ValueError(f"a run has at most {MAX_RUN_MESSAGES} messages")
    log = write_bytes(held, log_array, cython.address(log_bytes))
    read.columns = write_int64s(held, columns, cython.address(size))
    need(size, COLUMN_COUNT * MAX_RUN_MESSAGES)
    read.rows = write_int64s(held, rows, cython.address(read.row_count))
    for number in range(count):
        need_slice(log_bytes, column(cython.address(read), RECORD, number), 8)
        need_slice(
            read.row_count, column(cython.address(read), ROW, number) * ROW_NUMBERS, ROW_NUMBERS
        )
    for number in range(count):
        record = column(cython.address(read), RECORD, number)
        row = column(cython.address(read), ROW, number) * ROW_NUMBERS
        is_long = read.rows[row + TOPIC_BYTES] > MAX_TOPIC_BYTES_V1
        store_i32(log, record, column(cython.address(read), RECORD_BYTES, number))
        store_i32(log, record + LENGTH_BYTES, MAGIC_V2 if is_long else MAGIC_V1)


@cython.cfunc
@cython.nogil
def member_end(
    body: Bytes, position: cython.longlong, size: cython.longlong, columns: cython.p_longlong
) -> cython.longlong:
    """Find the parts of a member; return the position after it, or -1 if it is not one."""
    if size - position < MIN_MEMBER_BYTES:
        return NONE
    member_bytes: cython.longlong = load_i32(body, position)
    body_bytes: cython.longlong = load_i32(body, position + MEMBER_BODY_LENGTH_AT)
    text_bytes: cython.longlong = member_bytes - MIN_MEMBER_BYTES - body_bytes
    if body_bytes < 0 or text_bytes < 0 or member_bytes > size - position:
        return NONE
    start: cython.longlong = position + MEMBER_HEAD_BYTES
    if load_i16(body, start + body_bytes) != text_bytes:
        return NONE
    columns[FLAG * MAX_RUN_MESSAGES] = load_i32(body, position + MEMBER_FLAG_AT)
    columns[BODY * MAX_RUN_MESSAGES] = start
    columns[BODY_BYTES * MAX_RUN_MESSAGES] = body_bytes
    columns[TEXT * MAX_RUN_MESSAGES] = start + body_bytes + PROPERTIES_LENGTH_BYTES
    columns[TEXT_BYTES * MAX_RUN_MESSAGES] = text_bytes
    return position + member_bytes


@cython.cfunc
@cython.nogil
def find_tags(body: Bytes, start: cython.longlong, stop: cython.longlong) -> Slice:
    """Return the last TAGS of properties, 0 and 0 without tags.

    The end is -1 if a byte is zero, or a name ends with DELAY.
    """
    found: Slice
    name: cython.longlong = start
    between: cython.longlong = NONE
    position: cython.longlong
    found.start = found.stop = 0
    for position in range(start, stop + 1):
        byte: cython.longlong = PROPERTY_END if position == stop else body[position]
        if byte == 0:
            found.stop = NONE
            return found
        if byte == NAME_END:
            delay_at = position - DELAY_BYTES
            if (
                delay_at >= start
                and body[delay_at] == DELAY_START
                and load_i32(body, delay_at + 1) == DELAY_REST
            ):
                found.stop = NONE
                return found
            if between < 0:
                between = position
        elif byte == PROPERTY_END:
            if between - name == 4 and between < position - 1 and load_i32(body, name) == TAGS:
                found.start = between + 1
                found.stop = position
            name = position + 1
            between = NONE
    return found


@cython.cfunc
@cython.nogil
def measure_members(
    body: Bytes,
    size: cython.longlong,
    max_body: cython.longlong,
    fixed: cython.longlong,
    columns: cython.p_longlong,
    entries: cython.p_uchar,
    room: cython.longlong,
) -> Slice:
    """Return the number of members, and the bytes of their records."""
    measured: Slice
    none: Slice
    tags: Slice
    position: cython.longlong = 0
    at: cython.longlong = 0
    measured.start = measured.stop = 0
    none.start = NONE
    none.stop = 0
    while position < size:
        position = member_end(body, position, size, columns)
        if position < 0 or columns[BODY_BYTES * MAX_RUN_MESSAGES] > max_body:
            return none
        if at + QUEUE_ENTRY_BYTES > room:
            return none
        text_bytes = columns[TEXT_BYTES * MAX_RUN_MESSAGES]
        text = columns[TEXT * MAX_RUN_MESSAGES]
        tags = find_tags(body, text, text + text_bytes)
        if tags.stop < 0:
            return none
        code: cython.longlong = 0
        if tags.start > 0:
            code = cython.cast(
                cython.int, cython.cast(cython.uint, hash_text(body, tags.start, tags.stop, 0))
            )
        record_bytes = fixed + columns[BODY_BYTES * MAX_RUN_MESSAGES] + text_bytes
        store_i32(entries, at + QUEUE_ENTRY_SIZE, record_bytes)
        store_i64(entries, at + QUEUE_ENTRY_TAGS, code)
        measured.stop += record_bytes
        at += QUEUE_ENTRY_BYTES
        measured.start += 1
    return measured


def measure(
    body_array: object,
    max_body: cython.longlong,
    fixed: cython.longlong,
    columns: object,
    entry_array: object,
) -> tuple[int, int]:
    """Check all members, and write size and tags code of each into its entry.

    ``fixed`` bytes of a record are neither body nor properties. Return the number of members and
    the bytes of their records; -1 if a member is not plain (invalid, too large, with a zero byte or
    a delay in its properties), or there are too many for the entries.
    """
    measured: Slice
    size: cython.longlong = 0
    count: cython.longlong = 0
    room: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    body: Bytes = read_bytes(held, body_array, cython.address(size))
    numbers: cython.p_longlong = write_int64s(held, columns, cython.address(count))
    need(count, COLUMN_COUNT * MAX_RUN_MESSAGES)
    entries: cython.p_uchar = write_bytes(held, entry_array, cython.address(room))
    with cython.nogil:
        measured = measure_members(body, size, max_body, fixed, numbers, entries, room)
    return measured.start, measured.stop


@cython.cfunc
@cython.nogil
def write_members(
    read: cython.pointer(cython.const[Read]),
    log: cython.p_uchar,
    log_bytes: cython.longlong,
    physical_offset: cython.longlong,
    prefix: Bytes,
    prefix_bytes: cython.longlong,
    entries: cython.p_uchar,
    entry_bytes: cython.longlong,
    ids: cython.p_uchar,
    id_bytes: cython.longlong,
) -> cython.bint:
    """Write the measured members; return False if there is too little room."""
    position: cython.longlong = 0
    at: cython.longlong = 0
    entry: cython.longlong = 0
    end: cython.longlong = 0
    while position < read.frame_bytes:
        position = member_end(read.frames, position, read.frame_bytes, read.columns)
        if position < 0 or entry + QUEUE_ENTRY_BYTES > entry_bytes:
            return False
        size = (
            HOSTLESS_HEAD_BYTES
            + read.born_bytes
            + read.store_bytes
            + read.columns[BODY_BYTES * MAX_RUN_MESSAGES]
            + (1 if read.rows[TOPIC_BYTES] <= MAX_TOPIC_BYTES_V1 else 2)
            + read.rows[TOPIC_BYTES]
            + 2
            + read.columns[TEXT_BYTES * MAX_RUN_MESSAGES]
        )
        if size != load_i32(entries, entry + QUEUE_ENTRY_SIZE):
            return False
        if at + size > log_bytes or end + prefix_bytes + 17 > id_bytes:
            return False
        offset = physical_offset + at
        write_record(log, at, 0, read, read.rows, offset)
        store_i64(entries, entry, offset)
        copy_bytes(ids, end, prefix, 0, prefix_bytes)
        end = write_hex(ids, end + prefix_bytes, offset)
        ids[end] = COMMA
        end += 1
        read.rows[NEXT_OFFSET] += 1
        at += size
        entry += QUEUE_ENTRY_BYTES
    return True


def write(
    body_array: object,
    target: tuple,
    hosts: tuple,
    log_array: object,
    physical_offset: cython.longlong,
    timestamp_ms: cython.longlong,
    prefix: object,
    written: tuple,
) -> None:
    """Write records without their sizes, their offsets into the entries, and ids.

    ``target``: columns with the values that all members share, the row of the queue, its topic.
    ``log_array`` begins at ``physical_offset``, and has room for the records that :func:`measure`
    measured. ``written``: entries, as :func:`measure` left them, and ids: each after ``prefix`` and
    before a comma.
    """
    read: Read
    size: cython.longlong = 0
    log_bytes: cython.longlong = 0
    prefix_bytes: cython.longlong = 0
    entry_bytes: cython.longlong = 0
    id_bytes: cython.longlong = 0
    columns, row, topic = target
    entry_array, id_array = written
    held: HeldArrays = HeldArrays()
    read.frames = read_bytes(held, body_array, cython.address(read.frame_bytes))
    read.texts = read.frames
    read.columns = write_int64s(held, columns, cython.address(size))
    need(size, COLUMN_COUNT * MAX_RUN_MESSAGES)
    read.rows = write_int64s(held, row, cython.address(size))
    need(size, ROW_NUMBERS)
    read.topics = read_bytes(held, topic, cython.address(size))
    need_slice(size, read.rows[TOPIC], read.rows[TOPIC_BYTES])
    open_hosts(held, cython.address(read), hosts)
    read.timestamp_ms = timestamp_ms
    log = write_bytes(held, log_array, cython.address(log_bytes))
    start: Bytes = read_bytes(held, prefix, cython.address(prefix_bytes))
    entries = write_bytes(held, entry_array, cython.address(entry_bytes))
    ids: cython.p_uchar = write_bytes(held, id_array, cython.address(id_bytes))
    with cython.nogil:
        is_done = write_members(
            cython.address(read),
            log,
            log_bytes,
            physical_offset,
            start,
            prefix_bytes,
            entries,
            entry_bytes,
            ids,
            id_bytes,
        )
    if not is_done:
        raise ValueError("the arrays are not those that the batch was measured for")


def commit_members(
    log_array: object, count: cython.longlong, magic: cython.longlong, entry_array: object
) -> None:
    """Write size and magic of each record, in order, so that no gap precedes one."""
    log_bytes: cython.longlong = 0
    size: cython.longlong = 0
    number: cython.longlong
    at: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    log = write_bytes(held, log_array, cython.address(log_bytes))
    entries: Bytes = read_bytes(held, entry_array, cython.address(size))
    need(size, count * QUEUE_ENTRY_BYTES)
    for number in range(count):
        need_slice(log_bytes, at, 8)
        record_bytes = load_i32(entries, number * QUEUE_ENTRY_BYTES + QUEUE_ENTRY_SIZE)
        store_i32(log, at, record_bytes)
        store_i32(log, at + LENGTH_BYTES, magic)
        at += record_bytes
