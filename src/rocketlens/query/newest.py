"""The newest messages of a topic, without reading all of the log.

The ends of the topic's consume queues lead to where in the log its newest messages begin. From
there to its end the log itself is read, so what queues lack, or lead wrongly to, is found as well:

======================================  =========================================================
case                                    what is read
======================================  =========================================================
the part of the log behind that point   that part: the answer relies on nothing
is not longer than a bound
it is longer: the topic is rare, or     the messages that queues lead to, and the log behind the
was not written for long                last one that any queue leads to; the answer names what
                                        it relies on
the queues do not lead to enough        all of the log, if it is not longer than the bound; else
messages                                as above
an exhaustive search, no topic, queues  all of the log
that cannot be read
======================================  =========================================================
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.query.answer_builder import Findings
from rocketlens.query.by_time import Scan, find_in_time
from rocketlens.query.store_reader import CONSUME_QUEUE, StoreReader
from rocketlens.query.verify import MessageFilter
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueName

_MAX_OTHERS: Final = 20_000
"""Messages at the ends of queues that do not match, 10 us each: behind them a scan is faster."""


class _Newest(NamedTuple):
    """What the ends of queues lead to, newest first."""

    records: list[Record]
    is_enough: bool
    """Whether there are as many as were asked for; if not, the queues have no more."""


def find_newest(
    reader: StoreReader, message_filter: MessageFilter, findings: Findings, *, exhaustive: bool
) -> None:
    """Add the newest messages that match, as many as the answer takes.

    `find_in_time` over the whole log adds the same; this reads less of it where that is possible.
    """
    count = findings.messages.max_num
    topics = _topics(message_filter)
    is_short = reader.log.max_offset - reader.log.min_offset <= limits.MAX_INTERPRETED_SCAN_BYTES
    if count is None or findings.messages.oldest or exhaustive or not topics or is_short:
        find_in_time(Scan(reader, message_filter), findings)
        return
    # One more than is returned: whether there is one is part of the answer.
    newest = _from_queues(reader, message_filter, topics, count + 1)
    # Of the last file only its beginning is known; the others are full.
    log_end = reader.least_end()
    start = newest.records[-1].physical_offset if newest and newest.is_enough else None
    if start is not None and log_end - start <= limits.MAX_NEWEST_SCAN_BYTES:
        scan = Scan(reader, message_filter, start=start)
        if find_in_time(scan, findings, at_least=count + 1):
            return
    if newest is None or log_end - reader.log.min_offset <= limits.MAX_NEWEST_SCAN_BYTES:
        find_in_time(Scan(reader, message_filter), findings)
    else:
        _rely_on_queues(reader, message_filter, newest, findings)


def _topics(message_filter: MessageFilter) -> frozenset[str]:
    if message_filter.topic is not None:
        return frozenset((message_filter.topic,))
    return message_filter.topics or frozenset()


def _from_queues(
    reader: StoreReader, message_filter: MessageFilter, topics: frozenset[str], count: int
) -> _Newest | None:
    """Return the newest messages that queues lead to, by physical offset.

    None if a queue cannot be read, or if too many of its messages do not match.
    """
    records: list[Record] = []
    others = 0
    try:
        for record in _newest_first(reader, topics):
            if message_filter.matches(record):
                records.append(record)
                if len(records) == count:
                    return _Newest(records, is_enough=True)
            elif (others := others + 1) > _MAX_OTHERS:
                return None
    except (OSError, RecordError):
        return None
    return _Newest(records, is_enough=False)


def _newest_first(reader: StoreReader, topics: frozenset[str]) -> Iterator[Record]:
    """Yield the records that the queues of some topics lead to, from the end of the log on.

    :raises OSError: when a queue cannot be read.
    :raises RecordError: when an entry leads to no record, or to another queue's.
    """
    log = reader.log
    heap: list[tuple[int, int, QueueName]] = []
    queues: dict[QueueName, ConsumeQueue] = {}

    def push(name: QueueName, queue_offset: int) -> None:
        entry = queues[name].entry(queue_offset) if queue_offset >= 0 else None
        if entry is not None and entry.physical_offset >= log.min_offset:
            heappush(heap, (-entry.physical_offset, queue_offset, name))

    for name in reader.queues.names():
        queue = reader.queues.queue(*name) if name.topic in topics else None
        if queue is not None and queue.files:
            queues[name] = queue
            push(name, queue.max_offset - 1)
    while heap:
        minus_offset, queue_offset, name = heappop(heap)
        record = log.record_at(-minus_offset)
        if (record.topic, record.queue_id, record.queue_offset) != (*name, queue_offset):
            raise RecordError(Reason.POSITION, "its queue entry is another's", -minus_offset)
        yield record
        push(name, queue_offset - 1)


def _rely_on_queues(
    reader: StoreReader, message_filter: MessageFilter, newest: _Newest, findings: Findings
) -> None:
    """Add what queues lead to, and what is in the log behind all of them."""
    end = reader.queues_end()
    findings.messages.truncated |= newest.is_enough
    # Newest first: findings take only as many as an answer can have.
    find_in_time(Scan(reader, message_filter, start=end), findings)
    for record in newest.records[: findings.messages.max_num]:
        if record.physical_offset < end and not findings.take(record):
            break
    oldest = newest.records[-1].physical_offset if newest.is_enough else reader.log.min_offset
    topics = ", ".join(sorted(_topics(message_filter)))
    findings.cover(
        (
            Coverage(
                f"{CONSUME_QUEUE}/{topics}",
                SourceKind.CONSUME_QUEUE,
                SourceState.SEARCHED,
                begin_offset=oldest,
                end_offset=end,
                relies_on=f"consume queues lack no message from physical offset {oldest} to {end} "
                "(an exhaustive search reads the log)",
            ),
        )
    )
