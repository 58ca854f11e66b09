"""The reading of a request's header, JSON or binary: where its fields are.

Nothing here trusts its input, and what is not written as RocketMQ's clients write it is not plain:
it is left to :mod:`rocketlens.wire`, which is the definition.
"""

from rocketlens.formats.compiled.device cimport (
    Bytes,
    Step,
    copy_bytes,
    load_i16,
    load_i32,
    same_memory,
    utf8_step,
)
from rocketlens.formats.compiled.record_constants cimport REPLACEMENT
from rocketlens.formats.compiled.request_constants cimport *

ctypedef const long long *Settings


cdef struct Frame:
    long long codec  # or why it is not a frame, negated
    long long header_end
    long long end


cdef inline Frame frame_at(
    Bytes buffer, long long position, long long size, Settings settings
) noexcept nogil:
    """Return codec, end of the header and end of a frame, or why it is not one as the first."""
    cdef Frame frame
    cdef long long length, word
    frame.codec = -INCOMPLETE
    frame.header_end = frame.end = 0
    if size - position < PREFIX_BYTES:
        return frame
    length = load_i32(buffer, position)
    word = load_i32(buffer, position + LENGTH_BYTES)
    frame.header_end = position + PREFIX_BYTES + (word & 0xFFFFFF)
    frame.end = position + LENGTH_BYTES + length
    if (
        frame.header_end > frame.end
        or length > settings[MAX_FRAME] - LENGTH_BYTES
        or word & 0xFFFFFF > settings[MAX_HEADER]
        or frame.end - frame.header_end > settings[MAX_BODY]
        or word >> 24 < 0
        or word >> 24 > 1
    ):
        frame.codec = -NOT_PLAIN
    elif frame.end <= size:
        frame.codec = word >> 24
    return frame


cdef inline long long name_at(
    Bytes names, long long first, long long count, Bytes buffer, long long start, long long length
) noexcept nogil:
    """Return which of ``count`` names from ``first`` on the slice is, or -1."""
    cdef long long number, cell
    for number in range(count):
        cell = (first + number) * NAME_BYTES
        if names[cell] == length and same_memory(names, cell + 1, buffer, start, length):
            return number
    return NONE


cdef inline long long text_end(
    Bytes buffer, long long position, long long stop, bint with_any
) noexcept nogil:
    """Return the position of the quote that ends a JSON text, or -1.

    It is one of printable ASCII, unless it may have ``with_any`` characters and escapes.
    """
    cdef unsigned char byte
    while position < stop:
        byte = buffer[position]
        if byte == QUOTE:
            return position
        if byte < SPACE or (not with_any and (byte > LAST_PRINTABLE or byte == BACKSLASH)):
            return NONE
        if byte == BACKSLASH:
            position += 1
        position += 1
    return NONE


cdef inline long long number_in(
    Bytes buffer, long long start, long long length, long long max_digits
) noexcept nogil:
    """Return the decimal number of a slice, or `NO_NUMBER` if it is none of so many digits."""
    cdef long long position = start
    cdef long long stop = start + length
    cdef long long number = 0
    cdef long long digit
    if length > 0 and buffer[start] == MINUS:
        position += 1
    cdef bint is_negative = position > start
    if position >= stop or stop - position > max_digits:
        return NO_NUMBER
    while position < stop:
        digit = <long long>buffer[position] - ZERO_DIGIT
        if digit < 0 or digit > 9:
            return NO_NUMBER
        number = number * 10 + digit
        position += 1
    return -number if is_negative else number


cdef inline long long write_number(unsigned char *out, long long at, long long number) noexcept nogil:
    """Write a number of 0 or above; return the position behind it."""
    cdef long long digits = 1
    cdef long long rest = number // 10
    cdef long long position
    while rest > 0:
        digits += 1
        rest = rest // 10
    for position in range(at + digits - 1, at - 1, -1):
        out[position] = <unsigned char>(ZERO_DIGIT + number % 10)
        number = number // 10
    return at + digits


cdef inline long long write_hex(unsigned char *out, long long at, long long number) noexcept nogil:
    """Write 16 hexadecimal digits; return the position behind them."""
    cdef long long index, digit
    for index in range(16):
        digit = number >> 4 * (15 - index) & 0xF
        out[at + index] = <unsigned char>(digit + (ZERO_DIGIT if digit < 10 else 0x37))
    return at + 16


cdef inline long long json_number_end(
    Bytes buffer, long long position, long long stop, long long *out
) noexcept nogil:
    """Read a JSON number of 0 .. MAX_INT; return the position behind it, or -1."""
    cdef long long start = position
    cdef long long number = 0
    while (
        position < stop
        and ZERO_DIGIT <= buffer[position] <= NINE_DIGIT
        and position - start <= 10
    ):
        number = number * 10 + <long long>buffer[position] - ZERO_DIGIT
        position += 1
    if (
        position == start
        or number > MAX_INT
        or (buffer[start] == ZERO_DIGIT and position > start + 1)
    ):
        return NONE
    out[0] = number
    return position


cdef inline long long hex_digit(long long byte) noexcept nogil:
    """Return the value of a hexadecimal digit, or a negative number."""
    cdef long long letter = byte | SPACE
    if ZERO_DIGIT <= byte <= NINE_DIGIT:
        return byte - ZERO_DIGIT
    return letter - LOWER_A + 10 if LOWER_A <= letter < LOWER_A + 6 else NONE


cdef inline long long unescape(Bytes buffer, long long position, long long stop) noexcept nogil:
    """Return the character of the JSON escape behind a backslash, or 0 if it is not plain."""
    cdef long long kind = buffer[position]
    cdef long long value = 0
    cdef long long index, digit
    if kind == LOWER_U:
        if position + 4 >= stop:
            return 0
        for index in range(position + 1, position + 5):
            digit = hex_digit(buffer[index])
            if digit < 0:
                return 0
            value = value << 4 | digit
        return value
    return kind if kind == QUOTE or kind == BACKSLASH or kind == SLASH else 0


cdef inline long long plain_text(
    Bytes buffer,
    long long start,
    long long length,
    bint is_escaped,
    unsigned char *out,
    long long limit,
) noexcept nogil:
    """Write the text of a slice; return its length, or -1 if it is too long, or not well-formed.

    Of other than ASCII characters an escape is not plain, and the one that Java puts for others.
    """
    cdef long long stop = start + length
    cdef long long position = start
    cdef long long count = 0
    cdef long long byte
    cdef Step step
    if length > limit:
        return NONE
    while position < stop:
        byte = buffer[position]
        if byte > LAST_ASCII:
            step = utf8_step(buffer, position, stop)
            if step.code_point == REPLACEMENT:
                return NONE
            copy_bytes(out, count, buffer, position, step.after - position)
            count += step.after - position
            position = step.after
            continue
        position += 1
        if is_escaped and byte == BACKSLASH:
            if position >= stop:
                return NONE
            byte = unescape(buffer, position, stop)
            position += 5 if buffer[position] == LOWER_U else 1
        if byte == 0 or byte > LAST_ASCII:
            return NONE
        out[count] = <unsigned char>byte
        count += 1
    return count


cdef inline long long first_name_of(long long code, Settings settings) noexcept nogil:
    """Return where the names of a code's fields begin, or -1 if it is no send."""
    if code == settings[SHORT_CODE]:
        return SHORT_NAMES
    return LONG_NAMES if code == settings[LONG_CODE] else NONE


cdef inline long long json_field_end(
    Bytes buffer, long long position, long long stop, long long field, long long *scratch
) noexcept nogil:
    """Write down where the text of a field is; return the position behind it, or -1."""
    cdef long long end
    if scratch[2 * field + 1] >= 0 or buffer[position] != QUOTE:
        return NONE
    end = text_end(buffer, position + 1, stop, field == F_PROPERTIES)
    scratch[2 * field] = position + 1
    scratch[2 * field + 1] = end - position - 1
    return end + 1 if end >= 0 else NONE


cdef inline long long json_member_end(
    Bytes buffer, long long position, long long stop, long long member, long long *scratch
) noexcept nogil:
    """Read a member of a header that is no object; return the position behind it, or -1."""
    cdef long long end
    if member == CODE or member == FLAGS or member == OPAQUES or member == VERSION:
        return json_number_end(buffer, position, stop, &scratch[NUMBERS + member])
    if buffer[position] != QUOTE:
        return NONE
    end = text_end(buffer, position + 1, stop, False)
    return end + 1 if end >= 0 else NONE


cdef inline bint read_json(
    Bytes buffer,
    long long start,
    long long stop,
    Bytes names,
    Settings settings,
    long long *scratch,
) noexcept nogil:
    """Read a JSON header as RocketMQ's clients write it; return False if it is not one."""
    cdef long long members = 0
    cdef long long first_name = 0
    cdef long long name_count = MEMBER_COUNT
    cdef long long position = start
    cdef long long end, name
    scratch[NUMBERS + CODE] = NONE
    scratch[IS_ESCAPED] = 1
    if position >= stop or buffer[position] != OPEN:
        return False
    while True:
        position += 1
        if position >= stop or buffer[position] != QUOTE:
            return False
        end = text_end(buffer, position + 1, stop, False)
        if end < 0 or end + 2 >= stop or buffer[end + 1] != COLON:
            return False
        name = name_at(names, first_name, name_count, buffer, position + 1, end - position - 1)
        if name < 0:
            return False
        position = end + 2
        if name_count == FIELD_COUNT:
            position = json_field_end(buffer, position, stop, name, scratch)
        elif members >> name & 1:
            return False
        else:
            members |= 1LL << name
            if name == EXT_FIELDS:
                first_name = first_name_of(scratch[NUMBERS + CODE], settings)
                name_count = FIELD_COUNT
                if first_name < 0 or buffer[position] != OPEN:
                    return False
                continue
            position = json_member_end(buffer, position, stop, name, scratch)
        if position < 0 or position >= stop:
            return False
        if buffer[position] == CLOSE and name_count == FIELD_COUNT:
            first_name = 0
            name_count = MEMBER_COUNT
            position += 1
            if position >= stop:
                return False
        if buffer[position] == CLOSE:
            return position + 1 == stop and members & NEEDED_MEMBERS == NEEDED_MEMBERS
        if buffer[position] != COMMA:
            return False


cdef inline bint read_binary(
    Bytes buffer,
    long long start,
    long long stop,
    Bytes names,
    Settings settings,
    long long *scratch,
) noexcept nogil:
    """Read a binary header without a remark; return False if it is not one of a send."""
    cdef long long position, first_name, name_length, value, field, value_length
    if stop - start < BINARY_HEAD:
        return False
    scratch[IS_ESCAPED] = 0
    scratch[NUMBERS + CODE] = load_i16(buffer, start)
    scratch[NUMBERS + OPAQUES] = load_i32(buffer, start + 5)
    scratch[NUMBERS + FLAGS] = load_i32(buffer, start + 9)
    first_name = first_name_of(scratch[NUMBERS + CODE], settings)
    position = start + BINARY_HEAD
    if first_name < 0 or load_i32(buffer, start + 13) != 0:
        return False
    if load_i32(buffer, start + 17) != stop - position or scratch[NUMBERS + OPAQUES] < 0:
        return False
    while position < stop:
        if position + 2 > stop:
            return False
        name_length = load_i16(buffer, position)
        value = position + 2 + name_length + LENGTH_BYTES
        if name_length < 0 or value > stop:
            return False
        field = name_at(names, first_name, FIELD_COUNT, buffer, position + 2, name_length)
        value_length = load_i32(buffer, value - LENGTH_BYTES)
        if field < 0 or scratch[2 * field + 1] >= 0 or value_length < 0:
            return False
        scratch[2 * field] = value
        scratch[2 * field + 1] = value_length
        position = value + value_length
        if position > stop:
            return False
    return True


cdef inline bint read_header(
    Bytes buffer,
    long long codec,
    long long position,
    long long stop,
    Bytes names,
    Settings settings,
    long long *scratch,
) noexcept nogil:
    """Read a header, JSON or binary, into ``scratch``; return False if it is not plain."""
    cdef long long field
    for field in range(FIELD_COUNT):
        scratch[2 * field + 1] = NONE
    if codec == 0:
        return read_json(buffer, position, stop, names, settings, scratch)
    return read_binary(buffer, position, stop, names, settings, scratch)
