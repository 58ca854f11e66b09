"""Consumers: connections (203, 38, 300), locks (41, 42), requests to them (220) and their responses
(221, 307, 309).

And producers (204, 328), subscriptions (345), entries of queues (321).
"""

from collections.abc import Mapping
from enum import Enum

from rocketlens.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketlens.wire.bodies.stats import MessageQueueBody
from rocketlens.wire.codes import V5_0_0
from rocketlens.wire.declare import (
    BOOLEAN,
    I32,
    I64,
    REAL,
    TEXT,
    array_of,
    declare,
    enum_of,
    map_of,
    member,
    object_key_of,
    object_of,
)


class ConsumeResult(Enum):
    """The outcome of a message that a consumer was sent directly (CMResult)."""

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


@declare("Connection")
class ClientConnection:
    """A client: its address for the broker, language and version."""

    client_id: str = member("clientId", TEXT)
    client_addr: str = member("clientAddr", TEXT)
    language: str | None = member("language", TEXT, default=None)
    """A name of LanguageCode, also an unknown one."""
    version: int = member("version", I32, default=0)


@declare("ConsumerConnection")
class ConsumerConnection:
    """The clients of a consumer group, and their subscriptions."""

    connections: tuple[ClientConnection, ...] = member(
        "connectionSet", array_of(object_of(ClientConnection)), default=()
    )
    subscription_table: Mapping[str, SubscriptionData] = member(
        "subscriptionTable", map_of(TEXT, object_of(SubscriptionData)), default_factory=dict
    )
    consume_type: ConsumeType | None = member("consumeType", enum_of(ConsumeType), default=None)
    message_model: MessageModel | None = member("messageModel", enum_of(MessageModel), default=None)
    consume_from_where: ConsumeFromWhere | None = member(
        "consumeFromWhere", enum_of(ConsumeFromWhere), default=None
    )


@declare("GetConsumerListByGroupResponseBody")
class ConsumerIdList:
    """The client ids of a group."""

    consumer_ids: tuple[str, ...] = member("consumerIdList", array_of(TEXT), default=())


@declare("GroupList")
class GroupList:
    """Names of consumer groups."""

    groups: tuple[str, ...] = member("groupList", array_of(TEXT), default=())


@declare("LockBatchRequestBody")
class LockBatchRequest:
    """Queues that a client locks (41) or unlocks (42)."""

    consumer_group: str = member("consumerGroup", TEXT)
    client_id: str = member("clientId", TEXT)
    queues: tuple[MessageQueueBody, ...] = member(
        "mqSet", array_of(object_of(MessageQueueBody)), default=()
    )
    only_this_broker: bool | None = member("onlyThisBroker", BOOLEAN, default=None, since=V5_0_0)


@declare("LockBatchResponseBody")
class LockBatchResponse:
    """The queues that were locked."""

    locked_queues: tuple[MessageQueueBody, ...] = member(
        "lockOKMQSet", array_of(object_of(MessageQueueBody)), default=()
    )


@declare("ConsumeStatus")
class ConsumeStatus:
    """Statistics of a consumer in one topic; times in milliseconds, rates per second."""

    pull_rt: float = member("pullRT", REAL, default=0.0)
    pull_tps: float = member("pullTPS", REAL, default=0.0)
    consume_rt: float = member("consumeRT", REAL, default=0.0)
    consume_ok_tps: float = member("consumeOKTPS", REAL, default=0.0)
    consume_failed_tps: float = member("consumeFailedTPS", REAL, default=0.0)
    consume_failed_msgs: int = member("consumeFailedMsgs", I64, default=0)


@declare("ProcessQueueInfo")
class ProcessQueueInfo:
    """The messages of one queue that a consumer has in memory."""

    commit_offset: int = member("commitOffset", I64, default=0)
    cached_msg_min_offset: int = member("cachedMsgMinOffset", I64, default=0)
    cached_msg_max_offset: int = member("cachedMsgMaxOffset", I64, default=0)
    cached_msg_count: int = member("cachedMsgCount", I32, default=0)
    cached_msg_size_mib: int = member("cachedMsgSizeInMiB", I32, default=0)
    transaction_msg_min_offset: int = member("transactionMsgMinOffset", I64, default=0)
    transaction_msg_max_offset: int = member("transactionMsgMaxOffset", I64, default=0)
    transaction_msg_count: int = member("transactionMsgCount", I32, default=0)
    locked: bool = member("locked", BOOLEAN, default=False)
    try_unlock_times: int = member("tryUnlockTimes", I64, default=0)
    last_lock_timestamp_ms: int = member("lastLockTimestamp", I64, default=0)
    dropped: bool = member("droped", BOOLEAN, default=False)
    last_pull_timestamp_ms: int = member("lastPullTimestamp", I64, default=0)
    last_consume_timestamp_ms: int = member("lastConsumeTimestamp", I64, default=0)


@declare("PopProcessQueueInfo")
class PopProcessQueueInfo:
    """Messages of one queue that a consumer which pops holds."""

    wait_ack_count: int = member("waitAckCount", I32, default=0)
    dropped: bool = member("droped", BOOLEAN, default=False)
    last_pop_timestamp_ms: int = member("lastPopTimestamp", I64, default=0)


@declare("ConsumerRunningInfo")
class ConsumerRunningInfo:
    """The state of a consumer; ``properties`` are its settings, PROP_CONSUME_TYPE and others."""

    properties: Mapping[str, str] = member("properties", map_of(TEXT, TEXT), default_factory=dict)
    subscriptions: tuple[SubscriptionData, ...] = member(
        "subscriptionSet", array_of(object_of(SubscriptionData)), default=()
    )
    queue_table: Mapping[MessageQueueBody, ProcessQueueInfo] = member(
        "mqTable",
        map_of(object_key_of(MessageQueueBody), object_of(ProcessQueueInfo)),
        default_factory=dict,
    )
    pop_table: Mapping[MessageQueueBody, PopProcessQueueInfo] = member(
        "mqPopTable",
        map_of(object_key_of(MessageQueueBody), object_of(PopProcessQueueInfo)),
        default_factory=dict,
        since=V5_0_0,
    )
    status_table: Mapping[str, ConsumeStatus] = member(
        "statusTable", map_of(TEXT, object_of(ConsumeStatus)), default_factory=dict
    )
    user_consumer_info: Mapping[str, str] | None = member(
        "userConsumerInfo", map_of(TEXT, TEXT), default=None, since=V5_0_0
    )
    jstack: str | None = member("jstack", TEXT, default=None)


@declare("ConsumeMessageDirectlyResult")
class ConsumeMessageDirectlyResult:
    """The result of a message that a consumer was sent directly."""

    order: bool = member("order", BOOLEAN, default=False)
    auto_commit: bool = member("autoCommit", BOOLEAN, default=True)
    consume_result: ConsumeResult | None = member(
        "consumeResult", enum_of(ConsumeResult), default=None
    )
    remark: str | None = member("remark", TEXT, default=None)
    spent_time_ms: int = member("spentTimeMills", I64, default=0)


@declare("OffsetSerializeWrapper")
class LocalOffsets:
    """The file in which a broadcasting consumer keeps its offsets."""

    offset_table: Mapping[MessageQueueBody, int] = member(
        "offsetTable", map_of(object_key_of(MessageQueueBody), I64), default_factory=dict
    )


@declare("GetConsumerStatusBody")
class ConsumerStatusAnswer:
    """Progress of a consumer (221), or of several by their client ids (223)."""

    queue_table: Mapping[MessageQueueBody, int] = member(
        "messageQueueTable", map_of(object_key_of(MessageQueueBody), I64), default_factory=dict
    )
    consumer_table: Mapping[str, Mapping[MessageQueueBody, int]] = member(
        "consumerTable",
        map_of(TEXT, map_of(object_key_of(MessageQueueBody), I64)),
        default_factory=dict,
    )


@declare("ProducerConnection")
class ProducerConnection:
    """The clients of a producer group."""

    connections: tuple[ClientConnection, ...] = member(
        "connectionSet", array_of(object_of(ClientConnection)), default=()
    )


@declare("ProducerInfo")
class ProducerInfo:
    """A producer: its address for the broker, language and version."""

    client_id: str = member("clientId", TEXT)
    remote_ip: str = member("remoteIP", TEXT)
    language: str | None = member("language", TEXT, default=None)
    version: int = member("version", I32, default=0)
    last_update_timestamp_ms: int = member("lastUpdateTimestamp", I64, default=0)


@declare("ProducerTableInfo")
class ProducerTable:
    """The producers of all groups."""

    groups: Mapping[str, tuple[ProducerInfo, ...]] = member(
        "data", map_of(TEXT, array_of(object_of(ProducerInfo))), default_factory=dict
    )


@declare("QuerySubscriptionResponseBody")
class SubscriptionAnswer:
    """The subscription of a group to a topic, if any of its consumers is connected."""

    subscription: SubscriptionData | None = member(
        "subscriptionData", object_of(SubscriptionData), default=None
    )
    group: str = member("group", TEXT)
    topic: str = member("topic", TEXT)


@declare("ConsumeQueueData")
class ConsumeQueueData:
    """An entry of a consume queue."""

    physical_offset: int = member("physicOffset", I64, default=0)
    store_size: int = member("physicSize", I32, default=0)
    tags_code: int = member("tagsCode", I64, default=0)
    is_passing: bool = member("eval", BOOLEAN, default=False)
    """Whether a filter matches it; only for filters that RocketLens does not have."""


@declare("QueryConsumeQueueResponseBody")
class ConsumeQueueAnswer:
    """Entries of a consume queue, and a group's subscription to it."""

    subscription: SubscriptionData | None = member(
        "subscriptionData", object_of(SubscriptionData), default=None
    )
    filter_data: str | None = member("filterData", TEXT, default=None)
    entries: tuple[ConsumeQueueData, ...] | None = member(
        "queueData", array_of(object_of(ConsumeQueueData)), default=None
    )
    max_offset: int = member("maxQueueIndex", I64, default=0)
    min_offset: int = member("minQueueIndex", I64, default=0)
