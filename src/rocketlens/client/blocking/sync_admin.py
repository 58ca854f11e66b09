"""Blocking ``MQAdmin``, and its iterators."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Generic, Self, TypeVar

from rocketlens.client.blocking.blocking_client import SyncClusterClient, iterates, next_of, waits
from rocketlens.client.connect.connection_settings import (
    AdminSettings,
    arguments_of,
    takes_settings,
)
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.search.topic_scan import ClusterMessages
from rocketlens.client.search.topic_tail import TopicTail
from rocketlens.late import pa
from rocketlens.model.answer import Coverage
from rocketlens.model.arrow import ArrowMessages, batches_of
from rocketlens.model.message import MessageExt
from rocketlens.net.sync import LoopThread

M = TypeVar("M", bound=TopicTail | ClusterMessages)
_AT_ONCE: Final = 256
"""Messages passed from the client's thread to the caller's in one step."""
_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Bytes of bodies after which a step ends early."""


class _Iterated(Generic[M]):
    """Iterates, in the caller's thread, over messages that the client's event loop reads."""

    def __init__(self, thread: LoopThread, messages: M) -> None:
        self._thread: Final = thread
        self._messages: Final[M] = messages

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        return self._messages.coverage

    @property
    def complete(self) -> bool:
        return self._messages.complete


class SyncTopicTail(_Iterated[TopicTail]):
    """Blocking `rocketlens.client.search.topic_tail.TopicTail`; a context manager."""

    def close(self) -> None:
        self._thread.run(self._messages.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        message = self._thread.run(next_of(self._messages))
        if message is None:
            raise StopIteration
        return message


class SyncClusterMessages(_Iterated[ClusterMessages], ArrowMessages):
    """Blocking `ClusterMessages` of `client.search.topic_scan`, and a source of Arrow batches.

    Polars, DuckDB and pyarrow accept it directly, pandas with `to_pandas`. It can be read once.
    """

    @property
    def failures(self) -> tuple[Coverage, ...]:
        return self._messages.failures

    @property
    def on_read(self) -> Callable[[int, int | None, int], bool] | None:
        return self._messages.on_read

    @on_read.setter
    def on_read(self, on_read: Callable[[int, int | None, int], bool] | None) -> None:
        self._messages.on_read = on_read

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield the messages; errors as `ClusterMessages`."""
        messages = aiter(self._messages)
        while chunk := self._thread.run(_some(messages)):
            yield from chunk

    def record_batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size while they are read."""
        return batches_of(self)


async def _some(messages: AsyncIterator[MessageExt]) -> list[MessageExt]:
    chunk: list[MessageExt] = []
    size = 0
    async for message in messages:
        chunk.append(message)
        size += len(message.body)
        if len(chunk) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            break
    return chunk


class SyncMQAdmin(SyncClusterClient[MQAdmin]):
    """Blocking `rocketlens.MQAdmin`, with the same arguments, results and errors."""

    @takes_settings(AdminSettings)
    def __init__(self, settings: AdminSettings) -> None:
        super().__init__(lambda: MQAdmin(**arguments_of(settings)))

    examine_consumer_connection_info = waits(MQAdmin.examine_consumer_connection_info)
    examine_producer_connection_info = waits(MQAdmin.examine_producer_connection_info)
    get_consumer_running_info = waits(MQAdmin.get_consumer_running_info)
    examine_consume_stats = waits(MQAdmin.examine_consume_stats)
    message_track_detail = waits(MQAdmin.message_track_detail)
    get_broker_config = waits(MQAdmin.get_broker_config)
    consume_message_directly = waits(MQAdmin.consume_message_directly)
    consume_message_directly_by_all = waits(MQAdmin.consume_message_directly_by_all)
    reset_offset_by_time = waits(MQAdmin.reset_offset_by_time)
    reset_offset_by_time_old = waits(MQAdmin.reset_offset_by_time_old)
    create_and_update_subscription_group = waits(MQAdmin.create_and_update_subscription_group)
    delete_subscription_group = waits(MQAdmin.delete_subscription_group)
    resend = waits(MQAdmin.resend)
    topics = waits(MQAdmin.topics)
    groups = waits(MQAdmin.groups)
    producers = waits(MQAdmin.producers)
    brokers = waits(MQAdmin.brokers)
    status = waits(MQAdmin.status)
    scan = iterates(MQAdmin.scan, SyncClusterMessages)
    scan_for = iterates(MQAdmin.scan_for, SyncClusterMessages)
    tail = iterates(MQAdmin.tail, SyncTopicTail)
