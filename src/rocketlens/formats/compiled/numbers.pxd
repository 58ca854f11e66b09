"""Parses numbers and texts of requests' fields as Java does."""

from rocketlens.formats.compiled.device cimport Bytes
from rocketlens.formats.compiled.headers cimport number_in
from rocketlens.formats.compiled.request_constants cimport (
    LAST_PRINTABLE,
    MINUS,
    NO_NUMBER,
    SPACE,
)


cdef inline bint is_printable(Bytes buffer, long long start, long long length) noexcept nogil:
    cdef long long position
    for position in range(start, start + length):
        if buffer[position] < SPACE or buffer[position] > LAST_PRINTABLE:
            return False
    return True


cdef inline long long long_in(Bytes buffer, long long start, long long length) noexcept nogil:
    """Return the 64-bit number of a slice, or `NO_NUMBER`."""
    cdef long long number = number_in(buffer, start, length, 19)
    # A number of 19 digits can overflow, which changes its sign.
    if number != NO_NUMBER and number != 0 and (number < 0) != (buffer[start] == MINUS):
        return NO_NUMBER
    return number
