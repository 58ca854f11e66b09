"""Heartbeats of clients, every 30 seconds (34)."""

from enum import Enum

from rocketlens.wire.codes import V5_0_0
from rocketlens.wire.declare import (
    BOOLEAN,
    I32,
    I64,
    TEXT,
    array_of,
    declare,
    enum_of,
    member,
    object_of,
)


class ConsumeType(Enum):
    """Whether a consumer pulls actively or passively."""

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
    CONSUME_POP = "POP"


class MessageModel(Enum):
    """Whether each consumer of a group gets every message, or each message goes to one."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(Enum):
    """The first offset of a group that has none; the middle three are long out of use."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


@declare("SubscriptionData")
class SubscriptionData:
    """A group's subscription to a topic. ``codes`` are the hash codes of ``tags``."""

    topic: str = member("topic", TEXT)
    sub_string: str | None = member("subString", TEXT, default=None)
    tags: tuple[str, ...] = member("tagsSet", array_of(TEXT), default=())
    codes: tuple[int, ...] = member("codeSet", array_of(I32), default=())
    sub_version: int = member("subVersion", I64, default=0)
    expression_type: str | None = member("expressionType", TEXT, default="TAG")
    class_filter_mode: bool = member("classFilterMode", BOOLEAN, default=False)


@declare("ConsumerData")
class ConsumerData:
    """A client's membership in a consumer group."""

    group_name: str = member("groupName", TEXT)
    consume_type: ConsumeType | None = member("consumeType", enum_of(ConsumeType), default=None)
    message_model: MessageModel | None = member("messageModel", enum_of(MessageModel), default=None)
    consume_from_where: ConsumeFromWhere | None = member(
        "consumeFromWhere", enum_of(ConsumeFromWhere), default=None
    )
    subscription_datas: tuple[SubscriptionData, ...] = member(
        "subscriptionDataSet", array_of(object_of(SubscriptionData)), default=()
    )
    unit_mode: bool = member("unitMode", BOOLEAN, default=False)


@declare("ProducerData")
class ProducerData:
    """A client's membership in a producer group."""

    group_name: str = member("groupName", TEXT)


@declare("HeartbeatData")
class HeartbeatData:
    """All groups of a client."""

    client_id: str = member("clientID", TEXT)
    producer_datas: tuple[ProducerData, ...] = member(
        "producerDataSet", array_of(object_of(ProducerData)), default=()
    )
    consumer_datas: tuple[ConsumerData, ...] = member(
        "consumerDataSet", array_of(object_of(ConsumerData)), default=()
    )
    heartbeat_fingerprint: int = member("heartbeatFingerprint", I32, default=0, since=V5_0_0)
    """0: not used. Otherwise the same number as before means: nothing changed."""
    without_sub: bool = member("withoutSub", BOOLEAN, default=False, since=V5_0_0)


@declare("CheckClientRequestBody")
class CheckClientRequest:
    """Ask whether a broker takes a subscription (46)."""

    client_id: str | None = member("clientId", TEXT, default=None)
    group: str | None = member("group", TEXT, default=None)
    subscription: SubscriptionData | None = member(
        "subscriptionData", object_of(SubscriptionData), default=None
    )
    namespace: str | None = member("namespace", TEXT, default=None, since=V5_0_0)
