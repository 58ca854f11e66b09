"""Primitives of the kernels: unaligned words, arrays of Python, texts as Java reads them.

None checks a position: prove first that the bytes are inside the buffer. A kernel opens its arrays
once, before it releases the interpreter's lock, and holds them until it ends::

    held: HeldArrays = HeldArrays()
    count: cython.longlong = 0
    memory: Bytes = read_bytes(held, buffer, cython.address(count))
    with cython.nogil:
        ...

An array of another type, order or number of dimensions is a ``TypeError`` or ``ValueError``.
"""

cimport cython

from rocketlens.formats.compiled.record_constants cimport (
    DECIMAL_ZEROS,
    NOT_AN_INTEGER,
    POWERS_OF_31,
    REPLACEMENT,
)

cdef extern from "device.h" nogil:
    ctypedef const unsigned char *Bytes
    long long load_i8(Bytes buffer, long long position)
    long long load_i16(Bytes buffer, long long position)
    long long load_i32(Bytes buffer, long long position)
    long long load_i64(Bytes buffer, long long position)
    unsigned long long load_word(Bytes buffer, long long position)
    void store_i16(unsigned char *buffer, long long position, long long value)
    void store_i32(unsigned char *buffer, long long position, long long value)
    void store_i64(unsigned char *buffer, long long position, long long value)
    void store_word(unsigned char *buffer, long long position, unsigned long long word)
    void copy_bytes(
        unsigned char *target, long long position, Bytes source, long long start, long long length
    )
    bint same_memory(Bytes one, long long at, Bytes other, long long there, long long length)
    void prefetch(Bytes buffer, long long position)
    long long lowest_bit(unsigned long long mask)
    unsigned long long byte_mask(Bytes buffer, long long position, int wanted)

cdef extern from "device.h":
    ctypedef struct Views:
        pass
    void release(Views *views)
    void *hold(
        Views *views, object array, const char *types, Py_ssize_t size, bint is_written, long long *count
    ) except NULL


@cython.final
cdef class HeldArrays:
    cdef Views views


cdef inline Bytes read_bytes(HeldArrays held, object array, long long *count) except NULL:
    return <Bytes>hold(&held.views, array, "B", 1, 0, count)


cdef inline unsigned char *write_bytes(HeldArrays held, object array, long long *count) except NULL:
    return <unsigned char *>hold(&held.views, array, "B", 1, 1, count)


cdef inline unsigned char *write_booleans(HeldArrays held, object array, long long *count) except NULL:
    return <unsigned char *>hold(&held.views, array, "?", 1, 1, count)


cdef inline const int *read_int32s(HeldArrays held, object array, long long *count) except NULL:
    return <const int *>hold(&held.views, array, "il", 4, 0, count)


cdef inline int *write_int32s(HeldArrays held, object array, long long *count) except NULL:
    return <int *>hold(&held.views, array, "il", 4, 1, count)


cdef inline const long long *read_int64s(HeldArrays held, object array, long long *count) except NULL:
    return <const long long *>hold(&held.views, array, "lq", 8, 0, count)


cdef inline long long *write_int64s(HeldArrays held, object array, long long *count) except NULL:
    return <long long *>hold(&held.views, array, "lq", 8, 1, count)


cdef inline const unsigned long long *read_uint64s(HeldArrays held, object array, long long *count) except NULL:
    return <const unsigned long long *>hold(&held.views, array, "LQ", 8, 0, count)


cdef inline const unsigned int *read_uint32s(HeldArrays held, object array, long long *count) except NULL:
    return <const unsigned int *>hold(&held.views, array, "IL", 4, 0, count)


cdef inline unsigned int *write_uint32s(HeldArrays held, object array, long long *count) except NULL:
    return <unsigned int *>hold(&held.views, array, "IL", 4, 1, count)


cdef inline const void *read_rows(HeldArrays held, object array, Py_ssize_t size, long long *count) except NULL:
    """Open rows of a struct, or their bytes: only size and alignment are checked."""
    return hold(&held.views, array, NULL, size, False, count)


cdef inline void *write_rows(HeldArrays held, object array, Py_ssize_t size, long long *count) except NULL:
    return hold(&held.views, array, NULL, size, True, count)


cdef inline int need(long long count, long long least) except -1:
    if count < least:
        raise ValueError(f"an array of {count} items is too short: {least} are needed")
    return 0


cdef inline unsigned long long mix(unsigned long long state, unsigned long long word) noexcept nogil:
    """Mix one word into a 64-bit hash."""
    # 2**64 over the golden ratio: an odd factor that spreads every input bit upwards.
    cdef unsigned long long mixed = (state ^ word) * 0x9E3779B97F4A7C15ULL
    return mixed ^ (mixed >> 32)


cdef inline unsigned long long last_bytes(Bytes buffer, long long stop, long long length) noexcept nogil:
    """Read the 1 to 7 bytes before ``stop``, the last as the highest of the word, zeros below.

    The seven bytes before them must be in the buffer too.
    """
    return load_word(buffer, stop - 8) & (0xFFFFFFFFFFFFFFFFULL << (64 - 8 * length))


cdef inline unsigned long long mix_bytes(Bytes buffer, long long start, long long stop) noexcept nogil:
    """Hash bytes to 64 bits, the same on every machine. ``stop`` must be at least 8."""
    cdef unsigned long long state = <unsigned long long>(stop - start)
    while start + 8 <= stop:
        state = mix(state, load_word(buffer, start))
        start += 8
    if start < stop:
        state = mix(state, last_bytes(buffer, stop, stop - start))
    return state


cdef inline bint is_ascii(Bytes buffer, long long start, long long stop) noexcept nogil:
    cdef unsigned long long seen = 0
    while start + 8 <= stop:
        seen |= load_word(buffer, start)
        start += 8
    while start < stop:
        seen |= buffer[start]
        start += 1
    return seen & 0x8080808080808080ULL == 0


cdef struct Step:
    long long code_point
    long long after


cdef inline Step step_of(long long code_point, long long after) noexcept nogil:
    cdef Step step
    step.code_point = code_point
    step.after = after
    return step


cdef inline Step utf8_step(Bytes buffer, long long position, long long stop) noexcept nogil:
    """As :func:`rocketlens.model.text.java.utf8_step`."""
    cdef long long first = buffer[position]
    cdef long long left = stop - position
    cdef long long second, code_point
    if first < 0x80:
        return step_of(first, position + 1)
    if first < 0xC2 or first > 0xF4 or left < 2:
        return step_of(REPLACEMENT, position + 1)
    second = buffer[position + 1]
    if second & 0xC0 != 0x80:
        return step_of(REPLACEMENT, position + 1)
    if first < 0xE0:
        return step_of((first & 0x1F) << 6 | second & 0x3F, position + 2)
    if (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90):
        return step_of(REPLACEMENT, position + 1)
    if first == 0xF4 and second > 0x8F:
        return step_of(REPLACEMENT, position + 1)
    if left < 3 or buffer[position + 2] & 0xC0 != 0x80:
        return step_of(REPLACEMENT, position + 2)
    code_point = (first & 0x0F) << 12 | (second & 0x3F) << 6 | buffer[position + 2] & 0x3F
    if first < 0xF0:
        return step_of(REPLACEMENT if code_point & 0xF800 == 0xD800 else code_point, position + 3)
    if left < 4 or buffer[position + 3] & 0xC0 != 0x80:
        return step_of(REPLACEMENT, position + 3)
    return step_of((code_point & 0x7FFF) << 6 | buffer[position + 3] & 0x3F, position + 4)


cdef inline bint is_utf8(Bytes buffer, long long start, long long stop) noexcept nogil:
    cdef Step step
    if is_ascii(buffer, start, stop):
        return True
    while start < stop:
        step = utf8_step(buffer, start, stop)
        # U+FFFD itself is well-formed, and has three bytes from 0xEF on.
        if step.code_point == REPLACEMENT and (step.after != start + 3 or buffer[start] != 0xEF):
            return False
        start = step.after
    return True


cdef inline long long utf8_string_hash(
    Bytes buffer, long long start, long long stop, long long seed
) noexcept nogil:
    """As :func:`rocketlens.model.text.java.utf8_string_hash`."""
    cdef unsigned int state = <unsigned int>seed
    cdef Step step
    while start < stop:
        step = utf8_step(buffer, start, stop)
        start = step.after
        if step.code_point > 0xFFFF:
            state = state * 31 + 0xD7C0 + <unsigned int>(step.code_point >> 10)
            step.code_point = 0xDC00 | step.code_point & 0x3FF
        state = state * 31 + <unsigned int>step.code_point
    return state


cdef inline unsigned long long fold_word(unsigned long long word) noexcept nogil:
    """Hash eight ASCII bytes as ``String.hashCode`` does, from state 0, modulo 2**64.

    Bytes, pairs and quadruples are joined side by side: three multiplications instead of eight
    that wait for each other.
    """
    cdef unsigned long long every_second_byte = 0x00FF00FF00FF00FFULL
    cdef unsigned long long every_second_pair = 0x0000FFFF0000FFFFULL
    cdef unsigned long long pairs = (word & every_second_byte) * 31 + (word >> 8 & every_second_byte)
    cdef unsigned long long fours = (pairs & every_second_pair) * 961 + (pairs >> 16 & every_second_pair)
    return (fours & 0xFFFFFFFFULL) * 923521 + (fours >> 32)


cdef inline long long hash_text(
    Bytes buffer, long long start, long long stop, long long seed
) noexcept nogil:
    """As :func:`rocketlens.model.text.java.utf8_string_hash`, faster for ASCII.

    ``stop`` must be at least 8.
    """
    cdef unsigned long long state = <unsigned long long>seed
    cdef unsigned long long seen = 0
    cdef unsigned long long word
    cdef long long position = start
    while position + 8 <= stop:
        word = load_word(buffer, position)
        seen |= word
        state = state * <unsigned long long>POWERS_OF_31[8] + fold_word(word)
        position += 8
    if position < stop:
        word = last_bytes(buffer, stop, stop - position)
        seen |= word
        state = state * <unsigned long long>POWERS_OF_31[stop - position] + fold_word(word)
    if seen & 0x8080808080808080ULL:
        return utf8_string_hash(buffer, start, stop, seed)
    return <long long>(state & 0xFFFFFFFFULL)


cdef inline long long index_hash(long long state) noexcept nogil:
    """Return the hash that an index file stores: the absolute value of 32 bits; 0 for -2**31."""
    if state < 0x80000000LL:
        return state
    return (0x100000000LL - state) & 0x7FFFFFFF


cdef inline long long utf8_parse_int(Bytes buffer, long long start, long long stop) noexcept nogil:
    """As :func:`rocketlens.model.text.java.utf8_parse_int`."""
    cdef bint is_negative = False
    cdef long long limit, digit, value = 0
    cdef int number
    cdef Step step
    if start < stop and (buffer[start] == 0x2B or buffer[start] == 0x2D):
        is_negative = buffer[start] == 0x2D
        start += 1
    if start >= stop:
        return NOT_AN_INTEGER
    limit = 0x80000000LL if is_negative else 0x7FFFFFFF
    while start < stop:
        step = utf8_step(buffer, start, stop)
        start = step.after
        digit = -1
        for number in range(sizeof(DECIMAL_ZEROS) // sizeof(long long)):
            if DECIMAL_ZEROS[number] <= step.code_point <= DECIMAL_ZEROS[number] + 9:
                digit = step.code_point - DECIMAL_ZEROS[number]
        value = value * 10 + digit
        if digit < 0 or value > limit:
            return NOT_AN_INTEGER
    return -value if is_negative else value
