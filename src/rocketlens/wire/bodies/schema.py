"""How a JSON body is declared: once, as a table; the same idea as a command's header.

::

    @body("TopicOffset")
    class TopicOffset:
        min_offset: int = member("minOffset", I64, default=0)
        max_offset: int = member("maxOffset", I64, default=0)
        last_update_timestamp_ms: int = member("lastUpdateTimestamp", I64, default=0)

makes a frozen dataclass (keyword arguments only). Reading takes both dialects of
:mod:`rocketlens.wire.json_text`, ignores unknown members, takes nulls for absent ones, and
numbers and booleans in quotes, as RocketMQ's JSON library does. A member without ``default`` is
mandatory. Written is what RocketMQ writes: members sorted by name, those that are None left out.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar, dataclass_transform

from rocketlens import limits
from rocketlens.errors import CommandBodyError
from rocketlens.wire.json_text import dumps, loads, quote

B = TypeVar("B")

MANDATORY: Final = dataclasses.MISSING


class Shape(NamedTuple):
    """How one kind of value is read from parsed JSON, and written as JSON text.

    ``read`` raises ValueError or TypeError for what it does not take; None counts as absent.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], str]


class Member(NamedTuple):
    """One row of a body's table."""

    wire_name: str
    shape: Shape
    default: Any
    default_factory: Any
    since: int
    """The first release that has it, as a version number; 0 for all."""
    name: str = ""


def member(
    wire_name: str,
    shape: Shape,
    *,
    default: Any = MANDATORY,
    default_factory: Any = MANDATORY,
    since: int = 0,
) -> Any:
    """Declare a member."""
    return Member(wire_name, shape, default, default_factory, since)


_TABLES: Final[dict[type, tuple[Member, ...]]] = {}
_JAVA_NAMES: Final[dict[type, str]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(member,))
def body(java_name: str) -> Callable[[type[B]], type[B]]:
    """Make a body of a class; ``java_name`` is RocketMQ's class for it."""

    def make(cls: type[B]) -> type[B]:
        declared = {
            name: row._replace(name=name)
            for name, row in vars(cls).items()
            if isinstance(row, Member)
        }
        for name, row in declared.items():
            field: Any = dataclasses.field(default=row.default, default_factory=row.default_factory)
            setattr(cls, name, field)
        made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
        _TABLES[made] = tuple(sorted(declared.values(), key=lambda row: row.wire_name))
        _JAVA_NAMES[made] = java_name
        return made

    return make


def body_classes() -> tuple[type, ...]:
    """Give every body class that was declared so far."""
    return tuple(_TABLES)


def members_of(cls: type) -> tuple[Member, ...]:
    """Give the table of a body class, sorted by wire name."""
    return _TABLES[cls]


def java_name_of(cls: type) -> str:
    """Give the name of RocketMQ's class for a body class."""
    return _JAVA_NAMES[cls]


def read(
    cls: type[B],
    content: bytes,
    max_bytes: int = limits.MAX_JSON_BODY_BYTES,
    *,
    is_plain: bool = False,
    check: Callable[[], None] | None = None,
) -> B:
    """Read a body; in plain JSON only if ``is_plain``, as heartbeats and lists of locks are.

    ``check`` is called now and then, and ends the reading with a ValueError.

    :raises CommandBodyError: when it is too large, no JSON, or not of this shape; nothing else
        is raised, whatever the bytes.
    """
    if len(content) > max_bytes:
        raise CommandBodyError(f"a body of {len(content)} bytes, {max_bytes} allowed")
    value = loads(content, CommandBodyError, is_plain=is_plain, check=check)
    try:
        return read_object(cls, value)
    except (TypeError, ValueError, RecursionError) as error:
        name = java_name_of(cls)
        raise CommandBodyError(f"not a {name}: {str(error)[:200]}") from None


def write(made: Any) -> bytes:
    """Write a body."""
    return write_object(made).encode()


def read_object(cls: type[B], value: Any) -> B:
    """Make a body of parsed JSON.

    :raises ValueError: when a member is missing or out of range.
    :raises TypeError: when a member is of another type.
    """
    if type(value) is not dict:
        raise TypeError(f"{_JAVA_NAMES[cls]} is an object")
    values: dict[str, Any] = {}
    for row in _TABLES[cls]:
        given = value.get(row.wire_name)
        taken = None if given is None else row.shape.read(given)
        if taken is not None:
            values[row.name] = taken
        elif row.default is MANDATORY and row.default_factory is MANDATORY:
            raise ValueError(f"{row.wire_name} is missing")
    return cls(**values)


def write_object(made: Any) -> str:
    """Write a body as JSON text."""
    members = []
    for row in _TABLES[type(made)]:
        value = getattr(made, row.name)
        if value is not None:
            members.append(f'"{row.wire_name}":{row.shape.write(value)}')
    return f"{{{','.join(members)}}}"


def _read_text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in {int, float}:
        return str(value)
    raise TypeError(f"{type(value).__name__} where a text belongs")


def _reader_of_integers(bits: int) -> Callable[[Any], int]:
    allowed = range(-(2 ** (bits - 1)), 2 ** (bits - 1))

    def read_integer(value: Any) -> int:
        if type(value) is str and len(value) <= 20:
            value = int(value)
        if type(value) is not int:
            raise TypeError(f"{type(value).__name__} where an integer belongs")
        if value not in allowed:
            raise ValueError(f"an integer of {value.bit_length()} bits where {bits} are allowed")
        return value

    return read_integer


def _read_real(value: Any) -> float:
    if type(value) is str and len(value) <= 32:
        value = float(value)
    if type(value) not in {int, float}:
        raise TypeError(f"{type(value).__name__} where a number belongs")
    number = float(value) if abs(value) < 1e308 else None
    if number is None:
        raise ValueError("a number out of range")
    return number


def _read_boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str:
        return value.lower() == "true"
    if type(value) is int:
        return value == 1
    raise TypeError(f"{type(value).__name__} where true or false belongs")


def _write_boolean(value: bool) -> str:  # noqa: FBT001 - a value like others
    return "true" if value else "false"


TEXT: Final = Shape(_read_text, quote)
I32: Final = Shape(_reader_of_integers(32), str)
I64: Final = Shape(_reader_of_integers(64), str)
REAL: Final = Shape(_read_real, dumps)
BOOLEAN: Final = Shape(_read_boolean, _write_boolean)


def object_of(cls: type) -> Shape:
    """Declare another body in this one."""

    def read_one(value: Any) -> Any:
        return read_object(cls, value)

    return Shape(read_one, write_object)


def array_of(item: Shape) -> Shape:
    """Declare an array; read as a tuple."""

    def read_items(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError(f"{type(value).__name__} where an array belongs")
        return tuple(map(item.read, [each for each in value if each is not None]))

    def write_items(values: Sequence[Any]) -> str:
        return f"[{','.join(map(item.write, values))}]"

    return Shape(read_items, write_items)


def map_of(key: Shape, value: Shape) -> Shape:
    """Declare an object with any names, in their order; integer names are written in quotes.

    A name that an object makes (``key`` is a body's shape) is written as that object, bare: what
    RocketMQ 4 and 5 both read. Read is that, and its JSON text in quotes.
    """

    def read_pairs(given: Any) -> Mapping[Any, Any]:
        if type(given) is not dict:
            raise TypeError(f"{type(given).__name__} where an object belongs")
        return {
            key.read(name): value.read(each) for name, each in given.items() if each is not None
        }

    def write_pairs(values: Mapping[Any, Any]) -> str:
        return f"{{{','.join([f'{key.write(k)}:{value.write(v)}' for k, v in values.items()])}}}"

    return Shape(read_pairs, write_pairs)


INTEGER_KEY: Final = Shape(I64.read, lambda number: f'"{number:d}"')


def object_key_of(cls: type) -> Shape:
    """Declare a body that is the name of a member."""

    def read_key(name: str) -> Any:
        return read_object(cls, loads(name, CommandBodyError))

    return Shape(read_key, write_object)


def enum_of(enum: type[Enum]) -> Shape:
    """Declare a text that is a name of ``enum``; others count as absent, as in RocketMQ."""
    names = dict(enum.__members__)

    def read_name(value: Any) -> Any:
        return names.get(_read_text(value))

    def write_name(value: Any) -> str:
        return json.dumps(value.name)

    return Shape(read_name, write_name)
