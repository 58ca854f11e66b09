"""``rocketlens.PushConsumer``, which calls a listener with a group's messages.

Source: ``DefaultMQPushConsumer``.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Hashable, Sequence
from typing import Any, Final

from rocketlens import limits
from rocketlens.client.connect.connection_settings import takes_settings
from rocketlens.client.connect.queue_puller import PULL_HOLD_S
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.concurrent import ConcurrentService
from rocketlens.client.consume.consume_service import (
    Abandoned,
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    Listener,
    ListenerCalls,
)
from rocketlens.client.consume.consumer_client import ConsumerClient
from rocketlens.client.consume.consumer_settings import PushSettings
from rocketlens.client.consume.orderly import OrderlyService
from rocketlens.client.consume.pulling import PullStyle
from rocketlens.errors import BadInput, WrongUse
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.wire.bodies.clients import ConsumeMessageDirectlyResult, ConsumeType


class PushConsumer(ConsumerClient):
    """Consumes messages as a member of a group. An async context manager, bound to one event loop.

    ::

        async def listener(messages, context):
            for message in messages:
                print(message.msg_id, message.offset_msg_id, message.body)

        consumer = rocketlens.PushConsumer("127.0.0.1:9876", group="billing")
        consumer.subscribe("Orders", "TagA || TagB")
        consumer.listen(listener)
        async with consumer:
            await asyncio.Event().wait()

    Each message is consumed at least once: it counts as consumed when the listener returns, and is
    delivered again if the listener raises, or if this consumer dies before the commit. Members
    share the queues as RocketMQ's do, also with members in Java.

    ``concurrency`` is the number of concurrent listener calls, each with up to ``batch`` messages
    of one queue. With ``broadcasting`` every member gets all messages, and offsets are kept in
    ``offsets_directory`` (``~/.rocketmq_offsets``, RocketMQ's own files). ``begin`` is the start of
    a new group: the last offset, the first one, or a timestamp. ``close`` waits ``close_timeout_s``
    for listeners. Methods raise `RemotingError` if no name server or broker answers.
    """

    _consume_type = ConsumeType.CONSUME_PASSIVELY

    @takes_settings(PushSettings)
    def __init__(self, settings: PushSettings) -> None:
        super().__init__(settings)
        self._settings: Final = settings
        self._listener: Listener | None = None
        self._is_orderly = False
        self._service: ConcurrentService | OrderlyService | None = None
        self._calls: ListenerCalls | None = None
        self._unacked: UnackedMessages | None = None

    @property
    def concurrency(self) -> int:
        """The number of concurrent listener calls."""
        return self._settings.concurrency

    @property
    def batch(self) -> int:
        """The largest number of messages in one listener call."""
        return self._settings.batch

    def listen(self, listener: Listener) -> None:
        """Consume messages concurrently, in any order; see `listener`.

        :raises WrongUse: if there is a listener already.
        """
        self._set_listener(listener, orderly=False)

    def listen_orderly(self, listener: Listener) -> None:
        """Consume the messages of each queue in order; see `listener`.

        :raises WrongUse: if there is a listener already.
        """
        self._set_listener(listener, orderly=True)

    async def start(self) -> None:
        """Join the group, and start to consume. A missing topic is consumed once it exists.

        :raises WrongUse: if the consumer was started or closed before.
        :raises BadInput: if there is no subscription.
        """
        self._check_startable()
        if not self._subscriptions:
            raise BadInput("no subscription: call subscribe(topic) before start()")
        listener = self._listener
        if listener is None:
            self._unacked = UnackedMessages()
            listener = self._unacked.deliver
        if not self._settings.broadcasting:
            self._subscribe(RETRY_PREFIX + self.group, "*")
        self._calls = ListenerCalls(listener, self.concurrency, self._settings.consume_timeout_s)
        # Each message has its own ack.
        batch = self._settings.batch if self._unacked is None else 1
        kind = OrderlyService if self._is_orderly else ConcurrentService
        self._service = kind(self._session, self._settings, self._calls, batch)
        self._service.start()
        loops: list[Coroutine[Any, Any, None]] = []
        if isinstance(self._service, OrderlyService):
            loops.append(self._renew_locks(self._service))
        elif not self._calls.is_async:
            loops.append(self._send_back_expired(self._service))
        try:
            style = PullStyle(hold_s=PULL_HOLD_S, commits=not self._settings.broadcasting)
            await self._start(self._service, style, loops)
        except BaseException:
            for loop in loops:
                loop.close()
            await self.close()
            raise

    async def close(self) -> None:
        """Stop pulling, wait for listeners, commit, and leave the group.

        A second call has no effect.
        """
        if self._is_closing:
            return
        self._is_closing = True
        await self._stop_pulling()
        if self._unacked is not None:
            self._unacked.close()
        if self._service is not None:
            await self._service.stop(self._settings.close_timeout_s)
        if self._calls is not None:
            self._calls.close()
        if self._queues is not None:
            await self.commit()
            if isinstance(self._service, OrderlyService):
                await self._service.unlock_all(list(self._owned))
            await self._member.leave()
        await self._end_connections()

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Iterate over messages. Each must be acknowledged.

        ::

            async for message in consumer:
                ...
                consumer.ack(message)

        A message counts as consumed after `ack`. It is delivered again after `later`, after the
        consume timeout, or if the consumer closes before its `ack`. While ``concurrency`` messages
        wait for an `ack`, the iteration waits.

        :raises WrongUse: if the consumer has a listener, or was not started.
        """
        return self._iterated_messages().messages()

    def ack(self, message: MessageExt) -> None:
        """Count a message of the iteration as consumed.

        :raises WrongUse: if it does not wait for an ack: it had one, or was delivered again.
        """
        self._iterated_messages().ack(message)

    def later(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request another delivery of a message after a delay; errors as `ack`.

        ``delay_level`` is 0 for a growing delay, 1 to 18 for a delay level, -1 for the dead
        letters.
        """
        self._iterated_messages().later(message, delay_level)

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult | None:
        """Let the listener consume one message, without settling it."""
        if self._service is None or self._is_closing:
            return None
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        return await self._service.consume_directly(message, queue)

    def _set_listener(self, listener: Listener, *, orderly: bool) -> None:
        if self._listener is not None or self._queues is not None:
            raise WrongUse("this consumer has a listener already, or was started without one")
        if not callable(listener):
            raise BadInput("a listener must be a function of the messages and their context")
        self._listener = listener
        self._is_orderly = orderly

    def _iterated_messages(self) -> "UnackedMessages":
        if self._unacked is None:
            raise WrongUse(
                "this consumer has a listener, or was not started: iterate over messages within "
                "`async with consumer`, and without a listener"
            )
        return self._unacked

    async def _renew_locks(self, service: OrderlyService) -> None:
        while True:
            await asyncio.sleep(timing.LOCK_S)
            await service.renew(list(self._owned.values()))

    async def _send_back_expired(self, service: ConcurrentService) -> None:
        while True:
            await asyncio.sleep(min(self._settings.consume_timeout_s / 2, limits.HEARTBEAT_S))
            for owned in list(self._owned.values()):
                await service.send_back_expired(owned)

    def _properties(self) -> dict[str, str]:
        return super()._properties() | {
            "PROP_CONSUMEORDERLY": str(self._is_orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self.concurrency),
            "consumeMessageBatchMaxSize": str(self.batch),
            "consumeThreadMax": str(self.concurrency),
            "consumeThreadMin": str(self.concurrency),
            "pullBatchSize": str(self._settings.pull_batch),
        }


Settled = ConsumeConcurrentlyStatus | Abandoned


def _identity(message: MessageExt) -> Hashable:
    """Return a unique key among pending messages; members of a batch share a record."""
    return message.offset_msg_id, message.queue_offset


class UnackedMessages:
    """The messages of ``async for message in consumer`` that wait for their `ack`.

    The consumer uses `deliver` as its listener, which returns after the `ack`.
    """

    def __init__(self) -> None:
        self._ready: Final[asyncio.Queue[MessageExt | None]] = asyncio.Queue()
        self._pending: Final[dict[Hashable, tuple[ConsumeContext, asyncio.Future[Settled]]]] = {}
        self._is_closed = False

    async def deliver(self, messages: Sequence[MessageExt], context: ConsumeContext) -> Settled:
        """Deliver the message of a call; return once it is settled or the consumer closes."""
        if self._is_closed:
            return Abandoned.ABANDONED
        (message,) = messages
        identity = _identity(message)
        settled: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        pending = self._pending[identity] = context, settled
        self._ready.put_nowait(message)
        try:
            return await settled
        finally:
            if self._pending.get(identity) is pending:
                del self._pending[identity]

    async def messages(self) -> AsyncIterator[MessageExt]:
        while not self._is_closed:
            message = await self._ready.get()
            # A message that timed out in the queue is delivered again.
            if message is not None and _identity(message) in self._pending:
                yield message
        self._ready.put_nowait(None)

    def ack(self, message: MessageExt) -> None:
        _, settled = self._unsettled(message)
        settled.set_result(ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    def later(self, message: MessageExt, delay_level: int) -> None:
        context, settled = self._unsettled(message)
        context.delay_level = delay_level
        settled.set_result(ConsumeConcurrentlyStatus.RECONSUME_LATER)

    def close(self) -> None:
        """End the iteration; messages without an `ack` are delivered to another member."""
        self._is_closed = True
        for _, settled in self._pending.values():
            if not settled.done():
                settled.set_result(Abandoned.ABANDONED)
        self._ready.put_nowait(None)

    def _unsettled(self, message: MessageExt) -> tuple[ConsumeContext, asyncio.Future[Settled]]:
        pending = self._pending.get(_identity(message))
        if pending is None or pending[1].done():
            raise WrongUse(
                f"{message.msg_id} does not wait for an ack: it had one, or was delivered again"
            )
        return pending
