"""Samples of a topic's queues, to see whether a broker's index has their messages.

A broker of RocketMQ that was killed deletes the index file that it was writing, and indexes only
what it recovers from the end of the log. Without ``messageIndexSafe``, which is off by default, the
keys of older messages in that file are lost, and a question for one is answered as if there were no
such message. The messages stay in their queues: a few are read, and the index is asked for each.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.client.connect.cluster import ClusterCalls, broker_error
from rocketlens.client.connect.queue_puller import Pulled, records_in, tools_puller
from rocketlens.client.connect.route import MessageQueue, Recent
from rocketlens.client.search.dispatch_wait import Dispatch
from rocketlens.client.search.key_search import UNIQUE_KEY_INDEX, query_limit
from rocketlens.errors import BrokerError, RemotingError
from rocketlens.formats.commitlog_record import Record
from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8
from rocketlens.model.text.sentences import Sentence
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.commands.messages import QUERY_MESSAGE, QueryMessageRequest


class SampledIndex(NamedTuple):
    """What an answer from an index relies on, and the position of a message that it lacks."""

    relies_on: Sentence | None
    missing: str | None = None


UNTRIED: Final = SampledIndex(Sentence("index_untried"))
_SAMPLED: Final = Sentence("index_sampled")


class IndexSamples:
    """Asks brokers for samples; what came of it is at most 30 s old. Of one event loop.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, cluster: ClusterCalls, clock: Callable[[], float]) -> None:
        self._cluster: Final = cluster
        self._sampled: Final = Recent[tuple[str, str], SampledIndex](clock)

    async def take(self, address: str, queues: Sequence[MessageQueue]) -> SampledIndex:
        """Ask a broker for some messages of the longest of a topic's queues.

        They are spread over the queue, its oldest and newest message among them. Messages without a
        unique key are left out.
        """
        if not queues:
            return UNTRIED
        key = queues[0].topic, address
        return await self._sampled.get(key, lambda: self._take(address, queues))

    async def _take(self, address: str, queues: Sequence[MessageQueue]) -> SampledIndex:
        try:
            ends = await asyncio.gather(*(self._pull(address, each, 0) for each in queues))
            lengths = [each.max_offset - each.min_offset for each in ends]
            longest = lengths.index(max(lengths))
            queue, first, length = queues[longest], ends[longest].min_offset, lengths[longest]
            if not length:
                return SampledIndex(None)
            last = limits.INDEX_SAMPLES - 1
            offsets = sorted({first + (length - 1) * at // last for at in range(last + 1)})
            indexed = await asyncio.gather(
                *(self._is_indexed(address, queue, offset) for offset in offsets)
            )
        except (BrokerError, RemotingError):
            # A user who may search by key is not always allowed to pull.
            return UNTRIED
        if False in indexed:
            missing = f"{queue.topic}/{queue.queue_id}/{offsets[indexed.index(False)]}"
            return SampledIndex(_SAMPLED, missing)
        return SampledIndex(_SAMPLED) if True in indexed else UNTRIED

    async def _is_indexed(self, address: str, queue: MessageQueue, offset: int) -> bool | None:
        """Return whether the index has the message at an offset; None if that cannot be told.

        What the index lacks may just be deleted, or may not have been there yet: the broker is
        asked again when it has dispatched what it stored.
        """
        for number in range(2):
            if number:
                await Dispatch(self._cluster).wait(address)
            record = _first_record(await self._pull(address, queue, offset))
            unique_key = None if record is None else _unique_key(record)
            if record is None or unique_key is None:
                return None
            is_indexed = await self._has(address, record, unique_key)
            if is_indexed is not False:
                return is_indexed
        return False

    async def _has(self, address: str, record: Record, unique_key: str) -> bool | None:
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
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}:
            raise broker_error(address, answer)
        offsets = [(each.queue_id, each.queue_offset) for each in records_in(answer.body, [])]
        if (record.queue_id, record.queue_offset) in offsets:
            return True
        # The index returns the newest only, where many have one unique key.
        limit = await query_limit(self._cluster, address, is_unique_key=True)
        return None if len(offsets) >= limit else False

    async def _pull(self, address: str, queue: MessageQueue, offset: int) -> Pulled:
        async with self._cluster.turn(address):
            return await tools_puller(self._cluster).pull(address, queue, offset, count=1)


def _first_record(pulled: Pulled) -> Record | None:
    return next(pulled.records([]), None)


def _unique_key(record: Record) -> str | None:
    return props.parse(decode_utf8(record.properties)).get(props.UNIQUE_KEY)
