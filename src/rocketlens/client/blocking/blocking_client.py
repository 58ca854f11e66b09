"""What blocking clients have that is not generated: a thread, its end, iteration, futures.

The methods that wait for one of an async client are in `sync` and `sync_consumer`, which
``make blocking`` writes.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, overload

from rocketlens.client.cluster_client import ClusterClient
from rocketlens.model.message import MessageExt
from rocketlens.net.sync import LoopThread
from rocketlens.query.threaded_source import ThreadedSource

if TYPE_CHECKING:
    from rocketlens.client.connect.route import MessageQueue
    from rocketlens.client.consume.consumer_client import ConsumerClient
    from rocketlens.client.consume.lite_pull import LitePullConsumer
    from rocketlens.client.consume.push import PushConsumer
    from rocketlens.client.send.message import Message
    from rocketlens.client.send.producer import Producer
    from rocketlens.client.send.send_result import SendResult

C = TypeVar("C", bound=ClusterClient)
M = TypeVar("M", bound="ConsumerClient")
P = TypeVar("P", bound="Producer")
Push = TypeVar("Push", bound="PushConsumer")
LitePull = TypeVar("LitePull", bound="LitePullConsumer")
T = TypeVar("T")
_PHRASES: Final = {
    "an async iterator": "an iterator",
    "an async context manager": "a context manager",
    "\n\nThe iteration": (
        "\n\n``on_event`` runs in the client's thread: it must not block.\n\nThe iteration"
    ),
}


def blocking_doc(text: str) -> str:
    """Return the docstring of a blocking method, from that of the async one."""
    for phrase, instead in _PHRASES.items():
        text = text.replace(phrase, instead)
    return text


def documented_by(client: type) -> Callable[[T], T]:
    """Return a decorator of a blocking client, whose methods get the docstrings of ``client``.

    In the source a generated method has the first paragraph only.
    """

    def decorate(blocking: T) -> T:
        for name, method in vars(blocking).items():
            text = inspect.getdoc(getattr(client, name, None))
            if text and not name.startswith("_"):
                method.__doc__ = blocking_doc(text)
        return blocking

    return decorate


class SyncClient(Generic[C]):
    """An async client in a thread with an event loop of its own; any threads may use it."""

    _client: C

    def __init__(self, make: Callable[[], C], *, starts: bool = True) -> None:
        self._thread: Final = LoopThread()
        self._is_closed = False
        try:
            self._client = self._thread.run(_made(make, starts=starts))
        except BaseException:
            self._thread.close()
            raise
        self.source: Final = ThreadedSource(
            self._client.source, submit=lambda work: self._thread.submit(work())
        )
        """The source for `rocketlens.find`."""

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic."""
        if second is None:
            return self._thread.run(self._client.view_message(first))
        return self._thread.run(self._client.view_message(first, second))

    def _call(self, work: Callable[[C], T]) -> T:
        """Do what takes no time in the client's own thread."""

        async def call() -> T:
            return work(self._client)

        return self._thread.run(call())

    def close(self) -> None:
        """Close all connections and end the thread. Later calls do nothing."""
        self._close(self._client.close)

    def _close(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.run(end())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class SendsInBackground(SyncClient[P]):
    """Sends without waiting for the broker."""

    def send_async(
        self,
        message: "Message",
        *,
        queue: "MessageQueue | None" = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> "Future[SendResult]":
        """Start to send; the future has the result, and takes callbacks.

        Callbacks run in the client's thread: they must not block, nor call this client.
        """
        result: Future[SendResult] = Future()
        result.set_running_or_notify_cancel()
        work = self._client.send(
            message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s
        )
        self._thread.run(_begin(work, result))
        return result


class SyncConsumer(SyncClient[M]):
    """A consumer that begins with `start`, or with its ``with`` block."""

    def __init__(self, make: Callable[[], M]) -> None:
        super().__init__(make, starts=False)
        self._is_running = False

    def start(self) -> None:
        """Join the group, and begin to consume. No effect the second time."""
        if not self._is_running:
            self._thread.run(self._client.start())
            self._is_running = True

    def __enter__(self) -> Self:
        """Start, and return this consumer."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self


class IteratesOverMessages(SyncConsumer[Push]):
    """Is iterated over in place of a listener."""

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over messages, each of which must be acked; see `PushConsumer.__aiter__`."""
        messages = self._call(aiter)
        while True:
            try:
                yield self._thread.run(_next_of(messages))
            except StopAsyncIteration:
                return


class LeavesUnconsumed(SyncConsumer[LitePull]):
    """Commits nothing at the end of a ``with`` block that raised."""

    def __exit__(self, *raised: object) -> None:
        """Close; after an exception the messages of the last `poll` stay unconsumed."""
        self._close(lambda: self._client.__aexit__(*raised))


async def _made(make: Callable[[], C], *, starts: bool) -> C:
    client = make()
    if starts:
        await client.start()
    return client


async def _begin(work: Coroutine[Any, Any, T], result: "Future[T]") -> None:
    """Start ``work`` in the background; ``result`` gets its result or error."""
    task = asyncio.get_running_loop().create_task(work)

    def done(_: object) -> None:
        if task.cancelled():
            result.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    task.add_done_callback(done)


async def _next_of(messages: AsyncIterator[MessageExt]) -> MessageExt:
    return await anext(messages)


_RUNNING: Final[set["asyncio.Task[Any]"]] = set()
"""A reference: the event loop keeps none to a task."""
