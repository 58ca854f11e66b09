"""Topics of a cluster or a store."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from rocketlens.model.answer import Coverage, ListAnswer
from rocketlens.model.rocketmq import (
    DEAD_LETTER_PREFIX,
    HEARTBEAT_TOPIC,
    LMQ_PREFIX,
    RETRY_PREFIX,
    is_system_topic,
)
from rocketlens.model.tables import utc_time


class TopicKind(StrEnum):
    """The purpose of a topic, by its name."""

    NORMAL = "normal"
    RETRY = "retry"
    """Messages that a consumer group receives again."""
    DEAD_LETTER = "dead_letter"
    """Messages that a consumer group failed to consume."""
    SYSTEM = "system"
    """RocketMQ's own: brokers refuse to create, change or delete it."""
    LIGHT = "light"
    """A light message queue, such as that of a lite topic; its messages are in other topics."""

    @classmethod
    def of(cls, topic: str) -> "TopicKind":
        if topic.startswith(RETRY_PREFIX):
            return cls.RETRY
        if topic.startswith(DEAD_LETTER_PREFIX):
            return cls.DEAD_LETTER
        if topic.startswith(LMQ_PREFIX):
            return cls.LIGHT
        is_system = topic == HEARTBEAT_TOPIC or is_system_topic(topic)
        return cls.SYSTEM if is_system else cls.NORMAL


class TopicQueue(Struct, frozen=True):
    """One queue of a topic. ``broker_name`` is None in a store."""

    broker_name: str | None
    queue_id: int
    min_offset: int
    """The offset of the oldest message that is not deleted."""
    max_offset: int
    """The offset of the next message."""
    oldest_ms: int | None = None
    """Store time of the oldest message, in epoch milliseconds; None if unknown or empty."""
    newest_ms: int | None = None
    """Store time of the newest message, in epoch milliseconds; None if unknown or empty."""
    size_bytes: int | None = None
    """Bytes of its messages in the log; None in a cluster, whose brokers do not report it."""
    missing: int = 0
    """Messages between the two offsets that an archive lacks."""

    @property
    def messages(self) -> int:
        """The number of messages that are not deleted."""
        return max(0, self.max_offset - self.min_offset - self.missing)


class LiteTopics(Struct, frozen=True):
    """The lite topics of one parent topic."""

    count: int | None
    """The number of lite topics, counted per broker; None if it could not be read."""
    ttl_minutes: int
    """The lifetime after the last message; -1 for unlimited."""
    groups: tuple[str, ...]
    """The consumer groups that are bound to the parent."""


class FoundTopic(Struct, frozen=True):
    """A topic of a store or a cluster."""

    name: str
    queues: tuple[TopicQueue, ...] | None
    """By broker and queue id; None if a broker or file could not be read, and for a topic that only
    the log names."""
    is_deleted: bool = False
    """The broker deleted the topic, but the log still names it and may contain its messages."""
    is_of_broker: bool = False
    """A broker created it for itself, with its own name or its cluster's."""
    lite: LiteTopics | None = None
    """Set for a parent of lite topics; `rocketlens.lite_topic` returns their names."""

    @property
    def kind(self) -> TopicKind:
        """The purpose of the topic."""
        return TopicKind.of(self.name)

    @property
    def messages(self) -> int | None:
        """The number of messages in its queues."""
        return None if self.queues is None else sum(queue.messages for queue in self.queues)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of its messages in the log; None if unknown for a queue."""
        sizes = None if self.queues is None else [each.size_bytes for each in self.queues]
        return None if sizes is None or None in sizes else sum(size or 0 for size in sizes)

    @property
    def oldest_ms(self) -> int | None:
        """Store time of its oldest message, in epoch milliseconds."""
        return min(_known(queue.oldest_ms for queue in self.queues or ()), default=None)

    @property
    def newest_ms(self) -> int | None:
        """Store time of its newest message, in epoch milliseconds."""
        return max(_known(queue.newest_ms for queue in self.queues or ()), default=None)


class TopicsAnswer(ListAnswer[FoundTopic], Struct, frozen=True):
    """Topics in the order of their names, with the sources that were searched."""

    _field = "topics"
    _noun = "topic"
    _titles = ("topic", "queues", "messages", "oldest", "newest", "size_bytes")
    topics: tuple[FoundTopic, ...]
    coverage: tuple[Coverage, ...]

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for each in self.topics:
            yield (
                *(each.name, None if each.queues is None else len(each.queues), each.messages),
                *(utc_time(each.oldest_ms), utc_time(each.newest_ms), each.size_bytes),
            )


class TopicSettings(Struct, frozen=True):
    """The configuration of a topic on one broker or in a store. Unknown values are None."""

    broker_name: str | None
    """None in a store."""
    perm: int | None
    """The permission of its queues, a sum: 4 read, 2 write, 1 inherit."""
    read_queues: int | None
    """The number of queues that consumers read."""
    write_queues: int | None
    """The number of queues that producers write to."""
    is_ordered: bool | None = None
    attributes: Mapping[str, str] | None = None
    """Attributes of RocketMQ 5, such as ``message.type``."""
    error: str | None = None
    """Why the broker did not answer; known values are then from the name servers."""


def _known(times_ms: Iterable[int | None]) -> Iterator[int]:
    return (each for each in times_ms if each is not None)
