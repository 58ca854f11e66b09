"""Reads Thrift without its IDL: fields by number, and values by their stored types.

=========  =====================================================================================
protocol   form of a struct
=========  =====================================================================================
binary     each field: type (1 byte), number (2 bytes), value; then a byte 0
compact    each field: a byte with type and step to the number, value; then a byte 0; integers
           are zigzag varints, and a bool is in the type
=========  =====================================================================================

A body is one struct, or a message, which begins with its name: ``80 01`` in the binary protocol,
``82`` in the compact one. Text and bytes have the same type: UTF-8 is shown as text. Source: the
Apache Thrift protocol specifications.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError

_MESSAGE_TYPES: Final = {1: "call", 2: "reply", 3: "exception", 4: "oneway"}
_BIG_DOUBLE: Final = struct.Struct(">d")
_LITTLE_DOUBLE: Final = struct.Struct("<d")


def read_thrift(body: bytes, work: DecodingWork | None = None, *, is_guess: bool = False) -> Tree:
    """Return the struct of a body in either protocol; a message as its name and its struct.

    ``is_guess``: reject structs of the compact protocol, which many other bytes resemble.
    """
    work = work or DecodingWork()
    if is_guess and body[:1] == b"\x82":
        return _read(_Compact(body, work))
    try:
        return _read(_Binary(body, work))
    except BodyError as in_binary:
        if is_guess:
            raise
        try:
            return _read(_Compact(body, work))
        except BodyError as in_compact:
            raise BodyError(f"binary: {in_binary}; compact: {in_compact}") from in_compact


def may_be_thrift(body: bytes) -> bool:
    """Return True if the body begins like a message, or with a field of the binary protocol."""
    return bool(body) and (body[0] in _FIELD_TYPES or body[0] in b"\x80\x82")


def _read(reader: "_Thrift") -> Tree:
    return reader.to_end(reader.body_value())


class _Thrift(ByteReader, ABC):
    """The common part of both protocols."""

    @abstractmethod
    def body_value(self) -> Tree: ...

    def text_or_bytes(self, length: int) -> Tree:
        data = self.take(length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def elements(self, count: int, read: Callable[[], Tree]) -> list[Tree]:
        return [read() for _ in range(self.checked(count))]

    def checked(self, count: int) -> int:
        # Each element has at least one byte.
        if not 0 <= count <= self.remaining:
            raise self.error(f"{count} elements, and {self.remaining} bytes")
        return count


class _Binary(_Thrift):
    def body_value(self) -> Tree:
        if self.body[:2] != b"\x80\x01":
            return self._struct()
        self.take(3)
        kind = _MESSAGE_TYPES.get(self.byte(), "unknown")
        name = self._value(11)
        number = self.signed(4)
        return {"name": name, "type": kind, "seqid": number, "fields": self._struct()}

    def _struct(self) -> dict[str, Tree]:
        fields: dict[str, Tree] = {}
        with self.level():
            while kind := self.byte():
                name = str(self.signed(2))
                if name in fields:
                    raise self.error(f"field {name} comes twice")
                fields[name] = self._value(kind)
        return fields

    def _value(self, kind: int) -> Tree:
        self.count()
        if kind == 2:
            return self.byte() != 0
        if kind in _INTEGERS:
            return self.signed(_INTEGERS[kind])
        if kind == 4:
            return self.unpack(_BIG_DOUBLE)
        if kind == 11:
            return self.text_or_bytes(self.signed(4))
        if kind == 12:
            return self._struct()
        with self.level():
            if kind == 13:
                names, values = self.byte(), self.byte()
                count = self.checked(self.signed(4))
                return {self.name(self._value(names)): self._value(values) for _ in range(count)}
            if kind in (14, 15):
                of = self.byte()
                return self.elements(self.signed(4), lambda: self._value(of))
        raise self.error(f"unknown type {kind}")


_INTEGERS: Final = {3: 1, 6: 2, 8: 4, 10: 8}
_FIELD_TYPES: Final = frozenset({2, 4, 11, 12, 13, 14, 15, *_INTEGERS})


class _Compact(_Thrift):
    def body_value(self) -> Tree:
        if self.body[:1] != b"\x82":
            return self._struct()
        self.byte()
        kind = _MESSAGE_TYPES.get(self.byte() >> 5, "unknown")
        number = self.varint()
        name = self.text_or_bytes(self.varint())
        return {"name": name, "type": kind, "seqid": number, "fields": self._struct()}

    def _struct(self) -> dict[str, Tree]:
        fields: dict[str, Tree] = {}
        number = 0
        with self.level():
            while head := self.byte():
                step, kind = head >> 4, head & 15
                number = number + step if step else self.zigzag()
                if str(number) in fields:
                    raise self.error(f"field {number} comes twice")
                if kind in (1, 2):
                    self.count()
                fields[str(number)] = kind == 1 if kind in (1, 2) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Tree:
        self.count()
        if kind in (1, 2):
            return self.byte() == 1
        if kind == 3:
            return self.signed(1)
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 7:
            return self.unpack(_LITTLE_DOUBLE)
        if kind == 8:
            return self.text_or_bytes(self.varint())
        if kind == 12:
            return self._struct()
        with self.level():
            if kind in (9, 10):
                head = self.byte()
                count, of = head >> 4, head & 15
                if count == 15:
                    count = self.varint()
                return self.elements(count, lambda: self._value(of))
            if kind == 11:
                count = self.checked(self.varint())
                types = self.byte() if count else 0
                return {
                    self.name(self._value(types >> 4)): self._value(types & 15)
                    for _ in range(count)
                }
        raise self.error(f"unknown type {kind}")
