"""Decides if a candidate of a look-up matches: by its record in the log, not by the index.

============================================  ==================================================
content of the log at the offset              result
============================================  ==================================================
a record that matches                         it is an answer
a record that does not match                  the index entry must belong to another key, or else
                                              the index file is corrupt
a damaged record that would match             a failure: the answer is incomplete
bytes that are not a record                   a failure, if the index entry is valid
deleted                                       ignored
============================================  ==================================================
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import (
    Origin,
    Reason,
    Record,
    RecordView,
    decode,
    light_queues,
)
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import LMQ_PREFIX, SYS_FLAG_INNER_BATCH, is_internal_topic
from rocketlens.model.text.java import decode_utf8
from rocketlens.query.tally import SearchTally

if TYPE_CHECKING:
    from rocketlens.model.sql92 import Sql92
    from rocketlens.query.filters.content_filter import ContentFilter
    from rocketlens.store.read.index.index_files import Hit
    from rocketlens.store.read.log.commitlog import CommitLog

_NO_CONDITIONS: Final = (None,) * 4


class KeptFor(NamedTuple):
    """The topics in which brokers keep messages for other topics."""

    topics: frozenset[str]
    names: tuple[str, ...]
    """Names and patterns of the target topics."""

    def takes(self, record: Record | RecordView) -> bool:
        real = props.parse(decode_utf8(record.properties)).get(props.REAL_TOPIC, "")
        return any(fnmatchcase(real, each) for each in self.names)


class MessageFilter(Struct, frozen=True):
    """Conditions for messages; None means no condition.

    A message must have the ``topic``, and one of the ``topics``. ``light`` are the light topics
    (``%LMQ%...``) among these, whose messages are in other topics. ``expression`` must be true for
    its properties, and ``content`` must accept it. With ``leaves_out``, messages of RocketMQ's own
    topics do not match and are counted in ``tally``. ``key`` must be one of its keys, or
    ``unique_key`` its unique key. In the topics of ``kept``, only messages for its names match.

    Times are store times in epoch milliseconds, both included. A ``begin`` of None is no bound: a
    broken clock can cause negative store times.
    """

    topic: str | None = None
    key: str | None = None
    unique_key: str | None = None
    begin: int | None = None
    end: int = limits.MAX_TIMESTAMP_MS
    tags: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    expression: "Sql92 | None" = None
    content: "ContentFilter | None" = None
    leaves_out: bool = False
    kept: KeptFor | None = None
    tally: SearchTally | None = None
    light: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        topics = (self.topic or "",) if self.topics is None else (self.topic or "", *self.topics)
        light = frozenset([topic for topic in topics if topic.startswith(LMQ_PREFIX)])
        if light != self.light:
            force_setattr(self, "light", light)

    def at(self, origin: Origin) -> "MessageFilter":
        content = self.content
        return self if content is None else replace(self, content=replace(content, origin=origin))

    @property
    def reads_records(self) -> bool:
        """Whether properties or bodies matter, besides topic and store time."""
        conditions = (self.key, self.unique_key, self.tags, self.expression, self.content)
        return bool(self.light) or any(each is not None for each in conditions)

    @property
    def counts_nothing(self) -> bool:
        """Whether messages that an answer drops can be skipped without counting them."""
        return self.content is None and not self.leaves_out

    @property
    def record_topics(self) -> frozenset[str] | None:
        """The topics of matching records; None for any topic."""
        if self.light:
            return None
        return self.topics if self.topic is None else frozenset((self.topic,))

    @property
    def reads_body(self) -> bool:
        return self.content is not None and self.content.reads_body

    @property
    def index_key(self) -> str:
        return self.key or self.unique_key or ""

    def takes_topic(self, topic: str) -> bool:
        return bool(self.light) or (
            (self.topic is None or topic == self.topic)
            and (self.topics is None or topic in self.topics)
        )

    def is_of_topics(self, record: Record | RecordView) -> bool:
        """Return whether a record is in one of the topics, or kept for one."""
        topic = record.topic
        if self.kept is not None and topic in self.kept.topics:
            return self.kept.takes(record)
        return self.takes_topic(topic)

    def is_in_time(self, store_timestamp_ms: int) -> bool:
        return store_timestamp_ms <= self.end and (
            self.begin is None or store_timestamp_ms >= self.begin
        )

    def matches(self, record: Record | RecordView) -> bool:
        """Return whether a record matches. The content is checked last.

        A batch matches if one of its messages does: see `matching_in`.
        """
        if record.sys_flag & SYS_FLAG_INNER_BATCH:
            whole = record if isinstance(record, Record) else decode(record.buffer, record.start)
            members = self._members(whole)
            if members:
                # The producer received the id of the batch.
                is_itself = self.content is None and self.may_match(record)
                return is_itself or any(map(self._matches_itself, members))
        return self._matches_itself(record)

    def _matches_itself(self, record: Record | RecordView) -> bool:
        return self.may_match(record) and (
            self.content is None or self.content.passes(record, self.tally or SearchTally())
        )

    def matching_in(self, record: Record) -> Sequence[Record]:
        """Return the matching messages of a batch; for other records, the record itself."""
        if not record.sys_flag & SYS_FLAG_INNER_BATCH:
            return (record,)
        matches = [each for each in self._members(record) if self._matches_itself(each)]
        return matches or [record]

    def _members(self, record: Record) -> tuple[Record, ...]:
        """Return the messages of a batch; empty if it cannot be unpacked, which is counted."""
        members = records_in(record)
        if members or self.tally is None:
            return members
        if self.takes_topic(record.topic) and self.is_in_time(record.store_timestamp_ms):
            self.tally.add_batch(record)
        return ()

    def may_match(self, record: Record | RecordView) -> bool:
        """Return whether a record matches all conditions except ``content``."""
        # Times first: decoding a topic costs more.
        stored_ms = record.store_timestamp_ms
        if stored_ms > self.end or (self.begin is not None and stored_ms < self.begin):
            return False
        if not self.is_of_topics(record) or not self._has_properties(record):
            return False
        if not self.leaves_out:
            return True
        if self.tally is None:
            return not is_internal_topic(record.topic)
        return not self.tally.is_internal(record)

    def _has_properties(self, record: Record | RecordView) -> bool:
        conditions = (self.key, self.unique_key, self.tags, self.expression)
        if not self.light and conditions == _NO_CONDITIONS:
            return True
        properties = props.parse(decode_utf8(record.properties))
        if self.light:
            named = {self.topic} if self.topics is None else self.topics
            if record.topic not in named and self.light.isdisjoint(light_queues(properties)):
                return False
        if self.tags is not None and properties.get(props.TAGS) not in self.tags:
            return False
        if self.expression is not None and not self.expression.passes(properties):
            return False
        if self.key is None and self.unique_key is None:
            return True
        return (
            self.unique_key is not None and properties.get(props.UNIQUE_KEY) == self.unique_key
        ) or (self.key is not None and self.key in props.split_keys(properties.get(props.KEYS)))


def check_entry(log: "CommitLog", hit: "Hit | None") -> None:
    """Check that an index entry without a matching record belongs to another key.

    ``hit`` is None for entries of the tail, which was read from the log.

    :raises CorruptIndexFile: if the entry contradicts the log.
    """
    if hit is None:
        return
    try:
        hit.file.check_entry(log, hit.number)
    except IndexFileError as error:
        from rocketlens.store.read.index.index_files import CorruptIndexFile

        raise CorruptIndexFile(hit.file, error) from error


def read_candidate(
    log: "CommitLog",
    message_filter: MessageFilter,
    offset: int,
    hit: "Hit | None",
    failures: list[str],
    *,
    min_offset: int | None = None,
) -> Record | None:
    """Return the record at an offset if it matches; add damage to ``failures``.

    Records before ``min_offset`` (default: the current start of the log) are deleted.

    :raises CorruptIndexFile: if the index entry contradicts the log.
    """
    try:
        record = log.record_at(offset)
    except RecordError as error:
        if offset < (log.min_offset if min_offset is None else min_offset):
            return None
        if error.reason != Reason.CRC:
            check_entry(log, hit)
            failures.append(str(error))
        elif message_filter.may_match(log.record_at(offset, check_crc=False)):
            failures.append(str(error))
        return None
    if message_filter.matches(record):
        return record
    check_entry(log, hit)
    return None
