"""Counts messages that a search of one source left out, or could not decide on.

=====================================  =========================================================
case                                   answer
=====================================  =========================================================
a message of RocketMQ's own topics     leaves it out, and mentions the number, if the search
                                       names no topic: see `names_topics`
a batch that cannot be unpacked        contains the record as it is, and is incomplete: other
                                       messages of the batch can match
a body that a filter cannot read       leaves the message out, and is incomplete
values that cannot be compared         leaves the message out, and mentions it
a property that no message has, but    suggests the field of the body
bodies have such a field
a broker or cluster, if the source     mentions that conditions on it never hold
does not know it
=====================================  =========================================================

Traces have the keys and ids of their messages, so they would be in most answers. Copies of users'
messages, for delays, timers and transactions, are treated like other messages.
"""

from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter
from threading import Lock
from typing import Final

from rocketlens.formats.commitlog_record import Record, RecordView
from rocketlens.model.answer import Coverage, SourceKind, failure, hint
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.model.text.counted import counted
from rocketlens.model.text.sentences import Sentence

MAX_FILTER_FAILURES: Final = 100_000
"""Messages that are remembered, to count each once: 20 MiB. More can be counted repeatedly."""
MAX_HINTED_BODIES: Final = 200
"""Messages without a filter's property whose bodies are searched for a field of that name."""
_EVERY_NAME: Final = "*?"
_SHOWN: Final = 3


def names_topics(topics: Iterable[str]) -> bool:
    """Return whether any name or pattern restricts the topics: ``*`` does not."""
    return any(each.strip(_EVERY_NAME) for each in topics)


class SearchTally:
    """The counts of one search of one source. Thread-safe.

    Up to `MAX_FILTER_FAILURES` messages of each case are counted once even if read repeatedly.
    """

    def __init__(self) -> None:
        self._internal: Final[defaultdict[str, int]] = defaultdict(int)
        self._seen: Final[set[int]] = set()
        self._uncounted: Final[set[str]] = set()
        self._batches: Final[dict[tuple[object, int], str]] = {}
        self._counted: Final[defaultdict[str, _Counted]] = defaultdict(_Counted)
        """Messages that a filter could not decide on, by the name of the sentence."""
        self.properties: Final[set[str]] = set()
        """Names of properties in the filter that some message has."""
        self.body_fields: Final[set[str]] = set()
        """Names of properties in the filter that some message has as a field of its body."""
        self.unknown_origins: Final[set[str]] = set()
        """``cluster`` or ``broker``, if the filter uses it and the source does not know it."""
        self._bodies_left: int = MAX_HINTED_BODIES
        self._lock: Final = Lock()

    def is_internal(self, record: Record | RecordView) -> bool:
        """Return whether a record is of one of RocketMQ's own topics, and if so, count it."""
        topic = record.topic
        if not is_internal_topic(topic):
            return False
        with self._lock:
            if record.physical_offset not in self._seen:
                if len(self._seen) < MAX_FILTER_FAILURES:
                    self._seen.add(record.physical_offset)
                self._internal[topic] += 1
        return True

    def add_internal(self, topic: str, count: int) -> None:
        """Count messages of one of RocketMQ's own topics that are read only once."""
        with self._lock:
            self._internal[topic] += count

    def put_internal(self, topic: str, count: int | None, *, is_least: bool = False) -> None:
        """Set the number of messages in one of RocketMQ's own topics; None if unknown."""
        with self._lock:
            self._internal[topic] = max(self._internal[topic], count or 0)
            if is_least or count is None:
                self._uncounted.add(topic)

    def add_batch(self, record: Record) -> None:
        with self._lock:
            if len(self._batches) < MAX_FILTER_FAILURES:
                where = record.store_host, record.physical_offset
                position = f"{record.topic}/{record.queue_id}/{record.queue_offset}"
                self._batches[where] = position

    def add_undecided(self, case: str, record: Record | RecordView, reason: str) -> None:
        """Count a message; ``case`` is the sentence "filter_unread" or "filter_not_comparable"."""
        with self._lock:
            self._counted[case].add(record, reason)

    def use_hint_budget(self, name: str) -> bool:
        """Like `has_hint_budget`, for a body that is searched then."""
        if not self.has_hint_budget(name):
            return False
        self._bodies_left -= 1
        return True

    def has_hint_budget(self, name: str) -> bool:
        """Return whether to search another body for a field with the name of a property."""
        is_known = name in self.properties or name in self.body_fields
        return self._bodies_left > 0 and not is_known

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the counts as coverage; empty if every message was decided."""
        counts = self._counted, self._internal, self._batches
        if not any((*counts, self.body_fields, self.unknown_origins)):
            return ()
        kind = SourceKind.FILTER
        parts: list[Coverage] = []
        if "filter_unread" in self._counted:
            sentence: str = self._counted["filter_unread"].described("filter_unread")
            parts.append(failure("filter", kind, sentence))
        if "filter_not_comparable" in self._counted:
            sentence = self._counted["filter_not_comparable"].described("filter_not_comparable")
            parts.append(hint("filter", sentence, kind))
        for name in sorted(self.body_fields - self.properties):
            # Late import: rarely needed.
            from rocketlens.query.filters.where import body_path

            sentence = Sentence("no_such_property", name=name, path=body_path(name))
            parts.append(hint("filter", sentence, kind))
        unknown = (Sentence("no_origin", name=name) for name in sorted(self.unknown_origins))
        parts += [hint("filter", each, kind) for each in unknown]
        if self._internal:
            parts += self._internal_coverage()
        if self._batches:
            error = (
                f"{counted(len(self._batches), 'record')} cannot be taken apart into the messages "
                f"of a batch, which were not searched: {_shown([*self._batches.values()])}"
            )
            parts.append(failure("batches", kind, error))
        return tuple(parts)

    def _internal_coverage(self) -> list[Coverage]:
        counts = sorted(self._internal.items(), key=itemgetter(1), reverse=True)
        topics = [name for name, number in counts if number or name in self._uncounted]
        if not topics:
            return []
        messages = _messages(sum(self._internal.values()))
        if self._uncounted:
            some = any(self._internal.values())
            messages = Sentence("or_more", messages=messages) if some else Sentence("some_messages")
        sentence = Sentence("left_out", messages=messages, topics=_shown(topics))
        return [hint("topics", sentence)]


class _Counted:
    """The number of messages in one case, with an example."""

    def __init__(self) -> None:
        self.count = 0
        self._first = self._why = ""
        self._seen: set[tuple[str, int, int, int]] = set()

    def add(self, record: Record | RecordView, reason: str) -> None:
        queue_id, queue_offset = number_of(record, "queue_id"), number_of(record, "queue_offset")
        identity = (record.topic, queue_id, queue_offset, record.physical_offset)
        if identity in self._seen:
            return
        if len(self._seen) < MAX_FILTER_FAILURES:
            self._seen.add(identity)
        if not self.count:
            self._first = f"{record.topic}/{queue_id}/{queue_offset}"
            self._why = reason
        self.count += 1

    def described(self, name: str) -> Sentence:
        """Return a sentence with the count and the example."""
        return Sentence(name, messages=_messages(self.count), position=self._first, why=self._why)


def _messages(count: int) -> Sentence:
    return Sentence("one_message") if count == 1 else Sentence("messages", count=count)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if names[_SHOWN:] else "")


def number_of(record: Record | RecordView, name: str) -> int:
    return record.number(name) if isinstance(record, RecordView) else int(getattr(record, name))
