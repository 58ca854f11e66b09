"""All messages of topics of a cluster, in the order of store times, or as Arrow record batches.

All queues are read side by side, in bounded memory (`rocketlens.client.search.time_order`), with
nothing left at the brokers. What cannot be read in full makes the scan incomplete, and the times of
a range rely on what a search by time relies on.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from rocketlens.client.search.cluster_source import ClusterSource
from rocketlens.client.search.left_out_count import count_left_out
from rocketlens.client.search.time_order import TimeOrder
from rocketlens.formats.commitlog_record import message_of
from rocketlens.model.answer import Answer, Coverage, SourceState
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
    in the order of their store times, as far as those rise in each queue.
    """

    def __init__(self, source: ClusterSource, request: FindRequest) -> None:
        self._source: Final = source
        self._request: Final = request.for_one_source()
        self._findings: Final = Findings(AnswerMessages(0))
        self.on_read: Callable[[int, int | None, int], bool] | None = None
        """Is called with the bytes and messages that were read, several times a second; once it
        returns False the iteration ends, with what was read until then.
        """

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

    async def __aiter__(self) -> AsyncGenerator[MessageExt, None]:
        """Yield the messages.

        :raises TopicNotFound: if the cluster has no topic of a name, or none matches a pattern.
        :raises RemotingError: if no name server answers.
        """
        source, request, findings = self._source, self._request, self._findings
        topics, left_out = await source.topics_for(request, findings)
        merged = TimeOrder(source, request, findings, self.on_read)
        async with aclosing(merged.read(topics)) as read:
            async for records in read:
                for record in records:
                    yield message_of(record)
        if merged.is_interrupted:
            failed = SourceState.FAILED
            findings.cover((Coverage(source.name, source.kind, failed, None, "interrupted"),))
            return
        await count_left_out(source, request, left_out)
        findings.cover(await source.topology.gone_since())

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
        exhaustive: bool = False,
        **options: "Unpack[ScanOptions]",
    ) -> ClusterMessages:
        """Return an async iterator over the messages of a topic or several, or of all.

        The keywords are those of `rocketlens.query.options.ScanOptions`; ``exhaustive`` reads whole
        queues, instead of relying on the order of store times. Any number of messages is read in
        bounded memory, where `find` keeps an answer in it, and the first ones come at once.
        ``record_batches()`` of the result yields them as Arrow record batches, and ``to_arrow()``
        returns a table; ``complete`` and ``coverage`` say what could be read. Messages are in the
        order of their store times, as far as those rise in each queue.

        The iteration raises TopicNotFound if the cluster has no topic of a name or none matches a
        pattern, and RemotingError if no name server answers.

        :raises BadInput: if a condition is not well-formed, or a time is negative.
        :raises WrongType: if an argument is of a type that cannot be used.
        """
        return self.scan_for(FindRequest.parse_scan(topic, exhaustive=exhaustive, **options))

    def scan_for(self, request: FindRequest) -> ClusterMessages:
        """Return an async iterator over the messages of a request that has no text; as `scan`."""
        return ClusterMessages(self._source, request)
