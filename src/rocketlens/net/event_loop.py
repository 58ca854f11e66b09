"""The event loop: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
import importlib
import signal
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

SWITCH_INTERVAL_S: Final = 0.0002
"""For how long another thread may keep a server's event loop from running Python.

Python's own 5 ms are the time of a hundred requests, and the loop waits them out whenever it comes
back from the network while a thread reads the log.
"""

CANCEL_PATIENCE_S: Final = 0.5
"""Seconds that cancelled work has to come to its end."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


_ASKED: Final = threading.Event()
"""Set when a signal asked a server of this process to end."""
END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
    """When a server is to end: ``ended`` once it is asked to, ``hurried`` when asked again."""

    def __init__(self, ended: asyncio.Event | None = None) -> None:
        """Take the event that others may set, too."""
        self.ended: Final = ended or asyncio.Event()
        self.hurried: Final = asyncio.Event()

    def ask(self) -> None:
        """Ask the server to end; a second time, to wait for nobody."""
        _ASKED.set()
        if self.ended.is_set():
            self.hurried.set()
        self.ended.set()


def end_on_signals(ended: asyncio.Event | None = None) -> StopRequest:
    """Return what SIGTERM, SIGINT and SIGHUP set from now on, in the running event loop.

    A SIGHUP that the process was started to ignore, as by ``nohup``, stays ignored. Outside the
    main thread there are no signals to handle: there ``ended`` is the caller's alone.
    """
    ending = StopRequest(ended)
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError, NotImplementedError):
        for number in END_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, ending.ask)
    return ending


async def within(
    work: Coroutine[Any, Any, T], timeout_s: float | None, cut: asyncio.Event | None = None
) -> T | None:
    """Run ``work`` for at most ``timeout_s`` seconds, and no longer than until ``cut`` is set.

    Then it is cancelled, and None is returned. Raises what it raises.
    """
    task = asyncio.get_running_loop().create_task(work)
    watch = None if cut is None else asyncio.get_running_loop().create_task(cut.wait())
    waits: set[asyncio.Task[Any]] = {task} if watch is None else {task, watch}
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if watch is not None:
            watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_PATIENCE_S)
    return task.result() if task.done() and not task.cancelled() else None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in a new event loop, as ``asyncio.run`` does; for a whole process.

    From then on its threads take turns after :data:`SWITCH_INTERVAL_S`. Once a signal has ended it,
    further ones are no longer taken: everything is closed, and they would change the exit code.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _ASKED.clear()
    results: list[T] = []

    async def keep_result() -> None:
        results.append(await main)

    # Kept beside the task: asyncio and signal make texts of the task and its result at the end,
    # and those of an answer of 512 MiB take 4 GiB.
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(keep_result())
        finally:
            if _ASKED.is_set():
                signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    return results[0]
