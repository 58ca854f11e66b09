"""The body of a batch send: a sequence of members, each a small message.

The broker stores one ordinary record per member. Only for a topic with ``queue.type=BatchCQ``
(RocketMQ 5), it stores all as one record, with a flag: see `records_in`. All integers are
big-endian and signed.

======  =====  ================  ===========================================================
offset  type   field             notes
======  =====  ================  ===========================================================
0       i32    total_size        of this member, these 4 bytes included
4       i32    magic             0
8       i32    body_crc          0: the broker computes it
12      i32    flag              the producer's own
16      i32+n  body              never compressed
20      i16+n  properties        stored as they are, without the broker's additions
======  =====  ================  ===========================================================

Source: ``MessageDecoder.encodeMessage``, and ``decodeMessage`` for records.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from rocketlens.errors import BodyError, FormatError
from rocketlens.formats.body_compression import COMPRESSED, TYPE_MASK, decompress
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.rocketmq import CRC_MASK, SYS_FLAG_INNER_BATCH, SYS_FLAG_NEED_UNWRAP

HEAD: Final = struct.Struct(">iiiii")
"""total_size .. body length: 20 bytes."""
PROPERTIES_LENGTH: Final = struct.Struct(">h")
HEAD_BYTES: Final = HEAD.size
FLAG_AT, BODY_LENGTH_AT = 12, 16
PROPERTIES_LENGTH_BYTES: Final = PROPERTIES_LENGTH.size
MIN_MEMBER_BYTES: Final = HEAD_BYTES + PROPERTIES_LENGTH_BYTES


class BatchMember(NamedTuple):
    """One message of a batch; ``properties`` are raw UTF-8 bytes."""

    flag: int
    body: bytes
    properties: bytes


def encode(members: Iterable[BatchMember]) -> bytes:
    """Encode members in order.

    :raises FormatError: if a part of a member does not fit its field: properties of more than
        32,767 bytes, a flag beyond 32 bits.
    """
    parts: list[bytes] = []
    for member in members:
        size = MIN_MEMBER_BYTES + len(member.body) + len(member.properties)
        try:
            head = HEAD.pack(size, 0, 0, member.flag, len(member.body))
            tail = PROPERTIES_LENGTH.pack(len(member.properties))
        except struct.error as error:
            raise FormatError(f"batch member {len(parts)} cannot be written: {error}") from error
        parts.append(head + member.body + tail + member.properties)
    return b"".join(parts)


def decode(body: bytes | memoryview) -> Iterator[BatchMember]:
    """Read the members in order, lazily; raise FormatError if one is truncated or contradictory."""
    view = memoryview(body)
    start = 0
    while start < len(view):
        remaining = len(view) - start
        if remaining < MIN_MEMBER_BYTES:
            raise FormatError(f"batch ends inside a member at byte {start}")
        total_size, _magic, _crc, flag, body_length = HEAD.unpack_from(view, start)
        properties_length = total_size - MIN_MEMBER_BYTES - body_length
        if not (body_length >= 0 and properties_length >= 0 and total_size <= remaining):
            raise FormatError(f"batch member at byte {start}: sizes {total_size} and {body_length}")
        body_end = start + HEAD.size + body_length
        if PROPERTIES_LENGTH.unpack_from(view, body_end)[0] != properties_length:
            message = f"batch member at byte {start}: its parts do not add up to {total_size}"
            raise FormatError(message)
        yield BatchMember(
            flag,
            bytes(view[start + HEAD.size : body_end]),
            bytes(view[body_end + PROPERTIES_LENGTH.size : start + total_size]),
        )
        start += total_size


def message_at(record: Record, queue_offset: int) -> Record | None:
    """Return the message of a record that has a queue offset: the record, or one of a batch."""
    messages = records_in(record) or (record,)
    return next((each for each in messages if each.queue_offset == queue_offset), None)


def message_count(record: Record) -> int:
    """Return the number of messages in a record: 1 if it is not a batch."""
    return len(records_in(record)) or 1


def records_in(record: Record) -> tuple[Record, ...]:
    """Return the messages of a batch record as records; empty for any other record.

    They have the batch's position in the log and its size, and consecutive queue offsets. Also
    empty if its body cannot be parsed.
    """
    if not record.sys_flag & SYS_FLAG_INNER_BATCH:
        return ()
    try:
        members = tuple(decode(decompress(record.body, record.sys_flag)))
    except (BodyError, FormatError):
        return ()
    sys_flag = record.sys_flag & ~(
        SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP | COMPRESSED | TYPE_MASK
    )
    return tuple(
        replace(
            record,
            sys_flag=sys_flag,
            queue_offset=record.queue_offset + number,
            body_crc=zlib.crc32(member.body) & CRC_MASK,
            **member._asdict(),
        )
        for number, member in enumerate(members)
    )
