"""Listeners, which handle a consumer's messages, and how they are called.

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
import concurrent.futures
import inspect
import logging
import socket
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

import rocketlens
from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consumer_settings import PushSettings
from rocketlens.client.consume.pulling import OwnedQueue
from rocketlens.client.consume.send_back_calls import SendBack
from rocketlens.client.consume.session import GroupSession
from rocketlens.client.send.trace import EXCEPTION, FAILED, SUCCESS, TIME_OUT
from rocketlens.model.life import ConsumeFailure
from rocketlens.model.message import MessageExt
from rocketlens.net.pace import WorkThreads
from rocketlens.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumeResult

MAX_FAILURE_KINDS: Final = 100
"""Kinds of failures of a listener that are counted, by type and line. RocketMQ: logs each whole."""
MAX_RECONSUMES: Final = 16
"""Times that a message is delivered again before it goes to the dead letters. RocketMQ: 16."""
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


class ConsumeContext(Struct):
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


_NOT_THE_USERS: Final = tuple(
    str(Path(module.__file__ or "").parent) for module in (rocketlens, asyncio, concurrent.futures)
)
"""Where the code is that calls listeners."""


class ListenerFailures:
    """Logs what listeners raise, without a traceback for each of thousands of attempts.

    The first failure of a kind, which is a type and the line that raised it, is logged with its
    traceback, from the listener's own code on. Those that follow are one line with their number.
    """

    def __init__(self, group: str) -> None:
        self._group: Final = group
        self._counts: Final[Counter[tuple[str, str, int]]] = Counter()
        """By kind: the type of the error, and the file and the line that raised it."""

    def add(self, error: Exception, ids: str) -> None:
        """Log a failure of a listener with some messages."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            trace = trace.tb_next
        frames = traceback.extract_tb(trace)
        file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        kind = type(error).__name__, file, line
        if kind not in self._counts and len(self._counts) >= MAX_FAILURE_KINDS:
            self._counts.clear()
        self._counts[kind] += 1
        if trace is not None and self._counts[kind] == 1:
            exc_info = (type(error), error, trace)
            logger.warning("group %s: a listener failed at %s", self._group, ids, exc_info=exc_info)
            return
        where = f" ({file}:{line})" if file else ""
        text = " ".join(f"{kind[0]}: {error}".split())[: limits.MAX_SHOWN_CHARACTERS]
        logger.warning(
            "group %s: a listener failed at %s: %s%s, %d times now",
            *(self._group, ids, text, where, self._counts[kind]),
        )


class ConsumeService:
    """Gets what was pulled. This one does nothing: see `ConcurrentService`, `OrderlyService`."""

    is_orderly = False
    """Whether a queue is locked, and given up only when a listener has ended with it."""

    def start(self) -> None:
        """Begin."""

    def deliver(self, owned: OwnedQueue, messages: Sequence[MessageExt]) -> None:
        """Consume messages that were put into a queue's ``pq``."""

    async def may_pull(self, owned: OwnedQueue) -> bool:
        """Return whether a queue may be pulled now: an ordered one must be locked."""
        del owned
        return True

    async def acquire(self, queues: set[MessageQueue]) -> set[MessageQueue]:
        """Return those of the queues that can be begun now: ordered ones are locked for it."""
        return queues

    def began(self, owned: OwnedQueue) -> None:
        """Record that a queue that was acquired is pulled now."""

    async def release(self, owned: OwnedQueue) -> None:
        """Release a queue that is no longer pulled."""

    async def stop(self, wait_s: float) -> None:
        """Start no further messages, and wait so long for those that listeners have."""


class Called(Struct, frozen=True):
    """How a call of a listener went: what it returned, or raised."""

    returned: object
    raised: Exception | None
    took_s: float


_NEVER: Final = 2**31 - 1


class ListenerService(ConsumeService):
    """Delivers what was pulled to a listener, up to ``batch`` messages at once."""

    def __init__(
        self, session: GroupSession, settings: PushSettings, calls: ListenerCalls, batch: int
    ) -> None:
        self._session: Final = session
        self._settings: Final = settings
        self._calls: Final = calls
        self._batch: Final = batch
        most = settings.max_reconsume_times
        if most is None:
            most = _NEVER if self.is_orderly else MAX_RECONSUMES
        self._send_back: Final = SendBack(session.cluster, session.group, settings.namespace, most)
        self._clock: Final = settings.clock
        self._failures: Final = ListenerFailures(session.group)
        self._host: Final = socket.gethostname()

    async def consume_directly(
        self, message: MessageExt, queue: MessageQueue
    ) -> ConsumeMessageDirectlyResult:
        """Consume one message now, settle nothing, and return the outcome as a broker wants it."""
        context = ConsumeContext(self._session.shown_queue(queue))
        called = await self._call((self._session.shown(message),), context)
        if called.raised is not None:
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, described(called.raised)
        elif self._is_success(called.returned):
            result, remark = ConsumeResult.CR_SUCCESS, None
        else:
            result, remark = ConsumeResult.CR_LATER, None
            if not hasattr(called.returned, "name"):
                remark = f"the listener returned a {type(called.returned).__name__}"
        return ConsumeMessageDirectlyResult(
            order=self.is_orderly,
            consume_result=result,
            remark=remark,
            spent_time_ms=int(called.took_s * 1000),
        )

    def _failure(self, message: MessageExt, raised: Exception | None) -> str:
        """Return what the copy of a message says of why it was not consumed; empty for nothing."""
        if raised is None or not self._settings.record_failures:
            return ""
        return str(
            ConsumeFailure.of(self._session.group, message.reconsume_times, self._host, raised)
        )

    def _is_success(self, returned: object) -> bool:
        """Return whether what a listener returned says that it consumed its messages."""
        raise NotImplementedError

    async def _call_traced(self, messages: Sequence[MessageExt], context: ConsumeContext) -> Called:
        """Call the listener, and trace that it was called and how that ended; else as `_call`."""
        trace = self._session.trace
        if trace is None:
            return await self._call(messages, context)
        begun = trace.consume_begun(messages)
        called = await self._call(messages, context)
        is_late = called.took_s >= self._settings.consume_timeout_s
        if isinstance(called.raised, TimeoutError) or is_late:
            trace.consume_ended(begun, TIME_OUT)
        elif called.raised is not None:
            trace.consume_ended(begun, EXCEPTION)
        else:
            is_success = self._is_success(called.returned)
            trace.consume_ended(begun, SUCCESS if is_success else FAILED)
        return called

    async def _call(self, messages: Sequence[MessageExt], context: ConsumeContext) -> Called:
        """Call the listener; whatever it raises is logged and returned."""
        began_s = self._clock()
        returned: object = None
        raised: Exception | None = None
        try:
            returned = await self._calls.call(messages, context)
        except Exception as error:  # noqa: BLE001 - a listener may raise anything; it is logged
            raised = error
            self._failures.add(error, ", ".join(each.msg_id for each in messages))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The listener cancelled itself, or awaited something that was.
            raised = RuntimeError(f"the listener was cancelled: {error}")
        return Called(returned, raised, self._clock() - began_s)


def described(error: Exception) -> str:
    """Return an error and where it was raised, in one line, as RocketMQ's tools show it."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text}, {frames[-1].name}" if frames else text
