"""The result of a query: messages, and the sources that were searched for them.

An answer distinguishes three cases: found; not found although everything was searched; incomplete,
with the sources that failed. An error is never shown as an empty answer.

One rule derives from the coverage if an answer is complete.

======================================  ========================================================
an answer is complete if                so it is incomplete, for example, if
======================================  ========================================================
no source failed                        a segment cannot be read, a broker does not answer
at least one source is a proof          the coverage is empty, or has index files only
each log was read to its end at the     the log was longer when the question was asked than
time of the question                    the part that was read
======================================  ========================================================

A proof is a range of a log (``end_offset`` and ``log_end_offset`` are set), a broker that answered,
or an archive. Index files, queues and the tail only refer to records of a log, and topics only to
brokers, so they prove nothing by themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar, overload

from msgspec import Struct

from rocketlens.model.arrow import ArrowMessages, batches_of
from rocketlens.model.message import MessageExt
from rocketlens.model.tables import TableView, utc_time
from rocketlens.model.text.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa

T_co = TypeVar("T_co", covariant=True)
_SHOWN_QUERY: Final = 100
"""Characters of the query in a ``repr``."""


class SourceState(StrEnum):
    """The state of one source after a query."""

    SEARCHED = "searched"
    """Searched completely."""

    DAMAGED = "damaged"
    """Unusable, but the log was read instead: the answer is not affected."""

    FAILED = "failed"
    """Not searched: its messages may be missing from the answer."""


class SourceKind(StrEnum):
    """The kind of a source."""

    ARCHIVE = "archive"
    BROKER = "broker"
    COMMIT_LOG = "commit_log"
    CONSUME_QUEUE = "consume_queue"
    FILTER = "filter"
    INDEX_FILE = "index_file"
    TAIL = "tail"
    TOPICS = "topics"


class Coverage(Struct, frozen=True):
    """One source of a query, and the part of it that was searched.

    ``source`` is a path in the store, a range of physical offsets, or the name and address of a
    broker. ``error`` says in one line why the source failed or is damaged. ``note`` is a remark on
    a source that was searched, for example that a topic does not exist.

    ``begin_offset`` and ``end_offset`` are the searched range of physical offsets, if the source is
    a log: records that start before ``end_offset``. ``log_end_offset`` is the end of the relevant
    part of the log when the question was asked. ``relies_on`` names an assumption that was checked
    only for samples.

    ``indexed_to_ms`` and ``held_from_ms`` are the store times of the newest and the oldest message
    of the source in epoch milliseconds, or None if unknown. ``held_from_ms`` is set for archives
    and logs, and for brokers that are searched together with other sources.
    """

    source: str
    kind: SourceKind
    state: SourceState
    indexed_to_ms: int | None = None
    error: str | None = None
    begin_offset: int | None = None
    end_offset: int | None = None
    log_end_offset: int | None = None
    relies_on: str | None = None
    held_from_ms: int | None = None
    note: str | None = None

    @property
    def is_short(self) -> bool:
        """Whether the log was longer than the part that was read."""
        if self.log_end_offset is None:
            return False
        return self.end_offset is None or self.end_offset < self.log_end_offset

    @property
    def is_failure(self) -> bool:
        """Whether the source was not searched, or not to its end."""
        return self.state is SourceState.FAILED or self.is_short

    @property
    def is_proof(self) -> bool:
        """Whether this source alone makes an answer complete: see the table above."""
        if self.is_failure:
            return False
        return self.kind in (SourceKind.ARCHIVE, SourceKind.BROKER) or (
            self.kind is SourceKind.COMMIT_LOG and self.log_end_offset is not None
        )


def hint(source: str, note: str, kind: SourceKind = SourceKind.TOPICS) -> Coverage:
    """Return the coverage of a searched source with a remark."""
    return Coverage(source, kind, SourceState.SEARCHED, note=note)


def failure(source: str, kind: SourceKind, error: str | None) -> Coverage:
    """Return the coverage of a source that failed."""
    return Coverage(source, kind, SourceState.FAILED, error=error)


class ListAnswer(TableView, Generic[T_co]):
    """A list of results, such as messages or topics, and the sources that were searched.

    It behaves like a sequence: length, iteration, index and slice.
    """

    __slots__ = ()
    coverage: tuple[Coverage, ...]
    """The sources that were searched."""
    _field: ClassVar[str]
    """The field with the list."""
    _noun: ClassVar[str]
    """The singular of the results."""

    @property
    def _parts(self) -> tuple[T_co, ...]:
        parts: tuple[T_co, ...] = getattr(self, self._field)
        return parts

    @property
    def complete(self) -> bool:
        """Whether everything that could contain a result was searched."""
        return is_complete(self.coverage)

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """The sources that were not searched, or not to their end."""
        return tuple(each for each in self.coverage if each.is_failure)

    @property
    def first(self) -> T_co | None:
        """The first result, or None."""
        return next(iter(self._parts), None)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        """Return one result, or a slice of them.

        :raises IndexError: if the index is out of range.
        """
        return self._parts[index]

    def __repr__(self) -> str:
        """Return the number of results, and whether they are complete."""
        return f"{type(self).__name__}({self._summary()})"

    def _remarks(self) -> Iterator[str]:
        return (f"{each.source}: {each.error}" for each in self.failures)

    def _summary(self) -> str:
        worth = "complete" if self.complete else f"INCOMPLETE: {len(self.failures)} failed"
        # A note on an unknown name suggests the nearest one.
        notes = () if len(self) else (each.note for each in self.coverage if each.note)
        return "; ".join([f"{counted(len(self), self._noun)}, {worth}", *notes][:2])


def is_complete(coverage: Sequence[Coverage]) -> bool:
    """Return True if an answer with this coverage is complete: see the table above."""
    return any(each.is_proof for each in coverage) and not any(each.is_failure for each in coverage)


def first_failure(coverage: Iterable[Coverage]) -> str:
    """Return the first source that failed, with its error; empty if none did."""
    failed = next((each for each in coverage if each.is_failure), None)
    return "" if failed is None else f"{failed.source}: {failed.error}"


class Answer(ArrowMessages, ListAnswer[MessageExt], Struct, frozen=True):
    """The result of a query: messages in ascending order of physical offset, without repeats.

    Messages of several brokers are ordered by store time, then by broker.

    ``truncated`` is true if more messages matched than were requested; the newest are kept.
    ``index_last_update_timestamp_ms`` is the store time of the newest message that was searched, or
    0 if there was none.
    """

    _field = "messages"
    _noun = "message"
    _titles = ("position", "tags", "keys", "msg_id", "store_time", "body")
    query: str
    messages: tuple[MessageExt, ...]
    coverage: tuple[Coverage, ...]
    truncated: bool = False
    index_last_update_timestamp_ms: int = 0
    held_by: tuple[tuple[str, ...], ...] = ()
    """For several sources: the names of the sources that contain each message, in the same order.
    """

    def __repr__(self) -> str:
        """Return the query, the number of messages, and whether they are complete."""
        cut = ", truncated" if self.truncated else ""
        return f"Answer({self.query[:_SHOWN_QUERY]!r}, {self._summary()}{cut})"

    def sources_of(self, message: MessageExt) -> tuple[str, ...]:
        """Return the names of the sources that contain a message; empty for a single source.

        O(messages).
        """
        pairs = zip(self.messages, self.held_by, strict=False)
        return next((names for each, names in pairs if each is message or each == message), ())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for each in self.messages:
            yield (
                *(each.position, each.tags, " ".join(each.keys), each.msg_id),
                *(utc_time(each.store_timestamp_ms), each.body),
            )

    def record_batches(self) -> "Iterator[pa.RecordBatch]":
        """Yield the messages as record batches of bounded size.

        :raises PackageMissing: if pyarrow is not installed.
        """
        return batches_of(self.messages)

    @property
    def relies_on(self) -> tuple[str, ...]:
        """Assumptions of the answer that were checked only for samples."""
        return tuple(dict.fromkeys(each.relies_on for each in self.coverage if each.relies_on))
