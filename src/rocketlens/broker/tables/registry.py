"""The topics and consumer groups of a broker: creation, change, removal.

The number of each is bounded; refusals are counted, and logged once a minute. A change of topics is
written, and announced to the name servers, before the request that caused it is answered: methods
return a future that ends then. A change that cannot be written stays in memory and is tried again,
as in RocketMQ. Sources: ``TopicValidator``, ``TopicConfigManager``, ``SubscriptionGroupManager``.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketlens import limits
from rocketlens.broker.config import BrokerConfig
from rocketlens.broker.tables.table_saver import Table
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.errors import BadInput, MessageIllegal
from rocketlens.model.rocketmq import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    DELAY_LEVEL_COUNT,
    DELAY_TOPIC,
    FAQ,
    HALF_MESSAGE_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_MESSAGE_TOPIC,
    PERM_INHERIT,
    PERM_READ_WRITE,
    SELF_TEST_TOPIC,
    SYSTEM_GROUPS,
    TIMER_TOPIC,
    group_problem,
    perm_text,
    reply_topic,
)
from rocketlens.wire.codes import ResponseCode

MAX_GROUPS: Final = 100_000
"""Subscription groups of a broker. RocketMQ: no limit."""
MAX_TOPICS: Final = 150_000
"""Topics of a broker, of any origin; each takes about 1 KiB. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.broker")


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
    """The bound on topics or groups is reached; the text has the bound."""

    code = ResponseCode.SYSTEM_ERROR


class Room:
    """Bounds the number of topics or groups; counts refusals, and logs them once a minute."""

    def __init__(self, kind: str, max_count: Callable[[], int], clock: Callable[[], int]) -> None:
        """Bound the number of ``kind`` (``topics``, for example) by ``max_count()``."""
        self._kind: Final = kind
        self._max_count: Final = max_count
        self._clock: Final = clock
        self._warned_ms: int | None = None
        self.refused = 0

    def has(self, count: int, name: str) -> bool:
        """Return True if ``name`` can be created in addition to ``count`` others."""
        if count < self._max_count():
            return True
        self.refused += 1
        now_ms = self._clock()
        interval_ms = limits.MIN_WARNING_INTERVAL_S * 1000
        if self._warned_ms is None or now_ms - self._warned_ms >= interval_ms:
            self._warned_ms = now_ms
            _log.warning(
                "there are %d %s, the maximum: %s is not created; %d were refused before",
                count,
                self._kind,
                name[: limits.MAX_SHOWN_CHARACTERS],
                self.refused - 1,
            )
        return False


PersistFuture = asyncio.Future[Any] | None
"""Ends when a change is written (False if not) and announced; None if it is already."""

Save = Callable[[Table], PersistFuture]

Announce = Callable[[], PersistFuture]


class TopicRegistry:
    """The topics of a broker.

    ``save`` writes the table, and ``announce`` registers with the name servers. ``pending`` has the
    future of each topic that is being written or announced.
    """

    def __init__(
        self,
        table: TopicTable,
        config: BrokerConfig,
        clock: Callable[[], int],
        *,
        save: Save = lambda _: None,
        announce: Announce = lambda: None,
    ) -> None:
        self.table: Final = table
        self.config: Final = config
        self.topics: Final[Mapping[str, StoredTopic]] = table.entries
        self._save: Final = save
        self._announce: Final = announce
        self.pending: Final[dict[str, asyncio.Future[Any]]] = {}
        self.room: Final = Room("topics", lambda: MAX_TOPICS, clock)
        missing = [topic for topic in _first_topics(config) if topic.topic not in table.entries]
        if missing:
            table.put(*missing)
            table.save()

    def get(self, topic: str) -> StoredTopic | None:
        return self.topics.get(topic)

    def has_room_for(self, topic: str) -> bool:
        """Return True if a topic exists or can be created; count and log a refusal."""
        return topic in self.topics or self.room.has(len(self.topics), topic)

    def put(self, topic: StoredTopic) -> PersistFuture:
        """:raises BadInput: if the bound on topics is reached."""
        if not self.has_room_for(topic.topic):
            raise TooMany(
                f"{MAX_TOPICS} topics are allowed, and all are in use: delete topics first"
            )
        verb = "changed" if topic.topic in self.topics else "created"
        self.table.put(topic)
        _log.info(
            "topic %s is %s: %d queues to read, %d to write, permissions %s",
            *(topic.topic, verb, topic.read_queue_count, topic.write_queue_count),
            perm_text(topic.perm),
        )
        announced = self._persist_and_announce()
        if announced is not None:
            self.pending[topic.topic] = announced

            def on_announced(done: asyncio.Future[Any]) -> None:
                if self.pending.get(topic.topic) is done:
                    del self.pending[topic.topic]

            announced.add_done_callback(on_announced)
        return announced

    def remove(self, topic: str) -> PersistFuture:
        if self.table.remove(topic) is None:
            return None
        _log.info("topic %s is deleted", topic)
        return self._persist_and_announce()

    def create_for_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int
    ) -> StoredTopic | None:
        """Create the topic of a message if ``default_topic`` permits it; return None if not."""
        default = self.topics.get(default_topic)
        if (
            default is None
            or not default.perm & PERM_INHERIT
            or (default_topic == DEFAULT_TOPIC and not self.config.autoCreateTopicEnable)
            or not self.has_room_for(topic)
        ):
            return None
        count = max(min(queue_count, default.write_queue_count), 0)
        new_topic = StoredTopic(
            topic, count, count, default.perm & ~PERM_INHERIT, default.filter_type, sys_flag
        )
        self.put(new_topic)
        return new_topic

    def create_for_group(self, topic: str, queue_count: int, sys_flag: int = 0) -> StoredTopic:
        """Return or create a retry or dead-letter topic. Raises as :meth:`put`."""
        stored = self.topics.get(topic)
        if stored is None:
            stored = StoredTopic(
                topic, queue_count, queue_count, PERM_READ_WRITE, sys_flag=sys_flag
            )
            self.put(stored)
        return stored

    def _persist_and_announce(self) -> PersistFuture:
        saved, announced = self._save(self.table), self._announce()
        if saved is None or announced is None:
            return saved or announced
        return asyncio.ensure_future(_wait_for_both(saved, announced))


async def _wait_for_both(saved: asyncio.Future[Any], announced: asyncio.Future[Any]) -> Any:
    await asyncio.wait((saved, announced))
    return saved.result()


def _first_topics(config: BrokerConfig) -> list[StoredTopic]:
    count = config.defaultTopicQueueNums
    topics = [
        StoredTopic(SELF_TEST_TOPIC, 1, 1),
        StoredTopic(BENCHMARK_TOPIC, 1024, 1024),
        StoredTopic(config.brokerClusterName, 16, 16, PERM_READ_WRITE | PERM_INHERIT),
        StoredTopic(config.brokerName, 1, 1, PERM_READ_WRITE | PERM_INHERIT),
        StoredTopic(OFFSET_MOVED_TOPIC, 1, 1),
        StoredTopic(DELAY_TOPIC, DELAY_LEVEL_COUNT, DELAY_LEVEL_COUNT),
        StoredTopic(reply_topic(config.brokerClusterName), 1, 1),
        StoredTopic(HALF_MESSAGE_TOPIC, 1, 1),
        StoredTopic(OP_MESSAGE_TOPIC, 1, 1),
        StoredTopic(TIMER_TOPIC, 1, 1),
    ]
    if config.autoCreateTopicEnable:
        topics.append(StoredTopic(DEFAULT_TOPIC, count, count, PERM_READ_WRITE | PERM_INHERIT))
    if config.traceTopicEnable:
        topics.append(StoredTopic(config.msgTraceTopicName, 1, 1))
    return topics


class GroupRegistry:
    """The subscription groups of a broker, each as RocketMQ's JSON object."""

    def __init__(
        self,
        table: GroupTable,
        config: BrokerConfig,
        clock: Callable[[], int],
        *,
        save: Save = lambda _: None,
    ) -> None:
        self.table: Final = table
        self.config: Final = config
        self._save: Final = save
        self.room: Final = Room("groups", lambda: MAX_GROUPS, clock)
        missing = [group for group in SYSTEM_GROUPS if group not in table.entries]
        if missing:
            table.put_many({group: {"consumeBroadcastEnable": True} for group in missing})
            table.save()

    def put(self, groups: Mapping[str, Mapping[str, Any]]) -> PersistFuture:
        """:raises BadInput: if the bound on groups is reached. No group is changed then."""
        new = groups.keys() - self.table.entries.keys()
        for name in new:
            if not self.room.has(len(self.table.entries) + len(new) - 1, name):
                raise TooMany(f"{MAX_GROUPS} groups are allowed: delete groups first")
        self.table.put_many(groups)
        for name in groups:
            _log.info("group %s is %s", name, "created" if name in new else "changed")
        return self._save(self.table)

    def remove(self, group: str) -> PersistFuture:
        if self.table.remove(group) is None:
            return None
        _log.info("group %s is deleted", group)
        return self._save(self.table)

    def find(self, group: str) -> dict[str, Any] | None:
        """Return a group, created now if the configuration permits that; None if it does not exist.

        The caller does not wait for the file: a lost group is created again.
        """
        config = self.table.entries.get(group)
        if (
            config is None
            and self.config.autoCreateSubscriptionGroup
            and group_problem(group) is None
        ):
            if not self.room.has(len(self.table.entries), group):
                return None
            config = self.table.put(group)
            _log.info("group %s is created", group)
            self._save(self.table)
        return config

    def notifies(self, group: str) -> bool:
        config = self.find(group)
        return config is None or bool(config.get("notifyConsumerIdsChangedEnable", True))


class SubscriptionGroupMissing(MessageIllegal):
    """The group of a retry topic does not exist, and groups are not created automatically."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    def __init__(self, group: str) -> None:
        super().__init__(f"subscription group not exist, {group} {FAQ}")
