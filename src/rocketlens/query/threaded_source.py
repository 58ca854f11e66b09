"""Queries a blocking source from an event loop, in another thread.

::

    with rocketlens.open_store("/data/rocketmq/store") as store:
        source = ThreadedSource(store.source)
        answer = await find_in_all(request, [source, cluster.source])
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from rocketlens.net.pace import WorkThreads
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest
from rocketlens.query.source import Source

T = TypeVar("T")
_THREADS: Final = WorkThreads(4, "store")


class ThreadedSource:
    """Makes a blocking source awaitable.

    Calls run in a pool of threads, one at a time for each source. For a source that belongs to
    another event loop, ``submit`` starts them there. A cancelled search stops at its next step.
    """

    def __init__(
        self, inner: Source, submit: Callable[[Callable[[], Any]], Future[Any]] | None = None
    ) -> None:
        self.inner: Final = inner
        self.name: Final = inner.name
        self.kind: Final = inner.kind
        self.is_one_log: Final = inner.is_one_log
        self._submit: Final = submit or (lambda work: _THREADS.submit(work, self))

    async def find(self, request: FindRequest, findings: Findings) -> None:
        try:
            await self.run(lambda: self.inner.find(request, findings))
        except asyncio.CancelledError:
            findings.is_abandoned = True
            raise

    async def oldest_ms(self) -> Mapping[str, int]:
        """Return the store times of the oldest messages, by source; empty if unknown."""
        oldest: Mapping[str, int] = await self.run(getattr(self.inner, "oldest_ms", dict))
        return oldest

    async def lacks(self, topics: Sequence[str]) -> bool:
        lacks: Any = getattr(self.inner, "lacks", None)
        return lacks is not None and bool(await self.run(lambda: lacks(topics)))

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        await self.run(lambda: self.inner.check_topics(names, findings))

    async def run(self, work: Callable[[], T]) -> T:
        """Run work on the source after all earlier calls."""
        result: T = await asyncio.wrap_future(self._submit(work))
        return result
