"""Consumers for programs without an event loop.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Iterable

from rocketlens import limits
from rocketlens.client.blocking.blocking_client import (
    IteratesOverMessages,
    LeavesUnconsumed,
    documented_by,
)
from rocketlens.client.blocking.sync_cluster_client import SyncClusterClient
from rocketlens.client.connect.connection_settings import arguments_of, takes_settings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consumer_settings import LitePullSettings, PushSettings
from rocketlens.client.consume.listener import Listener
from rocketlens.client.consume.lite_pull import LitePullConsumer
from rocketlens.client.consume.push import PushConsumer
from rocketlens.client.consume.subscription import MessageSelector
from rocketlens.model.message import MessageExt


@documented_by(PushConsumer)
class SyncPushConsumer(SyncClusterClient[PushConsumer], IteratesOverMessages[PushConsumer]):
    """`rocketlens.PushConsumer`, for programs without an event loop; the same arguments.

    The listener is a plain function, which runs in threads, or an async one, which runs in the
    event loop of this consumer's own thread. `start` begins; or use it in a ``with`` block::

        consumer = rocketlens.SyncPushConsumer("127.0.0.1:9876", group="billing")
        consumer.subscribe("Orders")
        consumer.listen(lambda messages, context: print(messages[0].body))
        with consumer:
            ...
    """

    @takes_settings(PushSettings)
    def __init__(self, settings: PushSettings) -> None:
        super().__init__(lambda: PushConsumer(**arguments_of(settings)))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's now, in the order of broker name and queue id."""
        return self._call(lambda client: client.assignment)

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic: all of it, or by tags or an SQL92 expression."""
        self._call(lambda client: client.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer; its queues go to other members soon."""
        self._call(lambda client: client.unsubscribe(topic))

    def commit(self) -> None:
        """Store the consumed offset of each queue; this happens every 5 s and when closing
        anyway.
        """
        self._thread.run(self._client.commit())

    def listen(self, listener: Listener) -> None:
        """Consume messages in any order, several at once; see `listener`."""
        self._call(lambda client: client.listen(listener))

    def listen_orderly(self, listener: Listener) -> None:
        """Consume the messages of each queue one after another; see `listener`."""
        self._call(lambda client: client.listen_orderly(listener))

    def ack(self, message: MessageExt) -> None:
        """Count a message as consumed that the iteration gave."""
        self._call(lambda client: client.ack(message))

    def later(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request another delivery of a message, after a delay; errors as `ack`."""
        self._call(lambda client: client.later(message, delay_level))


@documented_by(LitePullConsumer)
class SyncLitePullConsumer(SyncClusterClient[LitePullConsumer], LeavesUnconsumed[LitePullConsumer]):
    """`rocketlens.LitePullConsumer` with blocking calls; the same arguments."""

    @takes_settings(LitePullSettings)
    def __init__(self, settings: LitePullSettings) -> None:
        super().__init__(lambda: LitePullConsumer(**arguments_of(settings)))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are this consumer's now, in the order of broker name and queue id."""
        return self._call(lambda client: client.assignment)

    def subscribe(self, topic: str, expression: str | MessageSelector = "*") -> None:
        """Subscribe to a topic; see `ConsumerClient.subscribe`."""
        self._call(lambda client: client.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer; its queues go to other members soon."""
        self._call(lambda client: client.unsubscribe(topic))

    def commit(self) -> None:
        """Count all that was polled as consumed, and store that."""
        self._thread.run(self._client.commit())

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume these queues, and no others; a later call replaces them."""
        self._call(lambda client: client.assign(queues))

    def poll(
        self, timeout_s: float = 5.0, max_messages: int = limits.MAX_PULL_MESSAGES
    ) -> list[MessageExt]:
        """Return the next messages, an empty list if none comes within ``timeout_s``."""
        return self._thread.run(self._client.poll(timeout_s, max_messages))

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Poll a queue from an offset on; what is held of it is dropped."""
        self._thread.run(self._client.seek(queue, queue_offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll a queue from its first message on; errors as `seek`."""
        self._thread.run(self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll what comes to a queue from now on; errors as `seek`."""
        self._thread.run(self._client.seek_to_end(queue))

    def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Poll a queue from the first message stored at a time or later; errors as `seek`."""
        self._thread.run(self._client.seek_to_timestamp(queue, timestamp_ms))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of about the first message stored at a time or later."""
        return self._thread.run(self._client.offset_for_timestamp(queue, timestamp_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that is stored for the group, None for nothing."""
        return self._thread.run(self._client.committed(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues, until they are resumed."""
        self._call(lambda client: client.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume queues that were paused; errors as `pause`."""
        self._call(lambda client: client.resume(queues))
