"""Concurrent consumption: several listener calls at once, in any order.

Failed messages are sent back to the broker (`SendBack`), which delivers them again later. If that
fails, they are consumed again here after 5 s. In broadcasting, failures are logged and not retried,
as in RocketMQ. A listener that hangs fails after 15 minutes; a plain function also keeps its
thread. Source: ``ConsumeMessageConcurrentlyService``.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.consume_service import (
    Abandoned,
    Called,
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ListenerCalls,
    ListenerHung,
    ListenerService,
)
from rocketlens.client.consume.consumer_settings import PushSettings
from rocketlens.client.consume.process_queue import ProcessQueue
from rocketlens.client.consume.pulling import OwnedQueue, now_ms
from rocketlens.client.consume.session import GroupSession, TaskSet
from rocketlens.model.message import MessageExt

logger: Final = logging.getLogger("rocketlens.client")

_EXPIRED_DELAY_LEVEL: Final = 3
_EXPIRED_AT_ONCE: Final = 16
"""Messages of one queue that are sent back in one check. RocketMQ: 16."""

_Batch = tuple[ProcessQueue, Sequence[MessageExt]]


class ConcurrentService(ListenerService):
    """Calls a listener with pulled messages, in any order."""

    _success = ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def __init__(
        self, session: GroupSession, settings: PushSettings, calls: ListenerCalls, batch: int
    ) -> None:
        super().__init__(session, settings, calls, batch)
        self._waiting: Final[asyncio.Queue[_Batch]] = asyncio.Queue()
        self._tasks: Final = TaskSet(session.group)
        self._busy = 0
        self._idle: Final = asyncio.Event()
        self._idle.set()
        self._is_stopping = False

    def start(self) -> None:
        for _ in range(self._settings.concurrency):
            self._tasks.run(self._work())

    def deliver(self, owned: OwnedQueue, messages: Sequence[MessageExt]) -> None:
        size = self._batch
        for start in range(0, len(messages), size):
            self._waiting.put_nowait((owned.pq, messages[start : start + size]))

    async def stop(self, wait_s: float) -> None:
        self._is_stopping = True
        try:
            async with asyncio.timeout(wait_s):
                await self._idle.wait()
        except TimeoutError:
            logger.warning(
                "group %s: %d listeners did not end in %g s; their messages are delivered again",
                *(self._session.group, self._busy, wait_s),
            )
        await self._tasks.cancel()

    async def send_back_expired(self, owned: OwnedQueue) -> None:
        """Send back messages that plain listeners hold too long; a thread cannot be ended."""
        pq = owned.pq
        timeout_s = self._settings.consume_timeout_s
        before_s = self._clock() - timeout_s
        for message in pq.expired(before_s)[:_EXPIRED_AT_ONCE]:
            logger.warning(
                "%s: a listener has had %s for over %g s; it is sent back",
                *(pq.queue, message.msg_id, timeout_s),
            )
            late = ListenerHung(f"no end after {timeout_s:g} s")
            if await self._try_send_back(message, pq.queue, _EXPIRED_DELAY_LEVEL, late):
                self._done(pq, [message])

    async def _work(self) -> None:
        while True:
            batch = await self._waiting.get()
            if self._is_stopping:
                return
            self._busy += 1
            self._idle.clear()
            try:
                await self._consume(batch)
            except Exception:
                # A defect must not end this worker: fewer and fewer listeners would run.
                logger.exception("group %s: messages stay unsettled", self._session.group)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    async def _consume(self, batch: _Batch) -> None:
        pq, waiting = batch
        if pq.is_dropped:
            return
        messages = pq.begin(waiting, self._clock())
        if not messages:
            return
        context = ConsumeContext(self._session.queue_for_user(pq.queue))
        shown = tuple(map(self._session.message_for_user, messages))
        called = await self._call_traced(shown, context)
        if called.returned is Abandoned.ABANDONED:
            return
        pq.consumed_at_ms = now_ms()
        count = self._consumed_count(called, context, len(messages))
        self._session.rates(pq.queue.topic).consumed(count, len(messages) - count, called.took_s)
        if not pq.is_dropped:
            await self._settle(pq, messages, count, context, called)

    async def _settle(
        self,
        pq: ProcessQueue,
        messages: list[MessageExt],
        count: int,
        context: ConsumeContext,
        called: Called,
    ) -> None:
        failed = [each for each in messages[count:] if pq.holds(each)]
        if self._settings.broadcasting:
            for each in failed:
                logger.warning("%s: %s failed, and broadcasting has no retry", pq.queue, each)
            self._done(pq, messages)
            return
        level, raised = context.delay_level, called.raised
        given_back = await asyncio.gather(
            *[self._try_send_back(each, pq.queue, level, raised) for each in failed]
        )
        kept = [each for each, done in zip(failed, given_back, strict=True) if not done]
        self._done(pq, [each for each in messages if each not in kept])
        if kept:
            again = [replace(each, reconsume_times=each.reconsume_times + 1) for each in kept]
            self._tasks.run(self._deliver_later(pq, again))

    async def _try_send_back(
        self, message: MessageExt, queue: MessageQueue, delay_level: int, raised: Exception | None
    ) -> bool:
        shown, failure = self._session.message_for_user(message), self._failure(message, raised)
        return await self._send_back.send_back(shown, queue, delay_level, failure)

    async def _deliver_later(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        await asyncio.sleep(timing.LOCAL_RETRY_S)
        if not pq.is_dropped:
            self._waiting.put_nowait((pq, messages))

    def _done(self, pq: ProcessQueue, messages: list[MessageExt]) -> None:
        queue_offset = pq.remove(messages)
        if not pq.is_dropped:
            self._session.offsets.put(pq.queue, queue_offset, increase_only=True)
            pq.owned.changed.set()

    def _consumed_count(self, called: Called, context: ConsumeContext, count: int) -> int:
        """Return the number of consumed messages; listeners acknowledge a prefix."""
        if called.raised is not None:
            return 0
        if self._is_success(called.returned):
            return count if context.ack_index is None else max(0, min(context.ack_index + 1, count))
        if called.returned is not ConsumeConcurrentlyStatus.RECONSUME_LATER:
            logger.warning(
                "a listener returned %.100r, which is not a status; its messages are retried",
                called.returned,
            )
        return 0
