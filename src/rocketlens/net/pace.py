"""Work that grows with what there is, done so that the event loop stays free for others.

What reads tables of the event loop's own is done on it, in pieces of a few milliseconds
(:class:`Pace`). What only makes bytes of values, or values of bytes, goes to a thread
(:func:`in_thread`), where it is more than a little.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

MAX_PIECE_S: Final = 0.002
"""Seconds of work before others have a turn."""
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
        if perf_counter() - self._since > MAX_PIECE_S:
            await asyncio.sleep(0)
            self._since = perf_counter()


async def in_thread(work: Callable[[], T]) -> T:
    """Do something in a thread; it must not touch what belongs to the event loop."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
