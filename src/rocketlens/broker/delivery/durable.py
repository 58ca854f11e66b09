"""Responses to sends that wait until their message is durable: here, at a slave, or both.

The store's flush thread calls back when a round of syncing has ended. All responses that this round
made durable are sent in one step of the event loop.

====================  =============================  ===========================================
``flushDiskType``     ``brokerRole``                 a send waits for
====================  =============================  ===========================================
ASYNC_FLUSH           ASYNC_MASTER                   nothing
SYNC_FLUSH            ASYNC_MASTER                   the disk
ASYNC_FLUSH           SYNC_MASTER                    a slave
SYNC_FLUSH            SYNC_MASTER                    both; if both are late, its code is the slave's
====================  =============================  ===========================================
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from rocketlens.broker.replication.replicas import PendingReply, Replicas
from rocketlens.errors import StoreFailed
from rocketlens.net.channel import Response
from rocketlens.wire.codes import ResponseCode

Pending = Response | asyncio.Future[Response | None]
WhenDurable = Callable[[int, Callable[[StoreFailed | None], None]], None]


class SafeReplies:
    """Responses to sends, when their messages are as safe as the configuration wants.

    ``when_durable`` and ``slaves`` are None where a send does not wait for them. The first is the
    store's: it calls back, in any thread, when the log is durable below an offset. Belongs to the
    running event loop.
    """

    def __init__(
        self, when_durable: WhenDurable | None, timeout_ms: int, slaves: Replicas | None
    ) -> None:
        self._when_durable: Final = when_durable
        self._timeout_s: Final = timeout_ms / 1000
        self._slaves: Final = slaves
        self.is_needed: Final = when_durable is not None or slaves is not None
        """Whether a send waits for anything."""
        self._loop: Final = asyncio.get_running_loop()
        self._durable: Final[deque[tuple[PendingReply, StoreFailed | None]]] = deque()
        self._is_scheduled = False

    def reply(self, end_offset: int, response: Response) -> Pending:
        """Return ``response`` once the log is safe below ``end_offset``, or why it is not.

        If the disk is late its code is 10, FLUSH_DISK_TIMEOUT. Fails with StoreFailed if the log
        can never become durable.
        """
        if self._when_durable is None:
            return self._at_slave(end_offset, response)
        late = ResponseCode.FLUSH_DISK_TIMEOUT
        pending = PendingReply(self._loop, response, self._timeout_s, late)
        self._when_durable(end_offset, lambda failure: self._on_durable(pending, failure))
        if self._slaves is None:
            return pending.future
        return asyncio.ensure_future(_both(pending.future, self._at_slave(end_offset, response)))

    def _at_slave(self, end_offset: int, response: Response) -> Pending:
        slaves = self._slaves
        return response if slaves is None else slaves.reply_when_copied(end_offset, response)

    def _on_durable(self, pending: PendingReply, failure: StoreFailed | None) -> None:
        self._durable.append((pending, failure))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._send_all)

    def _send_all(self) -> None:
        self._is_scheduled = False
        while self._durable:
            pending, failure = self._durable.popleft()
            pending.end(failure)


async def _both(durable: asyncio.Future[Response | None], at_slave: Pending) -> Response | None:
    """Wait for both."""
    here = await durable
    there = at_slave if isinstance(at_slave, Response) else await at_slave
    return here if there is None or there.code == ResponseCode.SUCCESS else there
