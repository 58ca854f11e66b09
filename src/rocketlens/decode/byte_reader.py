"""Reads a body byte by byte, with bounds on the values built from it.

A few bytes can describe millions of values, or thousands of levels. So every format counts each
value and each level.
"""

import struct
from typing import Self

from rocketlens import limits
from rocketlens.decode.tree import Tree, name_text
from rocketlens.errors import BodyError, BodyTooLarge

_BYTES_A_VALUE = 256
"""This many bytes cost as much time as a value if they are examined one by one."""


class DecodingWork:
    """The remaining work for one body, in values, for all formats that are tried on it."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = limits.MAX_BINARY_VALUES

    def spend(self, values: int) -> None:
        """Count values that are about to be built; raise BodyTooLarge above the maximum."""
        self.values -= values
        if self.values < 0:
            raise BodyTooLarge(f"it has more than {limits.MAX_BINARY_VALUES} values")


class ByteReader:
    """A position in a body. All numbers are big-endian unless their name says ``little``."""

    def __init__(self, body: bytes, work: DecodingWork | None = None) -> None:
        self.body = body
        self.position = 0
        self.work = work or DecodingWork()
        self._levels_left = limits.MAX_DECODED_LEVELS

    @property
    def remaining(self) -> int:
        return len(self.body) - self.position

    def peek(self) -> int:
        """Return the next byte without reading it."""
        if self.position >= len(self.body):
            raise self.error("it ends too early")
        return self.body[self.position]

    def byte(self) -> int:
        value = self.peek()
        self.position += 1
        return value

    def take(self, count: int) -> bytes:
        start = self.position
        if not 0 <= count <= len(self.body) - start:
            raise self.error(
                f"it ends too early: {count} bytes are named, {self.remaining} are left"
            )
        self.position += count
        return self.body[start : self.position]

    def unpack(self, layout: struct.Struct) -> Tree:
        """Read a number by a layout that has one field."""
        return layout.unpack(self.take(layout.size))[0]

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        """Read an unsigned integer of up to 64 bits, 7 bits a byte, the lowest first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 64:
                    raise self.error("a number has more than 64 bits")
                return value
        raise self.error("a number has more than 10 bytes")

    def zigzag(self) -> int:
        """Read a varint whose lowest bit is the sign."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def text(self, length: int) -> str:
        """Read UTF-8 text of ``length`` bytes."""
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"text that is not UTF-8: {error}") from error

    def name(self, value: Tree) -> str:
        """Return the name of a member; a name built from other values is counted like them."""
        text = name_text(value)
        self.work.spend(len(text) // (2 if isinstance(value, dict | list) else _BYTES_A_VALUE))
        return text

    def count(self, values: int = 1) -> None:
        """Count values that are about to be built; raise BodyTooLarge above the maximum."""
        if values < 0:
            raise self.error(f"a count of {values}")
        self.work.spend(values)

    def count_bytes(self, count: int) -> None:
        """Count bytes that are about to be examined, perhaps repeatedly."""
        self.work.spend(count // _BYTES_A_VALUE)

    def level(self) -> Self:
        """Count a level of nesting in a ``with`` block; raise BodyTooLarge above the maximum."""
        if not self._levels_left:
            raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        self._levels_left -= 1
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._levels_left += 1

    def to_end(self, value: Tree) -> Tree:
        if self.remaining:
            raise self.error(f"{self.remaining} bytes follow its end")
        return value

    def error(self, what: str) -> BodyError:
        return BodyError(f"at byte {self.position}: {what}")
