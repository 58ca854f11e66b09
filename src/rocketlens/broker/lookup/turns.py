"""Runs look-ups in a thread, in pieces of a millisecond, with turns for each connection.

A look-up is a generator. It yields after each piece and receives True if its time is over; then it
returns its matches. So no connection waits for a whole look-up of another one.

New look-ups have the larger share of turns: those that need only one piece end soon, even during
long ones of the same connection. The long look-ups of one connection run one after another.
"""

import asyncio
import itertools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from rocketlens.errors import RocketLensError
from rocketlens.net.pace import Owner
from rocketlens.wire.codes import ResponseCode

MAX_LOOK_UP_TURN_S: Final = 0.001
"""Seconds of one piece of a look-up."""
T = TypeVar("T")
Work = Generator[None, bool | None, T]
"""Yields after each piece, and receives True if its time is over: then it returns its matches."""

FRESH_TURNS: Final = 4
"""Turns of new look-ups for each turn of continued ones."""


class LookUpLimits(NamedTuple):
    """Bounds on the number, waiting time and running time of look-ups."""

    of_one: int
    of_all: int
    work_s: float
    """Processor time of the thread since the request, for this look-up and others."""
    wait_s: float


class Busy(RocketLensError):
    """A look-up is refused, or dropped before its first piece, because too many wait."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


def piece_end_s() -> float:
    return time.perf_counter() + MAX_LOOK_UP_TURN_S


class _Job(Struct, eq=False):
    """A look-up that waits or runs."""

    owner: Owner | None
    work: Work[Any]
    future: asyncio.Future[Any]
    deadline_s: float
    worked_until_s: float
    pieces: int = 0
    is_dropped: bool = False


_Ring = OrderedDict[Owner | None, deque[_Job]]
"""Look-ups by owner; the first owner has the next turn."""


class Turns:
    """One thread and its queue; created and used in one event loop.

    The owner ``None`` is the broker itself, whose work is unbounded.
    """

    def __init__(
        self,
        name: str,
        bounds: LookUpLimits,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """``work_clock`` returns the processor time of the calling thread."""
        self.bounds: Final = bounds
        self._clock: Final = clock
        self._work_clock: Final = work_clock
        self._worked_s = 0.0
        """Processor time of all look-ups, without the broker's own work."""
        self._loop: Final = asyncio.get_running_loop()
        self._working: Final = threading.Lock()
        """Held during each piece, and by the event loop while it reads the end of the log."""
        self._changed: Final = threading.Condition()
        """Guards the attributes below."""
        self._waiting: Final[Counter[Owner | None]] = Counter()
        """Look-ups of each owner that wait or run."""
        self._fresh: Final[_Ring] = OrderedDict()
        self._begun: Final[_Ring] = OrderedDict()
        self._current: _Job | None = None
        self._abandoned: Final[list[_Job]] = []
        """Jobs that were started, then dropped."""
        self._count = self._turn = 0
        self._is_closed = False
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def waiting(self) -> int:
        return self._count

    def try_begin(self, owner: Owner | None) -> bool:
        """Block the thread until :meth:`end`; return False if it works or ``owner`` waits for
        it.
        """
        return owner not in self._waiting and self._working.acquire(blocking=False)

    def end(self) -> None:
        """Unblock the thread."""
        self._working.release()

    def put(self, owner: Owner | None, work: Work[T]) -> "asyncio.Future[T]":
        """Queue a look-up; raises Busy if too many wait."""
        bounds = self.bounds
        future: asyncio.Future[T] = self._loop.create_future()
        deadline_s = self._clock() + bounds.wait_s
        job = _Job(owner, work, future, deadline_s, self._worked_s + bounds.work_s)
        with self._changed:
            if self._is_closed:
                raise Busy("the broker is stopping")
            if owner is not None and self._waiting[owner] >= bounds.of_one:
                raise Busy(f"{bounds.of_one} look-ups of this connection wait: try again later")
            if owner is not None and self._count >= bounds.of_all:
                raise Busy(f"{bounds.of_all} look-ups wait: try again later")
            self._waiting[owner] += 1
            self._count += 1
            self._fresh.setdefault(owner, deque()).append(job)
            self._changed.notify()
            if not self._thread.ident:
                self._thread.start()
        return future

    def drop(self, owner: Owner) -> None:
        """Drop the look-ups of a closed connection; their futures are cancelled."""
        with self._changed:
            if owner not in self._waiting:
                return
            begun = self._begun.pop(owner, ())
            jobs = [*begun, *self._fresh.pop(owner, ())]
            if self._current is not None and self._current.owner is owner:
                jobs.append(self._current)
            self._abandoned.extend(begun)
            self._count -= self._waiting.pop(owner)
            for job in jobs:
                job.is_dropped = True
            self._changed.notify()
        for job in jobs:
            job.future.cancel()

    def close(self) -> None:
        """Wait for the current piece; cancel all remaining futures."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.ident:
            self._thread.join()
        for ring in (self._fresh, self._begun):
            for job in itertools.chain.from_iterable(ring.values()):
                job.work.close()
                job.future.cancel()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._fresh or self._begun or self._abandoned or self._is_closed):
                    self._changed.wait()
                if self._is_closed:
                    return
                dropped, self._abandoned[:] = self._abandoned[:], []
                job = self._current = self._next()
            outcome = None
            with self._working:
                for each in dropped:
                    each.work.close()
                if job is not None:
                    outcome = self._run_piece(job)
            if job is not None:
                self._on_done(job, is_done=outcome is not None)
            # After the release of the lock: the receiver of the result finds the thread free.
            if outcome is not None and job is not None:
                # The loop may be closed already.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_give, job.future, *outcome)

    def _next(self) -> _Job | None:
        self._turn += 1
        ring = self._fresh
        if not ring or (self._begun and self._turn % (FRESH_TURNS + 1) == 0):
            ring = self._begun
        if not ring:
            return None
        owner, jobs = ring.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            ring[owner] = jobs
        return job

    def _run_piece(self, job: _Job) -> tuple[Any, Exception | None] | None:
        """Run a piece of a look-up; return its result or error after the last one."""
        owner, work = job.owner, job.work
        is_late = owner is not None and (
            self._worked_s > job.worked_until_s or self._clock() > job.deadline_s
        )
        began_s = self._work_clock()
        try:
            if owner is not None and not owner.is_open:
                work.close()
                return None, Busy("the connection is closed")
            if not job.pieces and is_late:
                work.close()
                return None, Busy("too many look-ups wait: this one timed out; try again later")
            work.send(is_late if job.pieces else None)
            job.pieces += 1
        except StopIteration as end:
            return end.value, None
        except Exception as error:  # noqa: BLE001 - raised in the caller
            return None, error
        finally:
            if owner is not None:
                self._worked_s += self._work_clock() - began_s
        return None

    def _on_done(self, job: _Job, *, is_done: bool) -> None:
        """Remove a finished look-up; queue another one again, after those of other owners."""
        with self._changed:
            self._current = None
            if job.is_dropped:
                self._abandoned.append(job)
            elif is_done:
                self._count -= 1
                self._waiting[job.owner] -= 1
                if not self._waiting[job.owner]:
                    del self._waiting[job.owner]
            else:
                jobs = self._begun.setdefault(job.owner, deque())
                (jobs.append if job.pieces == 1 else jobs.appendleft)(job)


def _give(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
