"""Runs long work in pieces or threads, so that the event loop stays responsive.

Work that reads tables of the event loop runs there, in pieces of a few milliseconds
(:class:`Pace`). Large encoding and decoding work runs in a thread (:func:`in_thread`).
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from rocketlens import limits
from rocketlens.errors import ConnectionLost

T = TypeVar("T")
X = TypeVar("X")

LARGE_BODY_BYTES: Final = 16 * 1024
"""Larger JSON bodies are parsed in a thread: 5 ms of the slowest plain JSON."""


class Pace:
    """Lets other tasks run every few milliseconds; belongs to one coroutine."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = perf_counter()

    async def turn(self) -> None:
        """Let other tasks run if it is time. Tables may have changed afterwards."""
        if perf_counter() - self._since > limits.MAX_PIECE_S:
            await asyncio.sleep(0)
            self._since = perf_counter()


class Owner(Protocol):
    """A connection for which work is done."""

    @property
    def is_open(self) -> bool:
        """True if the connection still waits for the result."""

    @property
    def address(self) -> str: ...


class WorkThreads:
    """A few daemon threads: a process exits without waiting for them.

    They take one piece of work of each owner in turn, and never run two of one owner at once. So a
    connection that sends many large bodies delays others by one body, and leaves threads free.
    """

    def __init__(self, count: int, role: str) -> None:
        """Create no thread yet; each starts when it is first needed.

        :param role: The prefix of their names, after ``rocketlens-``.
        """
        self._count: Final = count
        self._role: Final = role
        self._started = self._idle = 0
        self._is_closed = False
        self._changed: Final = threading.Condition()
        self._waiting: Final[dict[object, _Waiting]] = {}
        """By owner, the next one first."""
        self._working_for: Final[set[object]] = set()

    def submit(self, work: Callable[[], T], owner: object = None) -> Future[T]:
        """Run a function in a thread; pieces without an owner do not wait for each other."""
        future: Future[T] = Future()
        with self._changed:
            self._waiting.setdefault(owner, deque()).append((future, work))
            if self._idle:
                self._changed.notify()
            elif self._started < self._count:
                self._started += 1
                name = f"rocketlens-{self._role}-{self._started}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
        return future

    async def call(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.submit(work))

    def close(self) -> None:
        """Let each thread end once it is idle. Submit nothing afterwards."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while (next_one := self._next()) is None:
                    if self._is_closed:
                        return
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
            owner, future, work = next_one
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - raised in the waiting caller
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            with self._changed:
                self._working_for.discard(owner)
                if self._idle and self._waiting:
                    self._changed.notify()
            del next_one, owner, future, work

    def _next(self) -> tuple[object, Future[Any], Callable[[], Any]] | None:
        """Take the next piece of work that may start; None if there is none."""
        for owner, waiting in self._waiting.items():
            if owner not in self._working_for:
                future, work = waiting.popleft()
                del self._waiting[owner]
                if waiting:
                    self._waiting[owner] = waiting
                if owner is not None:
                    self._working_for.add(owner)
                return owner, future, work
        return None


_Waiting = deque[tuple[Future[Any], Callable[[], Any]]]

_PARSE_THREADS: Final = WorkThreads(2, "bodies")
ANSWER_THREAD: Final = WorkThreads(1, "answers")
"""Encodes large answers, so that they do not wait for the parsing of large bodies."""


async def at_once(ask: Callable[[X], Awaitable[T]], items: Iterable[X], most: int) -> list[T]:
    """Return the results of ``ask`` for each item; ``most`` calls run concurrently."""
    turns = asyncio.Semaphore(most)

    async def ask_in_turn(item: X) -> T:
        async with turns:
            return await ask(item)

    return await asyncio.gather(*map(ask_in_turn, items))


async def wait_at_most(seconds: float, event: asyncio.Event) -> None:
    """Wait until an event is set, for ``seconds`` at most."""
    # Not wait_for, which loses a cancellation that comes together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def in_thread(
    work: Callable[[], T], threads: WorkThreads = _PARSE_THREADS, *, owner: Owner | None = None
) -> T:
    """Run a function in a thread; it must not use data of the event loop.

    The default threads parse bodies from clients. Work for a closed connection is not started;
    otherwise a client that repeatedly sends large bodies and disconnects would queue unbounded
    work.

    :raises ConnectionLost: if the connection of ``owner`` is closed.
    """

    def begin() -> T:
        if owner is not None and not owner.is_open:
            raise ConnectionLost(owner.address, "the connection ended before its turn came")
        return work()

    return await asyncio.wrap_future(threads.submit(begin, owner))


async def parsed(work: Callable[[], T], body: bytes, owner: Owner | None = None) -> T:
    """Run a function that parses ``body``: in a thread if it is large."""
    return await in_thread(work, owner=owner) if len(body) > LARGE_BODY_BYTES else work()
