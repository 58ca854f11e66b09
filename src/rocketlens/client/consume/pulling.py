"""Pulls each queue of a consumer in its own task, within the bounds of cached messages.

Skipped offsets count as consumed. After an error a pull is retried, with a pause that grows to 3 s
and a fresh route, because the queue's broker may have moved.

A batch that a topic with ``queue.type=BatchCQ`` stores as one record is delivered as its messages.
Messages of the retry topic show their original topic, topics have no namespace, and bodies are
decompressed. As in RocketMQ's clients, the client does not check a body's checksum; the broker
does. Sources: ``DefaultMQPushConsumerImpl.pullMessage``, ``PullAPIWrapper.processPullResult``,
``DefaultMQPushConsumerImpl.resetRetryAndNamespace``.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from rocketlens.client.connect.queue_puller import (
    Backoff,
    Pulled,
    PullMode,
    PullStatus,
    QueuePuller,
)
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.consumer_settings import matches_tag
from rocketlens.client.consume.group_offsets import broker_of
from rocketlens.client.consume.process_queue import ProcessQueue
from rocketlens.client.consume.session import GroupSession, TaskSet
from rocketlens.errors import BadAnswer, RecordError, RemotingError, RocketLensError, TopicNotFound
from rocketlens.formats.batch_body import records_in
from rocketlens.formats.commitlog_record import Record, decode, message_of
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import MASTER_ID, RETRY_PREFIX, SYS_FLAG_NEED_UNWRAP, TAG_TYPE
from rocketlens.net.pace import in_thread

if TYPE_CHECKING:
    from rocketlens.client.consume.consume_service import ConsumeService

logger: Final = logging.getLogger("rocketlens.client")


LARGE_ANSWER_BYTES: Final = 64 * 1024
"""Answers of at least this size are decoded in a thread."""


class OwnedQueue:
    """A queue that this consumer has: its cached messages, and the task that pulls more."""

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.pq = self._new(queue, next_offset)
        self.broker_id = MASTER_ID
        """The broker to pull from next, as the last answer suggested."""
        self.is_paused = False
        self.changed: Final = asyncio.Event()
        """Set when there may be room again, or after a resume."""
        self.work: Final = asyncio.Event()
        """Set when an ordered queue has messages, or ends."""
        self.consuming: Final = asyncio.Lock()
        """Held during a listener call of an ordered queue."""
        self.task: asyncio.Task[None] | None = None

    @property
    def queue(self) -> MessageQueue:
        return self.pq.queue

    def replace(self, next_offset: int) -> None:
        """Drop the cached messages, and continue at another offset."""
        before = self.pq
        before.is_dropped = True
        self.pq = self._new(before.queue, next_offset)
        self.pq.is_locked = before.is_locked
        self.pq.locked_at_s = before.locked_at_s
        self.pq.locked_at_ms = before.locked_at_ms
        self.changed.set()
        self.work.set()

    def _new(self, queue: MessageQueue, next_offset: int) -> ProcessQueue:
        pq = ProcessQueue(queue, next_offset, now_ms())
        pq.owned = self
        return pq


class PullStyle(NamedTuple):
    """The pull settings of one kind of consumer."""

    hold_s: float
    mode: PullMode = PullMode.PUSH
    commits: bool = True
    """True if pulls commit the group's offset."""
    stores_moves: bool = True
    """True if an offset that the broker returns for an illegal one is stored."""
    max_cached_messages: int | None = None


class Puller:
    """Pulls the queues in ``owned`` for a service; bound to one event loop.

    ``send_heartbeat`` sends a heartbeat to a broker.
    """

    def __init__(
        self,
        session: GroupSession,
        style: PullStyle,
        service: "ConsumeService",
        send_heartbeat: Callable[[str], Awaitable[None]],
    ) -> None:
        self.owned: Final[dict[MessageQueue, OwnedQueue]] = {}
        self._session: Final = session
        self._style: Final = style
        self._service: Final = service
        self._send_heartbeat: Final = send_heartbeat
        self._queue_puller: Final = QueuePuller(session.cluster, session.group, style.mode)
        self._tasks: Final = TaskSet(session.group)

    def add(self, queue: MessageQueue, next_offset: int) -> OwnedQueue:
        owned = self.owned[queue] = OwnedQueue(queue, next_offset)
        self._start(owned)
        return owned

    def restart(self, owned: OwnedQueue, next_offset: int) -> None:
        owned.replace(next_offset)
        if owned.task is not None:
            owned.task.cancel()
        self._start(owned)

    def drop(self, queue: MessageQueue) -> OwnedQueue | None:
        """Stop pulling a queue, and ignore the results of its messages."""
        owned = self.owned.pop(queue, None)
        if owned is not None:
            owned.pq.is_dropped = True
            owned.work.set()
            if owned.task is not None:
                owned.task.cancel()
        return owned

    async def stop(self) -> None:
        """Stop pulling; cached messages stay."""
        await self._tasks.cancel()

    def _start(self, owned: OwnedQueue) -> None:
        owned.task = self._tasks.run(self._pull(owned))

    async def _pull(self, owned: OwnedQueue) -> None:
        backoff = Backoff()
        while True:
            await self._wait_for_room(owned)
            if not await self._service.may_pull(owned):
                await backoff.pause()
                continue
            try:
                has_progress = await self._pull_once(owned)
            except RocketLensError as error:
                logger.warning("group %s: %s: %s", self._session.group, owned.queue, error)
                # Leave a failed slave at once; name servers may list it for minutes.
                owned.broker_id = MASTER_ID
                await backoff.pause()
                if isinstance(error, RemotingError | TopicNotFound):
                    await self._look_for_broker(owned.queue.topic)
                continue
            except Exception:
                # A defect must not end this task: the queue would not be pulled any more.
                logger.exception("group %s: %s", self._session.group, owned.queue)
                await backoff.pause()
                continue
            if has_progress:
                backoff.reset()
            else:
                await backoff.pause()

    async def _look_for_broker(self, topic: str) -> None:
        try:
            await self._session.cluster.fresh_route(topic)
        except RocketLensError as error:
            logger.debug("no new route of topic %s: %s", topic, error)

    async def _wait_for_room(self, owned: OwnedQueue) -> None:
        while True:
            owned.changed.clear()
            if not owned.is_paused and not self._is_full(owned.pq):
                return
            await owned.changed.wait()

    def _is_full(self, pq: ProcessQueue) -> bool:
        settings, most = self._session.settings, self._style.max_cached_messages
        if pq.is_full(settings):
            return True
        if not len(pq):
            # Each queue may hold some messages, or one stuck queue would block all others.
            return False
        held = [each.pq for each in self.owned.values()]
        return sum(each.held_bytes for each in held) >= settings.max_cached_bytes or (
            most is not None and sum(map(len, held)) >= most
        )

    async def _pull_once(self, owned: OwnedQueue) -> bool:
        """Pull once; return True if the next pull should follow at once.

        :raises RocketLensError: if the pull fails.
        """
        pq, session, style = owned.pq, self._session, self._style
        began_s = session.settings.clock()
        subscription = session.subscriptions.get(pq.queue.topic)
        broker_id = owned.broker_id
        address, is_master = await self._address(owned)
        pulled = await self._queue_puller.pull(
            address,
            pq.queue,
            pq.next_offset,
            count=session.settings.pull_batch,
            subscription=subscription,
            hold_s=style.hold_s,
            timeout_s=timing.PULL_TIMEOUT_S,
            commit_offset=session.offsets.get(pq.queue) if is_master and style.commits else None,
        )
        took_s = session.settings.clock() - began_s
        pq.pulled_at_ms = now_ms()
        if pulled.status is PullStatus.NOT_SUBSCRIBED:
            await self._send_heartbeat(address)
            return False
        owned.broker_id = pulled.suggested_broker_id
        if pulled.status is PullStatus.FOUND:
            messages, next_offset = await self._read(address, pulled)
            if pq.is_dropped:
                return True
            if subscription is not None and subscription.expression_type == TAG_TYPE:
                messages = [each for each in messages if matches_tag(subscription, each.tags)]
            self._hold(pq, messages, next_offset, took_s)
            return True
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            await self._move(pq, pulled)
            return False
        has_progress = self._skip_unmatched(pq, pulled.next_offset, took_s)
        # A slave without more messages sends its consumers back to the master.
        return has_progress or broker_id != owned.broker_id == MASTER_ID

    async def _read(self, address: str, pulled: Pulled) -> tuple[list[MessageExt], int]:
        body = pulled.body
        if len(body) < LARGE_ANSWER_BYTES:
            messages, damage = messages_in(body)
        else:
            messages, damage = await in_thread(lambda: messages_in(body))
        if damage is None:
            return messages, pulled.next_offset
        if not messages:
            raise BadAnswer(address, "a pull", damage)
        # The damaged record is pulled again; the queue stops there until it can be read.
        return messages, messages[-1].queue_offset + 1

    def _hold(
        self, pq: ProcessQueue, messages: list[MessageExt], next_offset: int, took_s: float
    ) -> None:
        fresh = pq.put(messages, next_offset)
        self._session.rates(pq.queue.topic).pulled(len(fresh), took_s)
        if fresh:
            self._service.deliver(pq.owned, fresh)
        self._count_skipped(pq)

    def _skip_unmatched(self, pq: ProcessQueue, next_offset: int, took_s: float) -> bool:
        """Skip messages that do not match; return False after an early answer without progress."""
        if pq.is_dropped:
            return True
        has_progress = next_offset > pq.next_offset
        pq.next_offset = max(pq.next_offset, next_offset)
        self._count_skipped(pq)
        return has_progress or took_s >= min(1.0, self._style.hold_s / 2)

    def _count_skipped(self, pq: ProcessQueue) -> None:
        """Count skipped messages as consumed, so that they are skipped once."""
        is_counted = self._style.mode is PullMode.PUSH
        if is_counted and not len(pq) and not pq.is_dropped:
            self._session.offsets.put(pq.queue, pq.next_offset, increase_only=True)

    async def _move(self, pq: ProcessQueue, pulled: Pulled) -> None:
        if pq.is_dropped:
            return
        next_offset = pulled.next_offset
        logger.warning(
            "%s has offsets %d to %d: its broker moves this consumer from %d to %d",
            *(pq.queue, pulled.min_offset, pulled.max_offset, pq.next_offset, next_offset),
        )
        pq.owned.replace(next_offset)
        if self._style.stores_moves:
            self._session.offsets.put(pq.queue, next_offset, increase_only=False)
            await self._session.store.write([(pq.queue, next_offset)])

    async def _address(self, owned: OwnedQueue) -> tuple[str, bool]:
        """Return the address to pull from, and whether it is a master's."""
        broker = await broker_of(self._session.cluster, owned.queue)
        suggested = broker.addresses.get(owned.broker_id)
        if suggested is not None:
            return suggested, owned.broker_id == MASTER_ID
        return broker.in_order[0], broker.master is not None


def messages_in(body: bytes) -> tuple[list[MessageExt], str | None]:
    """Return the messages before the first byte that is not a record, and the damage there."""
    messages: list[MessageExt] = []
    position = 0
    while position < len(body):
        try:
            record = decode(body, position, check_crc=False)
        except RecordError as error:
            return messages, str(error)
        messages.extend(map(message_of, _messages_of(record)))
        position += record.total_size
    return messages, None


def _messages_of(record: Record) -> Iterator[Record]:
    """Yield the messages of a batch record, as RocketMQ's clients do, or any other record itself.

    Batch members keep a flag that their copies in the retry topic must not have.
    """
    members = records_in(record)
    # A retry topic has a whole batch at one offset, so its messages have no offsets of their own.
    if not members or record.topic.startswith(RETRY_PREFIX):
        yield record
        return
    for each in members:
        yield replace(each, sys_flag=each.sys_flag | SYS_FLAG_NEED_UNWRAP)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
