"""Bytes read one after another, with bounds on what is made of them.

A few bytes can name millions of values, or nest thousands of levels: each value counts, and each
level, whatever the format.
"""

import struct
from typing import Self

from rocketlens import limits
from rocketlens.decode.tree import Tree, name_text
from rocketlens.errors import BodyError, BodyTooLarge

_BYTES_A_VALUE = 256
"""Bytes that take as long as a value does, where they are looked at one by one."""


class DecodingWork:
    """The work that is left for one body, in values, whichever formats are tried on it."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        """Nothing is spent yet."""
        self.values = limits.MAX_BINARY_VALUES

    def spend(self, values: int) -> None:
        """Count values that are about to be made.

        :raises BodyTooLarge: when there are more than `limits.MAX_BINARY_VALUES` in all.
        """
        self.values -= values
        if self.values < 0:
            raise BodyTooLarge(f"it has more than {limits.MAX_BINARY_VALUES} values")


class ByteReader:
    """A position in a body. All numbers are big endian unless their name says ``little``."""

    def __init__(self, body: bytes, work: DecodingWork | None = None) -> None:
        """Read from the first byte."""
        self.body = body
        self.position = 0
        self.work = work or DecodingWork()
        self._levels_left = limits.MAX_DECODED_LEVELS

    @property
    def remaining(self) -> int:
        """Bytes that were not read yet."""
        return len(self.body) - self.position

    def peek(self) -> int:
        """Return the next byte, which stays."""
        if self.position >= len(self.body):
            raise self.error("it ends too early")
        return self.body[self.position]

    def byte(self) -> int:
        """Return the next byte, 0 to 255."""
        value = self.peek()
        self.position += 1
        return value

    def take(self, count: int) -> bytes:
        """Return so many bytes."""
        start = self.position
        if not 0 <= count <= len(self.body) - start:
            raise self.error(
                f"it ends too early: {count} bytes are named, {self.remaining} are left"
            )
        self.position += count
        return self.body[start : self.position]

    def unpack(self, layout: struct.Struct) -> Tree:
        """Return the number of a layout that has one."""
        (number,) = layout.unpack(self.take(layout.size))
        return number

    def signed(self, size: int) -> int:
        """Return an integer of so many bytes, in two's complement."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def unsigned(self, size: int) -> int:
        """Return an integer of so many bytes, 0 or more."""
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        """Return an unsigned integer of up to 64 bits, 7 in a byte, the lowest first."""
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
        """Return a varint whose lowest bit is the sign."""
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def text(self, length: int) -> str:
        """Return UTF-8 text of so many bytes."""
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"text that is not UTF-8: {error}") from error

    def name(self, value: Tree) -> str:
        """Return the name of a member; one that is made of other values counts as they do."""
        text = name_text(value)
        self.work.spend(len(text) // (2 if isinstance(value, dict | list) else _BYTES_A_VALUE))
        return text

    def count(self, values: int = 1) -> None:
        """Count values that are about to be made.

        :raises BodyTooLarge: when there are too many in all.
        """
        if values < 0:
            raise self.error(f"a count of {values}")
        self.work.spend(values)

    def count_bytes(self, count: int) -> None:
        """Count bytes that are about to be looked at, and may be again."""
        self.work.spend(count // _BYTES_A_VALUE)

    def level(self) -> Self:
        """Count a level of nesting in a ``with`` block.

        :raises BodyTooLarge: at more than `limits.MAX_DECODED_LEVELS`.
        """
        if not self._levels_left:
            raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        self._levels_left -= 1
        return self

    def __enter__(self) -> Self:
        """Enter a level."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave a level."""
        self._levels_left += 1

    def end(self) -> None:
        """Check that all was read."""
        if self.remaining:
            raise self.error(f"{self.remaining} bytes are left behind its end")

    def to_end(self, value: Tree) -> Tree:
        """Return a value that was read, if nothing is left behind it."""
        self.end()
        return value

    def error(self, what: str) -> BodyError:
        """Return the error to raise at this position."""
        return BodyError(f"at byte {self.position}: {what}")
