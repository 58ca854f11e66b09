"""Declares headers and bodies of commands by annotations, for client and servers.

::

    class QueryConsumerOffsetRequest(WireStruct, java="QueryConsumerOffsetRequestHeader"):
        consumer_group: str = ""
        topic: str
        queue_id: I32
        set_zero_if_not_found: bool | None = None

    class GroupList(WireStruct):
        groups: tuple[str, ...] = field(name="groupList", default=())

makes frozen Structs (keyword arguments only). A field's name on the wire is its Python name in
camel case, without the unit ``_ms``, unless ``name`` gives another. Its type is one of ``str``,
``I32``, ``I64``, ``bool``, and in bodies ``float``, an Enum, another declared class, and tuples and
mappings of these. The fields are read and written in two ways:

**As a header** (:class:`HeaderCodec`): text in ``extFields``, integers in decimal, booleans as
``true`` and ``false``. A missing field has its default. A field of a request is mandatory (it has
no default) if RocketMQ declares it so *and* its brokers reject a request without it: RocketMQ never
reads some of the declared fields, and clients in other languages leave them out. Source:
``CommandCustomHeader``, ``RemotingCommand``.

**As a JSON body** (:func:`read_body`, :func:`write_body`), in both dialects of
:mod:`rocketlens.model.text.json_dialect`: nulls count as absent, and numbers and booleans can be in
quotes, as in RocketMQ's JSON library. Members are written sorted by name. Source:
``RemotingSerializable``.

Both ignore undeclared fields, and omit fields that are None.
"""

import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    overload,
)

from msgspec import NODEFAULT, Struct, StructMeta, field
from msgspec.structs import fields

from rocketlens import limits
from rocketlens.errors import CommandBodyError, FieldError
from rocketlens.model.text.json_dialect import dumps, loads, quote
from rocketlens.wire.codes import RequestCode

T = TypeVar("T")
H = TypeVar("H", bound="WireStruct")
Q = TypeVar("Q", bound="WireStruct")
A = TypeVar("A", bound="WireStruct")


class Shape(NamedTuple):
    """Converts one kind of value from parsed JSON, to JSON text, and from the text of a header
    field.

    ``read`` raises ValueError or TypeError for invalid values; None counts as absent. ``read_text``
    is None if the text is the value.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], str]
    read_text: Callable[[str, str], Any] | None = None


class Field(NamedTuple):
    """A declared field."""

    wire_name: str
    shape: Shape
    default: Any
    """Its value if it is missing; NODEFAULT if it is mandatory."""
    name: str
    """Its name in Python."""

    @property
    def is_mandatory(self) -> bool:
        return self.default is NODEFAULT


def read_i32(value: str, wire_name: str = "") -> int:
    """Parse an integer as Java's Integer.parseInt; raise FieldError with RocketMQ's remark."""
    if len(value) < 10 and value.isdecimal():
        return int(value)
    return _read_integer(value, wire_name, 32)


def read_i64(value: str, wire_name: str = "") -> int:
    """Parse an integer as Java's Long.parseLong; raise FieldError with RocketMQ's remark."""
    if len(value) < 19 and value.isdecimal():
        return int(value)
    return _read_integer(value, wire_name, 64)


def _read_integer(value: str, wire_name: str, bits: int) -> int:
    digits = value[1:] if value[:1] in {"+", "-"} else value
    if digits.isdecimal() and len(digits) <= limits.MAX_NUMBER_CHARACTERS:
        number = int(value)
        if -(1 << bits - 1) <= number < 1 << bits - 1:
            return number
    quoted = value[: limits.MAX_QUOTATION_CHARACTERS].encode("utf-8", "replace").decode()
    raise FieldError(wire_name, f'java.lang.NumberFormatException: For input string: "{quoted}"')


def _read_boolean_text(value: str, _wire_name: str = "") -> bool:
    """Parse a boolean as Java's Boolean.parseBoolean does: everything but "true" is False."""
    return value == "true" or value.lower() == "true"


def _expected(expected: str, value: Any) -> TypeError:
    return TypeError(f"{type(value).__name__} where {expected} belongs")


def _read_text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in {int, float}:
        return str(value)
    raise _expected("a text", value)


def _reader_of_integers(bits: int) -> Callable[[Any], int]:
    allowed = range(-(2 ** (bits - 1)), 2 ** (bits - 1))

    def read_integer(value: Any) -> int:
        if type(value) is str and len(value) <= 20:
            value = int(value)
        if type(value) is not int:
            raise _expected("an integer", value)
        if value not in allowed:
            raise ValueError(f"an integer of {value.bit_length()} bits where {bits} are allowed")
        return value

    return read_integer


def _read_real(value: Any) -> float:
    if type(value) is str and len(value) <= 32:
        value = float(value)
    if type(value) not in {int, float}:
        raise _expected("a number", value)
    if not abs(value) < 1e308:
        raise ValueError("a number out of range")
    return float(value)


def _read_boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str:
        return value.lower() == "true"
    if type(value) is int:
        return value == 1
    raise _expected("true or false", value)


TEXT: Final = Shape(_read_text, quote)
INT32: Final = Shape(_reader_of_integers(32), str, read_i32)
INT64: Final = Shape(_reader_of_integers(64), str, read_i64)
BOOLEAN: Final = Shape(
    _read_boolean, lambda value: "true" if value else "false", _read_boolean_text
)
_REAL: Final = Shape(_read_real, dumps)
_INTEGER_KEY: Final = Shape(INT64.read, lambda number: f'"{number:d}"')

I32 = Annotated[int, INT32]
"""A signed integer of 32 bits."""
I64 = Annotated[int, INT64]
"""A signed integer of 64 bits."""


def _camel_case(name: str) -> str:
    first, *others = name.removesuffix("_ms").split("_")
    return first + "".join(map(str.capitalize, others))


class _WireMeta(StructMeta):
    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        java: str | tuple[str, ...] | None = None,
        **config: Any,
    ) -> Any:
        names = name if java is None else java
        namespace["java_names"] = (names,) if isinstance(names, str) else names
        return super().__new__(mcs, name, bases, namespace, kw_only=True, **config)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class WireStruct(Struct, metaclass=_WireMeta, frozen=True, rename=_camel_case, java=()):
    """A header or body. ``java``: RocketMQ's classes, if named differently; ``()`` for none."""

    java_names: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, java: str | tuple[str, ...] | None = None) -> None: ...


@cache
def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a header, a body, or a NamedTuple, whose fields have no defaults."""
    if not issubclass(cls, Struct):
        hints = typing.get_type_hints(cls, include_extras=True)
        return tuple(Field(_camel_case(n), shape_of(h), NODEFAULT, n) for n, h in hints.items())
    return tuple(
        Field(
            each.encode_name,
            shape_of(each.type),
            each.default if each.default_factory is NODEFAULT else each.default_factory(),
            each.name,
        )
        for each in fields(cls)
    )


@cache
def _members_of(cls: type) -> list[Field]:
    return sorted(fields_of(cls), key=lambda each: each.wire_name)


_SHAPES: Final[Mapping[Any, Shape]] = {str: TEXT, bool: BOOLEAN, float: _REAL}


@cache
def shape_of(hint: Any, *, is_key: bool = False) -> Shape:
    """Return the shape of a type, for values or for names of members."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        shape: Shape = _INTEGER_KEY if is_key else hint.__metadata__[0]
        return shape
    if origin in {types.UnionType, typing.Union}:
        return shape_of(arguments[0])
    if origin is tuple:
        return _array_of(shape_of(arguments[0]))
    if origin in {Mapping, dict}:
        return _map_of(shape_of(arguments[0], is_key=True), shape_of(arguments[1]))
    if hint in _SHAPES:
        return _SHAPES[hint]
    if issubclass(hint, Enum):
        return _enum_of(hint)
    if is_key:
        return Shape(lambda name: _read_object(hint, loads(name, CommandBodyError)), write_object)
    return Shape(lambda value: _read_object(hint, value), write_object)


class HeaderCodec(Generic[H]):
    """Reads and writes one header class; ``letters`` are its fields' names on the wire."""

    def __init__(self, header_class: type[H], letters: str = "") -> None:
        self.header_class = header_class
        names = letters or header_class.__struct_encode_fields__
        self.wire_names: Final = dict(zip(header_class.__struct_fields__, names, strict=True))
        """Python names to names on the wire, for reading ``ext_fields`` without a codec."""

    @cached_property
    def _readers(self) -> dict[str, tuple[str, Callable[[str, str], Any] | None, Any]]:
        return {
            row.name: (self.wire_names[row.name], row.shape.read_text, row.default)
            for row in fields_of(self.header_class)
        }

    def decode(self, ext_fields: Mapping[str, str]) -> H:
        """Parse a header; unknown fields are ignored.

        :raises FieldError: if a mandatory field is missing, or one has the wrong type.
        """
        values: dict[str, Any] = {}
        for name, (wire_name, read, default) in self._readers.items():
            value = ext_fields.get(wire_name)
            if value is None:
                if default is NODEFAULT:
                    raise missing(wire_name)
                values[name] = default
            else:
                values[name] = value if read is None else read(value, wire_name)
        return self.header_class(**values)

    def encode(self, made: H) -> dict[str, str]:
        """Write a header; fields that are None are omitted."""
        ext_fields: dict[str, str] = {}
        for name, wire_name in self.wire_names.items():
            value = getattr(made, name)
            if value is not None:
                text = value if type(value) is str else str(value)
                ext_fields[wire_name] = text.lower() if type(value) is bool else text
        return ext_fields

    def picker(self, *names: str) -> Callable[[Mapping[str, str]], tuple[Any, ...]]:
        """Return a function that reads only these fields, as a tuple in their order.

        For the few commands that a broker receives for each message: it costs a third of
        ``decode``. Errors are the same, for these fields.
        """
        readers = [self._readers[name] for name in names]

        def pick(ext_fields: Mapping[str, str]) -> tuple[Any, ...]:
            get = ext_fields.get
            values = []
            for wire_name, read, default in readers:
                value: Any = get(wire_name)
                if value is None:
                    if default is NODEFAULT:
                        raise missing(wire_name)
                    value = default
                elif read is not None:
                    value = read(value, wire_name)
                values.append(value)
            return tuple(values)

        return pick


class NoFields(WireStruct, java=()):
    """The header of a command without fields."""


class Command(Generic[Q, A]):
    """A request code, and the codecs of the headers of its request and response.

    ``letters`` are the names of the request's fields on the wire, in their order.
    """

    __slots__ = ("code", "request", "response")

    @overload
    def __init__(self: "Command[NoFields, NoFields]", code: RequestCode) -> None: ...
    @overload
    def __init__(self: "Command[Q, NoFields]", code: RequestCode, request: type[Q]) -> None: ...
    @overload
    def __init__(
        self, code: RequestCode, request: type[Q], response: type[A], letters: str = ""
    ) -> None: ...

    def __init__(
        self,
        code: RequestCode,
        request: type[Any] = NoFields,
        response: type[Any] = NoFields,
        letters: str = "",
    ) -> None:
        self.code: Final = code
        self.request: Final[HeaderCodec[Q]] = HeaderCodec(request, letters)
        self.response: Final[HeaderCodec[A]] = HeaderCodec(response)

    def __repr__(self) -> str:
        return f"Command({self.code.name})"


AnyCommand = Command[Any, Any]


def missing(wire_name: str) -> FieldError:
    """Return RocketMQ's error for a missing mandatory field.

    Its brokers instead raise a NullPointerException of the code that needed the field.
    """
    return FieldError(
        wire_name,
        "org.apache.rocketmq.remoting.exception.RemotingCommandException: "
        f"the custom field <{wire_name}> is null",
    )


def read_body(
    cls: type[T],
    content: bytes,
    max_bytes: int = limits.MAX_JSON_BODY_BYTES,
    *,
    is_plain: bool = False,
    check: Callable[[], None] | None = None,
) -> T:
    """Read a body, an array (``tuple[UserInfo, ...]``) or an object with any names (``dict``).

    Only plain JSON is accepted if ``is_plain``, as for heartbeats and lists of locks. ``check`` is
    called regularly, and can end the reading with a ValueError.

    :raises CommandBodyError: if it is too large, not JSON, or not of this shape; no other error,
        for any bytes.
    """
    if len(content) > max_bytes:
        raise CommandBodyError(f"a body of {len(content)} bytes, {max_bytes} allowed")
    value = loads(content, CommandBodyError, is_plain=is_plain, check=check)
    hint: Any = cls
    try:
        read: T = shape_of(hint).read(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise CommandBodyError(f"not a {_name_of(cls)}: {str(error)[:200]}") from None
    return read


def write_body(made: Any) -> bytes:
    """Write a body, or a tuple of bodies as an array."""
    if type(made) is tuple:
        return f"[{','.join(map(write_object, made))}]".encode()
    return write_object(made).encode()


def _name_of(cls: Any) -> str:
    if isinstance(cls, type):
        return " or ".join(getattr(cls, "java_names", ())) or cls.__name__
    return str(cls)


def _read_object(cls: Any, value: Any) -> Any:
    if type(value) is not dict:
        raise TypeError(f"{_name_of(cls)} is an object")
    values: dict[str, Any] = {}
    for row in _members_of(cls):
        member_value = value.get(row.wire_name)
        taken = None if member_value is None else row.shape.read(member_value)
        if taken is not None:
            values[row.name] = taken
        elif row.is_mandatory:
            raise ValueError(f"{row.wire_name} is missing")
    return cls(**values)


def write_object(made: Any) -> str:
    members = []
    for row in _members_of(made.__class__):
        value = getattr(made, row.name)
        if value is not None:
            members.append(f'"{row.wire_name}":{row.shape.write(value)}')
    return f"{{{','.join(members)}}}"


def read_member(cls: type[T], value: Any) -> T | None:
    """Return the body in a value of parsed JSON; None if it is not one."""
    try:
        read: T = _read_object(cls, value)
    except (TypeError, ValueError, RecursionError):
        return None
    return read


def members_of(made: Any) -> dict[str, Any]:
    """Return a body as parsed JSON."""
    members: dict[str, Any] = json.loads(write_object(made))
    return members


def _array_of(item: Shape) -> Shape:
    def read_items(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _expected("an array", value)
        return tuple(map(item.read, [each for each in value if each is not None]))

    def write_items(values: Sequence[Any]) -> str:
        return f"[{','.join(map(item.write, values))}]"

    return Shape(read_items, write_items)


def _map_of(key: Shape, value: Shape) -> Shape:
    """An object with any names, in their order; integer names are written in quotes.

    If ``key`` is the shape of a body, names are written as bare objects, which RocketMQ 4 and 5
    both read. They are read in this form, and as their JSON text in quotes.
    """

    def read_pairs(members: Any) -> Mapping[Any, Any]:
        if type(members) is not dict:
            raise _expected("an object", members)
        return {
            key.read(name): value.read(each) for name, each in members.items() if each is not None
        }

    def write_pairs(values: Mapping[Any, Any]) -> str:
        return f"{{{','.join([f'{key.write(k)}:{value.write(v)}' for k, v in values.items()])}}}"

    return Shape(read_pairs, write_pairs)


def _enum_of(enum: type[Enum]) -> Shape:
    """A text that is a name in ``enum``; other names count as absent, as in RocketMQ."""
    names = dict(enum.__members__)
    return Shape(lambda value: names.get(_read_text(value)), lambda value: json.dumps(value.name))
