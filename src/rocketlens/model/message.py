"""A message as its readers see it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, NamedTuple

from rocketlens.model.integers import I32, I64


class Host(NamedTuple):
    """An address and port; the address in the usual text form of IPv4 or IPv6."""

    address: str
    port: int

    def __str__(self) -> str:
        """Return ``10.0.0.1:10911`` or ``[::1]:10911``."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


@dataclass(frozen=True, slots=True)
class MessageExt:
    """One stored message: RocketMQ's clients call it so, and ``Message`` what is sent.

    What its fields mean stands beside them, and in :data:`MESSAGE_FIELDS`, from which JSON, the
    columns of Spark and the docs are made.
    """

    topic: Annotated[str, "the topic it is stored under"]
    tags: Annotated[str | None, "its tag, or None"]
    keys: Annotated[tuple[str, ...], "its keys in the order sent, repeats included"]
    unique_key: Annotated[str | None, "the id its producer's client gave it, or None"]
    msg_id: Annotated[str, "what clients show as its id: the unique key, else the offset_msg_id"]
    offset_msg_id: Annotated[str, "the id its broker gave it: store host and physical offset"]
    queue_id: Annotated[I32, "number of its queue in the topic"]
    queue_offset: Annotated[I64, "its position in the queue, counted in messages"]
    physical_offset: Annotated[I64, "its position in the commit log of its broker, in bytes"]
    store_size: Annotated[I32, "bytes of the record as stored, header included"]
    sys_flag: Annotated[I32, "bits: compression, transaction type, hosts that are IPv6"]
    flag: Annotated[I32, "the producer's own number"]
    body_crc: Annotated[I32, "CRC-32 of the stored body & 0x7FFFFFFF"]
    born_timestamp_ms: Annotated[I64, "when it was sent, by the producer's clock, epoch ms"]
    born_host: Annotated[Host, "address and port that it was sent from"]
    store_timestamp_ms: Annotated[I64, "when it was stored, by the broker's clock, epoch ms"]
    store_host: Annotated[Host, "address and port of the broker that stored it"]
    reconsume_times: Annotated[I32, "how often a consumer group had it sent to it again"]
    prepared_transaction_offset: Annotated[
        I64, "physical offset of the half message, on a record that commits or rolls it back"
    ]
    properties: Annotated[Mapping[str, str], "all properties, those of RocketMQ included"]
    body: Annotated[bytes, "the body, decompressed; as stored where body_error is not None"]
    body_error: Annotated[
        str | None, "why the body could not be decompressed, in one line, or None"
    ] = None


class MessageField(NamedTuple):
    """A field of :class:`MessageExt`: its type, with integers as I32 or I64, and its meaning."""

    name: str
    kind: Any
    meaning: str


def _declared(name: str, annotation: Any) -> MessageField:
    *width, meaning = annotation.__metadata__
    kind = annotation.__origin__
    return MessageField(name, Annotated[kind, *width] if width else kind, meaning)


MESSAGE_FIELDS: Final = tuple(_declared(each.name, each.type) for each in fields(MessageExt))
"""Every field of a message, in order."""
