"""Syncs appended records and queue entries, and stores up to which offset they are durable.

One thread syncs the log, another one the queues and then the checkpoint. Other threads can do the
same (``flush_log``, ``flush``). For the two locks see :mod:`rocketlens.store.write.message_store`.

The checkpoint serves a RocketMQ broker that opens the store after ours was killed. RocketMQ deletes
the unfinished index file and reads the log again from ``min(physic, logics) - 3 s``. So ``logics``
is never later than the end of the last *full* index file: RocketMQ reads the deleted part again.

:class:`GroupCommit` has the waiters, without threads or clock. A sync serves all that waited when
it began. :class:`FlushThread` runs syncs as soon as there is a waiter (``SYNC_FLUSH``), and every
500 ms (``ASYNC_FLUSH``).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Final

from rocketlens.errors import CheckpointError, StoreFailed
from rocketlens.formats import checkpoint
from rocketlens.formats.checkpoint import CHECKPOINT_BYTES, Checkpoint
from rocketlens.store import fs
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import full_index_end
from rocketlens.store.read.note import LogMark
from rocketlens.store.read.state import SYNCED_BYTES, StoreState, Synced, newest_slot
from rocketlens.store.write.append import Appended, Appender, Snapshot
from rocketlens.store.write.config import StoreConfig

_log: Final = logging.getLogger(__name__)
_LOG_WAITS: Final = "the log is not durable yet"
_CHECKPOINT_WAITS: Final = "the checkpoint stays old"
SLOW_SYNC_S: Final = 0.5
"""Duration of a sync of the log that is logged as a warning. RocketMQ: 500 ms, too."""

Waiter = Callable[[StoreFailed | None], None]
"""Called once: with None when the record is durable, or with the reason why it may never be."""

FLUSH_THREAD: Final = "rocketlens-flush"
CHECKPOINT_THREAD: Final = "rocketlens-checkpoint"


class GroupCommit:
    """Waiters for the log to become durable below an offset. Any thread can use it.

    ``flushed_offset``: the log is durable below it.
    """

    def __init__(self, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        self.failure: StoreFailed | None = None
        self._lock = Lock()
        self._waiting: deque[tuple[int, Waiter]] = deque()

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def wait_for(self, end_offset: int, waiter: Waiter) -> None:
        """Call ``waiter`` when the log is durable below ``end_offset``.

        Call it at once if the log is durable already, or can never be. Otherwise the thread that
        ends a round calls it.
        """
        with self._lock:
            if self.failure is None and end_offset > self.flushed_offset:
                self._waiting.append((end_offset, waiter))
                return
        waiter(self.failure)

    def end_round(self, flushed_offset: int) -> None:
        """End a sync that began after everything below ``flushed_offset`` was written.

        After a failed round no waiter is called: durability is lost for good.
        """
        with self._lock:
            if self.failure is not None:
                return
            self.flushed_offset = max(self.flushed_offset, flushed_offset)
            served = [one for one in self._waiting if one[0] <= self.flushed_offset]
            self._waiting = deque(one for one in self._waiting if one[0] > self.flushed_offset)
        for _, waiter in served:
            waiter(None)

    def fail(self, failure: StoreFailed) -> None:
        with self._lock:
            self.failure = self.failure or failure
            served, self._waiting = self._waiting, deque()
        for _, waiter in served:
            waiter(failure)


class FlushThread:
    """Calls ``flush`` when there are waiters, or an interval has passed."""

    def __init__(self, name: str, flush: Callable[[], None], interval_seconds: float) -> None:
        """``flush`` must not raise."""
        self._flush = flush
        self._interval_seconds = interval_seconds
        self._condition = Condition()
        self._is_asked = self._is_stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        if not self._is_asked:
            with self._condition:
                self._is_asked = True
                self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._is_asked and not self._is_stopped:
                    self._condition.wait(self._interval_seconds)
                if self._is_stopped:
                    return
                self._is_asked = False
            self._flush()

    def stop(self) -> None:
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        self._thread.join()


class SyncedFile:
    """The file ``synced``, open for writing; created if it is missing."""

    def __init__(self, layout: StoreLayout, disk: Disk) -> None:
        content = fs.read_bytes(layout.synced, SYNCED_BYTES + 1) or b""
        if len(content) != SYNCED_BYTES:
            disk.make_file(layout.synced, SYNCED_BYTES, layout.scratch)
            content = b""
        # A message with a zero byte in its properties is acknowledged after a sync of this file,
        # so a power cut must not lose the file's name.
        disk.sync_directory(layout.synced.parent)
        self._number = newest_slot(content)[0]
        self._file: WritableFile = disk.open_file(layout.synced)
        try:
            self._file.reserve(0, SYNCED_BYTES)
        except OSError:
            self._file.close()
            raise

    def write(self, synced: Synced) -> None:
        """Write the offset below which the log is synced. No system call."""
        self._number += 1
        start, slot = synced.encode(self._number)
        self._file.content[start : start + len(slot)] = slot

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class Durability:
    """Syncs the log and the queues of an appender, and writes ``synced`` and ``state.json``.

    ``on_saved`` is called after each write of ``state.json``.
    """

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        config: StoreConfig,
        appender: Appender,
        *,
        end_offset: int,
        state_offset: int,
        on_saved: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with a log that ends at ``end_offset``. All of it counts as unsynced.

        ``state_offset``: see the attribute. ``clock`` returns seconds, to measure syncs.
        """
        self._layout = layout
        self._clock = clock
        self._disk = disk
        self._config = config
        self._appender = appender
        self._first_end_offset = end_offset
        self._on_saved = on_saved
        self._synced: SyncedFile | None = None
        self._file_synced_offset = -1
        self.state_offset = state_offset
        """The physical offset up to which ``state.json`` is true, or -1."""
        self._saved: tuple[StoreState, Checkpoint] | None = None
        self._boot = disk.boot_id()
        self._checkpoint = read_checkpoint(layout)
        self._flush_lock = threading.Lock()
        self._save_lock = threading.Lock()
        self._warned: set[str] = set()
        self.slow_syncs = 0
        self.group_commit = GroupCommit(0)
        self._flusher: FlushThread | None = None
        self._saver: FlushThread | None = None

    def start(self) -> None:
        self._flusher = FlushThread(
            FLUSH_THREAD, self.flush_log, self._config.flushIntervalCommitLog / 1000
        )
        self._saver = FlushThread(
            CHECKPOINT_THREAD, self.flush, self._config.flushIntervalConsumeQueue / 1000
        )

    def stop(self) -> None:
        for thread in (self._flusher, self._saver):
            if thread is not None:
                thread.stop()

    def when_durable(self, end_offset: int, waiter: Waiter) -> None:
        """Call ``waiter``, in another thread, when the log is durable below ``end_offset``.

        A sync begins at once, or after the current one, for all waiters.
        """
        self.group_commit.wait_for(end_offset, waiter)
        if self._flusher is not None and self.group_commit.has_waiting:
            self._flusher.ask()

    @property
    def saved_offset(self) -> int:
        """The physical offset of the ``state.json`` that this process wrote last, or -1."""
        return -1 if self._saved is None else self._saved[0].queues_offset

    def flush_log(self) -> None:
        """Make the records appended before this call durable, and call their waiters.

        A failed sync is final, and not raised: see :class:`rocketlens.errors.StoreFailed`. After an
        error that may pass, the waiters wait for the next call.
        """
        with self._flush_lock:
            if self.group_commit.failure is not None:
                return
            synced = self._end(self._appender.last)
            began_s = self._clock()
            try:
                if self._synced is None:
                    self._synced = SyncedFile(self._layout, self._disk)
                self._appender.sync_log()
                self._synced.write(synced)
                if self._appender.zeros_end_offset > self._file_synced_offset:
                    self._synced.sync()
                    self._file_synced_offset = synced.offset
            except OSError as error:
                if fs.may_pass(error):
                    self._warn_once(_LOG_WAITS, error)
                else:
                    self._fail(error)
                return
            self._warned.discard(_LOG_WAITS)
            took_s = self._clock() - began_s
            if took_s >= SLOW_SYNC_S:
                self.slow_syncs += 1
                _log.warning("slow disk: a sync of the log took %.1f s", took_s)
        self.group_commit.end_round(synced.offset)

    def _end(self, last: Appended | None) -> Synced:
        if last is None:
            return Synced(self._first_end_offset)
        end_offset = last.physical_offset + last.store_size
        return Synced(end_offset, last.physical_offset, last.store_timestamp_ms)

    def flush(self) -> None:
        """Make the log durable, then the queues, then write the checkpoint.

        Failures as in :meth:`flush_log`. After an error that may pass, the checkpoint stays old.
        """
        with self._save_lock:
            snapshot = self._appender.snapshot()
            self.flush_log()
            if snapshot is None or self.group_commit.failure is not None:
                return
            if self.group_commit.flushed_offset < self._end(snapshot.last).offset:
                return
            try:
                self._appender.sync_queues()
                self._save(snapshot)
                self._warned.discard(_CHECKPOINT_WAITS)
            except OSError as error:
                if fs.may_pass(error):
                    self._warn_once(_CHECKPOINT_WAITS, error)
                else:
                    self._fail(error)

    def _save(self, snapshot: Snapshot) -> None:
        last = snapshot.last
        state = StoreState(self._end(last).offset, None)
        if last is not None:
            state.mark = self._mark_of(last)
            state.last_record_timestamp_ms = last.store_timestamp_ms
        for (topic, queue_id), span in snapshot.queues.items():
            if span[1]:
                state.queue_offsets.setdefault(topic, {})[queue_id] = span
        state.boot = self._boot
        state.queue_file_bytes = self._config.queue_file_bytes
        new = self._new_checkpoint(state)
        contents = {one.encode().rstrip(b"\0").hex() for one in (self._checkpoint, new)}
        state.checkpoints = tuple(sorted(contents))
        if (state, new) == self._saved:
            return
        if self._synced is not None:
            self._synced.sync()
        self._disk.write_durably(self._layout.state, state.encode())
        self._disk.write_durably(self._layout.checkpoint, new.encode())
        self._checkpoint, self._saved = new, (state, new)
        self.state_offset = state.queues_offset
        self._on_saved()

    def _mark_of(self, last: Appended) -> LogMark:
        """Return the mark of the last record, read through a mapping of this thread."""
        segment_bytes = self._appender.segment_bytes
        base = last.physical_offset - last.physical_offset % segment_bytes
        with fs.MappedFile(self._layout.segment_path(base)) as mapped:
            start = last.physical_offset - base
            return LogMark.of(last.physical_offset, mapped.content[start : start + last.store_size])

    def _new_checkpoint(self, state: StoreState) -> Checkpoint:
        now_ms = state.last_record_timestamp_ms
        new = Checkpoint(now_ms, now_ms, now_ms, 0, 0, state.queues_offset)
        if not self._config.messageIndexEnable:
            return new
        full_ms, full_end_offset = full_index_end(self._layout, self._checkpoint)
        return new._replace(
            logics_msg_timestamp_ms=min(now_ms, full_ms),
            index_msg_timestamp_ms=min(now_ms, full_ms),
            logics_physical_offset=full_end_offset,
        )

    def _warn_once(self, text: str, error: OSError) -> None:
        if text not in self._warned:
            _log.warning("%s, and is tried again: %s", text, error)
        self._warned.add(text)

    def _fail(self, error: OSError) -> None:
        failure = StoreFailed(f"the store failed and takes no more messages: {error}")
        _log.error("%s", failure)
        self._appender.refusal = failure
        self.group_commit.fail(failure)

    def close(self) -> None:
        if self._synced is not None:
            self._synced.close()


def read_checkpoint(layout: StoreLayout) -> Checkpoint:
    """Read RocketMQ's checkpoint; return zeros if it is missing or too short."""
    try:
        return checkpoint.decode(fs.read_bytes(layout.checkpoint, CHECKPOINT_BYTES) or b"")
    except CheckpointError:
        return Checkpoint()
