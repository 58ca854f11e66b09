"""Messages that searches leave out: of RocketMQ's own topics, and of batches that cannot be read.

Traces have the keys and ids of the messages that they are about, and bodies that hold them, so they
would be among the answers to nearly every question. A search that names no topic leaves them out
and says how many there are. Copies that brokers keep of users' messages, for delays, timers and
transactions, are in answers as other messages are.

=====================================  =========================================================
case                                   what is searched
=====================================  =========================================================
no topic is named; ``*`` names none    all topics but RocketMQ's own
a topic is named, by a pattern, too    that topic, whatever it is
an offset message id, a position       the message, whatever topic it is of
``all_topics``                         all topics
=====================================  =========================================================

It is not known which messages are in a batch that cannot be taken apart. Such a record is in
answers as it is, and makes them incomplete: other messages than it may match.
"""

from collections import Counter
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Final

from rocketlens import limits
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.model.text.counted import counted
from rocketlens.model.text.sentences import Sentence

if TYPE_CHECKING:
    from rocketlens.formats.commitlog_record import Record, RecordView

_ALL: Final = "*?"
_SHOWN_TOPICS: Final = 3
_SHOWN: Final = 3


class LeftOutMessages:
    """Counts the messages of RocketMQ's own topics that one search of one source leaves out."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._counts: Final[Counter[str]] = Counter()
        self._seen: Final[set[int]] = set()
        self._uncounted: Final[set[str]] = set()

    def leaves_out(self, record: "Record | RecordView") -> bool:
        """Return whether a record that matches is left out, and count it once."""
        if not is_internal_topic(record.topic):
            return False
        if record.physical_offset not in self._seen:
            if len(self._seen) < limits.MAX_FILTER_FAILURES:
                self._seen.add(record.physical_offset)
            self._counts[record.topic] += 1
        return True

    def add(self, topic: str, count: int) -> None:
        """Count messages of a topic that were read once."""
        self._counts[topic] += count

    def put(self, topic: str, count: int | None, *, is_least: bool = False) -> None:
        """Set how many messages of a topic there are: None if that is not known."""
        self._counts[topic] = max(self._counts[topic], count or 0)
        if is_least or count is None:
            self._uncounted.add(topic)

    def coverage(self) -> tuple[Coverage, ...]:
        """Return what was left out; nothing if all of it was searched."""
        count = self._counts.total()
        topics = [
            name for name, number in self._counts.most_common() if number or name in self._uncounted
        ]
        if not topics:
            return ()
        is_one = count == 1
        messages = Sentence("one_message") if is_one else Sentence("messages", count=count)
        if self._uncounted:
            messages = Sentence("or_more", messages=messages)
        shown = ", ".join(topics[:_SHOWN_TOPICS]) + (", ..." if topics[_SHOWN_TOPICS:] else "")
        sentence = Sentence("left_out", messages=messages, topics=shown)
        return (Coverage("topics", SourceKind.TOPICS, SourceState.SEARCHED, None, sentence),)


def names_topics(topics: Iterable[str]) -> bool:
    """Return whether any of some names and patterns says which topics: ``*`` does not."""
    return any(each.strip(_ALL) for each in topics)


class UnreadBatches:
    """Counts the batches of one search that cannot be taken apart. Threads may add to it."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._positions: Final[dict[tuple[object, int], str]] = {}
        self._lock: Final = Lock()

    def add(self, record: "Record") -> None:
        """Count a batch, once."""
        with self._lock:
            if len(self._positions) < limits.MAX_FILTER_FAILURES:
                where = record.store_host, record.physical_offset
                position = f"{record.topic}/{record.queue_id}/{record.queue_offset}"
                self._positions[where] = position

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the batches as one failure; nothing if there is none."""
        if not self._positions:
            return ()
        positions = list(self._positions.values())
        shown = ", ".join(positions[:_SHOWN]) + (", ..." if positions[_SHOWN:] else "")
        error = (
            f"{counted(len(positions), 'record')} cannot be taken apart into the messages of a "
            f"batch, which were not searched: {shown}"
        )
        return (Coverage("batches", SourceKind.FILTER, SourceState.FAILED, None, error),)
