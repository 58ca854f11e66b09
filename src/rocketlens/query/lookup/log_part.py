"""The part of a long log that messages of a range of store times can be in.

Store times rise along the log unless a clock was set back. Where those of its files' first messages
rise, an hour of a log of many files is in a few of them. What relies on that says so: an exhaustive
search reads the whole log.
"""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.model.text.sentences import Sentence
from rocketlens.query.lookup.by_time import Scan
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.log.commitlog import CommitLog


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
    return LogPart(
        segments[first].base_offset if first else None,
        segments[last].base_offset if last < len(times) else None,
    )


def is_long(reader: StoreReader, log_end: int) -> bool:
    """Return whether a log that ends there is too long to be read whole where a part may do."""
    return log_end - reader.log.min_offset > limits.MAX_NEWEST_SCAN_BYTES


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
