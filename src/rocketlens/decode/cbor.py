"""Reads CBOR (RFC 8949).

==========  ===================================================================================
first byte  value; its low five bits are a length or number, or the size of one that follows
==========  ===================================================================================
00, 20      an unsigned integer, a negative one
40, 60      bytes, text; of an unknown length in chunks, up to ff
80, a0      an array, a map; of an unknown length up to ff
c0          a tag: a value with another meaning follows
e0          f4 to f7 false, true, null, undefined; f9 to fb a float; else a simple value
==========  ===================================================================================

Tags become times (0, 1), dates (100, 1004), numbers (2 to 4) and UUIDs (37). A value with another
tag becomes ``{"@tag": number, "value": ...}``.

No library is used, because libraries build all values before they can be counted, and compile
patterns and reduce fractions if tags ask for it.
"""

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final

from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.tree import Tree, exact_decimal

MAGIC: Final = b"\xd9\xd9\xf7"
TAG: Final = "@tag"

_BREAK: Final = 0xFF
_SIMPLE: Final[Mapping[int, Tree]] = {20: False, 21: True, 22: None, 23: None}
_FLOATS: Final = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_MAX_EXPONENT: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_cbor(body: bytes, work: DecodingWork | None = None) -> Tree:
    reader = _Cbor(body, work)
    return reader.to_end(reader.value())


def may_be_cbor(body: bytes) -> bool:
    """Return True if the first byte is that of a map or an array."""
    return bool(body) and (
        0x80 <= body[0] <= 0x9B or 0xA0 <= body[0] <= 0xBB or body[0] in b"\x9f\xbf"
    )


class _Cbor(ByteReader):
    def value(self) -> Tree:
        self.count()
        first = self.byte()
        kind, low = first >> 5, first & 31
        if kind == 7:
            return self._simple(low)
        number = self._number(low)
        if kind in (2, 3):
            return self._string(kind, number)
        with self.level():
            if kind == 4:
                return [self.value() for _ in self._items(number)]
            if kind == 5:
                return {self.name(self.value()): self.value() for _ in self._items(number)}
            if number is None:
                raise self.error(f"no value begins with {first:#04x}")
            if kind == 6:
                return self._tagged(number)
        return number if kind == 0 else -1 - number

    def _number(self, low: int) -> int | None:
        """Return the number in or after a first byte; None for an unknown length."""
        if low < 24:
            return low
        if low < 28:
            return self.unsigned(1 << low - 24)
        if low < 31:
            raise self.error(f"a number of the unknown size {low}")
        return None

    def _items(self, count: int | None) -> Iterator[None]:
        if count is not None:
            for _ in range(count):
                yield
            return
        while self.peek() != _BREAK:
            yield
        self.position += 1

    def _string(self, kind: int, length: int | None) -> Tree:
        if length is not None:
            return self.take(length) if kind == 2 else self.text(length)
        chunks = []
        for _ in self._items(None):
            self.count()
            first = self.byte()
            chunk_length = self._number(first & 31)
            if first >> 5 != kind or chunk_length is None:
                raise self.error(f"a string continues with {first:#04x}")
            chunks.append(self._string(kind, chunk_length))
        return b"".join(chunks) if kind == 2 else "".join(chunks)

    def _simple(self, low: int) -> Tree:
        if low in _FLOATS:
            return self.unpack(_FLOATS[low])
        if low > 24:
            raise self.error(f"no value begins with {0xE0 + low:#04x}")
        number = self.byte() if low == 24 else low
        return _SIMPLE.get(number, {"@simple": number})

    def _tagged(self, tag: int) -> Tree:
        value = self.value()
        make = _TAGS.get(tag)
        if make is not None:
            try:
                return make(value)
            except (ArithmeticError, AttributeError, TypeError, ValueError):
                pass
        self.count(2)
        return {TAG: tag, "value": value}


def _integer(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _decimal(value: list[Tree]) -> Tree:
    exponent, digits = value
    if abs(exponent) > _MAX_EXPONENT:
        raise ValueError(exponent)
    return exact_decimal(digits, -exponent)


_TAGS: Final[Mapping[int, Callable[[Tree], Tree]]] = {
    0: datetime.fromisoformat,
    1: lambda value: _EPOCH + timedelta(seconds=value),
    2: _integer,
    3: lambda value: -1 - _integer(value),
    4: _decimal,
    37: lambda value: str(uuid.UUID(bytes=value)),
    100: lambda value: date(1970, 1, 1) + timedelta(days=value),
    1004: date.fromisoformat,
    55799: lambda value: value,
}
