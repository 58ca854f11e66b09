"""The questions that one broker is asked, at one address: each stands here once.

Errors are those of `ClusterCalls.ask_for`: `BrokerError` if the broker refuses, `RemotingError` if
it does not answer, or its answer cannot be read.
"""

from collections.abc import Mapping
from typing import Any

from rocketlens.client.connect.cluster import ClusterCalls, fields_of
from rocketlens.errors import BrokerError
from rocketlens.formats.java_properties import loads
from rocketlens.wire.bodies.clients import ConsumerConnection, GroupList, ProducerTable
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicOffset,
    TopicStatsTable,
)
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.brokers import GET_TOPIC_STATS_INFO, TopicRequest
from rocketlens.wire.commands.groups import (
    GET_ALL_PRODUCER_INFO,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GET_BROKER_CONFIG,
    GET_CONSUME_STATS,
    GET_CONSUMER_CONNECTION_LIST,
    GET_EARLIEST_MSG_STORETIME,
    GET_MAX_OFFSET,
    GET_MIN_OFFSET,
    QUERY_TOPIC_CONSUME_BY_WHO,
    SEARCH_OFFSET_BY_TIMESTAMP,
    ConsumerGroupRequest,
    GetConsumeStatsRequest,
    GetMaxOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
)
from rocketlens.wire.declare import NoFields


def _fields(queue: MessageQueue) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "broker_name": queue.broker_name,
        "lo": False,
    }


async def min_offset(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    """Return the offset of the oldest message of a queue."""
    header = QueueRequest(**_fields(queue))
    answer = await cluster.ask(address, GET_MIN_OFFSET, header)
    return fields_of(address, GET_MIN_OFFSET, answer).queue_offset


async def max_offset(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    """Return the offset of the next message of a queue."""
    header = GetMaxOffsetRequest(**_fields(queue))
    answer = await cluster.ask(address, GET_MAX_OFFSET, header)
    return fields_of(address, GET_MAX_OFFSET, answer).queue_offset


async def offset_at_time(
    cluster: ClusterCalls, address: str, queue: MessageQueue, timestamp_ms: int
) -> int:
    """Return about the offset of the first message stored at a time, in epoch ms, or later.

    A broker may return any of several of one millisecond.
    """
    header = SearchOffsetRequest(timestamp_ms=timestamp_ms, **_fields(queue))
    answer = await cluster.ask(address, SEARCH_OFFSET_BY_TIMESTAMP, header)
    return fields_of(address, SEARCH_OFFSET_BY_TIMESTAMP, answer).queue_offset


async def oldest_ms(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    """Return the store time of a queue's oldest message, in epoch milliseconds; -1 without one."""
    header = QueueRequest(**_fields(queue))
    answer = await cluster.ask(address, GET_EARLIEST_MSG_STORETIME, header)
    return fields_of(address, GET_EARLIEST_MSG_STORETIME, answer).timestamp_ms


async def topic_stats(
    cluster: ClusterCalls, address: str, topic: str, *, missing_ok: bool = False
) -> Mapping[MessageQueue, TopicOffset]:
    """Return the offsets of all queues that a broker has of a topic.

    With ``missing_ok`` there are none if the broker does not have the topic.
    """
    header = TopicRequest(topic=topic)
    try:
        read = await cluster.ask_for(TopicStatsTable, address, GET_TOPIC_STATS_INFO, header)
    except BrokerError as error:
        if not missing_ok or error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return {}
    return read.offset_table


async def groups_of_topic(cluster: ClusterCalls, address: str, topic: str) -> tuple[str, ...]:
    """Return the groups that a broker has offsets of in a topic."""
    header = TopicRequest(topic=topic)
    command = QUERY_TOPIC_CONSUME_BY_WHO
    return (await cluster.ask_for(GroupList, address, command, header)).groups


async def group_configs(
    cluster: ClusterCalls, address: str
) -> Mapping[str, SubscriptionGroupConfig]:
    """Return the configurations of all groups that a broker has, by name."""
    command = GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    read = await cluster.ask_for(SubscriptionGroupTable, address, command, NoFields())
    return read.subscription_group_table


async def connections(cluster: ClusterCalls, address: str, group: str) -> ConsumerConnection:
    """Return the clients of a group that are connected to a broker, and what they subscribe to."""
    header = ConsumerGroupRequest(consumer_group=group)
    command = GET_CONSUMER_CONNECTION_LIST
    return await cluster.ask_for(ConsumerConnection, address, command, header)


async def consume_stats(
    cluster: ClusterCalls,
    address: str,
    group: str,
    topic: str | None = None,
    timeout_s: float | None = None,
) -> ConsumeStats:
    """Return the offsets of a group in a broker's queues, or in those of one topic."""
    header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
    command = GET_CONSUME_STATS
    return await cluster.ask_for(ConsumeStats, address, command, header, timeout_s=timeout_s)


async def configuration(cluster: ClusterCalls, address: str) -> dict[str, str]:
    """Return the configuration of a broker, in its order."""
    answer = await cluster.ask(address, GET_BROKER_CONFIG, NoFields())
    return loads(answer.body.decode("utf-8", "replace"))


async def producers(cluster: ClusterCalls, address: str) -> ProducerTable:
    """Return the producers that are connected to a broker, by group."""
    command = GET_ALL_PRODUCER_INFO
    return await cluster.ask_for(ProducerTable, address, command, NoFields())
