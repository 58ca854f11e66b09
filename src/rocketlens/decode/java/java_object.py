"""Reads the output of ``java.io.ObjectOutputStream`` (Java serialization) without running code.

A body begins with ``ac ed 00 05``. Contents follow, each after a byte for its kind:

====  ==================================  =====================================================
70    null
71    an earlier value, by its handle
72    a class: name, version, flags,      then its superclass, in the same form
      fields
73    an object: class, fields from       then what its ``writeObject`` wrote, up to 78
      the topmost superclass down
74    text; 7c with an 8-byte length      modified UTF-8: U+0000 in two bytes, surrogates in three
75    an array: class, length, elements
76    a class itself
77    bytes that a class wrote; 7a with a 4-byte length
78    the end of what a class wrote
79    handles start again
7d    a proxy class
7e    a constant of an enum: class, name
====  ==================================  =====================================================

Objects become their fields, with the name of the class as ``@type``, and the output of their
``writeObject`` as ``@written``; objects of Java's own classes become the values that they represent
(:mod:`rocketlens.decode.java.java_classes`). Source: Java Object Serialization Specification,
chapter 6.
"""

import struct
from typing import Final

from msgspec import Struct, field

from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.java.java_classes import WRITTEN, Pairs, java_text, java_value
from rocketlens.decode.tree import TYPE, Tree
from rocketlens.errors import BodyError

MAGIC: Final = b"\xac\xed\x00\x05"

_NULL, _REFERENCE, _NEW_CLASS, _OBJECT, _STRING, _ARRAY, _CLASS = range(0x70, 0x77)
_BLOCK, _END, _RESET, _LONG_BLOCK, _EXCEPTION, _LONG_STRING, _PROXY, _ENUM = range(0x77, 0x7F)
_FIRST_HANDLE: Final = 0x7E0000

_HAS_WRITE_OBJECT: Final = 0x01
_SERIALIZABLE: Final = 0x02
_EXTERNALIZABLE: Final = 0x04
_IN_BLOCKS: Final = 0x08

_CLASS_VALUES: Final = 4
"""A class costs as much time as this many values."""
_NUMBERS: Final = {
    "B": struct.Struct(">b"),
    "D": struct.Struct(">d"),
    "F": struct.Struct(">f"),
    "I": struct.Struct(">i"),
    "J": struct.Struct(">q"),
    "S": struct.Struct(">h"),
}
_OBJECT_TYPES: Final = "[L"


class _Class(Struct, eq=False):
    """A class of the stream; ``fields`` are type codes and names, in their order."""

    name: str
    flags: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    superclass: "_Class | None" = None

    def lineage(self) -> "list[_Class]":
        """Return the class and its superclasses, the topmost first."""
        line: dict[_Class, None] = {}
        each: _Class | None = self
        while each is not None and each not in line:
            line[each] = None
            each = each.superclass
        return list(line)[::-1]


def read_java_object(body: bytes, work: DecodingWork | None = None) -> Tree:
    """Return the object of a body, or a list of several objects, as a graph.

    :raises BodyError: also if an ``Externalizable`` class wrote in the form of Java 1.1, which only
        that class can read.
    """
    reader = _JavaObjects(body, work)
    if reader.take(4) != MAGIC:
        raise BodyError(f"it does not begin with {MAGIC.hex(' ')}")
    values = []
    while reader.remaining:
        values.append(reader.content())
    if not values:
        raise reader.error("it has no object")
    return values[0] if len(values) == 1 else values


class _JavaObjects(ByteReader):
    def __init__(self, body: bytes, work: DecodingWork | None) -> None:
        super().__init__(body, work)
        self._held: list[Tree | _Class] = []
        """Values and classes by their handle."""

    def content(self) -> Tree:
        """Return the next value, or bytes that a class wrote."""
        self.count()
        code = self.byte()
        while code == _RESET:
            self.count()
            self._held.clear()
            code = self.byte()
        if code == _NULL:
            return None
        if code in (_BLOCK, _LONG_BLOCK):
            return self.take(self.byte() if code == _BLOCK else self.signed(4))
        if code == _REFERENCE:
            held = self._referred()
            if isinstance(held, _Class):
                raise self.error("expected a value, not a reference to a class")
            return held
        if code in (_STRING, _LONG_STRING):
            return self._hold(self._text(2 if code == _STRING else 8))
        with self.level():
            if code == _OBJECT:
                return self._object()
            if code == _ARRAY:
                return self._array()
            if code == _ENUM:
                return self._enum()
            if code == _CLASS:
                described = self._class()
                return self._hold({TYPE: "java.lang.Class", "name": described.name})
        raise self.error(f"no content begins with {code:#04x}")

    def _hold(self, value: Tree) -> Tree:
        self._held.append(value)
        return value

    def _referred(self) -> Tree | _Class:
        number = self.signed(4) - _FIRST_HANDLE
        if not 0 <= number < len(self._held):
            raise self.error(f"reference to handle {number} of {len(self._held)}")
        return self._held[number]

    def _text(self, size: int) -> str:
        data = self.take(self.unsigned(size))
        return java_text(data.replace(b"\xc0\x80", b"\x00"))

    def _class(self) -> _Class:
        described = self._class_or_none()
        if described is None:
            raise self.error("expected a class, not null")
        return described

    def _class_or_none(self) -> _Class | None:
        code = self.byte()
        if code == _NULL:
            return None
        if code == _REFERENCE:
            held = self._referred()
            if not isinstance(held, _Class):
                raise self.error("expected a class, not a reference to a value")
            return held
        with self.level():
            if code == _NEW_CLASS:
                return self._new_class()
            if code == _PROXY:
                return self._proxy()
        raise self.error(f"no class begins with {code:#04x}")

    def _new_class(self) -> _Class:
        self.count(_CLASS_VALUES)
        described = _Class(self._text(2))
        self.take(8)
        self._hold(described)
        described.flags = self.byte()
        for _ in range(self.unsigned(2)):
            self.count()
            code, name = chr(self.byte()), self._text(2)
            if code in _OBJECT_TYPES:
                self.content()
            elif code not in "CZ" and code not in _NUMBERS:
                raise self.error(f"field {name} has type {code!r}")
            described.fields.append((code, name))
        self._written()
        described.superclass = self._class_or_none()
        return described

    def _proxy(self) -> _Class:
        described = _Class("java.lang.reflect.Proxy", _SERIALIZABLE)
        self._hold(described)
        for _ in range(self.signed(4)):
            self.count()
            self._text(2)
        self._written()
        described.superclass = self._class_or_none()
        return described

    def _written(self) -> list[Tree]:
        """Return the values that a class wrote beside its fields, up to the end mark."""
        values = []
        while self.peek() != _END:
            values.append(self.content())
        self.position += 1
        return values

    def _object(self) -> Tree:
        described = self._class()
        value: dict[str, Tree] = {TYPE: described.name}
        number = len(self._held)
        self._hold(value)
        written: list[Tree] = []
        lineage = described.lineage()
        self.count(len(lineage))
        for each in lineage:
            if each.flags & _EXTERNALIZABLE:
                if not each.flags & _IN_BLOCKS:
                    raise self.error(f"only {each.name} itself can read what it wrote")
                written += self._written()
            elif each.flags & _SERIALIZABLE:
                for code, name in each.fields:
                    value[name] = self._element(code)
                if each.flags & _HAS_WRITE_OBJECT:
                    written += self._written()
        if written:
            value[WRITTEN] = written
        made = java_value(value)
        if type(made) is Pairs:
            made = {self.name(name): each for name, each in made}
        self._held[number] = made
        return made

    def _element(self, code: str) -> Tree:
        """Read a field or an array element whose type has this code."""
        if code in _OBJECT_TYPES:
            return self.content()
        self.count()
        if code == "Z":
            return self.byte() != 0
        if code == "C":
            return chr(self.unsigned(2))
        return self.unpack(_NUMBERS[code])

    def _array(self) -> Tree:
        name = self._class().name
        value: list[Tree] = []
        number = len(self._held)
        self._hold(value)
        length = self.signed(4)
        code = name[1:2]
        if code == "B":
            self._held[number] = self.take(length)
            return self._held[number]
        if (code not in _OBJECT_TYPES and code not in "CZ" and code not in _NUMBERS) or not code:
            raise self.error(f"an array of {name!r}")
        value.extend(self._element(code) for _ in range(length))
        return value

    def _enum(self) -> Tree:
        self._class()
        number = len(self._held)
        self._hold(None)
        name = self.content()
        if not isinstance(name, str):
            raise self.error("a constant whose name is not text")
        self._held[number] = name
        return name
