"""Who waits for the disk: answers to sends that must not leave before their message is durable.

The store's flush thread says when a round of syncing has ended; here that is taken to the event
loop in one step for all who were served by it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rocketlens.errors import StoreFailed
from rocketlens.net.channel import Response
from rocketlens.wire.codes import ResponseCode

WhenDurable = Callable[[int, Callable[[StoreFailed | None], None]], None]


class Durable:
    """Answers that wait; belongs to the running event loop.

    ``when_durable`` is the store's: it calls back, from any thread, when the log is durable below
    an offset.
    """

    def __init__(self, when_durable: WhenDurable, timeout_ms: int) -> None:
        self._when_durable: Final = when_durable
        self._timeout_s: Final = timeout_ms / 1000
        self._loop: Final = asyncio.get_running_loop()
        self._served: Final[deque[tuple[_Held, StoreFailed | None]]] = deque()
        self._is_woken = False

    def answer(self, end_offset: int, response: Response) -> "asyncio.Future[Response | None]":
        """Return ``response`` once the log is durable below ``end_offset``.

        After the timeout it is given with code 10, FLUSH_DISK_TIMEOUT; the future fails with
        StoreFailed when the log can never become durable.
        """
        held = _Held(self._loop, response)
        held.timer = self._loop.call_later(self._timeout_s, held.expire)
        self._when_durable(end_offset, lambda failure: self._serve(held, failure))
        return held.future

    def _serve(self, held: "_Held", failure: StoreFailed | None) -> None:
        self._served.append((held, failure))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._is_woken = False
        while self._served:
            held, failure = self._served.popleft()
            held.end(failure)


class _Held:
    """One answer."""

    __slots__ = ("future", "response", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, response: Response) -> None:
        self.future: asyncio.Future[Response | None] = loop.create_future()
        self.response = response
        self.timer: asyncio.TimerHandle | None = None

    def expire(self) -> None:
        if not self.future.done():
            self.future.set_result(self.response._replace(code=ResponseCode.FLUSH_DISK_TIMEOUT))

    def end(self, failure: StoreFailed | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(self.response)
        else:
            self.future.set_exception(failure)
