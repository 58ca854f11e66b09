"""Builds index files from the synced log, in a thread of this process.

A build that fails (no disk space, descriptor or memory, a segment that cannot be opened) is
retried; look-ups read the log meanwhile. Only a failed sync ends the builder. Another process can
build the files instead.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rocketlens.errors import RocketLensError, StoreLocked
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import ResumePoint, safe_offset_of
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.store.write.index.index_writer import IndexWriter

_log: Final = logging.getLogger(__name__)

INDEX_THREAD_NAME: Final = "rocketlens-index"
STEP_BYTES: Final = 64 * 1024 * 1024
"""Bytes of log that are indexed between two syncs of the index files."""
PIECE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of log that are indexed between two checks for a stop, in about 0.1 s."""
_INTERVAL_SECONDS: Final = 0.2


class IndexBuilder(IndexWriter):
    """Appends to the index files of a store. For one thread at a time.

    ``made_progress``: whether the last :meth:`build` advanced.
    """

    made_progress = False

    def build(self, up_to: int, *, at_most_bytes: int = 64 * 1024 * 1024) -> bool:
        """Write the entries of records that begin below ``up_to``; return True if all are written.

        ``up_to`` must not be above the synced end of the log.

        :raises OSError: if the disk is full, or a segment cannot be opened now. The next call
            continues.
        """
        before = self.resume_point.physical_offset
        self.made_progress = False
        if before >= up_to:
            return True
        self._log.refresh()
        walk = LogWalk(self._log, before, min(up_to, before + at_most_bytes), must_read=True)
        if walk.position > before:
            self.resume_point = ResumePoint(walk.position, 0)
        try:
            for rows in walk.rows():
                self.put(rows.index_entries(with_tags=self._with_tags), walk.position)
        finally:
            self._write_header()
        self.resume_point = max(self.resume_point, ResumePoint(walk.position, 0))
        self.made_progress = self.resume_point.physical_offset > before
        return self.resume_point.physical_offset >= up_to or walk.torn_at is not None


class IndexDriver:
    """Runs a builder in a thread, or leaves the index files to another process.

    Other threads can call ``build`` and ``forget_below``. ``make`` creates a builder; ``log_end``
    returns the synced end of the log.
    """

    def __init__(
        self, layout: StoreLayout, make: Callable[[], IndexBuilder], log_end: Callable[[], int]
    ) -> None:
        """Start without a builder: another process can have the files."""
        self._layout = layout
        self._make = make
        self._log_end = log_end
        self._builder: IndexBuilder | None = None
        self.is_builder = self._is_warned = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_offset = 0

    def open(self) -> None:
        """Become the builder, now or in a later step.

        :raises StoreLocked: if another process builds.
        """
        self.is_builder = True
        with self._lock:
            try:
                self._builder = self._make()
            except OSError as error:
                self._handle_error(error)

    def adopt(self) -> None:
        """Become the builder if that of another process has ended, to build the rest."""
        if self.is_builder:
            return
        try:
            self.open()
        except StoreLocked as error:
            self.is_builder = False
            _log.warning("the rest of the log is indexed after the next start: %s", error)

    def start(self) -> None:
        if self.is_builder:
            self._thread = threading.Thread(target=self._run, name=INDEX_THREAD_NAME, daemon=True)
            self._thread.start()

    @property
    def offset(self) -> int:
        """The physical offset up to which index files are built and synced."""
        builder = self._builder
        if builder is not None:
            return builder.safe_offset
        # If it cannot be read now, the last one is still valid.
        with suppress(OSError):
            self._last_offset = safe_offset_of(self._layout)
        return self._last_offset

    @property
    def is_behind(self) -> bool:
        """Whether another step would advance the index."""
        builder = self._builder
        return builder is not None and builder.made_progress

    def build(
        self, at_most_bytes: int = STEP_BYTES, is_over: Callable[[], bool] | None = None
    ) -> bool:
        """Index up to a number of bytes of the durable log; return True if all of it is indexed.

        ``is_over`` is called between two pieces of work. Return False also if something cannot be
        written or opened now, or another process builds.
        """
        with self._lock:
            if self._builder is None and not self._retry_open():
                return False
            builder = self._builder
            assert builder is not None  # noqa: S101 - just made
            up_to, begin = self._log_end(), builder.resume_point.physical_offset
            made_progress = is_done = False
            try:
                while not is_done:
                    remaining = begin + at_most_bytes - builder.resume_point.physical_offset
                    is_done = builder.build(up_to, at_most_bytes=min(remaining, PIECE_BYTES))
                    made_progress |= builder.made_progress
                    if (
                        remaining <= PIECE_BYTES
                        or not builder.made_progress
                        or (is_over and is_over())
                    ):
                        break
                builder.sync()
                builder.made_progress = made_progress
                self._is_warned = False
            except (OSError, RocketLensError, MemoryError) as error:
                self._handle_error(error)
                return False
            return is_done

    def _retry_open(self) -> bool:
        if self.is_builder:
            try:
                self._builder = self._make()
            except (OSError, RocketLensError) as error:
                self._handle_error(error)
        return self._builder is not None

    def _handle_error(self, error: Exception) -> None:
        """Log a failure that may pass once; stop after a failed sync."""
        if isinstance(error, fs.SyncFailed):
            _log.error("index files are not built any more: %s", error)
            self.is_builder = False
            if self._builder is not None:
                self._last_offset = self._builder.safe_offset
                self._builder.close()
                self._builder = None
        elif not self._is_warned:
            _log.warning("the log cannot be indexed now, and is indexed later: %s", error)
            self._is_warned = True

    def _run(self) -> None:
        while not self._stop.is_set() and self.is_builder:
            is_done = self._log_end() <= self.offset or self.build(is_over=self._stop.is_set)
            # A builder that cannot continue, for example on a full disk, is retried later.
            if is_done or not self.is_behind:
                self._stop.wait(_INTERVAL_SECONDS)

    def build_until(self, deadline_s: float) -> None:
        """Index the rest, until ``deadline_s`` of the monotonic clock."""

        def is_over() -> bool:
            return time.monotonic() >= deadline_s

        while not self.build(is_over=is_over) and self.is_behind and not is_over():
            pass

    def forget_below(self, physical_offset: int) -> bool:
        """Delete index files of deleted log; return False if the caller must try again."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._builder is not None:
                self._builder.forget_below(physical_offset)
            return self._builder is not None or not self.is_builder
        finally:
            self._lock.release()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def close(self, *, abruptly: bool = False) -> None:
        """Release the index files; ``abruptly`` as if this process were killed."""
        builder, self._builder = self._builder, None
        if builder is not None:
            self._last_offset = builder.safe_offset
            if abruptly:
                builder.close_abruptly()
            else:
                builder.close()
