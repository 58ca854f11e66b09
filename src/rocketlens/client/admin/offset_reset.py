"""Moves a group's offsets to a time: at its running clients (222), or in the broker's table (15).

Source: ``DefaultMQAdminExtImpl.resetOffsetByTimestamp`` and ``resetOffsetByTimestampOld``.
"""

from dataclasses import dataclass
from typing import Final

from rocketlens.client.connect.cluster import ClusterCalls, as_it_is
from rocketlens.client.connect.route import MessageQueue, set_order
from rocketlens.client.search.queue_offsets import max_offset, offset_at_time
from rocketlens.wire.bodies.stats import (
    ConsumeStats,
    MessageQueueBody,
    OffsetWrapper,
    ResetOffsets,
    TopicStatsTable,
)
from rocketlens.wire.commands.admin import GET_CONSUME_STATS, GetConsumeStatsRequest
from rocketlens.wire.commands.offset import (
    INVOKE_BROKER_TO_RESET_OFFSET,
    UPDATE_CONSUMER_OFFSET,
    ResetOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rocketlens.wire.commands.topic import GET_TOPIC_STATS_INFO, GetTopicStatsRequest

TO_THE_END: Final = -1
"""In place of a time: behind the last message."""


@dataclass(frozen=True, slots=True)
class RollbackStats:
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
    """Move the running clients of a group to a time; return their new offsets.

    :raises BrokerError: 206 if a broker of the topic has no client of the group. Others may have
        reset theirs by then.
    :raises TopicNotFound: if no broker has the topic.
    :raises RemotingError: if a broker does not answer.
    """
    route = await cluster.route(topic)
    header = ResetOffsetRequest(
        topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=is_force
    )
    offsets: dict[MessageQueue, int] = {}
    for broker in route.brokers.values():
        for address in broker.in_order[:1]:
            read = await cluster.ask_for(
                as_it_is, ResetOffsets, address, INVOKE_BROKER_TO_RESET_OFFSET, header
            )
            for queue, offset in read.offset_table.items():
                key = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
                offsets[key] = offset
    return offsets


async def reset_table(
    cluster: ClusterCalls, group: str, topic: str, timestamp_ms: int, *, is_force: bool
) -> tuple[RollbackStats, ...]:
    """Write a group's offsets at a time to the brokers; its clients read them when they start.

    Of a group without offsets in the topic every queue is set. Without ``is_force`` a group never
    goes forward.

    :raises TopicNotFound: if no broker has the topic.
    :raises RocketLensError: if a broker refuses or does not answer; those before it are done.
    """
    route = await cluster.route(topic)
    made: list[RollbackStats] = []
    for broker in route.brokers.values():
        for address in broker.in_order[:1]:
            queues = [each for each in route.read_queues if each.broker_name == broker.name]
            table = await _offsets(cluster, address, group, queues)
            for queue, offset in table.items():
                reset = _QueueReset(cluster, address, group, timestamp_ms, is_force=is_force)
                made.append(await reset.run(queue, offset))
    return tuple(made)


async def _offsets(
    cluster: ClusterCalls, address: str, group: str, queues: list[MessageQueue]
) -> dict[MessageQueueBody, OffsetWrapper]:
    """Return a group's offsets in a broker's queues of one topic; the first where it has none."""
    if not queues:
        return {}
    topic = queues[0].topic
    header = GetConsumeStatsRequest(consumer_group=group)
    stats = await cluster.ask_for(as_it_is, ConsumeStats, address, GET_CONSUME_STATS, header)
    table = {
        MessageQueue(queue.topic, queue.broker_name, queue.queue_id): (queue, offset)
        for queue, offset in stats.offset_table.items()
    }
    # The order in which RocketMQ's tool does and prints them.
    committed = dict(table[each] for each in set_order(list(table)) if each.topic == topic)
    if committed:
        return committed
    status = await cluster.ask_for(
        as_it_is,
        TopicStatsTable,
        address,
        GET_TOPIC_STATS_INFO,
        GetTopicStatsRequest(topic=topic),
    )
    offsets: dict[MessageQueueBody, OffsetWrapper] = {}
    for each in queues:
        queue = MessageQueueBody(topic=topic, broker_name=each.broker_name, queue_id=each.queue_id)
        bounds = status.offset_table.get(queue)
        if bounds is not None:
            offsets[queue] = OffsetWrapper(
                broker_offset=bounds.max_offset, consumer_offset=bounds.min_offset
            )
    return offsets


class _QueueReset:
    """Resets a group in one queue after another of a broker."""

    def __init__(
        self, cluster: ClusterCalls, address: str, group: str, timestamp_ms: int, *, is_force: bool
    ) -> None:
        self.cluster: Final = cluster
        self.address: Final = address
        self.group: Final = group
        self.timestamp_ms: Final = timestamp_ms
        self.is_force: Final = is_force

    async def run(self, queue: MessageQueueBody, offset: OffsetWrapper) -> RollbackStats:
        """Reset one queue."""
        target = await self._offset_of_time(queue)
        is_moved = self.is_force or target <= offset.consumer_offset
        if is_moved:
            header = UpdateConsumerOffsetRequest(
                consumer_group=self.group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=target,
            )
            await self.cluster.ask(self.address, UPDATE_CONSUMER_OFFSET, header)
        return RollbackStats(
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            broker_offset=offset.broker_offset,
            consumer_offset=offset.consumer_offset,
            timestamp_offset=target,
            rollback_offset=target if is_moved else offset.consumer_offset,
        )

    async def _offset_of_time(self, queue: MessageQueueBody) -> int:
        if self.timestamp_ms == TO_THE_END:
            return await max_offset(self.cluster, self.address, queue)
        return await offset_at_time(self.cluster, self.address, queue, self.timestamp_ms)
