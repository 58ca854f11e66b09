"""Decides whether what a look-up led to is an answer."""

from dataclasses import dataclass
from typing import Final

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import PROPERTIES_LENGTH, Record, RecordView
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8

_PROPERTIES_LENGTH_BYTES: Final = PROPERTIES_LENGTH.size
_PROPERTY_END: Final = 2


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a message must have to answer a query. None asks for nothing.

    ``topic`` is the one it must have, ``topics`` are those of which it must have one.
    ``key`` must be one of its keys, or (``unique_key`` likewise) its unique key; with both given
    one of the two is enough. Times are store times in epoch milliseconds, both ends included.
    Without a ``begin`` there is no lower bound: a damaged clock can make a negative store time.
    """

    topic: str | None = None
    key: str | None = None
    unique_key: str | None = None
    begin: int | None = None
    end: int = limits.MAX_TIMESTAMP_MS
    tags: frozenset[str] | None = None
    topics: frozenset[str] | None = None

    @property
    def index_key(self) -> str:
        """The text that is looked up in an index."""
        return self.key or self.unique_key or ""

    def takes_topic(self, topic: str) -> bool:
        """Return whether messages of a topic can match."""
        return (self.topic is None or topic == self.topic) and (
            self.topics is None or topic in self.topics
        )

    def is_in_time(self, store_timestamp_ms: int) -> bool:
        """Return whether a store time is in the range."""
        return store_timestamp_ms <= self.end and (
            self.begin is None or store_timestamp_ms >= self.begin
        )

    def matches(self, record: Record) -> bool:
        """Return whether a record is an answer."""
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


class FastPathMatcher:
    """Recognizes the usual answer to a look-up by key, at a fifth of the cost of decoding it.

    What it does not recognize may be an answer all the same: properties out of the ordinary are
    left to :func:`rocketlens.formats.commitlog_record.decode`.
    """

    def __init__(self, message_filter: MessageFilter) -> None:
        """Prepare for one look-up; one without a topic and a key recognizes nothing."""
        begin = message_filter.begin
        self._begin = -limits.MAX_TIMESTAMP_MS - 1 if begin is None else begin
        self._end = message_filter.end
        self._topic = (message_filter.topic or "").encode("utf-8", "replace")
        named = (
            (props.KEYS, message_filter.key, True),
            (props.UNIQUE_KEY, message_filter.unique_key, False),
        )
        self._keys = [
            (name.encode() + b"\x01", key.encode(), is_list)
            for name, key, is_list in named
            if key and key.isascii()
        ]
        if not self._topic or message_filter.tags is not None:
            self._keys = []

    def record_size_if_match(self, view: memoryview, position: int, physical_offset: int) -> int:
        """Return the size of the record at ``position`` of ``view`` if it is an answer, else 0."""
        if not self._keys:
            return 0
        try:
            record = RecordView(view, position, physical_offset)
            topic, topic_start = self._topic, record.topic_start
            if (
                record.topic_stop - topic_start != len(topic)
                or not self._begin <= record.store_timestamp_ms <= self._end
            ):
                return 0
            tail = bytes(view[topic_start : record.stop])
            properties_start = len(topic) + _PROPERTIES_LENGTH_BYTES
            if not tail.startswith(topic) or not self._has_key(tail, properties_start):
                return 0
            record.check_crc()
        except RecordError:
            return 0
        return record.total_size

    def _has_key(self, tail: bytes, properties_start: int) -> bool:
        for name, key, is_list in self._keys:
            at = tail.find(name, properties_start)
            if (
                at < 0
                or (at > properties_start and tail[at - 1] != _PROPERTY_END)
                or tail.find(name, at + 1) >= 0
            ):
                continue
            at += len(name)
            stop = tail.find(_PROPERTY_END, at)
            value = tail[at:] if stop < 0 else tail[at:stop]
            if key in value.split(b" ") if is_list else key == value:
                return True
        return False
