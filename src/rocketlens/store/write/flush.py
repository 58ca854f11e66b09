"""Schedules when the log is made durable, and calls the waiters.

:class:`GroupCommit` is the book of who waits for what, without threads or clock: a round of
syncing serves everyone who came before it began. :class:`FlushThread` runs the rounds.

``SYNC_FLUSH``: a round as soon as anyone waits. ``ASYNC_FLUSH``: every 500 ms.
"""

from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Final

from rocketlens.errors import StoreFailed

Waiter = Callable[[StoreFailed | None], None]
"""Called once: with None if the record is durable, otherwise with the reason why it may never
be.
"""

FLUSH_THREAD: Final = "rocketlens-flush"
CHECKPOINT_THREAD: Final = "rocketlens-checkpoint"


class GroupCommit:
    """Waiters for the log to become durable below an offset. Any thread may use it.

    ``flushed_offset``: the log is durable below it.
    """

    def __init__(self, flushed_offset: int) -> None:
        """Create an empty list of waiters."""
        self.flushed_offset = flushed_offset
        self.failure: StoreFailed | None = None
        self._lock = Lock()
        self._waiting: deque[tuple[int, Waiter]] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether there are waiters."""
        return bool(self._waiting)

    def wait_for(self, end_offset: int, waiter: Waiter) -> None:
        """Call ``waiter`` when the log is durable below ``end_offset``.

        It is called at once when that is so already, or will never be; otherwise by the thread
        that ends the round.
        """
        with self._lock:
            if self.failure is None and end_offset > self.flushed_offset:
                self._waiting.append((end_offset, waiter))
                return
        waiter(self.failure)

    def end_round(self, flushed_offset: int) -> None:
        """Record the end of a sync that began after everything below ``flushed_offset`` was
        written.

        After a failed round no waiter is called: durability was lost for good.
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
        """Call all waiters, also later ones, with the failure: nothing will be durable any more."""
        with self._lock:
            self.failure = self.failure or failure
            served, self._waiting = self._waiting, deque()
        for _, waiter in served:
            waiter(failure)


class FlushThread:
    """Calls ``flush`` when there are waiters, or an interval has passed."""

    def __init__(self, name: str, flush: Callable[[], None], interval_seconds: float) -> None:
        """Start the thread. ``flush`` must not raise."""
        self._flush = flush
        self._interval_seconds = interval_seconds
        self._condition = Condition()
        self._is_asked = self._is_stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Request a round, now or after the current one."""
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
        """Stop after the current round."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        self._thread.join()
