"""Blocking consumers."""

from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from rocketlens.client.blocking.blocking_client import SyncClusterClient, calls, next_of, waits
from rocketlens.client.connect.connection_settings import arguments_of, takes_settings
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consumer_client import ConsumerClient
from rocketlens.client.consume.consumer_settings import LitePullSettings, PushSettings
from rocketlens.client.consume.lite_pull import LitePullConsumer
from rocketlens.client.consume.push import PushConsumer
from rocketlens.model.message import MessageExt

M = TypeVar("M", bound=ConsumerClient)


class SyncConsumer(SyncClusterClient[M]):
    """A consumer that starts with `start`, or with its ``with`` block."""

    def __init__(self, make: Callable[[], M]) -> None:
        super().__init__(make, starts=False)
        self._is_running = False

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer has now, in the order of broker name and queue id."""
        return self._call(lambda client: client.assignment)

    unsubscribe = calls(ConsumerClient.unsubscribe)

    def start(self) -> None:
        """Join the group, and start to consume. A second call has no effect."""
        if not self._is_running:
            self._thread.run(self._client.start())
            self._is_running = True

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self


class SyncPushConsumer(SyncConsumer[PushConsumer]):
    """Blocking `rocketlens.PushConsumer`, with the same arguments.

    The listener is a plain function, which runs in threads, or an async one, which runs in the
    event loop of this consumer's thread. Call `start`, or use a ``with`` block::

        consumer = rocketlens.SyncPushConsumer("127.0.0.1:9876", group="billing")
        consumer.subscribe("Orders")
        consumer.listen(lambda messages, context: print(messages[0].body))
        with consumer:
            ...
    """

    @takes_settings(PushSettings)
    def __init__(self, settings: PushSettings) -> None:
        super().__init__(lambda: PushConsumer(**arguments_of(settings)))

    subscribe = calls(PushConsumer.subscribe)
    commit = waits(PushConsumer.commit)
    listen = calls(PushConsumer.listen)
    listen_orderly = calls(PushConsumer.listen_orderly)
    ack = calls(PushConsumer.ack)
    later = calls(PushConsumer.later)

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over messages. Each must be acknowledged; see `PushConsumer.__aiter__`."""
        messages = self._call(aiter)
        while (message := self._thread.run(next_of(messages))) is not None:
            yield message


class SyncLitePullConsumer(SyncConsumer[LitePullConsumer]):
    """Blocking `rocketlens.LitePullConsumer`, with the same arguments."""

    @takes_settings(LitePullSettings)
    def __init__(self, settings: LitePullSettings) -> None:
        super().__init__(lambda: LitePullConsumer(**arguments_of(settings)))

    subscribe = calls(LitePullConsumer.subscribe)
    commit = waits(LitePullConsumer.commit)
    assign = calls(LitePullConsumer.assign)
    poll = waits(LitePullConsumer.poll)
    seek = waits(LitePullConsumer.seek)
    seek_to_begin = waits(LitePullConsumer.seek_to_begin)
    seek_to_end = waits(LitePullConsumer.seek_to_end)
    seek_to_timestamp = waits(LitePullConsumer.seek_to_timestamp)
    offset_for_timestamp = waits(LitePullConsumer.offset_for_timestamp)
    committed = waits(LitePullConsumer.committed)
    pause = calls(LitePullConsumer.pause)
    resume = calls(LitePullConsumer.resume)

    def __exit__(self, *raised: object) -> None:
        """Close; after an exception the messages of the last `poll` stay unconsumed."""
        self._close(lambda: self._client.__aexit__(*raised))
