"""Messages of topics of a cluster, iterated over with blocking calls, and as tables of Arrow.

Written by hand, so it stands beside `sync`, which is generated.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Final, Self

from rocketlens.client.search.topic_scan import ClusterMessages
from rocketlens.client.search.topic_tail import TopicTail
from rocketlens.model.answer import Coverage
from rocketlens.model.arrow import ArrowMessages, batches_of
from rocketlens.model.message import MessageExt
from rocketlens.net.sync import LoopThread

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE: Final = 256
"""Messages that pass from the thread of the client to that of the caller in one step, at most."""
_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Bytes of bodies after which they pass."""


class SyncTopicTail:
    """`rocketlens.client.search.topic_tail.TopicTail` with blocking calls; a context manager."""

    def __init__(self, thread: LoopThread, tailed: TopicTail) -> None:
        self._thread: Final = thread
        self._tailed: Final = tailed

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage."""
        return self._tailed.coverage

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for could be read, once the iteration has ended."""
        return self._tailed.complete

    def close(self) -> None:
        """Stop reading."""
        self._thread.run(self._tailed.aclose())

    def __enter__(self) -> Self:
        """Return this tail."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading."""
        self.close()

    def __iter__(self) -> Self:
        """Return this tail."""
        return self

    def __next__(self) -> MessageExt:
        """Return the next message; waits for it if the tail follows."""
        message = self._thread.run(self._next())
        if message is None:
            raise StopIteration
        return message

    async def _next(self) -> MessageExt | None:
        # A coroutine cannot raise StopIteration.
        return await anext(self._tailed, None)


class SyncClusterMessages(ArrowMessages):
    """`ClusterMessages` of `client.search.topic_scan` with blocking calls; also a table of Arrow.

    Polars, DuckDB and pyarrow take it as it is, pandas by `to_pandas`. It is read once.
    """

    def __init__(self, thread: LoopThread, scan: ClusterMessages) -> None:
        self._thread: Final = thread
        self._scan: Final = scan

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The coverage: what was read, and left out."""
        return self._scan.coverage

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for could be read, once the iteration has ended."""
        return self._scan.complete

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """The coverage that failed."""
        return self._scan.failures

    @property
    def on_read(self) -> Callable[[int, int | None, int], bool] | None:
        """As `ClusterMessages` has it; called in the client's thread."""
        return self._scan.on_read

    @on_read.setter
    def on_read(self, on_read: Callable[[int, int | None, int], bool] | None) -> None:
        """Set what is called."""
        self._scan.on_read = on_read

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield the messages; errors as `ClusterMessages`."""
        messages = aiter(self._scan)
        while chunk := self._thread.run(_some(messages)):
            yield from chunk

    def record_batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size, as they come."""
        return batches_of(self)


async def _some(messages: AsyncIterator[MessageExt]) -> list[MessageExt]:
    """Return the next messages; none at the end."""
    chunk: list[MessageExt] = []
    size = 0
    async for message in messages:
        chunk.append(message)
        size += len(message.body)
        if len(chunk) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            break
    return chunk
