"""Which consumer groups consumed a message, as the tool's ``messageTrackDetail`` reports it."""

import random
from typing import Final

from rocketlens.client.route import Broker
from rocketlens.errors import BrokerError, RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.mqadmin.form import host_of
from rocketlens.mqadmin.layout import Track
from rocketlens.mqadmin.tool import Tool, as_it_is, remark_of
from rocketlens.wire.bodies.consumer import ConsumerConnection, GroupList
from rocketlens.wire.bodies.heartbeat import ConsumeType, MessageModel
from rocketlens.wire.bodies.stats import ConsumeStats
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.admin import (
    GET_CONSUME_STATS,
    GET_CONSUMER_CONNECTION_LIST,
    QUERY_TOPIC_CONSUME_BY_WHO,
    GetConsumerConnectionListRequest,
    GetConsumeStatsRequest,
    QueryTopicConsumeByWhoRequest,
)

NO_STATS: Final = (
    "Not found the consumer group consume stats, because return offset table is empty, maybe the "
    "consumer not consume any message"
)


async def groups_of(tool: Tool, topic: str) -> tuple[str, ...]:
    """Return the consumer groups of a topic, as one of its brokers lists them.

    :raises RocketLensError: when that broker does not answer.
    """
    route = await tool.cluster.route(topic)
    for broker in route.brokers.values():
        header = QueryTopicConsumeByWhoRequest(topic=topic)
        address = broker.in_order[0]
        read = await tool.cluster.ask_for(
            as_it_is, GroupList, address, QUERY_TOPIC_CONSUME_BY_WHO, header
        )
        return read.groups
    return ()


async def tracks_of(tool: Tool, message: MessageExt) -> list[Track]:
    """Return a track for each consumer group of the message's topic, with its error if it failed.

    :raises RocketLensError: when the groups cannot be listed.
    """
    return [await _track(tool, message, group) for group in await groups_of(tool, message.topic)]


async def _track(tool: Tool, message: MessageExt, group: str) -> Track:
    try:
        return await _asked(tool, message, group)
    except BrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return Track(group, "NOT_ONLINE", remark_of(error))
        if error.code == ResponseCode.BROADCAST_CONSUMPTION:
            return Track(group, "CONSUME_BROADCASTING")
        return Track(group, "UNKNOWN", remark_of(error))
    except RocketLensError as error:
        return Track(group, "UNKNOWN", str(error))


async def _asked(tool: Tool, message: MessageExt, group: str) -> Track:
    route = await tool.cluster.route(RETRY_PREFIX + group)
    # As in RocketMQ: every broker knows all consumers.
    broker = random.choice(list(route.brokers.values()))  # noqa: S311 - nothing secret
    header = GetConsumerConnectionListRequest(consumer_group=group)
    consumers = await tool.cluster.ask_for(
        as_it_is, ConsumerConnection, broker.in_order[0], GET_CONSUMER_CONNECTION_LIST, header
    )
    if consumers.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return Track(group, "PULL")
    if consumers.consume_type is not ConsumeType.CONSUME_PASSIVELY:
        return Track(group, "UNKNOWN")
    if consumers.message_model is MessageModel.BROADCASTING:
        return Track(group, "CONSUME_BROADCASTING")
    is_consumed = await _is_consumed(tool, message, group, list(route.brokers.values()))
    if is_consumed is None:
        return Track(group, "NOT_ONLINE", f"CODE:206 DESC:{NO_STATS}")
    if not is_consumed:
        return Track(group, "NOT_CONSUME_YET")
    subscription = consumers.subscription_table.get(message.topic)
    if subscription and subscription.tags and not {message.tags, "*"} & {*subscription.tags}:
        return Track(group, "CONSUMED_BUT_FILTERED")
    return Track(group, "CONSUMED")


async def _is_consumed(
    tool: Tool, message: MessageExt, group: str, brokers: list[Broker]
) -> bool | None:
    """Return whether a group is past a message, or None if no broker has offsets of the group."""
    masters = await tool.cluster.all_brokers()
    is_known = False
    for broker in brokers:
        header = GetConsumeStatsRequest(consumer_group=group)
        stats = await tool.cluster.ask_for(
            as_it_is, ConsumeStats, broker.in_order[0], GET_CONSUME_STATS, header
        )
        for queue, offset in stats.offset_table.items():
            is_known = True
            named = masters.get(queue.broker_name)
            if (queue.topic, queue.queue_id) != (message.topic, message.queue_id):
                continue
            if named is None or named.master != host_of(message.store_host):
                continue
            if offset.consumer_offset > message.queue_offset:
                return True
    return False if is_known else None
