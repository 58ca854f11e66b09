"""Consumers for programs without an event loop; any threads may share one.

Each has a thread with an event loop of its own, in which the async one does the work.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Self

from rocketlens import limits
from rocketlens.client.blocking.sync import SyncClient, takes_arguments_of
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.listener import Listener
from rocketlens.client.consume.lite_pull import LitePullConsumer
from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.consume.subscription import MessageSelector
from rocketlens.model.message import MessageExt

if TYPE_CHECKING:
    from typing import Unpack

    from rocketlens.client.blocking.options import LitePullConsumerOptions, PushConsumerOptions


class SyncPushConsumer(SyncClient[PushConsumer]):
    """`rocketlens.PushConsumer`, for programs without an event loop; the same arguments.

    The listener is a plain function, which runs in threads, or an async one, which runs in the
    event loop of this consumer's own thread. `start` begins; or use it in a ``with`` block::

        consumer = rocketlens.SyncPushConsumer("127.0.0.1:9876", group="billing")
        consumer.subscribe("Orders")
        consumer.listen(lambda messages, context: print(messages[0].body))
        with consumer:
            ...
    """

    @takes_arguments_of(PushConsumer.__init__)
    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        **options: "Unpack[PushConsumerOptions]",
    ) -> None:
        self._is_running = False
        super().__init__(lambda: PushConsumer(name_servers, **options), starts=False)

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic: all of it, or by tags or an SQL92 expression."""
        self._call(lambda consumer: consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer."""
        self._call(lambda consumer: consumer.unsubscribe(topic))

    def listen(self, listener: Listener) -> None:
        """Consume messages in any order, several at once."""
        self._call(lambda consumer: consumer.listen(listener))

    def listen_orderly(self, listener: Listener) -> None:
        """Consume the messages of each queue one after another."""
        self._call(lambda consumer: consumer.listen_orderly(listener))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's now."""
        return self._call(lambda consumer: consumer.assignment)

    def start(self) -> None:
        """Join the group, and begin to consume. No effect the second time."""
        if not self._is_running:
            self._thread.run(self._client.start())
            self._is_running = True

    def commit(self) -> None:
        """Store how far each queue is consumed."""
        self._thread.run(self._client.commit())

    def __enter__(self) -> Self:
        """Start, and return this consumer."""
        _start_or_close(self)
        return self

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over messages, each of which must be acked; see `PushConsumer.__aiter__`."""
        messages = self._call(aiter)
        while True:
            try:
                yield self._thread.run(_next_of(messages))
            except StopAsyncIteration:
                return

    def ack(self, message: MessageExt) -> None:
        """Count a message as consumed that the iteration gave."""
        self._call(lambda consumer: consumer.ack(message))

    def later(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request another delivery of a message, after a delay."""
        self._call(lambda consumer: consumer.later(message, delay_level))


class SyncLitePullConsumer(SyncClient[LitePullConsumer]):
    """`rocketlens.LitePullConsumer`, waited for; the same arguments."""

    @takes_arguments_of(LitePullConsumer.__init__)
    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        **options: "Unpack[LitePullConsumerOptions]",
    ) -> None:
        self._is_running = False
        super().__init__(lambda: LitePullConsumer(name_servers, **options), starts=False)

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic: all of it, or by tags or an SQL92 expression."""
        self._call(lambda consumer: consumer.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer."""
        self._call(lambda consumer: consumer.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume these queues, and no others."""
        self._call(lambda consumer: consumer.assign(queues))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's now."""
        return self._call(lambda consumer: consumer.assignment)

    def start(self) -> None:
        """Start to pull what was subscribed to or assigned. No effect the second time."""
        if not self._is_running:
            self._thread.run(self._client.start())
            self._is_running = True

    def poll(
        self, timeout_s: float = 5.0, max_messages: int = limits.MAX_PULL_MESSAGES
    ) -> list[MessageExt]:
        """Return the next messages, an empty list if none comes in time."""
        return self._thread.run(self._client.poll(timeout_s, max_messages))

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Poll a queue from an offset on."""
        self._thread.run(self._client.seek(queue, queue_offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll a queue from its first message on."""
        self._thread.run(self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll what comes to a queue from now on."""
        self._thread.run(self._client.seek_to_end(queue))

    def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Poll a queue from the first message stored at a time or later."""
        self._thread.run(self._client.seek_to_timestamp(queue, timestamp_ms))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of about the first message stored at a time or later."""
        return self._thread.run(self._client.offset_for_timestamp(queue, timestamp_ms))

    def commit(self) -> None:
        """Count all that was polled as consumed, and store that."""
        self._thread.run(self._client.commit())

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that is stored for the group, None for nothing."""
        return self._thread.run(self._client.committed(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues, until they are resumed."""
        self._call(lambda consumer: consumer.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume queues that were paused."""
        self._call(lambda consumer: consumer.resume(queues))

    def __enter__(self) -> Self:
        """Start, and return this consumer."""
        _start_or_close(self)
        return self

    def __exit__(self, *raised: object) -> None:
        """Close; after an exception the messages of the last `poll` stay unconsumed."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._thread.run(self._client.__aexit__(*raised))
            finally:
                self._thread.close()


def _start_or_close(consumer: SyncPushConsumer | SyncLitePullConsumer) -> None:
    try:
        consumer.start()
    except BaseException:
        consumer.close()
        raise


async def _next_of(messages: AsyncIterator[MessageExt]) -> MessageExt:
    return await anext(messages)
