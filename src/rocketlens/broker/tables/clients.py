"""Connected producers and consumers by group, from their heartbeats.

A client stays registered while its connection is open; a connection without a heartbeat is closed
after 120 s. The memory of each connection's groups is bounded. If all together exceed their bound,
the connection with most memory is closed, so that no client is refused because of others. Sources:
``ProducerManager``, ``ConsumerManager``, ``ConsumerGroupInfo``.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.errors import BadInput, RocketLensError
from rocketlens.net.channel import Channel
from rocketlens.wire.bodies import clients as bodies
from rocketlens.wire.codes import LanguageCode, RequestCode, ResponseCode

MAX_CONNECTION_GROUPS_BYTES: Final = 8 * 1024 * 1024
"""Memory for the groups of one connection: 10,000 groups of a few topics."""
MAX_GROUPS_BYTES: Final = 128 * 1024 * 1024
"""Memory for all groups; above it, the largest connection is closed. RocketMQ: no limit."""
_log: Final = logging.getLogger("rocketlens.broker")

_MEMBER_BYTES: Final = 700
_SUBSCRIPTION_BYTES: Final = 600
_TAG_BYTES: Final = 120
"""Estimates for one member of a group, one subscription and one tag, without their characters."""
_NAME_SHOWN: Final = 60


class HeartbeatRefused(BadInput):
    """A heartbeat would need too much memory of the broker; the text has the bound."""

    code = ResponseCode.SYSTEM_ERROR


GroupKey = tuple[bool, str]
"""True for a consumer group, False for a producer group; and its name."""


class Client(NamedTuple):
    """A member of a group."""

    client_id: str
    language: LanguageCode
    version: int


class ConsumerGroup(Struct):
    """Connected consumers of a group, and their subscriptions."""

    consume_type: bodies.ConsumeType | None = None
    message_model: bodies.MessageModel | None = None
    consume_from_where: bodies.ConsumeFromWhere | None = None
    members: dict[Channel, Client] = field(default_factory=dict)
    subscriptions: dict[str, bodies.SubscriptionData] = field(default_factory=dict)
    fingerprint: int = 0
    """The fingerprint of subscriptions in the last heartbeat; 0 if it had none."""

    def may_follow(self, topic: str) -> bool:
        """Return True if members may read ``topic``: those that assign queues subscribe to none."""
        return not self.subscriptions or topic in self.subscriptions


class ClientTable:
    """Connected producers and consumers, by group."""

    def __init__(self, notifies: Callable[[str], bool] = lambda _: True) -> None:
        """``notifies`` returns True if members of a group are notified of changes."""
        self.producers: Final[dict[str, dict[Channel, Client]]] = {}
        self.consumers: Final[dict[str, ConsumerGroup]] = {}
        self._producer_channels: Final[dict[str, Channel]] = {}
        """By client id, the newest channel."""
        self._notifies: Final = notifies
        self._sizes: Final[dict[Channel, dict[GroupKey, int]]] = {}
        """By connection: the estimated memory of each of its groups."""
        self.total_bytes = 0
        """Estimated memory of all groups of all connections."""
        self.refused = 0
        self.closed_largest = 0
        """Number of connections closed because they were the largest."""

    def admit(self, heartbeat: bodies.HeartbeatData, channel: Channel) -> None:
        """Reserve memory for the groups of a heartbeat, before any of them is added.

        :raises HeartbeatRefused: if one connection would need too much, or a name is too long.
        """
        try:
            sizes = dict(self._sizes.get(channel, {}))
            for key, size in _group_bytes(heartbeat).items():
                # A heartbeat without subscriptions keeps those of the previous one.
                sizes[key] = max(size, sizes.get(key, 0)) if heartbeat.without_sub else size
            _check_bytes(sum(sizes.values()))
        except HeartbeatRefused:
            self.refused += 1
            raise
        self._set_sizes(channel, sizes)
        while self.total_bytes > MAX_GROUPS_BYTES and len(self._sizes) > 1:
            self._close_largest()

    def _close_largest(self) -> None:
        sizes = {channel: sum(groups.values()) for channel, groups in self._sizes.items()}
        largest = max(sizes, key=sizes.__getitem__)
        self.closed_largest += 1
        _log.warning(
            "the connection of %s is closed: the groups of all connections use %d bytes, "
            "and its groups use %d of them",
            largest.address,
            self.total_bytes,
            sizes[largest],
        )
        self.on_close(largest)
        largest.abort("it had more groups than any other connection")

    def _set_sizes(self, channel: Channel, sizes: dict[GroupKey, int]) -> None:
        self.total_bytes += sum(sizes.values()) - sum(self._sizes.pop(channel, {}).values())
        if sizes:
            self._sizes[channel] = sizes

    def _release(self, channel: Channel, key: GroupKey) -> None:
        sizes = self._sizes.get(channel, {})
        self.total_bytes -= sizes.pop(key, 0)
        if not sizes:
            self._sizes.pop(channel, None)

    def add_producer(self, group: str, channel: Channel, client: Client) -> None:
        """Register a producer; ignored if the connection was not admitted or is closed."""
        if channel not in self._sizes:
            return
        members = self.producers.setdefault(group, {})
        if channel not in members:
            _log.info("producer %s at %s joins group %s", client.client_id, channel.address, group)
        members[channel] = client
        self._producer_channels[client.client_id] = channel

    def add_consumer(
        self,
        consumer: bodies.ConsumerData,
        channel: Channel,
        client: Client,
        *,
        fingerprint: int = 0,
        without_sub: bool = False,
    ) -> tuple[bool, bool]:
        """Register a consumer, and notify all members if the group changed.

        Return two flags: the consumer must send its subscriptions again; the group's subscriptions
        changed.

        ``without_sub``: the heartbeat omits subscriptions, because they equal those of the previous
        one, which had the same ``fingerprint``.
        """
        if channel not in self._sizes:
            return True, False
        group = self.consumers.setdefault(consumer.group_name, ConsumerGroup())
        group.consume_type = consumer.consume_type
        group.message_model = consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        if channel not in group.members:
            line = "consumer %s at %s joins group %s"
            _log.info(line, client.client_id, channel.address, consumer.group_name)
        is_changed = group.members.get(channel) != client
        group.members[channel] = client
        previous, group.fingerprint = group.fingerprint, fingerprint
        topics = set(group.subscriptions)
        is_resubscribed = not without_sub and _subscribe(group, consumer.subscription_datas)
        if is_changed or topics != group.subscriptions.keys():
            self.notify(consumer.group_name)
        is_incomplete = fingerprint != previous and (without_sub or previous != 0)
        return is_incomplete, is_resubscribed

    def remove_producer(self, group: str, channel: Channel) -> None:
        self._release(channel, (False, group))
        members = self.producers.get(group, {})
        client = members.pop(channel, None)
        if client is not None:
            _log.info("producer %s at %s leaves group %s", client.client_id, channel.address, group)
            if self._producer_channels.get(client.client_id) is channel:
                # The next heartbeat registers the client again if it has other groups.
                del self._producer_channels[client.client_id]
        if not members:
            self.producers.pop(group, None)

    def remove_consumer(self, group_name: str, channel: Channel) -> None:
        self._release(channel, (True, group_name))
        group = self.consumers.get(group_name)
        client = None if group is None else group.members.pop(channel, None)
        if group is None or client is None:
            return
        line = "consumer %s at %s leaves group %s"
        _log.info(line, client.client_id, channel.address, group_name)
        if group.members:
            self.notify(group_name)
        else:
            del self.consumers[group_name]

    def on_close(self, channel: Channel) -> None:
        for is_consumer, group in list(self._sizes.get(channel, ())):
            if is_consumer:
                self.remove_consumer(group, channel)
            else:
                self.remove_producer(group, channel)
        self._set_sizes(channel, {})

    def find(self, group_name: str, client_id: str) -> tuple[Channel, Client] | None:
        """Return the newest open connection of a group's consumer, with the consumer."""
        group = self.consumers.get(group_name)
        for channel, client in reversed(group.members.items() if group else ()):
            if client.client_id == client_id and channel.is_open:
                return channel, client
        return None

    def producer_channel(self, client_id: str) -> Channel | None:
        """Return the newest connection of a producer; None if it is closed."""
        channel = self._producer_channels.get(client_id)
        return channel if channel is not None and channel.is_open else None

    def groups_of(self, topic: str) -> list[str]:
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    def notify(self, group_name: str) -> None:
        if not self._notifies(group_name):
            return
        for channel in list(self.consumers[group_name].members):
            try:
                channel.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group_name})
            except RocketLensError:
                # The connection is closing; `closed` removes the client.
                continue


def _subscribe(group: ConsumerGroup, subscriptions: Iterable[bodies.SubscriptionData]) -> bool:
    """Replace older subscriptions; return True if topics or expressions changed."""
    by_topic = {each.topic: each for each in subscriptions}
    is_changed = by_topic.keys() != group.subscriptions.keys()
    for topic in group.subscriptions.keys() - by_topic.keys():
        del group.subscriptions[topic]
    for topic, each in by_topic.items():
        previous = group.subscriptions.get(topic)
        if previous is None or each.sub_version > previous.sub_version:
            group.subscriptions[topic] = each
            is_changed |= previous is not None and (
                (each.sub_string, each.expression_type)
                != (previous.sub_string, previous.expression_type)
            )
    return is_changed


def _group_bytes(heartbeat: bodies.HeartbeatData) -> dict[GroupKey, int]:
    """Estimate the memory of each group of a heartbeat.

    :raises HeartbeatRefused: if a name is too long.
    """
    if len(heartbeat.client_id) > limits.MAX_CLIENT_ID_CHARACTERS:
        raise HeartbeatRefused(
            f"clientID has {len(heartbeat.client_id)} characters, "
            f"{limits.MAX_CLIENT_ID_CHARACTERS} are allowed"
        )
    sizes: dict[GroupKey, int] = {}
    datas: list[bodies.ProducerData | bodies.ConsumerData] = [
        *heartbeat.producer_datas,
        *heartbeat.consumer_datas,
    ]
    for data in datas:
        group = data.group_name
        if len(group) > limits.MAX_GROUP_CHARACTERS:
            raise HeartbeatRefused(
                f"groupName {group[:_NAME_SHOWN]}... has {len(group)} characters, "
                f"{limits.MAX_GROUP_CHARACTERS} are allowed"
            )
        size = _MEMBER_BYTES + 2 * (len(group) + len(heartbeat.client_id))
        is_consumer = isinstance(data, bodies.ConsumerData)
        if isinstance(data, bodies.ConsumerData):
            size += sum(map(_subscription_bytes, data.subscription_datas))
        sizes[is_consumer, group] = size
    return sizes


def _check_bytes(total: int) -> None:
    if total > MAX_CONNECTION_GROUPS_BYTES:
        raise HeartbeatRefused(
            f"the groups of this connection take {total} bytes, "
            f"{MAX_CONNECTION_GROUPS_BYTES} are allowed"
        )


def _subscription_bytes(each: bodies.SubscriptionData) -> int:
    texts = (each.topic, each.sub_string or "", each.expression_type or "", *each.tags)
    tags = len(each.tags) + len(each.codes)
    # A character takes up to four bytes.
    return _SUBSCRIPTION_BYTES + tags * _TAG_BYTES + 4 * sum(map(len, texts))
