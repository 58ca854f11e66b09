"""A message as its readers see it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Host(NamedTuple):
    """An address and port; the address in the usual text form of IPv4 or IPv6."""

    address: str
    port: int

    def __str__(self) -> str:
        """Give ``10.0.0.1:10911`` or ``[::1]:10911``."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


@dataclass(frozen=True, slots=True)
class MessageExt:
    """One stored message: RocketMQ's clients call it so, and ``Message`` what is sent.

    ``body`` is decompressed. If that is not possible, because a producer sent bytes that are not
    what its flag says or that grow too large, it is the stored bytes, and ``body_error`` says in
    one line why; it is None otherwise. ``store_size`` counts the bytes of the record as stored,
    header included. ``msg_id`` is what RocketMQ's clients call so: the unique key if the message
    has one, else the offset message id. ``keys`` are in the order sent, repeats included. Times are
    epoch milliseconds: ``born`` by the producer's clock, ``store`` by the broker's.
    ``physical_offset`` is the record's position in the commit log of its broker, in bytes.
    """

    topic: str
    tags: str | None
    keys: tuple[str, ...]
    unique_key: str | None
    msg_id: str
    offset_msg_id: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    sys_flag: int
    flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    properties: Mapping[str, str]
    body: bytes
    body_error: str | None = None
