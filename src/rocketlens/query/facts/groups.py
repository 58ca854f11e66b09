"""Consumer groups in the files of a store: offsets, configuration, retries, dead letters.

| file | content |
|---|---|
| ``config/consumerOffset.json`` | offsets of groups |
| ``config/subscriptionGroup.json`` | groups that were configured, or created by a consumer |
| ``consumequeue/`` | lengths of queues; retry and dead letter topics also name groups |
| records of revive topics | groups to which POP delivered messages, in the newest records |

Only the memory of brokers has the members. Offsets are the last ones that the broker wrote, so the
real progress can be further.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from rocketlens import limits
from rocketlens.model.answer import Coverage, SourceKind, SourceState, failure, hint
from rocketlens.model.group import FoundGroup, GroupQueue, GroupsAnswer
from rocketlens.model.life import copy_topics_of, handed_out_by
from rocketlens.model.rocketmq import BROADCAST_SUFFIX, REVIVE_PREFIX, is_system_group
from rocketlens.model.topic import TopicKind
from rocketlens.query.answer_builder import AnswerMessages, Findings
from rocketlens.query.facts.group_state import BROADCASTING
from rocketlens.query.facts.topic_list import topics_of_store
from rocketlens.query.request import FindRequest
from rocketlens.query.store_reader import CONSUME_QUEUE, StoreReader
from rocketlens.query.store_source import StoreSource
from rocketlens.query.topic_choice import no_such_group
from rocketlens.store.read.config_tables import (
    GROUPS_FILE,
    GROUPS_MEMBER,
    OFFSETS_FILE,
    OFFSETS_MEMBER,
    read_table,
)
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueName
from rocketlens.store.read.rocks import queue_database

_MAX_POP_RECORDS: Final = 1_000
"""Newest records of POP that are read for names of groups."""
_GROUP_SEPARATOR: Final = "@"
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)


def groups_of_store(reader: StoreReader, group: str | None = None) -> GroupsAnswer:
    """Return all groups of a store, or one, without the groups that every broker has."""
    return StoreGroupFiles(reader).find(group)


def message_model_by(groups: Collection[str], name: str) -> str | None:
    """Return the message model of a group, if the names of groups with offsets reveal it."""
    is_broadcasting = name + BROADCAST_SUFFIX in groups and name not in groups
    return BROADCASTING if is_broadcasting else None


class StoreGroupFiles:
    """The groups in the files of a store."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader: Final = reader
        self._coverage: list[Coverage] = []
        self._counted: dict[tuple[str, int], tuple[int, int]] = {}
        """The bounds of queues with missing entries, counted in the log."""
        self._dead_ms: Final[dict[str, int]] = defaultdict(int)

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """The files that were read, and failures."""
        return tuple(self._coverage)

    def find(self, group_name: str | None) -> GroupsAnswer:
        self._reader.refresh()
        offsets = self.offsets()
        names = {each.removesuffix(BROADCAST_SUFFIX) for each in offsets} | set(self.configs())
        names |= self._names_of_pop()
        dead_letters = self._add_copy_topics(offsets, names)
        if group_name is None:
            names = {each for each in names if not is_system_group(each)}
        elif group_name in names:
            names = {group_name}
        else:
            self._coverage.append(no_such_group(group_name, names))
            names = set()
        self._count_queues_behind({name: offsets[name] for name in names if name in offsets})
        groups = tuple(
            FoundGroup(
                name,
                members=None,
                message_model=message_model_by(offsets, name),
                subscriptions=None,
                queues=tuple(
                    self._queue(topic, queue_id, offset)
                    for (topic, queue_id), offset in sorted(offsets.get(name, {}).items())
                ),
                dead_letters=dead_letters[name],
                last_dead_letter_ms=self._dead_ms.get(name) or None,
            )
            for name in sorted(names)
        )
        return GroupsAnswer(groups, tuple(self._coverage))

    def _add_copy_topics(
        self, offsets: dict[str, dict[tuple[str, int], int]], names: set[str]
    ) -> dict[str, int]:
        """Add groups named by topics, and queues of retries; return the counts of dead letters."""
        queues = self._queue_names()
        read_by: dict[str, set[str]] = defaultdict(set)
        for group, of_group in offsets.items():
            for topic, _ in of_group:
                read_by[topic].add(group)
        copies = copy_topics_of({topic for topic, _ in queues}, names)
        for topic, readings in copies.ambiguous.items():
            # Only groups with an offset in the topic read it.
            for each in readings if read_by[topic] else ():
                if each.group not in read_by[topic]:
                    copies.by_group[each.group].discard(topic)
        for note in copies.notes():
            self._coverage.append(hint(CONSUME_QUEUE, note))
        dead_letters: dict[str, int] = defaultdict(int)
        for group, topics in copies.by_group.items():
            names.add(group)
            for topic, queue_id in queues:
                if topic not in topics:
                    continue
                if TopicKind.of(topic) is TopicKind.RETRY:
                    offsets[group].setdefault((topic, queue_id), -1)
                else:
                    first, end = self.bounds(topic, queue_id)
                    dead_letters[group] += end - first
                    last_ms = self._time(topic, queue_id, end) or 0
                    self._dead_ms[group] = max(self._dead_ms[group], last_ms)
        return dead_letters

    def _names_of_pop(self) -> set[str]:
        named = {topic for topic, _ in self._queue_names()}
        topics = tuple(sorted(each for each in named if each.startswith(REVIVE_PREFIX)))
        if not topics:
            return set()
        findings = Findings(AnswerMessages(_MAX_POP_RECORDS))
        request = FindRequest(topics=topics, max_num=_MAX_POP_RECORDS, all_topics=True)
        StoreSource(self._reader).find(request, findings)
        self._coverage += [each for each in findings.coverage if each.is_failure]
        given = map(handed_out_by, findings.messages.in_order())
        return {each.group for each in given if each is not None}

    def _count_queues_behind(self, offsets: Mapping[str, Mapping[tuple[str, int], int]]) -> None:
        """Count messages in the log for topics whose queues end before a group's offset.

        A running broker writes queues to RocksDB later than the offsets of groups.
        """
        if queue_database(self._reader.layout.consume_queue) is None:
            return
        behind = {
            topic
            for of_group in offsets.values()
            for (topic, queue_id), offset in of_group.items()
            if offset > self.bounds(topic, queue_id)[1]
        }
        if not behind:
            return
        answer = topics_of_store(self._reader, ())
        self._coverage += [each for each in answer.coverage if each.state is SourceState.FAILED]
        for topic in answer.topics:
            if topic.name in behind:
                for queue in topic.queues or ():
                    bounds = queue.min_offset, queue.max_offset
                    self._counted[topic.name, queue.queue_id] = bounds

    def _queue(self, topic: str, queue_id: int, offset: int) -> GroupQueue:
        first, end = self.bounds(topic, queue_id)
        last_ms = self._time(topic, queue_id, offset)
        return GroupQueue(topic, None, queue_id, end, offset, last_ms, first)

    def _queue_names(self) -> list[QueueName]:
        try:
            return self._reader.queues.names()
        except OSError as error:
            self._fail(error)
            return []

    def _opened(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue; None if it does not exist or cannot be read."""
        try:
            return self._reader.queues.queue(topic, queue_id)
        except OSError as error:
            self._fail(error)
            return None

    def _fail(self, error: OSError) -> None:
        failed = failure(CONSUME_QUEUE, SourceKind.CONSUME_QUEUE, error.strerror)
        if failed not in self._coverage:
            self._coverage.append(failed)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first and the next offset of a queue; 0 if it has no file."""
        counted = self._counted.get((topic, queue_id))
        if counted is not None:
            return counted
        queue = self._opened(topic, queue_id)
        if queue is None or not queue.files:
            return 0, 0
        end = queue.max_offset
        return min(queue.files[0].first_queue_offset, end), end

    def _time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store time of the message before an offset; None if it is deleted."""
        queue = self._opened(topic, queue_id)
        entry = queue.entry(offset - 1) if queue is not None and offset > 0 else None
        if entry is None:
            return None
        record = self._reader.log.record_of(entry, (topic, queue_id), offset - 1)
        return None if record is None else record.store_timestamp_ms

    def configs(self) -> Mapping[str, Any]:
        # 4.9 writes the file when the first group is created.
        return self._table(GROUPS_FILE, GROUPS_MEMBER, is_optional=True)

    def offsets(self, member: str = OFFSETS_MEMBER) -> dict[str, dict[tuple[str, int], int]]:
        """Return offsets by group, and then by topic and queue id.

        ``member`` is a table of the file. RocketMQ 5 also has ``pullOffsetTable``, the start of the
        last pull from each queue.
        """
        offsets: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        is_optional = member != OFFSETS_MEMBER
        for name, of_queues in self._table(OFFSETS_FILE, member, is_optional=is_optional).items():
            topic, _, group = str(name).partition(_GROUP_SEPARATOR)
            for queue_id, offset in of_queues.items() if isinstance(of_queues, dict) else ():
                is_number = _NUMBER.fullmatch(str(queue_id)) and type(offset) is int
                if is_number and int(queue_id) <= limits.MAX_INT:
                    offsets[group][topic, int(queue_id)] = offset
        return offsets

    def _table(self, name: str, member: str, *, is_optional: bool = False) -> Mapping[str, Any]:
        """Return a table of a file, and add it to the coverage."""
        table = read_table(self._reader.path, name, member)
        if table.path is not None:
            source = str(table.path.relative_to(self._reader.path))
            self._cover(source, SourceState.SEARCHED, None)
        elif table.is_damaged or not (is_optional or table.entries):
            error = f"{table.problem}: its information about groups is missing"
            self._cover(name, SourceState.FAILED, error)
        return table.entries

    def _cover(self, source: str, state: SourceState, error: str | None) -> None:
        # Files of the broker have the same value as its answer.
        self._coverage.append(Coverage(source, SourceKind.BROKER, state, None, error))
