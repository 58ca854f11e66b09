"""Clients of a broker: heartbeats (34), connections, locks, and what consumers are asked and
answer.

Connections of consumers (203, 38, 300) and producers (204, 328), locks (41, 42), requests to
consumers (220) and their responses (221, 307, 309), subscriptions (345), entries of queues (321).
"""

from collections.abc import Mapping
from enum import Enum

from rocketlens.wire.bodies.tables import MessageQueue
from rocketlens.wire.declare import EMPTY, I32, I64, declare, wire


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

    topic: str
    sub_string: str | None = None
    tags: tuple[str, ...] = wire("tagsSet", default=())
    codes: tuple[I32, ...] = wire("codeSet", default=())
    sub_version: I64 = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


@declare("ConsumerData")
class ConsumerData:
    """A client's membership in a consumer group."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_datas: tuple[SubscriptionData, ...] = wire("subscriptionDataSet", default=())
    unit_mode: bool = False


@declare("ProducerData")
class ProducerData:
    """A client's membership in a producer group."""

    group_name: str


@declare("HeartbeatData")
class HeartbeatData:
    """All groups of a client."""

    client_id: str = wire("clientID")
    producer_datas: tuple[ProducerData, ...] = wire("producerDataSet", default=())
    consumer_datas: tuple[ConsumerData, ...] = wire("consumerDataSet", default=())
    heartbeat_fingerprint: I32 = 0
    """0: not used. Otherwise the same number as before means: nothing changed."""
    without_sub: bool = False


@declare("CheckClientRequestBody")
class CheckClientRequest:
    """Ask whether a broker takes a subscription (46)."""

    client_id: str | None = None
    group: str | None = None
    subscription: SubscriptionData | None = wire("subscriptionData", default=None)
    namespace: str | None = None


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

    client_id: str
    client_addr: str
    language: str | None = None
    """A name of LanguageCode, also an unknown one."""
    version: I32 = 0


@declare("ConsumerConnection")
class ConsumerConnection:
    """The clients of a consumer group, and their subscriptions."""

    connections: tuple[ClientConnection, ...] = wire("connectionSet", default=())
    subscription_table: Mapping[str, SubscriptionData] = EMPTY
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@declare("GetConsumerListByGroupResponseBody")
class ConsumerIdList:
    """The client ids of a group."""

    consumer_ids: tuple[str, ...] = wire("consumerIdList", default=())


@declare("GroupList")
class GroupList:
    """Names of consumer groups."""

    groups: tuple[str, ...] = wire("groupList", default=())


@declare("LockBatchRequestBody")
class LockBatchRequest:
    """Queues that a client locks (41) or unlocks (42)."""

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = wire("mqSet", default=())
    only_this_broker: bool | None = None


@declare("LockBatchResponseBody")
class LockBatchResponse:
    """The queues that were locked."""

    locked_queues: tuple[MessageQueue, ...] = wire("lockOKMQSet", default=())


@declare("ConsumeStatus")
class ConsumeStatus:
    """Statistics of a consumer in one topic; times in milliseconds, rates per second."""

    pull_rt: float = wire("pullRT", default=0.0)
    pull_tps: float = wire("pullTPS", default=0.0)
    consume_rt: float = wire("consumeRT", default=0.0)
    consume_ok_tps: float = wire("consumeOKTPS", default=0.0)
    consume_failed_tps: float = wire("consumeFailedTPS", default=0.0)
    consume_failed_msgs: I64 = 0


@declare("ProcessQueueInfo")
class ProcessQueueInfo:
    """The messages of one queue that a consumer has in memory."""

    commit_offset: I64 = 0
    cached_msg_min_offset: I64 = 0
    cached_msg_max_offset: I64 = 0
    cached_msg_count: I32 = 0
    cached_msg_size_mib: I32 = wire("cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: I64 = 0
    transaction_msg_max_offset: I64 = 0
    transaction_msg_count: I32 = 0
    locked: bool = False
    try_unlock_times: I64 = 0
    last_lock_timestamp_ms: I64 = 0
    dropped: bool = wire("droped", default=False)
    last_pull_timestamp_ms: I64 = 0
    last_consume_timestamp_ms: I64 = 0


@declare("PopProcessQueueInfo")
class PopProcessQueueInfo:
    """Messages of one queue that a consumer which pops holds."""

    wait_ack_count: I32 = 0
    dropped: bool = wire("droped", default=False)
    last_pop_timestamp_ms: I64 = 0


@declare("ConsumerRunningInfo")
class ConsumerRunningInfo:
    """The state of a consumer; ``properties`` are its settings, PROP_CONSUME_TYPE and others."""

    properties: Mapping[str, str] = EMPTY
    subscriptions: tuple[SubscriptionData, ...] = wire("subscriptionSet", default=())
    queue_table: Mapping[MessageQueue, ProcessQueueInfo] = wire("mqTable", default=EMPTY)
    pop_table: Mapping[MessageQueue, PopProcessQueueInfo] = wire("mqPopTable", default=EMPTY)
    status_table: Mapping[str, ConsumeStatus] = EMPTY
    user_consumer_info: Mapping[str, str] | None = None
    jstack: str | None = None


@declare("ConsumeMessageDirectlyResult")
class ConsumeMessageDirectlyResult:
    """The result of a message that a consumer was sent directly."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_ms: I64 = wire("spentTimeMills", default=0)


@declare("OffsetSerializeWrapper")
class LocalOffsets:
    """The file in which a broadcasting consumer keeps its offsets."""

    offset_table: Mapping[MessageQueue, I64] = EMPTY


@declare("GetConsumerStatusBody")
class ConsumerStatusAnswer:
    """Progress of a consumer (221), or of several by their client ids (223)."""

    queue_table: Mapping[MessageQueue, I64] = wire("messageQueueTable", default=EMPTY)
    consumer_table: Mapping[str, Mapping[MessageQueue, I64]] = EMPTY


@declare("ProducerConnection")
class ProducerConnection:
    """The clients of a producer group."""

    connections: tuple[ClientConnection, ...] = wire("connectionSet", default=())


@declare("ProducerInfo")
class ProducerInfo:
    """A producer: its address for the broker, language and version."""

    client_id: str
    remote_ip: str = wire("remoteIP")
    language: str | None = None
    version: I32 = 0
    last_update_timestamp_ms: I64 = 0


@declare("ProducerTableInfo")
class ProducerTable:
    """The producers of all groups."""

    groups: Mapping[str, tuple[ProducerInfo, ...]] = wire("data", default=EMPTY)


@declare("QuerySubscriptionResponseBody")
class SubscriptionAnswer:
    """The subscription of a group to a topic, if any of its consumers is connected."""

    subscription: SubscriptionData | None = wire("subscriptionData", default=None)
    group: str
    topic: str


@declare("ConsumeQueueData")
class ConsumeQueueData:
    """An entry of a consume queue."""

    physical_offset: I64 = wire("physicOffset", default=0)
    store_size: I32 = wire("physicSize", default=0)
    tags_code: I64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    is_passing: bool = wire("eval", default=False)
    """Whether a filter matches it; only for filters that RocketLens does not have."""
    message: str | None = wire("msg", default=None)


@declare("QueryConsumeQueueResponseBody")
class ConsumeQueueAnswer:
    """Entries of a consume queue, and a group's subscription to it."""

    subscription: SubscriptionData | None = wire("subscriptionData", default=None)
    filter_data: str | None = None
    entries: tuple[ConsumeQueueData, ...] | None = wire("queueData", default=None)
    max_offset: I64 = wire("maxQueueIndex", default=0)
    min_offset: I64 = wire("minQueueIndex", default=0)
