"""What concurrent and orderly consumption have in common: a call of the listener, and its end."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consume_stats import ConsumeRates
from rocketlens.client.consume.listener import ConsumeContext, ListenerCalls
from rocketlens.client.consume.offsets import OffsetTable
from rocketlens.client.consume.pulling import OwnedQueue
from rocketlens.client.consume.send_back import SendBack
from rocketlens.client.send.trace import EXCEPTION, FAILED, SUCCESS, TIME_OUT, TraceWriter
from rocketlens.errors import RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.wire.bodies.consumer import ConsumeMessageDirectlyResult, ConsumeResult

logger: Final = logging.getLogger("rocketlens.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """What a service works with."""

    group: str
    calls: ListenerCalls
    offsets: OffsetTable
    send_back: SendBack
    rates: Callable[[str], ConsumeRates]
    shown: Callable[[MessageExt], MessageExt]
    """Returns a message as listeners get it."""
    shown_queue: Callable[[MessageQueue], MessageQueue]
    is_broadcasting: bool
    batch: int
    concurrency: int
    timeout_s: float
    clock: Callable[[], float]
    trace: TraceWriter | None = None


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


@dataclass(frozen=True, slots=True)
class Called:
    """How a call of a listener went: what it returned, or raised."""

    returned: object
    raised: Exception | None
    took_s: float


async def call_traced(
    parts: ServiceParts,
    messages: Sequence[MessageExt],
    context: ConsumeContext,
    is_success: Callable[[Called], bool],
) -> Called:
    """Call the listener, and trace that it was called and how that ended; otherwise as
    `call_listener`.
    """
    trace = parts.trace
    if trace is None:
        return await call_listener(parts, messages, context)
    begun = trace.consume_begun(messages)
    called = await call_listener(parts, messages, context)
    if isinstance(called.raised, TimeoutError) or called.took_s >= parts.timeout_s:
        trace.consume_ended(begun, TIME_OUT)
    elif called.raised is not None:
        trace.consume_ended(begun, EXCEPTION)
    else:
        trace.consume_ended(begun, SUCCESS if is_success(called) else FAILED)
    return called


async def call_listener(
    parts: ServiceParts, messages: Sequence[MessageExt], context: ConsumeContext
) -> Called:
    """Call the listener; whatever it raises is logged and returned."""
    began_s = parts.clock()
    returned: object = None
    raised: Exception | None = None
    try:
        returned = await parts.calls.call(messages, context)
    except Exception as error:
        raised = error
        ids = ", ".join(each.msg_id for each in messages)
        logger.warning("group %s: a listener failed at %s", parts.group, ids, exc_info=True)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The listener cancelled itself, or awaited something that was: the task was not cancelled.
        raised = RuntimeError(f"the listener was cancelled: {error}")
    return Called(returned, raised, parts.clock() - began_s)


async def consume_directly(
    parts: ServiceParts,
    message: MessageExt,
    queue: MessageQueue,
    results: Callable[[object], ConsumeResult],
    *,
    order: bool,
) -> ConsumeMessageDirectlyResult:
    """Let a listener consume one message, and return what became of it as a broker wants it."""
    context = ConsumeContext(parts.shown_queue(queue))
    called = await call_listener(parts, (parts.shown(message),), context)
    if called.raised is not None:
        result, remark = ConsumeResult.CR_THROW_EXCEPTION, described(called.raised)
    else:
        result, remark = results(called.returned), None
        if result is ConsumeResult.CR_LATER and not hasattr(called.returned, "name"):
            remark = f"the listener returned a {type(called.returned).__name__}"
    return ConsumeMessageDirectlyResult(
        order=order,
        consume_result=result,
        remark=remark,
        spent_time_ms=int(called.took_s * 1000),
    )


def described(error: Exception) -> str:
    """Return an error and where it was raised, in one line, as RocketMQ's tools show it."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text}, {frames[-1].name}" if frames else text


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class TaskSet:
    """Keeps a reference to each task, and logs the error with which one ends."""

    def __init__(self, group: str) -> None:
        """Create an empty set; ``group`` is for the log."""
        self._group: Final = group
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._remove)
        return task

    async def wait(self) -> None:
        """Wait until all tasks have ended, for `limits.MAX_STOP_ANSWERS_S` at most."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=limits.MAX_STOP_ANSWERS_S)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait for their ends as `wait` does."""
        for task in self._tasks:
            task.cancel()
        await self.wait()

    def _remove(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, RocketLensError):
                logger.warning("group %s: %s", self._group, error)
            else:
                logger.error("group %s: a task ended", self._group, exc_info=error)
