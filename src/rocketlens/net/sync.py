"""A thread with an event loop, for callers without one; the base of blocking clients."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from rocketlens.errors import BadInput, RocketLensError, WrongUse
from rocketlens.net.event_loop import new_event_loop

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in its own daemon thread; any number of threads may use it.

    A call costs about 0.1 ms more. A process that forks must create a new one in the child.
    """

    def __init__(self, name: str = "rocketlens") -> None:
        self._loop: Final = new_event_loop()
        self._thread: Final = threading.Thread(target=self._main, name=name, daemon=True)
        self._lock: Final = threading.Lock()
        self._is_closed = False
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the thread; return its result or raise its error.

        :raises BadInput: if it is called from its own thread, which would wait for itself.
        :raises WrongUse: if this is closed.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise BadInput("a synchronous call from within the event loop would never return")
        future = self.submit(work)
        try:
            return future.result()
        except RocketLensError as error:
            # Without the frames of the other thread a traceback fits on one screen.
            raise error.with_traceback(None) from None
        except BaseException:
            # Interrupted, for example by Ctrl-C: the caller no longer waits.
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``work`` in the thread; cancelling the future cancels the work.

        :raises WrongUse: if this is closed.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise WrongUse("this client is closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel running work, and end the thread. A second call has no effect."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
