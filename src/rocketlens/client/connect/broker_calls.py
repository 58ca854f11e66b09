"""Requests to one broker at one address, each defined once.

Errors are those of `ClusterCalls.ask_for`: `BrokerError` if the broker refuses, `RemotingError` if
it does not answer, or its answer cannot be read.
"""

from collections.abc import Mapping
from typing import Any

from rocketlens.client.connect.cluster import ClusterCalls, fields_of, request_name
from rocketlens.errors import BadAnswer, BrokerError, ProtocolError
from rocketlens.formats.java_properties import loads
from rocketlens.wire.bodies.clients import (
    ConsumeQueueAnswer,
    ConsumerConnection,
    GroupList,
    ProducerTable,
)
from rocketlens.wire.bodies.tables import (
    ConsumeStats,
    MessageQueue,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicOffset,
    TopicStatsTable,
)
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands import groups as commands
from rocketlens.wire.commands.brokers import GET_TOPIC_STATS_INFO, TopicRequest
from rocketlens.wire.declare import NoFields, read_body


def _fields(queue: MessageQueue) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "broker_name": queue.broker_name,
        "lo": False,
    }


async def min_offset(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    header = commands.QueueRequest(**_fields(queue))
    answer = await cluster.ask(address, commands.GET_MIN_OFFSET, header)
    return fields_of(address, commands.GET_MIN_OFFSET, answer).queue_offset


async def max_offset(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    """Return the offset of a queue's next message."""
    header = commands.GetMaxOffsetRequest(**_fields(queue))
    answer = await cluster.ask(address, commands.GET_MAX_OFFSET, header)
    return fields_of(address, commands.GET_MAX_OFFSET, answer).queue_offset


async def offset_at_time(
    cluster: ClusterCalls, address: str, queue: MessageQueue, timestamp_ms: int
) -> int:
    """Return the approximate offset of the first message stored at a time, in epoch ms, or later.

    If several messages share a millisecond, a broker can return any of them.
    """
    header = commands.SearchOffsetRequest(timestamp_ms=timestamp_ms, **_fields(queue))
    answer = await cluster.ask(address, commands.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return fields_of(address, commands.SEARCH_OFFSET_BY_TIMESTAMP, answer).queue_offset


async def oldest_ms(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    """Return the store time of a queue's oldest message in epoch ms; -1 if the queue is empty."""
    header = commands.QueueRequest(**_fields(queue))
    answer = await cluster.ask(address, commands.GET_EARLIEST_MSG_STORETIME, header)
    return fields_of(address, commands.GET_EARLIEST_MSG_STORETIME, answer).timestamp_ms


async def commit_offset(
    cluster: ClusterCalls, address: str, group: str, queue: MessageQueue, queue_offset: int
) -> None:
    header = commands.UpdateConsumerOffsetRequest(
        consumer_group=group, commit_offset=queue_offset, **_fields(queue)
    )
    await cluster.ask(address, commands.UPDATE_CONSUMER_OFFSET, header)


async def consume_queue(
    cluster: ClusterCalls, address: str, queue: MessageQueue, first: int, count: int
) -> ConsumeQueueAnswer | None:
    """Return the ends of a consume queue, and its entries from an offset on.

    Return None if the broker refuses. Without an entry at the first offset the answer has no
    entries and no ends.

    :raises BadAnswer: if the answer cannot be read.
    """
    header = commands.QueryConsumeQueueRequest(
        topic=queue.topic, queue_id=queue.queue_id, index=first, count=count, consumer_group=None
    )
    answer = await cluster.call(address, commands.QUERY_CONSUME_QUEUE, header)
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return read_body(ConsumeQueueAnswer, answer.body or b"{}")
    except ProtocolError as error:
        raise BadAnswer(address, request_name(commands.QUERY_CONSUME_QUEUE), str(error)) from None


async def topic_stats(
    cluster: ClusterCalls, address: str, topic: str, *, missing_ok: bool = False
) -> Mapping[MessageQueue, TopicOffset]:
    """Return the offsets of a topic's queues on a broker.

    With ``missing_ok`` the result is empty if the broker does not have the topic.
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
    header = TopicRequest(topic=topic)
    command = commands.QUERY_TOPIC_CONSUME_BY_WHO
    return (await cluster.ask_for(GroupList, address, command, header)).groups


async def group_configs(
    cluster: ClusterCalls, address: str
) -> Mapping[str, SubscriptionGroupConfig]:
    command = commands.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    read = await cluster.ask_for(SubscriptionGroupTable, address, command, NoFields())
    return read.subscription_group_table


async def connections(cluster: ClusterCalls, address: str, group: str) -> ConsumerConnection:
    header = commands.ConsumerGroupRequest(consumer_group=group)
    command = commands.GET_CONSUMER_CONNECTION_LIST
    return await cluster.ask_for(ConsumerConnection, address, command, header)


async def consume_stats(
    cluster: ClusterCalls,
    address: str,
    group: str,
    topic: str | None = None,
    timeout_s: float | None = None,
) -> ConsumeStats:
    header = commands.GetConsumeStatsRequest(consumer_group=group, topic=topic)
    command = commands.GET_CONSUME_STATS
    return await cluster.ask_for(ConsumeStats, address, command, header, timeout_s=timeout_s)


async def configuration(cluster: ClusterCalls, address: str) -> dict[str, str]:
    answer = await cluster.ask(address, commands.GET_BROKER_CONFIG, NoFields())
    return loads(answer.body.decode("utf-8", "replace"))


async def producers(cluster: ClusterCalls, address: str) -> ProducerTable:
    command = commands.GET_ALL_PRODUCER_INFO
    return await cluster.ask_for(ProducerTable, address, command, NoFields())
