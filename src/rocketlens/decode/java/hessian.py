"""Reads Hessian 2 of Caucho's library and Dubbo: objects with the names of their classes.

====================  ====================================================================
first byte            value
====================  ====================================================================
00..1f, 30..33, S     text: its length in UTF-16 units, then those units as UTF-8; ``R``
                      begins text that continues in another chunk
20..2f, 34..37, B     bytes; ``A`` begins bytes that continue in another chunk
80..d7, I             int
38..3f, d8..ff, Y, L  long
5b..5f, D             double; ``5f`` is a number of thousandths
N, T, F               null, true, false
J, K                  a date in milliseconds, in minutes
C                     a class: name, number of fields, their names; then comes a value
60..6f, O             an object: number of its class, then its fields
H, M                  a map, without and with a type: names and values, then ``Z``
55..58, 70..7f        lists: U and V have a type, V and X and the short ones a length
Q                     an earlier map, list or object, by its number
====================  ====================================================================

Long lengths, and types, follow as values of their own. No class is instantiated: objects become
their fields. Source: the Hessian 2.0 draft; where Caucho's ``Hessian2Input`` differs from it (5f),
the library.
"""

import struct
from decimal import Decimal
from typing import Final

from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.java.java_classes import java_date, java_text
from rocketlens.decode.tree import TYPE, Tree

_DOUBLE: Final = struct.Struct(">d")
_END: Final = ord("Z")
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))
"""The bytes of a character after its first."""
_STARTS: Final = frozenset(b"CHMOUVWX") | frozenset(range(0x60, 0x80))
"""The first bytes of a map, a list or an object; a guess has one of them."""


def read_hessian(body: bytes, work: DecodingWork | None = None) -> Tree:
    """Return the value of a body as a graph: repeated references are the same Python object."""
    reader = _Hessian(body, work)
    return reader.to_end(reader.value())


def may_be_hessian(body: bytes) -> bool:
    """Return True if the first byte is that of a map, a list or an object."""
    return bool(body) and body[0] in _STARTS


class _Hessian(ByteReader):
    def __init__(self, body: bytes, work: DecodingWork | None) -> None:
        super().__init__(body, work)
        self._classes: list[tuple[str, list[str]]] = []
        self._types: list[str] = []
        self._held: list[Tree] = []
        """Maps, lists and objects by their number."""

    def value(self) -> Tree:
        while self.peek() == ord("C"):
            self.position += 1
            self._class()
        self.count()
        code = self.byte()
        if code < 0x20 or 0x30 <= code < 0x34 or code in b"RS":
            return self._text(code)
        if code < 0x38 or code in b"AB":
            return self._bytes(code)
        if 0x80 <= code < 0xD8 or code == ord("I"):
            return self._int(code)
        if 0x38 <= code < 0x40 or code >= 0xD8 or code in b"YL":
            return self._long(code)
        if 0x5B <= code < 0x60 or code == ord("D"):
            return self._double(code)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in b"JK":
            return java_date(self.signed(8) if code == ord("J") else self.signed(4) * 60_000)
        if code == ord("Q"):
            return self._same()
        with self.level():
            if 0x60 <= code < 0x70 or code == ord("O"):
                return self._object(code)
            if code in b"HM":
                return self._map(code)
            if 0x55 <= code < 0x59 or 0x70 <= code < 0x80:
                return self._list(code)
        raise self.error(f"no value begins with {code:#04x}")

    def _text(self, code: int) -> str:
        parts = []
        while code == ord("R"):
            parts.append(self._characters(self.unsigned(2)))
            code = self.byte()
        if code < 0x20:
            length = code
        elif 0x30 <= code < 0x34:
            length = (code - 0x30 << 8) + self.byte()
        elif code == ord("S"):
            length = self.unsigned(2)
        else:
            raise self.error(f"text continues with {code:#04x}")
        return "".join([*parts, self._characters(length)])

    def _characters(self, units: int) -> str:
        """Return text of this many UTF-16 units; the surrogates of a pair are stored separately."""
        start = self.position
        while units:
            # This many bytes have at most as many units.
            part = self.take(units)
            if not part.isascii() and max(part) >= 0xF0:
                raise self.error(f"no character begins with {max(part):#04x}")
            units -= len(part.translate(None, _CONTINUATIONS))
            if not units:
                last = part.rstrip(_CONTINUATIONS)
                following = (last[-1:] >= b"\xc0") + (last[-1:] >= b"\xe0")
                self.take(max(0, following - (len(part) - len(last))))
        return java_text(self.body[start : self.position])

    def _bytes(self, code: int) -> bytes:
        parts = []
        while code == ord("A"):
            parts.append(self.take(self.unsigned(2)))
            code = self.byte()
        if 0x20 <= code < 0x30:
            length = code - 0x20
        elif 0x34 <= code < 0x38:
            length = (code - 0x34 << 8) + self.byte()
        elif code == ord("B"):
            length = self.unsigned(2)
        else:
            raise self.error(f"bytes continue with {code:#04x}")
        return b"".join([*parts, self.take(length)])

    def _int(self, code: int) -> int:
        if code == ord("I"):
            return self.signed(4)
        if code < 0xC0:
            return code - 0x90
        if code < 0xD0:
            return (code - 0xC8 << 8) + self.byte()
        return (code - 0xD4 << 16) + self.unsigned(2)

    def _long(self, code: int) -> int:
        if code == ord("L"):
            return self.signed(8)
        if code == ord("Y"):
            return self.signed(4)
        if code < 0x40:
            return (code - 0x3C << 16) + self.unsigned(2)
        if code < 0xF0:
            return code - 0xE0
        return (code - 0xF8 << 8) + self.byte()

    def _double(self, code: int) -> Tree:
        if code == ord("D"):
            return self.unpack(_DOUBLE)
        if code < 0x5D:
            return float(code - 0x5B)
        if code == 0x5F:
            return self.signed(4) * 0.001
        return float(self.signed(code - 0x5C))

    def _integer(self) -> int:
        """Read an int that is a length or a number of something."""
        code = self.byte()
        if not (0x80 <= code < 0xD8 or code == ord("I")):
            raise self.error(f"expected an int, not {code:#04x}")
        return self._int(code)

    def _name(self) -> str:
        """Read a text that is a name."""
        value = self.value()
        if not isinstance(value, str):
            raise self.error("a name that is not text")
        return value

    def _class(self) -> None:
        name, count = self._name(), self._integer()
        self.count(count)
        self._classes.append((name, [self._name() for _ in range(count)]))

    def _type(self) -> str:
        """Read the type of a map or list: new text, or the number of an earlier one."""
        code = self.peek()
        if 0x80 <= code < 0xD8 or code == ord("I"):
            number = self._integer()
            if not 0 <= number < len(self._types):
                raise self.error(f"type {number} of {len(self._types)}")
            return self._types[number]
        name = self._name()
        self._types.append(name)
        return name

    def _object(self, code: int) -> Tree:
        number = code - 0x60 if code != ord("O") else self._integer()
        if not 0 <= number < len(self._classes):
            raise self.error(f"class {number} of {len(self._classes)}")
        name, fields = self._classes[number]
        value: dict[str, Tree] = {TYPE: name}
        self._held.append(value)
        for field in fields:
            value[field] = self.value()
        return _number(value) if name in _NUMBERS else value

    def _map(self, code: int) -> Tree:
        value: dict[str, Tree] = {}
        if code == ord("M"):
            type_name = self._type()
            if type_name not in _PLAIN_MAPS:
                value[TYPE] = type_name
        self._held.append(value)
        while self.peek() != _END:
            name = self.name(self.value())
            value[name] = self.value()
        self.position += 1
        return value

    def _list(self, code: int) -> Tree:
        if code in b"UV" or 0x70 <= code < 0x78:
            self._type()
        length: int | None = None
        if code in b"VX":
            length = self._integer()
        elif code >= 0x70:
            length = code & 7
        value: list[Tree] = []
        self._held.append(value)
        while len(value) < length if length is not None else self.peek() != _END:
            value.append(self.value())
        if length is None:
            self.position += 1
        return value

    def _same(self) -> Tree:
        number = self._integer()
        if not 0 <= number < len(self._held):
            raise self.error(f"reference to value {number} of {len(self._held)}")
        return self._held[number]


_CONSTANTS: Final[dict[int, Tree]] = {ord("N"): None, ord("T"): True, ord("F"): False}
_NUMBERS: Final = frozenset({"java.math.BigDecimal", "java.math.BigInteger"})
_PLAIN_MAPS: Final = frozenset({"", "java.util.HashMap", "java.util.LinkedHashMap"})


def _number(value: dict[str, Tree]) -> Tree:
    """Return a number that the library writes as an object with its text."""
    try:
        return Decimal(value["value"])
    except (KeyError, TypeError, ArithmeticError):
        return value
