"""Reads topics in bulk: the offset ranges of their queues, and all messages of a range.

Nothing is stored at brokers (`rocketlens.client.connect.queue_puller`). Every read of a range
returns the same messages, so a Spark task can be repeated: the answer of a slave that has not
copied the range yet is not used. Offsets that were deleted meanwhile, at either end of the queue,
are missing from the chunk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from rocketlens import limits
from rocketlens.client.connect.broker_calls import max_offset, min_offset, offset_at_time
from rocketlens.client.connect.cluster import MAX_MESSAGE_ANSWERS, ClusterCalls, request_name
from rocketlens.client.connect.queue_puller import MAX_AROUND_MESSAGES, PullStatus, QueuePuller
from rocketlens.client.connect.route import Broker, MessageQueue
from rocketlens.errors import BadAnswer, RemotingError
from rocketlens.wire.commands.groups import GET_MAX_OFFSET

MAX_CLUSTER_PARTITIONS: Final = 100_000
"""Partitions of a read of a cluster, a plan of 50 MiB; with longer queues they are larger."""
MAX_CHUNK_RECORDS: Final = 16_384
"""Messages of a cluster that become columns at once; Spark's batch size."""
MAX_CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Their stored bytes, exceeded by up to one answer of 16 MiB; two chunks are in memory."""
T = TypeVar("T")


class QueueStretch(NamedTuple):
    """Offsets ``start`` to ``stop - 1`` of a queue."""

    queue: MessageQueue
    start: int
    stop: int

    def __str__(self) -> str:
        where = f"{self.queue.broker_name}, topic {self.queue.topic}, queue {self.queue.queue_id}"
        return f"{where}: offsets {self.start} to {self.stop - 1}"


class PulledChunk(NamedTuple):
    """The answers to the pulls from one offset to ``next_offset``."""

    bodies: list[bytes]
    next_offset: int
    warning: str | None = None
    """One line, if a slave answered for its master."""
    cluster: str | None = None


class StretchReader:
    """Reads the offsets of queues and their messages. Bound to one event loop."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster: Final = cluster
        self._puller: Final = QueuePuller(cluster)
        self._turns: Final = asyncio.Semaphore(MAX_MESSAGE_ANSWERS)

    async def stored(
        self, broker: Broker, queue: MessageQueue, begin_ms: int, end_ms: int
    ) -> tuple[QueueStretch, str | None]:
        """Return the range with all messages stored from ``begin_ms`` to ``end_ms``.

        It also has messages of other times: the broker's binary search is inexact if clocks were
        set back a little, so the surrounding messages are included. The second value is a warning
        if a slave answered for its master: it may lack the newest messages.
        """
        return await self._first_answer(
            broker, lambda address: self._stored(address, queue, begin_ms, end_ms)
        )

    async def _stored(
        self, address: str, queue: MessageQueue, begin_ms: int, end_ms: int
    ) -> QueueStretch:
        search = partial(offset_at_time, self._cluster, address, queue)
        async with self._turns:
            start = max(await min_offset(self._cluster, address, queue), 0)
            stop = await max_offset(self._cluster, address, queue)
            if stop > limits.MAX_QUEUE_OFFSET:
                reason = f"{queue} ends at {stop}, at most {limits.MAX_QUEUE_OFFSET} is accepted"
                raise BadAnswer(address, request_name(GET_MAX_OFFSET), reason)
            # If several messages share a millisecond, a broker can return any of them.
            first, last = start, stop
            if begin_ms > 0 and first < last:
                first = max(first, await search(begin_ms - 1) - MAX_AROUND_MESSAGES)
            if end_ms < limits.MAX_TIMESTAMP_MS and first < last:
                end = await search(end_ms + 1) if end_ms >= 0 else start
                last = min(last, end + MAX_AROUND_MESSAGES)
            return QueueStretch(queue, first, max(first, last))

    async def read(self, broker: Broker, stretch: QueueStretch) -> PulledChunk:
        """Return messages from the start of a range: all, or as many as fit into a chunk.

        A chunk that reaches the end of the range may lack offsets anywhere; these are not stored,
        or cannot be read.
        """
        chunk, warning = await self._first_answer(
            broker, lambda at: self._read(at, stretch, is_master=at == broker.master)
        )
        return chunk._replace(warning=warning)

    async def _read(self, address: str, stretch: QueueStretch, *, is_master: bool) -> PulledChunk:
        queue, start, stop = stretch
        bodies: list[bytes] = []
        offset, size = start, 0
        stop_here = min(stop, start + MAX_CHUNK_RECORDS)
        while offset < stop_here and size < MAX_CHUNK_BYTES:
            count = min(stop - offset, limits.MAX_PULL_MESSAGES)
            async with self._cluster.turn(address):
                pulled = await self._puller.pull(address, queue, offset, count=count)
            next_offset = pulled.next_offset
            if pulled.status is PullStatus.FOUND:
                bodies.append(pulled.body)
                size += len(pulled.body)
            elif next_offset <= offset:
                if not is_master:
                    reason = f"a slave, whose {queue} ends before offset {offset}"
                    raise RemotingError(address, reason)
                next_offset = stop
            offset = next_offset
        return PulledChunk(bodies, min(offset, stop))

    async def _first_answer(
        self, broker: Broker, ask: Callable[[str], Awaitable[T]]
    ) -> tuple[T, str | None]:
        answer = await self._cluster.ask_broker(broker, ask)
        if answer.value is None:
            raise RemotingError(broker.name, answer.coverage.error or "it did not answer")
        return answer.value, answer.coverage.error


def cut(stretches: Iterable[QueueStretch], most: int, least_count: int = 1) -> list[QueueStretch]:
    """Split ranges into parts of about equal size, of at most ``most`` messages.

    There are at least ``least_count`` parts if there are that many messages. To bound the plan,
    parts of very long queues are larger. Empty ranges have no parts.
    """
    whole = [each for each in stretches if each.start < each.stop]
    total = sum(each.stop - each.start for each in whole)
    size = max(min(most, -(-total // least_count)), -(-total // MAX_CLUSTER_PARTITIONS), 1)
    parts: list[QueueStretch] = []
    for queue, start, stop in whole:
        count = -(-(stop - start) // size)
        edges = [start + (stop - start) * number // count for number in range(count + 1)]
        parts += [QueueStretch(queue, *pair) for pair in pairwise(edges)]
    return parts
