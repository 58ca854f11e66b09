"""Opens, appends to, reads and closes the store of a broker.

Any thread can call ``flush_log``, ``flush``, ``when_durable``, ``flushed_offset``, ``failure``,
``make_durable`` and ``build_index``. All other calls belong to one thread, the broker's loop.
Appends take no lock: only the appending thread changes ``last`` and the queues, in an order on
which syncing threads rely (the entry before ``last``; a file is retired before the next one is
used; see ``Appender.snapshot``).

Locks, in the order in which a thread takes them. Those of one item are never nested.

1. ``StoreLock``: held from before the first read until the store is closed.
2. ``Durability._save_lock``: one round of ``flush`` at a time; protects ``state.json``, the
   checkpoint, and the copies of both in memory.
3. ``Durability._flush_lock``: one sync of the log at a time; protects ``synced``.
4. ``Appender._lock``: briefly, for the list of unsynced segments.
   ``GroupCommit._lock``: briefly, for the waiters and ``flushed_offset``. It is released before
   a waiter is called. But after a failed sync the two locks above are still held, so a waiter must
   neither block nor call the store; that of a broker only wakes the loop.
   ``FlushThread._condition``: briefly, for requests of a round.

``IndexDriver._lock`` is outside this order. It is held while a step is built, which takes none of
the others, but takes ``index.lock``, which excludes builders of other processes. The appending
thread only tries it, so cleaning never waits for a step.
"""

import logging
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from rocketlens.errors import StoreBusy, StoreError, StoreFailed
from rocketlens.formats.commitlog_record import pack_host
from rocketlens.model.message import Host
from rocketlens.model.rocketmq import parse_delay_levels
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from rocketlens.store.write.append import Appended, Appender
from rocketlens.store.write.cleaner import Cleaner
from rocketlens.store.write.config import Limits, StoreConfig
from rocketlens.store.write.durability import Durability
from rocketlens.store.write.index.index_driver import STEP_BYTES, IndexBuilder, IndexDriver
from rocketlens.store.write.opening import Opening
from rocketlens.store.write.store_views import LogView, QueueView

_log: Final = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 2.0
"""Seconds for which closing continues to build the index: supervisors kill a broker after 5 s."""


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class StoreOptions(Struct, frozen=True):
    """Options of a store that are not in RocketMQ's configuration.

    ``store_host``: the broker's address, written into each record. ``with_tag_index``: index
    tags, as RocketMQ 5.5 does. ``build_index``: build index files, which another process does
    otherwise. ``threads``: start threads; otherwise the caller calls ``flush`` and ``build_index``.
    """

    store_host: Host
    with_tag_index: bool = True
    build_index: bool = True
    threads: bool = True


class MessageStore:
    """One store directory, open for writing. A context manager.

    ``append``, ``append_batch``, ``room``, ``batch_room`` and ``append_run`` are those of
    :class:`rocketlens.store.write.append.Appender`;
    ``flush_log``, ``flush`` and ``when_durable`` those of
    :class:`rocketlens.store.write.durability.Durability`; ``record`` and ``log_from`` those of
    :class:`rocketlens.store.write.store_views.LogView`; ``clean`` and ``clean_queues`` those of
    :class:`rocketlens.store.write.cleaner.Cleaner`. ``queues`` is a
    :class:`rocketlens.store.write.store_views.QueueView`. ``recovered`` is the result of recovery.
    """

    _appender_class: type[Appender] = Appender

    def __init__(
        self,
        store: Path | StoreLayout,
        config: StoreConfig,
        options: StoreOptions,
        *,
        disk: Disk | None = None,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        """Open the store, or create one.

        :raises StoreLocked: without waiting, if this or another process has the store open.
        :raises BadInput: if its files have other sizes than the configuration.
        """
        self.layout = store if isinstance(store, StoreLayout) else StoreLayout(store)
        self.config = config
        self._options = options
        self._disk = disk or Disk()
        self._clock = clock
        self._is_closed = False
        self._disk.make_directory_durably(self.layout.root)
        self._lock = StoreLock(self.layout.root)
        self._parts = ExitStack()
        """Closes the parts, in reverse order, and releases the lock."""
        self._parts.callback(self._lock.release)
        try:
            self._open()
        except BaseException:
            self._parts.close()
            raise

    def _open(self) -> None:
        layout, disk, config = self.layout, self._disk, self.config
        appender = self._appender = self._new_appender()
        self._parts.callback(appender.close)
        self.recovered, self.deleted, state_offset = Opening(
            layout, config, disk, self._lock, appender, make_durable=self.make_durable
        ).run()
        end_offset = self.recovered.end_offset
        log = self._log = LogView(layout.commit_log, appender, end_offset)
        self._parts.callback(log.close)
        self.queues = QueueView(appender, log)
        durability = self._durability = Durability(
            layout,
            disk,
            config,
            appender,
            end_offset=end_offset,
            state_offset=state_offset,
            on_saved=lambda: self._lock.mark(disk),
        )
        self._parts.callback(durability.close)
        self._index = IndexDriver(layout, self._new_builder, lambda: self.flushed_offset)
        cleaner = self._cleaner = Cleaner(
            layout,
            config,
            disk,
            self._clock,
            appender=appender,
            durability=durability,
            log=log,
            queues=self.queues,
            index=self._index,
        )
        self.append, self.append_batch = appender.append, appender.append_batch
        self.room, self.append_run = appender.room, appender.append_run
        self.batch_room = appender.batch_room
        self.flush_log, self.flush = durability.flush_log, durability.flush
        self.when_durable = durability.when_durable
        self.record, self.log_from = log.record, log.log_from
        self.clean, self.clean_queues = cleaner.clean, cleaner.clean_queues
        self._begin()

    def _new_appender(self) -> Appender:
        config, host = self.config, self._options.store_host
        return self._appender_class(
            self.layout,
            self._disk,
            clock=self._clock,
            store_host=pack_host(host),
            bounds=Limits(config.maxMessageSize, config.autoMessageVersionOnTopicLen),
            delays_ms=parse_delay_levels(config.messageDelayLevel),
            segment_bytes=config.mappedFileSizeCommitLog,
            queue_file_bytes=config.queue_file_bytes,
            open_queues=fs.max_open_queues(),
        )

    def _new_builder(self) -> IndexBuilder:
        return IndexBuilder(
            self.layout,
            self.config.geometry,
            with_tags=self._options.with_tag_index,
            disk=self._disk,
            clock=self._clock,
            log_end=self.flushed_offset,
        )

    def _begin(self) -> None:
        if self._options.threads and self.recovered.is_ours:
            # The existing state is still true. The checkpoint thread writes the next one.
            self.flush_log()
        else:
            self.flush()
        if self.failure is not None:
            raise self.failure
        if self._options.build_index and self.config.messageIndexEnable:
            self._index.open()
        if self._options.threads:
            self._durability.start()
            self._index.start()

    def watch_queues(
        self, queues: Collection[tuple[str, int]], on_arrival: Callable[[tuple[str, int]], None]
    ) -> None:
        """Call ``on_arrival``, in the appending thread, after an append to one of ``queues``.

        ``queues`` can change. While it is empty, this costs nothing.
        """
        self._appender.watched, self._appender.on_arrival = queues, on_arrival

    @property
    def store_host(self) -> Host:
        return self._options.store_host

    @property
    def builds_index(self) -> bool:
        return self._options.build_index

    @property
    def last_appended(self) -> Appended | None:
        return self._appender.last

    @property
    def min_offset(self) -> int:
        """The physical offset of the first byte that is not deleted."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """The physical offset after the last record."""
        return self._log.end_offset

    @property
    def appended_bytes(self) -> int:
        return self._log.appended_bytes

    @property
    def flushed_offset(self) -> int:
        """The physical offset below which the log is durable."""
        return self._durability.group_commit.flushed_offset

    @property
    def refusal(self) -> StoreError | None:
        """The reason why messages are refused now, for example a full disk, or None."""
        return self._appender.refusal

    @property
    def slow_syncs(self) -> int:
        return self._durability.slow_syncs

    @property
    def failure(self) -> StoreFailed | None:
        """The reason why nothing can become durable any more, or None."""
        return self._durability.group_commit.failure

    @property
    def indexed_offset(self) -> int:
        """The physical offset up to which index files are built and synced."""
        return self._index.offset

    def make_durable(self) -> None:
        """Flush the log up to its current end. Any thread can call this.

        :raises StoreFailed: if the log can never become durable.
        :raises StoreBusy: if it cannot be flushed now.
        """
        end_offset = self.end_offset
        self.flush_log()
        if self.failure is not None:
            raise self.failure
        if self.flushed_offset < end_offset:
            raise StoreBusy("the log cannot be made durable now")

    def build_index(self, *, at_most_bytes: int = STEP_BYTES) -> bool:
        """Index up to a number of bytes of the durable log; return True if all of it is indexed.

        Return False also if the disk is full, a file cannot be opened now, or another process
        builds the index.
        """
        return self._index.build(at_most_bytes)

    def adopt_index_builder(self) -> None:
        """Let :meth:`close` index the rest that a builder in another process left.

        If that builder still runs, it continues, and the store is not closed cleanly.
        """
        if self.config.messageIndexEnable:
            self._index.adopt()

    def close(self, *, at_most_seconds: float = _CLOSE_SECONDS) -> None:
        """Make everything durable, index the rest, and release the store.

        ``abort`` is removed only if queues and index files are complete. Otherwise the next start
        recovers the store as after a killed broker. Indexing ends after ``at_most_seconds``; the
        next start continues it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_threads()
        self.flush_log()
        if self._index.is_builder:
            self._index.build_until(time.monotonic() + at_most_seconds)
        self.flush()
        is_complete = self._is_complete()
        self._index.close()
        if is_complete:
            self._disk.remove_file(self.layout.abort)
            self._disk.sync_directory(self.layout.root)
            _log.info("%s: closed cleanly; the log ends at %d", self.layout.root, self.end_offset)
        else:
            # Not an error: the time was too short for the rest.
            text = "%s: closed; the next start completes queues and index files"
            _log.info(text, self.layout.root)
        self._parts.close()

    def close_abruptly(self) -> None:
        """Release everything as if this process were killed, for tests and after a failure."""
        self._is_closed = True
        self._stop_threads()
        self._index.close(abruptly=True)
        self._parts.close()

    def _stop_threads(self) -> None:
        self._durability.stop()
        self._index.stop()

    def _is_complete(self) -> bool:
        """Return whether a RocketMQ broker can treat the store as closed cleanly."""
        return (
            self.failure is None
            and self._durability.saved_offset == self.end_offset
            and (not self.config.messageIndexEnable or self.indexed_offset >= self.end_offset)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
