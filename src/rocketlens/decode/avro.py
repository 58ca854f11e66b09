"""Reads Avro: records of a known schema, and files that contain their schema.

=======================  =======================================================================
begins with              content
=======================  =======================================================================
``Obj`` and 01           an object container file: schema and codec, blocks of records
c3 01                    the schema's fingerprint in 8 bytes (little-endian), one record
00                       the schema's number in a registry in 4 bytes, one record
                         (see :mod:`rocketlens.decode.rules`)
anything else            one record
=======================  =======================================================================

Values are stored without their types: a wrong schema reads nonsense, or fails. Times, dates and
decimals are read by their logical types. fastavro is not used: version 1.13 ends the process on
deeply nested values. Source: the Avro 1.12 specification.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.decode.byte_reader import ByteReader, DecodingWork
from rocketlens.decode.tree import Tree, exact_decimal
from rocketlens.errors import BodyError, BodyTooLarge
from rocketlens.formats import body_compression

CONTAINER: Final = b"Obj\x01"
SINGLE_OBJECT: Final = b"\xc3\x01"
SINGLE_OBJECT_BYTES: Final = 10
REGISTERED_BYTES: Final = 5

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SYNC_BYTES: Final = 16
_MAX_HELD_SCHEMA_BYTES: Final = 64 << 10
"""The largest schema in a body: every type in it costs work."""
_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


class AvroSchema(Struct):
    """A type with the types that it consists of; a record can contain itself."""

    kind: str
    logical: str | None = None
    fields: list[tuple[str, "AvroSchema"]] = field(default_factory=list)
    """A record's names and types, a union's branches, or the element type of an array or map."""
    symbols: list[str] = field(default_factory=list)
    size: int = 0
    scale: int = 0


def parse_schema(text: str | bytes, references: Iterable[str] = ()) -> AvroSchema:
    """Parse a schema; ``references`` are the schemas that it names, in their order.

    :raises BodyError: if it is not a schema.
    """
    try:
        parser, levels = _Parser(), limits.MAX_DECODED_LEVELS
        for each in references:
            parser.schema(json.loads(each), "", levels)
        return parser.schema(json.loads(text), "", levels)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise BodyError(f"its Avro schema cannot be read: {error!r:.200}") from error


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroSchema] = {}

    def schema(self, declared: Any, namespace: str, levels: int) -> AvroSchema:
        if not levels:
            raise ValueError("it is nested too deep")
        if isinstance(declared, str):
            if declared in _PRIMITIVES:
                return AvroSchema(declared)
            return self._named[_full_name(declared, namespace)]
        if isinstance(declared, list):
            branches = [("", self.schema(each, namespace, levels - 1)) for each in declared]
            return AvroSchema("union", fields=branches)
        kind = declared["type"]
        if not isinstance(kind, str) or (kind not in _NAMED and kind not in ("array", "map")):
            made = self.schema(kind, namespace, levels - 1)
            if made.kind not in _PRIMITIVES:
                return made
            return AvroSchema(
                made.kind, logical=declared.get("logicalType"), scale=int(declared.get("scale", 0))
            )
        if kind in ("array", "map"):
            of = self.schema(
                declared["items" if kind == "array" else "values"], namespace, levels - 1
            )
            return AvroSchema(kind, fields=[("", of)])
        return self._named_type(kind, declared, namespace, levels)

    def _named_type(
        self, kind: str, declared: Mapping[str, Any], namespace: str, levels: int
    ) -> AvroSchema:
        name = _full_name(declared["name"], declared.get("namespace", namespace))
        made = self._named[name] = AvroSchema(
            "record" if kind == "error" else kind,
            logical=declared.get("logicalType"),
            symbols=list(declared.get("symbols", ())),
            size=int(declared.get("size", 0)),
            scale=int(declared.get("scale", 0)),
        )
        inner, _, _ = name.rpartition(".")
        for each in declared.get("fields", ()):
            made.fields.append((each["name"], self.schema(each["type"], inner, levels - 1)))
        return made


def _full_name(name: str, namespace: str | None) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def read_avro(body: bytes, schema: AvroSchema, work: DecodingWork | None = None) -> Tree:
    reader = _Avro(body, work)
    return reader.to_end(reader.value(schema))


def read_body(body: bytes, work: DecodingWork | None = None, *, schema: AvroSchema) -> Tree:
    """Return a body of a schema: bare, or after its fingerprint, which is not compared.

    A container file is read by its own schema.
    """
    if body.startswith(CONTAINER):
        return read_container(body, work)
    if body.startswith(SINGLE_OBJECT):
        body = body[SINGLE_OBJECT_BYTES:]
    return read_avro(body, schema, work)


def read_container(body: bytes, work: DecodingWork | None = None) -> list[Tree]:
    """Return the records of a container file with the codec null, deflate or zstandard."""
    reader = _Avro(body, work)
    if reader.take(len(CONTAINER)) != CONTAINER:
        raise BodyError("it does not begin as an Avro container file")
    held = reader.value(AvroSchema("map", fields=[("", AvroSchema("bytes"))]))
    stored_schema = held.get("avro.schema", b"")
    if len(stored_schema) > _MAX_HELD_SCHEMA_BYTES:
        raise BodyTooLarge(f"its schema has more than {_MAX_HELD_SCHEMA_BYTES} bytes")
    schema = parse_schema(stored_schema)
    codec = held.get("avro.codec", b"null").decode("utf-8", "replace")
    unpack = _CODECS.get(codec)
    if unpack is None:
        raise BodyError(f"its blocks are compressed by {codec}, which is not supported")
    sync = reader.take(_SYNC_BYTES)
    records: list[Tree] = []
    bytes_left = limits.MAX_DECODED_BYTES
    while reader.remaining:
        # A block without records costs as much time as some values.
        reader.count(10)
        count, length = reader.zigzag(), reader.zigzag()
        data = unpack(reader.take(length), bytes_left)
        bytes_left -= len(data)
        block = _Avro(data, reader.work)
        records += block.to_end([block.value(schema) for _ in range(count)])
        if reader.take(_SYNC_BYTES) != sync:
            raise reader.error("a block does not end with the file's mark")
    return records


def _inflate(packed: bytes, limit: int) -> bytes:
    try:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        made = inflater.decompress(packed, limit)
    except zlib.error as error:
        raise BodyError(f"a block that is not deflated: {error}") from error
    if not inflater.eof:
        raise BodyError(f"a block that ends early, or grows beyond {limit} bytes")
    return made


_ZSTD: Final = body_compression.COMPRESSED | body_compression.ZSTD
_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": lambda packed, _: packed,
    "deflate": _inflate,
    "zstandard": lambda packed, limit: body_compression.decompress(packed, _ZSTD, limit),
}


class _Avro(ByteReader):
    def value(self, schema: AvroSchema) -> Tree:
        self.count()
        kind = schema.kind
        if kind in ("record", "union", "array", "map"):
            with self.level():
                return getattr(self, f"_{kind}")(schema)
        if kind == "null":
            return None
        if kind == "boolean":
            return self.byte() != 0
        if kind in ("int", "long"):
            return _time(self.zigzag(), schema.logical)
        if kind == "float":
            return self.unpack(_FLOAT)
        if kind == "double":
            return self.unpack(_DOUBLE)
        if kind == "enum":
            return self._one_of(schema.symbols)
        if kind == "string":
            return self.text(self.zigzag())
        data = self.take(schema.size if kind == "fixed" else self.zigzag())
        return _decimal(data, schema.scale) if schema.logical == "decimal" else data

    def _one_of(self, choices: list[Any]) -> Any:
        number = self.zigzag()
        if not 0 <= number < len(choices):
            raise self.error(f"choice {number} of {len(choices)}")
        return choices[number]

    def _record(self, schema: AvroSchema) -> Tree:
        return {name: self.value(of) for name, of in schema.fields}

    def _union(self, schema: AvroSchema) -> Tree:
        _, branch = self._one_of(schema.fields)
        return self.value(branch)

    def _array(self, schema: AvroSchema) -> Tree:
        ((_, of),) = schema.fields
        values: list[Tree] = []
        while count := self._block():
            values.extend(self.value(of) for _ in range(count))
        return values

    def _map(self, schema: AvroSchema) -> Tree:
        ((_, of),) = schema.fields
        values: dict[str, Tree] = {}
        while count := self._block():
            for _ in range(count):
                name = self.text(self.zigzag())
                values[name] = self.value(of)
        return values

    def _block(self) -> int:
        """Return the number of elements in the next block; after a negative one comes its size."""
        count = self.zigzag()
        if count < 0:
            self.zigzag()
        return abs(count)


def _time(number: int, logical: str | None) -> Tree:
    try:
        if logical == "date":
            return date(1970, 1, 1) + timedelta(days=number)
        if logical == "timestamp-millis":
            return _EPOCH + timedelta(milliseconds=number)
        if logical == "timestamp-micros":
            return _EPOCH + timedelta(microseconds=number)
    except OverflowError:
        pass
    return number


def _decimal(stored: bytes, scale: int) -> Tree:
    try:
        return exact_decimal(int.from_bytes(stored, "big", signed=True), scale)
    except (ArithmeticError, ValueError):
        return stored
