"""The parts of a look-up: its request, and the records of a key or at an offset.

Unusual cases are left to ``broker.lookup`` and ``store.read.index``, the definition: a function
returns a number for that, and has no effect.
"""

from rocketlens.formats.compiled.device cimport (
    Bytes,
    hash_text,
    index_hash,
    load_i32,
    load_i64,
    same_memory,
)
from rocketlens.formats.compiled.headers cimport Frame, Settings, frame_at, number_in, read_header
from rocketlens.formats.compiled.look_up_constants cimport *
from rocketlens.formats.compiled.numbers cimport is_printable, long_in
from rocketlens.formats.compiled.record_constants cimport (
    BODY_CRC,
    HASH_SIGN,
    LENGTH_BYTES,
    MAX_INT,
    PROPERTY_BYTE,
    QUEUE_ID as QUEUE_ID_AT,
    QUEUE_OFFSET as QUEUE_OFFSET_AT,
    SPACE,
    STORE_TIMESTAMP,
    SYS_FLAG,
)
from rocketlens.formats.compiled.records cimport (
    Measured,
    checksums_agree,
    is_indexed,
    measure_record,
    more_of_born_host,
)
from rocketlens.formats.compiled.request_constants cimport (
    FLAGS,
    NO_NUMBER,
    NONE,
    NUMBERS,
    PREFIX_BYTES,
    SHORT_CODE,
)


cdef struct Request:
    Bytes buffer
    long long *numbers


cdef struct Segment:
    Bytes content
    long long size
    long long base_offset


cdef inline long long truth_in(Bytes buffer, long long start, long long length) noexcept nogil:
    """Return 1 for a slice that is true, 0 for one that is false or absent, -1 for others."""
    if length < 0 or (length == 5 and same_memory(buffer, start, FALSE_TEXT, 0, 5)):
        return 0
    return 1 if length == 4 and same_memory(buffer, start, TRUE_TEXT, 0, 4) else NONE


cdef inline long long key_hash_of(
    Bytes content, long long topic, long long topic_bytes, Bytes other, long long key, long long key_bytes
) noexcept nogil:
    """Return the hash of a topic and a key, which are ASCII, each with 8 bytes before it."""
    cdef unsigned int state = <unsigned int>hash_text(content, topic, topic + topic_bytes, 0)
    state = state * 31 + <unsigned int>HASH_SIGN
    return index_hash(hash_text(other, key, key + key_bytes, state))


cdef inline bint read_query(Bytes buffer, long long *numbers) noexcept nogil:
    """Read the fields of a query; return False if it is unusual."""
    cdef long long topic = numbers[2 * Q_TOPIC]
    cdef long long topic_bytes = numbers[2 * Q_TOPIC + 1]
    cdef long long key = numbers[2 * Q_KEY]
    cdef long long key_bytes = numbers[2 * Q_KEY + 1]
    cdef long long is_unique, kind, kind_bytes
    if topic_bytes < 1 or topic_bytes > MAX_TOPIC_CHARACTERS:
        return False
    if key_bytes < 1 or key_bytes > MAX_KEY_BYTES:
        return False
    if not is_printable(buffer, topic, topic_bytes) or not is_printable(buffer, key, key_bytes):
        return False
    numbers[MAX_NUM] = number_in(buffer, numbers[2 * Q_MAX_NUM], numbers[2 * Q_MAX_NUM + 1], 10)
    numbers[BEGIN] = long_in(buffer, numbers[2 * Q_BEGIN], numbers[2 * Q_BEGIN + 1])
    numbers[END] = long_in(buffer, numbers[2 * Q_END], numbers[2 * Q_END + 1])
    if numbers[MAX_NUM] < 1 or numbers[MAX_NUM] > MAX_INT:
        return False
    if numbers[BEGIN] == NO_NUMBER or numbers[END] == NO_NUMBER:
        return False
    if numbers[BEGIN] <= 0:
        numbers[BEGIN] = NO_NUMBER
    is_unique = truth_in(buffer, numbers[2 * Q_IS_UNIQUE], numbers[2 * Q_IS_UNIQUE + 1])
    kind_bytes = numbers[2 * Q_TYPE + 1]
    if is_unique < 0 or kind_bytes == 0 or kind_bytes > 1:
        return False
    numbers[IS_UNIQUE_QUERY] = is_unique
    numbers[IS_UNIQUE] = is_unique
    if kind_bytes == 1:
        kind = buffer[numbers[2 * Q_TYPE]]
        if kind == UNIQUE_TYPE:
            numbers[IS_UNIQUE] = 1
        elif kind != KEY_TYPE:
            return False
    numbers[HASH] = key_hash_of(buffer, topic, topic_bytes, buffer, key, key_bytes)
    return True


cdef inline long long request_end(
    Bytes buffer,
    long long position,
    long long length,
    Bytes cells,
    Settings bounds,
    long long *out,
) noexcept nogil:
    """Read the request at ``position``; return the end of its frame, 0 if it is not plain.

    ``bounds`` are the settings of a header, with the codes of a query and of a view.
    """
    cdef Frame frame = frame_at(buffer, position, length, bounds)
    if frame.codec < 0:
        return 0
    if not read_header(
        buffer, frame.codec, position + PREFIX_BYTES, frame.header_end, cells, bounds, out
    ):
        return 0
    if out[NUMBERS + FLAGS] != 0:
        return 0
    if out[REQUEST_CODE] == bounds[SHORT_CODE]:
        return frame.end if read_query(buffer, out) else 0
    out[OFFSET] = long_in(buffer, out[2 * V_OFFSET], out[2 * V_OFFSET + 1])
    return frame.end if out[OFFSET] >= 0 else 0


cdef inline long long has_key(
    const Request *request,
    Bytes content,
    long long start,
    long long stop,
    Bytes name,
    long long name_bytes,
    bint is_unique,
) noexcept nogil:
    """Return 1 if properties have the key of a request, 0 if not, -1 if that is ambiguous."""
    cdef long long key = request.numbers[2 * Q_KEY]
    cdef long long key_bytes = request.numbers[2 * Q_KEY + 1]
    cdef long long value = NONE
    cdef long long position
    cdef bint is_end
    for position in range(start, stop - name_bytes + 1):
        if content[position] == name[0] and same_memory(content, position, name, 0, name_bytes):
            if value >= 0 or (position > start and content[position - 1] != PROPERTY_BYTE):
                return NONE
            value = position + name_bytes
    if value < 0:
        return 0
    position = value
    while True:
        is_end = position == stop or content[position] == PROPERTY_BYTE
        if is_end or (not is_unique and content[position] == SPACE):
            if position - value == key_bytes and same_memory(
                content, value, request.buffer, key, key_bytes
            ):
                return 1
            if is_end:
                return 0
            value = position + 1
        position += 1


cdef inline long long has_wanted_key(
    const Request *request, Bytes content, long long start, long long stop
) noexcept nogil:
    """As :func:`has_key`, for the requested property."""
    if request.numbers[IS_UNIQUE] == 1:
        return has_key(request, content, start, stop, UNIQUE_KEY_NAME, 9, True)
    return has_key(request, content, start, stop, KEYS_NAME, 5, False)


cdef inline bint has_topic(
    const Request *request, Bytes content, long long start, long long length
) noexcept nogil:
    return length == request.numbers[2 * Q_TOPIC + 1] and same_memory(
        content, start, request.buffer, request.numbers[2 * Q_TOPIC], length
    )


cdef inline long long store_timestamp_at(Bytes content, long long position) noexcept nogil:
    cdef long long more = more_of_born_host(load_i32(content, position + SYS_FLAG))
    return load_i64(content, position + STORE_TIMESTAMP + more)


cdef inline long long properties_of(const Measured *measured) noexcept nogil:
    """Return the start of the properties, relative to the record."""
    return measured.topic_start + measured.topic_length + LENGTH_BYTES


cdef inline bint is_sound(Bytes content, long long position, const Measured *measured) noexcept nogil:
    return checksums_agree(
        content,
        position,
        measured.size,
        measured.body_start,
        measured.body_length,
        load_i32(content, position + BODY_CRC),
        measured.size - properties_of(measured),
    )


cdef inline long long compare_candidates(
    const Request *request,
    const Segment *segment,
    long long *out,
    long long first,
    long long count,
    long long max_num,
) noexcept nogil:
    """Compare candidates with a request, newest first, until ``max_num`` match.

    Compares candidates ``first .. count - 1``, up to one that is not in the segment. Writes the
    size of each, or `OTHER_TIME`. Returns the number of the first that was not compared, or
    `UNUSUAL`.
    """
    cdef long long number = first
    cdef long long position, timestamp_ms
    cdef Measured measured
    while number < count and max_num > 0:
        position = out[number] - segment.base_offset
        if position < 0 or position >= segment.size:
            break
        measured = measure_record(segment.content, out[number], position, segment.size)
        if measured.size == 0 or not has_topic(
            request, segment.content, position + measured.topic_start, measured.topic_length
        ):
            return UNUSUAL
        timestamp_ms = store_timestamp_at(segment.content, position)
        if timestamp_ms < request.numbers[BEGIN] or timestamp_ms > request.numbers[END]:
            out[CANDIDATE_ROOM + number] = OTHER_TIME
            number += 1
            continue
        if has_wanted_key(
            request,
            segment.content,
            position + properties_of(&measured),
            position + measured.size,
        ) != 1 or not is_sound(segment.content, position, &measured):
            return UNUSUAL
        out[CANDIDATE_ROOM + number] = measured.size
        max_num -= 1
        number += 1
    return number


cdef inline long long scan_unindexed(
    const Request *request, const Segment *segment, long long start, long long stop, long long *out
) noexcept nogil:
    """Find the records of the request's key in a part of the log that is not indexed yet.

    ``start`` and ``stop`` are physical offsets in the segment. Writes their offsets, the oldest
    first; returns their number, or `UNUSUAL`.
    """
    cdef long long limit = stop - segment.base_offset
    cdef long long count = 0
    cdef long long position, state
    cdef Measured measured
    if start < segment.base_offset or limit > segment.size:
        return UNUSUAL
    while start < stop:
        position = start - segment.base_offset
        measured = measure_record(segment.content, start, position, limit)
        if measured.size == 0:
            return UNUSUAL
        if is_indexed(load_i32(segment.content, position + SYS_FLAG)) and has_topic(
            request, segment.content, position + measured.topic_start, measured.topic_length
        ):
            state = has_wanted_key(
                request,
                segment.content,
                position + properties_of(&measured),
                position + measured.size,
            )
            if state < 0 or count >= CANDIDATE_ROOM:
                return UNUSUAL
            if state == 1:
                out[count] = start
                count += 1
        start += measured.size
    return count


cdef inline long long view_at(
    const Segment *segment, long long limit, long long physical_offset, long long *out
) noexcept nogil:
    """Return the size of the record at an offset, or 0; store its queue and its topic.

    The record must end within the segment's first ``limit`` bytes.
    """
    cdef long long position = physical_offset - segment.base_offset
    cdef Measured measured
    if position < 0:
        return 0
    measured = measure_record(segment.content, physical_offset, position, limit)
    if measured.size == 0 or not is_sound(segment.content, position, &measured):
        return 0
    out[QUEUE_ID] = load_i32(segment.content, position + QUEUE_ID_AT)
    out[QUEUE_OFFSET] = load_i64(segment.content, position + QUEUE_OFFSET_AT)
    out[TOPIC_START] = measured.topic_start
    out[TOPIC_BYTES] = measured.topic_length
    return measured.size
