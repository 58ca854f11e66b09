"""A thread for long look-ups: they run in pieces of a millisecond, each connection in its turn.

A look-up is a generator. It yields after each piece, is sent whether its time is over, and then
ends with what it has found. So no connection waits for another's whole look-up, only for one piece
of each other connection.

Look-ups that have not begun go first and have the larger share of turns: those that need only one
piece end soon, even if long ones run, also of the same connection. The long look-ups of one
connection run one after another.
"""

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from rocketlens.errors import RocketLensError
from rocketlens.net.pace import Owner
from rocketlens.wire.codes import ResponseCode

MAX_LOOK_UP_TURN_S: Final = 0.001
"""Seconds that one look-up has the thread of look-ups before others have their turn."""
T = TypeVar("T")
Work = Generator[None, bool | None, T]
"""Yields after each piece, and is sent True when its time is over: then it ends with what
it found so far.
"""

FRESH_TURNS: Final = 4
"""Turns of look-ups that begin, for each turn of those that continue."""


class LookUpLimits(NamedTuple):
    """Bounds for look-ups: how many wait, how long they wait, and how long they run."""

    of_one: int
    """Maximum of one connection."""
    of_all: int
    work_s: float
    """Seconds of the thread's processor time, for this look-up and for others since its request."""
    wait_s: float
    """Seconds of elapsed time."""


class Busy(RocketLensError):
    """A look-up is refused, or dropped before it began, because there are too many."""

    code = ResponseCode.SYSTEM_BUSY
    retriable = True


class Piece:
    """Measures the time of a piece; starts when it is created."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + MAX_LOOK_UP_TURN_S

    @property
    def is_over(self) -> bool:
        """Return whether it is time to yield."""
        return time.perf_counter() > self._until

    def begin(self) -> None:
        """Start the next piece."""
        self._until = time.perf_counter() + MAX_LOOK_UP_TURN_S


@dataclass(slots=True, eq=False)
class _Job:
    """A look-up that waits or runs."""

    owner: Owner | None
    work: Work[Any]
    future: asyncio.Future[Any]
    deadline_s: float
    worked_until_s: float
    pieces: int = 0
    """Number of pieces done."""

    @property
    def has_begun(self) -> bool:
        """Whether a piece was done."""
        return self.pieces > 0


class Turns:
    """One thread and its queue; created and used in one event loop.

    The owner ``None`` is the broker itself, whose work has no bounds.
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
        """Of all look-ups; the broker's own work does not count."""
        self._loop: Final = asyncio.get_running_loop()
        self._working: Final = threading.Lock()
        """Held during each piece, and by the event loop while it reads the end of the log."""
        self._changed: Final = threading.Condition()
        """Guards the attributes below."""
        self._jobs: Final[dict[Owner | None, deque[_Job]]] = {}
        self._new_owners: Final[OrderedDict[Owner | None, None]] = OrderedDict()
        self._started_owners: Final[OrderedDict[Owner | None, None]] = OrderedDict()
        """Owners whose first look-up has not begun, and owners whose has, each in the order of
        turns.
        """
        self._current: _Job | None = None
        self._abandoned: Final[list[_Job]] = []
        """Jobs that were begun, then dropped."""
        self._count = self._turn = 0
        self._is_closed = False
        self._thread: Final = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def waiting(self) -> int:
        """Number of look-ups that wait or run."""
        return self._count

    def try_begin(self, owner: Owner | None) -> bool:
        """Keep the thread from working until :meth:`end`; False if it works or the owner is queued.

        For work of some milliseconds at most, on the event loop.
        """
        return owner not in self._jobs and self._working.acquire(blocking=False)

    def end(self) -> None:
        """Let the thread work again."""
        self._working.release()

    def put(self, owner: Owner | None, work: Work[T]) -> "asyncio.Future[T]":
        """Queue a look-up; the future has its result or its error.

        :raises Busy: if too many wait.
        """
        bounds = self.bounds
        future: asyncio.Future[T] = self._loop.create_future()
        deadline_s = self._clock() + bounds.wait_s
        job = _Job(owner, work, future, deadline_s, self._worked_s + bounds.work_s)
        with self._changed:
            jobs = self._jobs.get(owner)
            if self._is_closed:
                raise Busy("the broker is stopping")
            if owner is not None and jobs is not None and len(jobs) >= bounds.of_one:
                raise Busy(f"{bounds.of_one} look-ups of this connection wait already: ask later")
            if owner is not None and self._count >= bounds.of_all:
                raise Busy(f"{bounds.of_all} look-ups wait already: ask later")
            self._count += 1
            if jobs is not None:
                _add_new(jobs, job)
            else:
                self._jobs[owner] = deque((job,))
                self._new_owners[owner] = None
                self._changed.notify()
            if not self._thread.ident:
                self._thread.start()
        return future

    def drop(self, owner: Owner) -> None:
        """Drop the look-ups of a closed connection; their futures are cancelled."""
        with self._changed:
            jobs = self._jobs.pop(owner, None)
            if jobs is None:
                return
            self._new_owners.pop(owner, None)
            self._started_owners.pop(owner, None)
            self._count -= len(jobs)
            jobs_begun = (job for job in jobs if job.has_begun and job is not self._current)
            self._abandoned.extend(jobs_begun)
            self._changed.notify()
        for job in jobs:
            job.future.cancel()

    def close(self) -> None:
        """Wait for the current piece; all remaining futures are cancelled."""
        with self._changed:
            self._is_closed = True
            jobs = [job for each in self._jobs.values() for job in each]
            self._changed.notify()
        if self._thread.ident:
            self._thread.join()
        for job in jobs:
            job.work.close()
            job.future.cancel()

    def _run(self) -> None:
        """Run pieces, in the thread, until closed."""
        while True:
            with self._changed:
                while not self._jobs and not self._abandoned and not self._is_closed:
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
            # Release the lock first: a caller that receives the result finds the thread free.
            if outcome is not None and job is not None:
                # The loop is closed if it did not wait for its broker to stop.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(_give, job.future, *outcome)

    def _next(self) -> _Job | None:
        """Return the job whose turn it is."""
        self._turn += 1
        ring = self._new_owners
        if not ring or (self._started_owners and self._turn % (FRESH_TURNS + 1) == 0):
            ring = self._started_owners
        return self._jobs[next(iter(ring))][0] if ring else None

    def _run_piece(self, job: _Job) -> tuple[Any, Exception | None] | None:
        """Run a piece of a look-up; return its result or its error if that was the last."""
        owner, work = job.owner, job.work
        is_late = owner is not None and (
            self._worked_s > job.worked_until_s or self._clock() > job.deadline_s
        )
        began_s = self._work_clock()
        try:
            if owner is not None and not owner.is_open:
                work.close()
                return None, Busy("the connection is gone")
            if not job.has_begun and is_late:
                work.close()
                problem = "too many look-ups wait: this one could not begin in time: ask later"
                return None, Busy(problem)
            work.send(is_late if job.has_begun else None)
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
        """Queue the owner again, behind the others, if it has more work."""
        with self._changed:
            self._current = None
            jobs = self._jobs.get(job.owner)
            if jobs is None or jobs[0] is not job:
                # Dropped meanwhile.
                self._abandoned.append(job)
                return
            self._new_owners.pop(job.owner, None)
            self._started_owners.pop(job.owner, None)
            if is_done:
                jobs.popleft()
                self._count -= 1
            elif len(jobs) > 1 and (job.pieces == 1 or not jobs[1].has_begun):
                jobs.rotate(-1)
            if jobs:
                (self._started_owners if jobs[0].has_begun else self._new_owners)[job.owner] = None
            else:
                del self._jobs[job.owner]


def _add_new(jobs: deque[_Job], job: _Job) -> None:
    """Queue a look-up behind the first, which may be running, and before all that have begun."""
    index = len(jobs)
    while index > 1 and jobs[index - 1].has_begun:
        index -= 1
    jobs.insert(index, job)


def _give(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    """Set the result of a future, in the event loop."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
