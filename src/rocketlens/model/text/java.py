"""Java's text functions, bit for bit: UTF-8 decoding, ``String.hashCode``, ``Integer.parseInt``.

RocketMQ decodes stored bytes with ``new String(bytes, UTF_8)`` and hashes the UTF-16 units of the
result. To find a key in an index file, malformed bytes must be decoded as in the JDK, which
replaces each of the following by one U+FFFD:

* a byte that cannot start a character (0x80..0xC1, 0xF5..0xFF);
* the longest run that is the start of a character but not all of it (``E4 B8`` or ``F0 9F 98``
  without a continuation byte after it);
* a surrogate in three bytes (``ED A0 80``), for which Python's ``errors="replace"`` returns three.

An ASCII byte is never part of a replaced run, so text can be split at ASCII separators before or
after decoding. Verified against JDK 17 in ``tests/peer``.

The ``utf8_*`` functions accept any sequence of integers. ``formats/compiled/device.pxd`` has them
compiled; a test compares both. Source: ``java.lang.String.decodeUTF8_UTF16``,
``StringUTF16.hashCode``, ``Integer.parseInt``, ``IndexFile.indexKeyHashMethod``.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import mul
from typing import Final

REPLACEMENT: Final = 0xFFFD
NOT_AN_INTEGER: Final = -(2**63)
"""Result of :func:`utf8_parse_int` if Java throws; no Java ``int`` is as small."""

_PIECE: Final = 1 << 16
"""Bytes decoded at once, or characters if some bytes are malformed."""
_SIGN_BIT: Final = 0x80000000
_WORD_MASK: Final = 0xFFFFFFFF
_POWERS_OF_31: Final = tuple(pow(31, power, _WORD_MASK + 1) for power in range(512))
"""For texts up to this length, such as keys, the hash is computed as a sum of products."""
_INT_MAX: Final = 0x7FFFFFFF

# fmt: off
DECIMAL_ZEROS: Final = (
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80,
    0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
    0xFF10,
)
# fmt: on
"""Zero digits of the Basic Multilingual Plane, each followed by nine more digits. ``parseInt``
accepts all of them, but none from other planes, as it reads UTF-16 units."""


def utf8_step(buffer: Sequence[int], position: int, stop: int) -> tuple[int, int]:
    """Decode one character of the non-empty ``buffer[position:stop]``.

    Return its code point (U+FFFD for malformed bytes) and the position after it.
    """
    first = int(buffer[position])
    left = stop - position
    if first < 0x80:
        return first, position + 1
    if first < 0xC2 or first > 0xF4 or left < 2:
        return REPLACEMENT, position + 1
    second = int(buffer[position + 1])
    if second & 0xC0 != 0x80:
        return REPLACEMENT, position + 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | second & 0x3F, position + 2
    if (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90):
        return REPLACEMENT, position + 1
    if first == 0xF4 and second > 0x8F:
        return REPLACEMENT, position + 1
    if left < 3 or int(buffer[position + 2]) & 0xC0 != 0x80:
        return REPLACEMENT, position + 2
    code_point = (first & 0x0F) << 12 | (second & 0x3F) << 6 | int(buffer[position + 2]) & 0x3F
    if first < 0xF0:
        is_surrogate = code_point & 0xF800 == 0xD800
        return (REPLACEMENT if is_surrogate else code_point), position + 3
    if left < 4 or int(buffer[position + 3]) & 0xC0 != 0x80:
        return REPLACEMENT, position + 3
    return (code_point & 0x7FFF) << 6 | int(buffer[position + 3]) & 0x3F, position + 4


def utf8_string_hash(buffer: Sequence[int], start: int, stop: int, seed: int) -> int:
    """Continue a ``String.hashCode`` over the text of ``buffer[start:stop]``.

    ``seed`` is the result for the preceding text, 0 at the start. The result is unsigned, 32 bits.
    O(stop - start).
    """
    state = seed
    position = start
    while position < stop:
        code_point, position = utf8_step(buffer, position, stop)
        if code_point > 0xFFFF:
            state = (state * 31 + 0xD7C0 + (code_point >> 10)) & 0xFFFFFFFF
            code_point = 0xDC00 | code_point & 0x3FF
        state = (state * 31 + code_point) & 0xFFFFFFFF
    return state


def utf8_parse_int(buffer: Sequence[int], start: int, stop: int) -> int:
    """Parse ``buffer[start:stop]`` like ``Integer.parseInt(text)``.

    A sign is optional, digits of any script are valid, blanks are not. Return
    :data:`NOT_AN_INTEGER` if Java throws ``NumberFormatException``. O(stop - start).
    """
    position = start
    is_negative = False
    if position < stop and (int(buffer[position]) == 0x2B or int(buffer[position]) == 0x2D):
        is_negative = int(buffer[position]) == 0x2D
        position += 1
    if position >= stop:
        return NOT_AN_INTEGER
    limit = 0x80000000 if is_negative else 0x7FFFFFFF
    value = 0
    while position < stop:
        code_point, position = utf8_step(buffer, position, stop)
        digit = -1
        for zero in DECIMAL_ZEROS:
            if zero <= code_point <= zero + 9:
                digit = code_point - zero
        value = value * 10 + digit
        if digit < 0 or value > limit:
            return NOT_AN_INTEGER
    return -value if is_negative else value


def decode_utf8(encoded: bytes) -> str:
    """Decode like ``new String(encoded, UTF_8)``; never fails. O(n)."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return "".join(utf8_pieces(encoded))


def utf8_pieces(encoded: bytes) -> Iterator[str]:
    """Decode like `decode_utf8`, in pieces: a body can have 64 MiB."""
    position = 0
    while position < len(encoded):
        part = encoded[position : position + _PIECE]
        try:
            piece = part.decode()
        except UnicodeDecodeError as error:
            yield part[: error.start].decode()
            position += error.start
            # Malformed bytes are often followed by more.
            characters: list[str] = []
            while position < len(encoded) and len(characters) < _PIECE:
                code_point, position = utf8_step(encoded, position, len(encoded))
                characters.append(chr(code_point))
            yield "".join(characters)
        else:
            yield piece
            position += len(part)


def string_hash(text: str) -> int:
    """Java's ``text.hashCode()``: signed 32 bits, over UTF-16 units. O(n).

    Each lone surrogate, which Python creates for undecodable arguments, is one unit.
    """
    if len(text) <= len(_POWERS_OF_31) and text.isascii():
        # Half to two thirds of the cost of the loop below; look-ups hash their keys.
        products: Iterator[int] = map(mul, text.encode()[::-1], _POWERS_OF_31)
        state = sum(products) & _WORD_MASK
        return state - 2 * _SIGN_BIT if state & _SIGN_BIT else state
    encoded = text.encode("utf-16-be", "surrogatepass")
    state = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        state = (state * 31 + unit) & _WORD_MASK
    return state - 2 * _SIGN_BIT if state & _SIGN_BIT else state


def index_hash(text: str) -> int:
    """The key hash that an index file stores for ``text`` (``topic#key``): 0 .. 2**31 - 1. O(n)."""
    value = abs(string_hash(text))
    return value if value <= _INT_MAX else 0


def key_hashes(topics: Iterable[str], key: str) -> set[int]:
    """Return :func:`index_hash` of ``topic#key`` for each topic. O(topics + key)."""
    units = len(key) if key.isascii() else len(key.encode("utf-16-be", "surrogatepass")) // 2
    power, of_key = pow(31, units, _WORD_MASK + 1), string_hash(key)
    # The hash of a concatenation follows from the hashes of its parts.
    values = [_hash_before_key(topic) * power + of_key & _WORD_MASK for topic in topics]
    return {(-value if value & _SIGN_BIT else value) & _INT_MAX for value in values}


@lru_cache(maxsize=4096)
def _hash_before_key(topic: str) -> int:
    return string_hash(f"{topic}#")


def concurrent_map_order(names: Iterable[str]) -> list[str]:
    """Return distinct names in the iteration order of Java's ``ConcurrentHashMap``.

    ``java.util.Properties`` has the same order since Java 9. The order of ``names``, in which they
    were inserted, matters: when the table grows, parts of its buckets are reversed. O(n).
    Source: ``java.util.concurrent.ConcurrentHashMap.transfer`` of JDK 17.
    """
    table: list[list[tuple[int, str]]] = [[] for _ in range(16)]
    for count, name in enumerate(names, 1):
        code = string_hash(name) & 0xFFFFFFFF
        spread = (code ^ code >> 16) & 0x7FFFFFFF
        table[spread & (len(table) - 1)].append((spread, name))
        while count >= len(table) - (len(table) >> 2):
            table = _grow(table)
    return [name for bucket in table for _, name in bucket]


def _grow(table: list[list[tuple[int, str]]]) -> list[list[tuple[int, str]]]:
    """Return a table of twice the size: one bit of the hash splits each bucket.

    The last run of entries with the same bit keeps its order; each entry before it is prepended.
    """
    size = len(table)
    lower: list[list[tuple[int, str]]] = []
    upper: list[list[tuple[int, str]]] = []
    for bucket in table:
        last_run = len(bucket)
        while last_run and (not (bucket[last_run - 1][0] ^ bucket[-1][0]) & size):
            last_run -= 1
        sides: tuple[list[tuple[int, str]], list[tuple[int, str]]] = ([], [])
        if bucket:
            sides[bool(bucket[-1][0] & size)].extend(bucket[last_run:])
        for each in bucket[:last_run]:
            sides[bool(each[0] & size)].insert(0, each)
        lower.append(sides[0])
        upper.append(sides[1])
    return lower + upper
