"""Finds the message at a queue offset, with the consume queue or by reading the log."""

from collections import defaultdict
from collections.abc import Callable

from msgspec.structs import replace

from rocketlens.errors import RecordError
from rocketlens.formats.batch_body import message_at
from rocketlens.formats.commitlog_record import (
    Record,
    has_queue_entry,
    is_dispatched_to,
    light_queues,
)
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model import properties as props
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.model.text.java import decode_utf8
from rocketlens.query.answer_builder import Findings
from rocketlens.query.lookup.by_time import Scan
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.request import QueuePosition
from rocketlens.query.store_reader import CONSUME_QUEUE, StoreReader
from rocketlens.query.tally import SearchTally
from rocketlens.query.tiered import findings_outside_log, position_of
from rocketlens.query.topic_choice import outside_of
from rocketlens.store.read.consumequeue import ConsumeQueue
from rocketlens.store.read.former_topics import ends_of_former, runs_of


def find_by_queue_offset(
    reader: StoreReader, position: QueuePosition, message_filter: MessageFilter, findings: Findings
) -> None:
    """Add the message at a queue position, if it matches the filter.

    If the consume queue lacks the entry or has a wrong one, the part of the log that can contain
    the message is read.
    """
    search = _Search(reader, position, message_filter, findings)
    try:
        search.by_queue()
    except OSError as error:
        # The queue is unreadable, so the log decides.
        search.read_log((reader.log.min_offset, None), f"cannot be read: {error.strerror}")


def record_of_entry(reader: StoreReader, position: QueuePosition) -> Record | None:
    """Return the record that the consume queue has at a position.

    None if the entry is missing or wrong, and for static topics: use `find_by_queue_offset`.
    """
    if position.topic in reader.static_topics:
        return None
    try:
        queue = reader.queues.queue(position.topic, position.queue_id)
        entry = queue.entry(position.queue_offset) if queue else None
    except OSError:
        return None
    return None if entry is None else _record_of(reader, entry, position)[0]


class _Search:
    def __init__(
        self,
        reader: StoreReader,
        position: QueuePosition,
        message_filter: MessageFilter,
        findings: Findings,
    ) -> None:
        self._reader = reader
        self._position = position
        self._filter = message_filter
        self._findings = findings

    def by_queue(self) -> None:
        """Use the consume queue, and if that fails, the log.

        :raises OSError: if the queue cannot be read.
        """
        reader, position = self._reader, self._position
        queue = reader.queues.queue(position.topic, position.queue_id)
        entry = _entry(queue, position.queue_offset) if queue else None
        error = None
        if entry is not None:
            if queue and _is_deleted(reader, queue, position.queue_offset, entry):
                self._report_deleted(entry)
                return
            record, error = _record_of(reader, entry, position)
            if record is not None:
                self._report_found(record)
                return
        self.read_log(_stretch(reader, queue, position.queue_offset), error)

    def _report_found(self, record: Record) -> None:
        newest_ms = record.store_timestamp_ms
        log = self._reader.record_coverage(
            record.physical_offset, record.total_size, newest_ms=newest_ms
        )
        queue = self._queue_coverage(newest_ms=newest_ms)
        self._finish([record], (queue, log), newest_ms)

    def _report_deleted(self, entry: QueueEntry) -> None:
        note = (
            f"it was at physical offset {entry.physical_offset}; the log now begins at "
            f"{self._reader.log.min_offset}"
        )
        queue = self._queue_coverage(None, note)
        self._finish([], (queue, self._reader.record_coverage(entry.physical_offset)), 0)

    def read_log(self, stretch: tuple[int, int | None], error: str | None) -> None:
        """Read a range of the log, and the rest if necessary.

        ``error`` is the reason if the consume queue is wrong, None if it has no entry.
        """
        reader, position = self._reader, self._position
        start, stop = stretch
        queue = self._queue_coverage(error, None if error else self._missing())
        claims = self._claims_position()
        if claims is not None:
            of_topic = MessageFilter(topic=position.topic, tally=SearchTally())
            scan = Scan(reader, of_topic, start=start, stop=stop)
            self._report_scan(queue, scan, list(filter(claims, scan.records()))[:1])
            return
        of_topic = MessageFilter(topic=position.topic)
        scan = Scan(reader, of_topic, position, start=start, stop=stop)
        records = _of_queue(scan)
        if records and stop is not None:
            self._report_scan(queue, scan, records[:1])
            return
        before: tuple[Coverage, ...] = ()
        if stop is not None:
            # The entry at the end of the range can belong to a topic that was recreated.
            before = scan.coverage
            scan = Scan(reader, of_topic, position, start=stop)
            records = _of_queue(scan)
        current = records
        if records:
            begin = _begin_of_queue(reader, position)
            current = [record for record in records if record.physical_offset >= begin]
            if not current:
                detail = (
                    f"physical offset {records[-1].physical_offset} has one of topic "
                    f"{position.topic} before it was deleted and created again"
                )
                queue = self._queue_coverage(error, detail)
        self._report_scan(queue, scan, current[-1:], before)

    def _claims_position(self) -> Callable[[Record], bool] | None:
        """Return a test for records at the position, or None if queue id and offset suffice."""
        topic, queue_id, queue_offset = self._position
        if topic.startswith(LMQ_PREFIX):
            return lambda record: _light_queues(record).get(topic) == str(queue_offset)
        if topic not in self._reader.topics.batch_topics():
            return None

        # A scan unpacks batches.
        return lambda record: (record.queue_id, record.queue_offset) == (queue_id, queue_offset)

    def _report_scan(
        self, queue: Coverage, scan: Scan, records: list[Record], before: tuple[Coverage, ...] = ()
    ) -> None:
        coverage = (*before, *scan.coverage)
        if records:
            # A position has one message, so damage elsewhere does not matter.
            damaged = SourceState.DAMAGED
            coverage = tuple(
                replace(each, state=damaged) if each.state is SourceState.FAILED else each
                for each in coverage
            )
        self._finish(records, (queue, *coverage), scan.last_timestamp_ms)

    def _finish(
        self, records: list[Record], coverage: tuple[Coverage, ...], newest_ms: int
    ) -> None:
        for record in filter(self._filter.matches, records):
            self._findings.take(record)
        self._findings.cover(coverage)
        if not records:
            self._findings.cover(self._reader.missing_older(None))
            self._find_in_tiers()
            if not self._findings.count:
                self._findings.cover(self._outside())
        self._findings.indexed_to_ms = max(self._findings.indexed_to_ms, newest_ms)

    def _outside(self) -> tuple[Coverage, ...]:
        topic, queue_id, _ = self._position
        queues = self._reader.queues
        if topic in self._reader.static_topics:
            # Its logical offsets are not those of its queues.
            return ()
        try:
            queue = queues.queue(topic, queue_id)
            ids = [each for name, each in queues.names() if name == topic]
        except OSError:
            # The coverage already has the reason.
            return ()
        bounds = None
        if queue is not None and queue.files:
            bounds = queue.files[0].first_queue_offset, queue.max_offset
        return outside_of(self._position, bounds, ids)

    def _find_in_tiers(self) -> None:
        topic, queue_id, queue_offset = self._position
        if not self._reader.tiered.is_needed(None):
            return
        is_light = topic.startswith(LMQ_PREFIX)
        logs, lost = self._reader.tiered.logs(
            lambda queue: is_light or (queue.topic, queue.queue_id) == (topic, queue_id)
        )
        for queue, log in logs:
            start = None if is_light else position_of(log, queue, queue_offset)
            stretch = (log.log.min_offset, None) if start is None else (start, start + 1)
            part = findings_outside_log(self._findings)
            _Search(log, self._position, self._filter, part).read_log(stretch, None)
            self._findings.add_part(part)
        self._findings.cover(lost)

    def _missing(self) -> str | None:
        """Return why the consume queue is missing; None if it has files."""
        queue = self._reader.queues.queue(self._position.topic, self._position.queue_id)
        return None if queue is not None and queue.files else self._reader.queues.missing

    def _queue_coverage(
        self, error: str | None = None, note: str | None = None, *, newest_ms: int | None = None
    ) -> Coverage:
        name = f"{CONSUME_QUEUE}/{self._position.topic}/{self._position.queue_id}"
        kind, state = SourceKind.CONSUME_QUEUE, SourceState.SEARCHED
        if error:
            state, note = SourceState.DAMAGED, None
        return Coverage(name, kind, state, newest_ms, error, note=note)


def _entry(queue: ConsumeQueue, queue_offset: int) -> QueueEntry | None:
    """Return the entry, also if a broker created its file after the queue was opened."""
    entry = queue.entry(queue_offset)
    if entry is None:
        queue.refresh()
        entry = queue.entry(queue_offset)
    return entry


def _is_deleted(
    reader: StoreReader, queue: ConsumeQueue, queue_offset: int, entry: QueueEntry
) -> bool:
    """Return whether an entry refers to deleted log; its neighbours must confirm it.

    Entries ascend, so the previous one is deleted, too. If the next one is not deleted, the short
    part of the log before it is read to be sure.
    """
    if not 0 <= entry.physical_offset < reader.log.min_offset:
        return False
    before, after = queue.entry(queue_offset - 1), queue.entry(queue_offset + 1)
    if before is not None and before.physical_offset >= entry.physical_offset:
        return False
    return after is None or entry.physical_offset < after.physical_offset < reader.log.min_offset


def _record_of(
    reader: StoreReader, entry: QueueEntry, position: QueuePosition
) -> tuple[Record | None, str | None]:
    """Return the record of an entry, or the reason why it is not that of the position."""
    queue_offset = position.queue_offset
    try:
        record = reader.log.record_at(entry.physical_offset)
    except RecordError as error:
        return None, f"its entry {queue_offset} leads to a bad {error}"
    message: Record | None = record
    if position.topic.startswith(LMQ_PREFIX):
        if not is_dispatched_to(record, position.topic):
            return None, f"its entry {queue_offset} leads to a message that was not sent to it"
    else:
        message = message_at(record, queue_offset)
        if message is None or (record.topic, record.queue_id) != position[:2]:
            there = QueuePosition(record.topic, record.queue_id, record.queue_offset)
            return None, f"its entry {queue_offset} leads to a message of {there}"
    if not reader.is_record_start(record):
        return None, f"its entry {queue_offset} does not lead to the start of a record"
    return message, None


def _light_queues(record: Record) -> dict[str, str]:
    return light_queues(props.parse(decode_utf8(record.properties)))


def _of_queue(scan: Scan) -> list[Record]:
    return [record for record in scan.records() if has_queue_entry(record.sys_flag)]


def _begin_of_queue(reader: StoreReader, position: QueuePosition) -> int:
    """Return the physical offset before which a queue's messages belong to a deleted topic.

    Messages of a deleted topic stay in the log until they expire, also if it is recreated. O(log).
    """
    queue_offsets: defaultdict[int, list[int]] = defaultdict(list)
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    scan = Scan(reader, MessageFilter(topic=position.topic))
    for queue_id, queue_offset, physical_offset in scan.queue_entries():
        queue_offsets[queue_id].append(queue_offset)
        offsets[queue_id].append(physical_offset)
    runs = {
        each: list(runs_of([n for n, offset in enumerate(own) if not offset], own, offsets[each]))
        for each, own in queue_offsets.items()
    }
    return ends_of_former(runs).get(position.queue_id, 0)


def _stretch(
    reader: StoreReader, queue: ConsumeQueue | None, queue_offset: int
) -> tuple[int, int | None]:
    """Return the range of the log that must contain a message, by verified neighbours."""
    start, stop = reader.log.min_offset, None
    if queue is None:
        return start, stop
    before = _confirmed_entry(reader, queue, range(queue_offset - 1, queue_offset - 9, -1))
    after = _confirmed_entry(reader, queue, range(queue_offset + 1, queue_offset + 9))
    if before is None and queue_offset >= queue.max_offset:
        before = _confirmed_entry(
            reader, queue, range(queue.max_offset - 1, queue.max_offset - 9, -1)
        )
    if before is not None and before.physical_offset >= start:
        start = before.physical_offset
    if after is not None:
        stop = after.physical_offset
    return start, stop


def _confirmed_entry(
    reader: StoreReader, queue: ConsumeQueue, queue_offsets: range
) -> QueueEntry | None:
    """Return the first of some entries that its record confirms."""
    for queue_offset in queue_offsets:
        entry = queue.entry(queue_offset) if queue_offset >= 0 else None
        name = queue.directory.parent.name, int(queue.directory.name)
        record = None if entry is None else reader.log.record_of(entry, name, queue_offset)
        if entry is not None and record is not None and record.total_size == entry.store_size:
            return entry
    return None
