"""The result of a query: messages, and how far they can be relied on.

Three answers are kept apart: found; not found and everything was searched; not complete, and
here is what failed. An error is never shown as an empty answer.

Nobody states that an answer is complete: that is derived from its coverage, by one rule.

======================================  ========================================================
an answer is complete if                so not, for example, if
======================================  ========================================================
no source failed                        a segment cannot be read, a broker does not answer
some source is a proof                  the coverage is empty, or names index files only
each stretch of log was read to where   the log was longer when the question was asked than
it ended when the question was asked    what was read of it
======================================  ========================================================

A proof is a stretch of log that says what it holds (``end_offset`` and ``log_end_offset``), or a
broker that answered. Index files, queues and the memory only lead to records of a log, and topics
only to brokers, so they prove nothing by themselves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rocketlens.model.message import MessageExt


class SourceState(StrEnum):
    """What became of one source that a query asked."""

    SEARCHED = "searched"
    """Asked, and it answered for its whole extent."""

    DAMAGED = "damaged"
    """Not usable, but the log itself was read in its place: the answer does not suffer."""

    FAILED = "failed"
    """Could not be searched: what it holds may be missing from the answer."""


class SourceKind(StrEnum):
    """What a source of an answer is."""

    BROKER = "broker"
    COMMIT_LOG = "commit_log"
    CONSUME_QUEUE = "consume_queue"
    INDEX_FILE = "index_file"
    TAIL = "tail"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class Coverage:
    """One source that a query asked.

    ``source`` names it: a path below the store, a range of physical offsets, or a broker's name
    and the address that was asked.
    ``indexed_to_ms`` is the store time of the newest message it can answer for, in epoch
    milliseconds, where that is known. ``error`` is one line, given for every state but searched.
    ``begin_offset`` and ``end_offset`` bound the physical offsets it looked at, where it is of a
    log: records that begin before ``end_offset``. ``log_end_offset`` is where the part of the log
    that could hold what was asked for ended when the question was asked.
    """

    source: str
    kind: SourceKind
    state: SourceState
    indexed_to_ms: int | None = None
    error: str | None = None
    begin_offset: int | None = None
    end_offset: int | None = None
    log_end_offset: int | None = None

    @property
    def is_short(self) -> bool:
        """Whether the log was longer than what was looked at."""
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
        return self.kind is SourceKind.BROKER or (
            self.kind is SourceKind.COMMIT_LOG and self.log_end_offset is not None
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query: messages in ascending order of physical offset, without repeats.

    Those of several brokers are in the order of their store times, then broker by broker.

    ``truncated`` is true when more messages matched than were asked for; the newest ones are kept.
    ``index_last_update_timestamp_ms`` is the store time of the newest message that the search
    covered, 0 when it covered none.
    """

    query: str
    messages: tuple[MessageExt, ...]
    coverage: tuple[Coverage, ...]
    truncated: bool = False
    index_last_update_timestamp_ms: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything that could hold a wanted message was searched."""
        return not self.failures and any(each.is_proof for each in self.coverage)

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Count the messages."""
        return len(self.messages)

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """The sources that could not be searched, or not to their end."""
        return tuple(each for each in self.coverage if each.is_failure)
