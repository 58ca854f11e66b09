"""Requests about lite topics (RocketMQ 5.5): the many small topics below one parent topic.

A lite topic is the queue ``%LMQ%$PARENT$NAME`` of its parent's broker.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens.wire.bodies.tables import OffsetWrapper, TopicOffset
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.declare import I32, I64, Command, WireStruct


class GetParentTopicInfoRequest(WireStruct, java="GetParentTopicInfoRequestHeader"):
    """Asks for a parent topic; the body of the answer is a `ParentTopicInfo`."""

    topic: str


class GetLiteTopicInfoRequest(WireStruct, java="GetLiteTopicInfoRequestHeader"):
    """Asks for a lite topic; the body of the answer is a `LiteTopicInfo`."""

    parent_topic: str
    lite_topic: str


class GetLiteClientInfoRequest(WireStruct, java="GetLiteClientInfoRequestHeader"):
    """Asks for a client of a group; the body of the answer is a `LiteClientInfo`."""

    parent_topic: str
    group: str
    client_id: str
    max_count: I32 = 1000


class GetLiteGroupInfoRequest(WireStruct, java="GetLiteGroupInfoRequestHeader"):
    """Asks for the lag of a group, in all or one lite topic; answered with a `LiteGroupInfo`."""

    group: str
    lite_topic: str | None = None
    top_k: I32 = 20


class TriggerLiteDispatchRequest(WireStruct, java="TriggerLiteDispatchRequestHeader"):
    """Makes a broker look again for messages of lite topics for a group, or one client of it."""

    group: str
    client_id: str | None = None


class BrokerLiteInfo(WireStruct, java="GetBrokerLiteInfoResponseBody"):
    """Counts of the lite topics of a broker, and the parent topics and groups."""

    store_type: str | None = None
    max_lmq_num: I32 = 0
    current_lmq_num: I32 = 0
    lite_subscription_count: I32 = 0
    order_info_count: I32 = 0
    cq_table_size: I32 = 0
    offset_table_size: I32 = 0
    event_map_size: I32 = 0
    topic_meta: Mapping[str, I32] = {}
    group_meta: Mapping[str, tuple[str, ...]] = {}


class ParentTopicInfo(WireStruct, java="GetParentTopicInfoResponseBody"):
    """A parent topic on one broker; ``ttl`` in minutes, -1 for unlimited."""

    ttl: I32 = 0
    groups: tuple[str, ...] = ()
    lmq_num: I32 = 0
    lite_topic_count: I32 = 0


class LiteSubscriber(WireStruct, java="ClientGroup"):
    """A client that subscribes to a lite topic."""

    client_id: str | None = None
    group: str | None = None


class LiteTopicInfo(WireStruct, java="GetLiteTopicInfoResponseBody"):
    """A lite topic on one broker."""

    subscriber: tuple[LiteSubscriber, ...] = ()
    topic_offset: TopicOffset = TopicOffset()
    sharding_to_broker: bool = False


class LiteClientInfo(WireStruct, java="GetLiteClientInfoResponseBody"):
    """A client of a group on one broker; times in epoch milliseconds, 0 or less for never."""

    last_access_time: I64 = 0
    last_consume_time: I64 = 0
    lite_topic_count: I32 = 0
    lite_topic_set: tuple[str, ...] | None = None


class LiteLag(WireStruct, java="LiteLagInfo"):
    """The lag of a group in a lite topic."""

    lite_topic: str | None = None
    lag_count: I64 = 0
    earliest_unconsumed_timestamp: I64 = 0


class LiteGroupInfo(WireStruct, java="GetLiteGroupInfoResponseBody"):
    """The lag of a group on one broker; the lists have its lite topics with the largest lag."""

    earliest_unconsumed_timestamp: I64 = 0
    total_lag_count: I64 = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: tuple[LiteLag, ...] = ()
    lag_timestamp_top_k: tuple[LiteLag, ...] = ()


GET_BROKER_LITE_INFO: Final = Command(RequestCode.GET_BROKER_LITE_INFO)
GET_PARENT_TOPIC_INFO: Final = Command(RequestCode.GET_PARENT_TOPIC_INFO, GetParentTopicInfoRequest)
GET_LITE_TOPIC_INFO: Final = Command(RequestCode.GET_LITE_TOPIC_INFO, GetLiteTopicInfoRequest)
GET_LITE_CLIENT_INFO: Final = Command(RequestCode.GET_LITE_CLIENT_INFO, GetLiteClientInfoRequest)
GET_LITE_GROUP_INFO: Final = Command(RequestCode.GET_LITE_GROUP_INFO, GetLiteGroupInfoRequest)
TRIGGER_LITE_DISPATCH: Final = Command(
    RequestCode.TRIGGER_LITE_DISPATCH, TriggerLiteDispatchRequest
)
