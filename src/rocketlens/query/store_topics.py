"""Collects the topics of a store: an index file has only hashes of a topic and a key together.

Config and consume queues name the topics that a broker has now. Messages of topics that were
deleted are still in the log, so the log is read, too: at the records where index files have
entries, and, before a key is said to be in no topic at all, everywhere. That takes a second a GiB,
so there is a bound to it; an answer that would need more is incomplete and says so.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.errors import RecordError, TopicNotFound
from rocketlens.model.answer import Coverage, SourceKind, SourceState, hint
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
"""Bytes of log that are read for topics at once, in some 20 ms."""
_GIB: Final = 1 << 30
BROKER_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {TRACE_TOPIC, TIMER_TOPIC}
"""Topics that brokers write to, whether configuration names them or not."""


class Topics:
    """The topics of one store, more of them with each query."""

    def __init__(
        self,
        source: "StoreReader",
        max_scan_bytes: int | None,
        before_long_scan: Callable[[int], None],
    ) -> None:
        """Create an empty collection. For the bounds see :func:`rocketlens.open_store`."""
        self._source = source
        self._max_scan_bytes = max_scan_bytes
        self._before_long_scan = before_long_scan
        self._damage: list[Damage] = []
        self._named: set[str] | None = None
        self._configured_batches: set[str] | None = None
        self._read_to: int | None = None
        """The physical offset up to which the log was read for topics, from its first record on."""

    def known(self) -> set[str]:
        """Return every topic known without reading the whole log.

        When neither config nor queues name one, the whole log is read for them.
        """
        if self._named is None:
            queues = set(self._source.queues.topics())
            configured = self.configured()
            former = read_table(self._source.path, TOPICS_FILE, TOPICS_MEMBER).former
            self._named = queues | configured | former | BROKER_TOPICS
            if not (queues or configured) or self._unread_bytes() <= _READ_AT_ONCE_BYTES:
                self.read_log()
            # Where the log was damaged, entries can lead to records that reading it missed.
            if self._read_to is None or self._damage:
                self._named |= self._sampled()
        # Kept here because the memory is emptied when index files are opened.
        self._named.update(self._source.tail.topics)
        return self._named

    def choose(self, names: Sequence[str]) -> tuple[list[str], dict[str, TopicNotFound]]:
        """Return the topics that names and patterns match, sorted.

        Of the patterns that match no topic the error of each is returned, too.
        """
        if not any(map(is_pattern, names)):
            return sorted(names), {}
        if self.may_be_more():
            self.read_log()
        return matching_topics(names, self.known())

    def tell_unknown(self, requested: Iterable[str]) -> Iterator[Coverage]:
        """Add topics that only the log can have to the coverage of a search without results."""
        names = {name for name in requested if not is_pattern(name)}
        if names <= (self._named or set()):
            return
        unknown = names - self.known()
        if unknown:
            # A broker may have created the topic since the names were read.
            fresh = self.configured().union(self._source.queues.topics())
            self._named = fresh.union(self._named or ())
        for name in sorted(unknown - self.known()):
            meant = suggestion(name, self.known() - BROKER_TOPICS)
            yield hint("topics", f"no configuration, queue or index names {name!r}{meant}")

    def check_known(
        self, requested: Sequence[str]
    ) -> tuple[dict[str, TopicNotFound], tuple[Coverage, ...]]:
        """Return the errors of names that are not topics of this store.

        A topic that only the log has is known once the log was read for it. Where not all of it
        could be read, a name that is not known is only told, as coverage.
        """
        if not any(self.tell_unknown(requested)):
            return {}, ()
        if self.may_be_more():
            self.read_log()
        if self._unread_bytes() > 0 or self._damage or self._lacks_records():
            return {}, tuple(self.tell_unknown(requested))
        names = [name for name in requested if not is_pattern(name)]
        unknown = [name for name in names if name not in self.known()]
        if any(name.startswith(LMQ_PREFIX) for name in unknown):
            # Only its queue names a light topic: its messages are of other topics.
            return {}, tuple(self.tell_unknown(requested))
        meant = self.known() - BROKER_TOPICS
        return {name: unknown_topic(name, meant, "this store") for name in unknown}, ()

    def _lacks_records(self) -> bool:
        """Return whether the log had, or gets, records that cannot be read now."""
        return self._source.tail.unfinished_at is not None or bool(self._source.missing_parts())

    def check_listed(self, requested: Sequence[str]) -> dict[str, TopicNotFound]:
        """Return the errors of names that are not topics of this store, as `check_known`.

        No log is read for topics of the configuration, and those that have queues.
        """
        names = [each for each in requested if not is_pattern(each)]
        if not names or self.configured().union(self._source.queues.topics()).issuperset(names):
            return {}
        return self.check_known(names)[0]

    def may_be_more(self) -> bool:
        """Return whether the log can hold topics that :meth:`known` lacks and may be read for them.

        The part that the memory covers was read already.
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
        """Read the log for its topics, up to where the memory covers it. 1 s a GiB."""
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
        """Return the coverage of topics: how they were found, and which log may have others.

        What could not be read does not fail an answer that ``is_found``: then it is only said.
        """
        count, tail_start = len(self.known()), self._tail_start()
        unread_bytes = tail_start - self._read_from()
        how = "config, queues and places in the log" if unread_bytes > 0 else "the log"
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
                f"({unread_bytes / _GIB:.1f} GiB) was not read for topics that were deleted: "
                "search one of them by its name (--topic), or read it all"
                " (open_store(..., max_topic_scan_bytes=None))"
            )
            yield Coverage(name, SourceKind.TOPICS, SourceState.FAILED, None, error)

    def _sampled(self) -> set[str]:
        """Return the topics of the records of some index entries, evenly over the files."""
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
        """Return the topics that can have batches of messages which are one record.

        Their queues or their configuration tell; that is read once.
        """
        if self._configured_batches is None:
            table = read_table(self._source.path, TOPICS_FILE, TOPICS_MEMBER).entries
            self._configured_batches = set(filter(lambda name: _is_in_batches(table[name]), table))
        of_queues = self._source.batch_topics()
        return self._configured_batches | of_queues if of_queues else self._configured_batches

    def configured(self) -> set[str]:
        """Return the topics of the configuration; if it has none, those of groups."""
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
    """Return whether a topic's configuration lets it have batches that are one record."""
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return isinstance(attributes, dict) and attributes.get(QUEUE_TYPE) == BATCH_QUEUE
