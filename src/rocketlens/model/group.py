"""Consumer and producer groups of a cluster or a store."""

from collections.abc import Iterator

from msgspec import Struct

from rocketlens.model.answer import Coverage, ListAnswer
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.model.tables import utc_time


class GroupClient(Struct, frozen=True):
    """A connected client of a group; ``version`` is RocketMQ's number for its release."""

    client_id: str
    address: str
    language: str | None
    version: int


class GroupQueue(Struct, frozen=True):
    """A group's progress in one queue; ``broker_name`` is None in a store."""

    topic: str
    broker_name: str | None
    queue_id: int
    max_offset: int
    """The offset of the queue's next message."""
    consumer_offset: int
    """The offset of the next message to consume; negative if the group has no offset."""
    last_consumed_ms: int | None
    """Store time of the last consumed message, in epoch milliseconds, if known."""
    min_offset: int = 0
    """The offset of the queue's oldest message, for a queue without an offset of the group."""

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed; all messages if the group has no offset."""
        return max(0, self.max_offset - max(self.min_offset, self.consumer_offset))


class FoundGroup(Struct, frozen=True):
    """A consumer group. A field is None if it could not be read, or if no file contains it."""

    name: str
    members: tuple[GroupClient, ...] | None
    message_model: str | None
    """``CLUSTERING`` or ``BROADCASTING``; brokers store no offsets for the latter."""
    subscriptions: dict[str, str] | None
    """The subscriptions of its members: expressions by topic."""
    queues: tuple[GroupQueue, ...] | None
    """The queues with offsets of the group, retry topics included, by topic, broker and queue id.
    """
    dead_letters: int | None
    """The number of messages in its dead letter topic."""
    last_dead_letter_ms: int | None = None
    """Store time of the newest dead letter, in epoch milliseconds, if known."""

    @property
    def lag(self) -> int | None:
        """The number of messages that are not consumed, without retries."""
        return self._lag(is_retry=False)

    @property
    def to_retry(self) -> int | None:
        """The number of messages in its retry topics that are not consumed again."""
        return self._lag(is_retry=True)

    @property
    def last_consumed_ms(self) -> int | None:
        """Store time of the newest consumed message, in epoch milliseconds."""
        times = [each.last_consumed_ms for each in self.queues or () if each.last_consumed_ms]
        return max(times, default=None)

    def behind_ms(self, now_ms: int) -> int | None:
        """Return the age in milliseconds of the last consumed message of the slowest queue.

        0 if everything is consumed, None if unknown.
        """
        if self.queues is None:
            return None
        lagging = [each for each in self.queues if each.lag]
        times = [each.last_consumed_ms for each in lagging if each.last_consumed_ms]
        if not lagging:
            return 0
        return max(0, now_ms - min(times)) if times else None

    def _lag(self, *, is_retry: bool) -> int | None:
        if self.queues is None:
            return None
        # No group has offsets in the retry topic of another.
        return sum(
            each.lag for each in self.queues if each.topic.startswith(RETRY_PREFIX) is is_retry
        )


class GroupsAnswer(ListAnswer[FoundGroup], Struct, frozen=True):
    """Groups in the order of their names, with the sources that were searched."""

    _field = "groups"
    _noun = "group"
    _titles = ("group", "members", "lag", "to_retry", "dead_letters", "last_consumed")
    groups: tuple[FoundGroup, ...]
    coverage: tuple[Coverage, ...]

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for each in self.groups:
            yield (
                *(each.name, None if each.members is None else len(each.members), each.lag),
                *(each.to_retry, each.dead_letters, utc_time(each.last_consumed_ms)),
            )


class ProducerGroup(Struct, frozen=True):
    """A group of producers, with its connected clients."""

    name: str
    members: tuple[GroupClient, ...]


class ProducersAnswer(ListAnswer[ProducerGroup], Struct, frozen=True):
    """Groups of producers in the order of their names, with the brokers that were asked."""

    _field = "groups"
    _noun = "group"
    groups: tuple[ProducerGroup, ...]
    coverage: tuple[Coverage, ...]
