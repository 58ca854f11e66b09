"""Where a broker's queues begin and end, and which of their messages cannot be read."""

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
"""Queues behind those of a topic's route that a broker is asked for: it had them before the topic
was given fewer. All at once, so a search waits for one answer.
"""


class QueueEnds(NamedTuple):
    """Where a queue began and ended when a broker listed it."""

    first: int
    """The offset of its oldest message."""
    stop: int
    """The offset of its next message."""
    newest_ms: int | None
    """The store time of its newest message; None if the broker does not tell."""


async def queue_ends(cluster: ClusterCalls, address: str, topic: str) -> dict[int, QueueEnds]:
    """Return the ends of all queues that a broker has of a topic, by queue id: one request.

    Nothing if the broker refuses, or lists what cannot be: then queues have to be asked for one by
    one.

    :raises RemotingError: if there is no response.
    """
    try:
        table = await topic_stats(cluster, address, topic)
    except (BrokerError, BadAnswer):
        return {}
    # The time is 0 or -1 where there is no message, or it is not in the log any more.
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
    """Return for each queue of a broker that has messages that they cannot be read, or only for
    queues of some numbers.

    Brokers refuse to have some queues of the route pulled. Those that a topic had before it was
    given fewer, no route has; a broker tells of them if it knows the code 321.
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
    """Return the names of brokers with lines on messages of a topic that cannot be read.

    A broker that does not answer has none.
    """

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
    """Return as `unreadable_messages`, of queues that a topic had before it was given fewer."""
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
        # A topic that is given fewer queues gets another route, and so is asked for again.
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
    """Return how many messages a queue has that a topic does not have any more; 0 if there is none.

    Asking for its offsets would make RocketMQ create it.
    """
    if queue.queue_id > limits.MAX_INT:
        return 0
    answer = await consume_queue(cluster, address, queue, 0, 1)
    if answer is None:
        return 0
    if answer.entries is None:
        # It is there, and its first message is not.
        return await max_offset(cluster, address, queue) - await min_offset(cluster, address, queue)
    return answer.max_offset - answer.min_offset
