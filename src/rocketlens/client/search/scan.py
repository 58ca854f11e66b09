"""All messages of topics of a cluster, one after the other, or as Arrow record batches.

Topics are read in the order of their names, and each as ``tail`` reads one
(`rocketlens.client.search.tail`): queue by queue as brokers answer, in bounded memory, with nothing
left at the brokers. A topic that cannot be read in full makes the scan incomplete.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Final

from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.left_out import count_left_out
from rocketlens.client.search.tail import TailRequest, TopicTail
from rocketlens.errors import TopicNotFound
from rocketlens.model.answer import Answer, Coverage
from rocketlens.model.arrow import BATCH_BYTES, BATCH_ROWS, batches_of, package
from rocketlens.model.arrow import schema as arrow_schema
from rocketlens.model.message import MessageExt
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.options import ScanOptions, takes
from rocketlens.query.request import FindRequest

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa


class ClusterMessages:
    """Iterates over the messages of topics. Of one event loop, iterated once.

    ``failures`` and ``coverage`` say what could be read, once the iteration has ended. Messages are
    in the order of each queue.
    """

    def __init__(
        self,
        source: ClusterSource,
        request: FindRequest,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        self._source: Final = source
        self._request: Final = request.for_one_source()
        self._on_event: Final = on_event
        self._findings: Final = Findings(AnswerMessages(0))

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read, and left out."""
        return (*self._findings.coverage, *self._request.filter_coverage)

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for could be read, once the iteration has ended."""
        return Answer("", (), self.coverage).complete

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """What could not be read."""
        return Answer("", (), self.coverage).failures

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Yield the messages.

        :raises TopicNotFound: if the cluster has no topic of a name, or none matches a pattern.
        :raises RemotingError: if no name server answers.
        """
        topics, left_out = await self._source.topics_for(self._request, self._findings)
        for topic in topics:
            try:
                async for message in self._of_topic(topic):
                    yield message
            except TopicNotFound:
                # One that is not named was deleted since the topics were listed.
                if topic in map(self._source.full_topic, self._request.topics):
                    raise
        await count_left_out(self._source, self._request, left_out)

    async def _of_topic(self, topic: str) -> AsyncIterator[MessageExt]:
        source = self._source
        request = TailRequest(
            message_filter=self._request.filter_of([topic]), newest=None, follow=False
        )
        tail = TopicTail(
            source.cluster, source.survey, request, on_event=self._on_event, tells_content=False
        )
        async with tail:
            async for message in tail:
                yield message
        self._findings.cover(tail.coverage)

    async def record_batches(self) -> AsyncIterator["pa.RecordBatch"]:
        """Yield the messages as record batches of bounded size, as they come; errors as iteration.

        :raises PackageMissing: without pyarrow.
        """
        package("pyarrow", "arrow", "record_batches")
        kept: list[MessageExt] = []
        size = 0
        async for message in self:
            kept.append(message)
            size += len(message.body)
            if len(kept) == BATCH_ROWS or size >= BATCH_BYTES:
                for batch in batches_of(kept):
                    yield batch
                kept, size = [], 0
        for batch in batches_of(kept):
            yield batch

    async def to_arrow(self) -> "pa.Table":
        """Return all messages as an Arrow table; errors as `record_batches`."""
        pyarrow = package("pyarrow", "arrow", "to_arrow")
        batches = [batch async for batch in self.record_batches()]
        table: pa.Table = pyarrow.Table.from_batches(batches, arrow_schema())
        return table


class ScanAdmin(ABC):
    """The part of an admin that reads whole topics."""

    @property
    @abstractmethod
    def _source(self) -> ClusterSource:
        """The cluster that is asked."""

    @takes(ScanOptions, FindRequest.parse)
    def scan(
        self,
        topic: str | Iterable[str] | None = None,
        *,
        on_event: Callable[[str], None] | None = None,
        **options: "Unpack[ScanOptions]",
    ) -> ClusterMessages:
        """Return an async iterator over the messages of a topic or several, or of all.

        The keywords are those of `rocketlens.query.options.ScanOptions`. Any number of messages is
        read in bounded memory, where `find` keeps an answer in it. ``record_batches()`` of the
        result yields them as Arrow record batches, and ``to_arrow()`` returns a table;
        ``complete`` and ``coverage`` say what could be read. Messages are in the order of each
        queue. ``on_event`` is called with
        a line for what is not a message, as in `tail`.

        The iteration raises TopicNotFound if the cluster has no topic of a name or none matches a
        pattern, and RemotingError if no name server answers.

        :raises BadInput: if a condition is not well-formed, or a time is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
        """
        request = FindRequest.parse_scan(topic, exhaustive=True, **options)
        return ClusterMessages(self._source, request, on_event)
