"""Loads compiled kernels where a server can stop without waiting for it.

Loading takes up to a second of computing, and minutes on a busy machine where they have to be
compiled first; nothing can interrupt it, and only one thread of a process compiles at a time. In a
server it is done in a daemon thread, and threads that need kernels wait for that one until the
server stops. Other programs load them where they need them.

A machine can refuse them: numba is missing or broken, a kernel cannot be compiled. That is logged
once, and everything is read record by record from then on, which takes 75 times as long.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rocketlens.errors import StoreBusy
from rocketlens.model import compiling

if TYPE_CHECKING:
    from concurrent.futures import Future

LOADER_THREAD: Final = "rocketlens-kernels"
LOAD_WAIT_S: Final = 1.0
"""Seconds in which kernels are loaded that were compiled before. Those that are compiled first take
tens of seconds, and look-ups are answered without them meanwhile.
"""


class KernelLoader:
    """Calls functions that load kernels; any thread may use it."""

    def __init__(self) -> None:
        """Create a loader that calls them in the thread of the caller."""
        self._lock: Final = threading.Lock()
        self._loads: Final[dict[Callable[[], object], Future[None]]] = {}
        self._began: Final[dict[Callable[[], object], float]] = {}
        self._abandoned: Future[None] | None = None
        """None if the caller's thread loads; else it ends when nothing is loaded any more."""
        self.is_refused = False
        """Whether this machine has no compiled code: nothing is loaded any more."""

    @property
    def is_in_background(self) -> bool:
        """Whether kernels are loaded in a thread of their own."""
        return self._abandoned is not None

    @property
    def is_abandoned(self) -> bool:
        """Whether no kernel is loaded any more."""
        return self._abandoned is not None and self._abandoned.done()

    @property
    def is_loading(self) -> bool:
        """Whether a thread of its own is loading, even if no one waits for it any more."""
        return any(thread.name == LOADER_THREAD for thread in threading.enumerate())

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Load in a thread of its own from now on, until the end of the block, also what is only
        loaded when it is called.
        """
        # Late, here and below: a search that needs no kernel must not pay for it.
        from concurrent.futures import Future

        with self._lock:
            self._abandoned = Future()
            self._loads.clear()
        compiling.load_with(self.load)
        try:
            yield
        finally:
            compiling.load_with(None)
            self.abandon()
            self._abandoned = None

    def load(self, load: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Call a function that loads kernels, or wait until another thread has called it.

        In the background no longer than ``timeout_s``, counted from when it was called first; what
        another call loads, it loads in the same thread. Return whether it has ended.

        :raises StoreBusy: if nothing is loaded any more.
        :raises OSError: as ``load`` does; it is called again the next time.
        """
        abandoned = self._abandoned
        if abandoned is None or threading.current_thread().name == LOADER_THREAD:
            load()
            return True
        from concurrent.futures import FIRST_COMPLETED, Future, wait

        with self._lock:
            future = self._loads.get(load)
            failed = future is not None and future.done() and future.exception() is not None
            if (future is None or failed) and not abandoned.done():
                future = self._loads[load] = Future()
                self._began[load] = time.monotonic()
                threading.Thread(
                    target=_run, args=(load, future), name=LOADER_THREAD, daemon=True
                ).start()
        if future is not None:
            if timeout_s is not None:
                timeout_s = max(0.0, self._began[load] + timeout_s - time.monotonic())
            wait((future, abandoned), timeout_s, return_when=FIRST_COMPLETED)
            if not future.done() and not abandoned.done():
                return False
        if future is None or not future.done():
            raise StoreBusy("the broker stops: kernels are not loaded any more")
        future.result()
        return True

    def try_load(self, load: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Do :meth:`load`; return False if this machine refuses, which is logged the first time.

        :raises StoreBusy: if nothing is loaded any more.
        :raises OSError: if there are too few files or too little memory now.
        """
        if self.is_refused:
            return False
        try:
            return self.load(load, timeout_s)
        except (StoreBusy, MemoryError):
            raise
        except Exception as error:
            # What the system refuses now has a number; llvmlite raises an OSError without one.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            with self._lock:
                is_first, self.is_refused = not self.is_refused, True
            if is_first:
                import logging

                logging.getLogger(__name__).warning(
                    "compiled code cannot be used here, and everything works without it, more "
                    "slowly (rocketlens doctor): %s: %s",
                    type(error).__name__,
                    error,
                )
            return False

    def abandon(self) -> None:
        """Load nothing any more, and let those who wait go on without; only in the background."""
        with self._lock:
            if self._abandoned is not None and not self._abandoned.done():
                self._abandoned.set_result(None)


def _run(load: Callable[[], object], future: "Future[None]") -> None:
    try:
        load()
    except BaseException as error:  # noqa: BLE001 - raised in those who wait
        future.set_exception(error)
    else:
        future.set_result(None)


KERNELS: Final = KernelLoader()
"""The one of this process."""
