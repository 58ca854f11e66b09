"""Bytes read one after another, with bounds on what is made of them.

A few bytes can name millions of values, or nest thousands of levels: each value counts, and each
level, whatever the format.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from rocketlens import limits
from rocketlens.errors import BodyError


class ByteReader:
    """A position in a body. All numbers are big endian unless their name says ``little``."""

    def __init__(self, body: bytes, counted_by: "ByteReader | None" = None) -> None:
        """Read from the first byte; values count in the whole that ``counted_by`` reads, if any."""
        self.body = body
        self.position = 0
        self._counter: ByteReader = self if counted_by is None else counted_by
        self.values_left = limits.MAX_DECODED_VALUES
        self._levels_left = limits.MAX_DECODED_LEVELS

    @property
    def left(self) -> int:
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
        if not 0 <= count <= self.left:
            raise self.error(f"it ends too early: {count} bytes are named, {self.left} are left")
        start = self.position
        self.position += count
        return self.body[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[int | float, ...]:
        """Return the numbers of a layout."""
        return layout.unpack(self.take(layout.size))

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

    def count(self, values: int = 1) -> None:
        """Count values that are about to be made.

        :raises BodyError: when there are more than `limits.MAX_DECODED_VALUES` in all.
        """
        if values < 0:
            raise self.error(f"a count of {values}")
        self._counter.values_left -= values
        if self._counter.values_left < 0:
            raise self.error(f"it has more than {limits.MAX_DECODED_VALUES} values")

    @contextmanager
    def level(self) -> Iterator[None]:
        """Count a level of nesting while it is read.

        :raises BodyError: at more than `limits.MAX_DECODED_LEVELS`.
        """
        self._levels_left -= 1
        if self._levels_left < 0:
            raise self.error(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        try:
            yield
        finally:
            self._levels_left += 1

    def end(self) -> None:
        """Check that all was read."""
        if self.left:
            raise self.error(f"{self.left} bytes are left behind its end")

    def error(self, what: str) -> BodyError:
        """Return the error to raise at this position."""
        return BodyError(f"at byte {self.position}: {what}")
