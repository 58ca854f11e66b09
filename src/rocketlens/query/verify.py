"""Decides whether what a look-up led to is an answer."""

from dataclasses import dataclass
from typing import Final

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import PROPERTIES_LENGTH, Record, RecordView
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8


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

    What it does not recognize may be an answer all the same: properties out of the ordinary are
    left to :func:`rocketlens.formats.commitlog_record.decode`.
    """

    _LIST_NAME: Final = props.KEYS.encode() + b"\x01"

    def __init__(self, wanted: Wanted) -> None:
        """Prepare for one look-up; one without a topic and a key recognizes nothing."""
        self._begin = wanted.begin if wanted.begin > 0 else -limits.MAX_TIMESTAMP_MS - 1
        self._end = wanted.end
        self._topic = (wanted.topic or "").encode("utf-8", "replace")
        named = ((props.KEYS, wanted.key), (props.UNIQUE_KEY, wanted.unique_key))
        self._keys = [
            (name.encode() + b"\x01", key.encode()) for name, key in named if key and key.isascii()
        ]
        if not self._topic or wanted.tags is not None:
            self._keys = []

    def size_at(self, view: memoryview, position: int, physical_offset: int) -> int:
        """Return the size of the record at ``position`` of ``view`` if it is an answer, else 0."""
        if not self._keys:
            return 0
        try:
            record = RecordView(view, position, physical_offset)
            if (
                not self._begin <= record.store_timestamp_ms <= self._end
                or record.topic_stop - record.topic_start != len(self._topic)
                or not self._is_wanted(bytes(view[record.topic_start : record.stop]))
            ):
                return 0
            record.check_crc()
        except RecordError:
            return 0
        return record.total_size

    def _is_wanted(self, topic_and_properties: bytes) -> bool:
        if not topic_and_properties.startswith(self._topic):
            return False
        properties = topic_and_properties[len(self._topic) + PROPERTIES_LENGTH.size :]
        for name, key in self._keys:
            at = properties.find(name)
            if at < 0 or properties.find(name, at + 1) >= 0 or (at and properties[at - 1] != 2):
                continue
            value = properties[at + len(name) :].partition(b"\x02")[0]
            if key in (value.split(b" ") if name == self._LIST_NAME else (value,)):
                return True
        return False
