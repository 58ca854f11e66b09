"""Reads MessagePack.

==================  ===========================================================================
first byte          value
==================  ===========================================================================
00 to 7f, e0 to ff  an integer
80, 90, a0          a map, an array, text, with the length in the low bits
c0, c2, c3          null, false, true
c4 to c6            bytes, with the length in 1, 2 or 4 bytes
c7 to c9, d4 to d8  an extension: length, type, and bytes. Type -1 is a time, others become
                    ``{"@ext": type, "data": bytes}``
ca, cb              a float of 4 or 8 bytes
cc to d3            an integer of 1 to 8 bytes, unsigned and signed
d9 to df            text, an array, a map, with the length in 1 (text only), 2 or 4 bytes
==================  ===========================================================================

No library is used, because it would build all values before they can be counted.
"""

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.tree import Tree

EXTENSION: Final = "@ext"

_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_FLOATS: Final = {0xCA: struct.Struct(">f"), 0xCB: struct.Struct(">d")}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_messagepack(body: bytes, work: DecodingWork | None = None) -> Tree:
    reader = _MessagePack(body, work)
    return reader.to_end(reader.value())


def may_be_messagepack(body: bytes) -> bool:
    """Return True if the first byte is that of a map or an array."""
    return bool(body) and (0x80 <= body[0] < 0xA0 or 0xDC <= body[0] < 0xE0)


class _MessagePack(ByteReader):
    def value(self) -> Tree:
        self.count()
        code = self.byte()
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0x90:
            return self._map(code & 15)
        if code < 0xA0:
            return self._array(code & 15)
        if code < 0xC0:
            return self._text(code & 31)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _FLOATS:
            return self.unpack(_FLOATS[code])
        if 0xCC <= code < 0xD4:
            return self.unsigned(1 << code - 0xCC) if code < 0xD0 else self.signed(1 << code - 0xD0)
        if 0xD4 <= code < 0xD9:
            return self._extension(1 << code - 0xD4)
        if code == 0xC1:
            raise self.error("no value begins with 0xc1")
        return self._of_length(code)

    def _of_length(self, code: int) -> Tree:
        if code < 0xC7:
            return self.take(self.unsigned(1 << code - 0xC4))
        if code < 0xCA:
            return self._extension(self.unsigned(1 << code - 0xC7))
        if code < 0xDC:
            return self._text(self.unsigned(1 << code - 0xD9))
        length = self.unsigned(4 if code & 1 else 2)
        return self._array(length) if code < 0xDE else self._map(length)

    def _text(self, length: int) -> str:
        return self.take(length).decode("utf-8", "surrogateescape")

    def _array(self, length: int) -> list[Tree]:
        with self.level():
            return [self.value() for _ in range(length)]

    def _map(self, length: int) -> dict[str, Tree]:
        with self.level():
            return {self.name(self.value()): self.value() for _ in range(length)}

    def _extension(self, length: int) -> Tree:
        number = self.signed(1)
        data = self.take(length)
        if number == -1 and length in (4, 8, 12):
            if length == 12:
                nanos, seconds = struct.unpack(">Iq", data)
            else:
                both = int.from_bytes(data, "big")
                nanos, seconds = (0, both) if length == 4 else (both >> 34, both & (1 << 34) - 1)
            try:
                return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
            except OverflowError:
                pass
        return {EXTENSION: number, "data": data}
