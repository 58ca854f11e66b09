"""The event loop: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
import importlib
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

SWITCH_INTERVAL_S: Final = 0.0002
"""For how long another thread may keep a server's event loop from running Python.

Python's own 5 ms are the time of a hundred requests, and the loop waits them out whenever it comes
back from the network while a thread reads the log.
"""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


def end_on_signals(ended: asyncio.Event | None = None) -> asyncio.Event:
    """Give an event that SIGTERM and SIGINT set, from now on, in the running event loop.

    Outside the main thread there are no signals to handle: there it is the caller's alone.
    """
    event = ended or asyncio.Event()
    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError, NotImplementedError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, event.set)
    return event


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in a new event loop, as ``asyncio.run`` does; for a whole process.

    From then on its threads take turns after :data:`SWITCH_INTERVAL_S`.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
