"""The compiled reading of a send's header, JSON or binary: where its fields are.

Nothing here trusts its input, and what is not written as RocketMQ's clients write it is not plain:
it is left to :mod:`rocketlens.wire`, which is the definition. The spellings of the protocol come in
as ``names``: cells of `NAME_BYTES`, the first byte the length.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketlens.formats.compiled.kernels_device import (
    ByteArray,
    copy_bytes,
    device,
    load_i16,
    load_i32,
)
from rocketlens.limits import MAX_FRAME_BYTES, MAX_INT, MAX_REQUEST_HEADER_BYTES
from rocketlens.model.text import java

Numbers = NDArray[np.int64]

NAME_BYTES: Final = 32
# Members of a JSON header, the fields of a send (short and long), and properties, in `names`.
CODE, EXT_FIELDS, FLAGS, LANGUAGE, OPAQUES, REMARK, SERIALIZE_TYPE, VERSION, MEMBER_COUNT = range(9)
_MEMBERS: Final = (
    *("code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC"),
    "version",
)
FIELD_COUNT: Final = 16
F_TOPIC, F_QUEUE_ID, F_SYS_FLAG, F_BORN, F_FLAG, F_PROPERTIES, F_RECONSUMED = 1, 4, 5, 6, 7, 8, 9
F_BATCH, F_USER, F_SIGNATURE = 11, 14, 15
"""User and signature are those of access control, and the last fields."""

# Numbers that hold for a broker; the last ones are the fields of a short and of a long send in the
# order in which their values are signed.
MAX_HEADER, MAX_FRAME, MAX_BODY, SHORT_CODE, LONG_CODE, OWN_BYTES, SPECIAL_COUNT = range(7)
IS_SIGNED, IS_WAITED_FOR, SHORT_ORDER = 7, 8, 9
SIGNED_COUNT: Final = FIELD_COUNT - 1
LONG_ORDER: Final = SHORT_ORDER + SIGNED_COUNT
SETTING_COUNT: Final = LONG_ORDER + SIGNED_COUNT
SHORT_NAMES: Final = MEMBER_COUNT
LONG_NAMES: Final = SHORT_NAMES + FIELD_COUNT
SPECIAL_NAMES: Final = LONG_NAMES + FIELD_COUNT
"""UNIQ_KEY, TAGS, WAIT, and properties with which a message is not plain."""

# Scratch: start and length of each field, and the numbers of a header.
NUMBERS: Final = 2 * FIELD_COUNT
IS_ESCAPED: Final = NUMBERS + MEMBER_COUNT
HEADER_SCRATCH: Final = IS_ESCAPED + 1

NONE: Final = -1
NO_NUMBER: Final = -(2**63)
INLINED: Final = "c7e96cdc31555643"
"""Digest of the other files whose functions are compiled into those that take this one in."""

LENGTH_BYTES: Final = 4
SPACE, LAST_PRINTABLE, QUOTE, BACKSLASH = 0x20, 0x7E, 0x22, 0x5C
ZERO_DIGIT, NINE_DIGIT, LAST_ASCII = 0x30, 0x39, 0x7F
_LOWER_A, _LOWER_U = 0x61, 0x75
_SHORT_ESCAPES: Final = (QUOTE, BACKSLASH, 0x2F)
_NEEDED: Final = (
    1 << CODE | 1 << EXT_FIELDS | 1 << FLAGS | 1 << LANGUAGE | 1 << OPAQUES | 1 << VERSION
)
_COMMA, _COLON, _OPEN, _CLOSE, _MINUS = 0x2C, 0x3A, 0x7B, 0x7D, 0x2D
_BINARY_HEAD: Final = 21


def name_cells(names: Iterable[str | None]) -> ByteArray:
    """Return the cells of the members of a header, and of further names in ASCII, of which None is
    like no name.
    """
    cells = bytearray()
    for name in (*_MEMBERS, *names):
        text = b"\xff" * (NAME_BYTES - 1) if name is None else name.encode()
        cells += bytes([len(text)]) + text.ljust(NAME_BYTES - 1)
    return np.frombuffer(cells, np.uint8)


def settings_without_body(short_code: int, long_code: int) -> Numbers:
    """Return the settings for requests of two codes that have no body."""
    settings = np.zeros(SETTING_COUNT, np.int64)
    settings[: LONG_CODE + 1] = MAX_REQUEST_HEADER_BYTES, MAX_FRAME_BYTES, 0, short_code, long_code
    return settings


@device
def byte_at(buffer: ByteArray, position: int) -> int:
    """Return a byte as a signed number, as all numbers of kernels are."""
    return np.int64(buffer[position])  # type: ignore[return-value]


@device
def are_same(one: ByteArray, start: int, other: ByteArray, other_start: int, length: int) -> bool:
    """Return whether two slices of equal length are the same."""
    for index in range(length):  # noqa: SIM110 - numba compiles no generator
        if one[start + index] != other[other_start + index]:
            return False
    return True


@device
def name_at(
    names: ByteArray, first: int, count: int, buffer: ByteArray, start: int, length: int
) -> int:
    """Return which of ``count`` names from ``first`` on the slice is, or -1."""
    for number in range(count):
        cell = (first + number) * NAME_BYTES
        if names[cell] == length and are_same(names, cell + 1, buffer, start, length):
            return number
    return NONE


@device
def text_end(buffer: ByteArray, position: int, stop: int, with_any: bool) -> int:
    """Return the position of the quote that ends a JSON text, or -1.

    It is one of printable ASCII, unless it may have ``with_any`` characters and escapes.
    """
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


@device
def number_in(buffer: ByteArray, start: int, length: int, max_digits: int) -> int:
    """Return the decimal number of a slice, or `NO_NUMBER` if it is none of so many digits."""
    position = start
    stop = start + length
    if length > 0 and buffer[start] == _MINUS:
        position += 1
    if position >= stop or stop - position > max_digits:
        return NO_NUMBER
    number = 0
    for index in range(position, stop):
        digit = byte_at(buffer, index) - ZERO_DIGIT
        if digit < 0 or digit > 9:
            return NO_NUMBER
        number = number * 10 + digit
    return -number if position > start else number


@device
def write_number(out: ByteArray, at: int, number: int) -> int:
    """Write a number of 0 or above; return the position behind it."""
    digits = 1
    rest = number // 10
    while rest > 0:
        digits += 1
        rest //= 10
    for position in range(at + digits - 1, at - 1, -1):
        out[position] = ZERO_DIGIT + number % 10
        number //= 10
    return at + digits


@device
def json_number_end(buffer: ByteArray, position: int, stop: int, out: Numbers, at: int) -> int:
    """Read a JSON number of 0 .. MAX_INT; return the position behind it, or -1."""
    start = position
    number = 0
    while (
        position < stop and ZERO_DIGIT <= buffer[position] <= NINE_DIGIT and position - start <= 10
    ):
        number = number * 10 + byte_at(buffer, position) - ZERO_DIGIT
        position += 1
    if (
        position == start
        or number > MAX_INT
        or (buffer[start] == ZERO_DIGIT and position > start + 1)
    ):
        return NONE
    out[at] = number
    return position


@device
def hex_digit(byte: int) -> int:
    """Return the value of a hexadecimal digit, or a negative number."""
    if ZERO_DIGIT <= byte <= NINE_DIGIT:
        return byte - ZERO_DIGIT
    letter = byte | SPACE
    return letter - _LOWER_A + 10 if _LOWER_A <= letter < _LOWER_A + 6 else NONE


@device
def unescaped(buffer: ByteArray, position: int, stop: int) -> int:
    """Return the character of the JSON escape behind a backslash, or 0 if it is not plain."""
    kind = byte_at(buffer, position)
    if kind == _LOWER_U:
        if position + 4 >= stop:
            return 0
        value = 0
        for index in range(position + 1, position + 5):
            digit = hex_digit(byte_at(buffer, index))
            if digit < 0:
                return 0
            value = value << 4 | digit
        return value
    if kind in _SHORT_ESCAPES:
        return kind
    return 0


@device
def plain_text(
    buffer: ByteArray, start: int, length: int, is_escaped: bool, out: ByteArray, limit: int
) -> int:
    """Write the text of a slice; return its length, or -1 if it is too long, or not well-formed.

    Of other than ASCII characters an escape is not plain, and the one that Java puts for others.
    """
    if length > limit:
        return NONE
    stop = start + length
    position = start
    count = 0
    while position < stop:
        byte = byte_at(buffer, position)
        if byte > LAST_ASCII:
            code_point, after = java.utf8_step(buffer, position, stop)  # type: ignore[arg-type]
            if code_point == java.REPLACEMENT:
                return NONE
            copy_bytes(out, count, buffer, position, after - position)
            count += after - position
            position = after
            continue
        position += 1
        if is_escaped and byte == BACKSLASH:
            if position >= stop:
                return NONE
            byte = unescaped(buffer, position, stop)
            position += 5 if buffer[position] == _LOWER_U else 1
        if byte == 0 or byte > LAST_ASCII:
            return NONE
        out[count] = byte
        count += 1
    return count


@device
def first_name_of(code: int, settings: Numbers) -> int:
    """Return where the names of a code's fields begin, or -1 if it is no send."""
    if code == settings[SHORT_CODE]:
        return SHORT_NAMES
    return LONG_NAMES if code == settings[LONG_CODE] else NONE


@device
def json_field_end(
    buffer: ByteArray, position: int, stop: int, field: int, scratch: Numbers
) -> int:
    """Write down where the text of a field is; return the position behind it, or -1."""
    if scratch[2 * field + 1] >= 0 or buffer[position] != QUOTE:
        return NONE
    start = position + 1
    end = text_end(buffer, start, stop, field == F_PROPERTIES)
    scratch[2 * field] = start
    scratch[2 * field + 1] = end - start
    return end + 1 if end >= 0 else NONE


@device
def json_member_end(
    buffer: ByteArray, position: int, stop: int, member: int, scratch: Numbers
) -> int:
    """Read a member of a header that is no object; return the position behind it, or -1."""
    if member in (CODE, FLAGS, OPAQUES, VERSION):
        return json_number_end(buffer, position, stop, scratch, NUMBERS + member)
    if buffer[position] != QUOTE:
        return NONE
    end = text_end(buffer, position + 1, stop, False)
    return end + 1 if end >= 0 else NONE


@device
def read_json(
    buffer: ByteArray,
    start: int,
    stop: int,
    names: ByteArray,
    settings: Numbers,
    scratch: Numbers,
) -> bool:
    """Read a JSON header as RocketMQ's clients write it; return False if it is not one."""
    members = first_name = 0
    name_count = MEMBER_COUNT
    scratch[NUMBERS + CODE] = NONE
    scratch[IS_ESCAPED] = 1
    position = start
    if position >= stop or buffer[position] != _OPEN:
        return False
    while True:
        position += 1
        if position >= stop or buffer[position] != QUOTE:
            return False
        end = text_end(buffer, position + 1, stop, False)
        if end < 0 or end + 2 >= stop or buffer[end + 1] != _COLON:
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
            members |= 1 << name
            if name == EXT_FIELDS:
                first_name = first_name_of(scratch[NUMBERS + CODE], settings)
                name_count = FIELD_COUNT
                if first_name < 0 or buffer[position] != _OPEN:
                    return False
                continue
            position = json_member_end(buffer, position, stop, name, scratch)
        if position < 0 or position >= stop:
            return False
        if buffer[position] == _CLOSE and name_count == FIELD_COUNT:
            first_name = 0
            name_count = MEMBER_COUNT
            position += 1
            if position >= stop:
                return False
        if buffer[position] == _CLOSE:
            return position + 1 == stop and members & _NEEDED == _NEEDED
        if buffer[position] != _COMMA:
            return False


@device
def read_binary(
    buffer: ByteArray,
    start: int,
    stop: int,
    names: ByteArray,
    settings: Numbers,
    scratch: Numbers,
) -> bool:
    """Read a binary header without a remark; return False if it is not one of a send."""
    if stop - start < _BINARY_HEAD:
        return False
    scratch[IS_ESCAPED] = 0
    scratch[NUMBERS + CODE] = load_i16(buffer, start)
    scratch[NUMBERS + OPAQUES] = load_i32(buffer, start + 5)
    scratch[NUMBERS + FLAGS] = load_i32(buffer, start + 9)
    first_name = first_name_of(scratch[NUMBERS + CODE], settings)
    position = start + _BINARY_HEAD
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


@device
def read_header(
    buffer: ByteArray,
    codec: int,
    position: int,
    stop: int,
    names: ByteArray,
    settings: Numbers,
    scratch: Numbers,
) -> bool:
    """Read a header, JSON or binary, into ``scratch``; return False if it is not plain."""
    for field in range(FIELD_COUNT):
        scratch[2 * field + 1] = NONE
    if codec == 0:
        return read_json(buffer, position, stop, names, settings, scratch)
    return read_binary(buffer, position, stop, names, settings, scratch)
