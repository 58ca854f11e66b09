"""How a command's own header is declared: once, as a table that client and servers share.

::

    @header("QueryConsumerOffsetRequestHeader")
    class QueryConsumerOffsetRequest:
        consumer_group: str = text("consumerGroup", default="")
        topic: str = text("topic")
        queue_id: int = i32("queueId")
        set_zero_if_not_found: bool | None = boolean("setZeroIfNotFound", default=None)

makes a frozen dataclass (keyword arguments only) and, as ``fields_of(cls)``, its table. A field
without ``default`` is mandatory. One that is missing reads as its default; one that is None is
not written. A request's field is mandatory here if RocketMQ declares it so *and* its brokers
refuse a request without it: several are declared so and never looked at, and clients that are
not Java's leave them out.

Headers travel as text (``extFields``): integers in decimal, booleans as ``true`` and ``false``.
Unknown fields are ignored. Source: ``CommandCustomHeader``, ``RemotingCommand``.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast, dataclass_transform

from rocketlens import limits
from rocketlens.errors import FieldError

H = TypeVar("H")

FieldType = Literal["text", "i32", "i64", "boolean"]

MANDATORY: Final = dataclasses.MISSING

I32_RANGE: Final = range(-(2**31), 2**31)
I64_RANGE: Final = range(-(2**63), 2**63)


class Field(NamedTuple):
    """One row of a header's table."""

    wire_name: str
    field_type: FieldType
    default: Any
    """Its value when it is missing; MANDATORY if it must not be."""
    since: int
    """The first release that has it, as a version number; 0 for all."""
    short_name: str | None
    """Its letter in SEND_MESSAGE_V2."""
    name: str = ""
    """Its name in Python."""

    @property
    def is_mandatory(self) -> bool:
        """Say whether a header without it is refused."""
        return self.default is MANDATORY


def text(
    wire_name: str, *, default: Any = MANDATORY, since: int = 0, short_name: str | None = None
) -> Any:
    """Declare a field of text."""
    return Field(wire_name, "text", default, since, short_name)


def i32(
    wire_name: str, *, default: Any = MANDATORY, since: int = 0, short_name: str | None = None
) -> Any:
    """Declare a field of a signed 32-bit integer."""
    return Field(wire_name, "i32", default, since, short_name)


def i64(
    wire_name: str, *, default: Any = MANDATORY, since: int = 0, short_name: str | None = None
) -> Any:
    """Declare a field of a signed 64-bit integer."""
    return Field(wire_name, "i64", default, since, short_name)


def boolean(
    wire_name: str, *, default: Any = MANDATORY, since: int = 0, short_name: str | None = None
) -> Any:
    """Declare a field that is ``true``, in any case of letters, or else false."""
    return Field(wire_name, "boolean", default, since, short_name)


_TABLES: Final[dict[type, tuple[Field, ...]]] = {}
_JAVA_NAMES: Final[dict[type, str | None]] = {}


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(text, i32, i64, boolean)
)
def header(java_name: str | None = None) -> Callable[[type[H]], type[H]]:
    """Make a header of a class; ``java_name`` is RocketMQ's class for it, where there is one."""

    def make(cls: type[H]) -> type[H]:
        declared = {
            name: field._replace(name=name)
            for name, field in vars(cls).items()
            if isinstance(field, Field)
        }
        for name, field in declared.items():
            setattr(cls, name, dataclasses.field(default=field.default))
        made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
        _TABLES[made] = tuple(declared.values())
        _JAVA_NAMES[made] = java_name
        return made

    return make


def fields_of(cls: type) -> tuple[Field, ...]:
    """Give the table of a header class, in the order of its declaration."""
    return _TABLES[cls]


def java_name_of(cls: type) -> str | None:
    """Give the name of RocketMQ's class for a header class."""
    return _JAVA_NAMES[cls]


class HeaderCodec(Generic[H]):
    """Reads and writes one header class, under its long names or (``short``) its letters."""

    __slots__ = ("_readers", "_writers", "header_class", "wire_names")

    def __init__(self, header_class: type[H], *, short: bool = False) -> None:
        self.header_class = header_class
        rows = [(_wire_name(field, short=short), field) for field in fields_of(header_class)]
        self.wire_names: Final = {field.name: wire_name for wire_name, field in rows}
        """Names in Python to names on the wire, for reading ``ext_fields`` without a codec."""
        self._readers = {
            field.name: (wire_name, _READERS[field.field_type], field.default)
            for wire_name, field in rows
        }
        self._writers = [
            (field.name, wire_name, field.field_type == "boolean") for wire_name, field in rows
        ]

    def decode(self, ext_fields: Mapping[str, str]) -> H:
        """Read a header; what it does not know is ignored.

        :raises FieldError: when a mandatory field is missing, or one is not of its type.
        """
        values: dict[str, Any] = {}
        for name, (wire_name, read, default) in self._readers.items():
            value = ext_fields.get(wire_name)
            if value is None:
                if default is MANDATORY:
                    raise missing(wire_name)
                values[name] = default
            else:
                values[name] = value if read is None else read(value, wire_name)
        return self.header_class(**values)

    def encode(self, made: H) -> dict[str, str]:
        """Write a header; a field that is None is left out."""
        ext_fields: dict[str, str] = {}
        for name, wire_name, is_boolean in self._writers:
            value = getattr(made, name)
            if value is not None:
                if is_boolean:
                    value = "true" if value else "false"
                ext_fields[wire_name] = value if type(value) is str else str(value)
        return ext_fields

    def picker(self, *names: str) -> Callable[[Mapping[str, str]], tuple[Any, ...]]:
        """Give a function that reads these fields only, as a tuple in their order.

        For the few commands that a broker takes for each message: it costs a third of ``decode``.
        What it raises is the same, for these fields.
        """
        readers = [self._readers[name] for name in names]

        def pick(ext_fields: Mapping[str, str]) -> tuple[Any, ...]:
            get = ext_fields.get
            values = []
            for wire_name, read, default in readers:
                value: Any = get(wire_name)
                if value is None:
                    if default is MANDATORY:
                        raise missing(wire_name)
                    value = default
                elif read is not None:
                    value = read(value, wire_name)
                values.append(value)
            return tuple(values)

        return pick


def missing(wire_name: str) -> FieldError:
    """Make the error for a mandatory field that is not there, in RocketMQ's words.

    Its brokers say so in a NullPointerException of whatever they wanted the field for.
    """
    return FieldError(
        wire_name,
        "org.apache.rocketmq.remoting.exception.RemotingCommandException: "
        f"the custom field <{wire_name}> is null",
    )


def read_i32(value: str, wire_name: str = "") -> int:
    """Read what Java's Integer.parseInt reads.

    :raises FieldError: for everything else, with RocketMQ's remark.
    """
    if len(value) < 10 and value.isdecimal():
        return int(value)
    return _read_integer(value, wire_name, I32_RANGE)


def read_i64(value: str, wire_name: str = "") -> int:
    """Read what Java's Long.parseLong reads.

    :raises FieldError: for everything else, with RocketMQ's remark.
    """
    if len(value) < 19 and value.isdecimal():
        return int(value)
    return _read_integer(value, wire_name, I64_RANGE)


def read_boolean(value: str, wire_name: str = "") -> bool:  # noqa: ARG001 - read like the others
    """Read what Java's Boolean.parseBoolean reads: nothing is an error."""
    return value == "true" or value.lower() == "true"


def _read_integer(value: str, wire_name: str, allowed: range) -> int:
    digits = value[1:] if value[:1] in {"+", "-"} else value
    if digits.isdecimal() and len(digits) <= limits.MAX_NUMBER_CHARACTERS:
        number = int(value)
        if number in allowed:
            return number
    quoted = value[: limits.MAX_QUOTATION_CHARACTERS].encode("utf-8", "replace").decode()
    raise FieldError(wire_name, f'java.lang.NumberFormatException: For input string: "{quoted}"')


def _wire_name(field: Field, *, short: bool) -> str:
    if not short:
        return field.wire_name
    return cast("str", field.short_name)


_READERS: Final[dict[FieldType, Callable[[str, str], Any] | None]] = {
    "text": None,
    "i32": read_i32,
    "i64": read_i64,
    "boolean": read_boolean,
}
