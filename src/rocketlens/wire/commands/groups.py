"""Clients, groups and offsets, and the requests of tools about groups and brokers."""

from typing import Final

from msgspec import field

from rocketlens.wire.codes import RequestCode as Code
from rocketlens.wire.commands.brokers import TopicRequest
from rocketlens.wire.declare import I32, I64, Command, NoFields, WireStruct


class ConsumerGroupRequest(
    WireStruct,
    java=(
        "GetConsumerListByGroupRequestHeader",
        "NotifyConsumerIdsChangedRequestHeader",
        "GetConsumerConnectionListRequestHeader",
    ),
):
    """A consumer group: returns its client ids (38; a ConsumerIdList) or its clients and their
    subscriptions (203; a ConsumerConnection); or, from broker to client and one-way, reports that
    its members changed (40).
    """

    consumer_group: str


class GroupRequest(
    WireStruct,
    java=("GetSubscriptionGroupConfigRequestHeader", "QueryTopicsByConsumerRequestHeader"),
):
    """Asks for a group's SubscriptionGroupConfig (352), or a TopicList of its topics (343)."""

    group: str


class QueueRequest(
    WireStruct, java=("GetMinOffsetRequestHeader", "GetEarliestMsgStoretimeRequestHeader")
):
    """A queue: returns the first stored offset (31), or the store time of its message (32)."""

    topic: str
    queue_id: I32
    broker_name: str | None = field(name="bname", default=None)
    """The queue's broker: a proxy, which has one address for many brokers, forwards the request to
    it."""
    lo: bool | None = None
    """False: the queue of a static topic is the broker's own one, not a logical one."""


class HeartbeatResponse(WireStruct, java=()):
    """Fields that a 5.x broker adds to its answer; RocketMQ has no class for them."""

    is_support_heart_beat_v2: bool | None = field(name="IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = field(name="IS_SUB_CHANGE", default=None)


class UnregisterClientRequest(WireStruct, java="UnregisterClientRequestHeader"):
    """Removes a producer or consumer of a client."""

    client_id: str = field(name="clientID", default="")
    producer_group: str | None = None
    consumer_group: str | None = None


HEART_BEAT: Final = Command(Code.HEART_BEAT, NoFields, HeartbeatResponse)
UNREGISTER_CLIENT: Final = Command(Code.UNREGISTER_CLIENT, UnregisterClientRequest)
GET_CONSUMER_LIST_BY_GROUP: Final = Command(Code.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequest)
NOTIFY_CONSUMER_IDS_CHANGED: Final = Command(Code.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequest)


class SearchOffsetRequest(WireStruct, java="SearchOffsetRequestHeader"):
    """Asks for the message of a queue that was stored at a time."""

    topic: str
    queue_id: I32
    timestamp_ms: I64
    boundary_type: str | None = None
    """LOWER (the default) or UPPER, in any case."""
    lite_topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class QueueOffsetResponse(
    WireStruct,
    java=(
        "SearchOffsetResponseHeader",
        "GetMaxOffsetResponseHeader",
        "GetMinOffsetResponseHeader",
        "QueryConsumerOffsetResponseHeader",
    ),
):
    """A queue offset."""

    queue_offset: I64 = field(name="offset")


class GetMaxOffsetRequest(WireStruct, java="GetMaxOffsetRequestHeader"):
    """Asks for the offset that the next message of a queue will have."""

    topic: str
    queue_id: I32
    committed: bool | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class GetEarliestStoreTimeResponse(WireStruct, java="GetEarliestMsgStoretimeResponseHeader"):
    """A time; -1 without a message."""

    timestamp_ms: I64


class QueryConsumerOffsetRequest(WireStruct, java="QueryConsumerOffsetRequestHeader"):
    """Asks for the offset of a consumer group in a queue."""

    consumer_group: str = ""
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class UpdateConsumerOffsetRequest(WireStruct, java="UpdateConsumerOffsetRequestHeader"):
    """Stores the offset of a consumer group in a queue; mostly one-way."""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64
    broker_name: str | None = field(name="bname", default=None)
    lo: bool | None = None


class ResetOffsetRequest(WireStruct, java="ResetOffsetRequestHeader"):
    """Resets the offsets of a group's consumers; the response's body is a ResetOffsetBody.

    To ``offset`` in one queue, or in all queues (``queue_id`` -1 or None) to a time. Without
    ``is_force`` only backwards.
    """

    topic: str
    group: str
    queue_id: I32 | None = None
    offset: I64 | None = None
    timestamp_ms: I64
    is_force: bool


class CloneGroupOffsetRequest(WireStruct, java="CloneGroupOffsetRequestHeader"):
    """Copies the offsets of one group to another, of all topics if none is given.

    Unless ``offline``, only for topics that the consumers of the target group subscribe to.
    """

    source_group: str = field(name="srcGroup")
    target_group: str = field(name="destGroup")
    topic: str | None = None
    offline: bool = False


SEARCH_OFFSET_BY_TIMESTAMP: Final = Command(
    Code.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequest, QueueOffsetResponse
)
GET_MAX_OFFSET: Final = Command(Code.GET_MAX_OFFSET, GetMaxOffsetRequest, QueueOffsetResponse)
GET_MIN_OFFSET: Final = Command(Code.GET_MIN_OFFSET, QueueRequest, QueueOffsetResponse)
GET_EARLIEST_MSG_STORETIME: Final = Command(
    Code.GET_EARLIEST_MSG_STORETIME, QueueRequest, GetEarliestStoreTimeResponse
)
QUERY_CONSUMER_OFFSET: Final = Command(
    Code.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest, QueueOffsetResponse
)
UPDATE_CONSUMER_OFFSET: Final = Command(Code.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest)
INVOKE_BROKER_TO_RESET_OFFSET: Final = Command(
    Code.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest
)
CLONE_GROUP_OFFSET: Final = Command(Code.CLONE_GROUP_OFFSET, CloneGroupOffsetRequest)


class GetConsumerRunningInfoRequest(WireStruct, java="GetConsumerRunningInfoRequestHeader"):
    """Asks for the state of a consumer; the body of the answer is a ConsumerRunningInfo."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(WireStruct, java="ConsumeMessageDirectlyResultRequestHeader"):
    """Sends a consumer one message; the response's body is a ConsumeMessageDirectlyResult.

    ``msg_id`` is an offsetMsgId. From broker to consumer the body is the stored record.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class GetConsumerStatusRequest(WireStruct, java="GetConsumerStatusRequestHeader"):
    """Asks for a consumer's progress in a topic; the answer's body is a GetConsumerStatusBody."""

    topic: str
    group: str
    client_addr: str | None = None


LOCK_BATCH_MQ: Final = Command(Code.LOCK_BATCH_MQ)
UNLOCK_BATCH_MQ: Final = Command(Code.UNLOCK_BATCH_MQ)
GET_CONSUMER_RUNNING_INFO: Final = Command(
    Code.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequest
)
CONSUME_MESSAGE_DIRECTLY: Final = Command(
    Code.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequest
)
RESET_CONSUMER_CLIENT_OFFSET: Final = Command(Code.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequest)
GET_CONSUMER_STATUS_FROM_CLIENT: Final = Command(
    Code.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequest
)
INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Final = Command(
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequest
)


class GetConsumeStatsRequest(WireStruct, java="GetConsumeStatsRequestHeader"):
    """Asks for the progress of a group, in one topic or all; answered with a ConsumeStats."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetProducerConnectionListRequest(WireStruct, java="GetProducerConnectionListRequestHeader"):
    """Asks for the clients of a producer group; the body of the answer is a ProducerConnection."""

    producer_group: str


class GetBrokerConsumeStatsRequest(WireStruct, java="GetConsumeStatsInBrokerHeader"):
    """Asks for the progress of all groups, or in ordered topics; the body is a ConsumeStatsList."""

    is_order: bool = False


class DeleteSubscriptionGroupRequest(WireStruct, java="DeleteSubscriptionGroupRequestHeader"):
    """Deletes a group, with ``clean_offset`` also its offsets; in 4.9 that is ``removeOffset``."""

    group_name: str
    clean_offset: bool | None = None


class QuerySubscriptionByConsumerRequest(
    WireStruct, java="QuerySubscriptionByConsumerRequestHeader"
):
    """Asks for a group's subscription to a topic; answered with a QuerySubscriptionResponseBody."""

    group: str
    topic: str = ""


class QueryConsumeQueueRequest(WireStruct, java="QueryConsumeQueueRequestHeader"):
    """Asks for entries of a queue; the body of the answer is a QueryConsumeQueueResponseBody."""

    topic: str = ""
    queue_id: I32 = 0
    index: I64 = 0
    count: I32 = 0
    consumer_group: str | None = None


class ViewBrokerStatsDataRequest(WireStruct, java="ViewBrokerStatsDataRequestHeader"):
    """Asks for a count of a broker, by its name and its key."""

    stats_name: str
    stats_key: str


GET_CONSUMER_CONNECTION_LIST: Final = Command(
    Code.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest
)
GET_CONSUME_STATS: Final = Command(Code.GET_CONSUME_STATS, GetConsumeStatsRequest)
QUERY_TOPIC_CONSUME_BY_WHO: Final = Command(Code.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest)
GET_PRODUCER_CONNECTION_LIST: Final = Command(
    Code.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequest
)
GET_ALL_PRODUCER_INFO: Final = Command(Code.GET_ALL_PRODUCER_INFO)
GET_BROKER_CONSUME_STATS: Final = Command(
    Code.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequest
)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = Command(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Final = Command(
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
)
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = Command(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
GET_SUBSCRIPTIONGROUP_CONFIG: Final = Command(Code.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequest)
DELETE_SUBSCRIPTIONGROUP: Final = Command(
    Code.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest
)
QUERY_TOPICS_BY_CONSUMER: Final = Command(Code.QUERY_TOPICS_BY_CONSUMER, GroupRequest)
QUERY_SUBSCRIPTION_BY_CONSUMER: Final = Command(
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumerRequest
)
QUERY_CONSUME_QUEUE: Final = Command(Code.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequest)
VIEW_BROKER_STATS_DATA: Final = Command(Code.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest)


class GetBrokerConfigResponse(WireStruct, java="GetBrokerConfigResponseHeader"):
    """The version of a broker's configuration; the body is a Java properties file."""

    version: str


GET_BROKER_RUNTIME_INFO: Final = Command(Code.GET_BROKER_RUNTIME_INFO)
GET_BROKER_CONFIG: Final = Command(Code.GET_BROKER_CONFIG, NoFields, GetBrokerConfigResponse)
GET_BROKER_HA_STATUS: Final = Command(Code.GET_BROKER_HA_STATUS)
SET_MESSAGE_REQUEST_MODE: Final = Command(Code.SET_MESSAGE_REQUEST_MODE)
"""The body has topic, consumerGroup, mode (PULL or POP) and popShareQueueNum."""
UPDATE_BROKER_CONFIG: Final = Command(Code.UPDATE_BROKER_CONFIG)
GET_ALL_CONSUMER_OFFSET: Final = Command(Code.GET_ALL_CONSUMER_OFFSET)
GET_ALL_DELAY_OFFSET: Final = Command(Code.GET_ALL_DELAY_OFFSET)
"""Both are answered with the text of the broker's own file."""
