"""Reads the log from front to back for messages: by topic, time, tag, queue position.

The log is in the order of arrival, and store times nearly follow it; a clock that was set back
breaks that order, so time never cuts a scan short, but where its caller says what it relies on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import (
    Record,
    RecordView,
    has_queue_entry,
    message_of,
)
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.arrow import ArrowMessages, batches_of, package
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import QueuePosition
from rocketlens.query.store_reader import StoreReader, torn_coverage, unfinished
from rocketlens.query.tiered import outside_log
from rocketlens.store.read.log.scan import Chunk, LogWalk, first_copies, interpreted_bytes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_PART_BYTES: Final = 12 << 20
"""Of a part of the log this much is read without the compiled kernels, in the time they take to
load, unless it is known to be longer.
"""
_REPORTED_RECORDS: Final = 256
"""Records between two reports of progress, where they are read one by one: 3 ms, and up to 15 where
their bodies are looked at.
"""


class Scan(ArrowMessages):
    """One scan of ``[start, stop)`` of the log for the messages that match a filter.

    Iterate over it for the messages, in the order of the log. Once that came to its end,
    ``failures`` names what could not be read and each message that matches and is damaged,
    ``coverage`` says what was read, and ``complete`` that this is all there was when the iteration
    began.
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
        """Prepare a scan of the whole log, or of a part that begins with a record.

        `position` narrows it down to the records that claim this queue id and queue offset.
        `relies_on` is what must hold of the rest of the log, for the coverage.
        """
        reader.refresh()
        self._reader = reader
        self.on_read: Callable[[int, int, int], bool] | None = None
        """Is called as the reader's ``on_progress`` is, for the search that this is part of."""
        self._log = reader.log
        self._message_filter = message_filter
        self._position = position
        first = reader.log.min_offset if start is None else start
        self._begin_offset = first
        self._stop = stop
        self._relies_on = relies_on
        self._log_end_offset: int | None = None
        self.is_at_end = False
        """Whether all was read; not if the caller of the search wanted no more."""
        self._walk = LogWalk(reader.log, first, stop, confirm=reader.is_indexed, grows=True)
        self._errors: list[str] = []
        self._expected_end: int | None = None
        self._next_offset: int | None = None
        """Where the rows of a chunk begin that were not looked at, within it."""
        self.last_timestamp_ms = 0
        self.older: Sequence[Scan] = ()
        """Scans of what only tiered storage has, which are read first, one by one."""
        self.lost: tuple[Coverage, ...] = ()
        """What is lost of tiered storage."""

    def __repr__(self) -> str:
        """Return the store, and how far it was read."""
        topics = self._message_filter.topic or ", ".join(sorted(self._message_filter.topics or ()))
        state = "read" if self.is_at_end else f"at physical offset {self.end_offset}"
        return f"Scan({str(self._reader.path)!r}, {topics[:100] or 'every topic'}, {state})"

    @property
    def complete(self) -> bool:
        """Whether all was read, up to where the log ended when the iteration began."""
        return Answer("", (), self.coverage).complete

    @property
    def coverage_so_far(self) -> tuple[Coverage, ...]:
        """The coverage for a reader that needed no more than was read."""
        return tuple(
            replace(each, log_end_offset=each.end_offset) if each.is_short else each
            for each in self.coverage
        )

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read so far, what of it could not be, and what a filter left out or could not
        look at.
        """
        tally = self._message_filter.tally
        return (*self.log_coverage, *(tally.coverage() if tally else ()))

    @property
    def log_coverage(self) -> tuple[Coverage, ...]:
        """The coverage without what a filter left out or could not look at."""
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
            kept = self._reader.kept_elsewhere(self._message_filter.begin)
        older = [coverage for scan in self.older for coverage in scan.log_coverage]
        return (*older, *self.lost, read, *torn_coverage(self.torn_at), *failures, *kept)

    @property
    def failures(self) -> list[str]:
        """Descriptions of what could not be read, one line each."""
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
        """The physical offset that the scan has reached: the log's end, when it is finished."""
        return self._walk.position if self._next_offset is None else self._next_offset

    @property
    def unfinished_at(self) -> int | None:
        """The physical offset of a last record that may still be being written."""
        return self._walk.unfinished_at

    @property
    def torn_at(self) -> int | None:
        """The physical offset where a torn tail begins, if the scan met one."""
        return self._walk.torn_at

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield the messages in the order of the log, up to its current end."""
        return map(message_of, self.records())

    def record_batches(self, *, with_body: bool = True) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches, in the order of the log.

        Without bodies, the columns ``body`` and ``body_error`` are null. Over a million messages a
        second where the compiled scan reads the log, which is behind its first few MiB.

        :raises PackageMissing: without pyarrow.
        """
        package("pyarrow", "arrow", "record_batches")
        from rocketlens.formats import columns

        for is_chunk, group in groupby(self.pieces(), lambda piece: isinstance(piece, Chunk)):
            if not is_chunk:
                messages = map(message_of, cast("Iterator[Record]", group))
                yield from batches_of(messages, with_body=with_body)
                continue
            for chunk in cast("Iterator[Chunk]", group):
                yield from columns.batches(
                    chunk.content, chunk.base_offset, chunk.rows, with_body=with_body
                )

    def records(self) -> Iterator[Record]:
        """Yield the records of the messages, as `__iter__` does."""
        for scan in self.older:
            yield from map(outside_log, scan.records())
        yield from self._messages_at(self.offsets())

    def matching_in(self, record: Record) -> Sequence[Record]:
        """Return the messages of a record at an offset of :meth:`offsets`."""
        return self._message_filter.matching_in(record)

    def pieces(self) -> Iterator[Record | Chunk]:
        """Yield the messages as they are read: records one by one, or many as rows of a chunk.

        In the order of the log, each compared with its checksums, and once it is read. A chunk
        holds until the next piece, and has no batches: their messages come one by one.
        """
        for scan in self.older:
            yield from map(outside_log, scan.records())
        for piece in self._pieces():
            if not isinstance(piece, Chunk):
                if self._is_there(piece) and self._is_match(piece):
                    yield from self._messages_at([piece.physical_offset])
                continue
            from rocketlens.formats import batch_rows

            rows = self._matching_rows(piece)
            for is_batch, run in batch_rows.runs(rows):
                if is_batch:
                    yield from self._messages_at(rows["physical_offset"][run].tolist())
                else:
                    yield from self._plain(Chunk(piece.content, piece.base_offset, rows[run]))

    def _plain(self, chunk: Chunk) -> Iterator[Record | Chunk]:
        """Yield the rows of a chunk without batches that have their checksums."""
        from rocketlens.formats.compiled import kernels

        rows = chunk.rows
        is_sound = kernels.crc_ok(chunk.content, chunk.base_offset, rows)
        is_whole = bool(is_sound.all())
        if len(rows):
            sound = rows if is_whole else rows.compress(is_sound)
            yield Chunk(chunk.content, chunk.base_offset, sound)
        if not is_whole:
            # Read again, for the reason; or it was being written at the first look.
            yield from self._messages_at(rows["physical_offset"][~is_sound].tolist())

    def _messages_at(self, physical_offsets: Iterable[int]) -> Iterator[Record]:
        for record in filter(None, map(self.record_at, physical_offsets)):
            yield from self.matching_in(record)

    def record_at(self, physical_offset: int) -> Record | None:
        """Return the record at an offset of :meth:`offsets`.

        None if a broker deleted it meanwhile, and None with a failure if it is damaged.
        """
        self._reader.check_open()
        try:
            return self._log.record_at(physical_offset)
        except RecordError as error:
            if physical_offset >= self._log.min_offset:
                self._errors.append(str(error))
        return None

    def offsets(self) -> Iterator[int]:
        """Yield the physical offsets of the messages, in the order of the log.

        Their bodies are not looked at. For the records use :meth:`record_at`.
        """
        for piece in self._pieces():
            if isinstance(piece, Chunk):
                yield from self._in_chunk(piece)
            elif self._is_there(piece) and self._is_match(piece):
                yield piece.physical_offset

    def queue_entries(self) -> Iterator[tuple[int, int, int]]:
        """Yield the queue id, queue offset and physical offset of a topic's messages.

        In the order of the log. Messages of transactions that no queue has are left out.
        """
        takes_topic = self._message_filter.takes_topic
        for piece in self._pieces():
            entries: Iterable[tuple[int, int, int, int]]
            if isinstance(piece, Chunk):
                rows = piece.rows.compress(piece.topics().are(takes_topic))
                columns = (
                    rows[name].tolist()
                    for name in ("sys_flag", "queue_id", "queue_offset", "physical_offset")
                )
                entries = zip(*columns, strict=True)
            elif takes_topic(piece.topic):
                entries = [
                    (piece.sys_flag, piece.queue_id, piece.queue_offset, piece.physical_offset)
                ]
            else:
                continue
            for sys_flag, queue_id, queue_offset, physical_offset in entries:
                if has_queue_entry(sys_flag):
                    yield queue_id, queue_offset, physical_offset

    def _pieces(self) -> Iterator[Record | Chunk]:
        pieces = self._read()
        return _each_once(pieces) if self._reader.layout.is_log_of_queue else pieces

    def _read(self) -> Iterator[Record | Chunk]:
        """Read the log: record by record, and from where that is slower by chunks."""
        self._reader.check_open()
        self._reader.refresh()
        if self._stop is None:
            self._walk.stop = self._log.max_offset
        self._log_end_offset = self._reader.least_end()
        number = 0
        for piece in self._walk.pieces(self._interpreted(), at_once=True):
            if isinstance(piece, Chunk):
                for part in self._parts(piece):
                    yield part
                    number += len(part.rows)
                    if not self._goes_on(number):
                        return
                continue
            number += 1
            self.last_timestamp_ms = max(self.last_timestamp_ms, piece.store_timestamp_ms)
            yield piece
            if number % _REPORTED_RECORDS == 0 and not self._goes_on(number):
                return
        self.is_at_end = True

    def _interpreted(self) -> int | None:
        """Return how many bytes to read record by record at first; None for the usual."""
        is_part = self._begin_offset > self._log.min_offset
        is_long = self._walk.stop - self._walk.position > _PART_BYTES
        # Files are made in their full size, so the log's end says little of what is written.
        if not is_part or (is_long and self._stop is not None):
            return None
        return interpreted_bytes(_PART_BYTES)

    def _parts(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield a chunk whole, or in small parts where each message takes long to look at."""
        if self._message_filter.content is None:
            yield chunk
            return
        for start in range(0, len(chunk.rows), _REPORTED_RECORDS):
            stop = start + _REPORTED_RECORDS
            following = chunk.rows["physical_offset"][stop : stop + 1].tolist()
            self._next_offset = following[0] if following else None
            yield Chunk(chunk.content, chunk.base_offset, chunk.rows[start:stop])

    def _goes_on(self, messages: int) -> bool:
        """Report the progress; return False if the caller wants no more."""
        reports = [each for each in (self._reader.on_progress, self.on_read) if each is not None]
        if not reports:
            return True
        if self._expected_end is None:
            # Files are made in their full size. What queues lead to is written.
            self._expected_end = min(self._reader.queues_end(), self._walk.stop)
        position, stop = self.end_offset, self._walk.stop
        end = self._expected_end if self._expected_end >= position else stop
        start = max(self._begin_offset, self._log.min_offset)
        progress = (position - start, end - start, messages)
        return False not in [report(*progress) for report in reports]

    def _is_there(self, record: Record) -> bool:
        position = self._position
        return position is None or (record.queue_id, record.queue_offset) == position[1:]

    def _in_chunk(self, chunk: Chunk) -> Iterator[int]:
        """Yield the physical offsets of a chunk's messages."""
        yield from self._matching_rows(chunk)["physical_offset"].tolist()

    def _matching_rows(self, chunk: Chunk) -> "npt.NDArray[np.void]":
        """Select rows of a chunk by their columns first; only those are decoded."""
        import numpy as np

        rows = chunk.rows
        times = rows["store_timestamp_ms"]
        self.last_timestamp_ms = max(self.last_timestamp_ms, int(times.max()))
        mask = times <= self._message_filter.end
        if self._message_filter.begin is not None:
            mask &= times >= self._message_filter.begin
        if self._message_filter.record_topics is not None:
            mask &= chunk.topics().are(self._message_filter.takes_topic)
        if self._position is not None:
            mask &= rows["queue_id"] == self._position.queue_id
            mask &= rows["queue_offset"] == self._position.queue_offset
        chosen = rows if mask.all() else rows.compress(mask)
        if self._message_filter.reads_records:
            return chosen.compress(np.fromiter(self._matches(chunk, chosen), np.bool_, len(chosen)))
        if self._message_filter.leaves_out and len(chosen):
            return self._without_internal(Chunk(chunk.content, chunk.base_offset, chosen))
        return chosen

    def _without_internal(self, chunk: Chunk) -> "npt.NDArray[np.void]":
        """Return the rows of a chunk without those of RocketMQ's own topics, which are counted."""
        topics, tally = chunk.topics(), self._message_filter.tally
        if not any(map(is_internal_topic, topics.names)):
            return chunk.rows
        for number, name in enumerate(topics.names):
            if tally is not None and is_internal_topic(name):
                tally.add_internal(name, int((topics.number_of_row == number).sum()))
        return chunk.rows.compress(~topics.are(is_internal_topic))

    def _matches(self, chunk: Chunk, rows: "npt.NDArray[np.void]") -> Iterator[bool]:
        """Return for rows of a chunk whether their messages match.

        What a filter looks at has its checksums: a damaged record may match as far as can be known,
        and its damage is reported where it is read.
        """
        from rocketlens.formats.compiled import kernels

        message_filter, view = self._message_filter, chunk.content.data
        offsets = rows["physical_offset"].tolist()
        is_sound = [True] * len(offsets)
        if message_filter.reads_body:
            is_sound = kernels.crc_ok(chunk.content, chunk.base_offset, rows).tolist()
        for physical_offset, sound in zip(offsets, is_sound, strict=True):
            try:
                record = RecordView(view, physical_offset - chunk.base_offset, physical_offset)
            except RecordError:
                # It was being written when the chunk was read.
                yield self._matches_at(physical_offset)
            else:
                yield message_filter.matches(record) if sound else message_filter.may_match(record)

    def _matches_at(self, physical_offset: int) -> bool:
        if not self._message_filter.reads_body:
            record = self._log.record_at(physical_offset, check_crc=False)
            return self._message_filter.matches(record)
        try:
            return self._message_filter.matches(self._log.record_at(physical_offset))
        except RecordError:
            # It may match as far as can be known, and its damage is reported where it is read.
            record = self._log.record_at(physical_offset, check_crc=False)
            return self._message_filter.may_match(record)

    def _is_match(self, record: Record) -> bool:
        """Return whether a record of the walk matches, whose body was not checked."""
        if not self._message_filter.reads_body:
            return self._message_filter.matches(record)
        return self._message_filter.may_match(record) and self._matches_at(record.physical_offset)


def _each_once(pieces: Iterator[Record | Chunk]) -> Iterator[Record | Chunk]:
    """Yield the messages of the log of one queue, which a killed broker can have written twice."""
    last = -1
    for piece in pieces:
        if not isinstance(piece, Chunk):
            if piece.queue_offset > last:
                last = piece.queue_offset
                yield piece
            continue
        rows, last = first_copies(piece.rows, last)
        yield Chunk(piece.content, piece.base_offset, rows)


def find_in_time(scan: Scan, findings: Findings, *, at_least: int = 0) -> bool:
    """Add the messages of a scan that fit into the answer: the others are not even decoded.

    Return False, and add nothing, if there are less than ``at_least``.
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
