"""``Producer`` and ``MQAdmin`` for programs without an event loop; any threads may share one.

Each has a thread with an event loop of its own, in which the async one does the work.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from rocketlens import limits
from rocketlens.client import admin, producer
from rocketlens.client.admin import ClusterClient
from rocketlens.client.cluster_source import ClusterSource
from rocketlens.client.message import Message
from rocketlens.client.route import MessageQueue
from rocketlens.client.send_result import SendResult
from rocketlens.model.answer import Answer
from rocketlens.model.message import MessageExt
from rocketlens.net.sync import LoopThread
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest, Kind

if TYPE_CHECKING:
    from datetime import datetime

C = TypeVar("C", bound=ClusterClient)
T = TypeVar("T")


class _Sync(Generic[C]):
    """What both have: the questions of `rocketlens.client.admin.ClusterClient`, waited for."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._thread: Final = LoopThread()
        self._is_closed = False
        try:
            self._client: Final = self._thread.run(_started(make))
        except BaseException:
            self._thread.close()
            raise
        self.source: Final = _SourceInLoop(self._thread, self._client.source)
        """What `rocketlens.find` asks."""

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic."""
        if second is None:
            return self._thread.run(self._client.view_message(first))
        return self._thread.run(self._client.view_message(first, second))

    def find(
        self,
        text: str | None = None,
        topic: str | Iterable[str] | None = None,
        *,
        kind: Kind = "auto",
        begin: "int | datetime | None" = None,
        end: "int | datetime | None" = None,
        max_num: int | None = None,
    ) -> Answer:
        """Find messages by whatever is at hand; arguments as `Store.find` has them."""
        return self._thread.run(
            self._client.find(text, topic, kind=kind, begin=begin, end=end, max_num=max_num)
        )

    def query_message(
        self,
        topic: str,
        key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime" = 0,
        end: "int | datetime" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a key or unique key: the newest ``max_num``."""
        return self._thread.run(self._client.query_message(topic, key, max_num, begin, end))

    def query_message_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        max_num: int | None = limits.DEFAULT_QUERY_MESSAGES,
        begin: "int | datetime" = 0,
        end: "int | datetime" = limits.MAX_TIMESTAMP_MS,
    ) -> Answer:
        """Return the messages of a topic with a unique key, whatever their age."""
        return self._thread.run(
            self._client.query_message_by_unique_key(topic, unique_key, max_num, begin, end)
        )

    def forget_broker(self, broker_name: str) -> bool:
        """Forget a broker that is gone for good; False if it is not remembered."""

        async def forget() -> bool:
            return self._client.forget_broker(broker_name)

        return self._thread.run(forget())

    def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that can be read."""
        return self._thread.run(self._client.message_queues(topic))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset in a queue of about the first message stored at a time or later."""
        return self._thread.run(self._client.search_offset(queue, timestamp_ms))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue."""
        return self._thread.run(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that a queue's next message will have."""
        return self._thread.run(self._client.max_offset(queue))

    def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """Return when the oldest message of a queue was stored, -1 for none."""
        return self._thread.run(self._client.earliest_message_store_time(queue))

    def create_topic(self, topic: str, queue_nums: int = 8, **options: Any) -> None:
        """Make a topic, or change it; ``options`` as `ClusterClient.create_topic` has them."""
        self._thread.run(self._client.create_topic(topic, queue_nums, **options))

    def close(self) -> None:
        """End all connections and the thread. No effect the second time."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(self._client.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class _SourceInLoop:
    """The source of a cluster for other event loops: it is asked in its own."""

    def __init__(self, thread: LoopThread, source: ClusterSource) -> None:
        self._thread: Final = thread
        self._source: Final = source
        self.name: Final = source.name
        self.kind: Final = source.kind
        self.is_one_log: Final = source.is_one_log

    async def find(self, request: FindRequest, findings: Findings) -> None:
        await asyncio.wrap_future(self._thread.submit(self._source.find(request, findings)))

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        await asyncio.wrap_future(self._thread.submit(self._source.check_topics(names, findings)))


class SyncMQAdmin(_Sync[admin.MQAdmin]):
    """`rocketlens.MQAdmin`, waited for; the same arguments."""

    def __init__(self, name_servers: str | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__(lambda: admin.MQAdmin(name_servers, **options))


class SyncProducer(_Sync[producer.Producer]):
    """`rocketlens.Producer`, waited for; the same arguments."""

    def __init__(self, name_servers: str | Iterable[str] | None = None, **options: Any) -> None:
        super().__init__(lambda: producer.Producer(name_servers, **options))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message, and wait until a broker has stored it."""
        return self._thread.run(
            self._client.send(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s)
        )

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> "Future[SendResult]":
        """Begin to send; the future has the result, and takes callbacks.

        Callbacks run in the client's thread: they must not wait, nor call this client.
        """
        result: Future[SendResult] = Future()
        result.set_running_or_notify_cancel()
        work = self._client.send(
            message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s
        )
        self._thread.run(_begin(work, result))
        return result

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send several messages of one topic at once."""
        return self._thread.run(self._client.send_batch(messages, queue=queue, timeout_s=timeout_s))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message and wait for no answer."""
        self._thread.run(self._client.send_oneway(message, queue=queue, sharding_key=sharding_key))

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic's messages go to."""
        return self._thread.run(self._client.write_queues(topic))


async def _started(make: Callable[[], C]) -> C:
    client = make()
    await client.start()
    return client


async def _begin(work: Coroutine[Any, Any, T], result: "Future[T]") -> None:
    """Run ``work`` behind the caller's back; ``result`` gets what it gives or raises."""
    task = asyncio.get_running_loop().create_task(work)

    def done(_: object) -> None:
        if task.cancelled():
            result.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)
    task.add_done_callback(done)


_UNDER_WAY: Final[set["asyncio.Task[Any]"]] = set()
"""The event loop keeps no task alive by itself."""
