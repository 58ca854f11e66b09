"""Decides whether what a look-up led to is an answer."""

from dataclasses import dataclass

from rocketlens import limits
from rocketlens.formats.commitlog_record import Record
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a message must have to answer a query. ``None`` asks for nothing.

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

    def is_in_time(self, store_timestamp_ms: int) -> bool:
        """Say whether a store time is in the wanted range."""
        return store_timestamp_ms <= self.end and (
            self.begin <= 0 or store_timestamp_ms >= self.begin
        )

    def matches(self, record: Record) -> bool:
        """Say whether a record is an answer."""
        if self.topic is not None and record.topic != self.topic:
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
