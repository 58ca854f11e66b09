# cython: infer_types=True
"""The compiled reading of plain sends to known queues: frames to columns.

:func:`parse` says what ends a run. The definition, message by message, is in
``broker.requests.send``.
"""

import cython
from cython.cimports.rocketlens.formats.compiled.device import (
    Bytes,
    HeldArrays,
    copy_bytes,
    load_i32,
    mix,
    mix_bytes,
    need,
    read_bytes,
    read_int64s,
    same_memory,
    utf8_string_hash,
    write_bytes,
    write_int64s,
)
from cython.cimports.rocketlens.formats.compiled.headers import (
    Frame,
    Settings,
    frame_at,
    name_at,
    number_in,
    plain_text,
    read_header,
)
from cython.cimports.rocketlens.formats.compiled.request_constants import *

Run = cython.struct(
    buffer=Bytes,
    size=cython.longlong,
    # Names, settings, and the broker's own properties as text.
    names=Bytes,
    settings=Settings,
    own=Bytes,
    # Topics, rows and slots of the known queues.
    topics=Bytes,
    rows=cython.p_longlong,
    row_count=cython.longlong,
    slots=cython.p_longlong,
    slot_count=cython.longlong,
    # Outputs: plain text, properties, columns, touched rows, scratch, signed content.
    plain=cython.p_uchar,
    plain_bytes=cython.longlong,
    texts=cython.p_uchar,
    text_bytes=cython.longlong,
    columns=cython.p_longlong,
    touched=cython.p_longlong,
    touched_count=cython.longlong,
    scratch=cython.p_longlong,
    signed=cython.p_uchar,
    signed_bytes=cython.longlong,
)
Read = cython.struct(
    count=cython.longlong,
    position=cython.longlong,
    touched_count=cython.longlong,
    reason=cython.longlong,
)


@cython.cfunc
@cython.nogil
def insert_property(
    plain: Bytes,
    scratch: cython.p_longlong,
    count: cython.longlong,
    start: cython.longlong,
    name_length: cython.longlong,
    length: cython.longlong,
    bucket: cython.longlong,
) -> cython.bint:
    """Insert a property after those of its bucket; return False if its name is a duplicate."""
    position: cython.longlong = count
    number: cython.longlong
    while position > 0 and scratch[CUTS + CUT_NUMBERS * (position - 1) + 3] > bucket:
        after = CUTS + CUT_NUMBERS * position
        for number in range(CUT_NUMBERS):
            scratch[after + number] = scratch[after - CUT_NUMBERS + number]
        position -= 1
    other: cython.longlong = position - 1
    while other >= 0 and scratch[CUTS + CUT_NUMBERS * other + 3] == bucket:
        cut = CUTS + CUT_NUMBERS * other
        if scratch[cut + 2] == name_length and same_memory(
            plain, scratch[cut], plain, start, name_length
        ):
            return False
        other -= 1
    cut = CUTS + CUT_NUMBERS * position
    scratch[cut] = start
    scratch[cut + 1] = length
    scratch[cut + 2] = name_length
    scratch[cut + 3] = bucket
    return True


@cython.cfunc
@cython.nogil
def read_known_property(
    plain: Bytes,
    special: cython.longlong,
    value: cython.longlong,
    stop: cython.longlong,
    settings: Settings,
    scratch: cython.p_longlong,
) -> cython.bint:
    """Store unique key and tags; return False if a property makes the message not plain."""
    index: cython.longlong
    if special == 0:
        for index in range(value, stop):
            # Other characters would have to be escaped in the reply.
            if (
                plain[index] < SPACE
                or plain[index] > LAST_PRINTABLE
                or plain[index] == QUOTE
                or plain[index] == BACKSLASH
            ):
                return False
        scratch[UNIQUE_START] = value
        scratch[UNIQUE_BYTES] = stop - value
        return stop - value <= MAX_RUN_KEY_BYTES
    if special == 1:
        scratch[SENT_TAGS_CODE] = cython.cast(cython.int, utf8_string_hash(plain, value, stop, 0))
        return True
    if special == 2:
        return (stop - value == LENGTH_BYTES and load_i32(plain, value) == TRUE) or settings[
            IS_WAITED_FOR
        ] == 0
    return special < 0


@cython.cfunc
@cython.nogil
def cut_properties(
    run: cython.pointer(Run), sent_bytes: cython.longlong, total: cython.longlong
) -> cython.longlong:
    """Split properties, and sort them as Java's ``HashMap`` does; return their number, or -1.

    The first ``sent_bytes`` are the producer's, the others the broker's own.
    """
    plain: Bytes = run.plain
    scratch: cython.p_longlong = run.scratch
    count: cython.longlong = 0
    start: cython.longlong = 0
    between: cython.longlong = NONE
    hashed: cython.uint = 0
    position: cython.longlong
    scratch[UNIQUE_START] = NONE
    scratch[SENT_TAGS_CODE] = 0
    for position in range(total):
        byte: cython.longlong = plain[position]
        if byte == PROPERTY_END:
            if between <= start or between == position - 1 or count == MAX_RUN_PROPERTIES:
                return NONE
            if start < sent_bytes:
                special = name_at(
                    run.names,
                    SPECIAL_NAMES,
                    run.settings[SPECIAL_COUNT],
                    plain,
                    start,
                    between - start,
                )
                if not read_known_property(
                    plain, special, between + 1, position, run.settings, scratch
                ):
                    return NONE
            if not insert_property(
                plain,
                scratch,
                count,
                start,
                between - start,
                position + 1 - start,
                (hashed ^ hashed >> 16) & 127,
            ):
                return NONE
            count += 1
            start = position + 1
            between = NONE
            hashed = 0
        elif between < 0:
            if byte == NAME_END:
                between = position
            elif byte > LAST_ASCII:
                return NONE
            else:
                hashed = hashed * 31 + cython.cast(cython.uint, byte)
    return count


@cython.cfunc
@cython.nogil
def read_properties(run: cython.pointer(Run), at: cython.longlong) -> cython.longlong:
    """Write a message's properties in their stored form; return the position after them, or -1.

    Then ``scratch`` has the position of the unique key among them, and ``plain`` begins with the
    producer's.
    """
    scratch: cython.p_longlong = run.scratch
    own_bytes: cython.longlong = run.settings[OWN_BYTES]
    number: cython.longlong
    sent: cython.longlong = plain_text(
        run.buffer,
        scratch[2 * F_PROPERTIES],
        scratch[2 * F_PROPERTIES + 1],
        scratch[IS_ESCAPED] != 0,
        run.plain,
        run.plain_bytes - own_bytes - 1,
    )
    if sent <= 0:
        return NONE
    scratch[SENT_BYTES] = sent
    if run.plain[sent - 1] != PROPERTY_END:
        run.plain[sent] = PROPERTY_END
        sent += 1
    total: cython.longlong = sent + own_bytes
    copy_bytes(run.plain, sent, run.own, 0, own_bytes)
    if total > MAX_PROPERTIES_BYTES or at + total > run.text_bytes:
        return NONE
    count: cython.longlong = cut_properties(run, sent, total)
    unique_start: cython.longlong = scratch[UNIQUE_START]
    if count < 0 or unique_start < 0:
        return NONE
    for number in range(count):
        begin = scratch[CUTS + CUT_NUMBERS * number]
        size = scratch[CUTS + CUT_NUMBERS * number + 1]
        copy_bytes(run.texts, at, run.plain, begin, size)
        if begin < unique_start and unique_start < begin + size:
            scratch[UNIQUE_START] = at + unique_start - begin
            unique_start = NO_NUMBER
        at += size
    return at


@cython.cfunc
@cython.nogil
def queue_slot(
    run: cython.pointer(Run),
    buffer: Bytes,
    start: cython.longlong,
    length: cython.longlong,
    queue_id: cython.longlong,
) -> cython.longlong:
    """Return the slot of a queue, or a free one for it. A slot holds a row's number plus one."""
    mask: cython.ulonglong = cython.cast(cython.ulonglong, run.slot_count - 1)
    hashed: cython.ulonglong = mix(
        mix_bytes(buffer, start, start + length), cython.cast(cython.ulonglong, queue_id)
    )
    slot: cython.ulonglong = hashed >> 20 & mask
    while run.slots[slot] > 0:
        row = (run.slots[slot] - 1) * ROW_NUMBERS
        if (
            run.rows[row + QUEUE_ID] == queue_id
            and run.rows[row + TOPIC_BYTES] == length
            and same_memory(run.topics, run.rows[row + TOPIC], buffer, start, length)
        ):
            break
        slot = (slot + 1) & mask
    return slot


@cython.cfunc
@cython.nogil
def field_number(
    run: cython.pointer(Run), field: cython.longlong, max_digits: cython.longlong
) -> cython.longlong:
    return number_in(run.buffer, run.scratch[2 * field], run.scratch[2 * field + 1], max_digits)


@cython.cfunc
@cython.nogil
def read_numbers(run: cython.pointer(Run), count: cython.longlong) -> cython.bint:
    """Store the numbers of a send; return False if one is not plain, or it is a batch."""
    columns: cython.p_longlong = run.columns + count
    flags: cython.longlong = run.scratch[NUMBERS + FLAGS]
    sys_flag: cython.longlong = field_number(run, F_SYS_FLAG, 9)
    flag: cython.longlong = field_number(run, F_FLAG, 9)
    born: cython.longlong = field_number(run, F_BORN, 18)
    reconsumed: cython.longlong = 0
    if run.scratch[2 * F_RECONSUMED + 1] >= 0:
        reconsumed = field_number(run, F_RECONSUMED, 9)
    if (flags != 0 and flags != ONE_WAY) or sys_flag < 0 or sys_flag & FORBIDDEN_FLAGS:
        return False
    # Only "true" is true, in upper or lower case.
    if run.scratch[2 * F_BATCH + 1] == 4:
        return False
    if flag == NO_NUMBER or born == NO_NUMBER or reconsumed == NO_NUMBER:
        return False
    columns[OPAQUE * MAX_RUN_MESSAGES] = run.scratch[NUMBERS + OPAQUES]
    columns[IS_ONE_WAY * MAX_RUN_MESSAGES] = flags
    columns[SYS_FLAG * MAX_RUN_MESSAGES] = sys_flag
    columns[BORN * MAX_RUN_MESSAGES] = born
    columns[FLAG * MAX_RUN_MESSAGES] = flag
    columns[RECONSUMED * MAX_RUN_MESSAGES] = reconsumed
    return True


@cython.cfunc
@cython.nogil
def read_message(
    run: cython.pointer(Run),
    codec: cython.longlong,
    header: cython.longlong,
    header_end: cython.longlong,
    at: cython.longlong,
    count: cython.longlong,
) -> cython.longlong:
    """Read message ``count`` into its columns; return the position after its properties, or -1."""
    columns: cython.p_longlong = run.columns + count
    if not read_header(run.buffer, codec, header, header_end, run.names, run.settings, run.scratch):
        return NONE
    if not read_numbers(run, count):
        return NONE
    end: cython.longlong = read_properties(run, at)
    columns[TEXT * MAX_RUN_MESSAGES] = at
    columns[TEXT_BYTES * MAX_RUN_MESSAGES] = end - at
    columns[KEY * MAX_RUN_MESSAGES] = run.scratch[UNIQUE_START]
    columns[KEY_BYTES * MAX_RUN_MESSAGES] = run.scratch[UNIQUE_BYTES]
    columns[TAGS_CODE * MAX_RUN_MESSAGES] = run.scratch[SENT_TAGS_CODE]
    return end


@cython.cfunc
@cython.nogil
def signed_end(
    run: cython.pointer(Run),
    header_end: cython.longlong,
    end: cython.longlong,
    at: cython.longlong,
    count: cython.longlong,
) -> cython.longlong:
    """Write the signed content of message ``count``; return the position after it, or -1.

    The content is the values of its fields in name order, then the body. Fields with characters
    beyond ASCII are not plain, except properties.
    """
    scratch: cython.p_longlong = run.scratch
    columns: cython.p_longlong = run.columns + count
    code: cython.longlong = scratch[NUMBERS + CODE]
    order: cython.longlong = SHORT_ORDER if code == run.settings[SHORT_CODE] else LONG_ORDER
    begin: cython.longlong = at
    number: cython.longlong
    index: cython.longlong
    for number in range(order, order + SIGNED_COUNT):
        field = run.settings[number]
        if field < 0 or field >= SIGNED_COUNT + 1:
            return NONE
        start = scratch[2 * field]
        length = scratch[2 * field + 1]
        if at + length > run.signed_bytes:
            return NONE
        if field == F_PROPERTIES:
            length = scratch[SENT_BYTES]
            if at + length > run.signed_bytes:
                return NONE
            copy_bytes(run.signed, at, run.plain, 0, length)
            at += length
        elif length > 0:
            for index in range(start, start + length):
                # The signature covers the unescaped text.
                if run.buffer[index] > LAST_ASCII or (
                    scratch[IS_ESCAPED] != 0 and run.buffer[index] == BACKSLASH
                ):
                    return NONE
            copy_bytes(run.signed, at, run.buffer, start, length)
            at += length
    if at + end - header_end > run.signed_bytes:
        return NONE
    copy_bytes(run.signed, at, run.buffer, header_end, end - header_end)
    at += end - header_end
    columns[SEND_CODE * MAX_RUN_MESSAGES] = code
    columns[USER * MAX_RUN_MESSAGES] = scratch[2 * F_USER]
    columns[USER_BYTES * MAX_RUN_MESSAGES] = scratch[2 * F_USER + 1]
    columns[SIGNATURE * MAX_RUN_MESSAGES] = scratch[2 * F_SIGNATURE]
    columns[SIGNATURE_BYTES * MAX_RUN_MESSAGES] = scratch[2 * F_SIGNATURE + 1]
    columns[SIGNED * MAX_RUN_MESSAGES] = begin
    columns[SIGNED_BYTES * MAX_RUN_MESSAGES] = at - begin
    return at


@cython.cfunc
@cython.nogil
def queue_row(run: cython.pointer(Run)) -> cython.longlong:
    """Return the row of a message's queue, -1 if the queue is invalid, -2 if it is not known.

    For -2, the first numbers of ``scratch`` are the queue id, and start and length of the topic.
    """
    queue_id: cython.longlong = field_number(run, F_QUEUE_ID, 9)
    topic: cython.longlong = run.scratch[2 * F_TOPIC]
    topic_bytes: cython.longlong = run.scratch[2 * F_TOPIC + 1]
    if queue_id < 0 or topic_bytes <= 0:
        return NONE
    row: cython.longlong = run.slots[queue_slot(run, run.buffer, topic, topic_bytes, queue_id)] - 1
    if row >= 0:
        return row
    run.scratch[0] = queue_id
    run.scratch[1] = topic
    run.scratch[2] = topic_bytes
    return NOT_KNOWN


@cython.cfunc
@cython.nogil
def read_run(
    run: cython.pointer(Run), max_count: cython.longlong, max_bytes: cython.longlong
) -> Read:
    done: Read
    frame: Frame
    at: cython.longlong = 0
    signed: cython.longlong = 0
    number: cython.longlong
    done.count = done.position = done.touched_count = 0
    done.reason = LIMIT
    for number in range(run.touched_count):
        # The rows of the previous run.
        run.rows[run.touched[number] * ROW_NUMBERS + COUNT] = 0
    while done.count < max_count and done.position < max_bytes:
        frame = frame_at(run.buffer, done.position, run.size, run.settings)
        if frame.codec < 0:
            done.reason = -frame.codec
            break
        done.reason = NOT_PLAIN
        header = done.position + PREFIX_BYTES
        after = read_message(run, frame.codec, header, frame.header_end, at, done.count)
        if after < 0:
            break
        if run.settings[IS_SIGNED] != 0:
            signed = signed_end(run, frame.header_end, frame.end, signed, done.count)
            if signed < 0:
                break
        row = queue_row(run)
        if row < 0:
            done.reason = NOT_PLAIN if row == NONE else UNKNOWN
            break
        if run.rows[row * ROW_NUMBERS + COUNT] == 0:
            run.touched[done.touched_count] = row
            done.touched_count += 1
        run.rows[row * ROW_NUMBERS + COUNT] += 1
        run.columns[ROW * MAX_RUN_MESSAGES + done.count] = row
        run.columns[BODY * MAX_RUN_MESSAGES + done.count] = frame.header_end
        run.columns[BODY_BYTES * MAX_RUN_MESSAGES + done.count] = frame.end - frame.header_end
        at = after
        done.count += 1
        done.position = frame.end
        done.reason = LIMIT
    return done


@cython.cfunc
@cython.exceptval(-1)
def open_queues(
    held: HeldArrays, run: cython.pointer(Run), topics: object, rows: object, slots: object
) -> cython.int:
    count: cython.longlong = 0
    index: cython.longlong
    run.topics = read_bytes(held, topics, cython.address(count))
    run.rows = write_int64s(held, rows, cython.address(run.row_count))
    run.slots = write_int64s(held, slots, cython.address(run.slot_count))
    run.row_count //= ROW_NUMBERS
    # At least one slot is always free, so that every search ends.
    need(run.slot_count, run.row_count + 1)
    if run.slot_count & (run.slot_count - 1):
        raise ValueError(f"{run.slot_count} slots are not a power of two")
    return 0


@cython.cfunc
@cython.exceptval(-1)
def open_work(held: HeldArrays, run: cython.pointer(Run), work: tuple) -> cython.int:
    count: cython.longlong = 0
    plain, texts, columns, touched, scratch, signed = work
    run.plain = write_bytes(held, plain, cython.address(run.plain_bytes))
    need(run.plain_bytes, run.settings[OWN_BYTES] + 1)
    run.texts = write_bytes(held, texts, cython.address(run.text_bytes))
    run.columns = write_int64s(held, columns, cython.address(count))
    need(count, COLUMN_COUNT * MAX_RUN_MESSAGES)
    run.touched = write_int64s(held, touched, cython.address(run.touched_count))
    need(run.touched_count, MAX_RUN_MESSAGES)
    run.scratch = write_int64s(held, scratch, cython.address(count))
    need(count, SCRATCH_COUNT)
    run.signed = write_bytes(held, signed, cython.address(run.signed_bytes))
    return 0


def parse(
    frames: object,
    max_count: cython.longlong,
    max_bytes: cython.longlong,
    words: tuple,
    queues: tuple,
    work: tuple,
) -> tuple[int, int, int, int]:
    """Read plain sends to known queues from the start of ``frames``.

    ``words``: names, settings, and the broker's own properties as text. ``queues``: topics, rows
    and slots of the known queues. ``work``: the output arrays: plain text, properties, columns,
    touched rows, scratch, signed content.

    Return the number of sends, the position after them, the number of their queues (whose rows are
    in ``work``, each once), and why the run ended: LIMIT, INCOMPLETE (of a frame), NOT_PLAIN, or
    UNKNOWN (of a queue: the first numbers of ``scratch`` identify it).
    """
    run: Run
    done: Read
    count: cython.longlong = 0
    index: cython.longlong
    names, settings, own = words
    topics, rows, slots = queues
    held: HeldArrays = HeldArrays()
    if max_count > MAX_RUN_MESSAGES:
        raise ValueError(f"a run has at most {MAX_RUN_MESSAGES} messages")
    run.buffer = read_bytes(held, frames, cython.address(run.size))
    run.settings = read_int64s(held, settings, cython.address(count))
    need(count, SETTING_COUNT)
    run.names = read_bytes(held, names, cython.address(count))
    need(count, (SPECIAL_NAMES + run.settings[SPECIAL_COUNT]) * NAME_BYTES)
    run.own = read_bytes(held, own, cython.address(count))
    need(count, run.settings[OWN_BYTES])
    open_queues(held, cython.address(run), topics, rows, slots)
    open_work(held, cython.address(run), work)
    for index in range(run.touched_count):
        if run.touched[index] < 0 or run.touched[index] >= run.row_count:
            raise ValueError(f"there is no row {run.touched[index]}")
    with cython.nogil:
        done = read_run(cython.address(run), max_count, max_bytes)
    return done.count, done.position, done.touched_count, done.reason


def fill_slots(topics: object, rows: object, count: cython.longlong, slots: object) -> None:
    """Fill the slots for ``count`` rows; the number of slots is a power of two above ``count``.

    A topic has at least eight bytes before it.
    """
    run: Run
    number: cython.longlong
    topic_bytes: cython.longlong = 0
    held: HeldArrays = HeldArrays()
    open_queues(held, cython.address(run), topics, rows, slots)
    run.topics = read_bytes(held, topics, cython.address(topic_bytes))
    need(run.row_count, count)
    for number in range(count):
        row = number * ROW_NUMBERS
        if run.rows[row + TOPIC] < 8 or run.rows[row + TOPIC_BYTES] < 0:
            raise ValueError(f"row {number} has no topic")
        need(topic_bytes, run.rows[row + TOPIC] + run.rows[row + TOPIC_BYTES])
    with cython.nogil:
        for number in range(run.slot_count):
            run.slots[number] = 0
        for number in range(count):
            row = number * ROW_NUMBERS
            slot = queue_slot(
                cython.address(run),
                run.topics,
                run.rows[row + TOPIC],
                run.rows[row + TOPIC_BYTES],
                run.rows[row + QUEUE_ID],
            )
            run.slots[slot] = number + 1
