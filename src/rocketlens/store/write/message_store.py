"""A store that is written: what a broker opens, appends to, reads queues of, and closes.

Opening takes the lock before it looks at anything, so a second opener is refused with nothing
touched. Then the log and the queues are recovered, and ``abort`` says that the store is in use.

Three threads run beside the caller's: one makes the log durable, one the queues and then the
checkpoint, and one builds index files. All other calls belong to one thread, the broker's loop.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from rocketlens.errors import BadInput, NotAStore, StoreFull
from rocketlens.formats.commitlog_record import HEAD, STORE_TIMESTAMP
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.model.message import Host
from rocketlens.model.message_id import pack_address
from rocketlens.model.rocketmq import SYS_FLAG_BORN_HOST_V6, parse_delay_levels
from rocketlens.store import fs
from rocketlens.store.disk import Disk, restore_directories
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from rocketlens.store.read.commitlog import CommitLog, OpenLog
from rocketlens.store.read.deleted import Mark
from rocketlens.store.read.state import StoreState, read_state, read_synced
from rocketlens.store.write import cleaner
from rocketlens.store.write.append import DISK_FULL, Appended, Appender, Limits
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.deleted_topics import DeletedTopics
from rocketlens.store.write.durability import Durability
from rocketlens.store.write.flush import CHECKPOINT_THREAD, FLUSH_THREAD, FlushThread, Waiter
from rocketlens.store.write.index_build import IndexBuilder
from rocketlens.store.write.index_thread import STEP_BYTES, IndexThread
from rocketlens.store.write.queue_append import QueueWriter
from rocketlens.store.write.queue_files import QueueFiles, check_file_sizes, list_queue_files
from rocketlens.store.write.recovery import Recovered, Recovery

_log: Final = logging.getLogger(__name__)

_CLEANED_AT_ONCE: Final = 50
"""Queues whose files are looked at in one piece of cleaning: some milliseconds."""
_CLOSE_SECONDS: Final = 2.0
"""How long closing a store goes on with its index: who stops a broker waits for 5 s in all."""


def system_clock() -> int:
    """Give the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a store is opened with, besides RocketMQ's configuration.

    ``store_host``: the broker's address, written into each record. ``with_tag_index``: index
    tags, as RocketMQ 5.5 does. ``build_index`` False leaves index files to another builder.
    ``threads`` False starts no thread: the caller calls ``flush`` and ``build_index``.
    """

    store_host: Host
    with_tag_index: bool = True
    build_index: bool = True
    threads: bool = True


class MessageStore:
    """One store directory, open for writing. A context manager.

    ``append`` and ``append_batch`` are those of :class:`rocketlens.store.write.append.Appender`,
    ``flush_log`` and ``flush`` those of :class:`rocketlens.store.write.durability.Durability`.
    ``recovered`` says what opening found; ``config`` has the file sizes that the store really has.
    """

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        options: StoreOptions,
        *,
        disk: Disk | None = None,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        """Open the store, or make one.

        :raises StoreLocked: at once, when another process or this one has it.
        :raises BadInput: when its files have sizes that are not the configuration's.
        :raises OSError: when it cannot be read or written.
        """
        self.layout = StoreLayout(path)
        self.config = config
        self.options = options
        self._disk = disk or Disk()
        self._clock = clock
        self._disk.make_directory(path)
        self._lock = StoreLock(path)
        self._to_close: list[Appender | Durability | CommitLog] = []
        try:
            self._open()
        except BaseException:
            for opened in self._to_close:
                opened.close()
            self._lock.release()
            raise

    def _open(self) -> None:
        layout, disk, config = self.layout, self._disk, self.config
        fs.make_directories(layout.commit_log)
        fs.make_directories(layout.own)
        restore_directories(layout.root)
        log = self._existing_log()
        state = read_state(layout)
        queue_files = self._existing_queue_files(log, state)
        host = self.options.store_host
        appender = Appender(
            layout,
            disk,
            clock=self._clock,
            store_host=pack_address(host.address) + host.port.to_bytes(4, "big"),
            bounds=Limits(config.maxMessageSize, config.autoMessageVersionOnTopicLen),
            delays_ms=parse_delay_levels(config.messageDelayLevel),
            segment_bytes=config.mappedFileSizeCommitLog,
            queue_file_bytes=config.queue_file_bytes,
            open_queues=fs.most_open_queues(),
        )
        self.appender = appender
        self._to_close.append(appender)
        self.append, self.append_batch = appender.append, appender.append_batch
        self.deleted = DeletedTopics(layout, disk, appender)
        was_closed = fs.file_size(layout.abort) is None
        first = self._mark_open(was_closed=was_closed)
        self.recovered = Recovered()
        if log is not None:
            self._recover(log, queue_files, state, was_closed=was_closed)
        else:
            self._forget_queues(queue_files)
        self._tell()
        appender.last = self.recovered.last
        first += self.recovered.later
        full = appender.start(self.recovered.base_offset, self.recovered.end_offset, first)
        if full is not None:
            if log is None:
                raise full
            _log.warning("%s: nothing is stored before there is room: %s", layout.root, full)
        self._index = IndexThread(
            layout, self._new_builder, lambda: self.group_commit.flushed_offset
        )
        self._cleaned_below = self._cleaning_below = -1
        self._uncleaned: list[QueueWriter] = []
        self._log = _opened(layout.commit_log)
        self._is_closed = False
        self._durability = Durability(
            layout,
            disk,
            config,
            appender,
            end_offset=self.recovered.end_offset,
            state_offset=state.queues_offset if state and self.recovered.is_ours else -1,
            on_saved=lambda: self._lock.mark(disk),
        )
        self._to_close += [self._log, self._durability]
        self.group_commit = self._durability.group_commit
        self.flush_log, self.flush = self._durability.flush_log, self._durability.flush
        if self.options.threads and self.recovered.is_ours:
            # The state that is there goes on being true; the checkpoint thread writes the next.
            self.flush_log()
        else:
            self.flush()
        if self.group_commit.failure is not None:
            raise self.group_commit.failure
        self._start_threads()

    def _mark_open(self, *, was_closed: bool) -> list[Callable[[], None]]:
        """Make ``abort``; returns what is left to do when the disk is full."""
        content = str(fs.process_number()).encode()

        def mark() -> None:
            self._disk.write_durably(self.layout.abort, content)

        try:
            mark()
        except OSError as error:
            if error.errno not in fs.DISK_FULL_ERRORS:
                raise
            return [mark] if was_closed else []
        return []

    def _existing_log(self) -> OpenLog | None:
        """Open the log for recovery; None when there is none yet.

        :raises BadInput: when its segments have another size than the configuration says.
        :raises OSError: when it cannot be read now.
        """
        try:
            log = OpenLog(self.layout.commit_log)
        except NotAStore:
            return None
        size = self.config.mappedFileSizeCommitLog
        for segment in log.segments:
            if segment.size != size or segment.base_offset % size:
                log.close()
                raise BadInput(
                    f"{segment.path} has {segment.size} bytes: mappedFileSizeCommitLog must be "
                    f"the size that the store was made with, not {size}"
                )
        return log

    def _existing_queue_files(self, log: OpenLog | None, state: StoreState | None) -> QueueFiles:
        """List the queue files.

        :raises BadInput: when they have another size than the configuration says.
        :raises OSError: when they cannot be read now.
        """
        files = list_queue_files(self.layout.consume_queue)
        if log is None:
            return files
        try:
            is_of_log = state is not None and state.is_of(log)
            known_bytes = state.queue_file_bytes if state is not None and is_of_log else None
            check_file_sizes(files, self.config.queue_file_bytes, known_bytes)
        except BaseException:
            log.close()
            raise
        return files

    def _recover(
        self, log: OpenLog, files: QueueFiles, state: StoreState | None, *, was_closed: bool
    ) -> None:
        """Bring log and queues into a state that can be appended to."""
        self.deleted.keep_those_of(log)
        recovery = Recovery(
            self.layout, self._disk, log, self.appender, files=files, deleted=self.deleted.ends
        )
        synced = read_synced(self.layout)
        self.recovered = recovery.run(
            state, synced, is_marked=self._lock.is_marked(), was_closed=was_closed
        )
        log.close()
        for topic, last in self.recovered.deleted.items():
            end_offset = last.physical_offset + last.store_size
            mark = Mark(end_offset, last.physical_offset, last.store_timestamp_ms)
            self.deleted.put(topic, mark)
        if self.recovered.deleted:
            self._save_deleted()
        end_offset, notes = self.recovered.end_offset, self.recovered.notes
        if synced is not None and synced.offset > end_offset and not notes:
            notes.append(
                "the log is not the one that was here before: it ends at physical offset "
                f"{end_offset}, and had been synced up to {synced.offset}"
            )

    def _save_deleted(self) -> None:
        """Write what was found to be deleted; on a full disk that is done later."""
        self.deleted.is_changed = False
        try:
            self.deleted.snapshot()()
        except OSError as error:
            if error.errno not in fs.DISK_FULL_ERRORS:
                raise
            self.deleted.is_changed = True

    def _forget_queues(self, files: QueueFiles) -> None:
        """Delete the queues of a log that is gone, as RocketMQ does: a new one begins at 0.

        The index builder finds out by itself that its files are of another log.
        """
        layout, is_one = self.layout, False
        for topic, queue_id in files:
            directory = layout.consume_queue / topic / str(queue_id)
            for entry in list(fs.entries(directory)):
                self._disk.remove_file(Path(entry.path))
                is_one = True
            self._disk.sync_directory(directory)
        if is_one:
            self.recovered.notes.append(
                "the log is not the one that was here before: it is gone, and its queues with it"
            )

    def _tell(self) -> None:
        """Log what a person should know of what opening found."""
        found, root = self.recovered, self.layout.root
        for note in found.notes:
            _log.warning("%s: %s", root, note)
        if found.damage:
            count, first = len(found.damage), found.damage[0]
            _log.warning("%s: %d damaged places in the log stay, first %s", root, count, first)
        if found.cut is not None:
            _log.warning("%s: cut off the log's end: %s", root, found.cut)

    def _start_threads(self) -> None:
        self._flusher: FlushThread | None = None
        self._saver: FlushThread | None = None
        if self.options.build_index and self.config.messageIndexEnable:
            self._index.open()
        if self.options.threads:
            self._flusher = FlushThread(
                FLUSH_THREAD, self.flush_log, self.config.flushIntervalCommitLog / 1000
            )
            self._saver = FlushThread(
                CHECKPOINT_THREAD, self.flush, self.config.flushIntervalConsumeQueue / 1000
            )
            self._index.start()

    def _new_builder(self) -> IndexBuilder:
        return IndexBuilder(
            self.layout,
            self.config.geometry,
            with_tags=self.options.with_tag_index,
            disk=self._disk,
            clock=self._clock,
            log_end=self.group_commit.flushed_offset,
        )

    @property
    def end_offset(self) -> int:
        """The physical offset behind the last record."""
        last = self.appender.last
        return self.recovered.end_offset if last is None else _end_of(last)

    def when_durable(self, end_offset: int, waiter: Waiter) -> None:
        """Have ``waiter`` called, by another thread, when the log is durable below ``end_offset``.

        A round of syncing begins at once, or after the one that runs; it serves everyone who
        waits when it begins.
        """
        self.group_commit.wait_for(end_offset, waiter)
        if self._flusher is not None and self.group_commit.has_waiting:
            self._flusher.ask()

    def build_index(self, *, at_most_bytes: int = STEP_BYTES) -> bool:
        """Index what is durable, up to a number of bytes; True when all of it is, and synced.

        False when there is more, when the disk is full or a file cannot be opened now, or when
        another builder does it.
        """
        return self._index.build(at_most_bytes)

    def take_index_over(self) -> None:
        """Have :meth:`close` index what the builder of another process left, if that has ended.

        A builder that still runs goes on without this store, which then is not closed cleanly.
        """
        if self.config.messageIndexEnable:
            self._index.take_over()

    @property
    def indexed_offset(self) -> int:
        """The physical offset up to which index files are built and synced."""
        return self._index.offset

    @property
    def min_offset(self) -> int:
        """The physical offset of the first byte that the log still has."""
        return self._log.min_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Give the bytes of a record; None when the log does not have them all.

        ``size``: as its consume queue says, or 0 for what its first four bytes say.
        """
        if not self.min_offset <= physical_offset < self.end_offset:
            return None
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            self._log.refresh()
            segment = self._log.segment_of(physical_offset)
        if segment is None:
            return None
        view = self._log.map(segment).view
        start = physical_offset - segment.base_offset
        if not size:
            size = int.from_bytes(view[start : start + 4], "big")
        stop = start + size
        if size <= 0 or stop > len(view) or physical_offset + size > self.end_offset:
            return None
        return view[start:stop]

    def queue(self, topic: str, queue_id: int) -> QueueWriter | None:
        """Give a queue that has, or had, messages."""
        return self.appender.queues.get((topic, queue_id))

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Give the queue offset that the next message gets."""
        queue = self.queue(topic, queue_id)
        return queue.next_offset if queue else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Give the queue offset of the first message that the log still has.

        O(log entries) after the cleaner ran, else O(1).
        """
        queue = self.queue(topic, queue_id)
        if queue is None:
            return 0
        if queue.lowest[0] == self.min_offset:
            return queue.lowest[1]
        files = queue.files()
        low = min(files[0][0] // ENTRY_BYTES if files else queue.next_offset, queue.next_offset)
        high = queue.next_offset
        first = queue.entry(low)
        if first is not None and not first.is_filler and first[0] >= self.min_offset:
            # A damaged entry behind it must not be taken for one whose message is gone.
            high = low
        while low < high:
            middle = (low + high) // 2
            entry = queue.entry(middle)
            if entry is None or entry.is_filler or entry.physical_offset < self.min_offset:
                low = middle + 1
            else:
                high = middle
        queue.lowest = self.min_offset, low
        return low

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """Give the first queue offset stored at or after a time; the max offset when none was.

        ``upper``: the last one stored at or before it, instead. As RocketMQ 5; O(log entries).
        """
        first = low = self.min_queue_offset(topic, queue_id)
        high = self.max_queue_offset(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            stored_ms = self._store_time(topic, queue_id, middle)
            if stored_ms < timestamp_ms or (upper and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(low - 1, first) if upper else low

    def _store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        queue = self.queue(topic, queue_id)
        entry = queue.entry(queue_offset) if queue else None
        if entry is None or entry.is_filler:
            return 0
        record = self.record(entry.physical_offset, entry.store_size)
        return 0 if record is None else store_timestamp_of(record)

    def clean(self, *, may_force: bool = True) -> list[Path]:
        """Delete what is expired, by age and by how full the disk is; gives the segments deleted.

        Sets and lifts the refusal of messages for a disk that is too full. Without ``may_force``
        nothing goes only because the disk is full. Of many queues the files go by and by:
        :meth:`clean_queues` goes on.
        """
        now_ms = self._clock()
        used_ratio = self._disk.used_ratio(self.layout.root)
        self._log.refresh()
        ages = [
            cleaner.SegmentAge(one.path, one.base_offset, int(one.path.stat().st_mtime * 1000))
            for one in self._log.segments
        ]
        plan = cleaner.plan(self.config, ages, now_ms, used_ratio, may_force=may_force)
        if plan.is_full and self.appender.refusal is None:
            self.appender.refusal = StoreFull(f"{DISK_FULL} [{used_ratio:.2f} used]")
        elif not plan.is_full and isinstance(self.appender.refusal, StoreFull):
            self.appender.refusal = None
        if plan.segments:
            end_offset = plan.segments[-1].base_offset + self.config.mappedFileSizeCommitLog
            if self._durability.state_offset <= end_offset:
                self.flush()  # for what is durable is known by a record, which must stay
                if self._durability.state_offset <= end_offset:
                    _log.warning("nothing is deleted before the checkpoint could be written")
                    return []
            if plan.forced_count:
                topics = cleaner.topics_below(
                    list(self.appender.queues.values()),
                    lambda queue: self.min_queue_offset(queue.topic, queue.queue_id),
                    end_offset,
                )
                _log.warning("%s", cleaner.describe_forced(plan, now_ms, used_ratio, topics))
            cleaner.remove(plan, self._disk, self.layout.commit_log)
            self._log.refresh()
        self.clean_queues()
        return [segment.path for segment in plan.segments]

    def clean_queues(self) -> bool:
        """Delete files of some queues, and index files, whose messages are gone.

        Says whether there are more queues to look at; so it holds up the caller for milliseconds.
        """
        min_offset = self.min_offset
        if min_offset == self._cleaned_below:
            return False
        if min_offset != self._cleaning_below:
            self._cleaning_below = min_offset
            self._uncleaned = list(self.appender.queues.values())
        some = self._uncleaned[-_CLEANED_AT_ONCE:]
        del self._uncleaned[-_CLEANED_AT_ONCE:]
        try:
            for queue in some:
                if not queue.is_removed:
                    self._clean_queue(queue, min_offset)
        except OSError:
            self._cleaning_below = -1  # all of them again
            raise
        if self._uncleaned:
            return True
        # The builder may be in the middle of a step: the next round will find it between two.
        if self._index.forget_below(min_offset):
            self._cleaned_below = min_offset
        return False

    def _clean_queue(self, queue: QueueWriter, min_offset: int) -> None:
        for path in cleaner.expired_queue_files(queue.files(), queue.file_bytes, min_offset):
            self._disk.remove_file(path)
            queue.first_offset += queue.file_bytes // ENTRY_BYTES

    def close(self, *, at_most_seconds: float = _CLOSE_SECONDS) -> None:
        """Make everything durable, index the rest, and give the store up.

        ``abort`` is removed only when queues and index files are complete; otherwise whoever opens
        the store next does what a killed broker's store needs. Indexing ends after
        ``at_most_seconds``, and is gone on with by the next start.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_threads()
        self.flush_log()
        if self._index.is_wanted:
            self._index.build_until(time.monotonic() + at_most_seconds)
        self.flush()
        is_complete = self._is_complete()
        self._index.close()
        if is_complete:
            self._disk.remove_file(self.layout.abort)
            self._disk.sync_directory(self.layout.root)
        self.abandon()

    def _is_complete(self) -> bool:
        """Say whether a real broker may take the store for one that was stopped cleanly."""
        return (
            self.group_commit.failure is None
            and self._durability.saved_offset == self.end_offset
            and (not self.config.messageIndexEnable or self.indexed_offset >= self.end_offset)
        )

    def _stop_threads(self) -> None:
        for flusher in (self._flusher, self._saver):
            if flusher is not None:
                flusher.stop()
        self._index.stop()

    def abandon(self) -> None:
        """Let go of everything as if this process were killed; for tests, and after a failure."""
        self._is_closed = True
        self._stop_threads()
        self._index.close(abandon=True)
        for opened in self._to_close:
            opened.close()
        self._lock.release()

    def __enter__(self) -> Self:
        """Give the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _opened(directory: Path) -> CommitLog:
    """Open the log for reading.

    :raises OSError: when it cannot be now.
    """
    try:
        return CommitLog(directory)
    except NotAStore as error:
        raise error.__cause__ or error from None


def _end_of(record: Appended) -> int:
    return record.physical_offset + record.store_size


def store_timestamp_of(record: memoryview) -> int:
    """Read the store timestamp of a record's bytes."""
    is_v6 = record[39] & SYS_FLAG_BORN_HOST_V6
    start = HEAD.size + (20 if is_v6 else 8)
    timestamp_ms: int = STORE_TIMESTAMP.unpack_from(record, start)[0]
    return timestamp_ms
