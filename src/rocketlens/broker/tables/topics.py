"""``config/topics.json`` and ``config/subscriptionGroup.json``: topics and subscription groups.

Unknown members are kept and written back, so that a newer RocketMQ loses nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.broker.tables.entry_table import EntryTable
from rocketlens.model.rocketmq import PERM_READ_WRITE
from rocketlens.wire.bodies.tables import TopicConfig, TopicConfigTable, TopicFilterType

_TOPIC_FIELDS: Final = {
    "attributes": "attributes",
    "order": "order",
    "perm": "perm",
    "readQueueNums": "read_queue_count",
    "topicFilterType": "filter_type",
    "topicName": "topic",
    "topicSysFlag": "sys_flag",
    "writeQueueNums": "write_queue_count",
}
_NUMBERS: Final = frozenset({"perm", "read_queue_count", "sys_flag", "write_queue_count"})
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class StoredTopic(Struct):
    """A topic of the broker; ``perm`` is a sum of ``PERM_*``."""

    topic: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = PERM_READ_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    """Members that RocketLens does not know."""

    @property
    def queue_count(self) -> int:
        return max(self.read_queue_count, self.write_queue_count)

    def encode(self) -> dict[str, Any]:
        members = {name: getattr(self, attribute) for name, attribute in _TOPIC_FIELDS.items()}
        return dict(sorted({**members, **self.others}.items()))

    @classmethod
    def decode(cls, value: Any) -> Self | None:
        """Parse a topic; None if it is none. Invalid fields get their default."""
        if not isinstance(value, dict) or not isinstance(value.get("topicName"), str):
            return None
        members: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, member_value in value.items():
            attribute = _TOPIC_FIELDS.get(name)
            if attribute is None:
                others[name] = member_value
            elif _is_valid(attribute, member_value):
                members[attribute] = member_value
        return cls(**members, others=others)


def _is_valid(attribute: str, value: Any) -> bool:
    if type(value) is int:
        return attribute in _NUMBERS and 0 <= value < 2**31
    if type(value) is str:
        return attribute == "topic" or (attribute == "filter_type" and value in _FILTER_TYPES)
    if type(value) is bool:
        return attribute == "order"
    is_texts = type(value) is dict and all(type(each) is str for each in value.values())
    return is_texts and attribute == "attributes"


class TopicTable(EntryTable[StoredTopic]):
    """The topics of a store, by name."""

    FILE = "topics.json"
    MEMBER = "topicConfigTable"

    def decode_entry(self, value: Any) -> StoredTopic | None:
        return StoredTopic.decode(value)

    def encode_entry(self, entry: StoredTopic) -> dict[str, Any]:
        return entry.encode()

    def put(self, *topics: StoredTopic) -> None:
        """:raises BadInput: if a topic or the table is too large. No topic is changed then."""
        self.put_all({topic.topic: topic for topic in topics})


class GroupTable(EntryTable[dict[str, Any]]):
    """The subscription groups of a store, each as RocketMQ's JSON object, by name."""

    FILE = "subscriptionGroup.json"
    MEMBER = "subscriptionGroupTable"

    def decode_entry(self, value: Any) -> dict[str, Any] | None:
        return value if isinstance(value, dict) else None

    def encode_entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        return entry

    def put(self, group: str, **members: Any) -> dict[str, Any]:
        """Add a group with RocketMQ's defaults, or change members of it; return all its members."""
        self.put_many({group: members})
        return self.entries[group]

    def put_many(self, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Add groups, or change the given members of groups, all or none.

        :raises BadInput: if a group or the table is too large.
        """
        self.put_all(
            {
                name: dict(
                    sorted({**(self.entries.get(name) or default_group(name)), **members}.items())
                )
                for name, members in groups.items()
            }
        )

    def _head(self) -> dict[str, Any]:
        return {"dataVersion": {}, "forbiddenTable": {}, **super()._head()}


def default_group(group: str) -> dict[str, Any]:
    return {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": group,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def topic_table(
    table: TopicTable, is_shown: Callable[[str], bool] | None = None
) -> Callable[[], TopicConfigTable]:
    """Return a function that builds the wire form of the current topics, in any thread."""
    version, stored = table.data_version, dict(table.entries)

    def make() -> TopicConfigTable:
        topics = {
            name: wire_topic(topic)
            for name, topic in stored.items()
            if is_shown is None or is_shown(name)
        }
        return TopicConfigTable(data_version=version, topic_config_table=topics)

    return make


def is_registrable(topic: str) -> bool:
    """Return True if a name server accepts this topic name; the table may have others."""
    return 0 < len(topic) <= limits.MAX_TOPIC_CHARACTERS and topic.isprintable()


def wire_topic(topic: StoredTopic, broker_perm: int = 7) -> TopicConfig:
    """Return the wire form of a topic, restricted to ``broker_perm`` except inheritance."""
    return TopicConfig(
        topic_name=topic.topic,
        read_queue_nums=topic.read_queue_count,
        write_queue_nums=topic.write_queue_count,
        perm=topic.perm & (broker_perm | 1),
        topic_filter_type=TopicFilterType.__members__.get(
            topic.filter_type, TopicFilterType.SINGLE_TAG
        ),
        topic_sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=dict(topic.attributes),
    )
