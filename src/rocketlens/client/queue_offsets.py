"""What one broker, at one address, says of the offsets of a queue.

Errors are those of `ClusterCalls.ask`, and `BadAnswer` for a response without the offset.
"""

from collections.abc import Iterable
from typing import Protocol

from rocketlens.client.cluster import ClusterCalls, fields_of
from rocketlens.model.counted import counted
from rocketlens.wire.commands.offset import (
    GET_MAX_OFFSET,
    GET_MIN_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    SearchOffsetRequest,
)


class QueueOfTopic(Protocol):
    """A queue of a broker, however it is named elsewhere."""

    @property
    def topic(self) -> str:
        """Its topic, as the broker has it."""
        ...

    @property
    def queue_id(self) -> int:
        """Its number."""
        ...


async def min_offset(cluster: ClusterCalls, address: str, queue: QueueOfTopic) -> int:
    """Return the offset of the oldest message."""
    header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    answer = await cluster.ask(address, GET_MIN_OFFSET, header)
    return fields_of(address, GET_MIN_OFFSET, answer).queue_offset


async def max_offset(cluster: ClusterCalls, address: str, queue: QueueOfTopic) -> int:
    """Return the offset of the next message."""
    header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    answer = await cluster.ask(address, GET_MAX_OFFSET, header)
    return fields_of(address, GET_MAX_OFFSET, answer).queue_offset


async def unreadable_messages(
    cluster: ClusterCalls, address: str, queues: Iterable[QueueOfTopic]
) -> list[str]:
    """Return for each queue that has messages that it cannot be read; for queues that brokers
    refuse to have pulled.
    """
    problems = []
    for queue in queues:
        count = await max_offset(cluster, address, queue) - await min_offset(
            cluster, address, queue
        )
        if count > 0:
            problems.append(
                f"{queue.topic}/{queue.queue_id}: {counted(count, 'message')} cannot be read: the "
                "topic has no permission to be read, or fewer queues to read than to write"
            )
    return problems


async def offset_at_time(
    cluster: ClusterCalls, address: str, queue: QueueOfTopic, timestamp_ms: int
) -> int:
    """Return about the offset of the first message stored at a time, in epoch ms, or later.

    A broker may return any of several of one millisecond.
    """
    header = SearchOffsetRequest(
        topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms
    )
    answer = await cluster.ask(address, SEARCH_OFFSET_BY_TIMESTAMP, header)
    return fields_of(address, SEARCH_OFFSET_BY_TIMESTAMP, answer).queue_offset
