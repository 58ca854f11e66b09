"""Consumers for programs without an event loop.

Generated from the async clients by ``make blocking``: change those instead.
"""

from collections.abc import Iterable

from rocketlens import limits
from rocketlens.client.blocking.blocking_client import (
    IteratesOverMessages,
    LeavesUnconsumed,
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
        """Subscribe to a topic: all of it, or by tags or an SQL92 expression.

        All members of a group must subscribe to the same. A later call for a topic replaces what
        was subscribed to before.

        :raises BadInput: when topic or expression cannot be used.
        """
        self._call(lambda client: client.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer; its queues go to other members soon."""
        self._call(lambda client: client.unsubscribe(topic))

    def commit(self) -> None:
        """Store the consumed offset of each queue; this happens every 5 s and when closing anyway.

        What cannot be stored is logged, and stored the next time.
        """
        self._thread.run(self._client.commit())

    def listen(self, listener: Listener) -> None:
        """Consume messages in any order, several at once; see `listener`.

        :raises WrongUse: when there is a listener already.
        """
        self._call(lambda client: client.listen(listener))

    def listen_orderly(self, listener: Listener) -> None:
        """Consume the messages of each queue one after another; see `listener`.

        :raises WrongUse: when there is a listener already.
        """
        self._call(lambda client: client.listen_orderly(listener))

    def ack(self, message: MessageExt) -> None:
        """Count a message as consumed that the iteration gave.

        :raises WrongUse: when it is not waited for: acked before, or delivered again meanwhile.
        """
        self._call(lambda client: client.ack(message))

    def later(self, message: MessageExt, delay_level: int = 0) -> None:
        """Request another delivery of a message, after a delay; errors as `ack`.

        ``delay_level`` is 0 for a delay that grows, 1 to 18 for one of RocketMQ's, -1 to send it to
        the dead letters.
        """
        self._call(lambda client: client.later(message, delay_level))


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
        """Subscribe to a topic; see `ConsumerClient.subscribe`.

        :raises WrongUse: when queues were assigned.
        """
        self._call(lambda client: client.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Subscribe to a topic no longer; its queues go to other members soon."""
        self._call(lambda client: client.unsubscribe(topic))

    def commit(self) -> None:
        """Count all that was polled as consumed, and store that.

        What cannot be stored is logged, and stored the next time.
        """
        self._thread.run(self._client.commit())

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume these queues, and no others; a later call replaces them.

        :raises WrongUse: when a topic was subscribed to.
        """
        self._call(lambda client: client.assign(queues))

    def poll(
        self, timeout_s: float = 5.0, max_messages: int = limits.MAX_PULL_MESSAGES
    ) -> list[MessageExt]:
        """Return the next messages, an empty list if none comes within ``timeout_s``.

        Those of one queue are in their order. What the call before returned is consumed now.

        :raises WrongUse: when the consumer is not started, or closed.
        """
        return self._thread.run(self._client.poll(timeout_s, max_messages))

    def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Poll a queue from an offset on; what is held of it is dropped.

        :raises BadInput: when the queue is not this consumer's, or does not have the offset.
        :raises BrokerError: when its broker will not say which offsets there are.
        :raises RemotingError: when the broker does not answer.
        """
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
        """Return the offset that is stored for the group, None for nothing.

        :raises RocketLensError: when that cannot be learnt.
        """
        return self._thread.run(self._client.committed(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues, until they are resumed.

        :raises BadInput: when one is not this consumer's.
        """
        self._call(lambda client: client.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume queues that were paused; errors as `pause`."""
        self._call(lambda client: client.resume(queues))
