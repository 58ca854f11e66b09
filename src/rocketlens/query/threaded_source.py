"""Puts a source that never waits into a thread, so that an event loop can ask it.

::

    with rocketlens.open_store("/data/rocketmq/store") as store:
        source = ThreadedSource(store.source)
        answer = await find_in_all(request, [source, cluster.source])
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Self, TypeVar

from rocketlens.net.pace import WorkThreads
from rocketlens.query.answer_builder import Findings
from rocketlens.query.request import FindRequest
from rocketlens.query.source import LocalSource

T = TypeVar("T")
_THREADS: Final = WorkThreads(4, "store")


class ThreadedSource:
    """A local source as one that can be awaited: it is read by one search at a time, in a thread.

    A search whose caller is cancelled ends at its next step. With ``scans``, the same source opened
    a second time, searches without a text are done there: no look-up waits for what reads much.
    Without ``in_thread`` everything is done where it is awaited, and nothing waits.
    """

    def __init__(
        self, local: LocalSource, *, scans: Self | None = None, in_thread: bool = True
    ) -> None:
        """Read nothing yet."""
        self.local: Final = local
        self.name: Final = local.name
        self.kind: Final = local.kind
        self.is_one_log: Final = local.is_one_log
        self._scans: Final = scans
        self._in_thread: Final = in_thread

    async def find(self, request: FindRequest, findings: Findings) -> None:
        """Add the messages that match."""
        if self._scans is not None and request.text is None:
            await self._scans.find(request, findings)
            return
        try:
            await self.run(lambda: self.local.find(request, findings))
        except asyncio.CancelledError:
            findings.is_left = True
            raise

    async def check_topics(self, names: Sequence[str], findings: Findings) -> None:
        """Add the topics that the source does not have."""
        await self.run(lambda: self.local.check_topics(names, findings))

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of work on the source, done when no other is."""
        if not self._in_thread:
            return work()
        return await asyncio.wrap_future(_THREADS.submit(work, self))
