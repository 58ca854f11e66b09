"""A stored message, and annotations for the widths of Java's integers.

`I16`, `I32` and `I64` are plain ``int``. Layouts and columns read the width from the annotation's
metadata.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from rocketlens.model import properties as props

if TYPE_CHECKING:
    from datetime import datetime

I16 = Annotated[int, "i16"]
I32 = Annotated[int, "i32"]
I64 = Annotated[int, "i64"]


class Host(NamedTuple):
    """An IP address, in the usual text form, and a port."""

    address: str
    port: int

    def __str__(self) -> str:
        """Return ``10.0.0.1:10911`` or ``[::1]:10911``."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


_SHOWN_BYTES: Final = 40
_SHOWN_KEYS: Final = 80
"""Bytes of the body and characters of the keys in a message's ``repr``."""


class HasBody:
    """A body as text and as JSON."""

    __slots__ = ()
    body: bytes

    @property
    def text(self) -> str:
        """The body as text.

        :raises UnicodeDecodeError: if it is not UTF-8.
        """
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """Parse the body as JSON.

        :raises ValueError: if it is not JSON.
        """
        import json

        return json.loads(self.body)


# No hash: properties are a dict. No cycles: the garbage collector need not track messages.
class MessageExt(HasBody, Struct, frozen=True, gc=False):  # noqa: PLW1641
    """One stored message, with the name of RocketMQ's class; ``Message`` is a message to send.

    The annotations describe the fields. JSON, Spark's columns and the docs are generated from them
    (:data:`MESSAGE_FIELDS`).
    """

    topic: Annotated[str, "the topic it is stored under"]
    tags: Annotated[str | None, "its tag, or None"]
    keys: Annotated[tuple[str, ...], "its keys in the order sent, repeats included"]
    unique_key: Annotated[str | None, "the id that its producer's client assigned, or None"]
    msg_id: Annotated[str, "what clients show as its id: the unique key, else the offset_msg_id"]
    offset_msg_id: Annotated[
        str, "the id that its broker assigned: store host and physical offset; empty if unknown"
    ]
    queue_id: Annotated[I32, "number of its queue in the topic"]
    queue_offset: Annotated[I64, "its position in the queue, counted in messages"]
    physical_offset: Annotated[
        I64, "its position in the commit log of its broker, in bytes; -1 if unknown"
    ]
    store_size: Annotated[I32, "bytes of the record as stored, header included"]
    sys_flag: Annotated[I32, "bits: compression, transaction type, hosts that are IPv6"]
    flag: Annotated[I32, "the producer's own number"]
    body_crc: Annotated[I32, "CRC-32 of the stored body & 0x7FFFFFFF"]
    born_timestamp_ms: Annotated[I64, "when it was sent, by the producer's clock, epoch ms"]
    born_host: Annotated[Host, "address and port that it was sent from"]
    store_timestamp_ms: Annotated[I64, "when it was stored, by the broker's clock, epoch ms"]
    store_host: Annotated[Host, "address and port of the broker that stored it"]
    reconsume_times: Annotated[I32, "how often it was delivered again to a consumer group"]
    prepared_transaction_offset: Annotated[
        I64, "physical offset of the half message, on a record that commits or rolls it back"
    ]
    properties: Annotated[Mapping[str, str], "all properties, those of RocketMQ included"]
    body: Annotated[bytes, "the body, decompressed; as stored if body_error is not None"]
    body_error: Annotated[
        str | None, "why the body could not be decompressed, in one line, or None"
    ] = None
    cluster: Annotated[str | None, "the cluster that has it; None in a store"] = None
    broker: Annotated[str | None, "the broker that has it; None in a store"] = None

    @property
    def sent_from(self) -> str:
        """The producer's host, with the proxy if the message was sent through one."""
        client = self.properties.get(props.BORN_HOST)
        return f"{client} through proxy {self.born_host}" if client else str(self.born_host)

    @property
    def store_time(self) -> "datetime":
        """The store time by the broker's clock: `store_timestamp_ms` as a datetime in UTC.

        :raises OverflowError: if it is before the year 1 or after 9999.
        """
        return utc_datetime(self.store_timestamp_ms)

    @property
    def born_time(self) -> "datetime":
        """The send time by the producer's clock: `born_timestamp_ms` as a datetime in UTC.

        :raises OverflowError: if it is before the year 1 or after 9999.
        """
        return utc_datetime(self.born_timestamp_ms)

    def __eq__(self, other: object) -> bool:
        """Compare all fields except ``cluster`` and ``broker``."""
        if type(other) is not type(self):
            return NotImplemented
        return astuple(self)[:-2] == astuple(other)[:-2]

    def __repr__(self) -> str:
        """Return the identifying fields and the start of the body, on one line."""
        body = self.body or b""
        start = repr(body[:_SHOWN_BYTES]) + ("..." if len(body) > _SHOWN_BYTES else "")
        return (
            f"MessageExt({self.position!r}, msg_id={self.msg_id!r}, tags={self.tags!r}, "
            f"keys={_shown_keys(self.keys)}, store_timestamp_ms={self.store_timestamp_ms}, "
            f"body={start} of {len(body)} bytes)"
        )

    @property
    def position(self) -> str:
        """``TOPIC/QUEUE/OFFSET``, which ``find`` accepts, too."""
        return f"{self.topic}/{self.queue_id}/{self.queue_offset}"


def utc_datetime(milliseconds: int) -> "datetime":
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _shown_keys(keys: tuple[str, ...]) -> str:
    shown = repr(keys)
    return shown if len(shown) <= _SHOWN_KEYS else f"{shown[:_SHOWN_KEYS]}..."


class MessageField(NamedTuple):
    """A field of :class:`MessageExt`: its type (integers as I32 or I64) and its meaning."""

    name: str
    kind: Any
    meaning: str


def _declared(name: str, annotation: Any) -> MessageField:
    *width, meaning = annotation.__metadata__
    kind = annotation.__origin__
    return MessageField(name, Annotated[kind, *width] if width else kind, meaning)


MESSAGE_FIELDS: Final = tuple(_declared(*each) for each in MessageExt.__annotations__.items())
"""All fields of a message, in order."""
