"""Samples of a topic's queues, to see whether a broker's index has their messages.

A broker of RocketMQ that was killed deletes the index file that it was writing, and indexes only
what it recovers from the end of the log. Without ``messageIndexSafe``, which is off by default, the
keys of older messages in that file are lost, and a question for one is answered as if there were no
such message. The messages stay in their queues: a few are read, and the index is asked for each.
A module of its own, as the only part of a search that asks for messages other than those wanted.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls
from rocketlens.client.connect.queue_puller import Pulled, records_in, tools_puller
from rocketlens.client.connect.route import MessageQueue, Recent
from rocketlens.client.search.key_search import UNIQUE_KEY_INDEX
from rocketlens.errors import BrokerError, RemotingError
from rocketlens.formats.commitlog_record import Record
from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8
from rocketlens.model.text.sentences import Sentence
from rocketlens.wire.commands.query import QUERY_MESSAGE, QueryMessageRequest


class SampledIndex(NamedTuple):
    """The number of messages that the index was tried with, or None; and one that it lacks."""

    tried: int | None
    missing: str | None = None

    @property
    def relies_on(self) -> Sentence | None:
        """What an answer without messages relies on."""
        if self.tried is None:
            return Sentence("index_untried")
        return Sentence("index_sampled", count=self.tried) if self.tried else None


class IndexSamples:
    """Asks brokers for samples; what came of it is at most 30 s old. Of one event loop.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, cluster: ClusterCalls, clock: Callable[[], float]) -> None:
        self._cluster: Final = cluster
        self._sampled: Final = Recent[tuple[str, str, int], SampledIndex](clock)

    async def take(self, address: str, queues: Sequence[MessageQueue], count: int) -> SampledIndex:
        """Ask a broker for up to ``count`` messages of the longest of a topic's queues.

        They are spread over the queue, its oldest message among them. Messages without a unique key
        are left out.
        """
        if not queues or not count:
            return SampledIndex(None)
        return await self._sampled.get(
            (queues[0].topic, address, count), lambda: self._take(address, queues, count)
        )

    async def _take(self, address: str, queues: Sequence[MessageQueue], count: int) -> SampledIndex:
        try:
            ends = await asyncio.gather(*(self._pull(address, each, 0) for each in queues))
            lengths = [each.max_offset - each.min_offset for each in ends]
            longest = lengths.index(max(lengths))
            queue, first, length = queues[longest], ends[longest].min_offset, lengths[longest]
            if not length:
                return SampledIndex(0)
            offsets = sorted({first + length * number // count for number in range(count)})
            indexed = await asyncio.gather(
                *(self._is_indexed(address, queue, offset) for offset in offsets)
            )
        except (BrokerError, RemotingError):
            # A user who may search by key is not always allowed to pull.
            return SampledIndex(None)
        if False in indexed:
            missing = f"{queue.topic}/{queue.queue_id}/{offsets[indexed.index(False)]}"
            return SampledIndex(len(offsets), missing)
        return SampledIndex(indexed.count(True) or None)

    async def _is_indexed(self, address: str, queue: MessageQueue, offset: int) -> bool | None:
        """Return whether the index has the message at an offset; None if that cannot be told.

        What the index lacks may just be deleted, or may not have been there yet: it is asked again.
        """
        for _ in range(2):
            record = _first_record(await self._pull(address, queue, offset))
            unique_key = None if record is None else _unique_key(record)
            if record is None or unique_key is None:
                return None
            if await self._has(address, record, unique_key):
                return True
        return False

    async def _has(self, address: str, record: Record, unique_key: str) -> bool:
        header = QueryMessageRequest(
            topic=record.topic,
            key=unique_key,
            max_num=limits.MAX_QUERY_MESSAGES,
            begin_timestamp_ms=0,
            end_timestamp_ms=limits.MAX_TIMESTAMP_MS,
            is_unique_key=True,
            index_type=UNIQUE_KEY_INDEX,
        )
        async with self._cluster.turn(address):
            answer = await self._cluster.call(address, QUERY_MESSAGE, header)
        offsets = [(each.queue_id, each.queue_offset) for each in records_in(answer.body, [])]
        # The index returns the newest only, where many have one unique key.
        is_there = (record.queue_id, record.queue_offset) in offsets
        return is_there or len(offsets) >= limits.MIN_QUERY_CAP

    async def _pull(self, address: str, queue: MessageQueue, offset: int) -> Pulled:
        async with self._cluster.turn(address):
            return await tools_puller(self._cluster).pull(address, queue, offset, count=1)


def _first_record(pulled: Pulled) -> Record | None:
    return next(pulled.records([]), None)


def _unique_key(record: Record) -> str | None:
    return props.parse(decode_utf8(record.properties)).get(props.UNIQUE_KEY)
