"""The request that every source receives, parsed and checked in one place.

A store, a cluster and the command line thus accept the same texts, and reject the same mistakes
with the same errors.

==================  ===========================================================================
kind                text
==================  ===========================================================================
``offset-id``       an offset message id: the broker's address and a physical offset, in hex
``queue-offset``    a queue position, ``TOPIC/QUEUE/OFFSET`` in ASCII digits
``key``             one of a message's keys
``unique-key``      the id that the producer assigned
``auto``            tries each kind that the text can be, in this order, until one is found
==================  ===========================================================================
"""

import re
import time
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self, Unpack

from msgspec import Struct
from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import BadInput, MessageNotFound
from rocketlens.model.arguments import check_int, check_text, epoch_ms
from rocketlens.model.life import KEEPING_TOPICS
from rocketlens.model.message import MessageExt
from rocketlens.model.message_id import OffsetMessageId
from rocketlens.model.rocketmq import is_system_topic, is_topic_name
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.text.time_words import parse_time
from rocketlens.query.lookup.message_filter import KeptFor, MessageFilter
from rocketlens.query.options import KINDS, ContentOptions, Kind, ScanOptions, takes
from rocketlens.query.tally import SearchTally, names_topics
from rocketlens.query.topic_choice import parse_topics

if TYPE_CHECKING:
    from os import PathLike

    from rocketlens.decode.rules import BodyRules
    from rocketlens.query.filters.content_filter import ContentFilter

_LOOKED_UP: Final[tuple[tuple[str, Kind], ...]] = (("unique_key", "unique-key"), ("keys", "key"))
"""Indexed fields that a filter can compare, with their kind of text."""
_NO_KEY: Final = frozenset(" \x01\x02")
"""Characters that no key contains; a comparison with them needs a scan."""
_TOPIC: Final = "topic"
_TAG: Final = "tags"
_QUEUE_ID_DIGITS: Final = 10
_QUEUE_OFFSET_DIGITS: Final = 19
_QUEUE_POSITION: Final = re.compile(
    rf"(?P<topic>.+)/(?P<queue_id>\d{{1,{_QUEUE_ID_DIGITS}}})"
    rf"/(?P<queue_offset>\d{{1,{_QUEUE_OFFSET_DIGITS}}})\Z",
    re.ASCII | re.DOTALL,
)

MAX_TEXTS: Final = 100
"""Texts that are searched from one pasted text: see `rocketlens.query.pasted`."""


class QueuePosition(NamedTuple):
    """A queue and an offset in it."""

    topic: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}/{self.queue_offset}"


class FindRequest(Struct, frozen=True):
    """A query. Without a text, it selects messages by topics, times, tags and content.

    ``topics`` are names and patterns, empty for all topics. Times are store times in epoch
    milliseconds, both included. The newest ``max_num`` messages are returned (None: all), or with
    ``oldest`` the oldest. With ``exhaustive``, sources read whole queues instead of relying on the
    order of store times. Without ``all_topics``, messages of RocketMQ's own topics are counted but
    left out (`rocketlens.query.tally`). Without ``only_delivered``, messages that wait for the
    topics are included (`rocketlens.query.kept`).
    """

    text: str | None = None
    topics: tuple[str, ...] = ()
    kind: Kind = "auto"
    begin: int | None = None
    end: int = limits.MAX_TIMESTAMP_MS
    tags: frozenset[str] | None = None
    max_num: int | None = None
    oldest: bool = False
    exhaustive: bool = False
    content: "ContentFilter | None" = None
    all_topics: bool = False
    only_delivered: bool = False

    @classmethod
    def parse(
        cls,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        *,
        kind: Kind = "auto",
        begin: int | datetime | str | None = None,
        end: int | datetime | str | None = None,
        tag: str | None = None,
        max_num: int | None = None,
        oldest: bool = False,
        exhaustive: bool = False,
        all_topics: bool = False,
        where: str | None = None,
        grep: str | None = None,
        grep_in: Collection[str] = ("body",),
        body_rules: "BodyRules | PathLike[str] | str | None" = None,
        only_delivered: bool = False,
    ) -> Self:
        """Parse the arguments of a search; `FindOptions` describes the keywords.

        ``topic`` is a name, a comma-separated list, or an iterable of names; ``*``, ``?`` and
        ``[ab]`` make a name a pattern. ``tag`` is described in `ScanOptions`. Topics, times, tags
        and keys that ``where`` implies narrow the search: unless it is ``exhaustive``, a single key
        is looked up in the index.

        :raises WrongType: if an argument has the wrong type.
        :raises BadInput: if the text is not of the given ``kind``, a number is negative, or a
            filter, pattern or file of body rules is malformed.
        :raises PackageMissing: if a pattern needs google-re2, which is not installed.
        """
        if kind not in KINDS:
            raise BadInput(f"unknown kind {kind!r}: expected one of {', '.join(KINDS)}")
        low, high = time_range(begin, end)
        request = cls(
            None if text is None else check_text(text, "text"),
            parse_topics(topic),
            kind,
            low,
            high,
            parse_tags(tag),
            check_max_num(max_num),
            oldest,
            exhaustive,
            content_filter(where, grep, grep_in, body_rules),
            all_topics,
            only_delivered,
        )
        request.checked()
        return request._narrow()

    @classmethod
    def parse_scan(
        cls,
        topic: str | Iterable[str] | None = None,
        *,
        exhaustive: bool = False,
        **options: Unpack[ScanOptions],
    ) -> Self:
        """Parse the arguments of a scan, which never uses the index; errors as in `parse`."""
        request = cls.parse(topic=topic, exhaustive=True, only_delivered=True, **options)
        return replace(request, exhaustive=exhaustive)

    @classmethod
    def at(cls, topic: str, queue_id: int, queue_offset: int) -> Self:
        """Return the request for the message at a queue position.

        :raises WrongType: if an argument has the wrong type.
        :raises BadInput: if ``topic`` is not a valid topic name, or a number is negative.
        :raises MessageNotFound: if a number is larger than any queue allows.
        """
        check_int(queue_id, "queue_id")
        check_int(queue_offset, "queue_offset")
        position = QueuePosition(check_text(topic, "topic"), queue_id, queue_offset)
        check_queue_position(position)
        if queue_id >= 10**_QUEUE_ID_DIGITS or queue_offset >= 10**_QUEUE_OFFSET_DIGITS:
            raise MessageNotFound(f"there is no {position}: a number is too large")
        return cls(str(position), kind="queue-offset")

    def _narrow(self) -> Self:
        """Return the request with the conditions that its filter implies."""
        where = None if self.content is None else self.content.where
        if where is None:
            return self
        low, high = where.time_range()
        begin = max((each for each in (self.begin, low) if each is not None), default=None)
        end = self.end if high is None else min(self.end, high)
        topics = where.texts_of(_TOPIC) or frozenset()
        tags = where.texts_of(_TAG)
        narrowed = replace(
            self,
            topics=self.topics or tuple(sorted(topics if all(map(is_topic_name, topics)) else ())),
            begin=begin or None,
            end=max(end, 0),
            tags=tags if self.tags is None else self.tags & (tags or self.tags),
        )
        for name, kind in _LOOKED_UP:
            texts = where.texts_of(name)
            if self.text is None and not self.exhaustive and texts and len(texts) == 1:
                (text,) = texts
                if is_looked_up(text):
                    return replace(narrowed, text=text, kind=kind)
        return narrowed

    @property
    def leaves_out(self) -> bool:
        return not (self.all_topics or names_topics(self.topics))

    def checked(self) -> Self:
        """Return this request if its text matches its kind; errors as in `parse`."""
        if self.text is None:
            return self
        check_key(self.text)
        if self.kind == "offset-id":
            OffsetMessageId.decode(self.text)
        elif self.kind == "queue-offset":
            position = _position_in(self.text)
            if position is None:
                raise BadInput(Sentence("not_a_position", text=repr(self.text[:80])))
            check_queue_position(position)
        return self

    @property
    def query(self) -> str:
        """The query on one line: the filter, the text, or the topics."""
        if self.content is not None:
            return self.content.text
        return ",".join(self.topics) if self.text is None else self.text

    @property
    def offset_msg_id(self) -> OffsetMessageId | None:
        """The text as an offset message id, if it is valid and ``kind`` allows it."""
        if self.text is None or self.kind not in {"auto", "offset-id"}:
            return None
        try:
            return OffsetMessageId.decode(self.text)
        except BadInput:
            return None

    @property
    def queue_position(self) -> QueuePosition | None:
        """The text as a queue position, if it is valid and ``kind`` allows it.

        For the kind ``auto``, the caller must check that the topic exists.
        """
        if self.text is None or self.kind not in {"auto", "queue-offset"}:
            return None
        position = _position_in(self.text)
        return position if position and is_topic_name(position.topic) else None

    @property
    def is_key(self) -> bool:
        return self.text is not None and self.kind in {"auto", "key", "unique-key"}

    @property
    def asks_for_kept(self) -> bool:
        """Whether to search messages that brokers keep for the topics (`rocketlens.query.kept`)."""
        return (
            bool(self.topics)
            and not (self.only_delivered or self.kind == "queue-offset")
            and not all(map(is_system_topic, self.topics))
            and KEEPING_TOPICS.isdisjoint(self.topics)
        )

    def filter_of(
        self,
        tally: SearchTally,
        topics: Collection[str] = (),
        *,
        with_key: bool = False,
        with_kept: bool = False,
        is_identified: bool = False,
    ) -> MessageFilter:
        """Return the filter for messages of some topics, or of all topics.

        ``tally`` is that of the search (`Findings.tally`). ``with_kept``: also match messages that
        brokers keep for the topics. ``is_identified``: the request is for one message by its id or
        position, so messages of RocketMQ's own topics match, too.
        """
        kept = None
        if with_kept:
            kept = KeptFor(KEEPING_TOPICS.difference(topics), self.topics)
            topics = kept.topics.union(topics)
        key = self.text if with_key and self.kind != "unique-key" else None
        unique_key = self.text if with_key and self.kind != "key" else None
        single = next(iter(topics)) if len(topics) == 1 else None
        several = frozenset(topics) if len(topics) > 1 else None
        return MessageFilter(
            single,
            key,
            unique_key,
            self.begin,
            self.end,
            self.tags,
            several,
            content=self.content,
            leaves_out=not is_identified and self.leaves_out,
            kept=kept,
            tally=tally,
        )


def name_of(message: MessageExt) -> tuple[str, Kind]:
    """Return a text, with its kind, that finds exactly this message."""
    if message.offset_msg_id:
        return message.offset_msg_id, "offset-id"
    return message.position, "queue-offset"


class StoryRequest(Struct, frozen=True):
    """The request for a story; `rocketlens.query.options.StoryOptions` has the keywords."""

    message: FindRequest
    trace_topic: str | None = None
    group: str | None = None
    one: bool = False

    @classmethod
    def parse(
        cls,
        text: str,
        topic: str | Iterable[str] | None = None,
        *,
        kind: Kind = "auto",
        trace_topic: str | None = None,
        group: str | None = None,
        one: bool = False,
    ) -> Self:
        """Parse the arguments of a story; errors as in `FindRequest.parse`."""
        return cls(
            FindRequest.parse(check_text(text, "text"), topic, kind=kind, all_topics=True),
            None if trace_topic is None else check_text(trace_topic, "trace_topic"),
            None if group is None else check_text(group, "group"),
            one,
        )


def content_filter(
    where: str | None = None,
    grep: str | None = None,
    grep_in: Collection[str] = ("body",),
    body_rules: "BodyRules | PathLike[str] | str | None" = None,
) -> "ContentFilter | None":
    """Return the filter on the content of messages, or None without ``where`` and ``grep``.

    Keywords as in `rocketlens.query.options.ContentOptions`, errors as in `FindRequest.parse`.
    """
    if where is None and grep is None:
        return None
    # Late: searches without content conditions need no decoders.
    from rocketlens.query.filters.content_filter import ContentFilter, check_grep_in, rules_of
    from rocketlens.query.filters.pattern import TextPattern
    from rocketlens.query.filters.where import parse_where

    return ContentFilter(
        None if where is None else parse_where(where),
        None if grep is None else TextPattern(grep),
        check_grep_in(grep_in),
        rules_of(body_rules),
    )


@takes(ContentOptions, content_filter)
def tail_filter(
    topic: str,
    *,
    begin: int | datetime | str | None = None,
    tags: str | None = None,
    sql: str | None = None,
    key: str | None = None,
    **content: Unpack[ContentOptions],
) -> MessageFilter:
    """Return the filter of one topic; keywords as in `rocketlens.query.options.TailOptions`.

    :raises BadInput: if ``tags`` has no tag, ``sql`` (InvalidSql92) or a content condition is
        malformed, or the key is empty or too long.
    """
    expression = None
    if sql is not None:
        # Late: few commands need it.
        from rocketlens.model.sql92 import parse_sql92

        expression = parse_sql92(check_text(sql, "sql"))
    if key is not None:
        check_key(check_text(key, "key"))
    return MessageFilter(
        topic=topic,
        tags=None if tags is None else _some_tags(check_text(tags, "tags")),
        expression=expression,
        key=key,
        unique_key=key,
        begin=time_range(begin, None)[0],
        content=content_filter(**content),
        tally=SearchTally(),
    )


def _some_tags(text: str) -> frozenset[str] | None:
    tags = parse_tags(text)
    if tags is None or tags - {""}:
        return tags and tags - {""}
    raise BadInput(Sentence("no_tag_named", text=repr(text[:80])))


def time_range(
    begin: int | datetime | str | None, end: int | datetime | str | None
) -> tuple[int | None, int]:
    """Return both times in epoch milliseconds. A ``begin`` of None or 0 is no bound.

    :raises WrongType: if a time is neither an int, nor a datetime, nor a str.
    :raises BadInput: if a time is negative or cannot be parsed.
    """
    low = 0 if begin is None else moment_ms(begin, "begin")
    high = limits.MAX_TIMESTAMP_MS if end is None else moment_ms(end, "end", is_end=True)
    for name, value in (("begin", low), ("end", high)):
        if value < 0:
            raise BadInput(f"{name} is {value}: times are epoch milliseconds, not negative")
    return low or None, high


def moment_ms(value: int | datetime | str, name: str, *, is_end: bool = False) -> int:
    """Return a time in epoch milliseconds: an int, a datetime, or a text such as ``2h``.

    `rocketlens.model.text.time_words` describes the texts. A day alone is its start, or with
    ``is_end`` its end.

    :raises WrongType: if it has another type.
    :raises BadInput: if a text cannot be parsed, or a number looks like seconds.
    """
    if isinstance(value, str):
        return parse_time(value, name, is_end=is_end, now_ms=time.time_ns() // 1_000_000)
    return epoch_ms(value, name)


def is_looked_up(text: str) -> bool:
    """Return whether a key in a filter can be looked up in the index."""
    return bool(text) and not set(text) & _NO_KEY


def parse_tags(tag: str | None) -> frozenset[str] | None:
    """Parse a tag expression; None means every tag.

    :raises WrongType: if it is not a str.
    """
    if tag is None or check_text(tag, "tag").strip() == "*":
        return None
    return frozenset(part.strip() for part in tag.split("||"))


def check_max_num(max_num: int | None) -> int | None:
    """Check a number of messages; None means all.

    :raises WrongType: if it is not an int.
    :raises BadInput: if it is negative.
    """
    if max_num is not None and check_int(max_num, "max_num") < 0:
        raise BadInput(f"max_num is {max_num}: pass how many messages to return, or None for all")
    return max_num


def check_key(key: str) -> None:
    """Check a key or id.

    :raises BadInput: if it is empty, or longer than the properties of a record.
    """
    if not key:
        raise BadInput("the key is empty: pass the order number or id the message was sent with")
    size = len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))
    if size > limits.MAX_KEY_BYTES:
        limit = f"{limits.MAX_KEY_BYTES:,}"
        raise BadInput(Sentence("long_key", size=f"{size:,}", limit=limit, count=MAX_TEXTS))


def check_queue_position(position: QueuePosition) -> None:
    """Check a queue position.

    :raises BadInput: if the topic is not a valid topic name, or a number is negative.
    """
    topic, queue_id, queue_offset = position
    if not is_topic_name(topic):
        raise BadInput(Sentence("invalid_topic", name=repr(topic[:80])))
    if queue_id < 0 or queue_offset < 0:
        raise BadInput(f"queue {queue_id}, offset {queue_offset}: expected 0 or more")


def _position_in(text: str) -> QueuePosition | None:
    match = _QUEUE_POSITION.match(text)
    if match is None:
        return None
    return QueuePosition(match["topic"], int(match["queue_id"]), int(match["queue_offset"]))
