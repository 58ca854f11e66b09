"""Asks a source in another thread than that of the event loop which awaits it.

::

    with rocketlens.open_store("/data/rocketmq/store") as store:
        source = ThreadedSource(store.source)
        answer = await find_in_all(request, [source, cluster.source])
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from rocketlens.net.pace import WorkThreads
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest
from rocketlens.query.source import DatedSource, LocalSource, Source

T = TypeVar("T")
Submit = Callable[[Callable[[], Any]], Future[Any]]
_THREADS: Final = WorkThreads(4, "store")


class ThreadedSource:
    """A source of another thread as one that can be awaited.

    A local source is read by one search at a time, in a thread of a pool. One that belongs to
    another event loop is given with the ``submit`` that starts work there.

    A search whose caller is cancelled ends at its next step. With ``scans``, the same source opened
    a second time, searches without a text are done there: no look-up waits for what reads much.
    Without ``in_thread`` everything is done where it is awaited, and nothing waits.
    """

    def __init__(
        self,
        inner: LocalSource | Source,
        *,
        scans: Self | None = None,
        in_thread: bool = True,
        submit: Submit | None = None,
    ) -> None:
        """Read nothing yet."""
        self.inner: Final = inner
        self.name: Final = inner.name
        self.kind: Final = inner.kind
        self.is_one_log: Final = inner.is_one_log
        self._scans: Final = scans
        self._in_thread: Final = in_thread
        self._submit: Final[Submit] = submit or (lambda work: _THREADS.submit(work, self))

    async def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match."""
        if self._scans is not None and request.text is None:
            await self._scans.find(request, findings)
            return
        try:
            await self.run(lambda: self.inner.find(request, findings))
        except asyncio.CancelledError:
            findings.is_left = True
            raise

    async def oldest_ms(self) -> Mapping[str, int]:
        """Return from when on the source has messages; nothing if it does not say."""
        if not isinstance(self.inner, DatedSource):
            return {}
        oldest: Any = await self.run(self.inner.oldest_ms)
        result: Mapping[str, int] = oldest
        return result

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the source does not have."""
        await self.run(lambda: self.inner.check_topics(names, findings))

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of work on the source, done when no other is."""
        if not self._in_thread:
            return work()
        result: T = await asyncio.wrap_future(self._submit(work))
        return result
