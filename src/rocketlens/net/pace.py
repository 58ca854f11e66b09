"""Work that grows with what there is, done so that the event loop stays free for others.

What reads tables of the event loop's own is done on it, in pieces of a few milliseconds
(:class:`Pace`). What only makes bytes of values, or values of bytes, goes to a thread
(:func:`in_thread`), where it is more than a little.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from rocketlens import limits
from rocketlens.errors import ConnectionLost

T = TypeVar("T")

LARGE_BODY_BYTES: Final = 16 * 1024
"""From this size on a JSON body is parsed in a thread: 5 ms of plain JSON's worst kind."""


class Pace:
    """Lets others have a turn after each few milliseconds; belongs to one coroutine."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        """Begin a piece of work."""
        self._since = perf_counter()

    async def turn(self) -> None:
        """Let others have a turn if it is time. Tables may have changed afterwards."""
        if perf_counter() - self._since > limits.MAX_PIECE_S:
            await asyncio.sleep(0)
            self._since = perf_counter()


class WorkThreads(Executor):
    """A few daemon threads: a process ends without waiting for what they do."""

    def __init__(self, count: int) -> None:
        """Start none; each starts when it is first needed."""
        self._count: Final = count
        self._started = 0
        self._idle = 0
        self._lock: Final = threading.Lock()
        self._work: Final[SimpleQueue[tuple[Future[Any], Callable[[], Any]]]] = SimpleQueue()

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run something in a thread."""
        future: Future[T] = Future()
        self._work.put((future, lambda: work(*args, **kwargs)))
        with self._lock:
            if self._work.qsize() > self._idle and self._started < self._count:
                self._started += 1
                name = f"rocketlens-work-{self._started}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            future, work = self._work.get()
            with self._lock:
                self._idle -= 1
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - whoever waits for it hears of it
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, work


_THREADS: Final = WorkThreads(2)


class Owner(Protocol):
    """Who work is done for: a connection."""

    @property
    def is_open(self) -> bool:
        """Whether somebody still waits for it."""

    @property
    def address(self) -> str:
        """The address of the other end."""


async def in_thread(
    work: Callable[[], T], threads: WorkThreads = _THREADS, *, owner: Owner | None = None
) -> T:
    """Do something in a thread; it must not touch what belongs to the event loop.

    Bodies from outside are read in the threads that are used by default. Work for an ``owner`` that
    is gone when its turn comes is not begun, or connections that send much and end, again and
    again, would have it wait here without bound.

    :raises ConnectionLost: when the owner is gone.
    """

    def begin() -> T:
        if owner is not None and not owner.is_open:
            raise ConnectionLost(owner.address, "the connection ended before its turn came")
        return work()

    return await asyncio.get_running_loop().run_in_executor(threads, begin)
