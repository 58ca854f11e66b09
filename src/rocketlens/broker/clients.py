"""Who is connected: producers and consumers by group, as their heartbeats say.

Nothing here expires by time: a client is there as long as its connection, which ends after 120 s
without a heartbeat. What a connection can make a broker keep is bounded; when all of them together
are over their bound, the one that keeps most ends, so that nobody is refused for what others do.
Sources: ``ProducerManager``, ``ConsumerManager``, ``ConsumerGroupInfo``.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.net.channel import Channel
from rocketlens.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketlens.wire.codes import LanguageCode, RequestCode, ResponseCode

_log: Final = logging.getLogger("rocketlens.broker")

_MEMBER_BYTES: Final = 700
_SUBSCRIPTION_BYTES: Final = 600
_TAG_BYTES: Final = 120
"""What a member of a group, a subscription and a tag take in memory, beside their characters."""
_NAME_SHOWN: Final = 60


class HeartbeatRefused(BadInput):
    """A heartbeat that would make a broker keep too much; the text says what is allowed."""

    code = ResponseCode.SYSTEM_ERROR


GroupKey = tuple[bool, str]
"""Whether consumers, and the group's name."""


class Client(NamedTuple):
    """A member of a group."""

    client_id: str
    language: LanguageCode
    version: int


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of a group that are connected, and what they want."""

    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    members: dict[Channel, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)


class ClientTable:
    """Producers and consumers, by group."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.producers: Final[dict[str, dict[Channel, Client]]] = {}
        self.consumers: Final[dict[str, ConsumerGroup]] = {}
        self.notifies: Callable[[str], bool] = lambda _: True
        """Whether the members of a group are told of changes."""
        self._clock: Final = clock
        self._kept: Final[dict[Channel, dict[GroupKey, int]]] = {}
        """By connection: its groups, and how many bytes each takes."""
        self.kept_bytes = 0
        """What all groups of all connections take, about."""
        self.refused = 0
        """Heartbeats that were refused."""
        self.ended = 0
        """Connections that were closed because they had the most groups."""

    def admit(self, said: HeartbeatData, channel: Channel) -> None:
        """Make room for what a heartbeat brings; called before any of it is taken in.

        :raises HeartbeatRefused: when that is too much for one connection, or a name is too long.
        """
        try:
            wanted = _wanted_bytes(said)
            kept = self._kept.get(channel, {}) | wanted
            _check_bytes(sum(kept.values()))
        except HeartbeatRefused:
            self.refused += 1
            raise
        self._keep(channel, kept)
        while self.kept_bytes > limits.MAX_GROUPS_BYTES and len(self._kept) > 1:
            self._end_largest()

    def _end_largest(self) -> None:
        sizes = {channel: sum(kept.values()) for channel, kept in self._kept.items()}
        largest = max(sizes, key=sizes.__getitem__)
        self.ended += 1
        _log.warning(
            "the connection of %s is closed: of the %d bytes of groups that all connections have, "
            "it has %d",
            largest.address,
            self.kept_bytes,
            sizes[largest],
        )
        self.closed(largest)
        largest.abort("it had more groups than any other connection")

    def _keep(self, channel: Channel, kept: dict[GroupKey, int]) -> None:
        self.kept_bytes += sum(kept.values()) - sum(self._kept.pop(channel, {}).values())
        if kept:
            self._kept[channel] = kept

    def _let_go(self, channel: Channel, key: GroupKey) -> None:
        kept = self._kept.get(channel, {})
        self.kept_bytes -= kept.pop(key, 0)
        if not kept:
            self._kept.pop(channel, None)

    def add_producer(self, group: str, channel: Channel, client: Client) -> None:
        """Register a producer, or note that it is alive, over a connection that is admitted."""
        if channel not in self._kept:
            return
        self.producers.setdefault(group, {})[channel] = client

    def add_consumer(self, consumer: ConsumerData, channel: Channel, client: Client) -> None:
        """Register a consumer, and notify all members if anything changed."""
        if channel not in self._kept:
            return
        group = self.consumers.setdefault(consumer.group_name, ConsumerGroup())
        group.consume_type = consumer.consume_type
        group.message_model = consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        is_changed = group.members.get(channel) != client
        group.members[channel] = client
        is_changed |= _subscribe(group, consumer.subscription_datas)
        if is_changed:
            self.notify(consumer.group_name)

    def remove_producer(self, group: str, channel: Channel) -> None:
        """Remove a producer."""
        self._let_go(channel, (False, group))
        members = self.producers.get(group, {})
        members.pop(channel, None)
        if not members:
            self.producers.pop(group, None)

    def remove_consumer(self, group_name: str, channel: Channel) -> None:
        """Remove a consumer, and notify the others."""
        self._let_go(channel, (True, group_name))
        group = self.consumers.get(group_name)
        if group is None or group.members.pop(channel, None) is None:
            return
        if group.members:
            self.notify(group_name)
        else:
            del self.consumers[group_name]

    def closed(self, channel: Channel) -> None:
        """Remove every client of a connection."""
        for is_consumer, group in list(self._kept.get(channel, ())):
            if is_consumer:
                self.remove_consumer(group, channel)
            else:
                self.remove_producer(group, channel)
        self._keep(channel, {})

    def groups_of(self, topic: str) -> list[str]:
        """List the groups that subscribe to a topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    def notify(self, group_name: str) -> None:
        """Notify the members of a group that it changed (40)."""
        if not self.notifies(group_name):
            return
        for channel in list(self.consumers[group_name].members):
            try:
                channel.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group_name})
            except RocketLensError:
                # It is gone; its connection's end will say so.
                continue


def _subscribe(group: ConsumerGroup, subscriptions: Iterable[SubscriptionData]) -> bool:
    """Replace subscriptions by newer ones; return whether topics came or went."""
    wanted = {each.topic: each for each in subscriptions}
    is_changed = wanted.keys() != group.subscriptions.keys()
    for topic in group.subscriptions.keys() - wanted.keys():
        del group.subscriptions[topic]
    for topic, each in wanted.items():
        known = group.subscriptions.get(topic)
        if known is None or each.sub_version > known.sub_version:
            group.subscriptions[topic] = each
    return is_changed


def _wanted_bytes(said: HeartbeatData) -> dict[GroupKey, int]:
    """Return what each group of a heartbeat takes in memory, about.

    :raises HeartbeatRefused: when a name is too long.
    """
    if len(said.client_id) > limits.MAX_CLIENT_ID_CHARACTERS:
        raise HeartbeatRefused(
            f"clientID has {len(said.client_id)} characters, "
            f"{limits.MAX_CLIENT_ID_CHARACTERS} are allowed"
        )
    wanted: dict[GroupKey, int] = {}
    datas: list[ProducerData | ConsumerData] = [*said.producer_datas, *said.consumer_datas]
    for data in datas:
        group = data.group_name
        if len(group) > limits.MAX_GROUP_CHARACTERS:
            raise HeartbeatRefused(
                f"groupName {group[:_NAME_SHOWN]}... has {len(group)} characters, "
                f"{limits.MAX_GROUP_CHARACTERS} are allowed"
            )
        size = _MEMBER_BYTES + 2 * (len(group) + len(said.client_id))
        is_consumer = isinstance(data, ConsumerData)
        if isinstance(data, ConsumerData):
            size += sum(map(_subscription_bytes, data.subscription_datas))
        wanted[is_consumer, group] = size
    return wanted


def _check_bytes(total: int) -> None:
    if total > limits.MAX_CONNECTION_GROUPS_BYTES:
        raise HeartbeatRefused(
            f"the groups of this connection take {total} bytes, "
            f"{limits.MAX_CONNECTION_GROUPS_BYTES} are allowed"
        )


def _subscription_bytes(each: SubscriptionData) -> int:
    texts = (each.topic, each.sub_string or "", each.expression_type or "", *each.tags)
    tags = len(each.tags) + len(each.codes)
    # A character takes up to four bytes.
    return _SUBSCRIPTION_BYTES + tags * _TAG_BYTES + 4 * sum(map(len, texts))
