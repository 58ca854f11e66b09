"""The base of blocking clients: a thread with an event loop, and methods that wait for it.

Each method is derived from the async client's, with its arguments and docstring::

    class SyncMQAdmin(SyncClusterClient[MQAdmin]):
        topics = waits(MQAdmin.topics)
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

from rocketlens.client.cluster_client import ClusterClient
from rocketlens.model.message import MessageExt
from rocketlens.net.sync import LoopThread
from rocketlens.query.threaded_source import ThreadedSource

C = TypeVar("C", bound=ClusterClient)
P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")
_PHRASES: Final = {
    "an async iterator": "an iterator",
    "an async context manager": "a context manager",
    "\n\nThe iteration": (
        "\n\n``on_event`` runs in the client's thread: it must not block.\n\nThe iteration"
    ),
}


def blocking_doc(text: str) -> str:
    """Return the docstring of a blocking method, from the async method's."""
    for phrase, instead in _PHRASES.items():
        text = text.replace(phrase, instead)
    return text


def waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return the blocking method for an async one; it waits for the client's thread."""

    @functools.wraps(method)
    def wait(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._thread.run(_method_of(self, method)(*arguments, **options))
        return result

    wait.__doc__ = blocking_doc(inspect.getdoc(method) or "")
    return wait


def calls(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return the blocking method for one that does not block; it runs in the client's thread."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._call(lambda _: _method_of(self, method)(*arguments, **options))
        return result

    call.__doc__ = blocking_doc(inspect.getdoc(method) or "")
    return call


def iterates(
    method: Callable[Concatenate[Any, P], T], blocking: Callable[[LoopThread, T], B]
) -> Callable[Concatenate[Any, P], B]:
    """Return the blocking method for one that returns an async iterator; ``blocking`` wraps it."""
    call = calls(method)

    @functools.wraps(call)
    def iterate(self: Any, /, *arguments: P.args, **options: P.kwargs) -> B:
        return blocking(self._thread, call(self, *arguments, **options))

    made: Any = iterate
    made.__signature__ = inspect.signature(method).replace(return_annotation=blocking)
    return iterate


def _method_of(blocking: Any, method: Callable[..., T]) -> Callable[..., T]:
    """Return the method of the async client, whose class may override ``method``."""
    own: Callable[..., T] = getattr(blocking._client, method.__name__)  # noqa: SLF001 - its client
    return own


class SyncClusterClient(Generic[C]):
    """An async client in its own thread with an event loop; any thread may use it."""

    _client: C

    def __init__(self, make: Callable[[], C], *, starts: bool = True) -> None:
        self._thread: Final = LoopThread()
        self._is_closed = False
        try:
            self._client = self._thread.run(_create_client(make, starts=starts))
        except BaseException:
            self._thread.close()
            raise
        self.source: Final = ThreadedSource(
            self._client.source, lambda work: self._thread.submit(work())
        )
        """The source for `rocketlens.find`."""

    find = waits(ClusterClient.find)
    story = waits(ClusterClient.story)
    expect = waits(ClusterClient.expect)
    query_message = waits(ClusterClient.query_message)
    query_message_by_unique_key = waits(ClusterClient.query_message_by_unique_key)
    query_by_queue_offset = waits(ClusterClient.query_by_queue_offset)
    forget_broker = calls(ClusterClient.forget_broker)
    message_queues = waits(ClusterClient.message_queues)
    search_offset = waits(ClusterClient.search_offset)
    min_offset = waits(ClusterClient.min_offset)
    max_offset = waits(ClusterClient.max_offset)
    earliest_message_store_time = waits(ClusterClient.earliest_message_store_time)
    create_topic = waits(ClusterClient.create_topic)

    @overload
    def view_message(self, msg_id: str, /) -> MessageExt: ...
    @overload
    def view_message(self, topic: str, msg_id: str, /) -> MessageExt: ...
    def view_message(self, first: str, second: str | None = None, /) -> MessageExt:
        """Return one message: by its offset message id, or by either id of a topic.

        Errors are those of `ClusterClient.view_message`.
        """
        if second is None:
            return self._thread.run(self._client.view_message(first))
        return self._thread.run(self._client.view_message(first, second))

    def start(self) -> None:
        """Has no effect: the constructor starts the client. Consumers override it."""

    def _call(self, work: Callable[[C], T]) -> T:
        """Run work that does not block in the client's thread."""

        async def call() -> T:
            return work(self._client)

        return self._thread.run(call())

    def close(self) -> None:
        """Close all connections and end the thread. A second call has no effect."""
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
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _create_client(make: Callable[[], C], *, starts: bool) -> C:
    client = make()
    if starts:
        await client.start()
    return client


async def next_of(messages: AsyncIterator[MessageExt]) -> MessageExt | None:
    """Return the next message; None at the end, since a coroutine cannot raise StopIteration."""
    return await anext(messages, None)
