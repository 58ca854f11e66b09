"""Collects the topic names of a store. Look-ups by key need them: the index hashes topic and key.

The configuration and consume queues have the current topics. Messages of deleted topics are still
in the log, so it is read at samples of index entries and, before a key is reported as missing from
all topics, completely. That takes a second per GiB, so it is limited; if the limit is exceeded, the
answer is incomplete.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.errors import RecordError, TopicNotFound
from rocketlens.model.answer import Coverage, SourceKind, SourceState, failure, hint
from rocketlens.model.life import dead_letter_topic, retry_topic
from rocketlens.model.rocketmq import (
    BATCH_QUEUE,
    BROADCAST_SUFFIX,
    LMQ_PREFIX,
    NOT_ALLOWED_SEND_TOPICS,
    QUEUE_TYPE,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from rocketlens.model.text.counted import counted
from rocketlens.model.text.nearest import suggestion
from rocketlens.query.topic_choice import is_pattern, matching_topics, unknown_topic
from rocketlens.store.read.config_tables import (
    GROUPS_FILE,
    GROUPS_MEMBER,
    OFFSETS_FILE,
    OFFSETS_MEMBER,
    TOPICS_FILE,
    TOPICS_MEMBER,
    read_table,
)
from rocketlens.store.read.log.scan import Damage, LogWalk

if TYPE_CHECKING:
    from rocketlens.query.store_reader import StoreReader

_SAMPLES: Final = 256
_READ_AT_ONCE_BYTES: Final = 1 << 20
"""Size of log that is read for topics at once, in 20 ms."""
_GIB: Final = 1 << 30
BROKER_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {TRACE_TOPIC, TIMER_TOPIC}
"""Topics that brokers write to even if the configuration does not have them."""


class Topics:
    """The known topics of one store; queries add to them."""

    def __init__(
        self,
        source: "StoreReader",
        max_scan_bytes: int | None,
        before_long_scan: Callable[[int], None],
    ) -> None:
        """See :func:`rocketlens.open_store` for the arguments."""
        self._source = source
        self._max_scan_bytes = max_scan_bytes
        self._before_long_scan = before_long_scan
        self._damage: list[Damage] = []
        self._named: set[str] | None = None
        self._configured_batches: set[str] | None = None
        self._read_to: int | None = None
        """The physical offset up to which the log was read for topics."""

    def known(self) -> set[str]:
        """Return the topics that are known without reading the whole log.

        If neither configuration nor queues name a topic, the whole log is read.
        """
        if self._named is None:
            queues = set(self._source.queues.topics())
            configured = self.configured()
            former = read_table(self._source.path, TOPICS_FILE, TOPICS_MEMBER).former
            self._named = queues | configured | former | BROKER_TOPICS
            if not (queues or configured) or self._unread_bytes() <= _READ_AT_ONCE_BYTES:
                self.read_log()
            # After damage, index entries can lead to records that the walk missed.
            if self._read_to is None or self._damage:
                self._named |= self._sampled()
        # Stored here, because the tail is emptied when index files are opened.
        self._named.update(self._source.tail.topics)
        return self._named

    def choose(self, names: Sequence[str]) -> tuple[list[str], dict[str, TopicNotFound]]:
        """Return the topics that match names and patterns, sorted, and errors for unmatched
        patterns.
        """
        if not any(map(is_pattern, names)):
            return sorted(names), {}
        if self.may_be_more():
            self.read_log()
        return matching_topics(names, self.known())

    def unknown_notes(self, requested: Iterable[str]) -> Iterator[Coverage]:
        """Return remarks on requested topics that, at most, the log contains."""
        names = {name for name in requested if not is_pattern(name)}
        if names <= (self._named or set()):
            return
        unknown = names - self.known()
        if unknown:
            # The broker can have created the topic since the names were read.
            fresh = self.configured().union(self._source.queues.topics())
            self._named = fresh.union(self._named or ())
        for name in sorted(unknown - self.known()):
            meant = suggestion(name, self.known() - BROKER_TOPICS)
            yield hint("topics", f"no configuration, queue or index names {name!r}{meant}")

    def check_known(
        self, requested: Sequence[str]
    ) -> tuple[dict[str, TopicNotFound], tuple[Coverage, ...]]:
        """Return errors for names that are not topics of this store.

        The log is read for unknown names. If part of it cannot be read, they are only mentioned in
        the coverage.
        """
        if not any(self.unknown_notes(requested)):
            return {}, ()
        if self.may_be_more():
            self.read_log()
        is_unread = self._unread_bytes() > 0 or self._source.tail.unfinished_at is not None
        if is_unread or self._damage or self._source.missing_parts():
            return {}, tuple(self.unknown_notes(requested))
        names = [name for name in requested if not is_pattern(name)]
        unknown = [name for name in names if name not in self.known()]
        if any(name.startswith(LMQ_PREFIX) for name in unknown):
            # Only queues name light topics: their messages belong to other topics.
            return {}, tuple(self.unknown_notes(requested))
        meant = self.known() - BROKER_TOPICS
        return {name: unknown_topic(name, meant, "this store") for name in unknown}, ()

    def check_listed(self, requested: Sequence[str]) -> dict[str, TopicNotFound]:
        """Return errors as `check_known`, without reading the log for configured topics."""
        names = [each for each in requested if not is_pattern(each)]
        if not names or self.configured().union(self._source.queues.topics()).issuperset(names):
            return {}
        return self.check_known(names)[0]

    def may_be_more(self) -> bool:
        """Return whether the log can contain more topics than :meth:`known`, and may be read.

        The part that the tail covers was already read.
        """
        unread_bytes = self._unread_bytes()
        is_allowed = self._max_scan_bytes is None or unread_bytes <= self._max_scan_bytes
        return unread_bytes > 0 and is_allowed

    def _unread_bytes(self) -> int:
        return self._tail_start() - self._read_from()

    def _read_from(self) -> int:
        return self._source.log.min_offset if self._read_to is None else self._read_to

    def _tail_start(self) -> int:
        return next(start for start, stop in self._source.tail.ranges if stop is None)

    def read_log(self) -> None:
        """Read the topics of the log up to the start of the tail. 1 s per GiB."""
        source = self._source
        tail_start = self._tail_start()
        source.log.refresh_if_changed()
        names: set[str] = set()
        if self._unread_bytes() > limits.MAX_TOPIC_SCAN_BYTES:
            self._before_long_scan(self._unread_bytes())
        walk = LogWalk(source.log, self._read_from(), tail_start, confirm=source.is_indexed)
        for rows in walk.rows():
            names.update(rows.topics().names)
        self._named = (self._named or set()) | names
        self._damage += walk.damage
        if walk.position < tail_start:
            reason = "no record could be found here"
            self._damage.append(Damage(walk.position, tail_start, reason))
        self._read_to = tail_start

    def coverage(self, *, is_found: bool) -> Iterator[Coverage]:
        """Return how the topics were found, and which part of the log can contain others.

        Unread parts are not failures if the answer ``is_found``.
        """
        count, tail_start = len(self.known()), self._tail_start()
        unread_bytes = tail_start - self._read_from()
        how = "config, queues and samples of the log" if unread_bytes > 0 else "the log"
        name = f"{counted(count, 'topic')}: {how}"
        min_offset = self._source.log.min_offset
        bounds = (min_offset, tail_start - max(unread_bytes, 0))
        yield Coverage(name, SourceKind.TOPICS, SourceState.SEARCHED, None, None, *bounds)
        damage = [str(each) for each in self._damage if each.stop > min_offset]
        if is_found:
            for error in damage[:1]:
                yield Coverage(name, SourceKind.TOPICS, SourceState.DAMAGED, None, error, *bounds)
            return
        yield from self._source.log_failures(damage)
        if unread_bytes > 0:
            error = (
                f"the log from physical offset {self._read_from()} to {tail_start} "
                f"({unread_bytes / _GIB:.1f} GiB) was not read for deleted topics: "
                "search one of them by its name (--topic), or read it all"
                " (open_store(..., max_topic_scan_bytes=None))"
            )
            yield failure(name, SourceKind.TOPICS, error)

    def _sampled(self) -> set[str]:
        """Return the topics of a sample of index entries, spread over all files."""
        files = self._source.index.sound
        total = sum(file.last_entry for file in files)
        step = max(total // _SAMPLES, 1)
        topics: set[str] = set()
        number = 0
        for file in files:
            while number < file.last_entry:
                try:
                    offset = file.entry(number + 1).physical_offset
                    topics.add(self._source.log.record_at(offset, check_crc=False).topic)
                except RecordError:
                    pass
                number += step
            number -= file.last_entry
        return topics

    def batch_topics(self) -> set[str]:
        """Return the topics whose records can be batches, by their queues and configuration."""
        if self._configured_batches is None:
            table = read_table(self._source.path, TOPICS_FILE, TOPICS_MEMBER).entries
            self._configured_batches = set(filter(lambda name: _is_in_batches(table[name]), table))
        of_queues = self._source.batch_topics()
        return self._configured_batches | of_queues if of_queues else self._configured_batches

    def configured(self) -> set[str]:
        """Return the topics of the configuration; if there are none, those of its groups."""
        path = self._source.path
        topics = set(read_table(path, TOPICS_FILE, TOPICS_MEMBER).entries)
        if topics:
            return topics
        groups = set(read_table(path, GROUPS_FILE, GROUPS_MEMBER).entries)
        for name in read_table(path, OFFSETS_FILE, OFFSETS_MEMBER).entries:
            topic, _, group = name.partition("@")
            topics.add(topic)
            groups.add(group.removesuffix(BROADCAST_SUFFIX))
        return topics | {name(each) for name in (retry_topic, dead_letter_topic) for each in groups}


def _is_in_batches(config: Any) -> bool:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return isinstance(attributes, dict) and attributes.get(QUEUE_TYPE) == BATCH_QUEUE
