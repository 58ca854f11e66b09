"""One record of the commit log, which is also one message in a pull or query reply.

All integers big endian and signed. ``H`` is 4 for an IPv4 and 16 for an IPv6 host; offsets are
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

sys_flag: 0x1 body compressed, 0x2 several tags, 0xC transaction (0 none, 4 prepared, 8 commit,
0xC rollback), 0x10 born host is IPv6, 0x20 store host is IPv6, 0x700 compression kind.

A segment file ends with ``{i32 bytes left, i32 0xCBD43194}`` where the next record did not fit;
zeros follow the last record of the log.

With RocketMQ 5's ``enabledAppendPropCRC`` the properties end with ``__CRC32#`` U+0001, ten digits
of the CRC-32 of all bytes before (least significant digit first), U+0002.

Drawbacks to know: no checksum covers the header, topic and properties (unless the last is on), so
damage there shows only by contradiction; the size word is the only way to the next record.
Source: ``CommitLog.checkMessageAndReturnSize``, ``MessageDecoder.decode``.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rocketlens import limits
from rocketlens.errors import BodyError, RecordError
from rocketlens.formats.body_compression import decompress
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8
from rocketlens.model.message import Host, MessageExt
from rocketlens.model.message_id import OffsetMessageId, address_text, pack_address
from rocketlens.model.rocketmq import CRC_MASK, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

CRC_PROPERTY_BYTES: Final = 20
_CRC_NAME: Final = props.CRC32.encode() + b"\x01"

HEAD: Final = struct.Struct(">iiiiiqqiq")
"""total_size .. born_timestamp_ms: 48 bytes."""
STORE_TIMESTAMP: Final = struct.Struct(">q")
PORT: Final = struct.Struct(">i")
RETRY: Final = struct.Struct(">iqi")
"""reconsume_times, prepared_transaction_offset, body length: 16 bytes."""
TOPIC_LENGTH_V1: Final = struct.Struct(">b")
TOPIC_LENGTH_V2: Final = struct.Struct(">h")
PROPERTIES_LENGTH: Final = struct.Struct(">h")
SIZE_AND_MAGIC: Final = struct.Struct(">ii")

MIN_RECORD_BYTES: Final = 91
"""Bytes of a V1 record over IPv4 with empty body, topic and properties."""

MAX_TOPIC_BYTES_V1: Final = 127
"""Longest topic of a V1 record in UTF-8 bytes: its length is a signed byte."""


class Reason(StrEnum):
    """Why bytes are not a record."""

    END = "end"
    """Zeros, or no bytes at all: nothing was written here."""
    BLANK = "blank"
    """The filler at the end of a segment: go on with the next segment."""
    MAGIC = "magic"
    SIZE = "size"
    """The size word is too small, too large, or not the sum of the parts."""
    POSITION = "position"
    """The record says that it belongs elsewhere: stale bytes, or a forgery."""
    CRC = "crc"
    """The shape is whole, but the body (or the properties) are not what was stored."""
    HOST = "host"
    """A port outside 0..65535."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as stored. ``body`` may be compressed; ``properties`` are raw UTF-8 bytes."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes

    @property
    def offset_msg_id(self) -> str:
        """The id that the broker gave it, upper-case hex."""
        return OffsetMessageId(self.store_host, self.physical_offset).encode()


def decode(
    buffer: bytes | memoryview,
    position: int = 0,
    *,
    physical_offset: int | None = None,
    check_crc: bool = True,
) -> Record:
    """Read the record that begins at ``position`` of ``buffer``.

    ``physical_offset``: what the record must claim as its own, when that is known.

    :raises RecordError: with the reason, when the bytes are not one whole record. Nothing outside
        the record's own size is ever read.
    """
    view = memoryview(buffer)
    total_size, magic = _size_and_magic(view, position, physical_offset)
    record = view[position : position + total_size]
    head = HEAD.unpack_from(record)
    sys_flag = head[7]
    if physical_offset is not None and head[6] != physical_offset:
        detail = f"claims to belong at {head[6]}"
        raise RecordError(Reason.POSITION, detail, physical_offset)
    cursor = HEAD.size
    born_host, cursor = _host(record, cursor, sys_flag & SYS_FLAG_BORN_HOST_V6, physical_offset)
    (store_timestamp_ms,) = STORE_TIMESTAMP.unpack_from(record, cursor)
    cursor += STORE_TIMESTAMP.size
    store_host, cursor = _host(record, cursor, sys_flag & SYS_FLAG_STORE_HOST_V6, physical_offset)
    reconsume_times, prepared_offset, body_length = RETRY.unpack_from(record, cursor)
    body, cursor = _part(record, cursor + RETRY.size, body_length, physical_offset)
    topic_length, cursor = _length(
        record, cursor, TOPIC_LENGTH_V2 if magic == MAGIC_V2 else TOPIC_LENGTH_V1, physical_offset
    )
    topic, cursor = _part(record, cursor, topic_length, physical_offset)
    properties_length, cursor = _length(record, cursor, PROPERTIES_LENGTH, physical_offset)
    properties, cursor = _part(record, cursor, properties_length, physical_offset)
    if cursor != total_size:
        detail = f"says {total_size} bytes, its parts add up to {cursor}"
        raise RecordError(Reason.SIZE, detail, physical_offset)
    if check_crc:
        _check_crc(record, head[2], body, properties, physical_offset)
    return Record(
        total_size=total_size,
        magic=magic,
        body_crc=head[2],
        queue_id=head[3],
        flag=head[4],
        queue_offset=head[5],
        physical_offset=head[6],
        sys_flag=sys_flag,
        born_timestamp_ms=head[8],
        born_host=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body=bytes(body),
        topic=decode_utf8(bytes(topic)),
        properties=bytes(properties),
    )


def _size_and_magic(
    view: memoryview, position: int, physical_offset: int | None
) -> tuple[int, int]:
    left = len(view) - position
    if left < SIZE_AND_MAGIC.size:
        raise RecordError(Reason.END, "the log ends here", physical_offset)
    total_size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
    if magic == MAGIC_BLANK:
        raise RecordError(Reason.BLANK, "the segment ends here", physical_offset)
    if magic not in (MAGIC_V1, MAGIC_V2):
        if total_size == 0 and magic == 0:
            raise RecordError(Reason.END, "nothing was written here", physical_offset)
        detail = f"begins with magic {magic & 0xFFFFFFFF:#010x}, which is no record's"
        raise RecordError(Reason.MAGIC, detail, physical_offset)
    if not MIN_RECORD_BYTES <= total_size <= min(left, limits.MAX_RECORD_BYTES):
        detail = f"says {total_size} bytes where {left} are left"
        raise RecordError(Reason.SIZE, detail, physical_offset)
    return total_size, magic


def _host(
    record: memoryview, cursor: int, is_v6: int, physical_offset: int | None
) -> tuple[Host, int]:
    length = 16 if is_v6 else 4
    end = cursor + length + PORT.size
    if end > len(record) - RETRY.size:
        raise RecordError(Reason.SIZE, "too short for its hosts", physical_offset)
    (port,) = PORT.unpack_from(record, cursor + length)
    if not 0 <= port <= 0xFFFF:
        raise RecordError(Reason.HOST, f"names port {port}", physical_offset)
    return Host(address_text(bytes(record[cursor : cursor + length])), port), end


def _length(
    record: memoryview, cursor: int, field: struct.Struct, physical_offset: int | None
) -> tuple[int, int]:
    if cursor + field.size > len(record):
        raise RecordError(Reason.SIZE, "ends inside its own parts", physical_offset)
    return field.unpack_from(record, cursor)[0], cursor + field.size


def _part(
    record: memoryview, cursor: int, length: int, physical_offset: int | None
) -> tuple[memoryview, int]:
    if not 0 <= length <= len(record) - cursor:
        detail = f"has a part of {length} bytes where {len(record) - cursor} are left"
        raise RecordError(Reason.SIZE, detail, physical_offset)
    return record[cursor : cursor + length], cursor + length


def _check_crc(
    record: memoryview,
    body_crc: int,
    body: memoryview,
    properties: memoryview,
    physical_offset: int | None,
) -> None:
    if len(body) and zlib.crc32(body) & CRC_MASK != body_crc:
        raise RecordError(Reason.CRC, "its body does not have its checksum", physical_offset)
    tail = bytes(properties[-CRC_PROPERTY_BYTES:])
    if _is_crc_tail(tail) and tail != _crc_tail(record[:-CRC_PROPERTY_BYTES]):
        raise RecordError(Reason.CRC, "it does not have its own checksum", physical_offset)


def _is_crc_tail(tail: bytes) -> bool:
    return len(tail) == CRC_PROPERTY_BYTES and tail.startswith(_CRC_NAME) and tail.endswith(b"\x02")


def _crc_tail(before: bytes | memoryview) -> bytes:
    digits = f"{zlib.crc32(before) & CRC_MASK:010d}"[::-1]
    return _CRC_NAME + digits.encode() + b"\x02"


def encode(record: Record, *, append_crc: bool = False) -> bytes:
    """Write a record; ``total_size`` and ``body_crc`` are computed, not taken from it.

    Which host width is written follows the hosts themselves; the sys_flag bits are set to agree.
    ``magic`` chooses the version. With ``append_crc`` the properties get RocketMQ 5's CRC tail, in
    place of one that they end with.

    :raises RecordError: when a part does not fit its field, the topic is no text that UTF-8 can
        write, a port is outside 0..65535, or the magic is not a record's.
    :raises BadInput: when a host's address is none.
    """
    if record.magic not in (MAGIC_V1, MAGIC_V2):
        detail = f"cannot be written with magic {record.magic & 0xFFFFFFFF:#010x}"
        raise RecordError(Reason.MAGIC, detail, record.physical_offset)
    for host in (record.born_host, record.store_host):
        if not 0 <= host.port <= 0xFFFF:
            detail = f"cannot be written with port {host.port}"
            raise RecordError(Reason.HOST, detail, record.physical_offset)
    born, store = pack_address(record.born_host.address), pack_address(record.store_host.address)
    sys_flag = record.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
    sys_flag |= SYS_FLAG_BORN_HOST_V6 if len(born) > 4 else 0
    sys_flag |= SYS_FLAG_STORE_HOST_V6 if len(store) > 4 else 0
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
            b"",
            born + PORT.pack(record.born_host.port),
            STORE_TIMESTAMP.pack(record.store_timestamp_ms),
            store + PORT.pack(record.store_host.port),
            RETRY.pack(
                record.reconsume_times, record.prepared_transaction_offset, len(record.body)
            ),
            record.body,
            topic_length.pack(len(topic)) + topic,
            PROPERTIES_LENGTH.pack(len(properties) + crc_bytes) + properties,
        ]
        total_size = HEAD.size + sum(map(len, parts)) + crc_bytes
        parts[0] = HEAD.pack(
            total_size,
            record.magic,
            zlib.crc32(record.body) & CRC_MASK,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            sys_flag,
            record.born_timestamp_ms,
        )
    except (struct.error, UnicodeEncodeError) as error:
        detail = f"cannot be written: {error}"
        raise RecordError(Reason.SIZE, detail, record.physical_offset) from error
    encoded = b"".join(parts)
    return encoded + _crc_tail(encoded) if append_crc else encoded


def encode_blank(bytes_left: int) -> bytes:
    """Write the 8 bytes that close a segment in which ``bytes_left`` bytes stay unused."""
    return SIZE_AND_MAGIC.pack(bytes_left, MAGIC_BLANK)


def message_of(record: Record, *, body_limit: int = limits.MAX_BODY_BYTES) -> MessageExt:
    """Return the message in a record: body decompressed, properties and keys taken apart.

    A body that cannot be decompressed within ``body_limit`` bytes is as it is stored, and
    ``body_error`` says why. That is no damage: the record is as its producer sent it.
    """
    body, body_error = record.body, None
    try:
        body = decompress(body, record.sys_flag, body_limit)
    except BodyError as error:
        body_error = str(error)
    properties = props.parse(decode_utf8(record.properties))
    unique_key = properties.get(props.UNIQUE_KEY)
    offset_msg_id = record.offset_msg_id
    return MessageExt(
        topic=record.topic,
        tags=properties.get(props.TAGS),
        keys=props.split_keys(properties.get(props.KEYS)),
        unique_key=unique_key,
        msg_id=unique_key or offset_msg_id,
        offset_msg_id=offset_msg_id,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=record.total_size,
        sys_flag=record.sys_flag,
        flag=record.flag,
        body_crc=record.body_crc,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        properties=properties,
        body=body,
        body_error=body_error,
    )
