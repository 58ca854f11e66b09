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
no topic, all messages instead of the   all of the log; of a longer one the files that can have
newest, queues that cannot be read      messages of the range of times: the answer names that
an exhaustive search; a range of times  all of the log
in a log whose times do not rise
======================================  =========================================================

With a range of times, the queues are read from its end to its begin, found by the times of some of
their messages: as RocketMQ does, taking them to rise.

Of a long log, messages of a range of store times can be in a part (`LogPart`). Store times rise
along the log unless a clock was set back. Where those of its files' first messages rise, an hour of
a log of many files is in a few of them, and where those of samples within these rise, too, in some
MiB, with as much on both sides as a clock that was set back a little would hide. What relies on
that says so: an exhaustive search reads the whole log.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.by_time import Scan, find_in_time
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.store_reader import CONSUME_QUEUE, StoreReader
from rocketlens.query.tiered import find_in_tiers
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueName
from rocketlens.store.read.log.commitlog import CommitLog, Segment
from rocketlens.store.read.log.resync import next_record

MAX_NEWEST_SCAN_BYTES: Final = 1 << 30
"""Log behind the place where a topic's newest messages begin that is read, a second a GiB.

Behind an earlier place only what consume queues lead to is read; and of a longer log only the files
that can have messages of the range of times that is asked for. RocketMQ has no such search.
"""
_MAX_OTHERS: Final = 20_000
"""Messages at the ends of queues that do not match, 10 us each: behind them a scan is faster."""
_GRAIN_BYTES: Final = 1 << 20
"""Samples of a file are at multiples of this, and a part begins and ends at one of them."""
_SET_BACK_MS: Final = 1_000
"""How far a clock may have been set back around the ends of a part: it reaches beyond its times by
this and a grain. Clocks that are kept right by NTP are set back by less.
"""


class _Newest(NamedTuple):
    """The records that the ends of queues lead to, newest first."""

    records: list[Record]
    is_enough: bool
    """Whether there are as many as were asked for; if not, the queues have no more."""


def find_newest(
    reader: StoreReader, message_filter: MessageFilter, findings: Findings, *, exhaustive: bool
) -> None:
    """Add the newest messages that match, as many as the answer takes, of tiered storage as well.

    Without a number all of them. `find_in_time` over the whole log adds the same; this reads less
    of it where that is possible.
    """
    _find_in_log(reader, message_filter, findings, exhaustive=exhaustive)
    find_in_tiers(reader, message_filter, findings, partial(find_newest, exhaustive=exhaustive))


def _find_in_log(
    reader: StoreReader, message_filter: MessageFilter, findings: Findings, *, exhaustive: bool
) -> None:
    count = findings.messages.max_num
    topics = _topics(message_filter)
    is_short = reader.log.max_offset - reader.log.min_offset <= limits.MAX_SHORT_SCAN_BYTES
    part = None if exhaustive or is_short else part_in_time(reader, message_filter)
    if part is None:
        find_in_time(Scan(reader, message_filter), findings)
        return
    if count is None or findings.messages.oldest or not topics:
        find_in_time(part.scan(reader, message_filter), findings)
        return
    # One more than is returned: whether there is one is part of the answer.
    newest = _from_queues(reader, message_filter, topics, count + 1)
    # Of the last file only its beginning is known; the others are full.
    log_end = reader.least_end()
    end = log_end if part.stop is None else part.stop
    start = newest.records[-1].physical_offset if newest and newest.is_enough else None
    if start is not None and end - start <= MAX_NEWEST_SCAN_BYTES:
        # What is before it is not needed.
        relies_on = LogPart(stop=part.stop).relies_on
        scan = Scan(reader, message_filter, start=start, stop=part.stop, relies_on=relies_on)
        if find_in_time(scan, findings, at_least=count + 1):
            return
    if newest is None or not is_long(reader, log_end):
        find_in_time(part.scan(reader, message_filter), findings)
    else:
        _rely_on_queues(reader, message_filter, newest, part, findings)


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
        for record in _newest_first(reader, topics, message_filter):
            if message_filter.matches(record):
                records.append(record)
                if len(records) == count:
                    return _Newest(records, is_enough=True)
            elif (others := others + 1) > _MAX_OTHERS:
                return None
    except (OSError, RecordError):
        return None
    return _Newest(records, is_enough=False)


def _newest_first(
    reader: StoreReader, topics: frozenset[str], message_filter: MessageFilter
) -> Iterator[Record]:
    """Yield the records that the queues of some topics lead to, from the end of the log on.

    Those of each queue begin where the filter's times end, and end before these begin.

    :raises OSError: when a queue cannot be read.
    :raises RecordError: when an entry leads to no record, or to another queue's.
    """
    log = reader.log
    begin = message_filter.begin
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
            push(name, _last_stored_by(log, queue, message_filter.end))
    while heap:
        minus_offset, queue_offset, name = heappop(heap)
        record = log.record_at(-minus_offset)
        in_batch = [each for each in records_in(record) if each.queue_offset <= queue_offset]
        messages = in_batch or [record]
        there = (record.topic, record.queue_id, messages[-1].queue_offset)
        # An entry of a light queue leads to a record of another topic: the filter compares those.
        if name.topic not in message_filter.light and there != (*name, queue_offset):
            raise RecordError(Reason.POSITION, "its queue entry is another's", -minus_offset)
        if begin is None or record.store_timestamp_ms >= begin:
            yield from reversed(messages)
            push(name, queue_offset - len(messages))


def _last_stored_by(log: CommitLog, queue: ConsumeQueue, end: int) -> int:
    """Return the queue offset of the last message that was stored at or before a time.

    -1, or that of an entry that leads to nothing any more, if there is none. O(log entries).
    """
    if end >= limits.MAX_TIMESTAMP_MS:
        return queue.max_offset - 1

    def is_later(entry: QueueEntry) -> bool:
        # The oldest messages may be deleted.
        if entry.physical_offset < log.min_offset:
            return False
        record = log.record_at(entry.physical_offset, check_crc=False)
        return record.store_timestamp_ms > end

    return queue.first_where(is_later) - 1


def stored_since(reader: StoreReader, topic: str, times_ms: Sequence[int]) -> list[int] | None:
    """Return how many messages the queues of a topic have of each time or later, times taken to
    rise; None if one cannot be read. O(queues * times * log entries).
    """
    reader.refresh()
    counts = [0] * len(times_ms)
    try:
        for name in reader.queues.names():
            queue = reader.queues.queue(*name) if name.topic == topic else None
            if queue is not None:
                lasts = (_last_stored_by(reader.log, queue, each - 1) for each in times_ms)
                counts = [
                    n + queue.max_offset - 1 - last for n, last in zip(counts, lasts, strict=True)
                ]
        return counts
    except (OSError, RecordError):
        return None


def _rely_on_queues(
    reader: StoreReader,
    message_filter: MessageFilter,
    newest: _Newest,
    part: "LogPart",
    findings: Findings,
) -> None:
    """Add what queues lead to, and what is in the part of the log behind all of them."""
    end = reader.queues_end()
    findings.messages.truncated |= newest.is_enough
    # What is there of the part, which can be nothing.
    start = max(end, part.start or 0)
    stop = None if part.stop is None else max(part.stop, start)
    relies_on = part.relies_on if stop is not None or start > end else None
    # Newest first: findings take only as many as an answer can have.
    scan = Scan(reader, message_filter, start=start, stop=stop, relies_on=relies_on)
    find_in_time(scan, findings)
    for record in newest.records[: findings.messages.max_num]:
        if record.physical_offset < end and not findings.take(record):
            break
    oldest = newest.records[-1].physical_offset if newest.is_enough else reader.log.min_offset
    topics = ", ".join(sorted(_topics(message_filter)))
    is_timed = message_filter.begin is not None or message_filter.end < limits.MAX_TIMESTAMP_MS
    rising = Sentence("and_times_rise") if is_timed else ""
    findings.cover(
        (
            Coverage(
                f"{CONSUME_QUEUE}/{topics}",
                SourceKind.CONSUME_QUEUE,
                SourceState.SEARCHED,
                begin_offset=oldest,
                end_offset=end,
                relies_on=Sentence("whole_queues", start=oldest, stop=end, rising=rising),
            ),
        )
    )


class LogPart(NamedTuple):
    """A part of the log by physical offsets: ``start`` is a record's, ``stop`` is behind the last.

    Without one of them it reaches to that end of the log.
    """

    start: int | None = None
    stop: int | None = None

    @property
    def relies_on(self) -> str | None:
        """The assumption of an answer from this part, as `Coverage.relies_on` has it."""
        if self == WHOLE_LOG:
            return None
        if self.stop is None:
            part = Sentence("before_offset", start=self.start)
        elif self.start is None:
            part = Sentence("from_offset", stop=self.stop)
        else:
            part = Sentence("before_and_from", start=self.start, stop=self.stop)
        return Sentence("rising_log", part=part)

    def scan(self, reader: StoreReader, message_filter: MessageFilter) -> Scan:
        """Return a scan of this part."""
        start, stop = self
        return Scan(reader, message_filter, start=start, stop=stop, relies_on=self.relies_on)


WHOLE_LOG: Final = LogPart()


def part_in_time(reader: StoreReader, message_filter: MessageFilter) -> LogPart | None:
    """Return the part that can have messages of a filter's times; a short log is read whole.

    None if the order of store times cannot be relied on: the log's files do not begin in the order
    of time, or not with a message that can be read. O(files): one record of each is looked at.
    """
    begin, end = message_filter.begin, message_filter.end
    if begin is None and end >= limits.MAX_TIMESTAMP_MS:
        return WHOLE_LOG
    if not is_long(reader, reader.least_end()):
        return WHOLE_LOG
    times = _first_times(reader.log)
    if times is None:
        return None
    segments = reader.log.segments
    # The file before the first one that begins in the range can end in it.
    first = 0 if begin is None else max(bisect_left(times, begin) - 1, 0)
    last = bisect_right(times, end)
    start = segments[first].base_offset if first else None
    stop = segments[last].base_offset if last < len(times) else None
    if begin is not None:
        samples = _Samples(reader, segments[first])
        start = samples.start(begin - _SET_BACK_MS) or start
    if last and end < limits.MAX_TIMESTAMP_MS:
        samples = _Samples(reader, segments[last - 1])
        stop = samples.stop(end + _SET_BACK_MS) or stop
    return LogPart(start, stop)


class _Samples:
    """Messages of one file, at some of the multiples of `_GRAIN_BYTES` in it."""

    def __init__(self, reader: StoreReader, segment: Segment) -> None:
        self._reader: Final = reader
        self._segment: Final = segment
        self._count: Final = segment.size // _GRAIN_BYTES
        self._taken: Final[dict[int, tuple[int, int]]] = {}
        """The physical offset and store time of the first message at or behind a multiple."""

    def start(self, timestamp_ms: int) -> int | None:
        """Return where to begin for the messages of a time and later: a grain before the last
        sample that is before it; None for the begin of the file.
        """
        number = bisect_left(range(self._count), timestamp_ms, lo=1, key=self._at) - 2
        return self._offset_of(number) if number > 0 else None

    def stop(self, timestamp_ms: int) -> int | None:
        """Return where to end for the messages of a time and before: a grain behind the first
        sample that is behind it; None for the end of the file.
        """
        number = bisect_right(range(self._count), timestamp_ms, lo=1, key=self._at) + 1
        return self._offset_of(number) if number < self._count else None

    def _offset_of(self, number: int) -> int | None:
        """Return the physical offset of a sample; None where times of the samples go back."""
        self._at(number)
        in_order = [self._taken[each] for each in sorted(self._taken)]
        rises = all(before[1] <= after[1] for before, after in pairwise(in_order))
        offset = self._taken[number][0]
        return offset if rises and offset < self._segment.end_offset else None

    def _at(self, number: int) -> int:
        """Return the store time of the first message at or behind a multiple; later than any if the
        file has none there.
        """
        if number not in self._taken:
            self._taken[number] = self._take(self._segment.base_offset + number * _GRAIN_BYTES)
        return self._taken[number][1]

    def _take(self, position: int) -> tuple[int, int]:
        log = self._reader.log
        none = self._segment.end_offset, limits.MAX_TIMESTAMP_MS
        try:
            # A record can begin right there.
            offset = next_record(log, position - 1, Reason.END, self._reader.is_indexed)
            if offset is None or offset >= self._segment.end_offset:
                return none
            return offset, log.record_at(offset).store_timestamp_ms
        except RecordError:
            return none


def is_long(reader: StoreReader, log_end: int) -> bool:
    """Return whether a log that ends there is too long to be read whole where a part may do."""
    return log_end - reader.log.min_offset > MAX_NEWEST_SCAN_BYTES


def _first_times(log: CommitLog) -> list[int] | None:
    """Return the store times of the files' first messages, in epoch milliseconds.

    Files at the end that have no message yet have none. None if a file begins with something else,
    or if the times do not rise.
    """
    times: list[int] = []
    is_blank = False
    for segment in log.segments:
        try:
            record = log.record_at(segment.base_offset, check_crc=False)
        except RecordError as error:
            if error.reason != Reason.END:
                return None
            is_blank = True
            continue
        if is_blank or (times and record.store_timestamp_ms < times[-1]):
            return None
        times.append(record.store_timestamp_ms)
    return times
