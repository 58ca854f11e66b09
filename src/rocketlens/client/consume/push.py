"""Has a group's messages consumed by a listener: ``rocketlens.PushConsumer``.

Source: ``DefaultMQPushConsumer``.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from os import PathLike
from typing import Any, Final

from rocketlens import limits
from rocketlens.client.connect.cluster import Credentials
from rocketlens.client.connect.pull import PULL_HOLD_S
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume import timing
from rocketlens.client.consume.allocation import AllocateStrategy
from rocketlens.client.consume.base import Begin, ConsumerClient, check_range
from rocketlens.client.consume.concurrent import ConcurrentService
from rocketlens.client.consume.handing_out import HandedOut
from rocketlens.client.consume.listener import Listener, ListenerCalls
from rocketlens.client.consume.orderly import LockCalls, OrderlyService
from rocketlens.client.consume.process_queue import CacheBounds
from rocketlens.client.consume.pulling import OwnedQueue, PullSettings
from rocketlens.client.consume.send_back import SendBack
from rocketlens.client.consume.service import ServiceParts
from rocketlens.errors import BadInput, WrongUse
from rocketlens.model.message import MessageExt
from rocketlens.model.rocketmq import RETRY_PREFIX
from rocketlens.wire.bodies.consumer import ConsumeMessageDirectlyResult
from rocketlens.wire.bodies.heartbeat import ConsumeType

_NEVER: Final = 2**31 - 1


class PushConsumer(ConsumerClient):
    """Consumes messages as a member of a group. An async context manager; of one event loop.

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
    delivered again if the listener raises, or this consumer dies before that is committed. Members
    share the queues as RocketMQ's do, also with members in Java.

    ``concurrency`` is how many calls of the listener run at once, each with up to ``batch``
    messages of one queue. With ``broadcasting`` every member gets all messages, and offsets are
    kept in ``offsets_directory`` (``~/.rocketmq_offsets``, RocketMQ's own files).
    ``begin`` is where a new group begins: at the last offset, the first, or at a timestamp.
    ``close`` waits ``close_timeout_s`` for listeners.
    """

    _consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        namespace: str = "",
        broadcasting: bool = False,
        begin: Begin = "last",
        begin_timestamp_ms: int | None = None,
        concurrency: int = limits.DEFAULT_CONSUME_CONCURRENCY,
        batch: int = 1,
        pull_batch: int = limits.MAX_PULL_MESSAGES,
        max_reconsume_times: int | None = None,
        consume_timeout_s: float = timing.CONSUME_TIMEOUT_S,
        close_timeout_s: float = timing.CONSUMER_CLOSE_S,
        max_cached_messages_of_queue: int = limits.MAX_QUEUE_CACHED_MESSAGES,
        max_cached_bytes_of_queue: int = limits.MAX_QUEUE_CACHED_BYTES,
        max_span_of_queue: int = limits.MAX_QUEUE_SPAN,
        max_cached_bytes: int = limits.MAX_CACHED_BYTES,
        allocate: AllocateStrategy | None = None,
        instance_name: str | None = None,
        offsets_directory: str | PathLike[str] | None = None,
        trace: bool | str = False,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = limits.ADMIN_TIMEOUT_S,
        connect_timeout_s: float = limits.CONNECT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_range("concurrency", concurrency, limits.MAX_CONSUME_CONCURRENCY)
        check_range("batch", batch, limits.MAX_CONSUME_BATCH)
        self.concurrency: Final = concurrency
        self.batch: Final = batch
        self._max_reconsume_times: Final = max_reconsume_times
        self._consume_timeout_s: Final = consume_timeout_s
        self._close_timeout_s: Final = close_timeout_s
        self._listener: Listener | None = None
        self._is_orderly = False
        self._service: ConcurrentService | OrderlyService | None = None
        self._calls: ListenerCalls | None = None
        self._handed_out: HandedOut | None = None
        super().__init__(
            name_servers,
            group=group,
            namespace=namespace,
            broadcasting=broadcasting,
            begin=begin,
            begin_timestamp_ms=begin_timestamp_ms,
            pull_batch=pull_batch,
            bounds=CacheBounds(
                max_cached_messages_of_queue, max_cached_bytes_of_queue, max_span_of_queue
            ),
            max_cached_bytes=max_cached_bytes,
            allocate=allocate,
            commits=True,
            instance_name=instance_name,
            offsets_directory=offsets_directory,
            trace=trace,
            credentials=credentials,
            tls=tls,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            clock=clock,
        )

    # What users call.

    def listen(self, listener: Listener) -> None:
        """Consume messages in any order, several at once; see `listener`.

        :raises WrongUse: when there is a listener already.
        """
        self._set_listener(listener, orderly=False)

    def listen_orderly(self, listener: Listener) -> None:
        """Consume the messages of each queue one after another; see `listener`.

        :raises WrongUse: when there is a listener already.
        """
        self._set_listener(listener, orderly=True)

    async def start(self) -> None:
        """Join the group, and begin to consume.

        A topic that does not exist is waited for.

        :raises WrongUse: when there is no listener, or the consumer was started or closed before.
        :raises BadInput: when nothing is subscribed to.
        :raises RemotingError: when no name server answers.
        """
        self._check_open()
        if self._is_started:
            raise WrongUse("this consumer was started already")
        if not self._subscriptions:
            raise BadInput("nothing is subscribed to: call subscribe(topic) before start()")
        listener = self._listener
        if listener is None:
            self._handed_out = HandedOut()
            listener = self._handed_out.hand_out
        if not self._is_broadcasting:
            self._subscribe(RETRY_PREFIX + self.group, "*")
        self._calls = ListenerCalls(listener, self.concurrency, self._consume_timeout_s)
        self._service = self._make_service(self._calls)
        self._service.start()
        loops: list[Coroutine[Any, Any, None]] = []
        if isinstance(self._service, OrderlyService):
            loops.append(self._lock_again(self._service))
        elif not self._calls.is_async:
            loops.append(self._give_back_expired(self._service))
        try:
            await self._start(loops)
        except BaseException:
            for loop in loops:
                loop.close()
            await self.close()
            raise

    async def close(self) -> None:
        """Pull nothing more, wait for listeners, commit, and leave the group.

        No effect the second time.
        """
        if self._is_closing:
            return
        self._is_closing = True
        await self._end_loops()
        await self._puller.stop()
        if self._handed_out is not None:
            self._handed_out.close()
        if self._service is not None:
            await self._service.stop(self._close_timeout_s)
        if self._calls is not None:
            self._calls.close()
        if self._is_started:
            await self.commit()
            if isinstance(self._service, OrderlyService):
                await self._service.unlock_all(list(self._puller.owned))
            await self._member.leave()
        await self._end_connections()

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Iterate over messages, each of which must be acked.

        ::

            async for message in consumer:
                ...
                consumer.ack(message)

        It counts as consumed once `ack` is called, and is delivered again after `later`, after the
        consume timeout, or when the consumer is closed before. At most ``concurrency`` messages are
        handed out and not acked; then the iteration waits for an ack.

        :raises WrongUse: when the consumer has a listener, or was not started.
        """
        return self._handed_out_messages().messages()

    def ack(self, message: MessageExt) -> None:
        """Count a message as consumed that the iteration gave.

        :raises WrongUse: when it is not waited for: acked before, or delivered again meanwhile.
        """
        self._handed_out_messages().ack(message)

    def later(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request another delivery of a message, after a delay; errors as `ack`.

        ``delay_level`` is 0 for a delay that grows, 1 to 18 for one of RocketMQ's, -1 to send it to
        the dead letters.
        """
        self._handed_out_messages().later(message, delay_level)

    # What a consumer's parts call.

    def received(self, owned: OwnedQueue, messages: list[MessageExt]) -> None:
        """Pass messages to the listener."""
        if self._service is not None:
            self._service.submit(owned, messages)

    async def may_pull(self, owned: OwnedQueue) -> bool:
        """Return whether a queue may be pulled: an ordered one must be locked."""
        return self._service is not None and await self._service.may_pull(owned)

    async def acquire(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Return those of the queues that can be begun now: ordered ones are locked for it."""
        free = await super().acquire(queues)
        return free if self._service is None else await self._service.acquire(free)

    async def begin_queue(self, queue: MessageQueue) -> None:
        """Pull a queue from where the group came to.

        :raises RocketLensError: when that cannot be learnt.
        """
        await super().begin_queue(queue)
        owned = self._puller.owned.get(queue)
        if owned is not None and isinstance(self._service, OrderlyService):
            self._service.acquired(owned.pq)

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult | None:
        """Let the listener consume one message, and settle nothing."""
        if self._service is None or self._is_closing:
            return None
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        return await self._service.consume_directly(message, queue)

    # How it is done.

    @property
    def _awaits_listener(self) -> bool:
        return self._is_orderly

    async def _release(self, owned: OwnedQueue) -> None:
        if self._service is not None:
            await self._service.release(owned)

    def _set_listener(self, listener: Listener, *, orderly: bool) -> None:
        if self._listener is not None or self._is_started:
            raise WrongUse("this consumer has a listener already, or was started without one")
        if not callable(listener):
            raise BadInput("a listener is a function of the messages and their context")
        self._listener = listener
        self._is_orderly = orderly

    def _handed_out_messages(self) -> HandedOut:
        if self._handed_out is None:
            raise WrongUse(
                "this consumer has a listener, or was not started: messages are iterated over "
                "within `async with consumer`, and without a listener"
            )
        return self._handed_out

    def _make_service(self, calls: ListenerCalls) -> ConcurrentService | OrderlyService:
        most = self._max_reconsume_times
        if most is None:
            most = _NEVER if self._is_orderly else limits.MAX_RECONSUMES
        parts = ServiceParts(
            group=self.group,
            calls=calls,
            offsets=self._offsets,
            send_back=SendBack(self._cluster, self.group, self.namespace, most),
            rates=self._rates_of,
            shown=self._shown,
            shown_queue=self._short_queue,
            is_broadcasting=self._is_broadcasting,
            # A message that is acked is settled by itself.
            batch=self.batch if self._handed_out is None else 1,
            concurrency=self.concurrency,
            timeout_s=self._consume_timeout_s,
            clock=self._clock,
            trace=self._trace,
        )
        if self._is_orderly:
            locks = LockCalls(self._cluster, self.group, self.client_id)
            return OrderlyService(parts, locks)
        return ConcurrentService(parts)

    async def _lock_again(self, service: OrderlyService) -> None:
        while True:
            await asyncio.sleep(timing.LOCK_S)
            await service.renew(list(self._puller.owned.values()))

    async def _give_back_expired(self, service: ConcurrentService) -> None:
        while True:
            await asyncio.sleep(min(self._consume_timeout_s / 2, limits.HEARTBEAT_S))
            for owned in list(self._puller.owned.values()):
                await service.give_back_expired(owned)

    def _pull_settings(self, *, commits: bool) -> PullSettings:
        return PullSettings(
            group=self.group,
            batch=self._pull_batch,
            bounds=self._bounds,
            max_cached_bytes=self._max_cached_bytes,
            hold_s=PULL_HOLD_S,
            timeout_s=timing.PULL_TIMEOUT_S,
            commits=commits,
        )

    def _properties(self) -> dict[str, str]:
        return super()._properties() | {
            "PROP_CONSUMEORDERLY": str(self._is_orderly).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(self.concurrency),
            "consumeMessageBatchMaxSize": str(self.batch),
            "consumeThreadMax": str(self.concurrency),
            "consumeThreadMin": str(self.concurrency),
            "pullBatchSize": str(self._pull_batch),
        }
