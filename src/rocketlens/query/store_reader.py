"""The shared state of look-ups in a store directory: its open files, and cached findings."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.errors import RecordError, WrongUse
from rocketlens.formats.commitlog_record import SIZE_AND_MAGIC, Reason, Record
from rocketlens.model.answer import Coverage, SourceKind, SourceState, failure
from rocketlens.query.static_topics import StaticTopics
from rocketlens.query.store_topics import Topics
from rocketlens.query.tiered import TieredLogs
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.config_tables import OFFSETS_FILE, files_of_table
from rocketlens.store.read.index.index_files import CorruptIndexFile, IndexFiles, IndexFileState
from rocketlens.store.read.index.tail import Tail
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.log_evidence import (
    GroupAhead,
    GroupEvidence,
    LogEvidence,
    LostEnd,
    first_time,
    lost_begin,
)
from rocketlens.store.read.log.scan import Damage, RecordStarts
from rocketlens.store.read.rocks import queues_in
from rocketlens.store.read.tap_note import TapNote, read_tap_note

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
INDEX: Final = "index"
_NO_RECORD: Final = bytes(SIZE_AND_MAGIC.size)
_REOPEN_ENTRIES: Final = 2_000_000
"""Tail entries above which the reader checks if the broker has indexed them."""


OnProgress = Callable[[int, int, int], bool]
"""Called with bytes read, bytes to read and messages read; returns False to stop."""


class StoreReader:
    """The files of a store directory, opened on first use. Never locks or writes."""

    def __init__(
        self,
        store: Path | StoreLayout,
        *,
        max_topic_scan_bytes: int | None = limits.MAX_TOPIC_SCAN_BYTES,
        before_long_scan: Callable[[int], None] = lambda _: None,
        log_name: str = COMMIT_LOG,
    ) -> None:
        """List the commit log; ``log_name`` is its name in coverage. For the other options see
        :func:`rocketlens.open_store`.

        :raises NotAStore: if there is no commit log.
        """
        layout = store if isinstance(store, StoreLayout) else StoreLayout.of(store)
        self.layout = layout
        self.path = layout.root
        self.log_name: Final = log_name
        self.is_log_of_queue: Final = layout.is_log_of_queue
        self.written_end = 0
        """A lower bound for the end of the log, taken from another file."""
        self.log = CommitLog.of(layout)
        self.queues = queues_in(layout.consume_queue)
        self.starts = RecordStarts(self.log, self.is_indexed, self._start_by_index)
        self.static_topics: Final = StaticTopics(layout.root)
        self._topic_options = max_topic_scan_bytes, before_long_scan
        self.topics = Topics(self, *self._topic_options)
        self._index: IndexFiles | None = None
        self._tail: Tail | None = None
        self._reopen_above = _REOPEN_ENTRIES
        self._coverage: tuple[tuple[object, ...], tuple[Coverage, ...]] | None = None
        self._covered_to: int | None = None
        self._with_log: tuple[tuple[object, ...], tuple[Coverage, ...]] | None = None
        self._log_version = self.log.version
        self._evidence = LogEvidence(layout, self.log, self.queues)
        self._lost_end: tuple[LostEnd | None] | None = None
        self._groups = GroupEvidence(layout, self.log, self.queues)
        self._ahead: list[GroupAhead] | None = None
        self._lost_begin: tuple[int, str | None] | None = None
        self._is_tail_read = False
        self._small_files = fs.FileWatch(
            (
                *(layout.checkpoint, layout.synced, layout.tap),
                *(layout.compacted, layout.batch_queues),
                *files_of_table(layout.root, OFFSETS_FILE),
            )
        )
        self._are_files_seen = False
        self._tap: tuple[TapNote | None] | None = None
        self._has_compacted: bool | None = None
        self._batch_topics: set[str] | None = None
        self.is_closed = False
        self.tiered: Final = TieredLogs(
            self, lambda layout, name: StoreReader(layout, log_name=name)
        )
        """Messages that are only in tiered storage."""
        self.on_progress: OnProgress | None = None
        """Called while messages are read from the log."""

    def refresh(self) -> None:
        """Detect changes on disk. Each query calls this first.

        If the log was replaced, cached findings are discarded.
        """
        self.log.refresh_if_changed()
        self.queues.invalidate()
        self.static_topics.refresh()
        self._is_tail_read = self._are_files_seen = False
        is_listed_again = False
        if self.queues.unlisted is not None:
            self.queues.topics()
            is_listed_again = self.queues.unlisted is None
        if is_listed_again or self.log.version != self._log_version:
            self._discard_findings()

    def _check_small_files(self) -> None:
        """Discard findings from small files that changed; checked once per query."""
        if self._are_files_seen:
            return
        self._are_files_seen = True
        if self._small_files.has_changed():
            self._lost_end = self._ahead = self._tap = None
            self._has_compacted = self._batch_topics = None
        else:
            if not self._evidence.still_holds():
                self._lost_end = None
            if not self._groups.still_holds():
                self._ahead = None

    def _discard_findings(self) -> None:
        """Discard all findings: the log was replaced."""
        self._log_version = self.log.version
        if self._index is not None:
            self._index.close()
        self._index = self._tail = self._coverage = None
        self._lost_end = self._ahead = None
        self.starts = RecordStarts(self.log, self.is_indexed, self._start_by_index)
        self.topics = Topics(self, *self._topic_options)

    @property
    def index(self) -> IndexFiles:
        """The index files, opened and checked on first use."""
        if self._index is None:
            self._index = IndexFiles(self.path / INDEX, self.log)
        return self._index

    @property
    def tail(self) -> Tail:
        """The in-memory index of the log that no index file covers, updated once per query."""
        is_same_log = self.log.version == self._log_version
        if self._tail is not None and self._is_tail_read and is_same_log:
            return self._tail
        if self._tail is not None and self._tail.is_stale():
            self._discard_findings()
        self._is_tail_read = True
        if self._tail is None:
            self._tail = Tail(self.log, self.is_indexed)
            self._tail.cover(self.index.uncovered())
        self._tail.read_new()
        if self.log.version != self._log_version:
            self._discard_findings()
            return self.tail
        if self._tail.entry_count > self._reopen_above:
            self._reopen_above = 2 * self._tail.entry_count
            if self.index.has_grown():
                self._index = self._tail = None
                return self.tail
        return self._tail

    @property
    def tail_end(self) -> int | None:
        """The end of the log when the tail was last updated, or None."""
        return None if self._tail is None else self._tail.end_offset

    def reject_index_file(self, rejected: CorruptIndexFile) -> None:
        """Stop using an index file; the tail covers its part of the log."""
        self.index.reject(rejected.file, rejected.error)
        self._tail = None

    def least_end(self, known_end: int | None = None) -> int:
        """Return a current lower bound of the log's end. A query must read up to it.

        Independent of other readers: checks the record at ``known_end``, the end according to the
        caller, or lists the segments without it. O(1), or O(segments).
        """
        return max(self._end_of_log(known_end), self.written_end)

    def _end_of_log(self, known_end: int | None) -> int:
        log = self.log
        if known_end is None:
            log.refresh()
            # Brokers create the next segment in advance, so the last one can be empty.
            ends = (self._end_of_record(segment.base_offset) for segment in reversed(log.segments))
            return next(filter(None, ends), log.min_offset)
        if self._is_unwritten(known_end):
            return known_end
        try:
            record = log.record_at(known_end, check_crc=False)
        except RecordError as error:
            segment = log.segment_of(known_end) if error.reason == Reason.BLANK else None
            after = None if segment is None else self._end_of_record(segment.end_offset)
            return known_end if after is None else after
        return known_end + record.total_size

    def queues_end(self) -> int:
        """Return the end of the last message that a consume queue refers to.

        O(queues). Queues that cannot be read are ignored.
        """
        end = self.log.min_offset
        for _, queue in self.queues.readable():
            with suppress(OSError, RecordError):
                entry = queue.last_entry()
                if entry is not None and entry.physical_offset >= end:
                    record = self.log.record_at(entry.physical_offset, check_crc=False)
                    end = entry.physical_offset + record.total_size
        return end

    def _is_unwritten(self, physical_offset: int) -> bool:
        """Return whether the first bytes are all zero: the usual case, in 2 µs."""
        return self.log.bytes_at(physical_offset, SIZE_AND_MAGIC.size) == _NO_RECORD

    def _end_of_record(self, physical_offset: int) -> int | None:
        try:
            record = self.log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return None
        return physical_offset + record.total_size

    def key_coverage(self, tail: Tail, log_end_offset: int) -> tuple[Coverage, ...]:
        """Return the coverage of a look-up by key: index files, tail and log.

        ``tail`` was searched; ``log_end_offset`` is the end of the log when the question was asked.
        Cached, because a broker can have thousands of files.
        """
        missing_parts = self.missing_parts()
        state = (tail, tail.version, self.index.version, *missing_parts)
        if self._coverage is None or self._coverage[0] != state:
            files = tuple(_file_coverage(state) for state in self.index.states)
            searched = (*filter(None, files), *_tail_coverage(tail, self.log_name))
            # The tail must cover all that index files do not.
            missing = set(self.index.uncovered()) - set(tail.ranges)
            failures = [*missing_parts, *map(str, tail.damage), *unfinished(tail.unfinished_at)]
            # Index files that start after a gap do not reveal it.
            failures = [*dict.fromkeys([*failures, *self._tap_gaps()])]
            self._coverage = state, (*searched, *self.log_failures(failures))
            self._covered_to = min(missing)[0] if missing else tail.end_offset
            self._with_log = None
        ends = self._covered_to, log_end_offset, self.log.min_offset
        if self._with_log is None or self._with_log[0] != ends:
            log = self.log_coverage(self._covered_to, log_end_offset)
            self._with_log = ends, (*self._coverage[1], log)
        return self._with_log[1]

    def log_coverage(
        self,
        end_offset: int | None,
        log_end_offset: int,
        *,
        begin_offset: int | None = None,
        newest_ms: int = 0,
        detail: str | None = None,
    ) -> Coverage:
        """Return the coverage of the log, from ``begin_offset`` (default: its start).

        It fails if ``end_offset``, up to which the log was read, is below ``log_end_offset``.
        ``detail`` is a remark on a successful search.
        """
        error = None
        if end_offset is None or end_offset < log_end_offset:
            come_to = self.log.min_offset if end_offset is None else end_offset
            error = f"physical offsets {come_to} to {log_end_offset} were not read"
        return Coverage(
            self.log_name,
            SourceKind.COMMIT_LOG,
            SourceState.SEARCHED,
            newest_ms or None,
            error,
            self.log.min_offset if begin_offset is None else begin_offset,
            end_offset,
            max(log_end_offset, end_offset or 0),
            note=None if error else detail,
        )

    def record_coverage(
        self, physical_offset: int, size: int = 1, *, newest_ms: int = 0, detail: str | None = None
    ) -> Coverage:
        """Return the coverage of a query that needs a single record of the log."""
        end = physical_offset + size
        return self.log_coverage(
            end, end, begin_offset=physical_offset, newest_ms=newest_ms, detail=detail
        )

    def unlisted(self) -> list[str]:
        """Return why the segments of the log, or the topics, cannot be listed; usually empty."""
        return [text for text in (self.log.unlisted, self.queues.unlisted) if text is not None]

    def lost_end(self) -> LostEnd | None:
        """Return evidence in other files of messages after the end of the log; once per query."""
        self._check_small_files()
        if self._lost_end is None:
            self._lost_end = (self._evidence.lost_end(),)
        return self._lost_end[0]

    def missing_parts(self) -> list[str]:
        """Return why a search to the end of the log is incomplete; includes `unlisted`."""
        lost = self.lost_end()
        return self.unlisted() if lost is None else [*self.unlisted(), lost.text]

    def lost_of_queues(self, takes_topic: Callable[[str], bool]) -> list[str]:
        """Return messages that groups consumed but the store lacks; checked once per query."""
        self._check_small_files()
        if self._ahead is None:
            self._ahead = self._groups.ahead()
        if not self._ahead:
            return []
        # In static topics, the offsets of groups can be those of logical queues.
        ahead = [each for each in self._ahead if each.queue.topic not in self.static_topics]
        return [str(each) for each in ahead if takes_topic(each.queue.topic)]

    def batch_topics(self) -> set[str]:
        """Return the topics with batch queues; cached until their directory changes."""
        self._check_small_files()
        if self._batch_topics is None or self.queues.unlisted is not None:
            self._batch_topics = self.queues.batch_topics()
        return self._batch_topics

    def missing_older(self, begin: int | None) -> tuple[Coverage, ...]:
        """Return failures for messages that are in the store but not in the log, or lost.

        ``begin`` is the first store time of the search, None for all messages.
        """
        errors = [*filter(None, (self._compacted(), self._earlier_logs(), self.lost_before_log()))]
        if not errors or (begin is not None and begin >= first_time(self.log)):
            return ()
        return tuple(self.log_failures(errors))

    def _earlier_logs(self) -> str | None:
        note = self._tap_note()
        if note is None or not note.replaced:
            return None
        copies = " and ".join(str(self.path.parent / name) for name in note.replaced)
        return f"the broker had another log before this one: search its copy in {copies}, too"

    def _tap_note(self) -> TapNote | None:
        self._check_small_files()
        if self._tap is None:
            try:
                self._tap = (read_tap_note(self.layout),)
            except OSError:
                return None
        return self._tap[0]

    def _tap_gaps(self) -> Iterator[str]:
        """Yield the gaps of a tap's copy that are not deleted."""
        note = self._tap_note()
        for gap in () if note is None else note.gaps:
            if gap.stop > self.log.min_offset:
                yield str(Damage(gap.start, gap.stop, str(gap)))

    def lost_before_log(self) -> str | None:
        """Return that messages before the log are lost, in one line, or None."""
        least = self.log.min_offset
        if self._lost_begin is None or self._lost_begin[0] != least:
            self._lost_begin = least, lost_begin(self.layout, self.log, self.queues)
        return self._lost_begin[1]

    def _compacted(self) -> str | None:
        if self.log.min_offset == 0:
            return None
        self._check_small_files()
        if self._has_compacted is None:
            self._has_compacted = self.layout.compacted.exists()
        if not self._has_compacted:
            return None
        return (
            f"the log begins at physical offset {self.log.min_offset}; older messages are of "
            f"compacted topics ({self.layout.compacted}/TOPIC/QUEUE), not searched here: open the "
            "log of a queue by itself"
        )

    def log_failures(self, errors: Iterable[str]) -> Iterator[Coverage]:
        """Return unreadable ranges of the log as coverage; the first 1,000 one by one."""
        unnamed = 0
        for count, error in enumerate(errors):
            if count < limits.MAX_DAMAGE_REPORTS:
                yield self._failed(error)
            else:
                unnamed += 1
        if unnamed:
            yield self._failed(
                f"{unnamed} more ranges cannot be read: see `rocketlens index verify`"
            )

    def _failed(self, error: str) -> Coverage:
        return failure(self.log_name, SourceKind.COMMIT_LOG, error)

    def is_indexed(self, record: Record) -> bool | None:
        """Return whether a queue or index file refers to a record; None if unknown."""
        by_queue = self._is_queued(record)
        if by_queue:
            return True
        by_index = self.index.has_entry_of(record)
        return by_queue if by_index is None else by_index

    def _is_queued(self, record: Record) -> bool | None:
        """Return whether the record's consume queue refers to it.

        False only if the entry with its offset refers to another record of that offset, or to one
        that would contain this record. An entry without a valid record proves nothing.
        """
        if record.queue_id < 0 or record.queue_offset < 0:
            return None
        try:
            queue = self.queues.queue(record.topic, record.queue_id)
            entry = queue.entry(record.queue_offset) if queue else None
        except OSError:
            return None
        if entry is None:
            return None
        offset = record.physical_offset
        if (entry.physical_offset, entry.store_size) == (offset, record.total_size):
            return True
        if entry.physical_offset < offset < entry.physical_offset + entry.store_size:
            return False
        try:
            other = self.log.record_at(entry.physical_offset, check_crc=False)
        except RecordError:
            return None
        queue_position = (record.topic, record.queue_id, record.queue_offset)
        return (
            False if (other.topic, other.queue_id, other.queue_offset) == queue_position else None
        )

    def is_record_start(self, record: Record) -> bool:
        """Return whether a record really starts at its physical offset.

        Checks its consume queue, then the index, then walks from the nearest known start.
        """
        return bool(self._is_queued(record)) or self.starts.begins_at(record.physical_offset)

    def approach_start(self, record: Record) -> Iterator[None]:
        """Do the walk of :meth:`is_record_start` in steps of some milliseconds."""
        if not self._is_queued(record):
            yield from self.starts.approach(record.physical_offset)

    def _start_by_index(self, physical_offset: int) -> int:
        """Return the nearest offset, at or before this one, that an index file has; else 0."""
        for file in reversed(self.index.sound):
            if file.header.begin_offset <= physical_offset:
                start = file.known_start_before(physical_offset)
                if start is not None and self._end_of_record(start) is not None:
                    return start
        return 0

    def check_open(self) -> None:
        """:raises WrongUse: if the reader is closed."""
        if self.is_closed:
            raise WrongUse(f"this store is closed: open_store({str(self.path)!r}) opens it again")

    def close(self) -> None:
        self.is_closed = True
        if self._index:
            self._index.close()
        self.tiered.close()
        self.queues.close()
        self.log.close()


def _file_coverage(state: IndexFileState) -> Coverage | None:
    name = INDEX if state.path.name == INDEX else f"{INDEX}/{state.path.name}"
    if state.file is None:
        return Coverage(name, SourceKind.INDEX_FILE, SourceState.DAMAGED, None, state.error)
    if not state.file.last_entry:
        return None
    header = state.file.header
    return Coverage(
        name,
        SourceKind.INDEX_FILE,
        SourceState.SEARCHED,
        header.end_timestamp_ms,
        None,
        header.begin_offset,
        # The last entry is for a record that starts there.
        header.end_offset + 1,
    )


def _tail_coverage(tail: Tail, log_name: str) -> Iterator[Coverage]:
    kind, state = SourceKind.TAIL, SourceState.SEARCHED
    closed = [(start, stop) for start, stop in tail.ranges if stop is not None]
    if closed:
        name = f"{log_name}: {len(closed)} ranges without index entries"
        bounds = min(closed)[0], max(stop for _, stop in closed)
        yield Coverage(name, kind, state, None, None, *bounds)
    for start, stop in tail.ranges:
        if stop is None:
            name = f"{log_name}: from physical offset {start} to its end"
            newest_ms = tail.last_timestamp_ms or None
            yield Coverage(name, kind, state, newest_ms, None, start, tail.end_offset)
    yield from torn_coverage(tail.torn_at)


def torn_coverage(torn_at: int | None) -> Iterator[Coverage]:
    """Return the coverage of a torn record at the end of the log: only that record is lost."""
    if torn_at is not None:
        error = f"torn tail: the bytes from physical offset {torn_at} are not a whole record"
        yield Coverage(COMMIT_LOG, SourceKind.COMMIT_LOG, SourceState.DAMAGED, None, error)


def unfinished(physical_offset: int | None) -> list[str]:
    """Describe the last record if it may be incomplete."""
    if physical_offset is None:
        return []
    return [f"the record at physical offset {physical_offset} may be incomplete"]
