"""Compiled search for values: the one at a path in each of many bodies of JSON, and numbers in
texts, as :mod:`rocketlens.archive.content_columns` looks at them.

What is read is what Python's ``json`` reads from the same text. A body that is out of the ordinary
is `UNSURE`, and left to the caller: JSON that is not well-formed, NaN and infinities, XML, nesting
and lengths near the bounds of :mod:`rocketlens.decode.text_formats`, a name with an escape beside a
step of the path.
"""

# ruff: noqa: PLR0917 - numba takes positional arguments only

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from rocketlens import limits
from rocketlens.formats.compiled.kernels_device import (
    BOOLEANS,
    BYTES,
    INT64S,
    ONE,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    ZERO,
    ByteArray,
    device,
    kernel,
    load_word,
    lowest_bit,
    raw,
)

INLINED: Final = "92349362b25a04a9"
"""Digest of the other files whose functions are compiled into this one; kept by a test, so that a
change there makes numba's cache of this file stale."""

ABSENT: Final = 0
"""There is no such value, or it is null."""
UNSURE: Final = 1
"""The caller has to look at the body."""
TEXT: Final = 2
"""A string without escapes; its slice includes the quotes."""
INTEGER: Final = 3
"""A whole number of up to 18 digits."""
REAL: Final = 4
"""A number with a point or an exponent, not 0, whose nearest double is known."""
OTHER: Final = 5
"""Any other value: the slice has its JSON."""

COMPILED_STEPS: Final = 16
"""Steps that a path has at most."""
_MAX_DEPTH: Final = 60
_MAX_DIGITS: Final = 18
_MAX_EXACT_DIGITS: Final = 15
_MAX_EXACT_POWER: Final = 22
_MAX_NUMBER_BYTES: Final = 1000
_MAX_BYTES: Final = limits.MAX_DECODED_VALUES
"""Shorter bodies have fewer values than that."""
FLOAT64S: Final = types.Array(types.float64, 1, "C")

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_OPEN_ARRAY: Final = ord("[")
_CLOSE_ARRAY: Final = ord("]")
_COMMA: Final = ord(",")
_COLON: Final = ord(":")
_MINUS: Final = ord("-")
_PLUS: Final = ord("+")
_DOT: Final = ord(".")
_ZERO_DIGIT: Final = ord("0")
_NINE: Final = ord("9")
_LOWER_E: Final = ord("e")
_UPPER_E: Final = ord("E")
_LESS: Final = ord("<")
_BYTE_ORDER_MARK: Final = 0xEF
_BLANKS: Final = np.array([chr(byte) in " \t\r\n" for byte in range(256)])
_ESCAPED: Final = np.array([chr(byte) in '"\\/bfnrt' for byte in range(256)])
_WORDS: Final = np.frombuffer(b"nulltruefalse", np.uint8)
_WORD_ENDS: Final = np.array([0, 4, 8, 13])
_POWERS: Final = np.array([10.0**power for power in range(_MAX_EXACT_POWER + 1)])

_EVERY_LOWEST_BIT: Final = np.uint64(0x0101010101010101)
_EVERY_HIGHEST_BIT: Final = np.uint64(0x8080808080808080)
_QUOTES: Final = np.uint64(int.from_bytes(b'"' * 8, "little"))
_BACKSLASHES: Final = np.uint64(int.from_bytes(b"\\" * 8, "little"))

# What may come next.
_VALUE: Final = 0
_FIRST_VALUE: Final = 1
"""Or the end of the array."""
_NAME: Final = 2
_FIRST_NAME: Final = 3
"""Or the end of the object."""
_NEXT: Final = 4
"""A comma, or the end."""


@device
def zero_bytes(word: np.uint64) -> np.uint64:
    """Return a word whose lowest bit that is set is the highest of the first byte that is 0."""
    return (word - _EVERY_LOWEST_BIT) & ~word & _EVERY_HIGHEST_BIT


@device
def behind_blanks(buffer: ByteArray, at: int, stop: int) -> int:
    """Return the position of the first byte that is not blank, or ``stop``."""
    while at < stop and _BLANKS[buffer[at]]:
        at += 1
    return at


@device
def behind_string(buffer: ByteArray, at: int, stop: int) -> tuple[int, bool]:
    """Return the position behind a string, -1 if it is wrong, and whether it has escapes."""
    at += 1
    has_escapes = False
    while True:
        while at + 8 <= stop:
            word = load_word(buffer, at)
            found = zero_bytes(word ^ _QUOTES) | zero_bytes(word ^ _BACKSLASHES)
            if found:
                at += lowest_bit(found) >> 3
                break
            at += 8
        while at < stop and buffer[at] != _QUOTE and buffer[at] != _BACKSLASH:
            at += 1
        if at >= stop:
            return -1, has_escapes
        if buffer[at] == _QUOTE:
            return at + 1, has_escapes
        if at + 1 >= stop or not _ESCAPED[buffer[at + 1]]:
            return -1, has_escapes
        has_escapes = True
        at += 2


@device
def behind_digits(buffer: ByteArray, at: int, stop: int) -> int:
    """Return the position behind digits."""
    while at < stop and buffer[at] >= _ZERO_DIGIT and buffer[at] <= _NINE:
        at += 1
    return at


@device
def behind_number(buffer: ByteArray, at: int, stop: int) -> int:
    """Return the position behind a number of JSON, -1 if none is there."""
    if at < stop and buffer[at] == _MINUS:
        at += 1
    start = at
    at = behind_digits(buffer, at, stop)
    if at == start or (at > start + 1 and buffer[start] == _ZERO_DIGIT):
        return -1
    if at < stop and buffer[at] == _DOT:
        start = at + 1
        at = behind_digits(buffer, start, stop)
        if at == start:
            return -1
    if at < stop and (buffer[at] == _LOWER_E or buffer[at] == _UPPER_E):
        at += 1
        if at < stop and (buffer[at] == _PLUS or buffer[at] == _MINUS):
            at += 1
        start = at
        at = behind_digits(buffer, start, stop)
        if at == start:
            return -1
    return at


@device
def number_of(buffer: ByteArray, start: int, stop: int) -> tuple[int, int, float]:
    """Return `INTEGER`, `REAL` or `OTHER` for a number of JSON, and its value as either.

    A product or quotient of a whole number and a power of ten, both of which a double has exactly,
    is the nearest double.
    """
    is_negative = buffer[start] == _MINUS
    at = start + 1 if is_negative else start
    value, digits, fraction, exponent = np.int64(0), 0, 0, 0
    is_real = False
    while at < stop and buffer[at] != _LOWER_E and buffer[at] != _UPPER_E:
        if buffer[at] == _DOT:
            is_real = True
        else:
            digits += 1
            if digits > _MAX_DIGITS:
                return OTHER, 0, 0.0
            value = value * 10 + np.int64(buffer[at]) - _ZERO_DIGIT
            if is_real:
                fraction += 1
        at += 1
    if at == stop and not is_real:
        return INTEGER, -value if is_negative else value, 0.0
    if at < stop:
        at += 1
        is_small = buffer[at] == _MINUS
        if buffer[at] == _PLUS or buffer[at] == _MINUS:
            at += 1
        while at < stop and exponent < _MAX_NUMBER_BYTES:
            exponent = exponent * 10 + np.int64(buffer[at]) - _ZERO_DIGIT
            at += 1
        exponent = -exponent if is_small else exponent
    exponent -= fraction
    if value == 0 or digits > _MAX_EXACT_DIGITS or abs(exponent) > _MAX_EXACT_POWER:
        return OTHER, 0, 0.0
    real = np.float64(-value if is_negative else value)
    return REAL, 0, real / _POWERS[-exponent] if exponent < 0 else real * _POWERS[exponent]


@device
def behind_word(buffer: ByteArray, at: int, stop: int) -> int:
    """Return the position behind null, true or false, -1 if none of them is there."""
    for number in range(3):
        start, length = _WORD_ENDS[number], _WORD_ENDS[number + 1] - _WORD_ENDS[number]
        if at + length <= stop and buffer[at] == _WORDS[start]:
            for index in range(1, length):
                if buffer[at + index] != _WORDS[start + index]:
                    return -1
            return at + length
    return -1


@device
def read_scalar(buffer: ByteArray, at: int, stop: int) -> tuple[int, int]:
    """Return the position behind a value that is no array or object, -1 if it is wrong, and its
    kind; a number is `OTHER` yet.
    """
    if buffer[at] == _QUOTE:
        end, has_escapes = behind_string(buffer, at, stop)
        return end, OTHER if has_escapes else TEXT
    if buffer[at] == _MINUS or (buffer[at] >= _ZERO_DIGIT and buffer[at] <= _NINE):
        end = behind_number(buffer, at, stop)
        return (-1 if end - at > _MAX_NUMBER_BYTES else end), OTHER
    return behind_word(buffer, at, stop), ABSENT if buffer[at] == _WORDS[0] else OTHER


@device
def is_name(
    buffer: ByteArray, start: int, stop: int, names: ByteArray, first: int, last: int
) -> bool:
    """Return whether a name, between its quotes, is that of a step."""
    if stop - start != last - first:
        return False
    for index in range(last - first):  # noqa: SIM110
        if buffer[start + index] != names[first + index]:
            return False
    return True


Path = tuple[ByteArray, NDArray[np.int32], NDArray[np.int64], int]
"""Names of the steps, where they begin and end, their indexes (-1: a name), and how many."""


@device
def read_name(buffer: ByteArray, at: int, stop: int, path: Path, step: int) -> tuple[int, bool]:
    """Return the position behind a name and its colon, -1 if it is wrong, and whether it is that of
    a step (-1: it is none). A name with escapes is wrong where it could be.
    """
    names, name_offsets, indexes, _ = path
    start = at + 1
    end = -1
    has_escapes = False
    if buffer[at] == _QUOTE:
        end, has_escapes = behind_string(buffer, at, stop)
    if end < 0 or (has_escapes and step >= 0):
        return -1, False
    is_step = step >= 0 and indexes[step] < 0
    if is_step:
        first, last = name_offsets[step], name_offsets[step + 1]
        is_step = is_name(buffer, start, end - 1, names, first, last)
    at = behind_blanks(buffer, end, stop)
    if at >= stop or buffer[at] != _COLON:
        return -1, False
    return at + 1, is_step


@device
def find_value(
    buffer: ByteArray, at: int, stop: int, path: Path, counts: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Return the kind of the value at a path, and its slice; of names that come twice the last
    counts.

    ``at`` is at the first bracket. Containers up to ``on_path`` levels deep are those that the path
    leads through, and of each array there ``counts`` has the elements before.
    """
    _, _, indexes, steps = path
    kind, first, last = ABSENT, 0, 0
    depth, on_path, recorded = 0, 0, 0
    is_step = True
    objects = ZERO
    state = _VALUE
    while at >= 0:
        at = behind_blanks(buffer, at, stop)
        if at >= stop:
            break
        byte = buffer[at]
        in_object = objects & ONE != ZERO
        if byte == (_CLOSE if in_object else _CLOSE_ARRAY) and state != _VALUE and state != _NAME:  # noqa: PLR1714
            at += 1
            depth -= 1
            on_path = min(on_path, depth)
            objects >>= ONE
            if depth == 0:
                is_end = behind_blanks(buffer, at, stop) == stop
                return (kind if is_end else UNSURE), first, last
            if depth == recorded:
                last = at
                recorded = 0
            state = _NEXT
        elif state == _NEXT:
            at = at + 1 if byte == _COMMA else -1
            state = _NAME if in_object else _VALUE
        elif state >= _NAME:
            step = depth - 1 if depth == on_path else -1
            at, is_step = read_name(buffer, at, stop, path, step)
            state = _VALUE
        else:
            if depth and not in_object:
                is_step = depth == on_path and counts[depth] == indexes[depth - 1]
                if depth == on_path:
                    counts[depth] += 1
            if is_step:
                kind = ABSENT
            is_value = is_step and depth == steps
            start = at
            if byte != _OPEN and byte != _OPEN_ARRAY:  # noqa: PLR1714
                at, own_kind = read_scalar(buffer, at, stop)
                if is_value:
                    kind, first, last = own_kind, start, at
                state = _NEXT
            elif depth < _MAX_DEPTH:
                at += 1
                depth += 1
                objects = objects << ONE | np.uint64(byte == _OPEN)
                if is_value:
                    kind, first, recorded = OTHER, start, depth - 1
                elif is_step:
                    on_path = depth
                    counts[depth] = 0
                state = _FIRST_NAME if byte == _OPEN else _FIRST_VALUE
            else:
                at = -1
            is_step = False
    return UNSURE, 0, 0


@kernel(
    types.void,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    BOOLEANS,
    READ_ONLY_BYTES,
    READ_ONLY_INT32S,
    READ_ONLY_INT64S,
    BYTES,
    INT64S,
    INT64S,
    INT64S,
    FLOAT64S,
)
def values_at(
    content: ByteArray,
    offsets: NDArray[np.int32],
    is_read: NDArray[np.bool_],
    names: ByteArray,
    name_offsets: NDArray[np.int32],
    indexes: NDArray[np.int64],
    kinds: ByteArray,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    integers: NDArray[np.int64],
    reals: NDArray[np.float64],
) -> None:
    r"""Write the kind of the value at a path in each body, its slice, and its number.

    ``offsets`` are those of an Arrow array, one more than bodies, which are UTF-8 without ``\u``;
    those that are not to be read are `UNSURE`. A step of the path is an index that is not negative,
    or a name where that is -1; there are 1 to `COMPILED_STEPS`.
    """
    counts = np.zeros(COMPILED_STEPS + 2, np.int64)
    memory = raw(content)
    path = (raw(names), raw(name_offsets), raw(indexes), np.int64(len(indexes)))
    for row in range(len(kinds)):
        kinds[row], starts[row], lengths[row] = UNSURE, 0, 0
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        is_inside = start >= 0 and start <= stop <= len(content)
        if not is_read[row] or not is_inside or stop - start > _MAX_BYTES:
            continue
        at = behind_blanks(memory, start, stop)
        if at == stop:
            kinds[row] = ABSENT
            continue
        byte = memory[at]
        if byte == _OPEN or byte == _OPEN_ARRAY:  # noqa: PLR1714, SIM109
            kind, first, last = find_value(memory, at, stop, path, raw(counts))
            if kind == OTHER and memory[first] >= _MINUS and memory[first] <= _NINE:
                kind, integers[row], reals[row] = number_of(memory, first, last)
            kinds[row], starts[row], lengths[row] = kind, first, last - first
        elif byte != _LESS and byte != _BYTE_ORDER_MARK:  # noqa: PLR1714
            kinds[row] = ABSENT


@kernel(types.void, READ_ONLY_BYTES, READ_ONLY_INT32S, BYTES, INT64S, FLOAT64S)
def numbers_of(
    content: ByteArray,
    offsets: NDArray[np.int32],
    kinds: ByteArray,
    integers: NDArray[np.int64],
    reals: NDArray[np.float64],
) -> None:
    """Write the kind of each text, `OTHER` if it is not a number as JSON has them, and its number.

    ``offsets`` are those of an Arrow array, one more than texts.
    """
    memory = raw(content)
    for row in range(len(kinds)):
        kinds[row] = OTHER
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        is_inside = start >= 0 and start < stop <= len(content)
        if is_inside and behind_number(memory, start, stop) == stop:
            kinds[row], integers[row], reals[row] = number_of(memory, start, stop)
