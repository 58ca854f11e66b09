"""Converts objects of Java's own classes to the values that they represent.

====================================================  ==========================================
class                                                 becomes
====================================================  ==========================================
Boolean, Byte, Character, ... Short                   the value
BigInteger, BigDecimal                                int, Decimal
Date, java.sql.Timestamp, Instant, LocalDate,         datetime, date; text for LocalTime, and
LocalDateTime, LocalTime                              for LocalDateTime, which has no zone
UUID                                                  its text
ArrayList, LinkedList, ArrayDeque, HashSet,           list
LinkedHashSet, TreeSet, Arrays.asList, List.of
HashMap, LinkedHashMap, TreeMap, Hashtable,           dict
ConcurrentHashMap, Map.of
====================================================  ==========================================

The input is an object's fields and the bytes and objects that its ``writeObject`` wrote
(`WRITTEN`). If another version of a class writes something else, the fields are shown.

Hessian stores some values in the same form: `java_text` and `java_date` read them.
"""

import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from rocketlens.decode.tree import TYPE, Tree, exact_decimal
from rocketlens.errors import BodyError

WRITTEN: Final = "@written"

_NOT_AS_WRITTEN: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors that fields and bytes of another form cause."""

_Fields = dict[str, Tree]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Pairs(list[tuple[Tree, Tree]]):
    """The names and values of a map."""


def java_value(value: dict[str, Tree]) -> Tree:
    """Return the value that an object of Java's own classes represents; other objects unchanged."""
    make = _MAKERS.get(value[TYPE])
    if make is None:
        return value
    try:
        return make(value, value.get(WRITTEN, []))
    except _NOT_AS_WRITTEN:
        return value


def _date(_: _Fields, written: list[Tree]) -> Tree:
    (epoch_ms,) = struct.unpack(">q", written[0])
    return java_date(epoch_ms)


def _time(_: _Fields, written: list[Tree]) -> Tree:
    """Return a time of ``java.time``, which begins with a byte for its class."""
    kind, rest = written[0][0], written[0][1:]
    if kind == 2:
        seconds, nanos = struct.unpack(">qi", rest)
        return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    if kind == 3:
        return date(*struct.unpack(">ibb", rest))
    if kind == 4:
        return _local_time(rest).isoformat()
    if kind == 5:
        day = date(*struct.unpack(">ibb", rest[:6]))
        return datetime.combine(day, _local_time(rest[6:])).isoformat()
    raise ValueError(kind)


def _local_time(stored: bytes) -> time:
    """Return a time of day: the last part that is not 0 is stored inverted."""
    fields = struct.unpack(f">{min(3, len(stored))}b", stored[:3])
    parts = [~each if each < 0 else each for each in fields]
    nanos = struct.unpack(">i", stored[3:])[0] if len(stored) > 3 else 0
    hour, minute, second = [*parts, 0, 0][:3]
    return time(hour, minute, second, nanos // 1000)


def _counted(_: _Fields, written: list[Tree]) -> Tree:
    """Return elements after bytes whose last four are their number."""
    (count,) = struct.unpack(">i", written[0][-4:])
    return _as_many(count, written[1:])


def _members(_: _Fields, written: list[Tree]) -> Tree:
    """Return names and values after bytes whose last four are their number."""
    (count,) = struct.unpack(">i", written[0][-4:])
    return _paired(_as_many(2 * count, written[1:]))


def _concurrent_members(_: _Fields, written: list[Tree]) -> Tree:
    """Return names and values before two nulls."""
    if written[-2:] != [None, None]:
        raise ValueError("no end")
    return _paired(written[:-2])


def _unmodifiable(fields: _Fields, written: list[Tree]) -> Tree:
    """Return the elements or members of ``List.of``, ``Set.of`` or ``Map.of``."""
    elements = written[1:]
    return _paired(elements) if fields["tag"] & 0xFF == 3 else elements


def _as_many(count: int, elements: list[Tree]) -> list[Tree]:
    if count != len(elements):
        raise ValueError(f"{len(elements)} of {count}")
    return elements


def _paired(flat: list[Tree]) -> Pairs:
    return Pairs(zip(flat[::2], flat[1::2], strict=True))


_SIGNS: Final = {-1: -1, 0: 0, 1: 1}
_BOXES: Final = ("Boolean", "Byte", "Character", "Double", "Float", "Integer", "Long", "Short")
_MAKERS: Final[dict[str, Callable[[_Fields, list[Tree]], Tree]]] = {
    **{f"java.lang.{each}": lambda fields, _: fields["value"] for each in _BOXES},
    "java.math.BigInteger": lambda fields, _: (
        int.from_bytes(fields["magnitude"], "big") * _SIGNS[fields["signum"]]
    ),
    "java.math.BigDecimal": lambda fields, _: exact_decimal(fields["intVal"], fields["scale"]),
    "java.util.UUID": lambda fields, _: str(
        uuid.UUID(bytes=struct.pack(">qq", fields["mostSigBits"], fields["leastSigBits"]))
    ),
    "java.util.Date": _date,
    "java.sql.Timestamp": lambda fields, written: _date(fields, written).replace(
        microsecond=fields["nanos"] // 1000
    ),
    "java.time.Ser": _time,
    "java.util.ArrayList": lambda fields, written: _as_many(fields["size"], written[1:]),
    "java.util.Arrays$ArrayList": lambda fields, _: fields["a"],
    "java.util.LinkedList": _counted,
    "java.util.ArrayDeque": _counted,
    "java.util.HashSet": _counted,
    "java.util.LinkedHashSet": _counted,
    # A comparator comes first.
    "java.util.TreeSet": lambda fields, written: _counted(fields, written[1:]),
    "java.util.HashMap": _members,
    "java.util.LinkedHashMap": _members,
    "java.util.TreeMap": _members,
    "java.util.Hashtable": _members,
    "java.util.concurrent.ConcurrentHashMap": _concurrent_members,
    "java.util.CollSer": _unmodifiable,
}


def java_text(units: bytes) -> str:
    """Decode text whose surrogates are stored separately, as three bytes each.

    A lone surrogate stays in the text.

    :raises BodyError: if the bytes are not such text.
    """
    try:
        text = units.decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BodyError(f"text that is not UTF-8: {error}") from error


def java_date(epoch_ms: int) -> Tree:
    """Return a time of Java; as milliseconds if Python does not support the year."""
    try:
        return EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return epoch_ms
