"""Topics as they are found: in a cluster, or in the files of a store."""

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
    """Messages that a consumer group is to be given again."""
    DEAD_LETTER = "dead_letter"
    """Messages that a consumer group gave up."""
    SYSTEM = "system"
    """RocketMQ's own: brokers refuse to create, change or delete it."""
    LIGHT = "light"
    """A light message queue, as a lite topic has one: its messages are those of other topics."""

    @classmethod
    def of(cls, topic: str) -> "TopicKind":
        """Return the kind of a topic."""
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
    """The offset of the queue's next message."""
    oldest_ms: int | None = None
    """Store time of the oldest message, in epoch milliseconds; None if unknown or without one."""
    newest_ms: int | None = None
    """Store time of the newest message, in epoch milliseconds; None if unknown or without one."""
    size_bytes: int | None = None
    """Bytes of its messages in the log; None in a cluster, whose brokers do not tell."""
    missing: int = 0
    """Messages between the two offsets that an archive does not have."""

    @property
    def messages(self) -> int:
        """The number of messages that are not deleted."""
        return max(0, self.max_offset - self.min_offset - self.missing)


class LiteTopics(Struct, frozen=True):
    """The lite topics of one parent topic: number, time to live, groups."""

    count: int | None
    """Their number, one on two brokers twice; None if it could not be learnt."""
    ttl_minutes: int
    """How long one stays after its last message; -1 for ever."""
    groups: tuple[str, ...]
    """The consumer groups that are bound to the parent."""


class FoundTopic(Struct, frozen=True):
    """A topic, as a store or a cluster has it."""

    name: str
    queues: tuple[TopicQueue, ...] | None
    """By broker and queue id; None when a broker or a file could not be read, and of a topic that
    only the log names."""
    is_deleted: bool = False
    """Only the log of a store names it: its broker deleted it, and messages may be left."""
    is_of_broker: bool = False
    """A broker created it by itself, under its own name or its cluster's."""
    lite: LiteTopics | None = None
    """Of the parent of lite topics: see `rocketlens.lite_topic` for their names."""

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
        """Bytes of its messages in the log."""
        sizes = [queue.size_bytes for queue in self.queues or ()]
        known_sizes = [size for size in sizes if size is not None]
        return (
            sum(known_sizes) if self.queues is not None and len(known_sizes) == len(sizes) else None
        )

    @property
    def oldest_ms(self) -> int | None:
        """Store time of its oldest message, in epoch milliseconds."""
        return min(_known(queue.oldest_ms for queue in self.queues or ()), default=None)

    @property
    def newest_ms(self) -> int | None:
        """Store time of its newest message, in epoch milliseconds."""
        return max(_known(queue.newest_ms for queue in self.queues or ()), default=None)


class TopicsAnswer(ListAnswer[FoundTopic], Struct, frozen=True):
    """Topics in the order of their names, and where they were looked for."""

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
    """The configuration of a topic on one broker, or in the files of a store; None is what could
    not be learnt.
    """

    broker_name: str | None
    """None in a store."""
    perm: int | None
    """What may be done with its queues, a sum: 4 read, 2 write, 1 inherit."""
    read_queues: int | None
    """The number of queues that consumers are given."""
    write_queues: int | None
    """The number of queues that producers are given."""
    is_ordered: bool | None = None
    attributes: Mapping[str, str] | None = None
    """RocketMQ 5's, such as ``message.type``."""
    error: str | None = None
    """Why the broker did not say it; what is known is then from the name servers."""


def _known(times_ms: Iterable[int | None]) -> Iterator[int]:
    return (each for each in times_ms if each is not None)
