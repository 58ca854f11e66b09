"""Infers the groups that consumed a message: RocketMQ's ``messageTrackDetail``, with reasons.

A broker keeps one number for each group and queue: the next offset to consume. The state of one
message is inferred from it, so `MessageTrack` also keeps the facts behind the inferred type: an
offset past the message can also result from a reset, or from a filter.

| known facts | track type |
|---|---|
| clients online, pull consumers | PULL |
| clients online, offset past the message, its tag subscribed | CONSUMED |
| clients online, offset past the message, only other tags subscribed | CONSUMED_BUT_FILTERED |
| clients online, offset not past the message, or none in its queue | NOT_CONSUME_YET |
| clients online, no offset at all, broadcasting | CONSUME_BROADCASTING |
| no client online | NOT_ONLINE |
| anything else, also errors | UNKNOWN |

`MessageTrack.state` distinguishes more cases, by the rules of
`rocketlens.query.facts.group_state`, and comes with its reason.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from rocketlens.client.admin.group_calls import (
    connections_of,
    consume_stats,
    groups_of_topic,
    may_be_at_proxy,
)
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.compacted_topics import static_topic, topic_config
from rocketlens.client.search.view import broker_with
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import TAG_TYPE
from rocketlens.model.topic import TopicKind
from rocketlens.query.facts.group_state import (
    GroupFacts,
    GroupState,
    GroupVerdict,
    Subscribed,
    judge,
)
from rocketlens.wire.bodies import clients as bodies
from rocketlens.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rocketlens.client.connect.route import Broker

NO_STATS: Final = (
    "Not found the consumer group consume stats, because return offset table is empty, maybe the "
    "consumer not consume any message"
)
"""RocketMQ 4.9's message for a group without offsets."""


class TrackType(Enum):
    """The state that RocketMQ's tool infers for a group; see the table above."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(Struct, frozen=True):
    """One message in one consumer group."""

    consumer_group: str
    track_type: TrackType
    exception_desc: str | None = None
    """Why a type is NOT_ONLINE or UNKNOWN, in RocketMQ's words."""
    connections: bodies.ConsumerConnection | None = None
    """The group's clients; None if none is online or they are unknown."""
    consumer_offset: int | None = None
    """The group's next offset in the message's queue; None if it has none or it is unknown."""
    has_offsets: bool | None = None
    """True if the group has an offset in any queue; None if unknown."""
    error: RocketLensError | None = None
    has_topic_offsets: bool | None = None
    """True if the group has an offset in any queue of the topic; None if unknown."""
    retry_offsets: Mapping[tuple[str, str | None, int], int] = field(default_factory=dict)
    """The group's next offsets in its retry topics, by topic, broker name and queue id."""
    state: GroupState = GroupState.UNKNOWN
    """The group's result for the message, in more detail than `track_type`."""
    rests_on: str = ""
    """The reason for the state, in one line."""
    may_be_at_proxy: bool = False
    """True if the group may have clients at a proxy, which brokers do not know."""

    @property
    def is_online(self) -> bool | None:
        """True if the group has a client; None if unknown."""
        if self.connections is not None:
            return True
        is_offline = self.track_type is TrackType.NOT_ONLINE and not self.may_be_at_proxy
        return False if is_offline else None

    def subscription(self, topic: str) -> bodies.SubscriptionData | None:
        """Return the clients' subscription to a topic; None if they have none."""
        if self.connections is None:
            return None
        return self.connections.subscription_table.get(topic)

    def facts(self, topic: str) -> GroupFacts:
        """Return the known facts about the group and a message of a topic."""
        connected = self.connections
        subscription = self.subscription(topic)
        return GroupFacts(
            self.consumer_group,
            is_online=self.is_online,
            message_model=None
            if connected is None or connected.message_model is None
            else connected.message_model.value,
            subscribes=None if connected is None else subscription is not None,
            subscribed=None if subscription is None else subscribed_of(subscription),
            has_offsets=self.has_topic_offsets,
            consumer_offset=self.consumer_offset,
            retry_offsets=None if self.has_offsets is None else self.retry_offsets,
        )

    def as_4_9(self) -> "MessageTrack":
        """Return the track that the tool of RocketMQ 4.9 infers, which ignores broadcasting."""
        is_inferred = self.track_type in {TrackType.NOT_CONSUME_YET, TrackType.CONSUME_BROADCASTING}
        if is_inferred and self.has_offsets is False:
            remark = f"CODE:{int(ResponseCode.CONSUMER_NOT_ONLINE)} DESC:{NO_STATS}"
            return replace(self, track_type=TrackType.NOT_ONLINE, exception_desc=remark)
        return self


_OF_CODE: Final[dict[int | None, TrackType]] = {
    int(ResponseCode.CONSUMER_NOT_ONLINE): TrackType.NOT_ONLINE,
    int(ResponseCode.BROADCAST_CONSUMPTION): TrackType.CONSUME_BROADCASTING,
}


_NO_OFFSETS: Final = frozenset(
    {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST}
)
"""Codes with which a broker reports that it has no offsets of a group."""


async def message_tracks(cluster: ClusterCalls, message: MessageExt) -> tuple[MessageTrack, ...]:
    """Return a track for each consumer group of a message's topic, in the broker's order.

    If a request about a group fails, its track has the error.

    :raises TopicNotFound: if no broker has the topic.
    :raises RocketLensError: if the groups cannot be listed.
    """
    groups = await groups_of_topic(cluster, message.topic)
    holder = await broker_with(cluster, await cluster.all_brokers(), message)
    return tuple([await track_of_group(cluster, message, holder, group) for group in groups])


async def track_of_group(
    cluster: ClusterCalls, message: MessageExt, holder: "Broker | None", group: str
) -> MessageTrack:
    """Return the track of one group, which need not subscribe to the message's topic.

    ``holder`` is the broker that has the message: see `broker_with`.
    """
    track = await _track(cluster, message, holder, group)
    verdict = judge(track.facts(message.topic), message)
    if verdict.state is GroupState.UNKNOWN and track.error is not None:
        verdict = GroupVerdict(GroupState.UNKNOWN, str(track.error))
    return replace(track, state=verdict.state, rests_on=verdict.rests_on)


def subscribed_of(subscription: bodies.SubscriptionData) -> Subscribed:
    return Subscribed(
        subscription.expression_type or TAG_TYPE, subscription.sub_string or "", subscription.tags
    )


async def _track(
    cluster: ClusterCalls, message: MessageExt, holder: "Broker | None", group: str
) -> MessageTrack:
    try:
        connections = await connections_of(cluster, group)
    except BrokerError as error:
        kind = _OF_CODE.get(error.code, TrackType.UNKNOWN)
        remark = None if kind is TrackType.CONSUME_BROADCASTING else remark_of(error)
        at_proxy = await may_be_at_proxy(cluster, error)
        track = MessageTrack(group, kind, remark, error=error, may_be_at_proxy=at_proxy)
        return await _of_offline(cluster, message, holder, track)
    except RocketLensError as error:
        return MessageTrack(group, TrackType.UNKNOWN, str(error), error=error)
    track = MessageTrack(group, TrackType.UNKNOWN, connections=connections)
    if connections.consume_type is bodies.ConsumeType.CONSUME_ACTIVELY:
        track = replace(track, track_type=TrackType.PULL)
    try:
        track = await _with_offsets(cluster, message, holder, track)
    except RocketLensError as error:
        return _failed(track, error)
    if connections.consume_type is not bodies.ConsumeType.CONSUME_PASSIVELY:
        return track
    return replace(track, track_type=_inferred(message, track, connections))


async def _of_offline(
    cluster: ClusterCalls, message: MessageExt, holder: "Broker | None", track: MessageTrack
) -> MessageTrack:
    """Add the progress of a group without clients, which RocketMQ's tool does not request."""
    if track.track_type is not TrackType.NOT_ONLINE:
        return track
    try:
        return await _with_offsets(cluster, message, holder, track)
    except BrokerError as error:
        if error.code in _NO_OFFSETS:
            return replace(track, has_offsets=False, has_topic_offsets=False)
        return replace(track, error=error)
    except RocketLensError as error:
        return replace(track, error=error)


def _failed(track: MessageTrack, error: RocketLensError) -> MessageTrack:
    """Return a track without offsets. The type of a pull consumer does not need them."""
    if track.track_type is TrackType.PULL:
        return replace(track, error=error)
    if not isinstance(error, BrokerError):
        return replace(track, exception_desc=str(error), error=error)
    kind = _OF_CODE.get(error.code, TrackType.UNKNOWN)
    remark = remark_of(error) if kind is TrackType.NOT_ONLINE else None
    return replace(track, track_type=kind, exception_desc=remark, error=error)


async def _with_offsets(
    cluster: ClusterCalls, message: MessageExt, holder: "Broker | None", track: MessageTrack
) -> MessageTrack:
    """Add the group's progress in the message's queue of the broker that has the message."""
    stats = await consume_stats(cluster, track.consumer_group)
    consumer_offset: int | None = None
    of_topic: dict[tuple[str, int], tuple[int, int]] = {}
    retry_offsets: dict[tuple[str, str | None, int], int] = {}
    for queue, offset in stats.offset_table.items():
        if TopicKind.of(queue.topic) is TopicKind.RETRY:
            where = queue.topic, queue.broker_name, queue.queue_id
            retry_offsets[where] = offset.consumer_offset
        if queue.topic == message.topic:
            ends = offset.consumer_offset, offset.broker_offset
            of_topic[queue.broker_name, queue.queue_id] = ends
    if holder is not None:
        mapping = None
        with suppress(BrokerError):
            config = await topic_config(cluster, message.topic, holder.in_order[0])
            mapping = config.mapping_detail
        if mapping is None:
            consumer_offset, _ = of_topic.get((holder.name, message.queue_id), (None, 0))
        else:
            static, _ = await static_topic(cluster, await cluster.route(message.topic))
            consumer_offset = static.group_offset(message.queue_id, of_topic)
    return replace(
        track,
        has_offsets=bool(stats.offset_table),
        has_topic_offsets=bool(of_topic),
        consumer_offset=consumer_offset,
        retry_offsets=retry_offsets,
    )


def _inferred(
    message: MessageExt, track: MessageTrack, connections: bodies.ConsumerConnection
) -> TrackType:
    if track.consumer_offset is None or track.consumer_offset <= message.queue_offset:
        is_broadcasting = connections.message_model is bodies.MessageModel.BROADCASTING
        if is_broadcasting and not track.has_offsets:
            return TrackType.CONSUME_BROADCASTING
        return TrackType.NOT_CONSUME_YET
    subscription = track.subscription(message.topic)
    if subscription and subscription.tags and not {message.tags, "*"} & {*subscription.tags}:
        return TrackType.CONSUMED_BUT_FILTERED
    return TrackType.CONSUMED


def remark_of(error: BrokerError) -> str:
    return f"CODE:{error.code} DESC:{error.remark or ''}"
