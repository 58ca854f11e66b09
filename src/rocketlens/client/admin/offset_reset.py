"""Moves a group's offsets to a time: at its running clients (222), or in the broker's table (15).

Source: ``DefaultMQAdminExtImpl.resetOffsetByTimestamp`` and ``resetOffsetByTimestampOld``.
"""

from typing import Final

from msgspec import Struct

from rocketlens.client.connect import broker_calls
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import MessageQueue, set_order
from rocketlens.wire.bodies.tables import OffsetWrapper, ResetOffsets
from rocketlens.wire.commands.groups import INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest

TO_THE_END: Final = -1
"""In place of a time: behind the last message."""


class RollbackStats(Struct, frozen=True):
    """The offsets of one queue before and after a reset in the broker's table."""

    broker_name: str
    queue_id: int
    broker_offset: int
    """Behind the last message."""
    consumer_offset: int
    """Where the group went on before."""
    timestamp_offset: int
    """The first message of that time."""
    rollback_offset: int
    """Where the group goes on now: without force never later than before."""


async def reset_running(
    cluster: ClusterCalls, group: str, topic: str, timestamp_ms: int, *, is_force: bool
) -> dict[MessageQueue, int]:
    """Do `MQAdmin.reset_offset_by_time`; after an error some brokers may have reset theirs."""
    route = await cluster.route(topic)
    header = ResetOffsetRequest(
        topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=is_force
    )
    offsets: dict[MessageQueue, int] = {}
    for broker in route.brokers.values():
        for address in broker.in_order[:1]:
            command = INVOKE_BROKER_TO_RESET_OFFSET
            read = await cluster.ask_for(ResetOffsets, address, command, header)
            offsets.update(read.offset_table)
    return offsets


async def reset_table(
    cluster: ClusterCalls, group: str, topic: str, timestamp_ms: int, *, is_force: bool
) -> tuple[RollbackStats, ...]:
    """Do `MQAdmin.reset_offset_by_time_old`: clients read the offsets when they start.

    Of a group without offsets in the topic every queue is set.
    """
    route = await cluster.route(topic)
    made: list[RollbackStats] = []
    for broker in route.brokers.values():
        for address in broker.in_order[:1]:
            table = await _offsets(cluster, address, group, route.queues_of(broker.name))
            for queue, before in table.items():
                if timestamp_ms == TO_THE_END:
                    target = await broker_calls.max_offset(cluster, address, queue)
                else:
                    target = await broker_calls.offset_at_time(
                        cluster, address, queue, timestamp_ms
                    )
                is_moved = is_force or target <= before.consumer_offset
                if is_moved:
                    await broker_calls.commit_offset(cluster, address, group, queue, target)
                made.append(
                    RollbackStats(
                        broker_name=queue.broker_name,
                        queue_id=queue.queue_id,
                        broker_offset=before.broker_offset,
                        consumer_offset=before.consumer_offset,
                        timestamp_offset=target,
                        rollback_offset=target if is_moved else before.consumer_offset,
                    )
                )
    return tuple(made)


async def _offsets(
    cluster: ClusterCalls, address: str, group: str, queues: list[MessageQueue]
) -> dict[MessageQueue, OffsetWrapper]:
    """Return a group's offsets in a broker's queues of one topic; the first where it has none."""
    if not queues:
        return {}
    topic = queues[0].topic
    stats = await broker_calls.consume_stats(cluster, address, group)
    # The order in which RocketMQ's tool does and prints them.
    in_order = set_order(list(stats.offset_table))
    committed = {each: stats.offset_table[each] for each in in_order if each.topic == topic}
    if committed:
        return committed
    table = await broker_calls.topic_stats(cluster, address, topic)
    return {
        each: OffsetWrapper(broker_offset=ends.max_offset, consumer_offset=ends.min_offset)
        for each in queues
        if (ends := table.get(each)) is not None
    }
