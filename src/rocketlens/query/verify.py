"""Decides whether what a look-up led to is an answer."""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from rocketlens import limits
from rocketlens.formats.commitlog_record import (
    MAGIC_V1,
    MAX_TOPIC_BYTES_V1,
    PROPERTIES_LENGTH,
    Record,
)
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8
from rocketlens.model.rocketmq import CRC_MASK, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a message must have to answer a query. ``None`` asks for nothing.

    ``topic`` is the one it must have, ``topics`` are those of which it must have one.
    ``key`` must be one of its keys, or (``unique_key`` likewise) its unique key; with both given
    one of the two is enough. Times are store times in epoch milliseconds, both ends included;
    a ``begin`` of 0 or less is none: a damaged clock can make a message older than that.
    """

    topic: str | None = None
    key: str | None = None
    unique_key: str | None = None
    begin: int = 0
    end: int = limits.MAX_TIMESTAMP_MS
    tags: frozenset[str] | None = None
    topics: frozenset[str] | None = None

    def takes_topic(self, topic: str) -> bool:
        """Return whether messages of a topic can be wanted."""
        return (self.topic is None or topic == self.topic) and (
            self.topics is None or topic in self.topics
        )

    def is_in_time(self, store_timestamp_ms: int) -> bool:
        """Say whether a store time is in the wanted range."""
        return store_timestamp_ms <= self.end and (
            self.begin <= 0 or store_timestamp_ms >= self.begin
        )

    def matches(self, record: Record) -> bool:
        """Say whether a record is an answer."""
        if not self.takes_topic(record.topic):
            return False
        if not self.is_in_time(record.store_timestamp_ms):
            return False
        if self.key is None and self.unique_key is None and self.tags is None:
            return True
        properties = props.parse(decode_utf8(record.properties))
        if self.tags is not None and properties.get(props.TAGS) not in self.tags:
            return False
        if self.key is None and self.unique_key is None:
            return True
        return (
            self.unique_key is not None and properties.get(props.UNIQUE_KEY) == self.unique_key
        ) or (self.key is not None and self.key in props.split_keys(properties.get(props.KEYS)))


class SureMatch:
    """Recognizes the usual answer to a look-up by key, at a fifth of the cost of decoding it.

    What it does not recognize may be an answer all the same: versions, hosts and properties out of
    the ordinary are left to :func:`rocketlens.formats.commitlog_record.decode`.
    """

    _HEAD: Final = struct.Struct(">iii16xqi8x4xiq4xi12xi")
    """Of a record over IPv4: total_size, magic, body_crc, physical_offset, sys_flag, born port,
    store_timestamp_ms, store port, body length."""
    _CHECKSUM_NAME: Final = props.CRC32.encode()
    _LIST_NAME: Final = props.KEYS.encode() + b"\x01"

    def __init__(self, wanted: Wanted) -> None:
        """Prepare for one look-up; one without a topic and a key recognizes nothing."""
        self._begin = wanted.begin if wanted.begin > 0 else -limits.MAX_TIMESTAMP_MS - 1
        self._end = wanted.end
        topic = (wanted.topic or "").encode("utf-8", "replace")
        self._topic = bytes([len(topic)]) + topic if 0 < len(topic) <= MAX_TOPIC_BYTES_V1 else b""
        named = ((props.KEYS, wanted.key), (props.UNIQUE_KEY, wanted.unique_key))
        self._keys = [
            (name.encode() + b"\x01", key.encode()) for name, key in named if key and key.isascii()
        ]
        if wanted.tags is not None:
            self._keys = []

    def size_at(self, view: memoryview, place: int, physical_offset: int) -> int:
        """Give the size of the record at ``place`` of ``view`` if it is an answer; else 0."""
        if not self._topic or place + self._HEAD.size > len(view):
            return 0
        head: tuple[int, ...] = self._HEAD.unpack_from(view, place)
        size, magic, body_crc, claimed, sys_flag, born_port, stored_ms, port, body_length = head
        body_at = place + self._HEAD.size
        body_stop, stop = body_at + body_length, place + size
        if (
            magic != MAGIC_V1
            or claimed != physical_offset
            or sys_flag & (SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
            or not 0 <= born_port <= limits.MAX_PORT
            or not 0 <= port <= limits.MAX_PORT
            or not body_at <= body_stop < stop <= len(view)
            or not self._begin <= stored_ms <= self._end
            or not self._is_wanted(bytes(view[body_stop:stop]))
            or (body_length and zlib.crc32(view[body_at:body_stop]) & CRC_MASK != body_crc)
        ):
            return 0
        return size

    def _is_wanted(self, behind_body: bytes) -> bool:
        """Look at topic and properties, with their lengths, which must fill what is behind."""
        topic = self._topic
        start = len(topic) + PROPERTIES_LENGTH.size
        properties = behind_body[start:]
        if (
            not behind_body.startswith(topic)
            or len(behind_body) < start
            or PROPERTIES_LENGTH.unpack_from(behind_body, len(topic))[0] != len(properties)
            or self._CHECKSUM_NAME in properties
        ):
            return False
        for name, key in self._keys:
            at = properties.find(name)
            if at < 0 or properties.find(name, at + 1) >= 0 or (at and properties[at - 1] != 2):
                continue
            value = properties[at + len(name) :].partition(b"\x02")[0]
            if key in (value.split(b" ") if name == self._LIST_NAME else (value,)):
                return True
        return False
