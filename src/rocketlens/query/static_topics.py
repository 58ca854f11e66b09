"""The static topics of a store: maps physical queues of its broker to logical queues.

Look-ups use physical queues. Positions are converted before a look-up, and found records after it:
see `rocketlens.wire.bodies.static_topics`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from rocketlens.errors import CommandBodyError
from rocketlens.formats.commitlog_record import Record
from rocketlens.model.answer import Coverage, SourceKind, failure, hint
from rocketlens.query.answer_builder import to_logical
from rocketlens.query.request import QueuePosition
from rocketlens.store import fs
from rocketlens.store.read.config_tables import files_of_table, read_table
from rocketlens.wire.bodies.static_topics import StaticTopic, parse_mapping

MAPPING_FILE: Final = "config/topicQueueMapping.json"
_MEMBER: Final = "topicQueueMappingInfoMap"
_PHYSICAL: Final = "positions in static topics are those of the broker's own queues"


class StaticTopics:
    """The static topics in a store's configuration."""

    def __init__(self, store: Path) -> None:
        self._store: Final = store
        self._watch: Final = fs.FileWatch(files_of_table(store, MAPPING_FILE))
        self._topics: dict[str, tuple[StaticTopic, str]] = {}
        """Each with the name of the store's broker."""
        self._problems: dict[str, str] = {}
        """Why a topic's mapping is unusable; the empty topic stands for all topics."""

    def refresh(self) -> None:
        if not self._watch.has_changed():
            return
        self._topics, self._problems = {}, {}
        table = read_table(self._store, MAPPING_FILE, _MEMBER)
        if table.is_damaged:
            self._problems[""] = table.problem
        for topic, value in table.entries.items():
            try:
                mapping = parse_mapping(value)
            except CommandBodyError as error:
                self._problems[topic] = f"{topic}: {error}"
            else:
                self._topics[topic] = StaticTopic([mapping]), mapping.broker_name

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def coverage(self, topics: Collection[str]) -> tuple[Coverage, ...]:
        """Return failures for topics (empty: all) whose positions may be physical ones."""
        return tuple(
            failure(MAPPING_FILE, SourceKind.TOPICS, f"{problem}: {_PHYSICAL}")
            for topic, problem in self._problems.items()
            if not topic or not topics or topic in topics
        )

    def to_logical(self, record: Record) -> Record:
        """Return a record with its logical queue position."""
        return to_logical(record, *self._topics.get(record.topic, (None, "")))

    def to_physical(
        self, position: QueuePosition
    ) -> tuple[QueuePosition | None, tuple[Coverage, ...]]:
        """Return the physical position, or None if this store cannot have it, and the coverage to
        add if nothing is found there.
        """
        topic, queue_id, queue_offset = position
        if topic not in self._topics:
            return position, ()
        static, broker_name = self._topics[topic]
        there = static.stored(queue_id, queue_offset)
        if there is not None and there[0] != broker_name:
            error = f"{position} is on {there[0]}, and this store is {broker_name}'s"
            return None, (failure(there[0], SourceKind.TOPICS, error),)
        if there is None:
            text = f"{position}: no part of this static topic has that offset"
            return None, (hint("position", text),)
        stored = QueuePosition(topic, *there[1:])
        if queue_id not in static.goes_on:
            return stored, ()
        next_broker = static.goes_on[queue_id]
        error = f"{position} may be on {next_broker}, where the queue continues"
        return stored, (failure(next_broker, SourceKind.TOPICS, error),)

    def group_offset(
        self,
        queue: tuple[str, int],
        offsets: Mapping[tuple[str, int], int],
        bounds: Callable[[str, int], tuple[int, int]],
    ) -> int | None:
        """Return a group's logical offset in a queue; None if it has no offset.

        ``offsets`` are the physical offsets by topic and queue id. ``bounds`` returns the first and
        the next physical offset of a queue.
        """
        topic, queue_id = queue
        if topic not in self._topics:
            return offsets.get(queue)
        static, broker_name = self._topics[topic]
        of_queues = {
            (broker_name, number): (offset, bounds(topic, number)[1])
            for (name, number), offset in offsets.items()
            if name == topic
        }
        return static.group_offset(queue_id, of_queues)
