"""Reads topics in bulk: which offsets their queues have, and all messages of a stretch of one.

Nothing is left at brokers (`rocketlens.client.connect.queue_puller`). A stretch is the same each
time that it is read, so a task that is repeated has the same messages.

======================================  ==========================================================
what happens                            then
======================================  ==========================================================
the master does not answer              its slaves are asked
a slave has not copied the stretch yet  it does not count as an answer
none of them answers                    RemotingError, with the broker's name and all reasons
offsets of the stretch were deleted     the chunk lacks them, and is over behind them
meanwhile, at either end of the queue
======================================  ==========================================================
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
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
"""Partitions of a read of a cluster, in a plan of 50 MiB: of longer queues each has more messages.
"""
MAX_CHUNK_RECORDS: Final = 16_384
"""Messages that a read of a cluster turns into columns at once: what Spark takes at once."""
MAX_CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Stored bytes of those, and the last answer more, which has 16 MiB at most; two are held."""
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
    """The answers to the pulls from one offset to ``next_offset``, which are read with that."""

    bodies: list[bytes]
    next_offset: int
    warning: str | None = None
    """One line, if a slave answered for its master."""
    cluster: str | None = None
    """The name of the broker's cluster, where it is known."""


class StretchReader:
    """Asks brokers for the offsets of queues and for their messages. Of one event loop."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster: Final = cluster
        self._puller: Final = QueuePuller(cluster)
        self._turns: Final = asyncio.Semaphore(MAX_MESSAGE_ANSWERS)

    async def stored(
        self, broker: Broker, queue: MessageQueue, begin_ms: int, end_ms: int
    ) -> tuple[QueueStretch, str | None]:
        """Return the stretch that has all messages stored from ``begin_ms`` to ``end_ms``.

        It has messages of other times, too: the broker finds a time by halves, so what lies around
        it is included, because clocks may have been set back a little. The second value is one
        line if a slave answered for its master: it may lack the newest messages.

        :raises RemotingError: if neither the master nor a slave answers.
        """

        async def ask(address: str) -> QueueStretch:
            async with self._turns:
                return await self._stored(address, queue, begin_ms, end_ms)

        return await self._first_answer(broker, ask)

    async def _stored(
        self, address: str, queue: MessageQueue, begin_ms: int, end_ms: int
    ) -> QueueStretch:
        start = max(await min_offset(self._cluster, address, queue), 0)
        stop = await max_offset(self._cluster, address, queue)
        if stop > limits.MAX_QUEUE_OFFSET:
            reason = f"{queue} ends at {stop}, at most {limits.MAX_QUEUE_OFFSET} is accepted"
            raise BadAnswer(address, request_name(GET_MAX_OFFSET), reason)

        async def search(timestamp_ms: int) -> int:
            return await offset_at_time(self._cluster, address, queue, timestamp_ms)

        # A broker may return any of several messages of one millisecond.
        first, last = start, stop
        if begin_ms > 0 and first < last:
            first = max(first, await search(begin_ms - 1) - MAX_AROUND_MESSAGES)
        if end_ms < limits.MAX_TIMESTAMP_MS and first < last:
            behind_end = await search(end_ms + 1) if end_ms >= 0 else start
            last = min(last, behind_end + MAX_AROUND_MESSAGES)
        return QueueStretch(queue, first, max(first, last))

    async def read(self, broker: Broker, stretch: QueueStretch) -> PulledChunk:
        """Return messages from the begin of a stretch on: all, or as many as a chunk may have.

        A chunk that reaches the end of the stretch may lack offsets there, or anywhere else; none
        of them is stored, or can be read.

        :raises RemotingError: if neither the master nor a slave answers.
        """

        async def ask(address: str) -> PulledChunk:
            return await self._read(address, stretch, is_master=address == broker.master)

        chunk, warning = await self._first_answer(broker, ask)
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
            raise RemotingError(broker.name, answer.coverage.error or "it cannot be asked")
        return answer.value, answer.coverage.error


def cut(stretches: Iterable[QueueStretch], most: int, least_count: int = 1) -> list[QueueStretch]:
    """Split stretches into parts of about equal size, of ``most`` messages at most.

    There are at least ``least_count`` parts if there are that many messages, and of queues that are
    very long parts have more messages, so that a plan is bounded. Empty stretches have none.
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
