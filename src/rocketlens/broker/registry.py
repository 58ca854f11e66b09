"""Topics and consumer groups of a broker: their rules, and which make themselves.

There are at most so many of each; while more are asked for that is logged, once a minute. A name
that a request brings in is checked before anything is made of it. Every change of topics
is written, and told to the name servers, before whoever caused it is answered: each gives a future
that ends with that. One that cannot be written stays, and is tried again, as in RocketMQ. Sources:
``TopicValidator``,
``TopicConfigManager``, ``SubscriptionGroupManager``.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.errors import BadInput
from rocketlens.model.rocketmq import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    DELAY_LEVEL_COUNT,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    PERM_INHERIT,
    PERM_READ_WRITE,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUPS,
    group_problem,
    perm_text,
)
from rocketlens.wire.codes import ResponseCode

_log: Final = logging.getLogger("rocketlens.broker")

WARNING_INTERVAL_MS: Final = 60_000
"""Between two warnings that there is no room for more."""


def topic_text(topic: StoredTopic) -> str:
    """Return a topic as RocketMQ prints it in remarks."""
    attributes = ", ".join(f"{name}={value}" for name, value in topic.attributes.items())
    return (
        f"TopicConfig [topicName={topic.topic}, readQueueNums={topic.read_queue_count}, "
        f"writeQueueNums={topic.write_queue_count}, perm={perm_text(topic.perm)}, "
        f"topicFilterType={topic.filter_type}, topicSysFlag={topic.sys_flag}, "
        f"order={'true' if topic.order else 'false'}, attributes={{{attributes}}}]"
    )


class TooMany(BadInput):
    """There is no room for another topic or group; the text says how many are allowed."""

    code = ResponseCode.SYSTEM_ERROR


class Room:
    """Whether there may be one more; counts, and logs once a minute, that there may not."""

    def __init__(self, what: str, most: Callable[[], int], clock: Callable[[], int]) -> None:
        """Bound ``what`` by ``most`` of them."""
        self._what: Final = what
        self._most: Final = most
        self._clock: Final = clock
        self._warned_ms: int | None = None
        self.refused = 0

    def has(self, count: int, name: str) -> bool:
        """Return whether ``name`` may be made where there are ``count``."""
        if count < self._most():
            return True
        self.refused += 1
        now_ms = self._clock()
        if self._warned_ms is None or now_ms - self._warned_ms >= WARNING_INTERVAL_MS:
            self._warned_ms = now_ms
            _log.warning(
                "there are %d %s and no room for another: %s is not made, nor were %d before it",
                count,
                self._what,
                name[: limits.MAX_SHOWN_CHARACTERS],
                self.refused - 1,
            )
        return False


PersistFuture = asyncio.Future[Any] | None
"""Ends when a change is known where it must be; None when it is."""

Persist = Callable[[], PersistFuture]
"""Begins to write a change, or to announce it."""


class TopicRegistry:
    """The topics of a broker.

    ``save`` writes the table and ``announce`` registers with the name servers; ``pending`` are the
    topics of which either is going on, each with the future that ends with it.
    """

    def __init__(self, table: TopicTable, config: BrokerConfig, clock: Callable[[], int]) -> None:
        """Take the table of the store, and make the topics that RocketMQ's brokers begin with."""
        self.table: Final = table
        self.config: Final = config
        self.topics: Final[Mapping[str, StoredTopic]] = table.topics
        self.save: Persist = lambda: None
        self.announce: Persist = lambda: None
        self.pending: Final[dict[str, asyncio.Future[Any]]] = {}
        self.room: Final = Room("topics", lambda: limits.MAX_TOPICS, clock)
        missing = [made for made in _first_topics(config) if made.topic not in table.topics]
        if missing:
            table.put(*missing)
            table.save()

    def get(self, topic: str) -> StoredTopic | None:
        """Return a topic, None when there is none."""
        return self.topics.get(topic)

    def has_room_for(self, topic: str) -> bool:
        """Return whether a topic exists, or may be made; a refusal is counted and logged."""
        return topic in self.topics or self.room.has(len(self.topics), topic)

    def put(self, topic: StoredTopic) -> PersistFuture:
        """Make or change a topic.

        :raises BadInput: when there is no room for it.
        """
        if not self.has_room_for(topic.topic):
            raise TooMany(f"{limits.MAX_TOPICS} topics are allowed, and so many are there")
        self.table.put(topic)
        ended = self._persist_and_announce()
        if ended is not None:
            self.pending[topic.topic] = ended
            ended.add_done_callback(lambda done: self._known(topic.topic, done))
        return ended

    def remove(self, topic: str) -> PersistFuture:
        """Forget a topic."""
        if self.table.remove(topic) is None:
            return None
        return self._persist_and_announce()

    def create_for_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int
    ) -> StoredTopic | None:
        """Make a topic that a producer sends to, if ``default_topic`` may be inherited from."""
        default = self.topics.get(default_topic)
        if (
            default is None
            or not default.perm & PERM_INHERIT
            or (default_topic == DEFAULT_TOPIC and not self.config.autoCreateTopicEnable)
            or not self.has_room_for(topic)
        ):
            return None
        count = max(min(queue_count, default.write_queue_count), 0)
        made = StoredTopic(
            topic,
            count,
            count,
            default.perm & ~PERM_INHERIT,
            default.filter_type,
            sys_flag,
        )
        self.put(made)
        return made

    def create_for_group(self, topic: str, queue_count: int, sys_flag: int = 0) -> StoredTopic:
        """Return a retry or dead-letter topic, made now if there is none.

        :raises BadInput: when there is no room for it.
        """
        made = self.topics.get(topic)
        if made is None:
            made = StoredTopic(topic, queue_count, queue_count, PERM_READ_WRITE, sys_flag=sys_flag)
            self.put(made)
        return made

    def _persist_and_announce(self) -> PersistFuture:
        endings = [ending for ending in (self.save(), self.announce()) if ending is not None]
        if len(endings) < 2:
            return endings[0] if endings else None
        return asyncio.ensure_future(_all(endings))

    def _known(self, topic: str, done: asyncio.Future[Any]) -> None:
        if self.pending.get(topic) is done:
            del self.pending[topic]


async def _all(endings: list[asyncio.Future[Any]]) -> None:
    await asyncio.wait(endings)


def _first_topics(config: BrokerConfig) -> list[StoredTopic]:
    """Return the topics that a new broker has."""
    count = config.defaultTopicQueueNums
    made = [
        StoredTopic(SELF_TEST_TOPIC, 1, 1),
        StoredTopic(BENCHMARK_TOPIC, 1024, 1024),
        StoredTopic(config.brokerClusterName, 16, 16, PERM_READ_WRITE | PERM_INHERIT),
        StoredTopic(config.brokerName, 1, 1, PERM_READ_WRITE | PERM_INHERIT),
        StoredTopic(OFFSET_MOVED_TOPIC, 1, 1),
        StoredTopic(SCHEDULE_TOPIC, DELAY_LEVEL_COUNT, DELAY_LEVEL_COUNT),
        StoredTopic(f"{config.brokerClusterName}_REPLY_TOPIC", 1, 1),
        StoredTopic(HALF_TOPIC, 1, 1),
        StoredTopic(OP_HALF_TOPIC, 1, 1),
    ]
    if config.autoCreateTopicEnable:
        made.append(StoredTopic(DEFAULT_TOPIC, count, count, PERM_READ_WRITE | PERM_INHERIT))
    if config.traceTopicEnable:
        made.append(StoredTopic(config.msgTraceTopicName, 1, 1))
    return made


class GroupRegistry:
    """The subscription groups of a broker: for each RocketMQ's members as they are."""

    def __init__(self, table: GroupTable, config: BrokerConfig, clock: Callable[[], int]) -> None:
        """Take the table of the store, and make the groups that RocketMQ's brokers begin with."""
        self.table: Final = table
        self.config: Final = config
        self.save: Persist = lambda: None
        self.room: Final = Room("groups", lambda: limits.MAX_GROUPS, clock)
        missing = [group for group in SYSTEM_GROUPS if group not in table.groups]
        if missing:
            table.put_many({group: {"consumeBroadcastEnable": True} for group in missing})
            table.save()

    def put(self, groups: Mapping[str, Mapping[str, Any]]) -> PersistFuture:
        """Make or change groups, all of them or none.

        :raises BadInput: when there is no room for all of them.
        """
        new = groups.keys() - self.table.groups.keys()
        for name in new:
            if not self.room.has(len(self.table.groups) + len(new) - 1, name):
                raise TooMany(f"{limits.MAX_GROUPS} groups are allowed")
        self.table.put_many(groups)
        return self.save()

    def remove(self, group: str) -> PersistFuture:
        """Forget a group."""
        return self.save() if self.table.remove(group) else None

    def find(self, group: str) -> dict[str, Any] | None:
        """Return a group, made now if it may make itself; None when there is none.

        Nobody waits until it is written: one that is lost would be made again.
        """
        found = self.table.groups.get(group)
        if (
            found is None
            and self.config.autoCreateSubscriptionGroup
            and group_problem(group) is None
        ):
            if not self.room.has(len(self.table.groups), group):
                return None
            found = self.table.put(group)
            self.save()
        return found
