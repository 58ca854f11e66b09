"""Calls listeners, which process a consumer's messages.

A listener is an async function, or a plain one, which runs in a thread and may block::

    async def listener(messages, context): ...
    def listener(messages, context): ...

==============================  ================================================================
result of a ``listen`` listener effect
==============================  ================================================================
None, CONSUME_SUCCESS           the messages are consumed: all, or those up to
                                ``context.ack_index``; the others are delivered again
RECONSUME_LATER                 they are delivered again after a growing delay
an exception, any other value,  the same, and it is logged
a run of over 15 minutes
==============================  ================================================================

A listener of ``listen_orderly`` returns None or SUCCESS, or SUSPEND_CURRENT_QUEUE_A_MOMENT to get
the same messages again after a pause. An exception has the same effect.

In Java null means "later". In Python, a function without a return statement returns None, so None
is success.
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
"""Kinds of listener failures that are counted, by type and line. RocketMQ: logs each in full."""
MAX_RECONSUMES: Final = 16
"""Deliveries of a message after the first, before it becomes a dead letter. RocketMQ: 16."""
logger: Final = logging.getLogger("rocketlens.client")


class ConsumeConcurrentlyStatus(Enum):
    """The result of a listener whose messages have no order."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """The result of a listener that consumes messages in order."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


class Abandoned(Enum):
    """The result of the internal listener for messages that will not be processed."""

    ABANDONED = "ABANDONED"


class ConsumeContext(Struct):
    """The context of a listener call. A listener may set its fields."""

    message_queue: MessageQueue
    delay_level: int = 0
    """The delay of failed messages: 0 as in RocketMQ (longer each time), 1 to 18 for a fixed
    delay level, -1 to send them to the dead letters.
    """
    ack_index: int | None = None
    """The index of the last consumed message, from 0; -1 for none, None for all."""
    suspend_s: float | None = None
    """The pause of an ordered queue after SUSPEND_CURRENT_QUEUE_A_MOMENT."""


Outcome = ConsumeConcurrentlyStatus | ConsumeOrderlyStatus | Abandoned | None
Listener = Callable[[Sequence[MessageExt], ConsumeContext], Awaitable[Outcome] | Outcome]


class ListenerHung(Exception):
    """An async listener exceeded the consume timeout and was cancelled."""


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
        """Return the listener's result, or raise its exception.

        A plain listener has no timeout: its thread cannot be ended.

        :raises ListenerHung: if an async listener took too long.
        """
        if self._threads is None:
            return await self._timed(self._listener(messages, context))
        result = await self._threads.call(lambda: self._listener(messages, context))
        return await self._timed(result) if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Let idle threads end, and busy ones after their listener call."""
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


_CALLER_DIRECTORIES: Final = tuple(
    str(Path(module.__file__ or "").parent) for module in (rocketlens, asyncio, concurrent.futures)
)


class ListenerFailures:
    """Logs the exceptions of listeners without a traceback for each of thousands of attempts.

    The first failure of a kind (its type and the line that raised it) is logged with the traceback
    from the listener on. Later ones take one line, with their count.
    """

    def __init__(self, group: str) -> None:
        self._group: Final = group
        self._counts: Final[Counter[tuple[str, str, int]]] = Counter()
        """Counts by type of the exception, and the file and line that raised it."""

    def add(self, error: Exception, ids: str) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(
            _CALLER_DIRECTORIES
        ):
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
    """Receives pulled messages. The base of `ConcurrentService` and `OrderlyService`."""

    is_orderly = False
    """True if queues are locked, and released only after the listener has returned."""

    def start(self) -> None:
        """Start workers."""

    def deliver(self, owned: OwnedQueue, messages: Sequence[MessageExt]) -> None:
        """Consume messages that were added to the queue's ``pq``."""

    async def may_pull(self, owned: OwnedQueue) -> bool:
        """Return True if a queue may be pulled now: an ordered queue must be locked."""
        del owned
        return True

    async def acquire(self, queues: set[MessageQueue]) -> set[MessageQueue]:
        """Return the queues that can be consumed now; ordered queues are locked first."""
        return queues

    def on_pull_start(self, owned: OwnedQueue) -> None:
        """Record the start of pulling an acquired queue."""

    async def release(self, owned: OwnedQueue) -> None:
        """Release a queue that is no longer pulled."""

    async def stop(self, wait_s: float) -> None:
        """Start no further calls, and wait up to ``wait_s`` for those that run."""


class Called(Struct, frozen=True):
    """The outcome of a listener call."""

    returned: object
    raised: Exception | None
    took_s: float


_NEVER: Final = 2**31 - 1


class ListenerService(ConsumeService):
    """Delivers pulled messages to a listener, up to ``batch`` at once."""

    _success: ConsumeConcurrentlyStatus | ConsumeOrderlyStatus

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
        """Consume one message now, without settling it; return the outcome for the broker."""
        context = ConsumeContext(self._session.queue_for_user(queue))
        called = await self._call((self._session.message_for_user(message),), context)
        if called.raised is not None:
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, describe_error(called.raised)
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
        """Return the text for `CONSUME_FAILURE` of a message's copy; empty for none."""
        if raised is None or not self._settings.record_failures:
            return ""
        return str(
            ConsumeFailure.of(self._session.group, message.reconsume_times, self._host, raised)
        )

    def _is_success(self, returned: object) -> bool:
        return returned is None or returned is self._success

    async def _call_traced(self, messages: Sequence[MessageExt], context: ConsumeContext) -> Called:
        """Call the listener as `_call` does, with a message trace if tracing is on."""
        trace = self._session.trace
        if trace is None:
            return await self._call(messages, context)
        begun = trace.start_consume(messages)
        called = await self._call(messages, context)
        is_late = called.took_s >= self._settings.consume_timeout_s
        if isinstance(called.raised, TimeoutError) or is_late:
            trace.end_consume(begun, TIME_OUT)
        elif called.raised is not None:
            trace.end_consume(begun, EXCEPTION)
        else:
            is_success = self._is_success(called.returned)
            trace.end_consume(begun, SUCCESS if is_success else FAILED)
        return called

    async def _call(self, messages: Sequence[MessageExt], context: ConsumeContext) -> Called:
        """Call the listener; log and return any exception."""
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
            # The listener cancelled itself, or awaited a task that was cancelled.
            raised = RuntimeError(f"the listener was cancelled: {error}")
        return Called(returned, raised, self._clock() - began_s)


def describe_error(error: Exception) -> str:
    """Return an exception and the function that raised it in one line, as RocketMQ's tools do."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text}, {frames[-1].name}" if frames else text
