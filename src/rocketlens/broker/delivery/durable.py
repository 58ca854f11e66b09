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

    ``disk`` and ``slaves`` are None where a send does not wait for them.
    """

    def __init__(self, disk: "GroupCommitReplies | None", slaves: Replicas | None) -> None:
        self._disk: Final = disk
        self._slaves: Final = slaves
        self.is_needed: Final = disk is not None or slaves is not None
        """Whether a send waits for anything."""

    def reply(self, end_offset: int, response: Response) -> Pending:
        """Return ``response`` once the log is safe below ``end_offset``, or why it is not.

        Fails with StoreFailed if the log can never become durable.
        """
        if self._disk is None:
            return self._at_slave(end_offset, response)
        durable = self._disk.reply_when_durable(end_offset, response)
        if self._slaves is None:
            return durable
        return asyncio.ensure_future(_both(durable, self._at_slave(end_offset, response)))

    def _at_slave(self, end_offset: int, response: Response) -> Pending:
        return (
            response
            if self._slaves is None
            else self._slaves.reply_when_copied(end_offset, response)
        )


async def _both(durable: asyncio.Future[Response | None], at_slave: Pending) -> Response | None:
    """Wait for both."""
    here = await durable
    there = at_slave if isinstance(at_slave, Response) else await at_slave
    return here if there is None or there.code == ResponseCode.SUCCESS else there


class GroupCommitReplies:
    """Pending responses of group commit; belongs to the running event loop.

    ``when_durable`` is the store's: it calls back, in any thread, when the log is durable below an
    offset.
    """

    def __init__(self, when_durable: WhenDurable, timeout_ms: int) -> None:
        self._when_durable: Final = when_durable
        self._timeout_s: Final = timeout_ms / 1000
        self._loop: Final = asyncio.get_running_loop()
        self._durable: Final[deque[tuple[PendingReply, StoreFailed | None]]] = deque()
        self._is_scheduled = False

    def reply_when_durable(
        self, end_offset: int, response: Response
    ) -> "asyncio.Future[Response | None]":
        """Return ``response`` once the log is durable below ``end_offset``.

        After the timeout its code is 10, FLUSH_DISK_TIMEOUT. The future fails with StoreFailed if
        the log can never become durable.
        """
        late = ResponseCode.FLUSH_DISK_TIMEOUT
        pending = PendingReply(self._loop, response, self._timeout_s, late)
        self._when_durable(end_offset, lambda failure: self._on_durable(pending, failure))
        return pending.future

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
