"""What a query gives back: the messages, and how far they can be relied on.

Three answers are kept apart: found; not found and everything was searched; not complete, and
here is what failed. An error is never shown as an empty answer.
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
    """

    source: str
    kind: SourceKind
    state: SourceState
    indexed_to_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query: messages in ascending order of physical offset, without repeats.

    Those of several brokers are in the order of their store times, then broker by broker.

    ``complete`` is false when a source failed. ``truncated`` is true when more messages matched
    than were asked for; the newest ones are kept. ``index_last_update_timestamp_ms`` is the store
    time of the newest message that the search covered, 0 when it covered none.
    """

    query: str
    messages: tuple[MessageExt, ...]
    complete: bool
    coverage: tuple[Coverage, ...] = ()
    truncated: bool = False
    index_last_update_timestamp_ms: int = 0

    def __iter__(self) -> Iterator[MessageExt]:
        """Iterate over the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Count the messages."""
        return len(self.messages)

    @property
    def failures(self) -> tuple[Coverage, ...]:
        """The sources that could not be searched."""
        return tuple(c for c in self.coverage if c.state is SourceState.FAILED)
