"""The result of a query: messages, and how far they can be relied on.

Three answers are kept apart: found; not found and everything was searched; not complete, and
here is what failed. An error is never shown as an empty answer.

Whether an answer is complete follows from its coverage, by one rule.

======================================  ========================================================
an answer is complete if                so not, for example, if
======================================  ========================================================
no source failed                        a segment cannot be read, a broker does not answer
some source is a proof                  the coverage is empty, or names index files only
each stretch of log was read to where   the log was longer when the question was asked than
it ended when the question was asked    what was read of it
======================================  ========================================================

A proof is a stretch of log that says what it holds (``end_offset`` and ``log_end_offset``), a
broker that answered, or an archive, which names what it holds. Index files, queues and the memory
only lead to records of a log, and topics only to brokers, so they prove nothing by themselves.
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
"""Characters of a text in a ``repr``."""


class SourceState(StrEnum):
    """The result of one source of a query."""

    SEARCHED = "searched"
    """Searched as a whole."""

    DAMAGED = "damaged"
    """Not usable, but the log was read in its place: the answer is not affected."""

    FAILED = "failed"
    """Could not be searched: its messages may be missing from the answer."""


class SourceKind(StrEnum):
    """The kind of a source of an answer."""

    ARCHIVE = "archive"
    BROKER = "broker"
    COMMIT_LOG = "commit_log"
    CONSUME_QUEUE = "consume_queue"
    FILTER = "filter"
    INDEX_FILE = "index_file"
    TAIL = "tail"
    TOPICS = "topics"


class Coverage(Struct, frozen=True):
    """One source of a query.

    ``source`` names it: a path below the store, a range of physical offsets, or a broker's name
    and the address that was asked.
    ``indexed_to_ms`` is the store time of the newest message it can answer for, in epoch
    milliseconds, where that is known. ``error`` is one line, given for what failed or is damaged;
    ``note`` is one of what was searched as a whole, such as a topic that is not there.
    ``begin_offset`` and ``end_offset`` bound the physical offsets it looked at, where it is of a
    log: records that begin before ``end_offset``. ``log_end_offset`` is where the part of the log
    that could hold what was asked for ended when the question was asked. ``relies_on`` is what was
    only looked at in part and must hold for all of it, if there is such a thing. ``held_from_ms``
    is the store time of the oldest message that it holds, where that is known: of archives and
    logs, and of brokers that are searched together with others.
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
        """Whether it could not be searched, or not to its end."""
        return self.state is SourceState.FAILED or self.is_short

    @property
    def is_proof(self) -> bool:
        """Whether an answer can be complete by this source: see the table above."""
        if self.is_failure:
            return False
        return self.kind in (SourceKind.ARCHIVE, SourceKind.BROKER) or (
            self.kind is SourceKind.COMMIT_LOG and self.log_end_offset is not None
        )


def hint(source: str, note: str, kind: SourceKind = SourceKind.TOPICS) -> Coverage:
    """Return what is to be said of a source that was searched."""
    return Coverage(source, kind, SourceState.SEARCHED, note=note)


class ListAnswer(TableView, Generic[T_co]):
    """A result that is a list, such as messages or topics, and how far it can be relied on.

    It has a length, can be iterated over, and gives a part or a slice by its index.
    """

    __slots__ = ()
    coverage: tuple[Coverage, ...]
    """Where was looked."""
    _field: ClassVar[str]
    """The field that has the list."""
    _noun: ClassVar[str]
    """The word for one of its values."""

    @property
    def _parts(self) -> tuple[T_co, ...]:
        parts: tuple[T_co, ...] = getattr(self, self._field)
        return parts

    @property
    def complete(self) -> bool:
        """Whether everything that can have a part of it was searched."""
        return is_complete(self.coverage)

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """The sources that could not be searched, or not to their end."""
        return tuple(each for each in self.coverage if each.is_failure)

    @property
    def first(self) -> T_co | None:
        """The first one, or None if there is none."""
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
        """Return one of them, or those of a slice.

        :raises IndexError: when there are not so many.
        """
        return self._parts[index]

    def __repr__(self) -> str:
        """Return how many there are, and what that is worth."""
        return f"{type(self).__name__}({self._summary()})"

    def _remarks(self) -> Iterator[str]:
        return (f"{each.source}: {each.error}" for each in self.failures)

    def _summary(self) -> str:
        worth = "complete" if self.complete else f"INCOMPLETE: {len(self.failures)} failed"
        # Of what is not there, the nearest name.
        notes = () if len(self) else (each.note for each in self.coverage if each.note)
        return "; ".join([f"{counted(len(self), self._noun)}, {worth}", *notes][:2])


def is_complete(coverage: Sequence[Coverage]) -> bool:
    """Return whether an answer of this coverage is complete: see the table above."""
    return any(each.is_proof for each in coverage) and not any(each.is_failure for each in coverage)


def first_failure(coverage: Iterable[Coverage]) -> str:
    """Return the first source that failed, and why; empty if none did."""
    failed = next((each for each in coverage if each.is_failure), None)
    return "" if failed is None else f"{failed.source}: {failed.error}"


class Answer(ArrowMessages, ListAnswer[MessageExt], Struct, frozen=True):
    """The result of a query: messages in ascending order of physical offset, without repeats.

    Those of several brokers are in the order of their store times, then broker by broker.

    ``truncated`` is true when more messages matched than were asked for; the newest ones are kept.
    ``index_last_update_timestamp_ms`` is the store time of the newest message that the search
    covered, 0 when it covered none.
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
    """Of several sources: the names of those that have each message, in the order of messages."""

    def __repr__(self) -> str:
        """Return what was asked, how many messages there are, and what that is worth."""
        cut = ", truncated" if self.truncated else ""
        return f"Answer({self.query[:_SHOWN_QUERY]!r}, {self._summary()}{cut})"

    def sources_of(self, message: MessageExt) -> tuple[str, ...]:
        """Return the names of the sources that have one of its messages; none of a single source.

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

        :raises PackageMissing: without pyarrow.
        """
        return batches_of(self.messages)

    @property
    def relies_on(self) -> tuple[str, ...]:
        """Assumptions of the answer that could be checked only in part."""
        return tuple(dict.fromkeys(each.relies_on for each in self.coverage if each.relies_on))
