"""Finds the newest messages of a topic without reading the whole log.

The ends of the topic's consume queues lead to the start of its newest messages in the log. From
there the log itself is read, so that messages without a correct queue entry are found, too:

======================================  =========================================================
case                                    read
======================================  =========================================================
the log from there to its end is        this part of the log; the answer relies on nothing
shorter than a limit
it is longer (a rare or inactive        the messages in the queues, and the log after the last
topic)                                  message in any queue; the answer names its assumption
the queues have too few messages        the whole log, if it is shorter than the limit, else as
                                        above
no topic, no maximum number, or         the whole log; of a longer log, the files that can have
unreadable queues                       messages of the time range; the answer names its
                                        assumption
an exhaustive search, or a time range   the whole log
in a log whose times do not ascend
======================================  =========================================================

For a time range, the queues are read from its end to its start. Both are found by binary search
over store times, which RocketMQ also assumes to ascend.

Of a long log, only a part (`LogPart`) is read for a time range. Store times ascend along the log
unless a clock was set back. If the times of the first messages of its files ascend, the range is in
few files; if those of samples in these files ascend, it is in some MiB, extended on both sides in
case a clock was set back slightly. Answers from a part name this assumption.
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
"""Length of log that is read for the newest messages of a topic, a second per GiB.

Above it, only messages in consume queues are read, or the files for the requested time range.
RocketMQ: no comparable search.
"""
_MAX_OTHERS: Final = 20_000
"""Messages in queues that do not match, 10 µs each. With more, a scan is faster."""
_GRAIN_BYTES: Final = 1 << 20
"""Distance of samples in a file; parts start and end at samples."""
_SET_BACK_MS: Final = 1_000
"""Clock changes that a part tolerates: it is extended by this time and by one sample. NTP sets
clocks back by less.
"""


class _Newest(NamedTuple):
    """The records at the ends of queues, newest first."""

    records: list[Record]
    is_enough: bool
    """Whether the requested number was found; if not, the queues have no more."""


def find_newest(
    reader: StoreReader, message_filter: MessageFilter, findings: Findings, *, exhaustive: bool
) -> None:
    """Add the newest matching messages, including those in tiered storage.

    The result equals that of `find_in_time` over the whole log, but less of it is read.
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
    # One more than requested, to know if the answer is truncated.
    newest = _from_queues(reader, message_filter, topics, count + 1)
    # Only the start of the last file is known; the others are full.
    log_end = reader.least_end()
    end = log_end if part.stop is None else part.stop
    start = newest.records[-1].physical_offset if newest and newest.is_enough else None
    if start is not None and end - start <= MAX_NEWEST_SCAN_BYTES:
        # Earlier messages are not needed.
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
    """Return the newest messages in queues, by physical offset.

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
    """Yield the records in the queues of some topics within the filter's times, newest first.

    :raises OSError: if a queue cannot be read.
    :raises RecordError: if an entry leads to no record, or to a record of another queue.
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
        # Entries of light queues lead to records of other topics; the filter checks those.
        if name.topic not in message_filter.light and there != (*name, queue_offset):
            raise RecordError(
                Reason.POSITION, "its queue entry belongs to another record", -minus_offset
            )
        if begin is None or record.store_timestamp_ms >= begin:
            yield from reversed(messages)
            push(name, queue_offset - len(messages))


def _last_stored_by(log: CommitLog, queue: ConsumeQueue, end: int) -> int:
    """Return the queue offset of the last message stored at or before a time.

    If there is none, the result is -1 or the offset of a deleted message. O(log entries).
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
    """Return for each time the number of messages in a topic's queues stored at or after it.

    Assumes ascending times. None if a queue cannot be read. O(queues * times * log entries).
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
    """Add messages in queues, and those in the part of the log after the last queue entry."""
    end = reader.queues_end()
    findings.messages.truncated |= newest.is_enough
    # The rest of the part can be empty.
    start = max(end, part.start or 0)
    stop = None if part.stop is None else max(part.stop, start)
    relies_on = part.relies_on if stop is not None or start > end else None
    # Newest first, because findings take a limited number.
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
    """A part of the log: ``start`` is the offset of a record, ``stop`` the end of the part.

    None means the start or end of the log.
    """

    start: int | None = None
    stop: int | None = None

    @property
    def relies_on(self) -> str | None:
        """The assumption of an answer from this part, for `Coverage.relies_on`."""
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
        start, stop = self
        return Scan(reader, message_filter, start=start, stop=stop, relies_on=self.relies_on)


WHOLE_LOG: Final = LogPart()


def part_in_time(reader: StoreReader, message_filter: MessageFilter) -> LogPart | None:
    """Return the part of the log for a filter's time range; a short log is always read whole.

    None if store times cannot be relied on: the first messages of the files do not ascend, or
    cannot be read. O(files).
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
    # The file before the first one in the range can end in the range.
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
    """Samples of one file: the first message after some multiples of `_GRAIN_BYTES`."""

    def __init__(self, reader: StoreReader, segment: Segment) -> None:
        self._reader: Final = reader
        self._segment: Final = segment
        self._count: Final = segment.size // _GRAIN_BYTES
        self._taken: Final[dict[int, tuple[int, int]]] = {}
        """Physical offset and store time of each sample."""

    def start(self, timestamp_ms: int) -> int | None:
        """Return the offset of the sample before the last one that is older; None for the start
        of the file.
        """
        number = bisect_left(range(self._count), timestamp_ms, lo=1, key=self._at) - 2
        return self._offset_of(number) if number > 0 else None

    def stop(self, timestamp_ms: int) -> int | None:
        """Return the offset of the sample after the first one that is newer; None for the end of
        the file.
        """
        number = bisect_right(range(self._count), timestamp_ms, lo=1, key=self._at) + 1
        return self._offset_of(number) if number < self._count else None

    def _offset_of(self, number: int) -> int | None:
        """Return the physical offset of a sample; None if times of the samples descend."""
        self._at(number)
        in_order = [self._taken[each] for each in sorted(self._taken)]
        rises = all(before[1] <= after[1] for before, after in pairwise(in_order))
        offset = self._taken[number][0]
        return offset if rises and offset < self._segment.end_offset else None

    def _at(self, number: int) -> int:
        """Return the store time of a sample; the largest time if there is no message."""
        if number not in self._taken:
            self._taken[number] = self._take(self._segment.base_offset + number * _GRAIN_BYTES)
        return self._taken[number][1]

    def _take(self, position: int) -> tuple[int, int]:
        log = self._reader.log
        none = self._segment.end_offset, limits.MAX_TIMESTAMP_MS
        try:
            # A record can start exactly there.
            offset = next_record(log, position - 1, Reason.END, self._reader.is_indexed)
            if offset is None or offset >= self._segment.end_offset:
                return none
            return offset, log.record_at(offset).store_timestamp_ms
        except RecordError:
            return none


def is_long(reader: StoreReader, log_end: int) -> bool:
    """Return whether a log with this end is too long to be read whole."""
    return log_end - reader.log.min_offset > MAX_NEWEST_SCAN_BYTES


def _first_times(log: CommitLog) -> list[int] | None:
    """Return the store times of the files' first messages, in epoch milliseconds.

    Empty files at the end are left out. None if a file starts with anything else, or if the times
    descend.
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
