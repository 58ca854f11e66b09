"""Who is connected: producers and consumers by group, as their heartbeats say.

Nothing here expires by time: a client is there as long as its connection, which ends after 120 s
without a heartbeat. Sources: ``ProducerManager``, ``ConsumerManager``, ``ConsumerGroupInfo``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketlens.errors import RocketLensError
from rocketlens.net.channel import Channel
from rocketlens.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketlens.wire.codes import LanguageCode, RequestCode


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

    def add_producer(self, group: str, channel: Channel, client: Client) -> None:
        """Take a producer in, or note that it is alive."""
        self.producers.setdefault(group, {})[channel] = client

    def add_consumer(self, consumer: ConsumerData, channel: Channel, client: Client) -> None:
        """Take a consumer in; all members hear of it if anything changed."""
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
        """Let a producer go."""
        members = self.producers.get(group, {})
        members.pop(channel, None)
        if not members:
            self.producers.pop(group, None)

    def remove_consumer(self, group_name: str, channel: Channel) -> None:
        """Let a consumer go; the others hear of it."""
        group = self.consumers.get(group_name)
        if group is None or group.members.pop(channel, None) is None:
            return
        if group.members:
            self.notify(group_name)
        else:
            del self.consumers[group_name]

    def closed(self, channel: Channel) -> None:
        """Let everyone on a connection go."""
        for group in [name for name, members in self.producers.items() if channel in members]:
            self.remove_producer(group, channel)
        for group in [name for name, each in self.consumers.items() if channel in each.members]:
            self.remove_consumer(group, channel)

    def groups_of(self, topic: str) -> list[str]:
        """List the groups that subscribe to a topic."""
        return [name for name, group in self.consumers.items() if topic in group.subscriptions]

    def notify(self, group_name: str) -> None:
        """Tell the members of a group that it changed (40)."""
        if not self.notifies(group_name):
            return
        for channel in list(self.consumers[group_name].members):
            try:
                channel.tell(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group_name})
            except RocketLensError:
                # It is gone; its connection's end will say so.
                continue


def _subscribe(group: ConsumerGroup, subscriptions: Iterable[SubscriptionData]) -> bool:
    """Take the newest subscriptions; says whether topics came or went, as RocketMQ does."""
    wanted = {each.topic: each for each in subscriptions}
    is_changed = wanted.keys() != group.subscriptions.keys()
    for topic in group.subscriptions.keys() - wanted.keys():
        del group.subscriptions[topic]
    for topic, each in wanted.items():
        known = group.subscriptions.get(topic)
        if known is None or each.sub_version > known.sub_version:
            group.subscriptions[topic] = each
    return is_changed
