"""Reads Protocol Buffers, with or without their schema.

=====  ====================  ============================================================
type   bytes                 value
=====  ====================  ============================================================
0      1 to 10               int; a schema can make it negative, zigzag or bool
1      8                     fixed64: double if that is a likely number, else int
2      length and content    text, a message, or bytes: the first that is possible
5      4                     fixed32: float if that is a likely number, else int
=====  ====================  ============================================================

Fields are named by their numbers, in the order stored; a repeated field is a list. Groups (3, 4)
are read as messages. With a `Schema`, which has names and types for the numbers, the same reader
decodes messages of a known type.

Schemas come from descriptors (:mod:`rocketlens.decode.descriptors`). Fields with a default value
that is not stored are not shown.
"""

import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.tree import Tree
from rocketlens.errors import BodyError

_LAST_FIELD: Final = 2**29 - 1
_LAST_LIKELY_FIELD: Final = 5_000
"""A guess has no larger field numbers: people count fields from 1."""
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")


class ProtobufField(NamedTuple):
    """A field of a known message.

    ``kind`` is the `Schema` of the message that it holds, "text", "bytes", or one of `_NUMBERS`.
    ``values`` are the names of an enum's numbers. ``as_json`` returns the JSON form of the message
    that it holds, from its bytes and its fields.
    """

    name: str
    kind: "str | Schema" = "int"
    is_list: bool = False
    values: Mapping[int, str] | None = None
    is_map: bool = False
    as_json: Callable[[bytes, Tree], Tree] | None = None


Schema = Mapping[int, ProtobufField]
"""Fields by number. Other fields are shown by number."""


def read_protobuf(
    body: bytes,
    work: DecodingWork | None = None,
    *,
    schema: Schema | None = None,
    is_guess: bool = False,
) -> dict[str, Tree]:
    """Return the fields of a message; ``is_guess``: reject unlikely field numbers."""
    reader = _Message(body, work)
    if is_guess:
        reader.last_field = _LAST_LIKELY_FIELD
    return reader.message(len(body), schema or {})


class _Message(ByteReader):
    last_field = _LAST_FIELD

    def message(self, end: int, schema: Schema, group: int | None = None) -> dict[str, Tree]:
        """Return the fields up to position ``end``, or to the end of group ``group``."""
        fields: dict[str, Tree] = {}
        while self.position < end:
            self.count()
            tag = self.varint()
            number, kind = tag >> 3, tag & 7
            if not 0 < number <= self.last_field:
                raise self.error(f"field number {number}")
            if kind == _GROUP_END:
                if number != group:
                    raise self.error(f"the end of group {number}, which has no start")
                return fields
            field = schema.get(number)
            self._add(fields, number, field, self._field(number, kind, field, end))
        if self.position != end or group is not None:
            raise self.error("a field ends after its message")
        return fields

    def _add(
        self, fields: dict[str, Tree], number: int, field: ProtobufField | None, value: Tree
    ) -> None:
        name = str(number) if field is None else field.name
        if field is not None and field.is_map:
            entry = value if isinstance(value, dict) else {}
            fields.setdefault(name, {})[self.name(entry.get("key", ""))] = entry.get("value")
        elif field is not None and field.is_list:
            fields.setdefault(name, []).extend(value if type(value) is _Packed else [value])
        elif field is not None or name not in fields:
            fields[name] = value
        elif type(fields[name]) is _Several:
            fields[name].append(value)
        else:
            fields[name] = _Several([fields[name], value])

    def _field(self, number: int, kind: int, field: ProtobufField | None, end: int) -> Tree:
        if kind in _SIZES:
            return self._scalar(kind, field)
        with self.level():
            if kind == _GROUP:
                held = field.kind if field is not None and not isinstance(field.kind, str) else {}
                return self.message(end, held, number)
            if kind == _BYTES:
                length = self.varint()
                if length > end - self.position:
                    raise self.error(f"field {number} of {length} bytes ends after its message")
                return self._held(length, field)
        raise self.error(f"field {number} has the unknown type {kind}")

    def _scalar(self, kind: int, field: ProtobufField | None) -> Tree:
        """Return a number of a wire type, converted to the type of its field."""
        stored = self.varint() if kind == _VARINT else self.take(_SIZES[kind])
        if field is None or not isinstance(field.kind, str) or field.kind not in _NUMBERS:
            return _signed(stored) if isinstance(stored, int) else _guess_number(stored)
        wire_type, read = _NUMBERS[field.kind]
        if wire_type != kind:
            raise self.error(f"field {field.name} is stored as another type")
        value = read(stored)
        return value if field.values is None else field.values.get(value, value)

    def _held(self, length: int, field: ProtobufField | None) -> Tree:
        """Return the content of a field of ``length`` bytes."""
        start, end = self.position, self.position + length
        if field is not None and not isinstance(field.kind, str):
            held = self.message(end, field.kind)
            return held if field.as_json is None else field.as_json(self.body[start:end], held)
        if field is not None and field.kind in _NUMBERS:
            return self._packed(end, field)
        data = self.take(length)
        if field is not None and field.kind == "bytes":
            return data
        # Each level of nested messages examines all bytes again.
        self.count_bytes(length)
        text = _text(data)
        if field is not None:
            return data if text is None else text
        if text is not None and not _CONTROLS.search(text):
            return text
        self.position = start
        try:
            return self.message(end, {})
        except BodyError:
            # The work of the attempt stays counted.
            self.position = end
        return data if text is None else text

    def _packed(self, end: int, field: ProtobufField) -> Tree:
        """Return numbers that are stored one after another."""
        wire_type, _ = _NUMBERS[str(field.kind)]
        values = _Packed()
        while self.position < end:
            self.count()
            values.append(self._scalar(wire_type, field))
        if self.position != end:
            raise self.error(f"field {field.name} ends in the middle of a number")
        return values


class _Packed(list[Tree]):
    """Numbers of one field that are stored together."""


class _Several(list[Tree]):
    """Values of a repeated field without a schema."""


def _signed(value: int) -> int:
    """Return a varint in two's complement, as negative numbers are stored."""
    return value - (1 << 64) if value >> 63 else value


def _integer(*, signed: bool) -> Callable[[bytes], int]:
    return lambda data: int.from_bytes(data, "little", signed=signed)


_SIZES: Final = {_VARINT: 0, _FIXED64: 8, _FIXED32: 4}
_NUMBERS: Final[dict[str, tuple[int, Callable[[Any], Tree]]]] = {
    "int": (_VARINT, _signed),
    "uint": (_VARINT, int),
    "zigzag": (_VARINT, lambda value: (value >> 1) ^ -(value & 1)),
    "bool": (_VARINT, bool),
    "fixed64": (_FIXED64, _integer(signed=False)),
    "sfixed64": (_FIXED64, _integer(signed=True)),
    "double": (_FIXED64, lambda data: _DOUBLE.unpack(data)[0]),
    "fixed32": (_FIXED32, _integer(signed=False)),
    "sfixed32": (_FIXED32, _integer(signed=True)),
    "float": (_FIXED32, lambda data: _FLOAT.unpack(data)[0]),
}
"""The wire type and the reader of each kind of number."""
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _text(stored: bytes) -> str | None:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return None


def _guess_number(stored: bytes) -> Tree:
    """Return a plausible floating-point number, else the integer of the same bytes."""
    (value,) = (_DOUBLE if len(stored) == _DOUBLE.size else _FLOAT).unpack(stored)
    if value == 0 or (math.isfinite(value) and 1e-9 < abs(value) < 1e15):
        return value
    return int.from_bytes(stored, "little", signed=True)


_TYPE_DECLARED: Final = re.compile(r"(message|enum) (\w+) \{([^}]*)\}")
_FIELD_DECLARED: Final = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


def schemas_of(declared: str) -> dict[str, dict[int, ProtobufField]]:
    """Return the messages that a text declares, in nearly the form of a ``.proto`` file.

    The type of a field is one of `_NUMBERS`, text, bytes, or an earlier declaration. An enum lists
    the names of its numbers from 1 on.
    """
    messages: dict[str, dict[int, ProtobufField]] = {}
    enums: dict[str, dict[int, str]] = {}
    for word, type_name, content in _TYPE_DECLARED.findall(declared):
        if word == "enum":
            enums[type_name] = dict(enumerate(content.split(), 1))
            continue
        fields = messages[type_name] = {}
        for repeated, kind, name, number in _FIELD_DECLARED.findall(content):
            held = messages.get(kind, "int" if kind in enums else kind)
            fields[int(number)] = ProtobufField(name, held, bool(repeated), enums.get(kind))
    return messages
