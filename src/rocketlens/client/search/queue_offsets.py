"""The ends of a broker's queues, and the messages in them that cannot be read."""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.client.connect.broker_calls import (
    consume_queue,
    max_offset,
    min_offset,
    topic_stats,
)
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.route import Broker, MessageQueue, Route
from rocketlens.errors import BadAnswer, BrokerError
from rocketlens.model.text.counted import counted

FORMER_QUEUES_ASKED_FOR: Final = 16
"""Queue ids after a topic's last that a broker is asked for: queues from before their number was
reduced. All are asked at once, so a search waits for one answer.
"""


class QueueEnds(NamedTuple):
    """The ends of a queue when a broker listed it."""

    first: int
    """The offset of its oldest message."""
    stop: int
    """The offset of its next message."""
    newest_ms: int | None
    """The store time of its newest message; None if the broker does not return it."""


async def queue_ends(cluster: ClusterCalls, address: str, topic: str) -> dict[int, QueueEnds]:
    """Return the ends of a broker's queues of a topic, by queue id, with one request.

    The result is empty if the broker refuses, or its answer is invalid: ask for each queue then.
    """
    try:
        table = await topic_stats(cluster, address, topic)
    except (BrokerError, BadAnswer):
        return {}
    # The time is 0 or -1 if there is no message, or it is not in the log any more.
    return {
        queue.queue_id: QueueEnds(
            ends.min_offset, ends.max_offset, max(ends.last_update_timestamp_ms, 0) or None
        )
        for queue, ends in table.items()
        if 0 <= ends.min_offset <= ends.max_offset
    }


async def unreadable_messages(
    cluster: ClusterCalls,
    address: str,
    broker: str,
    route: Route,
    queue_ids: Collection[int] | None,
) -> list[str]:
    """Return a line for each queue of a broker with unreadable messages, or for some queue ids.

    Brokers refuse pulls from some queues of the route. Queues from before their number was reduced
    are in no route; brokers that support request 321 report them.
    """
    refused = "the topic has no permission to be read, or fewer queues to read than to write"
    problems = []
    for queue in route.unreadable_queues:
        if queue.broker_name == broker and (queue_ids is None or queue.queue_id in queue_ids):
            stop = await max_offset(cluster, address, queue)
            count = stop - await min_offset(cluster, address, queue)
            problems += _unreadable(queue, count, refused)
    return problems + await former_messages(cluster, address, broker, route, queue_ids)


async def unreadable_of_topic(cluster: ClusterCalls, route: Route) -> list[tuple[str, str]]:
    """Return broker names with lines about unreadable messages; none for brokers that fail."""

    async def ask(broker: Broker, address: str) -> list[str]:
        return await unreadable_messages(cluster, address, broker.name, route, None)

    answers = await cluster.ask_brokers(route.brokers.values(), ask)
    return [(each.broker.name, problem) for each in answers for problem in each.value or ()]


async def former_messages(
    cluster: ClusterCalls,
    address: str,
    broker: str,
    route: Route,
    queue_ids: Collection[int] | None,
) -> list[str]:
    """Return the lines of `unreadable_messages` for queues that the topic no longer has."""
    problems = []
    queues = [*route.read_queues, *route.unreadable_queues]
    first = max((each.queue_id + 1 for each in queues if each.broker_name == broker), default=0)
    numbers = range(first, first + FORMER_QUEUES_ASKED_FOR)
    former = [
        MessageQueue(route.topic, broker, number)
        for number in (numbers if queue_ids is None else queue_ids)
        if number >= first
    ]

    async def counts() -> list[int]:
        return await asyncio.gather(*(_former_count(cluster, address, each) for each in former))

    async def has_messages() -> bool:
        return any(count > 0 for count in await counts())

    if queue_ids is None:
        # The key changes with the number of queues in the route.
        key = (address, route.topic, first)
        if not await cluster.have_former_messages.get(key, has_messages):
            return []
    for queue, count in zip(former, await counts(), strict=True):
        problems += _unreadable(queue, count, "the topic has fewer queues than it had")
    return problems


def _unreadable(queue: MessageQueue, count: int, why: str) -> list[str]:
    if count <= 0:
        return []
    return [f"{queue.topic}/{queue.queue_id}: {counted(count, 'message')} cannot be read: {why}"]


async def _former_count(cluster: ClusterCalls, address: str, queue: MessageQueue) -> int:
    """Return the number of messages in a queue that the topic no longer has, or 0.

    A request for its offsets would make RocketMQ create it.
    """
    if queue.queue_id > limits.MAX_INT:
        return 0
    answer = await consume_queue(cluster, address, queue, 0, 1)
    if answer is None:
        return 0
    if answer.entries is None:
        # The queue exists, but its first message was deleted.
        return await max_offset(cluster, address, queue) - await min_offset(cluster, address, queue)
    return answer.max_offset - answer.min_offset
