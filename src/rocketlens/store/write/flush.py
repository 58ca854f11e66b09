"""When the log is made durable, and who is told.

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
"""Called once: with None when the record is durable, else with why it may never be."""

FLUSH_THREAD: Final = "rocketlens-flush"
CHECKPOINT_THREAD: Final = "rocketlens-checkpoint"


class GroupCommit:
    """Who waits until the log is durable up to where. May be used by several threads.

    ``flushed_offset``: the log is durable below it.
    """

    def __init__(self, flushed_offset: int) -> None:
        """Begin with nobody waiting."""
        self.flushed_offset = flushed_offset
        self.failure: StoreFailed | None = None
        self._lock = Lock()
        self._waiting: deque[tuple[int, Waiter]] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether anyone waits."""
        return bool(self._waiting)

    def wait_for(self, end_offset: int, waiter: Waiter) -> None:
        """Have ``waiter`` called when the log is durable below ``end_offset``.

        It is called at once when that is so already, or will never be; otherwise by the thread
        that ends the round.
        """
        with self._lock:
            if self.failure is None and end_offset > self.flushed_offset:
                self._waiting.append((end_offset, waiter))
                return
        waiter(self.failure)

    def end_round(self, flushed_offset: int) -> None:
        """Note that a sync which began after everything below ``flushed_offset`` was written ended.

        After a failed round this tells nobody anything: durability was lost for good.
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
        """Fail those who wait, and those who come: nothing will be durable any more."""
        with self._lock:
            self.failure = self.failure or failure
            served, self._waiting = self._waiting, deque()
        for _, waiter in served:
            waiter(failure)


class FlushThread:
    """Calls ``flush`` when somebody waits, or an interval has passed."""

    def __init__(self, name: str, flush: Callable[[], None], interval_seconds: float) -> None:
        """Begin to run. ``flush`` must not raise."""
        self._flush = flush
        self._interval_seconds = interval_seconds
        self._condition = Condition()
        self._is_asked = self._is_stopped = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Begin a round now, or after the one that runs."""
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
        """End after the round that runs, if one does."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        self._thread.join()
