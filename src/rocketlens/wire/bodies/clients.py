"""Clients of a broker: heartbeats, connections, locks, and the answers of consumers."""

from collections.abc import Mapping
from enum import Enum

from msgspec import field

from rocketlens.wire.bodies.tables import MessageQueue
from rocketlens.wire.declare import I32, I64, WireStruct


class ConsumeType(Enum):
    """How a consumer gets its messages."""

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
    CONSUME_POP = "POP"


class MessageModel(Enum):
    """Each consumer of a group gets every message, or one of them gets it."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(Enum):
    """The first offset of a group that has none; the middle three are obsolete."""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


class SubscriptionData(WireStruct):
    """A group's subscription to a topic. ``codes`` are the hash codes of ``tags``."""

    topic: str
    sub_string: str | None = None
    tags: tuple[str, ...] = field(name="tagsSet", default=())
    codes: tuple[I32, ...] = field(name="codeSet", default=())
    sub_version: I64 = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


class ConsumerData(WireStruct):
    """A client's membership in a consumer group."""

    group_name: str
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_datas: tuple[SubscriptionData, ...] = field(name="subscriptionDataSet", default=())
    unit_mode: bool = False


class ProducerData(WireStruct):
    """A client's membership in a producer group."""

    group_name: str


class HeartbeatData(WireStruct):
    """All groups of a client."""

    client_id: str = field(name="clientID")
    producer_datas: tuple[ProducerData, ...] = field(name="producerDataSet", default=())
    consumer_datas: tuple[ConsumerData, ...] = field(name="consumerDataSet", default=())
    heartbeat_fingerprint: I32 = 0
    """0: not used. Otherwise the same number as before means that nothing changed."""
    without_sub: bool = False


class CheckClientRequest(WireStruct, java="CheckClientRequestBody"):
    """Asks a broker to check a subscription (46)."""

    client_id: str | None = None
    group: str | None = None
    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)
    namespace: str | None = None


class ConsumeResult(Enum):
    """The outcome of a message that a consumer was sent directly (CMResult)."""

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


class ClientConnection(WireStruct, java="Connection"):
    """A client: its address for the broker, language and version."""

    client_id: str
    client_addr: str
    language: str | None = None
    """A name of LanguageCode, also an unknown one."""
    version: I32 = 0


class ConsumerConnection(WireStruct):
    """The clients of a consumer group, and their subscriptions."""

    connections: tuple[ClientConnection, ...] = field(name="connectionSet", default=())
    subscription_table: Mapping[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ConsumerIdList(WireStruct, java="GetConsumerListByGroupResponseBody"):
    """The client ids of a group."""

    consumer_ids: tuple[str, ...] = field(name="consumerIdList", default=())


class GroupList(WireStruct):
    """Names of consumer groups."""

    groups: tuple[str, ...] = field(name="groupList", default=())


class LockBatchRequest(WireStruct, java="LockBatchRequestBody"):
    """Queues that a client locks (41) or unlocks (42)."""

    consumer_group: str
    client_id: str
    queues: tuple[MessageQueue, ...] = field(name="mqSet", default=())
    only_this_broker: bool | None = None


class LockBatchResponse(WireStruct, java="LockBatchResponseBody"):
    """The queues that were locked."""

    locked_queues: tuple[MessageQueue, ...] = field(name="lockOKMQSet", default=())


class ConsumeStatus(WireStruct):
    """Statistics of a consumer in one topic; times in milliseconds, rates per second."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: I64 = 0


class ProcessQueueInfo(WireStruct):
    """The messages of one queue that a consumer has in memory."""

    commit_offset: I64 = 0
    cached_msg_min_offset: I64 = 0
    cached_msg_max_offset: I64 = 0
    cached_msg_count: I32 = 0
    cached_msg_size_mib: I32 = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: I64 = 0
    transaction_msg_max_offset: I64 = 0
    transaction_msg_count: I32 = 0
    locked: bool = False
    try_unlock_times: I64 = 0
    last_lock_timestamp_ms: I64 = 0
    dropped: bool = field(name="droped", default=False)
    last_pull_timestamp_ms: I64 = 0
    last_consume_timestamp_ms: I64 = 0


class PopProcessQueueInfo(WireStruct):
    """The messages of one queue that a consumer has popped."""

    wait_ack_count: I32 = 0
    dropped: bool = field(name="droped", default=False)
    last_pop_timestamp_ms: I64 = 0


class ConsumerRunningInfo(WireStruct):
    """The state of a consumer; ``properties`` are its settings, PROP_CONSUME_TYPE and others."""

    properties: Mapping[str, str] = {}
    subscriptions: tuple[SubscriptionData, ...] = field(name="subscriptionSet", default=())
    queue_table: Mapping[MessageQueue, ProcessQueueInfo] = field(name="mqTable", default={})
    pop_table: Mapping[MessageQueue, PopProcessQueueInfo] = field(name="mqPopTable", default={})
    status_table: Mapping[str, ConsumeStatus] = {}
    user_consumer_info: Mapping[str, str] | None = None
    jstack: str | None = None


class ConsumeMessageDirectlyResult(WireStruct):
    """The result of a message that a consumer was sent directly."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_ms: I64 = field(name="spentTimeMills", default=0)


class LocalOffsets(WireStruct, java="OffsetSerializeWrapper"):
    """The file in which a broadcasting consumer keeps its offsets."""

    offset_table: Mapping[MessageQueue, I64] = {}


class ConsumerStatusAnswer(WireStruct, java="GetConsumerStatusBody"):
    """Progress of a consumer (221), or of several by their client ids (223)."""

    queue_table: Mapping[MessageQueue, I64] = field(name="messageQueueTable", default={})
    consumer_table: Mapping[str, Mapping[MessageQueue, I64]] = {}


class ProducerConnection(WireStruct):
    """The clients of a producer group."""

    connections: tuple[ClientConnection, ...] = field(name="connectionSet", default=())


class ProducerInfo(WireStruct):
    """A producer: its address for the broker, language and version."""

    client_id: str
    remote_ip: str = field(name="remoteIP")
    language: str | None = None
    version: I32 = 0
    last_update_timestamp_ms: I64 = 0


class ProducerTable(WireStruct, java="ProducerTableInfo"):
    """The producers of all groups."""

    groups: Mapping[str, tuple[ProducerInfo, ...]] = field(name="data", default={})


class SubscriptionAnswer(WireStruct, java="QuerySubscriptionResponseBody"):
    """The subscription of a group to a topic, if any of its consumers is connected."""

    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)
    group: str
    topic: str


class ConsumeQueueData(WireStruct):
    """An entry of a consume queue."""

    physical_offset: I64 = field(name="physicOffset", default=0)
    store_size: I32 = field(name="physicSize", default=0)
    tags_code: I64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    is_passing: bool = field(name="eval", default=False)
    """A filter matches it; only for filters that RocketLens does not have."""
    message: str | None = field(name="msg", default=None)


class ConsumeQueueAnswer(WireStruct, java="QueryConsumeQueueResponseBody"):
    """Entries of a consume queue, and a group's subscription to it."""

    subscription: SubscriptionData | None = field(name="subscriptionData", default=None)
    filter_data: str | None = None
    entries: tuple[ConsumeQueueData, ...] | None = field(name="queueData", default=None)
    max_offset: I64 = field(name="maxQueueIndex", default=0)
    min_offset: I64 = field(name="minQueueIndex", default=0)
