"""Reads the log from start to end for messages by topic, time, tag or queue position.

Store times nearly ascend along the log, but not after a clock was set back. So a time range never
ends a scan early, unless the caller names the assumption.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Final

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Record, RecordView, has_queue_entry, message_of
from rocketlens.formats.rows import Rows
from rocketlens.late import pa
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.arrow import ArrowMessages, batches_of, package
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import SYS_FLAG_INNER_BATCH, is_internal_topic
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import QueuePosition
from rocketlens.query.store_reader import StoreReader, torn_coverage, unfinished
from rocketlens.query.tiered import outside_log
from rocketlens.store.read.log.scan import LogWalk, first_copies

_REPORTED_RECORDS: Final = 256
"""Records between two progress reports if their bodies are read: up to 15 ms."""


class Scan(ArrowMessages):
    """A scan of ``[start, stop)`` of the log for the messages that match a filter.

    Iterate over it for the messages, in log order. After that, ``failures`` describes the parts
    that could not be read and damaged messages that match; ``coverage`` has the parts that were
    read; ``complete`` is true if this is the whole log at the start of the iteration.
    """

    def __init__(
        self,
        reader: StoreReader,
        message_filter: MessageFilter,
        position: QueuePosition | None = None,
        *,
        start: int | None = None,
        stop: int | None = None,
        relies_on: str | None = None,
    ) -> None:
        """Prepare a scan of the whole log, or of a part that starts with a record.

        ``position`` restricts it to records with this queue id and queue offset. ``relies_on`` is
        the assumption about the rest of the log.
        """
        reader.refresh()
        self._reader = reader
        self.on_read: Callable[[int, int, int], bool] | None = None
        """Progress callback of the search, like the reader's ``on_progress``."""
        self._log = reader.log
        self._message_filter = message_filter
        self._position = position
        first = reader.log.min_offset if start is None else start
        self._begin_offset = first
        self._stop = stop
        self._relies_on = relies_on
        self._log_end_offset: int | None = None
        self.is_at_end = False
        """Whether everything was read; false if a callback stopped the scan."""
        self._walk = LogWalk(reader.log, first, stop, confirm=reader.is_indexed, grows=True)
        self._errors: list[str] = []
        self._expected_end: int | None = None
        self._next_offset: int | None = None
        """The offset of the next unchecked rows of a chunk."""
        self.last_timestamp_ms = 0
        self.older: Sequence[Scan] = ()
        """Scans of messages that are only in tiered storage; they are read first."""
        self.lost: tuple[Coverage, ...] = ()
        """Failures of tiered storage."""

    def __repr__(self) -> str:
        """Return the store, the topics, and the progress."""
        topics = self._message_filter.topic or ", ".join(sorted(self._message_filter.topics or ()))
        state = "read" if self.is_at_end else f"at physical offset {self.end_offset}"
        return f"Scan({str(self._reader.path)!r}, {topics[:100] or 'every topic'}, {state})"

    @property
    def complete(self) -> bool:
        """Whether everything was read, up to the end of the log at the start of the iteration."""
        return Answer("", (), self.coverage).complete

    @property
    def coverage_so_far(self) -> tuple[Coverage, ...]:
        """The coverage for a caller that stopped because it needed no more."""
        return tuple(
            replace(each, log_end_offset=each.end_offset) if each.is_short else each
            for each in self.coverage
        )

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The parts that were read, failures, and messages that a filter could not decide on."""
        tally = self._message_filter.tally
        return (*self.log_coverage, *(tally.coverage() if tally else ()))

    @property
    def log_coverage(self) -> tuple[Coverage, ...]:
        """The coverage without the counts of the filter."""
        failures = tuple(self._reader.log_failures(self._own_failures))
        if self._log_end_offset is None:
            return failures
        log_end_offset = self._log_end_offset if self._stop is None else self._stop
        if not self.is_at_end:
            log_end_offset = max(log_end_offset, self._walk.stop)
        read = self._reader.log_coverage(
            self.end_offset,
            log_end_offset,
            begin_offset=self._begin_offset,
            newest_ms=self.last_timestamp_ms,
        )
        read = replace(read, relies_on=self._relies_on)
        kept: tuple[Coverage, ...] = ()
        if self._begin_offset <= self._log.min_offset:
            kept = self._reader.missing_older(self._message_filter.begin)
        older = [coverage for scan in self.older for coverage in scan.log_coverage]
        return (*older, *self.lost, read, *torn_coverage(self.torn_at), *failures, *kept)

    @property
    def failures(self) -> list[str]:
        """Descriptions of the parts that could not be read, one line each."""
        older = [each for scan in self.older for each in scan.failures]
        return [*older, *(str(each.error) for each in self.lost), *self._own_failures]

    @property
    def _own_failures(self) -> list[str]:
        walk, reader = self._walk, self._reader
        return [
            *(reader.missing_parts() if self._stop is None else reader.unlisted()),
            *(
                reader.lost_of_queues(self._message_filter.takes_topic)
                if self._stop is None
                else ()
            ),
            *map(str, walk.damage),
            *unfinished(walk.unfinished_at),
            *self._errors,
        ]

    @property
    def end_offset(self) -> int:
        """The physical offset that the scan has reached; at its end, the end of the log."""
        return self._walk.position if self._next_offset is None else self._next_offset

    @property
    def torn_at(self) -> int | None:
        """The physical offset of a torn record at the end of the log, or None."""
        return self._walk.torn_at

    @property
    def has_static(self) -> bool:
        """Whether messages can have logical positions: see `StaticTopics`."""
        return any(map(self._message_filter.takes_topic, self._reader.static_topics))

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield the messages in log order, up to the current end of the log."""
        to_logical = self._reader.static_topics.to_logical
        return (message_of(to_logical(record)) for record in self.records())

    def record_batches(
        self, *, with_body: bool = True, with_text: bool = True
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches, in log order.

        Without bodies, the columns ``body``, ``body_error``, ``body_text`` and ``body_json`` are
        null; without text, only the last two are, which makes a million messages a second possible.

        :raises PackageMissing: if pyarrow is not installed.
        """
        package("pyarrow", "arrow", "record_batches")
        if self.has_static:
            yield from batches_of(self, with_body=with_body, with_text=with_text)
            return
        from rocketlens.formats import columns

        for rows, records in self.pieces():
            yield from batches_of(
                map(message_of, records), with_body=with_body, with_text=with_text
            )
            if rows is not None:
                yield from columns.batches(rows, with_body=with_body, with_text=with_text)

    def records(self) -> Iterator[Record]:
        """Yield the matching records in log order."""
        for scan in self.older:
            yield from map(outside_log, scan.records())
        yield from self._messages_at(self.offsets())

    def matching_in(self, record: Record) -> Sequence[Record]:
        """Return the matching messages of a record at an offset of :meth:`offsets`."""
        return self._message_filter.matching_in(record)

    def pieces(self) -> Iterator[tuple[Rows | None, Iterable[Record]]]:
        """Yield the messages in log order, with verified checksums, either as rows or as records.

        Rows are valid until the next piece. Messages of batches are always records.
        """
        for scan in self.older:
            yield None, map(outside_log, scan.records())
        for read in self._rows():
            rows = self._matching(read)
            if not rows.sys_flags & SYS_FLAG_INNER_BATCH:
                yield from self._plain(rows)
                continue
            from rocketlens.formats import batch_rows

            for is_batch, part in batch_rows.runs(rows):
                if is_batch:
                    yield None, self._messages_at(part.offsets())
                else:
                    yield from self._plain(part)

    def _plain(self, rows: Rows) -> Iterator[tuple[Rows | None, Iterable[Record]]]:
        """Yield rows without batches, after verifying their checksums."""
        mask = rows.sound()
        if len(rows):
            yield rows.compress(mask), ()
        if 0 in mask:
            # Read again, for the error, or because the record was being written.
            others = compress(rows.offsets(), (not each for each in mask))
            yield None, self._messages_at(others)

    def _messages_at(self, physical_offsets: Iterable[int]) -> Iterator[Record]:
        for record in filter(None, map(self.record_at, physical_offsets)):
            yield from self.matching_in(record)

    def record_at(self, physical_offset: int) -> Record | None:
        """Return the record at an offset of :meth:`offsets`.

        None if it is deleted by now, or damaged, which is added to the failures.
        """
        self._reader.check_open()
        try:
            return self._log.record_at(physical_offset)
        except RecordError as error:
            if physical_offset >= self._log.min_offset:
                self._errors.append(str(error))
        return None

    def offsets(self) -> Iterator[int]:
        """Yield the physical offsets of the messages, in log order.

        Checksums of bodies are not verified: :meth:`record_at` does that.
        """
        for rows in self._rows():
            yield from self._matching(rows).offsets()

    def queue_entries(self) -> Iterator[tuple[int, int, int]]:
        """Yield queue id, queue offset and physical offset of a topic's messages, in log order.

        Transaction messages without a queue entry are left out.
        """
        names = ("sys_flag", "queue_id", "queue_offset", "physical_offset")
        for read in self._rows():
            rows = read.choose(takes_topic=self._message_filter.takes_topic)
            columns = (rows.column(name).tolist() for name in names)
            for sys_flag, *entry in zip(*columns, strict=True):
                if has_queue_entry(sys_flag):
                    queue_id, queue_offset, physical_offset = entry
                    yield queue_id, queue_offset, physical_offset

    def _rows(self) -> Iterator[Rows]:
        self._reader.check_open()
        self._reader.refresh()
        if self._stop is None:
            self._walk.stop = self._log.max_offset
        self._log_end_offset = self._reader.least_end()
        number, last = 0, -1
        for rows in self._walk.rows():
            self.last_timestamp_ms = max(self.last_timestamp_ms, rows.newest_ms)
            for part in self._parts(rows):
                number += len(part)
                if self._reader.layout.is_log_of_queue:
                    # A killed broker can write messages twice.
                    mask, last = first_copies(part.column("queue_offset"), last)
                    yield part.compress(mask)
                else:
                    yield part
                if not self._goes_on(number):
                    return
        self.is_at_end = True

    def _parts(self, rows: Rows) -> Iterator[Rows]:
        """Yield rows unchanged, or in small parts if each message takes long."""
        if self._message_filter.content is None:
            yield rows
            return
        offsets = rows.offsets()
        for start in range(0, len(rows), _REPORTED_RECORDS):
            stop = start + _REPORTED_RECORDS
            self._next_offset = offsets[stop] if stop < len(rows) else None
            yield rows.part(start, stop)

    def _goes_on(self, messages: int) -> bool:
        """Report the progress; return False to stop."""
        reports = [each for each in (self._reader.on_progress, self.on_read) if each is not None]
        if not reports:
            return True
        if self._expected_end is None:
            # Files are preallocated. The end of the queues is a good estimate.
            self._expected_end = min(self._reader.queues_end(), self._walk.stop)
        position, stop = self.end_offset, self._walk.stop
        end = self._expected_end if self._expected_end >= position else stop
        start = max(self._begin_offset, self._log.min_offset)
        progress = (position - start, end - start, messages)
        return False not in [report(*progress) for report in reports]

    def _matching(self, rows: Rows) -> Rows:
        """Select rows by their columns; decode only those."""
        message_filter, position = self._message_filter, self._position
        of_topics = message_filter.record_topics is not None
        chosen = rows.choose(
            begin=message_filter.begin,
            end=message_filter.end,
            position=None if position is None else position[1:],
            takes_topic=message_filter.takes_topic if of_topics else None,
        )
        if message_filter.reads_records:
            return chosen.compress(bytes(self._matches(chosen)))
        return self._without_internal(chosen) if message_filter.leaves_out else chosen

    def _without_internal(self, rows: Rows) -> Rows:
        """Count and remove the rows of RocketMQ's own topics."""
        topics, tally = rows.topics(), self._message_filter.tally
        if not any(map(is_internal_topic, topics.names)):
            return rows
        for number, name in enumerate(topics.names):
            if tally is not None and is_internal_topic(name):
                tally.add_internal(name, topics.number_of_row.count(number))
        return rows.choose(takes_topic=lambda name: not is_internal_topic(name))

    def _matches(self, rows: Rows) -> Iterator[bool]:
        """Return for each row whether its message matches.

        The filter reads bodies with a valid checksum only. A damaged record counts as a match if
        the rest of it matches; reading it then reports the damage.
        """
        message_filter, content = self._message_filter, rows.content
        sound: Iterable[int] = rows.sound() if message_filter.reads_body else repeat(1)
        for physical_offset, is_sound in zip(rows.offsets(), sound, strict=False):
            try:
                record = RecordView(content, physical_offset - rows.base_offset, physical_offset)
            except RecordError:
                # It was incomplete when the rows were read.
                yield self._matches_at(physical_offset)
            else:
                yield (message_filter.matches if is_sound else message_filter.may_match)(record)

    def _matches_at(self, physical_offset: int) -> bool:
        if not self._message_filter.reads_body:
            record = self._log.record_at(physical_offset, check_crc=False)
            return self._message_filter.matches(record)
        try:
            return self._message_filter.matches(self._log.record_at(physical_offset))
        except RecordError:
            # The damage is reported when the record is read.
            record = self._log.record_at(physical_offset, check_crc=False)
            return self._message_filter.may_match(record)


def find_in_time(scan: Scan, findings: Findings, *, at_least: int = 0) -> bool:
    """Add the messages of a scan that fit into the answer; the others are not decoded.

    Return False without adding any, if there are fewer than ``at_least``.
    """
    most = limits.MAX_ANSWER_BYTES // limits.MESSAGE_OVERHEAD_BYTES
    max_num, oldest = findings.messages.max_num, findings.messages.oldest
    most = most if max_num is None else min(max_num, most)
    kept: deque[int] = deque(maxlen=most)
    count = 0
    scan.on_read = findings.report_read
    for physical_offset in scan.offsets():
        count += 1
        if count <= most or not oldest:
            kept.append(physical_offset)
    if count < at_least and scan.is_at_end:
        return False
    if count > len(kept):
        findings.messages.truncated = True
    while kept:
        record = scan.record_at(kept.popleft() if oldest else kept.pop())
        matches = () if record is None else scan.matching_in(record)
        if not findings.take_all(matches):
            break
    findings.cover(scan.log_coverage)
    findings.indexed_to_ms = max(findings.indexed_to_ms, scan.last_timestamp_ms)
    return True
