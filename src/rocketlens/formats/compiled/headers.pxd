"""Reads a request's header, JSON or binary, to the positions of its fields; and any JSON.

Input is not trusted. JSON is read as the libraries of any language write it; a header that is not
plain (a nested value, an escape in a name, a fraction) is left to :mod:`rocketlens.wire`, the
definition.
"""

from rocketlens.formats.compiled.device cimport (
    Bytes,
    Step,
    load_i16,
    load_i32,
    same_memory,
    step_of,
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
    """Return codec, end of the header and end of a frame; a negative codec if it is not one."""
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
    """Return the number of the name, among ``count`` from ``first`` on, in a slice; or -1."""
    cdef long long number, cell
    for number in range(count):
        cell = (first + number) * NAME_BYTES
        # Most names have one letter.
        if (
            names[cell] == length
            and names[cell + 1] == buffer[start]
            and same_memory(names, cell + 2, buffer, start + 1, length - 1)
        ):
            return number
    return NONE


cdef inline long long after_blanks(Bytes buffer, long long position, long long stop) noexcept nogil:
    while position < stop and buffer[position] <= SPACE and BLANKS >> buffer[position] & 1:
        position += 1
    return position


cdef inline long long hex_digit(long long byte) noexcept nogil:
    """Return the value of a hexadecimal digit, or a negative number."""
    cdef long long letter = byte | SPACE
    if ZERO_DIGIT <= byte <= NINE_DIGIT:
        return byte - ZERO_DIGIT
    return letter - LOWER_A + 10 if LOWER_A <= letter < LOWER_A + 6 else NONE


cdef inline long long utf16_unit(Bytes buffer, long long position, long long stop) noexcept nogil:
    """Return the number in ``u`` and four hexadecimal digits, or -1."""
    cdef long long value = 0
    cdef long long index, digit
    if position + 4 >= stop or buffer[position] != LOWER_U:
        return NONE
    for index in range(position + 1, position + 5):
        digit = hex_digit(buffer[index])
        if digit < 0:
            return NONE
        value = value << 4 | digit
    return value


cdef inline Step unescape(Bytes buffer, long long position, long long stop) noexcept nogil:
    """Return the character of the JSON escape after a backslash; -1 if it is invalid."""
    cdef unsigned char kind = buffer[position] if position < stop else 0
    cdef long long value, low
    if kind == LOWER_U:
        value = utf16_unit(buffer, position, stop)
        if value & 0xF800 != 0xD800:
            return step_of(value, position + 5)
        # A lone surrogate is no character.
        low = NONE
        if position + 5 < stop and buffer[position + 5] == BACKSLASH:
            low = utf16_unit(buffer, position + 6, stop)
        if value & 0xFC00 != 0xD800 or low & 0xFC00 != 0xDC00:
            return step_of(NONE, position)
        return step_of(0x10000 + ((value & 0x3FF) << 10) + (low & 0x3FF), position + 11)
    if kind == QUOTE or kind == BACKSLASH or kind == SLASH:
        return step_of(kind, position + 1)
    for value in range(ESCAPE_COUNT):
        if kind == ESCAPES[value]:
            return step_of(ESCAPED[value], position + 1)
    return step_of(NONE, position)


cdef inline long long text_end(
    Bytes buffer, long long position, long long stop, bint with_any
) noexcept nogil:
    """Return the position of the quote that ends a JSON text, or -1.

    Without ``with_any``, the text must be printable ASCII without escapes.
    """
    cdef unsigned char byte
    cdef Step step
    while position < stop:
        byte = buffer[position]
        if byte == QUOTE:
            return position
        if byte < SPACE or (not with_any and (byte > LAST_PRINTABLE or byte == BACKSLASH)):
            return NONE
        position += 1
        if byte == BACKSLASH:
            step = unescape(buffer, position, stop)
            if step.code_point < 0:
                return NONE
            position = step.after
    return NONE


cdef inline long long number_in(
    Bytes buffer, long long start, long long length, long long max_digits
) noexcept nogil:
    """Return the decimal number of a slice, or `NO_NUMBER` if it is invalid or too long."""
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
    """Write a number of 0 or above; return the position after it."""
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
    """Write 16 hexadecimal digits; return the position after them."""
    cdef long long index, digit
    for index in range(16):
        digit = number >> 4 * (15 - index) & 0xF
        out[at + index] = <unsigned char>(digit + (ZERO_DIGIT if digit < 10 else 0x37))
    return at + 16


cdef inline long long json_number_end(
    Bytes buffer, long long position, long long stop, long long *out
) noexcept nogil:
    """Read a JSON number of 0 .. MAX_INT; return the position after it, or -1."""
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


cdef inline long long write_utf8(unsigned char *out, long long at, long long value) noexcept nogil:
    """Write a character beyond ASCII; return the position after it."""
    cdef long long rest = 1 if value < 0x800 else 2 if value < 0x10000 else 3
    out[at] = <unsigned char>((0xFF00 >> rest + 1 & 0xFF) | value >> 6 * rest)
    while rest > 0:
        at += 1
        rest -= 1
        out[at] = <unsigned char>(0x80 | value >> 6 * rest & 0x3F)
    return at + 1


cdef inline long long plain_text(
    Bytes buffer,
    long long start,
    long long length,
    bint is_escaped,
    unsigned char *out,
    long long limit,
) noexcept nogil:
    """Write the text of a slice; return its length, or -1 if it is too long, or not well-formed.

    U+FFFD, with which Java replaces malformed bytes, and U+0000 are not plain.
    """
    cdef long long stop = start + length
    cdef long long position = start
    cdef long long count = 0
    cdef unsigned char byte
    cdef Step step
    if length > limit:
        return NONE
    while position < stop:
        byte = buffer[position]
        step = step_of(byte, position + 1)
        if byte == BACKSLASH and is_escaped:
            step = unescape(buffer, position + 1, stop)
        elif byte > LAST_ASCII:
            step = utf8_step(buffer, position, stop)
            if step.code_point == REPLACEMENT:
                return NONE
        if step.code_point <= 0:
            return NONE
        if step.code_point > LAST_ASCII:
            # The escape is at least as long as the character.
            count = write_utf8(out, count, step.code_point)
        else:
            out[count] = <unsigned char>step.code_point
            count += 1
        position = step.after
    return count


cdef inline long long first_name_of(long long code, Settings settings) noexcept nogil:
    """Return the first of a code's field names, or -1 if it is not a send."""
    if code == settings[SHORT_CODE]:
        return SHORT_NAMES
    return LONG_NAMES if code == settings[LONG_CODE] else NONE


cdef inline long long digits_end(Bytes buffer, long long position, long long stop) noexcept nogil:
    while position < stop and ZERO_DIGIT <= buffer[position] <= NINE_DIGIT:
        position += 1
    return position


cdef inline long long word_end(Bytes buffer, long long position, long long stop) noexcept nogil:
    """Return the position after a number, true, false or null, or -1.

    Only an integer that Python and Java write alike is plain.
    """
    cdef long long start = position
    cdef long long word
    if position + 4 <= stop:
        word = load_i32(buffer, position)
        if word == TRUE or word == NULL_WORD:
            return position + 4
        if word == FALSE_WORD and position + 4 < stop and buffer[position + 4] == LOWER_E:
            return position + 5
    start = position + (position < stop and buffer[position] == MINUS)
    position = digits_end(buffer, start, stop)
    if position == start or position - start > MAX_PLAIN_DIGITS:
        return NONE
    if buffer[start] == ZERO_DIGIT and (position > start + 1 or buffer[start - 1] == MINUS):
        return NONE
    return position


cdef inline long long scalar_end(Bytes buffer, long long position, long long stop) noexcept nogil:
    """Return the position after an ignored value, or -1 if it is not plain."""
    cdef long long end
    if buffer[position] != QUOTE:
        return word_end(buffer, position, stop)
    end = text_end(buffer, position + 1, stop, True)
    return end + 1 if end >= 0 else NONE


cdef inline long long number_end(Bytes buffer, long long start, long long stop) noexcept nogil:
    """Return the position after a JSON number, or -1; `NOT_KNOWN` if a float may not hold it."""
    cdef long long digits = start + (buffer[start] == MINUS)
    cdef long long end = digits_end(buffer, digits, stop)
    cdef long long exponent_digits = 0
    if end == digits or (buffer[digits] == ZERO_DIGIT and end > digits + 1):
        return NONE
    if end < stop and buffer[end] == POINT:
        digits = end + 1
        end = digits_end(buffer, digits, stop)
        if end == digits:
            return NONE
    if end < stop and buffer[end] | SPACE == LOWER_E:
        digits = end + 1
        digits += digits < stop and (buffer[digits] == PLUS or buffer[digits] == MINUS)
        end = digits_end(buffer, digits, stop)
        exponent_digits = end - digits
        if end == digits:
            return NONE
    # Below 10**299, a third of the largest float.
    return end if exponent_digits <= 2 and end - start <= 200 else NOT_KNOWN


cdef inline long long json_end(
    Bytes buffer, long long position, long long stop, int depth
) noexcept nogil:
    """Return the position after a JSON value in UTF-8 and blanks around it, or -1.

    `NOT_KNOWN` if the definition must decide: for large numbers and deep nesting.
    """
    cdef unsigned char first
    cdef bint is_open
    position = after_blanks(buffer, position, stop)
    if position == stop:
        return NONE
    first = buffer[position]
    if first == MINUS or ZERO_DIGIT <= first <= NINE_DIGIT:
        position = number_end(buffer, position, stop)
    elif first != OPEN and first != OPEN_LIST:
        position = scalar_end(buffer, position, stop)
    elif depth == MAX_JSON_DEPTH:
        return NOT_KNOWN
    else:
        position = after_blanks(buffer, position + 1, stop)
        # The closing bracket is the opening one plus 2 in ASCII.
        is_open = position == stop or buffer[position] != first + 2
        while is_open:
            if first == OPEN:
                position = after_blanks(buffer, position, stop)
                if position == stop or buffer[position] != QUOTE:
                    return NONE
                position = json_end(buffer, position, stop, depth)
                if position < 0 or position == stop or buffer[position] != COLON:
                    return NONE
                position += 1
            position = json_end(buffer, position, stop, depth + 1)
            if position < 0:
                return position
            if position == stop or (buffer[position] != COMMA and buffer[position] != first + 2):
                return NONE
            is_open = buffer[position] == COMMA
            position += is_open
        position += 1
    return after_blanks(buffer, position, stop) if position >= 0 else position


cdef inline bint is_new(
    Bytes buffer, long long start, long long length, long long first, long long *scratch
) noexcept nogil:
    """Add an unknown name to those from ``first`` on; return False if it is a duplicate, or there
    are too many.
    """
    cdef long long *others = &scratch[OTHER_NAMES]
    cdef long long number
    for number in range(first, scratch[OTHER_COUNT]):
        if others[2 * number + 1] == length and same_memory(
            buffer, others[2 * number], buffer, start, length
        ):
            return False
    number = scratch[OTHER_COUNT]
    if number == MAX_OTHER_NAMES:
        return False
    others[2 * number] = start
    others[2 * number + 1] = length
    scratch[OTHER_COUNT] += 1
    return True


cdef inline long long json_field_end(
    Bytes buffer,
    long long position,
    long long stop,
    long long field,
    long long any_texts,
    long long *scratch,
) noexcept nogil:
    """Store the position of a field's text; return the position after it, or -1."""
    cdef long long end
    if scratch[2 * field + 1] != NONE:
        return NONE
    scratch[2 * field] = position
    if buffer[position] != QUOTE:
        end = word_end(buffer, position, stop)
        scratch[2 * field + 1] = end - position
        if buffer[position] == LOWER_N:
            scratch[2 * field + 1] = IS_NULL
        return end
    end = text_end(buffer, position + 1, stop, field == F_PROPERTIES or any_texts >> field & 1)
    scratch[2 * field] = position + 1
    scratch[2 * field + 1] = end - position - 1
    return end + 1 if end >= 0 else NONE


cdef inline long long json_member_end(
    Bytes buffer, long long position, long long stop, long long member, long long *scratch
) noexcept nogil:
    """Read a scalar member of a header; return the position after it, or -1."""
    cdef long long end
    if member != CODE and member != FLAGS and member != OPAQUES and member != VERSION:
        return scalar_end(buffer, position, stop)
    if buffer[position] == QUOTE:
        end = json_number_end(buffer, position + 1, stop, &scratch[NUMBERS + member])
        return end + 1 if end >= 0 and end < stop and buffer[end] == QUOTE else NONE
    if buffer[position] == LOWER_N:
        scratch[NUMBERS + member] = 0
        return word_end(buffer, position, stop)
    return json_number_end(buffer, position, stop, &scratch[NUMBERS + member])


cdef inline long long object_end(Bytes buffer, long long position, long long stop) noexcept nogil:
    """Return the position after an object without nested objects, or -1."""
    while position >= 0 and position < stop:
        if buffer[position] == CLOSE:
            return position + 1
        if buffer[position] == QUOTE:
            position = text_end(buffer, position + 1, stop, True)
            if position < 0:
                return NONE
        position += 1
    return NONE


cdef inline long long members_end(
    Bytes buffer,
    long long position,
    long long stop,
    long long first_name,
    Bytes names,
    Settings settings,
    long long *scratch,
) noexcept nogil:
    """Read the members of a header, or with ``first_name`` its fields; return the position after the
    object, or -1 if it is not plain.
    """
    cdef bint are_fields = first_name != 0
    cdef long long name_count = FIELD_COUNT if are_fields else MEMBER_COUNT
    cdef bint may_have_others = not are_fields or settings[ANY_TEXTS] & OTHER_FIELDS
    cdef long long first_other = scratch[OTHER_COUNT]
    cdef long long members = 0
    cdef long long end, name, length
    if position >= stop or buffer[position] != OPEN:
        return NONE
    while True:
        position = after_blanks(buffer, position + 1, stop)
        if position >= stop or buffer[position] != QUOTE:
            return NONE
        position += 1
        end = text_end(buffer, position, stop, False)
        if end < 0:
            return NONE
        length = end - position
        name = name_at(names, first_name, name_count, buffer, position, length)
        if name < 0 and not (
            may_have_others and is_new(buffer, position, length, first_other, scratch)
        ):
            return NONE
        position = after_blanks(buffer, end + 1, stop)
        if position >= stop or buffer[position] != COLON:
            return NONE
        position = after_blanks(buffer, position + 1, stop)
        if position >= stop:
            return NONE
        if name < 0:
            position = scalar_end(buffer, position, stop)
        elif are_fields:
            position = json_field_end(buffer, position, stop, name, settings[ANY_TEXTS], scratch)
        elif members >> name & 1:
            return NONE
        else:
            members |= 1LL << name
            if name == EXT_FIELDS:
                scratch[FIELDS_START] = position
                if scratch[NUMBERS + CODE] == NONE:
                    # Their names depend on the code: they are read once it is known.
                    position = object_end(buffer, position, stop)
                else:
                    position = fields_end(buffer, stop, names, settings, scratch)
                    scratch[FIELDS_START] = 0
            else:
                position = json_member_end(buffer, position, stop, name, scratch)
        if position < 0:
            return NONE
        position = after_blanks(buffer, position, stop)
        if position >= stop:
            return NONE
        if buffer[position] == CLOSE:
            scratch[OTHER_COUNT] = first_other
            return position + 1
        if buffer[position] != COMMA:
            return NONE


cdef inline long long fields_end(
    Bytes buffer, long long stop, Bytes names, Settings settings, long long *scratch
) noexcept nogil:
    """Read the fields of a header whose code is known; return the position after them, or -1."""
    cdef long long first_name = first_name_of(scratch[NUMBERS + CODE], settings)
    if first_name < 0:
        return NONE
    return members_end(buffer, scratch[FIELDS_START], stop, first_name, names, settings, scratch)


cdef inline bint read_json(
    Bytes buffer,
    long long start,
    long long stop,
    Bytes names,
    Settings settings,
    long long *scratch,
) noexcept nogil:
    """Read a JSON header as clients in any language write it; return False if it is not one.

    As in :mod:`rocketlens.wire.header_json`, integers can be texts and vice versa, members can be
    null or missing, and unknown ones are allowed.
    """
    cdef long long end
    scratch[IS_ESCAPED] = 1
    scratch[OTHER_COUNT] = 0
    scratch[FIELDS_START] = NONE
    scratch[NUMBERS + CODE] = NONE
    scratch[NUMBERS + FLAGS] = scratch[NUMBERS + OPAQUES] = scratch[NUMBERS + VERSION] = 0
    end = members_end(
        buffer, after_blanks(buffer, start, stop), stop, 0, names, settings, scratch
    )
    if end < 0 or after_blanks(buffer, end, stop) != stop or scratch[FIELDS_START] < 0:
        return False
    return scratch[FIELDS_START] == 0 or fields_end(buffer, stop, names, settings, scratch) > 0


cdef inline bint read_binary(
    Bytes buffer,
    long long start,
    long long stop,
    Bytes names,
    Settings settings,
    long long *scratch,
) noexcept nogil:
    """Read a binary header without a remark; return False if it is not that of a send."""
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
