"""Consumption in order: each queue is locked, and has one listener call at a time.

A broker locks a queue for one client of a group (41) for 60 s. The client renews the lock every
20 s, and relies on it for 30 s. Failed messages stay in their queue, which pauses. After
``max_reconsume_times`` (never by default) they go to the retry topic or the dead letters.
Broadcasting uses no locks. Source: ``ConsumeMessageOrderlyService``, ``RebalanceImpl``.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from rocketlens import limits
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.consume_service import (
    Called,
    ConsumeContext,
    ConsumeOrderlyStatus,
    ListenerCalls,
    ListenerService,
)
from rocketlens.client.consume.consumer_settings import PushSettings
from rocketlens.client.consume.group_offsets import broker_of
from rocketlens.client.consume.process_queue import ProcessQueue
from rocketlens.client.consume.pulling import OwnedQueue, now_ms
from rocketlens.client.consume.session import GroupSession
from rocketlens.errors import RocketLensError
from rocketlens.model.message import MessageExt
from rocketlens.wire.bodies.clients import LockBatchRequest, LockBatchResponse
from rocketlens.wire.commands.groups import LOCK_BATCH_MQ, UNLOCK_BATCH_MQ
from rocketlens.wire.declare import NoFields, write_body

logger: Final = logging.getLogger("rocketlens.client")
T = TypeVar("T")


class LockCalls:
    """Locks queues at their brokers for one client of a group."""

    def __init__(self, session: GroupSession) -> None:
        self._session: Final = session
        self._cluster: Final = session.cluster

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[str]]:
        """Lock queues, or renew their locks.

        Return the locked queues, and the names of brokers that did not answer.
        """

        async def lock(address: str, body: bytes) -> tuple[MessageQueue, ...]:
            command = LOCK_BATCH_MQ
            answer = await self._cluster.ask_for(
                LockBatchResponse, address, command, NoFields(), body
            )
            return answer.locked_queues

        answers = await self._ask_each(queues, "locks", lock)
        locked = {queue for queues in answers.values() for queue in queues or ()}
        return locked, {name for name, answer in answers.items() if answer is None}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues. If that fails, the locks expire after 60 s."""

        async def unlock(address: str, body: bytes) -> None:
            await self._cluster.ask(address, UNLOCK_BATCH_MQ, NoFields(), body)

        await self._ask_each(queues, "unlocks", unlock)

    async def _ask_each(
        self, queues: Iterable[MessageQueue], what: str, ask: Callable[[str, bytes], Awaitable[T]]
    ) -> dict[str, T | None]:
        """Return the answer of each queue's broker, by broker name; None if it failed."""
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)

        async def one(name: str) -> T | None:
            request = LockBatchRequest(
                consumer_group=self._session.group,
                client_id=self._session.client_id,
                queues=tuple(by_broker[name]),
            )
            try:
                broker = await broker_of(self._cluster, by_broker[name][0])
                return await ask(broker.in_order[0], write_body(request))
            except RocketLensError as error:
                logger.warning(
                    "group %s: %s %s no queues: %s", self._session.group, name, what, error
                )
                return None

        return dict(zip(by_broker, await asyncio.gather(*map(one, by_broker)), strict=True))


class OrderlyService(ListenerService):
    """Calls a listener with the messages of each queue in order."""

    is_orderly = True
    _success = ConsumeOrderlyStatus.SUCCESS

    def __init__(
        self, session: GroupSession, settings: PushSettings, calls: ListenerCalls, batch: int
    ) -> None:
        super().__init__(session, settings, calls, batch)
        self._locks: Final = LockCalls(session)
        self._turns: Final = asyncio.Semaphore(settings.concurrency)
        self._tasks: Final[dict[ProcessQueue, asyncio.Task[None]]] = {}
        self._is_stopping = False

    def deliver(self, owned: OwnedQueue, messages: Sequence[MessageExt]) -> None:
        del messages
        pq = owned.pq
        if self._is_stopping:
            return
        if pq not in self._tasks:
            task = self._tasks[pq] = asyncio.get_running_loop().create_task(self._work(pq))
            task.add_done_callback(lambda _: self._tasks.pop(pq, None))
        owned.work.set()

    async def may_pull(self, owned: OwnedQueue) -> bool:
        return self._is_ours(owned.pq)

    async def acquire(self, queues: set[MessageQueue]) -> set[MessageQueue]:
        if self._settings.broadcasting:
            return queues
        return queues & (await self._locks.lock(queues))[0]

    def on_pull_start(self, owned: OwnedQueue) -> None:
        self._note_lock(owned.pq)

    def _note_lock(self, pq: ProcessQueue) -> None:
        pq.is_locked = True
        pq.locked_at_s = self._clock()
        pq.locked_at_ms = now_ms()

    async def renew(self, owned: Collection[OwnedQueue]) -> None:
        """Renew all locks; a queue that another client locked pauses."""
        if self._settings.broadcasting or not owned:
            return
        pqs = {each.queue: each.pq for each in owned}
        locked, silent = await self._locks.lock(pqs)
        for queue, pq in pqs.items():
            if queue in locked:
                self._note_lock(pq)
            elif queue.broker_name not in silent:
                pq.is_locked = False

    async def release(self, owned: OwnedQueue) -> None:
        """Unlock a queue after its listener call has ended."""
        pq = owned.pq
        if pq in self._tasks:
            owned.work.set()
            pq.unlock_attempts += 1
            await asyncio.wait([self._tasks[pq]])
        if not self._settings.broadcasting:
            await self._locks.unlock([pq.queue])

    async def stop(self, wait_s: float) -> None:
        self._is_stopping = True
        tasks = list(self._tasks.values())
        for pq in self._tasks:
            pq.owned.work.set()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=wait_s)
            if late:
                logger.warning(
                    "group %s: listeners of %d queues did not end in %g s",
                    *(self._session.group, len(late), wait_s),
                )
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=limits.MAX_STOP_ANSWERS_S)

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        if not self._settings.broadcasting:
            await self._locks.unlock(queues)

    def _is_ours(self, pq: ProcessQueue) -> bool:
        if self._settings.broadcasting:
            return True
        return pq.is_locked and self._clock() - pq.locked_at_s < timing.LOCK_LIVE_S

    async def _work(self, pq: ProcessQueue) -> None:
        owned = pq.owned
        while not self._is_over(pq):
            owned.work.clear()
            rest_s = 0.0
            try:
                # Messages from before an offset reset may still be in a listener.
                async with owned.consuming, self._turns:
                    rest_s = await self._turn(pq)
            except Exception:
                # After a defect the queue is tried again: it must not stop.
                logger.exception("%s: messages stay unsettled", pq.queue)
                rest_s = timing.ORDERLY_PAUSES_S[1]
            if rest_s:
                await self._rest(pq, rest_s)
            elif not pq.has_waiting and not self._is_over(pq):
                await owned.work.wait()

    def _is_over(self, pq: ProcessQueue) -> bool:
        return pq.is_dropped or self._is_stopping

    async def _rest(self, pq: ProcessQueue, rest_s: float) -> None:
        """Pause, unless the queue is dropped or the consumer stops meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                while not self._is_over(pq):
                    pq.owned.work.clear()
                    await pq.owned.work.wait()

    async def _turn(self, pq: ProcessQueue) -> float:
        """Consume for a minute at most; return the length of the following pause."""
        ends_s = self._clock() + timing.ORDERLY_TURN_S
        while not self._is_over(pq):
            if not self._is_ours(pq):
                return timing.ORDERLY_PAUSES_S[1]
            messages = pq.take(self._batch)
            if not messages:
                return 0.0
            context = ConsumeContext(self._session.queue_for_user(pq.queue))
            shown = tuple(map(self._session.message_for_user, messages))
            called = await self._call_traced(shown, context)
            pq.consumed_at_ms = now_ms()
            if pq.is_dropped:
                return 0.0
            rest_s = await self._settle(pq, messages, called, context)
            if rest_s or self._clock() >= ends_s:
                return rest_s
        return 0.0

    async def _settle(
        self, pq: ProcessQueue, messages: list[MessageExt], called: Called, context: ConsumeContext
    ) -> float:
        """Remove messages, or put them back; return the length of the following pause."""
        is_success = called.raised is None and self._is_success(called.returned)
        is_status = isinstance(called.returned, ConsumeOrderlyStatus)
        if not is_success and called.raised is None and not is_status:
            logger.warning(
                "a listener returned %.100r, which is not a status; its messages are retried",
                called.returned,
            )
        count = len(messages) if is_success else 0
        rates = self._session.rates(pq.queue.topic)
        rates.consumed(count, len(messages) - count, called.took_s)
        if not is_success:
            again = await self._messages_to_retry(messages, called.raised)
            if pq.is_dropped:
                return 0.0
            if again is not None:
                pq.put_back(again)
                least_s, usual_s, longest_s = timing.ORDERLY_PAUSES_S
                rest_s = usual_s if context.suspend_s is None else context.suspend_s
                return min(max(rest_s, least_s), longest_s)
        queue_offset = pq.commit_taken()
        self._session.offsets.put(pq.queue, queue_offset, increase_only=False)
        pq.owned.changed.set()
        return 0.0

    async def _messages_to_retry(
        self, messages: list[MessageExt], raised: Exception | None
    ) -> list[MessageExt] | None:
        """Return the messages to try again; None if all went to the retry topic.

        As in RocketMQ, all are tried again if one is, to keep their order.
        """
        most = self._send_back.max_reconsume_times
        tries_again = False
        again = []
        for message in messages:
            is_sent = False
            if message.reconsume_times >= most:
                shown = self._session.message_for_user(message)
                failure = self._failure(message, raised)
                is_sent = await self._send_back.send_to_retry(shown, failure)
            if not is_sent:
                tries_again = True
            again.append(replace(message, reconsume_times=message.reconsume_times + (not is_sent)))
        return again if tries_again else None
