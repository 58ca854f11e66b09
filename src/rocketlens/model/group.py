"""Consumer groups as they are found: in a cluster, or in the files of a store."""

from collections.abc import Iterator

from msgspec import Struct

from rocketlens.model.answer import Coverage, ListAnswer
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.model.tables import utc_time


class GroupClient(Struct, frozen=True):
    """A client of a group that is online; ``version`` is RocketMQ's number of its release."""

    client_id: str
    address: str
    language: str | None
    version: int


class GroupQueue(Struct, frozen=True):
    """The progress of a group in one queue. ``broker_name`` is None in a store."""

    topic: str
    broker_name: str | None
    queue_id: int
    max_offset: int
    """The offset of the queue's next message."""
    consumer_offset: int
    """Where the group goes on; negative if it has no offset."""
    last_consumed_ms: int | None
    """Store time of the last message that it consumed, in epoch milliseconds, where known."""
    min_offset: int = 0
    """The offset of the queue's oldest message, of a queue without an offset of the group."""

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed; of a group without an offset, all."""
        return max(0, self.max_offset - max(self.min_offset, self.consumer_offset))


class FoundGroup(Struct, frozen=True):
    """A consumer group. None stands for values that could not be read, or that no file has."""

    name: str
    members: tuple[GroupClient, ...] | None
    message_model: str | None
    """``CLUSTERING`` or ``BROADCASTING``: then brokers have no offsets of it."""
    subscriptions: dict[str, str] | None
    """What its members subscribe to: expressions by topic."""
    queues: tuple[GroupQueue, ...] | None
    """Its queues with offsets, its retry topics' included, by topic, broker and queue id."""
    dead_letters: int | None
    """Messages in its dead letter topic."""
    last_dead_letter_ms: int | None = None
    """Store time of the newest of them, in epoch milliseconds, where known."""

    @property
    def lag(self) -> int | None:
        """Messages of its topics that it has not consumed, without those to be retried."""
        return self._lag(is_retry=False)

    @property
    def to_retry(self) -> int | None:
        """Messages in its retry topics that it has not consumed again."""
        return self._lag(is_retry=True)

    @property
    def last_consumed_ms(self) -> int | None:
        """Store time of the newest message that it consumed, in epoch milliseconds."""
        times = [each.last_consumed_ms for each in self.queues or () if each.last_consumed_ms]
        return max(times, default=None)

    def behind_ms(self, now_ms: int) -> int | None:
        """Return how old the message is that it consumed last where it is furthest behind, in
        milliseconds; 0 if it has consumed everything, None if that is not known.
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
        # No group has offsets in another one's.
        return sum(
            each.lag for each in self.queues if each.topic.startswith(RETRY_PREFIX) is is_retry
        )


class GroupsAnswer(ListAnswer[FoundGroup], Struct, frozen=True):
    """Groups in the order of their names, and where they were looked for."""

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
    """A group of producers, and those of its clients that are connected."""

    name: str
    members: tuple[GroupClient, ...]


class ProducersAnswer(ListAnswer[ProducerGroup], Struct, frozen=True):
    """Groups of producers in the order of their names, and which brokers were asked."""

    _field = "groups"
    _noun = "group"
    groups: tuple[ProducerGroup, ...]
    coverage: tuple[Coverage, ...]
