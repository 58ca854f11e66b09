"""All messages of an archive that match, read file by file."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from rocketlens.archive.source import ArchiveSource, bounds_of, matching
from rocketlens.model.answer import Coverage, is_complete
from rocketlens.model.arrow import ArrowMessages, batches_of
from rocketlens.model.message import MessageExt
from rocketlens.query.lookup.message_filter import MessageFilter

if TYPE_CHECKING:
    import pyarrow as pa


class ArchiveScan(ArrowMessages):
    """The messages of an archive that match a filter, read file by file, the oldest first.

    Iterate over it for the messages. After that ``coverage`` says what was read.
    """

    def __init__(self, source: ArchiveSource, message_filter: MessageFilter) -> None:
        """Prepare a scan; nothing is read yet."""
        self._source: Final = source
        self._filter: Final = message_filter
        self._errors: Final[list[str]] = []
        self.on_read: Callable[[int, int, int], bool] | None = None
        """Is called after each file with the bytes that were read, those to read, and messages. If
        it returns False, reading ends there."""
        self.is_at_end = False
        """Whether all was read."""

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield the messages."""
        bounds = bounds_of(self._filter)
        files = self._source.files(bounds)
        total = sum(file.size for file in files)
        read = count = 0
        for file in files:
            for rows in self._source.rows(file, bounds, self._errors):
                count += rows.num_rows
                yield from matching(rows, self._filter)
            read += file.size
            if self.on_read is not None and not self.on_read(read, total, count):
                return
        self.is_at_end = True

    def record_batches(self, *, with_body: bool = True) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size; as `Scan.record_batches`."""
        return batches_of(self, with_body=with_body)

    @property
    def complete(self) -> bool:
        """Whether all was read, and everything of that could be."""
        return is_complete(self.coverage)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """What was read, what could not be, and what a filter left out."""
        return self._coverage(*(() if self.is_at_end else ("it was not read to its end",)))

    @property
    def coverage_so_far(self) -> tuple[Coverage, ...]:
        """The coverage for a reader that needed no more than was read."""
        return self._coverage()

    def _coverage(self, *more: str) -> tuple[Coverage, ...]:
        errors = [*self._errors, *more]
        content, left_out = self._filter.content, self._filter.left_out
        return (
            *self._source.coverage(self._filter, self._filter.record_topics, errors),
            *(content.tally.coverage() if content else ()),
            *(left_out.coverage() if left_out else ()),
        )
