"""One record of the commit log, which is also one message in a pull or query reply.

All integers are big-endian and signed. ``H`` is 4 for an IPv4 and 16 for an IPv6 host; offsets are
for IPv4 hosts.

======  =======  ==============================  ===================================================
offset  type     field                           notes
======  =======  ==============================  ===================================================
0       i32      total_size                      the whole record, these 4 bytes included
4       i32      magic                           V1 0xDAA320A7; V2 0xDAA320AB: topic length i16
8       i32      body_crc                        CRC-32 of the stored body & 0x7FFFFFFF
12      i32      queue_id
16      i32      flag                            the producer's own
20      i64      queue_offset                    0 for prepared and rollback records
28      i64      physical_offset                 equals the record's position in the log
36      i32      sys_flag                        bits: see below
40      i64      born_timestamp_ms               producer's clock
48      H+4      born_host                       address, port i32
56      i64      store_timestamp_ms              broker's clock, taken inside the append lock
64      H+4      store_host                      address, port i32
72      i32      reconsume_times
76      i64      prepared_transaction_offset     the half message's, on commit and rollback records
84      i32+n    body                            as stored: perhaps compressed
88      i8+n     topic                           V2: i16+n
89      i16+n    properties                      see :mod:`rocketlens.model.properties`
======  =======  ==============================  ===================================================

sys_flag: 0x1 body compressed, 0x2 several tags, 0xC transaction (0 none, 4 prepared, 8 commit, 0xC
rollback), 0x10 born host is IPv6, 0x20 store host is IPv6, 0x700 compression kind.

A segment file ends with ``{i32 bytes left, i32 0xCBD43194}`` if the next record did not fit; zeros
follow the last record of the log.

With RocketMQ 5's ``enabledAppendPropCRC`` the properties end with ``__CRC32#`` U+0001, ten digits
of the CRC-32 of all bytes before (least significant digit first), U+0002.

Drawbacks: without that option, no checksum covers the header, topic and properties, so damage there
shows only as a contradiction; only the size word leads to the next record. Source:
``CommitLog.checkMessageAndReturnSize``, ``MessageDecoder.decode``.
"""

import struct
import zlib
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Final, overload

from msgspec import Struct

from rocketlens import limits
from rocketlens.errors import BodyError, RecordError
from rocketlens.formats.body_compression import COMPRESSED, decompress
from rocketlens.formats.dledger import BLANK_MAGIC
from rocketlens.formats.layout import CODES, Layout, declared_types
from rocketlens.late import np, npt
from rocketlens.model import properties as props
from rocketlens.model.message import I32, I64, Host, MessageExt
from rocketlens.model.message_id import address_text, offset_msg_id_of, pack_address
from rocketlens.model.rocketmq import (
    CRC_MASK,
    LMQ_PREFIX,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from rocketlens.model.text.java import decode_utf8

if TYPE_CHECKING:
    Flags = npt.NDArray[np.int32]
    Truths = npt.NDArray[np.bool_]

Buffer = bytes | memoryview

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

HOST_BITS: Final = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6

CRC_PROPERTY_BYTES: Final = 20
_CRC_NAME: Final = props.CRC32.encode() + b"\x01"
_CRC_NAME_START: Final = _CRC_NAME[0]

TOPIC_LENGTH_V1: Final = struct.Struct(">b")
TOPIC_LENGTH_V2: Final = struct.Struct(">h")
PROPERTIES_LENGTH: Final = struct.Struct(">h")
PORT: Final = struct.Struct(">i")
HOST_BYTES_V4: Final = 4 + PORT.size
HOST_BYTES_V6: Final = 16 + PORT.size
MAX_TOPIC_BYTES_V1: Final = 127
"""The longest topic of a V1 record in UTF-8 bytes: its length is a signed byte."""


def pack_host(host: Host) -> bytes:
    """Encode a host: 8 bytes for IPv4 or 20 for IPv6, address and port.

    :raises BadInput: if the address is neither IPv4 nor IPv6.
    :raises struct.error: if the port does not fit an i32.
    """
    return pack_address(host.address) + PORT.pack(host.port)


def unpack_host(packed: bytes) -> Host:
    return Host(address_text(packed[: -PORT.size]), PORT.unpack(packed[-PORT.size :])[0])


@overload
def has_queue_entry(sys_flag: int) -> bool: ...
@overload
def has_queue_entry(sys_flag: "Flags") -> "Truths": ...
def has_queue_entry(sys_flag: "int | Flags") -> "bool | Truths":
    """Return True if a record has a consume queue entry: unless it is prepared or rolled back.

    For an array of sys_flags, return an array. Only these two transaction types have this bit.
    """
    return sys_flag & SYS_FLAG_PREPARED == 0


@overload
def is_indexed(sys_flag: int) -> bool: ...
@overload
def is_indexed(sys_flag: "Flags") -> "Truths": ...
def is_indexed(sys_flag: "int | Flags") -> "bool | Truths":
    """Return True if a record's keys are in the index: unless it is rolled back.

    For an array of sys_flags, return an array.
    """
    return sys_flag & SYS_FLAG_TRANSACTION_MASK != SYS_FLAG_ROLLBACK


class Reason(StrEnum):
    """The reason why bytes are not a record."""

    END = "end"
    """Zeros or no bytes: nothing was written."""
    BLANK = "blank"
    """The filler at the end of a segment; the next record is in the next segment."""
    MAGIC = "magic"
    SIZE = "size"
    """The size word is too small, too large, or not the sum of the parts."""
    POSITION = "position"
    """The record has another physical offset: stale or forged bytes."""
    CRC = "crc"
    """The parts are whole, but the checksum of the body or record is wrong."""
    HOST = "host"
    """A port outside 0..65535."""


Origin = tuple[str | None, str | None]
"""The names of the cluster and the broker that have a record, if known."""
NO_ORIGIN: Final[Origin] = (None, None)


# Records cannot be in reference cycles, so the garbage collector need not track them.
class Record(Struct, frozen=True, gc=False):
    """A record as stored. ``body`` can be compressed; ``properties`` are raw UTF-8 bytes."""

    total_size: I32
    magic: I32
    body_crc: I32
    queue_id: I32
    flag: I32
    queue_offset: I64
    physical_offset: I64
    sys_flag: I32
    born_timestamp_ms: I64
    born_host: Annotated[Host, "H+4"]
    store_timestamp_ms: I64
    store_host: Annotated[Host, "H+4"]
    reconsume_times: I32
    prepared_transaction_offset: I64
    body: Annotated[bytes, "i32+n"]
    topic: Annotated[str, "i8+n"]
    properties: Annotated[bytes, "i16+n"]
    origin: Origin = NO_ORIGIN

    @property
    def offset_msg_id(self) -> str:
        """The broker's id in upper-case hex; empty for `NOT_IN_LOG`."""
        return offset_msg_id_of(self.store_host, self.physical_offset)


def _head(born_bytes: int, store_bytes: int, *, with_ports: bool) -> Layout:
    """Return the layout of the fixed fields, up to the body's length, for these address lengths.

    A host is its address and its port, or without ``with_ports`` the bytes of both.
    """
    address_bytes = {"born_host": born_bytes, "store_host": store_bytes}
    fields: list[tuple[str, str]] = []
    for name, kind in takewhile(lambda field: field[0] != "body", declared_types(Record)):
        if name not in address_bytes:
            fields.append((name, CODES[kind]))
        elif with_ports:
            fields += (name, f"{address_bytes[name]}s"), (name.replace("host", "port"), "i")
        else:
            fields.append((name, f"{address_bytes[name] + PORT.size}s"))
    return Layout((*fields, ("body_length", "i")))


_ADDRESS_BYTES: Final = ((4, 4), (16, 4), (4, 16), (16, 16))
HEADS: Final = tuple(_head(*sizes, with_ports=True) for sizes in _ADDRESS_BYTES)
"""The fixed fields, total_size .. body_length: with both hosts IPv4, with born_host IPv6, with
store_host IPv6, with both. See :func:`head_at`."""

TOTAL_SIZE: Final = HEADS[0].struct_of("total_size")
SIZE_AND_MAGIC: Final = HEADS[0].struct_of("total_size", "magic")
MIN_RECORD_BYTES: Final = HEADS[0].size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
"""The size of a V1 record with IPv4 hosts and empty body, topic and properties."""

_HEAD_BYTES: Final = tuple(head.size for head in HEADS)
_HOST_BITS_BYTE: Final = HEADS[0].offsets["sys_flag"] + 3
"""Its bits 4 and 5 are SYS_FLAG_BORN_HOST_V6 and SYS_FLAG_STORE_HOST_V6: the index in HEADS."""
_PROPERTIES_LENGTH_BYTES: Final = PROPERTIES_LENGTH.size
_read_properties_length: Final = PROPERTIES_LENGTH.unpack_from
_READ_VIEW: Final = tuple(
    head.struct_of(
        "total_size",
        "magic",
        "body_crc",
        "physical_offset",
        "born_port",
        "store_timestamp_ms",
        "store_port",
        "body_length",
    ).unpack_from
    for head in HEADS
)
_READ_OFFSET: Final = HEADS[0].struct_of("physical_offset").unpack_from
_READ_QUEUE: Final = HEADS[0].struct_of("queue_id", "queue_offset").unpack_from
_READ_SYS_FLAG: Final = HEADS[0].struct_of("sys_flag").unpack_from
_READ_STORE_TIMESTAMP: Final = tuple(
    head.struct_of("store_timestamp_ms").unpack_from for head in HEADS
)


def head_at(buffer: Buffer, position: int = 0) -> Layout:
    """Return the one of :data:`HEADS` for the record at ``position``, by its sys_flag.

    :raises IndexError: if the bytes end before the sys_flag does.
    """
    return HEADS[buffer[position + _HOST_BITS_BYTE] >> 4 & 3]


def store_timestamp_at(buffer: Buffer, position: int = 0) -> int:
    read = _READ_STORE_TIMESTAMP[buffer[position + _HOST_BITS_BYTE] >> 4 & 3]
    timestamp_ms: int = read(buffer, position)[0]
    return timestamp_ms


def unwritten_head(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    """Return the struct of the fixed fields without size and magic, for which it writes zeros.

    Hosts are packed as bytes, 8 for IPv4 and 20 for IPv6: the address, and the port as i32.
    """
    head = _head(born_host_bytes - PORT.size, store_host_bytes - PORT.size, with_ports=False)
    return head.struct_of(*(name for name in head.offsets if name not in {"total_size", "magic"}))


_NUMBERS: Final = {
    **{
        name: position
        for position, (name, _) in enumerate(declared_types(Record))
        if name in {"queue_id", "queue_offset", "sys_flag", "born_timestamp_ms"}
    },
    # Each host is two fields.
    "store_timestamp_ms": 11,
    "reconsume_times": 14,
}


class RecordView:
    """A view of a record in a buffer: its fields, and the positions of its parts.

    Nothing is copied. The constructor checks that the parts are inside the buffer and add up to the
    size. It takes 1.0 us for a record of 400 bytes, and :func:`decode`, which uses it, 7.6.
    """

    __slots__ = (
        "body_crc",
        "body_start",
        "body_stop",
        "buffer",
        "start",
        "stop",
        "store_timestamp_ms",
        "topic_start",
        "topic_stop",
    )
    body_crc: int
    start: int
    stop: int
    store_timestamp_ms: int

    def __init__(self, buffer: Buffer, start: int = 0, physical_offset: int | None = None) -> None:
        """View the record at ``start``, which must not be negative.

        ``physical_offset``: the offset that the record must have, if known.

        :raises RecordError: with the reason, if the bytes are not one whole record. Bytes after the
            record are ignored.
        """
        try:
            number = buffer[start + _HOST_BITS_BYTE] >> 4 & 3
            (
                size,
                magic,
                self.body_crc,
                claimed,
                born_port,
                self.store_timestamp_ms,
                store_port,
                body_length,
            ) = _READ_VIEW[number](buffer, start)
        except (IndexError, struct.error):
            raise _error_at(buffer, start, physical_offset) from None
        stop = start + size
        body_start = start + _HEAD_BYTES[number]
        body_stop = body_start + body_length
        if magic == MAGIC_V1:
            topic_start = body_stop + 1
        elif magic == MAGIC_V2:
            topic_start = body_stop + 2
        else:
            raise _error_at(buffer, start, physical_offset)
        if not MIN_RECORD_BYTES <= size <= limits.MAX_RECORD_BYTES or stop > len(buffer):
            raise _error_at(buffer, start, physical_offset)
        if physical_offset is not None and claimed != physical_offset:
            raise RecordError(Reason.POSITION, f"claims to belong at {claimed}", physical_offset)
        if (born_port | store_port) >> 16:
            detail = f"names ports {born_port} and {store_port}"
            raise RecordError(Reason.HOST, detail, physical_offset)
        if body_length < 0 or topic_start > stop - _PROPERTIES_LENGTH_BYTES:
            detail = f"has a body of {body_length} bytes where {stop - body_start} are left"
            raise RecordError(Reason.SIZE, detail, physical_offset)
        if magic == MAGIC_V1:
            topic_length = buffer[body_stop]
            if topic_length > MAX_TOPIC_BYTES_V1:
                topic_length -= 256
        else:
            topic_length = TOPIC_LENGTH_V2.unpack_from(buffer, body_stop)[0]
        topic_stop = topic_start + topic_length
        properties_start = topic_stop + _PROPERTIES_LENGTH_BYTES
        if topic_length < 0 or properties_start > stop:
            detail = f"has a topic of {topic_length} bytes where {stop - topic_start} are left"
            raise RecordError(Reason.SIZE, detail, physical_offset)
        properties_length = _read_properties_length(buffer, topic_stop)[0]
        if properties_start + properties_length != stop:
            end = properties_start + properties_length - start
            detail = f"says {size} bytes, its parts add up to {end}"
            raise RecordError(Reason.SIZE, detail, physical_offset)
        self.buffer = buffer
        self.start = start
        self.stop = stop
        self.body_start = body_start
        self.body_stop = body_stop
        self.topic_start = topic_start
        self.topic_stop = topic_stop

    @property
    def total_size(self) -> int:
        return self.stop - self.start

    @property
    def physical_offset(self) -> int:
        offset: int = _READ_OFFSET(self.buffer, self.start)[0]
        return offset

    @property
    def queue(self) -> tuple[int, int]:
        """The queue id and queue offset."""
        queue_id, queue_offset = _READ_QUEUE(self.buffer, self.start)
        return queue_id, queue_offset

    @property
    def head(self) -> tuple[Any, ...]:
        """The fields before the body, in the order stored; hosts as addresses and ports."""
        return head_at(self.buffer, self.start).struct.unpack_from(self.buffer, self.start)

    def number(self, name: str) -> int:
        """Return a numeric field of `Record` before the body."""
        return int(self.head[_NUMBERS[name]])

    @property
    def sys_flag(self) -> int:
        return int(_READ_SYS_FLAG(self.buffer, self.start)[0])

    @property
    def body(self) -> bytes:
        """The body as stored."""
        return bytes(self.buffer[self.body_start : self.body_stop])

    @property
    def topic(self) -> str:
        """The topic, as Java decodes it."""
        return decode_utf8(bytes(self.buffer[self.topic_start : self.topic_stop]))

    @property
    def properties(self) -> bytes:
        """The raw properties."""
        return bytes(self.buffer[self.topic_stop + _PROPERTIES_LENGTH_BYTES : self.stop])

    def check_crc(self) -> None:
        """Compare body and record with their checksums, if any; raise RecordError if one
        differs.
        """
        buffer, start, stop = self.buffer, self.body_start, self.body_stop
        if start < stop and zlib.crc32(buffer[start:stop]) & CRC_MASK != self.body_crc:
            detail = "its body does not have its checksum"
            raise RecordError(Reason.CRC, detail, self.physical_offset)
        start, stop = self.stop - CRC_PROPERTY_BYTES, self.stop
        if (
            start >= self.topic_stop + _PROPERTIES_LENGTH_BYTES
            and buffer[start] == _CRC_NAME_START
            and _is_crc_tail(bytes(buffer[start:stop]))
            and buffer[start:stop] != _crc_tail(buffer[self.start : start])
        ):
            raise RecordError(Reason.CRC, "it does not have its own checksum", self.physical_offset)

    def record(self) -> Record:
        """Return the whole record, with copies of its parts."""
        buffer, topic_stop = self.buffer, self.topic_stop
        head = HEADS[buffer[self.start + _HOST_BITS_BYTE] >> 4 & 3].struct
        read = head.unpack_from(buffer, self.start)
        fields: tuple[Any, ...] = (
            *read[:9],
            _host_of(read[9], read[10]),
            read[11],
            _host_of(read[12], read[13]),
            read[14],
            read[15],
            bytes(buffer[self.body_start : self.body_stop]),
            decode_utf8(bytes(buffer[self.topic_start : topic_stop])),
            bytes(buffer[topic_stop + _PROPERTIES_LENGTH_BYTES : self.stop]),
        )
        return Record(*fields)


@lru_cache(maxsize=1024)
def _host_of(address: bytes, port: int) -> Host:
    return Host(address_text(address), port)


def decode(
    buffer: Buffer, position: int = 0, *, physical_offset: int | None = None, check_crc: bool = True
) -> Record:
    """Read the record at ``position`` of ``buffer``.

    ``physical_offset``: the offset that the record must have, if known.

    :raises RecordError: with the reason, if the bytes are not one whole record. Bytes after the
        record are ignored.
    """
    view = RecordView(memoryview(buffer), position, physical_offset)
    if check_crc:
        view.check_crc()
    return view.record()


def _error_at(buffer: Buffer, position: int, physical_offset: int | None) -> RecordError:
    """Return the error for bytes that do not start like a record, or end too early."""
    remaining = len(buffer) - position
    if remaining < SIZE_AND_MAGIC.size:
        return RecordError(Reason.END, "the log ends here", physical_offset)
    total_size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return RecordError(Reason.BLANK, "the segment ends here", physical_offset)
    if total_size == BLANK_MAGIC and magic == remaining:
        return RecordError(Reason.BLANK, "the segment ends here", physical_offset)
    if magic not in (MAGIC_V1, MAGIC_V2):
        if total_size == 0 and magic == 0:
            return RecordError(Reason.END, "nothing was written here", physical_offset)
        detail = f"begins with magic {magic & 0xFFFFFFFF:#010x}, which is no record's"
        return RecordError(Reason.MAGIC, detail, physical_offset)
    detail = f"says {total_size} bytes where {remaining} are left"
    return RecordError(Reason.SIZE, detail, physical_offset)


def _is_crc_tail(tail: bytes) -> bool:
    return len(tail) == CRC_PROPERTY_BYTES and tail.startswith(_CRC_NAME) and tail.endswith(b"\x02")


def _crc_tail(before: Buffer) -> bytes:
    digits = f"{zlib.crc32(before) & CRC_MASK:010d}"[::-1]
    return _CRC_NAME + digits.encode() + b"\x02"


def filler_bytes(size: int, magic: int) -> int:
    """Return the size of a filler that begins with these numbers, also in a DLedger log; else 0."""
    if magic == MAGIC_BLANK:
        return size
    return magic if size == BLANK_MAGIC else 0


def encode(record: Record, *, append_crc: bool = False) -> bytes:
    """Encode a record; ``total_size`` and ``body_crc`` are computed, not taken from it.

    The hosts decide their width, and the sys_flag bits are set accordingly. ``magic`` chooses the
    version. With ``append_crc`` the properties get RocketMQ 5's CRC tail, which replaces an
    existing one.

    :raises RecordError: if a part does not fit its field, the topic cannot be encoded as UTF-8, a
        port is outside 0..65535, or the magic is not that of a record.
    :raises BadInput: if a host's address is invalid.
    """
    if record.magic not in (MAGIC_V1, MAGIC_V2):
        detail = f"cannot be written with magic {record.magic & 0xFFFFFFFF:#010x}"
        raise RecordError(Reason.MAGIC, detail, record.physical_offset)
    for host in (record.born_host, record.store_host):
        if not 0 <= host.port <= 0xFFFF:
            detail = f"cannot be written with port {host.port}"
            raise RecordError(Reason.HOST, detail, record.physical_offset)
    addresses = [pack_address(host.address) for host in (record.born_host, record.store_host)]
    number = (len(addresses[0]) > 4) + 2 * (len(addresses[1]) > 4)
    sys_flag = record.sys_flag & ~HOST_BITS | number << 4
    topic_length = TOPIC_LENGTH_V2 if record.magic == MAGIC_V2 else TOPIC_LENGTH_V1
    properties = record.properties
    crc_bytes = CRC_PROPERTY_BYTES if append_crc else 0
    if append_crc and _is_crc_tail(properties[-CRC_PROPERTY_BYTES:]):
        properties = properties[:-CRC_PROPERTY_BYTES]
    if append_crc and properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    try:
        topic = record.topic.encode()
        parts = [
            record.body,
            topic_length.pack(len(topic)) + topic,
            PROPERTIES_LENGTH.pack(len(properties) + crc_bytes) + properties,
        ]
        head = HEADS[number].struct.pack(
            HEADS[number].size + sum(map(len, parts)) + crc_bytes,
            record.magic,
            zlib.crc32(record.body) & CRC_MASK,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            sys_flag,
            record.born_timestamp_ms,
            addresses[0],
            record.born_host.port,
            record.store_timestamp_ms,
            addresses[1],
            record.store_host.port,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(record.body),
        )
    except (struct.error, UnicodeEncodeError) as error:
        detail = f"cannot be written: {error}"
        raise RecordError(Reason.SIZE, detail, record.physical_offset) from error
    encoded = b"".join((head, *parts))
    return encoded + _crc_tail(encoded) if append_crc else encoded


def encode_blank(bytes_left: int) -> bytes:
    """Encode the 8 bytes that close a segment in which ``bytes_left`` bytes stay unused."""
    return SIZE_AND_MAGIC.pack(bytes_left, MAGIC_BLANK)


def is_dispatched_to(record: Record, topic: str) -> bool:
    """Return True if the topic is a light topic to which the message was dispatched."""
    is_light = topic.startswith(LMQ_PREFIX)
    return is_light and topic in light_queues(props.parse(decode_utf8(record.properties)))


def light_queues(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the light topics to which a message was dispatched, each with its offset there as
    text.

    The broker counts these offsets separately, and they can be wrong. If the queue has an entry for
    the message, use its offset.
    """
    topics = properties.get(props.MULTI_DISPATCH, "").split(",")
    offsets = properties.get(props.MULTI_QUEUE_OFFSET, "").split(",")
    return dict(zip_longest(topics, offsets[: len(topics)], fillvalue=""))


def message_of(
    record: Record, *, body_limit: int = limits.MAX_BODY_BYTES, origin: Origin | None = None
) -> MessageExt:
    """Return the message in a record, with decompressed body and parsed properties and keys.

    A body that cannot be decompressed within ``body_limit`` bytes is returned as it was stored,
    with ``body_error``. That is not damage: the record is as its producer sent it.
    """
    body, body_error = record.body, None
    if record.sys_flag & COMPRESSED:
        try:
            body = decompress(body, record.sys_flag, body_limit)
        except BodyError as error:
            body_error = str(error)
    properties = props.parse(decode_utf8(record.properties))
    unique_key = properties.get(props.UNIQUE_KEY)
    offset_msg_id = offset_msg_id_of(record.store_host, record.physical_offset)
    cluster, broker = record.origin if origin is None else origin
    # Positional, because keyword arguments would take five times as long.
    return MessageExt(
        record.topic,
        properties.get(props.TAGS),
        props.split_keys(properties.get(props.KEYS)),
        unique_key,
        unique_key or offset_msg_id,
        offset_msg_id,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.total_size,
        record.sys_flag,
        record.flag,
        record.body_crc,
        record.born_timestamp_ms,
        record.born_host,
        record.store_timestamp_ms,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        properties,
        body,
        body_error,
        cluster,
        broker,
    )
