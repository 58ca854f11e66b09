"""Requests of tools about groups, queues and brokers.

Groups: make or change (200, 225), all (201), one (352), delete (207), connections (203, 204, 328),
how far they came (208, 317), their topics (343) and subscriptions (345), and those of a topic
(300). Queues: their entries (321). Counts by name (315). Brokers: runtime information
(28), configuration (26, changed by 25), and offsets that slaves take over: those of consumers (43)
and of delayed messages (45).
"""

from typing import Final

from rocketlens.wire.codes import V5_0_0, RequestCode
from rocketlens.wire.commands.command_table import Command, NoFields
from rocketlens.wire.declare import boolean, declare, i32, i64, text


@declare("GetConsumerConnectionListRequestHeader")
class GetConsumerConnectionListRequest:
    """Ask who consumes in a group; the body of the answer is a ConsumerConnection."""

    consumer_group: str = text("consumerGroup")


@declare("GetConsumeStatsRequestHeader")
class GetConsumeStatsRequest:
    """Ask for the progress of a group, in one topic or all; the answer's body is a ConsumeStats."""

    consumer_group: str = text("consumerGroup")
    topic: str | None = text("topic", default=None)
    topic_list: str | None = text("topicList", default=None, since=V5_0_0)


@declare("QueryTopicConsumeByWhoRequestHeader")
class QueryTopicConsumeByWhoRequest:
    """Ask which groups consume a topic; the body of the answer is a GroupList."""

    topic: str = text("topic")


@declare("GetProducerConnectionListRequestHeader")
class GetProducerConnectionListRequest:
    """Ask who produces in a group; the body of the answer is a ProducerConnection."""

    producer_group: str = text("producerGroup")


@declare("GetConsumeStatsInBrokerHeader")
class GetBrokerConsumeStatsRequest:
    """Ask for the progress of all groups, or in ordered topics; the body is a ConsumeStatsList."""

    is_order: bool = boolean("isOrder", default=False)


@declare("GetSubscriptionGroupConfigRequestHeader")
class GetSubscriptionGroupConfigRequest:
    """Ask for a group; the body of the answer is a SubscriptionGroupConfig."""

    group: str = text("group")


@declare("DeleteSubscriptionGroupRequestHeader")
class DeleteSubscriptionGroupRequest:
    """Remove a group, and its offsets if the request says so; 4.9 has ``removeOffset`` for it."""

    group_name: str = text("groupName")
    clean_offset: bool | None = boolean("cleanOffset", default=None, since=V5_0_0)


@declare("QueryTopicsByConsumerRequestHeader")
class QueryTopicsByConsumerRequest:
    """Ask in which topics a group has offsets; the body of the answer is a TopicList."""

    group: str = text("group")


@declare("QuerySubscriptionByConsumerRequestHeader")
class QuerySubscriptionByConsumerRequest:
    """Ask what a group wants of a topic; the answer's body is a QuerySubscriptionResponseBody."""

    group: str = text("group")
    topic: str = text("topic", default="")


@declare("QueryConsumeQueueRequestHeader")
class QueryConsumeQueueRequest:
    """Ask for entries of a queue; the body of the answer is a QueryConsumeQueueResponseBody."""

    topic: str = text("topic", default="")
    queue_id: int = i32("queueId", default=0)
    index: int = i64("index", default=0)
    count: int = i32("count", default=0)
    consumer_group: str | None = text("consumerGroup", default=None)


@declare("ViewBrokerStatsDataRequestHeader")
class ViewBrokerStatsDataRequest:
    """Ask for a count of a broker, by its name and its key."""

    stats_name: str = text("statsName")
    stats_key: str = text("statsKey")


GET_CONSUMER_CONNECTION_LIST: Final = Command(
    RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequest, NoFields
)
GET_CONSUME_STATS: Final = Command(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequest, NoFields)
QUERY_TOPIC_CONSUME_BY_WHO: Final = Command(
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequest, NoFields
)
GET_PRODUCER_CONNECTION_LIST: Final = Command(
    RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequest, NoFields
)
GET_ALL_PRODUCER_INFO: Final = Command(RequestCode.GET_ALL_PRODUCER_INFO, NoFields, NoFields)
GET_BROKER_CONSUME_STATS: Final = Command(
    RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequest, NoFields
)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Final = Command(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoFields, NoFields
)
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Final = Command(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, NoFields, NoFields, since=V5_0_0
)
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = Command(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, NoFields, NoFields
)
GET_SUBSCRIPTIONGROUP_CONFIG: Final = Command(
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    GetSubscriptionGroupConfigRequest,
    NoFields,
    since=V5_0_0,
)
DELETE_SUBSCRIPTIONGROUP: Final = Command(
    RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest, NoFields
)
QUERY_TOPICS_BY_CONSUMER: Final = Command(
    RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumerRequest, NoFields, since=V5_0_0
)
QUERY_SUBSCRIPTION_BY_CONSUMER: Final = Command(
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    QuerySubscriptionByConsumerRequest,
    NoFields,
    since=V5_0_0,
)
QUERY_CONSUME_QUEUE: Final = Command(
    RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequest, NoFields
)
VIEW_BROKER_STATS_DATA: Final = Command(
    RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest, NoFields
)


@declare("GetBrokerConfigResponseHeader")
class GetBrokerConfigResponse:
    """The version of a broker's configuration; the body is a Java properties file."""

    version: str = text("version")


GET_BROKER_RUNTIME_INFO: Final = Command(RequestCode.GET_BROKER_RUNTIME_INFO, NoFields, NoFields)
GET_BROKER_CONFIG: Final = Command(RequestCode.GET_BROKER_CONFIG, NoFields, GetBrokerConfigResponse)
UPDATE_BROKER_CONFIG: Final = Command(RequestCode.UPDATE_BROKER_CONFIG, NoFields, NoFields)
GET_ALL_CONSUMER_OFFSET: Final = Command(RequestCode.GET_ALL_CONSUMER_OFFSET, NoFields, NoFields)
GET_ALL_DELAY_OFFSET: Final = Command(RequestCode.GET_ALL_DELAY_OFFSET, NoFields, NoFields)
"""Bodies of both: the text of the broker's own file."""
