"""Settings of consumers, checked when they are made.

An `AllocateStrategy` says which member of a group has which queues. Every member computes it by
itself, with the same result: all sort queues and client ids as Java does, so members in Python and
Java share a topic without a gap or an overlap, once they see the same members and queues. Sources:
``AllocateMessageQueueAveragely``, ``AllocateMessageQueueAveragelyByCircle``,
``MessageQueue.compareTo``, ``String.compareTo``.
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
"""Calls of a listener at once. RocketMQ: 20 threads."""
MAX_CONSUME_CONCURRENCY: Final = 1_000
"""The same, at most. RocketMQ: 1,000."""
MAX_CONSUME_BATCH: Final = 1_024
"""Messages of one call of a listener, at most. RocketMQ: 1,024."""
MAX_CACHED_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all queues that a consumer holds; an empty one is pulled all the same. RocketMQ: any."""
MAX_CACHED_MESSAGES: Final = 10_000
"""Messages of all queues together that a lite pull consumer holds. RocketMQ: 10,000."""
_INSTANCE_NAME: Final = re.compile(r"[A-Za-z0-9_.#-]{1,200}")

Begin = Literal["last", "first", "timestamp"]

BEGINS: Final = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "timestamp": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
}
AllocateStrategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Of a client id, all queues of a topic and all client ids of the group, both in Java's order."""


class ConsumerSettings(ConnectionSettings, frozen=True, kw_only=True):
    """The settings of push and of lite pull consumers."""

    group: str
    broadcasting: bool = False
    """Every member gets all messages, and keeps its own offsets."""
    begin: Begin = "last"
    """Where a new group begins: at the last offset, the first, or at a time."""
    begin_timestamp_ms: int | None = None
    """That time, a store time in epoch milliseconds; None for half an hour before the start."""
    pull_batch: int = limits.MAX_PULL_MESSAGES
    max_cached_messages_of_queue: int = MAX_QUEUE_CACHED_MESSAGES
    max_cached_bytes_of_queue: int = MAX_QUEUE_CACHED_BYTES
    max_span_of_queue: int = MAX_QUEUE_SPAN
    max_cached_bytes: int = MAX_CACHED_BYTES
    allocate: AllocateStrategy | None = None
    """How members share the queues; None for averagely."""
    instance_name: str | None = None
    offsets_directory: str | PathLike[str] | None = None
    """Where a broadcasting consumer keeps its offsets; None for ``~/.rocketmq_offsets``."""
    trace: bool | str = False
    """Write message trace to RocketMQ's own topic, or to the one that it names."""

    def __post_init__(self) -> None:
        """Check the settings.

        :raises BadInput: if one is not valid.
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
        """How queues are shared; None if every member has all queues."""
        return None if self.broadcasting else self.allocate or allocate_averagely


class PushSettings(ConsumerSettings, frozen=True, kw_only=True):
    """The settings of a push consumer beside these."""

    concurrency: int = DEFAULT_CONSUME_CONCURRENCY
    """How many calls of the listener run at once."""
    batch: int = 1
    """Up to how many messages of one queue a call gets."""
    max_reconsume_times: int | None = None
    """After so many failures a message is a dead letter; None for 16, and for never in order."""
    record_failures: bool = True
    """Say in a property of a retry and a dead letter why the listener failed."""
    consume_timeout_s: float = timing.CONSUME_TIMEOUT_S
    close_timeout_s: float = timing.CONSUMER_CLOSE_S
    """How long ``close`` waits for listeners."""

    def __post_init__(self) -> None:
        ConsumerSettings.__post_init__(self)
        check_range("concurrency", self.concurrency, MAX_CONSUME_CONCURRENCY)
        check_range("batch", self.batch, MAX_CONSUME_BATCH)


class LitePullSettings(ConsumerSettings, frozen=True, kw_only=True):
    """The settings of a lite pull consumer beside these."""

    auto_commit: bool = True
    """Store what was polled every 5 s; otherwise ``commit`` alone does."""
    max_cached_messages: int = MAX_CACHED_MESSAGES


def check_range(name: str, value: int, maximum: int) -> None:
    """Check that a number is from 1 to ``maximum``.

    :raises BadInput: if it is not.
    """
    if not 1 <= check_int(value, name) <= maximum:
        raise BadInput(f"{name} {value}: expected 1 to {maximum}")


def java_text_order(text: str) -> bytes:
    """Return a key that sorts texts as Java does: by UTF-16 units, not by characters."""
    return text.encode("utf-16-be", "surrogatepass")


def in_java_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues as Java sorts them: by topic, broker name and number."""
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
    """Return a run of queues for each member; the first members have one more. The default."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, remainder = divmod(len(queues), len(client_ids))
    if len(queues) <= len(client_ids):
        share, has_more = 1, index < remainder
    else:
        has_more = index < remainder
        share += has_more
    start = index * share if remainder and has_more else index * share + remainder
    return list(queues[start : start + min(share, max(0, len(queues) - start))])


def allocate_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return every n-th queue for each of n members."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


_OR: Final = "||"


class MessageSelector(Struct, frozen=True):
    """What a group subscribes to: tags, or an SQL92 expression that brokers evaluate.

    =====================  ==============================  ======================================
    given                  on the wire (``subString``)     messages that the group gets
    =====================  ==============================  ======================================
    nothing, "", "*"       ``*``                           all
    ``"A || B"``           as given, with ``tagsSet``      with the tag A or B
    ``by_sql("a > 3")``    as given, type ``SQL92``        for which brokers find it true
    =====================  ==============================  ======================================

    Brokers compare hash codes of tags only, so a client compares the tags once more. Source:
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

        A broker of RocketMQ evaluates it only with ``enablePropertyFilter=true``.
        """
        return cls(SQL92_TYPE, expression)


def subscription_of(
    topic: str, selector: str | MessageSelector | None, version: int
) -> SubscriptionData:
    """Return the subscription to a topic; ``version`` is the time at which it was made, in ms.

    :raises BadInput: when the expression is empty where it may not be, or has nothing but ``||``.
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


def takes_tag(subscription: SubscriptionData, tag: str | None) -> bool:
    """Return whether a message of this tag, which the broker let pass, is for the group."""
    return not subscription.tags or tag in subscription.tags
