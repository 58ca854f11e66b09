"""Consumer settings, subscriptions, and strategies that share queues among members.

Each member of a group computes its queues itself with an `AllocateStrategy`. All sort queues and
client ids as Java does, so members in Python and Java divide a topic without a gap or an overlap as
soon as they see the same members and queues. Sources: ``AllocateMessageQueueAveragely``,
``AllocateMessageQueueAveragelyByCircle``, ``MessageQueue.compareTo``, ``String.compareTo``.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Final, Literal, Self

from msgspec import Struct

from rocketlens import limits
from rocketlens.client.connect.connection_settings import ConnectionSettings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.process_queue import (
    MAX_QUEUE_CACHED_BYTES,
    MAX_QUEUE_CACHED_MESSAGES,
    MAX_QUEUE_SPAN,
)
from rocketlens.errors import BadInput
from rocketlens.model.arguments import check_int, check_text
from rocketlens.model.rocketmq import ALL_TAGS, SQL92_TYPE, TAG_TYPE, group_problem
from rocketlens.model.text.java import string_hash
from rocketlens.wire.bodies.clients import ConsumeFromWhere, SubscriptionData

DEFAULT_CONSUME_CONCURRENCY: Final = 20
"""Concurrent listener calls. RocketMQ: 20 threads."""
MAX_CONSUME_CONCURRENCY: Final = 1_000
"""The largest number of concurrent listener calls. RocketMQ: 1,000."""
MAX_CONSUME_BATCH: Final = 1_024
"""The largest number of messages in one listener call. RocketMQ: 1,024."""
MAX_CACHED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all queues that a consumer holds; an empty queue is still pulled. RocketMQ: any."""
MAX_CACHED_MESSAGES: Final = 10_000
"""Messages of all queues that a lite pull consumer holds. RocketMQ: 10,000."""
_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_.#-]{1,200}")

Begin = Literal["last", "first", "timestamp"]

BEGINS: Final = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "timestamp": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}
AllocateStrategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Takes a client id, a topic's queues and the group's client ids, both in Java's order."""


class ConsumerSettings(ConnectionSettings, frozen=True, kw_only=True):
    """The settings of push and of lite pull consumers."""

    group: str
    broadcasting: bool = False
    """Every member gets all messages and keeps its own offsets."""
    begin: Begin = "last"
    """The start of a new group: the last offset, the first one, or a time."""
    begin_timestamp_ms: int | None = None
    """That time, a store time in epoch milliseconds; None for 30 minutes before the start."""
    pull_batch: int = limits.MAX_PULL_MESSAGES
    max_cached_messages_of_queue: int = MAX_QUEUE_CACHED_MESSAGES
    max_cached_bytes_of_queue: int = MAX_QUEUE_CACHED_BYTES
    max_span_of_queue: int = MAX_QUEUE_SPAN
    max_cached_bytes: int = MAX_CACHED_BYTES
    allocate: AllocateStrategy | None = None
    """The strategy that shares the queues; None for averagely."""
    instance_name: str | None = None
    offsets_directory: str | PathLike[str] | None = None
    """Directory of a broadcasting consumer's offsets; None for ``~/.rocketmq_offsets``."""
    trace: bool | str = False
    """Write message trace to RocketMQ's trace topic, or to the named topic."""

    def __post_init__(self) -> None:
        """Check the settings.

        :raises BadInput: if a setting is not valid.
        """
        check_range("pull_batch", self.pull_batch, limits.MAX_PULL_BATCH)
        if self.begin not in BEGINS:
            raise BadInput(f"begin {self.begin!r}: expected one of {', '.join(BEGINS)}")
        problem = group_problem(check_text(self.group, "group"))
        if problem is not None:
            raise BadInput(problem)
        if self.begin_timestamp_ms is not None:
            check_int(self.begin_timestamp_ms, "begin_timestamp_ms")
        if self.instance_name is not None and not _INSTANCE_NAME.fullmatch(self.instance_name):
            raise BadInput(f"instance_name {self.instance_name!r}: use letters, digits and _ . # -")

    @property
    def strategy(self) -> AllocateStrategy | None:
        """The allocation strategy; None if every member has all queues."""
        return None if self.broadcasting else self.allocate or allocate_averagely


class PushSettings(ConsumerSettings, frozen=True, kw_only=True):
    """Additional settings of a push consumer."""

    concurrency: int = DEFAULT_CONSUME_CONCURRENCY
    batch: int = 1
    """The largest number of messages of one queue in a call."""
    max_reconsume_times: int | None = None
    """Failures before a message becomes a dead letter; None for 16, in order for never."""
    record_failures: bool = True
    """Record the listener's failure in a property of retries and dead letters."""
    consume_timeout_s: float = timing.CONSUME_TIMEOUT_S
    close_timeout_s: float = timing.CONSUMER_CLOSE_S
    """Seconds that ``close`` waits for listeners."""

    def __post_init__(self) -> None:
        ConsumerSettings.__post_init__(self)
        check_range("concurrency", self.concurrency, MAX_CONSUME_CONCURRENCY)
        check_range("batch", self.batch, MAX_CONSUME_BATCH)


class LitePullSettings(ConsumerSettings, frozen=True, kw_only=True):
    """Additional settings of a lite pull consumer."""

    auto_commit: bool = True
    """Commit polled messages every 5 s; otherwise only ``commit`` does."""
    max_cached_messages: int = MAX_CACHED_MESSAGES


def check_range(name: str, value: int, maximum: int) -> None:
    """Check that a number is from 1 to ``maximum``.

    :raises BadInput: if it is not.
    """
    if not 1 <= check_int(value, name) <= maximum:
        raise BadInput(f"{name} {value}: expected 1 to {maximum}")


def java_text_order(text: str) -> bytes:
    """Return a sort key for Java's order, which compares UTF-16 units, not characters."""
    return text.encode("utf-16-be", "surrogatepass")


def in_java_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    return sorted(
        queues,
        key=lambda each: (
            java_text_order(each.topic),
            java_text_order(each.broker_name),
            each.queue_id,
        ),
    )


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return a run of consecutive queues; the first members get one more. The default strategy."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, remainder = divmod(len(queues), len(client_ids))
    start = index * share + min(index, remainder)
    return list(queues[start : start + share + (index < remainder)])


def allocate_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return every n-th queue for each of n members."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


_OR: Final = "||"


class MessageSelector(Struct, frozen=True):
    """A subscription expression: tags, or an SQL92 expression that brokers evaluate.

    =====================  ==============================  ======================================
    argument               on the wire (``subString``)     messages that the group gets
    =====================  ==============================  ======================================
    nothing, "", "*"       ``*``                           all
    ``"A || B"``           as given, with ``tagsSet``      with the tag A or B
    ``by_sql("a > 3")``    as given, type ``SQL92``        those for which the expression is true
    =====================  ==============================  ======================================

    Brokers compare only hash codes of tags, so the client compares the tags again. Source:
    ``FilterAPI``, ``MessageSelector``, ``PullAPIWrapper``.
    """

    expression_type: str
    expression: str

    @classmethod
    def by_tag(cls, tags: str) -> Self:
        """Return a selector of tags, such as ``"TagA || TagB"``; ``"*"`` for all."""
        return cls(TAG_TYPE, tags)

    @classmethod
    def by_sql(cls, expression: str) -> Self:
        """Return a selector by properties, such as ``"amount > 10 AND region = 'EU'"``.

        RocketMQ's brokers evaluate it only with ``enablePropertyFilter=true``.
        """
        return cls(SQL92_TYPE, expression)


def subscription_of(
    topic: str, selector: str | MessageSelector | None, version: int
) -> SubscriptionData:
    """Return the subscription to a topic; ``version`` is its creation time in ms.

    :raises BadInput: if an SQL92 expression is empty, or a tag expression names no tag.
    """
    if selector is None or isinstance(selector, str):
        selector = MessageSelector(TAG_TYPE, selector or ALL_TAGS)
    if not isinstance(selector, MessageSelector):
        check_text(selector, "expression")
    text = selector.expression
    if selector.expression_type != TAG_TYPE:
        if not text:
            raise BadInput(f"topic {topic}: the {selector.expression_type} expression is empty")
        kind = selector.expression_type
        return SubscriptionData(
            topic=topic, sub_string=text, sub_version=version, expression_type=kind
        )
    if text in {"", ALL_TAGS}:
        return SubscriptionData(topic=topic, sub_string=ALL_TAGS, sub_version=version)
    # Java's trim() removes all control characters, and Java's sets keep each tag once.
    blanks = "".join(map(chr, range(0x21)))
    tags = tuple(dict.fromkeys(filter(None, (part.strip(blanks) for part in text.split(_OR)))))
    if not tags:
        raise BadInput(f"topic {topic}: {text!r} names no tag; give tags such as 'TagA || TagB'")
    return SubscriptionData(
        topic=topic,
        sub_string=text,
        tags=tags,
        codes=tuple(dict.fromkeys(map(string_hash, tags))),
        sub_version=version,
    )


def matches_tag(subscription: SubscriptionData, tag: str | None) -> bool:
    """Return True if the tag is subscribed; brokers compare only its hash code."""
    return not subscription.tags or tag in subscription.tags
