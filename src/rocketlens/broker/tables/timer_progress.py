"""``config/timercheck``: which timers (messages with their own delivery time) were delivered.

Timers are in queue 0 of their topic. Those below ``queue_offset`` are delivered. Of those between
``queue_offset`` and ``next_queue_offset``, the ones due before ``read_time_ms`` are delivered; of
those due at ``read_time_ms``, the ones below ``second_queue_offset``. All others wait.

RocketMQ reads the file when it takes over the store. It then reads the queue from ``queue_offset``
on: it delivers all waiting timers, and repeats those delivered after the first waiting one. If
RocketMQ wrote the file, timers that it had not read, and those due from ``read_time_ms`` on, wait.
Its ``timerlog`` and ``timerwheel`` would make it repeat our deliveries, so they are removed.
"""

from collections.abc import Callable
from typing import Final

from rocketlens import limits
from rocketlens.broker.tables.offsets import SegmentChecksums, is_another_log
from rocketlens.broker.tables.table_saver import Table
from rocketlens.errors import CheckpointError
from rocketlens.formats import timer_checkpoint
from rocketlens.formats.checkpoint import CHECKPOINT_BYTES
from rocketlens.formats.timer_checkpoint import TimerCheckpoint
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout


class TimerProgress(Table):
    """The progress of timers, in memory and in the file.

    ``delivered`` and ``log_checksums`` are as in
    :class:`rocketlens.broker.tables.offsets.DelayOffsets`.
    """

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        clock: Callable[[], int],
        delivered: Callable[[], None],
        log_checksums: Callable[[], SegmentChecksums] = dict,
    ) -> None:
        """Read the file. If it is damaged, start at the beginning; messages are then delivered
        twice.

        :raises OSError: if the file exists and cannot be read.
        """
        self._layout: Final = layout
        self._disk: Final = disk
        self._delivered: Final = delivered
        self._removed_caches = False
        self.path: Final = layout.config / "timercheck"
        self.oldest: Callable[[], tuple[int, int | None]] = lambda: (self.queue_offset, None)
        """Returns two queue offsets: the lowest that waits or was not read since the start, and the
        lowest of those due before ``read_time_ms``, which exist after a clock was set back.
        """
        self.log_checksums: Final = log_checksums
        self.read_time_ms = 0
        self.second_queue_offset = 0
        self.next_queue_offset = 0
        self.queue_offset = 0
        self._version_counter = 0
        self.log: SegmentChecksums = {}
        self._read(clock())

    def _read(self, now_ms: int) -> None:
        content = fs.read_bytes(self.path, CHECKPOINT_BYTES)
        if not content:
            return
        try:
            checkpoint = timer_checkpoint.decode(content)
        except CheckpointError:
            return
        self._version_counter = min(max(checkpoint.version_counter, 0), limits.MAX_INT)
        self.read_time_ms = max(checkpoint.read_time_ms, 0)
        if not checkpoint.is_own:
            # RocketMQ keeps waiting timers in its own files, so the first one is unknown.
            # The file has no checksum; its time cannot be later than the clock.
            self.read_time_ms = min(self.read_time_ms, now_ms)
            self.next_queue_offset = max(checkpoint.queue_offset, 0)
            return
        self.queue_offset = max(checkpoint.queue_offset, 0)
        self.next_queue_offset = max(checkpoint.next_queue_offset, 0)
        self.second_queue_offset = max(checkpoint.second_queue_offset, 0)
        if checkpoint.log_segment_offset >= 0:
            self.log = {checkpoint.log_segment_offset: checkpoint.log_segment_crc}

    def fit_to_queue(self, low: int, high: int) -> None:
        """Correct offsets outside ``low`` to ``high``; in another log, all timers wait."""
        if self.log and is_another_log(self.log, self.log_checksums()):
            self.read_time_ms = self.second_queue_offset = self.next_queue_offset = 0
            self.queue_offset = 0
            self.is_changed = True
        self.queue_offset = min(max(self.queue_offset, low), high)
        self.next_queue_offset = min(max(self.next_queue_offset, low), high)

    def is_delivered(self, queue_offset: int, slot_ms: int) -> bool:
        """Return True if a timer below ``next_queue_offset`` was delivered before the start."""
        return slot_ms < self.read_time_ms or (
            slot_ms == self.read_time_ms and queue_offset < self.second_queue_offset
        )

    def advance(self, slot_ms: int, queue_offset: int) -> None:
        """Record delivery of timers due before ``slot_ms``, and of those at it below
        ``queue_offset``.
        """
        now = (self.read_time_ms, self.second_queue_offset)
        self.read_time_ms, self.second_queue_offset = max(now, (slot_ms, queue_offset))
        self.is_changed = True

    def set_back(self, slot_ms: int) -> None:
        """Set an earlier time, if no timer waits; ignored if it is not earlier."""
        if slot_ms < self.read_time_ms - 1000:
            self.read_time_ms, self.second_queue_offset = slot_ms, 0
            self.is_changed = True

    def checkpoint(self) -> TimerCheckpoint:
        next_offset, (oldest_waiting, oldest_late) = self.next_queue_offset, self.oldest()
        if oldest_late is not None:
            next_offset = min(next_offset, oldest_late)
        lowest = min(next_offset, oldest_waiting)
        return TimerCheckpoint(
            read_time_ms=self.read_time_ms,
            queue_offset=lowest,
            master_queue_offset=lowest,
            version_counter=self._version_counter,
            next_queue_offset=next_offset,
            second_queue_offset=self.second_queue_offset,
        )

    def snapshot(self) -> Callable[[], None]:
        self._version_counter += 1
        checkpoint = self.checkpoint()

        def write() -> None:
            self._delivered()
            newest = max(self.log_checksums().items(), default=(-1, 0))
            identified = checkpoint._replace(
                log_segment_offset=newest[0], log_segment_crc=newest[1]
            )
            self._disk.write_durably(self.path, identified.encode())
            self._remove_caches()

        return write

    def _remove_caches(self) -> None:
        if not self._removed_caches:
            self._disk.remove_tree(self._layout.root / "timerlog")
            self._disk.remove_file(self._layout.root / "timerwheel")
            self._removed_caches = True
