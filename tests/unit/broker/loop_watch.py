"""Says which piece of work held an event loop for too long.

Measured is the CPU time of the loop's own thread for each callback that it runs, so a machine that
is busy with something else does not count, and neither does the garbage collector.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from rocketlens.net.channel import Channel
from rocketlens.wire.command import RemotingCommand

MAX_CPU_S: Final = 0.020


class Held(NamedTuple):
    """A piece of work, and the CPU time that it took."""

    cpu_s: float
    work: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.cpu_s * 1000:.1f} ms: {self.work}"


class LoopWatch:
    """What was seen: ``longest`` piece of work, and all that took over ``max_cpu_s``."""

    def __init__(self, max_cpu_s: float = MAX_CPU_S) -> None:
        """Begin with nothing seen."""
        self.max_cpu_s: Final = max_cpu_s
        self.longest = Held(0.0, "nothing")
        self.too_long: Final[list[Held]] = []
        self.count = 0
        self._codes: Final[list[int]] = []
        self._collecting_s = 0.0
        self._collection_began = 0.0

    def check(self) -> None:
        """Make sure that no piece of work took too long.

        :raises AssertionError: with those that did.
        """
        if self.too_long:
            raise AssertionError("on the event loop: " + "; ".join(map(str, self.too_long)))

    def run(self, handle: asyncio.Handle, callback: Callable[[asyncio.Handle], Any]) -> None:
        """Run one callback of a loop."""
        self._codes.clear()
        self._collecting_s = 0.0
        work = _name_of(handle)
        began = time.thread_time()
        try:
            callback(handle)
        finally:
            cpu_s = time.thread_time() - began - self._collecting_s
            self.count += 1
            if cpu_s > min(self.longest.cpu_s, self.max_cpu_s):
                codes = f" with requests {self._codes[:10]}" if self._codes else ""
                held = Held(cpu_s, f"{work}{codes}")
                self.longest = max(self.longest, held)
                if cpu_s > self.max_cpu_s:
                    self.too_long.append(held)

    def serve(self, command: RemotingCommand) -> None:
        """Note a request that the callback of now handles."""
        self._codes.append(command.code)

    def collecting(self, phase: str, _: dict[str, int]) -> None:
        """Note the time that the garbage collector takes."""
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collecting_s += time.thread_time() - self._collection_began


@contextmanager
def watched_loops(max_cpu_s: float = MAX_CPU_S) -> Iterator[LoopWatch]:
    """Watch asyncio's own event loops of this process; for one thread that runs one at a time.

    Loops of other makes, such as uvloop's, are not seen.
    """
    watch = LoopWatch(max_cpu_s)
    run, serve = asyncio.Handle._run, Channel._serve

    def watched_run(handle: asyncio.Handle) -> None:
        watch.run(handle, run)

    def watched_serve(channel: Channel, command: RemotingCommand) -> None:
        watch.serve(command)
        serve(channel, command)

    asyncio.Handle._run = watched_run  # type: ignore[method-assign]
    Channel._serve = watched_serve  # type: ignore[method-assign]
    gc.callbacks.append(watch.collecting)
    try:
        yield watch
    finally:
        gc.callbacks.remove(watch.collecting)
        asyncio.Handle._run = run  # type: ignore[method-assign]
        Channel._serve = serve  # type: ignore[method-assign]


def _name_of(handle: asyncio.Handle) -> str:
    """Return what a callback is: the coroutine of a task's step, else the function."""
    callback = getattr(handle, "_callback", None)
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"a step of {getattr(task.get_coro(), '__qualname__', task)}"
    return getattr(callback, "__qualname__", repr(callback))
