"""The compiled reading of plain sends: frames to columns, of known queues.

What ends a run, because it is not plain, is said in :func:`parse`. The same is done, message by
message, by ``broker.requests.send``, which is the definition of it.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numba import types

from rocketlens.formats.compiled.kernels_device import (
    BYTES,
    INT64S,
    NUMBER,
    READ_ONLY_BYTES,
    ByteArray,
    copy_bytes,
    device,
    kernel,
    load_i32,
    mix,
    mix_bytes,
    raw,
)
from rocketlens.formats.compiled.kernels_send_header import (
    BACKSLASH,
    CODE,
    F_BATCH,
    F_BORN,
    F_FLAG,
    F_PROPERTIES,
    F_QUEUE_ID,
    F_RECONSUMED,
    F_SIGNATURE,
    F_SYS_FLAG,
    F_TOPIC,
    F_USER,
    FLAGS,
    HEADER_SCRATCH,
    IS_ESCAPED,
    IS_SIGNED,
    IS_WAITED_FOR,
    LAST_ASCII,
    LAST_PRINTABLE,
    LENGTH_BYTES,
    LONG_ORDER,
    MAX_BODY,
    MAX_FRAME,
    MAX_HEADER,
    NO_NUMBER,
    NONE,
    NUMBERS,
    OPAQUES,
    OWN_BYTES,
    QUOTE,
    SHORT_CODE,
    SHORT_ORDER,
    SIGNED_COUNT,
    SPACE,
    SPECIAL_COUNT,
    SPECIAL_NAMES,
    Numbers,
    are_same,
    byte_at,
    name_at,
    number_in,
    plain_text,
    read_header,
)
from rocketlens.limits import (
    MAX_PROPERTIES_BYTES,
    MAX_RUN_KEY_BYTES,
    MAX_RUN_MESSAGES,
    MAX_RUN_PROPERTIES,
)

Words = tuple[ByteArray, Numbers, ByteArray]
"""Names, settings, and the broker's own properties as text."""
Queues = tuple[ByteArray, Numbers, Numbers]
"""Topics, rows and slots of the known queues."""
Work = tuple[ByteArray, ByteArray, Numbers, Numbers, Numbers, ByteArray]
"""Arrays to write: plain text, properties, columns, touched rows, scratch, what is signed."""
INLINED: Final = "e6ce8e3a64ee5298"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""


# Columns of the messages of a run: column c of message n is columns[c * MAX_RUN_MESSAGES + n].
OPAQUE, IS_ONE_WAY, ROW, SYS_FLAG, BORN, FLAG, RECONSUMED, TEXT, TEXT_BYTES = range(9)
KEY, KEY_BYTES, TAGS_CODE, BODY, BODY_BYTES, RECORD, RECORD_BYTES = range(9, 16)
# Where access control checks requests, only.
SEND_CODE, USER, USER_BYTES, SIGNATURE, SIGNATURE_BYTES, SIGNED, SIGNED_BYTES = range(16, 23)
COLUMN_COUNT: Final = 23

# Numbers of a known queue: rows[row * ROW_NUMBERS + n].
TOPIC, TOPIC_BYTES, QUEUE_ID, MORE_FLAGS, NEXT_OFFSET, ROOM, COUNT, AT, ROW_NUMBERS = range(9)

# Why a run ended.
LIMIT, INCOMPLETE, NOT_PLAIN, UNKNOWN = range(4)
_NOT_KNOWN: Final = -2

_UNIQUE_KEY, _TAGS, _WAIT = 0, 1, 2
_TRUE: Final = int.from_bytes(b"true", "big")
_UNIQUE_START, _UNIQUE_BYTES, _TAGS_CODE, _SENT_BYTES = range(HEADER_SCRATCH, HEADER_SCRATCH + 4)
_CUTS: Final = HEADER_SCRATCH + 4
_CUT_NUMBERS: Final = 4
SCRATCH_COUNT: Final = _CUTS + _CUT_NUMBERS * MAX_RUN_PROPERTIES
_NAME_END, _PROPERTY_END = 1, 2
_WORD: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_LAST_BUCKET: Final = 127
_ONE_WAY: Final = 2
_PREFIX_BYTES: Final = 8
_I32_DIGITS, _I64_DIGITS = 9, 18
_FORBIDDEN_FLAGS: Final = 0xC
"""Transactions: a message of one is not plain."""


@device
def put_cut(
    plain: ByteArray,
    scratch: Numbers,
    count: int,
    start: int,
    name_length: int,
    length: int,
    bucket: int,
) -> bool:
    """Sort a property in, behind those of its bucket; return False if its name was there."""
    position = count
    while position > 0 and scratch[_CUTS + _CUT_NUMBERS * (position - 1) + 3] > bucket:
        after = _CUTS + _CUT_NUMBERS * position
        for number in range(_CUT_NUMBERS):
            scratch[after + number] = scratch[after - _CUT_NUMBERS + number]
        position -= 1
    other = position - 1
    while other >= 0 and scratch[_CUTS + _CUT_NUMBERS * other + 3] == bucket:
        cut = _CUTS + _CUT_NUMBERS * other
        if scratch[cut + 2] == name_length and are_same(
            plain, scratch[cut], plain, start, name_length
        ):
            return False
        other -= 1
    cut = _CUTS + _CUT_NUMBERS * position
    scratch[cut] = start
    scratch[cut + 1] = length
    scratch[cut + 2] = name_length
    scratch[cut + 3] = bucket
    return True


@device
def note_special(
    plain: ByteArray, special: int, value: int, stop: int, settings: Numbers, scratch: Numbers
) -> bool:
    """Write down unique key and tags; return False if a property is of no plain message."""
    if special == _UNIQUE_KEY:
        for index in range(value, stop):
            byte = plain[index]
            # Others would have to be escaped in the reply.
            if byte < SPACE or byte > LAST_PRINTABLE or byte in (QUOTE, BACKSLASH):
                return False
        scratch[_UNIQUE_START] = value
        scratch[_UNIQUE_BYTES] = stop - value
        return stop - value <= MAX_RUN_KEY_BYTES
    if special == _TAGS:
        hashed = 0
        for index in range(value, stop):
            if plain[index] > LAST_ASCII:
                return False
            hashed = (hashed * 31 + byte_at(plain, index)) & _WORD
        scratch[_TAGS_CODE] = hashed - 2 * _SIGN if hashed & _SIGN else hashed
        return True
    if special == _WAIT:
        is_true = stop - value == LENGTH_BYTES and load_i32(plain, value) == _TRUE
        return is_true or settings[IS_WAITED_FOR] == 0
    return special < 0


@device
def cut_properties(
    plain: ByteArray,
    sent_bytes: int,
    total: int,
    names: ByteArray,
    settings: Numbers,
    scratch: Numbers,
) -> int:
    """Cut properties, and sort them as Java's ``HashMap`` does; return how many, or -1.

    The first ``sent_bytes`` are the producer's, the others the broker's own.
    """
    scratch[_UNIQUE_START] = NONE
    scratch[_TAGS_CODE] = 0
    count = 0
    start = 0
    between = NONE
    hashed = 0
    for position in range(total):
        byte = byte_at(plain, position)
        if byte == _PROPERTY_END:
            if between <= start or between == position - 1 or count == MAX_RUN_PROPERTIES:
                return NONE
            if start < sent_bytes:
                special = name_at(
                    names, SPECIAL_NAMES, settings[SPECIAL_COUNT], plain, start, between - start
                )
                if not note_special(plain, special, between + 1, position, settings, scratch):
                    return NONE
            bucket = (hashed ^ hashed >> 16) & _LAST_BUCKET
            if not put_cut(
                plain, scratch, count, start, between - start, position + 1 - start, bucket
            ):
                return NONE
            count += 1
            start = position + 1
            between = NONE
            hashed = 0
        elif between < 0:
            if byte == _NAME_END:
                between = position
            elif byte > LAST_ASCII:
                return NONE
            else:
                hashed = (hashed * 31 + byte) & _WORD
    return count


@device
def read_properties(
    buffer: ByteArray,
    words: Words,
    scratch: Numbers,
    plain: ByteArray,
    plain_bytes: int,
    texts: ByteArray,
    at: int,
    limit: int,
) -> int:
    """Write a message's properties as they are stored; return the position behind, or -1.

    ``scratch`` then has where the unique key is among them, and ``plain`` begins with the
    producer's.
    """
    names, settings, own = words
    own_bytes = settings[OWN_BYTES]
    start = scratch[2 * F_PROPERTIES]
    length = scratch[2 * F_PROPERTIES + 1]
    room = plain_bytes - own_bytes - 1
    sent = plain_text(buffer, start, length, scratch[IS_ESCAPED] != 0, plain, room)
    if sent <= 0:
        return NONE
    scratch[_SENT_BYTES] = sent
    if plain[sent - 1] != _PROPERTY_END:
        plain[sent] = _PROPERTY_END
        sent += 1
    total = sent + own_bytes
    copy_bytes(plain, sent, own, 0, own_bytes)
    if total > MAX_PROPERTIES_BYTES or at + total > limit:
        return NONE
    count = cut_properties(plain, sent, total, names, settings, scratch)
    unique_start = scratch[_UNIQUE_START]
    if count < 0 or unique_start < 0:
        return NONE
    for number in range(count):
        cut = _CUTS + _CUT_NUMBERS * number
        begin = scratch[cut]
        size = scratch[cut + 1]
        copy_bytes(texts, at, plain, begin, size)
        if begin < unique_start < begin + size:
            scratch[_UNIQUE_START] = at + unique_start - begin
            unique_start = NO_NUMBER
        at += size
    return at


@device
def slot_of(
    buffer: ByteArray,
    start: int,
    length: int,
    queue_id: int,
    topics: ByteArray,
    rows: Numbers,
    slots: Numbers,
    slot_count: int,
) -> int:
    """Return the slot of a queue, or the free one for it. A slot holds a row's number plus one."""
    hashed = mix(mix_bytes(buffer, start, start + length), np.uint64(queue_id))
    mask = slot_count - 1
    slot: int = np.int64(hashed >> np.uint64(20)) & mask  # type: ignore[assignment]
    while slots[slot] > 0:
        row = (slots[slot] - 1) * ROW_NUMBERS
        if (
            rows[row + QUEUE_ID] == queue_id
            and rows[row + TOPIC_BYTES] == length
            and are_same(topics, rows[row + TOPIC], buffer, start, length)
        ):
            break
        slot = (slot + 1) & mask
    return slot


@device
def number_of(buffer: ByteArray, scratch: Numbers, field: int, max_digits: int) -> int:
    """Return the number of a field, or `NO_NUMBER`."""
    return number_in(buffer, scratch[2 * field], scratch[2 * field + 1], max_digits)


@device
def read_numbers(buffer: ByteArray, scratch: Numbers, columns: Numbers, count: int) -> bool:
    """Write down the numbers of a send; return False if one is not plain, or it is a batch."""
    flags = scratch[NUMBERS + FLAGS]
    sys_flag = number_of(buffer, scratch, F_SYS_FLAG, _I32_DIGITS)
    flag = number_of(buffer, scratch, F_FLAG, _I32_DIGITS)
    born = number_of(buffer, scratch, F_BORN, _I64_DIGITS)
    reconsumed = 0
    if scratch[2 * F_RECONSUMED + 1] >= 0:
        reconsumed = number_of(buffer, scratch, F_RECONSUMED, _I32_DIGITS)
    # Only "true" is true, in any case of its letters.
    is_batch = scratch[2 * F_BATCH + 1] == 4
    if flags not in (0, _ONE_WAY) or sys_flag < 0 or sys_flag & _FORBIDDEN_FLAGS:
        return False
    if is_batch or NO_NUMBER in (flag, born, reconsumed):
        return False
    columns[OPAQUE * MAX_RUN_MESSAGES + count] = scratch[NUMBERS + OPAQUES]
    columns[IS_ONE_WAY * MAX_RUN_MESSAGES + count] = flags
    columns[SYS_FLAG * MAX_RUN_MESSAGES + count] = sys_flag
    columns[BORN * MAX_RUN_MESSAGES + count] = born
    columns[FLAG * MAX_RUN_MESSAGES + count] = flag
    columns[RECONSUMED * MAX_RUN_MESSAGES + count] = reconsumed
    return True


@device
def read_message(
    buffer: ByteArray,
    codec: int,
    header: int,
    header_end: int,
    words: Words,
    work: Work,
    sizes: tuple[int, int],
    at: int,
    count: int,
) -> int:
    """Read message ``count`` into its columns; return the position behind its properties, or -1."""
    names, settings, _ = words
    plain, texts, columns, _, scratch, _ = work
    if not read_header(buffer, codec, header, header_end, names, settings, scratch):
        return NONE
    if not read_numbers(buffer, scratch, columns, count):
        return NONE
    end = read_properties(buffer, words, scratch, plain, sizes[0], texts, at, sizes[1])
    columns[TEXT * MAX_RUN_MESSAGES + count] = at
    columns[TEXT_BYTES * MAX_RUN_MESSAGES + count] = end - at
    columns[KEY * MAX_RUN_MESSAGES + count] = scratch[_UNIQUE_START]
    columns[KEY_BYTES * MAX_RUN_MESSAGES + count] = scratch[_UNIQUE_BYTES]
    columns[TAGS_CODE * MAX_RUN_MESSAGES + count] = scratch[_TAGS_CODE]
    return end


@device
def signed_end(
    buffer: ByteArray,
    header_end: int,
    end: int,
    settings: Numbers,
    work: Work,
    at: int,
    limit: int,
    count: int,
) -> int:
    """Write what message ``count`` has a signature of; return the position behind it, or -1.

    That are the values of its fields, in the order of their names, and its body. Those of other
    than ASCII characters are not plain, but for properties.
    """
    plain, _, columns, _, scratch, signed = work
    code = scratch[NUMBERS + CODE]
    order = SHORT_ORDER if code == settings[SHORT_CODE] else LONG_ORDER
    begin = at
    for number in range(order, order + SIGNED_COUNT):
        field = settings[number]
        start = scratch[2 * field]
        length = scratch[2 * field + 1]
        if at + length > limit:
            return NONE
        if field == F_PROPERTIES:
            length = scratch[_SENT_BYTES]
            copy_bytes(signed, at, plain, 0, length)
            at += length
        elif length > 0:
            for index in range(start, start + length):
                if buffer[index] > LAST_ASCII:
                    return NONE
            copy_bytes(signed, at, buffer, start, length)
            at += length
    if at + end - header_end > limit:
        return NONE
    copy_bytes(signed, at, buffer, header_end, end - header_end)
    at += end - header_end
    columns[SEND_CODE * MAX_RUN_MESSAGES + count] = code
    columns[USER * MAX_RUN_MESSAGES + count] = scratch[2 * F_USER]
    columns[USER_BYTES * MAX_RUN_MESSAGES + count] = scratch[2 * F_USER + 1]
    columns[SIGNATURE * MAX_RUN_MESSAGES + count] = scratch[2 * F_SIGNATURE]
    columns[SIGNATURE_BYTES * MAX_RUN_MESSAGES + count] = scratch[2 * F_SIGNATURE + 1]
    columns[SIGNED * MAX_RUN_MESSAGES + count] = begin
    columns[SIGNED_BYTES * MAX_RUN_MESSAGES + count] = at - begin
    return at


@device
def row_of(buffer: ByteArray, scratch: Numbers, queues: Queues, slot_count: int) -> int:
    """Return the row of a message's queue, -1 if there can be none, -2 if it is not known.

    The first numbers of ``scratch`` are then the queue id, and start and length of the topic.
    """
    topics, rows, slots = queues
    queue_id = number_of(buffer, scratch, F_QUEUE_ID, _I32_DIGITS)
    topic = scratch[2 * F_TOPIC]
    topic_bytes = scratch[2 * F_TOPIC + 1]
    if queue_id < 0 or topic_bytes <= 0:
        return NONE
    slot = slot_of(buffer, topic, topic_bytes, queue_id, topics, rows, slots, slot_count)
    row: int = slots[slot] - 1
    if row >= 0:
        return row
    scratch[0] = queue_id
    scratch[1] = topic
    scratch[2] = topic_bytes
    return _NOT_KNOWN


@device
def frame_at(
    buffer: ByteArray, position: int, size: int, settings: Numbers
) -> tuple[int, int, int]:
    """Return codec, end of the header and end of a frame, or why it is not one as the first."""
    if size - position < _PREFIX_BYTES:
        return -INCOMPLETE, 0, 0
    length = load_i32(buffer, position)
    word = load_i32(buffer, position + LENGTH_BYTES)
    codec = word >> 24
    header_end = position + _PREFIX_BYTES + (word & 0xFFFFFF)
    end = position + LENGTH_BYTES + length
    if (
        header_end > end
        or length > settings[MAX_FRAME] - LENGTH_BYTES
        or word & 0xFFFFFF > settings[MAX_HEADER]
        or end - header_end > settings[MAX_BODY]
        or codec < 0
        or codec > 1
    ):
        return -NOT_PLAIN, 0, 0
    return (codec if end <= size else -INCOMPLETE), header_end, end


@kernel(
    types.UniTuple(NUMBER, 4),
    READ_ONLY_BYTES,
    NUMBER,
    NUMBER,
    types.Tuple((BYTES, INT64S, BYTES)),
    types.Tuple((BYTES, INT64S, INT64S)),
    types.Tuple((BYTES, BYTES, INT64S, INT64S, INT64S, BYTES)),
)
def parse(
    frames: ByteArray, max_count: int, max_bytes: int, words: Words, queues: Queues, work: Work
) -> tuple[int, int, int, int]:
    """Read plain sends to known queues from the beginning of ``frames``.

    Returns how many, the position behind them, how many queues they go to (their rows are in
    ``work``, each once), and why there are no more: LIMIT, INCOMPLETE (a frame is), NOT_PLAIN, or
    UNKNOWN, if its queue is: then the first numbers of ``scratch`` say which.
    """
    buffer = raw(frames)
    table = (raw(queues[0]), raw(queues[1]), raw(queues[2]))
    texts_of = (raw(words[0]), raw(words[1]), raw(words[2]))
    arrays = (
        raw(work[0]),
        raw(work[1]),
        raw(work[2]),
        raw(work[3]),
        raw(work[4]),
        raw(work[5]),
    )
    sizes = (len(work[0]), len(work[1]))
    rows, columns, touched = table[1], arrays[2], arrays[3]
    count = position = at = signed = touched_count = 0
    reason = LIMIT
    for number in range(len(work[3])):
        # Those of the run before.
        rows[touched[number] * ROW_NUMBERS + COUNT] = 0
    while count < max_count and position < max_bytes:
        codec, header_end, end = frame_at(buffer, position, len(frames), texts_of[1])
        if codec < 0:
            reason = -codec
            break
        reason = NOT_PLAIN
        header = position + _PREFIX_BYTES
        after = read_message(buffer, codec, header, header_end, texts_of, arrays, sizes, at, count)
        if after < 0:
            break
        if texts_of[1][IS_SIGNED] != 0:
            signed = signed_end(
                buffer, header_end, end, texts_of[1], arrays, signed, len(work[5]), count
            )
            if signed < 0:
                break
        row = row_of(buffer, arrays[4], table, len(queues[2]))
        if row < 0:
            reason = NOT_PLAIN if row == NONE else UNKNOWN
            break
        if rows[row * ROW_NUMBERS + COUNT] == 0:
            touched[touched_count] = row
            touched_count += 1
        rows[row * ROW_NUMBERS + COUNT] += 1
        columns[ROW * MAX_RUN_MESSAGES + count] = row
        columns[BODY * MAX_RUN_MESSAGES + count] = header_end
        columns[BODY_BYTES * MAX_RUN_MESSAGES + count] = end - header_end
        at = after
        count += 1
        position = end
        reason = LIMIT
    return count, position, touched_count, reason


@kernel(types.void, BYTES, INT64S, NUMBER, INT64S)
def fill_slots(topics: ByteArray, rows: Numbers, count: int, slots: Numbers) -> None:
    """Fill the slots for ``count`` rows; their number is a power of two above ``count``.

    Topics begin behind eight other bytes.
    """
    memory, numbers, table = raw(topics), raw(rows), raw(slots)
    for slot in range(len(slots)):
        table[slot] = 0
    for number in range(count):
        row = number * ROW_NUMBERS
        slot = slot_of(
            memory,
            numbers[row + TOPIC],
            numbers[row + TOPIC_BYTES],
            numbers[row + QUEUE_ID],
            memory,
            numbers,
            table,
            len(slots),
        )
        table[slot] = number + 1
