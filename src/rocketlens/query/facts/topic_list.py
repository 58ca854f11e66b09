"""Lists the topics of a store: queues, message counts, times and sizes, and configuration.

Consume queues have the counts and sizes. The log after the last message in any queue is read, too:
a killed broker leaves queues without their last entries, and without ``consumequeue/`` everything
is counted in the log.

Deleted topics have no queues. `rocketlens.query.store_topics` finds their names in the log, up to a
limit.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.batch_body import message_at, message_count
from rocketlens.formats.commitlog_record import is_dispatched_to
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT, FILLER_SIZE
from rocketlens.late import np, npt
from rocketlens.model.answer import Coverage, SourceKind, SourceState, failure
from rocketlens.model.rocketmq import (
    LITE_PARENT,
    LITE_PREFIX,
    LITE_TTL,
    LITE_TYPE,
    MESSAGE_TYPE,
    PERM_INHERIT,
    SYS_FLAG_INNER_BATCH,
    is_system_topic,
    lite_parent,
    reply_topic,
)
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.topic import FoundTopic, LiteTopics, TopicQueue, TopicsAnswer, TopicSettings
from rocketlens.query.lookup.by_time import Scan
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.store_reader import CONSUME_QUEUE, StoreReader, torn_coverage, unfinished
from rocketlens.query.store_topics import BROKER_TOPICS
from rocketlens.query.topic_choice import is_pattern, matching_topics, unknown_topic
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.config_tables import (
    GROUPS_FILE,
    GROUPS_MEMBER,
    TOPICS_FILE,
    TOPICS_MEMBER,
    read_table,
)
from rocketlens.store.read.consumequeue import QueueName
from rocketlens.store.read.log.scan import LogWalk

_OF_ROWS: Final = ("queue_offset", "store_timestamp_ms")
_CLUSTER_QUEUES: Final = 16


def topics_in_file(store: Path) -> list[str]:
    return sorted(read_table(store, TOPICS_FILE, TOPICS_MEMBER).entries)


class WriterNames(NamedTuple):
    """The broker that wrote a store, and its cluster; None if ambiguous."""

    broker: str | None
    cluster: str | None


def writer_names(store: Path) -> WriterNames:
    """Return the names of the broker that wrote a store and of its cluster, by its file of topics.

    A broker creates a topic with one queue under its own name, and one with 16 queues under its
    cluster's. After a broker was renamed, there are two, so the name is ambiguous.
    """
    table = read_table(store, TOPICS_FILE, TOPICS_MEMBER).entries
    names: dict[int, list[str]] = defaultdict(list)
    for name in _inherited(table):
        names[_queue_count(table[name])].append(name)
    (broker, cluster) = (
        names[count][0] if len(names[count]) == 1 else None for count in (1, _CLUSTER_QUEUES)
    )
    return WriterNames(broker, cluster)


def settings_in_store(store: Path, topic: str) -> TopicSettings | None:
    """Return the settings of a topic; None if the file does not have it, as for deleted topics.

    Invalid values are None. If the file is damaged, ``error`` says which older version was read.
    """
    table = read_table(store, TOPICS_FILE, TOPICS_MEMBER)
    entry = table.entries.get(topic)
    if not isinstance(entry, dict):
        return None

    def number(name: str) -> int | None:
        value = entry.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    order = entry.get("order", False)
    return TopicSettings(
        None,
        number("perm"),
        number("readQueueNums"),
        number("writeQueueNums"),
        order if isinstance(order, bool) else None,
        _attributes(entry),
        f"{TOPICS_FILE}: {table.problem}" if table.is_damaged else None,
    )


def topics_of_store(reader: StoreReader, requested: Collection[str]) -> TopicsAnswer:
    """Return all topics of a store, or those that match names and patterns.

    O(entries of all queues, and log after them).

    :raises TopicNotFound: if a topic does not exist, or no topic matches a pattern.
    """
    answer = _StoreTopics(reader).find()
    if not requested:
        return answer
    listed = {topic.name for topic in answer.topics}
    names, unknown = matching_topics(requested, listed)
    unknown |= {
        name: unknown_topic(name, listed, "this store") for name in names if name not in listed
    }
    for name, error in unknown.items():
        # A parent can have no lite topic yet.
        if not (name.startswith(LITE_PREFIX) and is_pattern(name)):
            raise error
    return replace(answer, topics=tuple(each for each in answer.topics if each.name in names))


class _Counted(Struct):
    """Counts of one queue."""

    min_offset: int = 0
    max_offset: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    size_bytes: int = 0

    def add(self, first: int, last: int, size_bytes: int, oldest_ms: int, newest_ms: int) -> None:
        if self.max_offset == self.min_offset:
            self.min_offset = first
            self.oldest_ms = oldest_ms
        self.max_offset = last + 1
        self.size_bytes += size_bytes
        self.newest_ms = newest_ms

    def add_rows(self, rows: "npt.NDArray[np.void]") -> None:
        """Add messages given as a non-empty array of rows."""
        size_bytes = int(rows["store_size"].sum(dtype="i8"))
        (first, last), (oldest_ms, newest_ms) = (rows[name][[0, -1]].tolist() for name in _OF_ROWS)
        self.add(first, last, size_bytes, oldest_ms, newest_ms)

    def before(self, later: "_Counted") -> "_Counted":
        """Return the sum of these counts and those of later messages of the queue."""
        if later.max_offset == later.min_offset:
            return replace(self, max_offset=max(self.max_offset, later.max_offset))
        return replace(
            later,
            min_offset=self.min_offset,
            size_bytes=self.size_bytes + later.size_bytes,
            oldest_ms=self.oldest_ms,
        )


class _StoreTopics:
    def __init__(self, reader: StoreReader) -> None:
        self._reader: Final = reader
        self._coverage: list[Coverage] = []
        self._counted: Final[dict[str, dict[int, _Counted]]] = defaultdict(dict)
        self._unread: Final[set[str]] = set()
        """Topics with an unreadable queue."""
        self._of_broker: Final[set[str]] = set()
        self._is_lost = False
        """Whether queues have no files, so their messages are counted in the log."""
        self._queues_end = 0
        """The end of the last message in any queue."""

    def find(self) -> TopicsAnswer:
        reader = self._reader
        reader.refresh()
        if reader.topics.may_be_more():
            reader.topics.read_log()
        table = self._configuration()
        configured = {name: _queue_count(value) for name, value in table.items()}
        self._of_broker.update(_of_broker(table))
        names: list[QueueName] = []
        try:
            names = reader.queues.names()
        except OSError as error:
            self._fail(CONSUME_QUEUE, error.strerror)
        for name in names:
            try:
                self._counted[name.topic][name.queue_id] = self._count(name)
            except OSError as error:
                self._unread.add(name.topic)
                self._fail(f"{CONSUME_QUEUE}/{name.topic}/{name.queue_id}", error.strerror)
        batch_topics = reader.topics.batch_topics()
        kinds = {name.topic in batch_topics for name in names}
        if kinds < ({False, True} if batch_topics else {False}):
            # All queues of one kind are missing, so their messages must be counted in the log.
            self._is_lost = True
        self._read_log()
        self._add_tiered()
        for topic, count in configured.items():
            for queue_id in range(count):
                self._counted[topic].setdefault(queue_id, _Counted())
        listed = set(self._counted) | set(configured)
        deleted = reader.topics.known() - reader.topics.configured() - listed - BROKER_TOPICS
        lite = self._lite(table)
        topics = [replace(self._topic(name), lite=lite.get(name)) for name in listed]
        topics += [FoundTopic(name, None, is_deleted=True) for name in deleted]
        topics.sort(key=lambda topic: topic.name)
        self._coverage += reader.topics.coverage(is_found=True)
        return TopicsAnswer(tuple(topics), tuple(self._coverage))

    def _lite(self, table: Mapping[str, Any]) -> dict[str, LiteTopics]:
        """Return the lite topics of each parent; only consume queues have their number."""
        parents = {name: ttl for name in table if (ttl := _lite_ttl(table[name])) is not None}
        counts = Counter(map(lite_parent, self._counted))
        groups: dict[str, list[str]] = defaultdict(list)
        group_table = read_table(self._reader.path, GROUPS_FILE, GROUPS_MEMBER).entries
        for group in sorted(group_table) if parents else ():
            groups[(_attributes(group_table[group]) or {}).get(LITE_PARENT, "")].append(group)
        is_lost = self._is_lost and self._reader.log.max_offset > 0
        if parents and is_lost:
            self._fail(CONSUME_QUEUE, Sentence("lite_queues", parents=", ".join(sorted(parents))))
        return {
            name: LiteTopics(None if is_lost else counts[name], ttl, tuple(groups[name]))
            for name, ttl in parents.items()
        }

    def _add_tiered(self) -> None:
        reader = self._reader
        if not reader.tiered.is_needed(None):
            return
        logs, lost = reader.tiered.logs(lambda _: True)
        self._coverage += lost
        for queue, log in logs:
            scan = Scan(log, MessageFilter(topic=queue.topic))
            older = _Counted()
            for rows, records in scan.pieces():
                if rows is not None and len(rows):
                    older.add_rows(rows.as_array)
                for record in records:
                    offset, time_ms = record.queue_offset, record.store_timestamp_ms
                    older.add(offset, offset, record.total_size, time_ms, time_ms)
            self._coverage += scan.coverage
            of_topic = self._counted[queue.topic]
            if older.max_offset > older.min_offset:
                of_topic[queue.queue_id] = older.before(of_topic.get(queue.queue_id, _Counted()))

    def _topic(self, name: str) -> FoundTopic:
        if name in self._unread:
            return FoundTopic(name, None)
        counted = sorted(self._counted[name].items())
        return FoundTopic(
            name,
            tuple(
                # The fields have the same order.
                TopicQueue(None, queue_id, *astuple(each))
                for queue_id, each in counted
            ),
            is_of_broker=name in self._of_broker,
        )

    def _count(self, name: QueueName) -> _Counted:
        """Count the entries of a queue whose messages are still in the log.

        :raises OSError: if the queue cannot be read.
        """
        queue = self._reader.queues.queue(*name)
        if queue is None:
            return _Counted()
        self._is_lost |= not queue.files
        counted = _Counted(queue.max_offset, queue.max_offset)
        first = last = None
        for first_queue_offset, content in queue.contents():
            entries = np.frombuffer(content, ENTRY_LAYOUT.dtype)
            sizes = entries["store_size"]
            is_there = (sizes > 0) & (sizes != FILLER_SIZE)
            is_there &= entries["physical_offset"] >= self._reader.log.min_offset
            (indexes,) = is_there.nonzero()
            if len(indexes):
                # Messages of a batch share a record.
                physical_offsets = entries["physical_offset"][indexes]
                is_other = np.diff(physical_offsets, prepend=physical_offsets[0] - 1) != 0
                counted.size_bytes += int(sizes[indexes][is_other].sum(dtype="i8"))
                last = first_queue_offset + int(indexes[-1]), entries[indexes[-1]]
                first = first or (first_queue_offset + int(indexes[0]), entries[indexes[0]])
        if first is not None and last is not None:
            counted.min_offset, counted.max_offset = first[0], last[0] + 1
            counted.oldest_ms = self._time(name, *first)
            counted.newest_ms = self._time(name, *last)
            end = int(last[1]["physical_offset"]) + int(last[1]["store_size"])
            self._queues_end = max(self._queues_end, end)
        return counted

    def _time(self, name: QueueName, queue_offset: int, entry: "np.void") -> int | None:
        """Return the store time of an entry's message; None if the entry is wrong."""
        wrong = f"its entry {queue_offset} leads to another record"
        try:
            record = self._reader.log.record_at(int(entry["physical_offset"]), check_crc=False)
            is_of_queue = (record.topic, record.queue_id) == name
            is_there = is_of_queue and message_at(record, queue_offset) is not None
            # Entries of light queues lead to records of other topics.
            if is_there or is_dispatched_to(record, name.topic):
                return record.store_timestamp_ms
        except RecordError as error:
            wrong = str(error)
        self._fail(f"{CONSUME_QUEUE}/{name.topic}/{name.queue_id}", wrong)
        return None

    def _read_log(self) -> None:
        """Count the messages after those in queues."""
        reader = self._reader
        start = 0 if self._is_lost else self._queues_end
        walk = LogWalk(reader.log, start, confirm=reader.is_indexed, grows=True)
        start, log_end = walk.position, walk.stop
        for read in walk.rows():
            for topic, queue_id, rows in read.queued().queues():
                self._add_rows(topic, queue_id, rows.as_array)
        failures = [
            *reader.missing_parts(),
            *reader.lost_of_queues(lambda _: True),
            *map(str, walk.damage),
            *unfinished(walk.unfinished_at),
        ]
        self._coverage += reader.log_failures(failures)
        self._coverage += reader.log_failures(filter(None, (reader.lost_before_log(),)))
        self._coverage += torn_coverage(walk.torn_at)
        log = reader.log_coverage(walk.position, min(walk.stop, log_end), begin_offset=start)
        if start > reader.log.min_offset and StoreLayout(reader.path).abort.exists():
            log = replace(log, relies_on=Sentence("queues_before", start=start))
        self._coverage.append(log)

    def _add_rows(self, topic: str, queue_id: int, rows: "npt.NDArray[np.void]") -> None:
        counted = self._counted[topic].setdefault(queue_id, _Counted())
        rows = rows.compress(rows["queue_offset"] >= counted.max_offset)
        if len(rows):
            counted.add_rows(rows)
            last = rows[-1]
            if last["sys_flag"] & SYS_FLAG_INNER_BATCH:
                last_record = self._reader.log.record_at(int(last["physical_offset"]))
                counted.max_offset += message_count(last_record) - 1

    def _configuration(self) -> Mapping[str, Any]:
        table = read_table(self._reader.path, TOPICS_FILE, TOPICS_MEMBER)
        if table.problem:
            lacks = "topics without messages are unknown"
            if table.path is not None:
                lacks = f"{table.path.name} is used instead, without the last change"
            error = f"{table.problem}: {lacks}"
            damaged = SourceState.DAMAGED
            self._coverage.append(Coverage(TOPICS_FILE, SourceKind.TOPICS, damaged, None, error))
        return table.entries

    def _fail(self, source: str, error: str | None) -> None:
        self._coverage.append(failure(source, SourceKind.CONSUME_QUEUE, error))


def _of_broker(table: Mapping[str, Any]) -> set[str]:
    """Return the topics that a broker created for itself and its cluster."""
    own = _inherited(table)
    return own | ({reply_topic(name) for name in own} & table.keys())


def _inherited(table: Mapping[str, Any]) -> set[str]:
    """Return the topics named after a broker and its cluster.

    Besides system topics, only these allow inheritance.
    """
    return {
        name
        for name, value in table.items()
        if isinstance(value, dict)
        and isinstance(value.get("perm"), int)
        and value["perm"] & PERM_INHERIT
        and not is_system_topic(name)
    }


def _attributes(value: Any) -> dict[str, str] | None:
    """Return the attributes of a topic or group; None if they are malformed."""
    attributes = value.get("attributes") or {} if isinstance(value, dict) else {}
    if not isinstance(attributes, dict):
        return None
    return {str(name): str(each) for name, each in attributes.items()}


def _lite_ttl(value: Any) -> int | None:
    """Return the lifetime of a parent's lite topics in minutes; None for other topics."""
    attributes = _attributes(value) or {}
    if attributes.get(MESSAGE_TYPE) != LITE_TYPE:
        return None
    ttl = attributes.get(LITE_TTL, "")
    return int(ttl) if re.fullmatch(r"\d{1,9}", ttl, re.ASCII) else -1


def _queue_count(value: Any) -> int:
    names = ("readQueueNums", "writeQueueNums")
    counts = [value.get(name) for name in names] if isinstance(value, dict) else []
    numbers = [each for each in counts if isinstance(each, int)]
    return min(max(numbers, default=0), limits.MAX_TOPIC_QUEUES)
