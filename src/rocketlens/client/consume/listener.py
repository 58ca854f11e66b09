"""What a program gives a consumer to handle messages with, and how it is called.

A listener is an async function, or a plain one, which runs in a thread so that it may block::

    async def listener(messages, context): ...
    def listener(messages, context): ...

==============================  ================================================================
a listener of ``listen``        then
==============================  ================================================================
returns None, CONSUME_SUCCESS   the messages are consumed (those up to ``context.ack_index``, if
                                it was set; the rest is consumed again later)
returns RECONSUME_LATER         they are consumed again later, after a delay that grows
raises, or returns anything     the same, and it is logged
else, or takes over 15 minutes
==============================  ================================================================

A listener of ``listen_orderly`` returns None or SUCCESS, or SUSPEND_CURRENT_QUEUE_A_MOMENT to have
the same messages again after a pause; raising is the same as that.

In Java null means "later". A Python function that just ends returns None, so here it is success.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from rocketlens.client.connect.route import MessageQueue
from rocketlens.model.message import MessageExt
from rocketlens.net.pace import WorkThreads

logger: Final = logging.getLogger("rocketlens.client")


class ConsumeConcurrentlyStatus(Enum):
    """The result of a listener of messages whose order does not matter."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """The result of a listener of messages that are consumed in order."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class Abandoned(Enum):
    """The result of this package's own listeners for messages that will not be handled."""

    ABANDONED = "ABANDONED"


@dataclass(slots=True)
class ConsumeContext:
    """The context of a call of a listener, of which it may set fields."""

    message_queue: MessageQueue
    delay_level: int = 0
    """When failed messages come again: 0 as RocketMQ does it (later each time), 1 to 18 after that
    delay, -1 never: they go to the dead letters."""
    ack_index: int | None = None
    """The last message that succeeded, counted from 0, -1 for none; None for all."""
    suspend_s: float | None = None
    """For how long an ordered queue rests after SUSPEND_CURRENT_QUEUE_A_MOMENT."""


Outcome = ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | Abandoned | None
Listener = Callable[[Sequence[MessageExt], ConsumeContext], Awaitable[Outcome] | Outcome]


class ListenerHung(Exception):
    """An async listener took longer than the consume timeout, and was cancelled."""


class ListenerCalls:
    """Calls a listener: an async one in the event loop, a plain one in one of ``threads``."""

    def __init__(self, listener: Listener, threads: int, timeout_s: float) -> None:
        self._listener: Final = listener
        self._timeout_s: Final = timeout_s
        self.is_async: Final = inspect.iscoroutinefunction(listener) or (
            inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004
        )
        self._threads: Final = None if self.is_async else WorkThreads(threads, "listener")

    async def call(self, messages: Sequence[MessageExt], context: ConsumeContext) -> object:
        """Return what the listener returns, or raise what it raises.

        A plain listener is waited for however long it takes: a thread cannot be ended.

        :raises ListenerHung: when an async one took too long.
        """
        if self._threads is None:
            return await self._timed(self._listener(messages, context))
        result = await self._threads.call(lambda: self._listener(messages, context))
        return await self._timed(result) if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Let idle threads end; those in a listener end with it."""
        if self._threads is not None:
            self._threads.close()

    async def _timed(self, work: Any) -> object:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise ListenerHung(f"no end after {self._timeout_s:g} s") from None
            raise
