"""The fields of a message: names, types and meanings, for every output and filter.

``--fields``, ``--format``, columns of the console, JSON, Arrow, Spark, SQL and expressions take
their names from :data:`FIELDS`. They also accept ``properties.NAME`` for a property. All but SQL
and Spark accept ``prop.NAME``, too, and ``body.$.PATH`` for a value in a body.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.model.life import life_of
from rocketlens.model.message import I32, I64, MESSAGE_FIELDS, Host, MessageExt


class NamedField(NamedTuple):
    """A field of a message."""

    meaning: str
    column: str | None = None
    """Spark's name for the column type; None if tables have no such column."""
    aliases: tuple[str, ...] = ()
    is_filter: bool = False
    """Whether expressions (``--where``) know it; other names mean properties there."""


_TYPES: Final = {
    str: "string",
    str | None: "string",
    tuple[str, ...]: "array<string>",
    Mapping[str, str]: "map<string,string>",
    I32: "int",
    I64: "bigint",
    Host: "string",
    bytes: "binary",
}
_ALIASES: Final = {"tags": ("tag",), "keys": ("key",), "msg_id": ("id",)}
_FILTERS: Final = frozenset(
    [
        *("topic", "tags", "keys", "unique_key", "queue_id", "queue_offset", "reconsume_times"),
        *("body", "cluster", "broker"),
    ]
)
_UNSHOWN: Final = "null before the year 1 and after 9999"
TIME_COLUMNS: Final = {"store_time": "store_timestamp_ms", "born_time": "born_timestamp_ms"}
"""Timestamps in UTC, with the fields that have the same time in milliseconds."""
FIELDS: Final[Mapping[str, NamedField]] = {
    **{
        each.name: NamedField(
            each.meaning, _TYPES[each.kind], _ALIASES.get(each.name, ()), each.name in _FILTERS
        )
        for each in MESSAGE_FIELDS
    },
    **{
        name: NamedField(
            f"{TIME_COLUMNS[name]} in UTC; {_UNSHOWN}", "timestamp", (alias,), is_filter=True
        )
        for name, alias in (("store_time", "time"), ("born_time", "born"))
    },
    "state": NamedField("the state of the message", "string", is_filter=True),
    "real_topic": NamedField(
        "the topic that the producer sent to, also for waiting messages, retries and dead letters",
        "string",
        is_filter=True,
    ),
    "body_text": NamedField("the body if it is UTF-8, else null", "string"),
    "body_json": NamedField(
        f"the body if it is JSON of at most {limits.MAX_SHOWN_JSON_BYTES >> 20} MiB, else null",
        "string",
    ),
    "position": NamedField("where it is: TOPIC/QUEUE/OFFSET"),
    "size": NamedField("bytes of the body"),
}
"""Every field by its name, in the order of table columns."""
COLUMNS: Final = {name: each.column for name, each in FIELDS.items() if each.column is not None}
"""Name and Spark type of each column of a message table."""
LIFE_COLUMNS: Final = ("state", "real_topic")
"""The state of a message, and the topic that its producer sent it to, or null if unknown: see
`rocketlens.model.life`.
"""
NAMES: Final[Mapping[str, str]] = {
    **{name: name for name in FIELDS},
    **{alias: name for name, each in FIELDS.items() for alias in each.aliases},
}
"""The field of each name and alias."""
FILTERS: Final = {name: field for name, field in NAMES.items() if FIELDS[field].is_filter}
"""The field of each name in expressions."""
ORIGIN_COLUMNS: Final = ("cluster", "broker")
TEXT_COLUMNS: Final = ("body_text", "body_json")
_JSON_BEGINS: Final = re.compile(rb'[ \t\n\r]*[{\["\-0-9tfn]')
PROPERTY: Final = r"(?:prop|properties)"
_PROPERTY: Final = re.compile(rf"{PROPERTY}(?:\.(.+)|\['((?:''|[^'])*)'\])", re.DOTALL)


def property_name(name: str) -> str | None:
    """Return NAME of ``prop.NAME`` or ``prop['NAME']``, or with ``properties``; else None."""
    match = _PROPERTY.fullmatch(name)
    return match and (match[1] or match[2].replace("''", "'"))


def field_of(message: MessageExt, name: str) -> Any:
    """Return the value of a field, or of a property if no field has that name.

    :raises OverflowError: if a time is outside the range of datetime.
    """
    field = NAMES.get(name)
    if field is None:
        return message.properties.get(property_name(name) or name)
    if field == "size":
        return len(message.body)
    if field in LIFE_COLUMNS:
        state, topic, *_ = life_of(message)
        return str(state) if field == "state" else topic
    if field == "body_json" and not is_json(message.body):
        return None
    if field in TEXT_COLUMNS:
        try:
            return message.text
        except UnicodeDecodeError:
            return None
    return getattr(message, field)


def is_json(body: bytes) -> bool:
    """Return whether a body is JSON (RFC 8259) of at most MAX_SHOWN_JSON_BYTES."""
    # Late: the import takes 20 ms, and most commands do not need it.
    import orjson

    # The first byte rules out most other bodies; an exception takes longer.
    if len(body) > limits.MAX_SHOWN_JSON_BYTES or not _JSON_BEGINS.match(body):
        return False
    try:
        orjson.loads(body)
    except ValueError:
        return False
    return True
