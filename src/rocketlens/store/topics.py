"""``config/topics.json`` and ``config/subscriptionGroup.json``: what there is, and who may use it.

Members that are not known here are kept and written back, so a newer RocketMQ loses nothing. A
table is changed in memory, and ``is_changed`` says that its file does not have all of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from rocketlens.store.config_table import ConfigFile, DataVersion, Room, table_of
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

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


@dataclass(slots=True)
class TopicConfig:
    """One topic. ``perm`` is a sum of ``PERM_READ``, ``PERM_WRITE`` and ``PERM_INHERIT``."""

    topic: str
    read_queue_count: int = 16
    write_queue_count: int = 16
    perm: int = PERM_READ | PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    """Members that are not known here."""

    def encode(self) -> dict[str, Any]:
        """Give it as RocketMQ writes it."""
        known = {name: getattr(self, attribute) for name, attribute in _TOPIC_FIELDS.items()}
        return dict(sorted({**known, **self.others}.items()))

    @classmethod
    def decode(cls, value: Any) -> Self | None:
        """Return the topic that a member of ``topicConfigTable`` is, or None if it is not one.

        A field of another type than RocketMQ's is left out: it gets its default.
        """
        if not isinstance(value, dict) or not isinstance(value.get("topicName"), str):
            return None
        defaults = cls("")
        known = {
            attribute: value[name]
            for name, attribute in _TOPIC_FIELDS.items()
            if type(value.get(name)) is type(getattr(defaults, attribute))
        }
        return cls(**known, others={n: v for n, v in value.items() if n not in _TOPIC_FIELDS})


class TopicTable:
    """The topics of a store, by name. None of them is changed in place."""

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file.

        :raises ConfigError: when it is larger than any that is read.
        """
        self._file = ConfigFile(layout.config / "topics.json", disk)
        self._clock = clock
        value = self._file.read()
        self.topics: dict[str, TopicConfig] = table_of(
            value.get("topicConfigTable"), TopicConfig.decode
        )
        self._room = Room(self._file)
        self.data_version = DataVersion.decode(value.get("dataVersion"), clock())
        self.is_changed = False

    def put(self, *topics: TopicConfig) -> None:
        """Add or replace topics: one change, however many.

        :raises BadInput: when one is too large for the table.
        """
        for topic in topics:
            self._room.take(topic.topic, topic.encode())
            self.topics[topic.topic] = topic
        self._changed()

    def remove(self, topic: str) -> TopicConfig | None:
        """Take a topic out; gives what it was."""
        removed = self.topics.pop(topic, None)
        self._room.give_back(topic)
        if removed is not None:
            self._changed()
        return removed

    def _changed(self) -> None:
        self.data_version.next(self._clock())
        self.is_changed = True

    def snapshot(self) -> Callable[[], None]:
        """Take the topics of now; what is given writes them, in any thread.

        That raises OSError when they cannot be written.
        """
        version, topics = self.data_version.encode(), dict(self.topics)

        def write() -> None:
            table = {name: topic.encode() for name, topic in topics.items()}
            self._file.write({"dataVersion": version, "topicConfigTable": table})

        return write

    def save(self) -> None:
        """Write the file now.

        :raises OSError: when it cannot be written.
        """
        self.snapshot()()
        self.is_changed = False


class GroupTable:
    """The subscription groups of a store: for each name RocketMQ's members as they are."""

    def __init__(self, layout: StoreLayout, disk: Disk, clock: Callable[[], int]) -> None:
        """Read the file.

        :raises ConfigError: when it is larger than any that is read.
        """
        self._file = ConfigFile(layout.config / "subscriptionGroup.json", disk)
        self._clock = clock
        value = self._file.read()
        self.groups: dict[str, dict[str, Any]] = table_of(
            value.get("subscriptionGroupTable"), lambda v: v if isinstance(v, dict) else None
        )
        self._room = Room(self._file)
        self._forbidden = value.get("forbiddenTable", {})
        self.data_version = DataVersion.decode(value.get("dataVersion"), clock())
        self.is_changed = False

    def put(self, group: str, **members: Any) -> dict[str, Any]:
        """Add a group with RocketMQ's defaults, or change members of it; return all of them.

        :raises BadInput: when it is too large for the table.
        """
        current = self.groups.get(group) or default_group(group)
        changed = dict(sorted({**current, **members}.items()))
        self._room.take(group, changed)
        self.groups[group] = changed
        self._changed()
        return self.groups[group]

    def remove(self, group: str) -> bool:
        """Take a group out; False when there was none."""
        if self.groups.pop(group, None) is None:
            return False
        self._room.give_back(group)
        self._changed()
        return True

    def _changed(self) -> None:
        self.data_version.next(self._clock())
        self.is_changed = True

    def value(self) -> dict[str, Any]:
        """Give all of it as RocketMQ writes it."""
        return {
            "dataVersion": self.data_version.encode(),
            "forbiddenTable": self._forbidden,
            "subscriptionGroupTable": dict(self.groups),
        }

    def snapshot(self) -> Callable[[], None]:
        """Take the groups of now; what is given writes them, in any thread.

        That raises OSError when they cannot be written.
        """
        value = self.value()

        def write() -> None:
            self._file.write(value)

        return write

    def save(self) -> None:
        """Write the file now.

        :raises OSError: when it cannot be written.
        """
        self.snapshot()()
        self.is_changed = False


def default_group(group: str) -> dict[str, Any]:
    """Give a subscription group as RocketMQ makes one."""
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
