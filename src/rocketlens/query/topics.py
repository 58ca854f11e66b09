"""Knows the topics of a store: an index file has only hashes of a topic and a key together.

Config and consume queues name the topics that a broker has now. Messages of topics that were
deleted are still in the log, so the log is asked, too: at the places where index files have
entries, and, before a key is said to be in no topic at all, everywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.errors import ConfigError, RecordError
from rocketlens.formats import config_json
from rocketlens.formats.consumequeue_entry import SCHEDULE_TOPIC
from rocketlens.model.answer import Coverage, SourceKind, SourceState
from rocketlens.query.topic_choice import is_pattern, matching_topics, unknown_topic
from rocketlens.store import fs
from rocketlens.store.scan import LogWalk

if TYPE_CHECKING:
    from rocketlens.query.source import StoreSource

TOPICS_FILE: Final = "config/topics.json"
GROUPS_FILE: Final = "config/subscriptionGroup.json"
OFFSETS_FILE: Final = "config/consumerOffset.json"
_CONFIG_BYTES: Final = 256 * 1024 * 1024
_SAMPLES: Final = 256
_READ_AT_ONCE_BYTES: Final = 1 << 20
"""A log of so many bytes is read for its topics at once, in some 20 ms."""
_INTERPRETED_BYTES: Final = 4 << 20
"""Up to here, loading the compiled scan takes longer than doing without."""
_SYSTEM_TOPICS: Final = frozenset(
    {
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        SCHEDULE_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_wheel_timer",
    }
)


class Topics:
    """The topics of one store, more of them the more was asked."""

    def __init__(self, source: "StoreSource") -> None:
        """Know none yet."""
        self._source = source
        self._named: set[str] | None = None
        self._read_to: int | None = None
        """The log was read for its topics from its first record up to here."""

    def known(self) -> set[str]:
        """Give every topic known without reading the whole log.

        When neither config nor queues name one, the whole log is read for them.
        """
        if self._named is None:
            queues = set(self._source.queues.topics())
            configured = self._configured()
            self._named = queues | configured | self._sampled() | _SYSTEM_TOPICS
            if not (queues or configured) or self._unread_bytes() <= _READ_AT_ONCE_BYTES:
                self.read_log()
        # Kept: the memory begins anew when index files were made meanwhile.
        self._named |= set(self._source.tail.topics)
        return self._named

    def choose(self, asked: Sequence[str]) -> list[str]:
        """Return the topics that names and patterns mean, sorted.

        :raises TopicNotFound: when a pattern matches no topic.
        """
        if not any(map(is_pattern, asked)):
            return sorted(asked)
        if self.may_be_more():
            self.read_log()
        return matching_topics(asked, self.known())

    def check_known(self, asked: Iterable[str]) -> None:
        """Refuse names that are no topic of this store; for a search that found nothing.

        A topic that only the log has is known once the log was read for it.

        :raises TopicNotFound: naming the topic that was probably meant.
        """
        unknown = set(asked) - self.known()
        if not unknown:
            return
        # A broker may have made the topic since the names were read.
        fresh = self._configured().union(self._source.queues.topics())
        self._named = fresh.union(self._named or ())
        if self.may_be_more() and not unknown <= self._named:
            self.read_log()
        for name in sorted(unknown - self.known()):
            if not is_pattern(name):
                raise unknown_topic(name, self.known() - _SYSTEM_TOPICS, "this store")

    def may_be_more(self) -> bool:
        """Say whether the log can hold topics that :meth:`known` lacks and reading it is bearable.

        The part that the memory covers was read already.
        """
        return 0 < self._unread_bytes() <= limits.TOPIC_SCAN_BYTES

    def _unread_bytes(self) -> int:
        start = self._source.log.min_offset if self._read_to is None else self._read_to
        return self._tail_start() - start

    def _tail_start(self) -> int:
        return next(start for start, stop in self._source.tail.ranges if stop is None)

    def read_log(self) -> None:
        """Read the log for its topics, up to where the memory covers it. 1 s a GiB."""
        source = self._source
        tail_start = self._tail_start()
        names: set[str] = set()
        first = source.log.min_offset if self._read_to is None else self._read_to
        walk = LogWalk(source.log, first, tail_start, confirm=source.knows)
        if walk.stop - walk.position <= _INTERPRETED_BYTES:
            names = {record.topic for record in walk.records()}
        else:
            for chunk in walk.chunks():
                names.update(chunk.topics().names)
        self._named = (self._named or set()) | names
        self._read_to = tail_start

    def coverage(self) -> Coverage:
        """Say how the topics were found."""
        count = len(self.known())
        how = "the log" if self._read_to is not None else "config, queues and places in the log"
        return Coverage(f"{count} topics: {how}", SourceKind.TOPICS, SourceState.SEARCHED)

    def _sampled(self) -> set[str]:
        """Give the topics of the records of some index entries, evenly over the files."""
        files = self._source.index.sound
        total = sum(file.last_entry for file in files)
        step = max(total // _SAMPLES, 1)
        topics: set[str] = set()
        place = 0
        for file in files:
            while place < file.last_entry:
                try:
                    offset = file.entry(place + 1).physical_offset
                    topics.add(self._source.log.record_at(offset, check_crc=False).topic)
                except RecordError:
                    pass
                place += step
            place -= file.last_entry
        return topics

    def _configured(self) -> set[str]:
        """Give the topics that config files name, and where they name none, those of groups."""
        topics: set[str] = set()
        for table in self._tables(TOPICS_FILE, "topicConfigTable"):
            topics |= set(table)
        if topics:
            return topics
        groups: set[str] = set()
        for table in self._tables(GROUPS_FILE, "subscriptionGroupTable"):
            groups |= set(table)
        for table in self._tables(OFFSETS_FILE, "offsetTable"):
            for name in table:
                topic, _, group = str(name).partition("@")
                topics.add(topic)
                groups.add(group)
        return topics | {f"{kind}{group}" for kind in ("%RETRY%", "%DLQ%") for group in groups}

    def _tables(self, name: str, member: str) -> Iterator[dict[str, Any]]:
        for path in (self._source.path / name, self._source.path / f"{name}.bak"):
            try:
                content: Any = config_json.loads(fs.read_bytes(path, _CONFIG_BYTES) or b"{}")
            except (ConfigError, OSError):
                continue
            table = content.get(member) if isinstance(content, dict) else None
            if isinstance(table, dict):
                yield table
