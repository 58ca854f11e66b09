"""Responses to sends that wait until their message is durable.

The store's flush thread calls back when a round of syncing has ended. All responses that this round
made durable are sent in one step of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rocketlens.errors import StoreFailed
from rocketlens.net.channel import Response
from rocketlens.wire.codes import ResponseCode

WhenDurable = Callable[[int, Callable[[StoreFailed | None], None]], None]


class GroupCommitReplies:
    """Pending responses of group commit; belongs to the running event loop.

    ``when_durable`` is the store's: it calls back, in any thread, when the log is durable below an
    offset.
    """

    def __init__(self, when_durable: WhenDurable, timeout_ms: int) -> None:
        self._when_durable: Final = when_durable
        self._timeout_s: Final = timeout_ms / 1000
        self._loop: Final = asyncio.get_running_loop()
        self._durable: Final[deque[tuple[_PendingReply, StoreFailed | None]]] = deque()
        self._is_scheduled = False

    def reply_when_durable(
        self, end_offset: int, response: Response
    ) -> "asyncio.Future[Response | None]":
        """Return ``response`` once the log is durable below ``end_offset``.

        After the timeout its code is 10, FLUSH_DISK_TIMEOUT. The future fails with StoreFailed if
        the log can never become durable.
        """
        pending = _PendingReply(self._loop, response)
        pending.timer = self._loop.call_later(self._timeout_s, pending.expire)
        self._when_durable(end_offset, lambda failure: self._on_durable(pending, failure))
        return pending.future

    def _on_durable(self, pending: "_PendingReply", failure: StoreFailed | None) -> None:
        self._durable.append((pending, failure))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._send_all)

    def _send_all(self) -> None:
        self._is_scheduled = False
        while self._durable:
            pending, failure = self._durable.popleft()
            pending.end(failure)


class _PendingReply:
    """A response, and its timeout."""

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
