"""Decides which records of a log belong to a deleted topic, and so have no queue entry.

A broker that deletes a topic removes its consume queues at once and leaves its records in the log
until they expire. A new topic of the same name begins at queue offset 0 in each queue. Recovery,
which writes consume queues, and the jobs that build and compare them use the same evidence,
strongest first:

1. *marks*: a RocketLens broker records up to where the log has messages of a deleted topic.
2. *restarted offsets*: a record with queue offset 0 after all others of its queue
   (:func:`begins_again`), and its consequences for the topic's other queues
   (:func:`ends_of_former`).
3. *existing queues* (:class:`TopicEvidence`): a broker writes the entries of all queues in log
   order. If the first entry of every queue of a topic is at queue offset 0, the topic's records
   before the earliest of these entries belong to a former topic. If a topic has no queue files and
   others have entries for later records, its records belong to a former topic.
4. *configuration*: a topic without queue files that is not in ``config/topics.json`` is deleted.

Evidence 3 is not used if a queue begins at another offset: the topic is then older than the log,
and missing entries are lost. If ``rocketlens/state.json`` has queues of a topic and they are
missing, they are lost, too: the topic was not deleted.

The marks are in ``rocketlens/deleted.json``. Recovery writes no queue entry for records of a marked
topic below ``end_offset``, and removes a queue that still has an entry for one.

The file is on the disk before a queue is removed. The record that ends at ``end_offset`` identifies
the log of a mark. A mark is dropped when the log has no records below it any more. The file is a
note (:mod:`rocketlens.store.read.note`); a damaged one has no marks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.model.rocketmq import is_system_topic
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.config_tables import TOPICS_FILE, TOPICS_MEMBER, read_table
from rocketlens.store.read.consumequeue import ConsumeQueue, QueueName
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import decode_note, read_record
from rocketlens.store.read.rocks import queues_in
from rocketlens.store.read.state import read_state

WHOLE_LOG: Final = 2**63 - 1
"""An end after all records: all of them belong to the deleted topic."""
_MAX_ENTRIES_TRIED: Final = 16
"""Entries at the start of a queue that are tried until one leads to its record."""
NOTE_KIND: Final = "deleted"


def begins_again(queue_offset: int, physical_offset: int, last_offset: int | None) -> bool:
    """Return True if a record restarts its queue: its topic was deleted and created again.

    ``last_offset``: the physical offset of the queue's last record, or None.
    """
    return queue_offset == 0 and last_offset is not None and last_offset < physical_offset


class Run(NamedTuple):
    """Records of one queue in log order; only the first can have queue offset 0.

    ``second_queue_offset`` is -1 if there is only one record.
    """

    record_count: int
    first_queue_offset: int
    second_queue_offset: int
    last_queue_offset: int
    first_offset: int
    last_offset: int


def ends_of_former(queues: Mapping[int, Sequence[Run]]) -> dict[int, int]:
    """Return the physical offset below which records of each queue belong to the deleted topic.

    ``queues``: the runs of each queue id, in log order. The former records of a queue end where its
    offsets restart. The topic was deleted at one point of the log, so a queue that has no record
    after it and did not restart has only former records.
    """
    begins: dict[int, int] = {}
    lasts: dict[int, int] = {}
    for queue_id, runs in queues.items():
        for number in range(len(runs) - 1, 0, -1):
            if _restarts(runs, number):
                begins[queue_id] = runs[number].first_offset
                lasts[queue_id] = runs[number - 1].last_offset
                break
    if not begins:
        return {}
    deleted_after = max(lasts.values())
    made_before = min(begin for begin in begins.values() if begin > deleted_after)
    for queue_id, runs in queues.items():
        began_before = runs[0].first_offset <= deleted_after
        ended_before = runs[-1].last_offset < made_before
        if began_before and ended_before and begins.get(queue_id, 0) <= deleted_after:
            begins[queue_id] = WHOLE_LOG
    return begins


def _restarts(runs: Sequence[Run], number: int) -> bool:
    """Return whether a run restarts its queue; False for one damaged queue offset.

    The offset 0 is damage if the next records continue the run before it.
    """
    run, before = runs[number], runs[number - 1]
    if not begins_again(run.first_queue_offset, run.first_offset, before.last_offset):
        return False
    following = run.second_queue_offset
    if following < 0 and number + 1 < len(runs):
        following = runs[number + 1].first_queue_offset
    return following <= before.last_queue_offset + 1


class TopicEvidence(NamedTuple):
    """Evidence of deleted topics in the files beside the log."""

    ends: Mapping[str, int]
    """By topic: no record below this physical offset has a queue entry."""
    present: frozenset[str]
    configured: frozenset[str] | None
    """Topics of ``config/topics.json``; None if it cannot be read."""
    dispatched_offset: int
    """Records below this physical offset got their queue entries; 0 if no queue has one."""

    def end_of(self, topic: str) -> int:
        """Return the physical offset below which a topic's records belong to a former topic."""
        end = self.known_end_of(topic)
        if topic in self.present or is_system_topic(topic):
            return end
        return max(end, self.dispatched_offset)

    def known_end_of(self, topic: str) -> int:
        """Return :meth:`end_of` by evidence other than missing queue files alone.

        A configured topic has no queue files if it was deleted, created again and got no message
        since. A store that lost the files looks the same.
        """
        is_gone = self.configured is not None and topic not in self.configured
        if is_gone and topic not in self.present and not is_system_topic(topic):
            return WHOLE_LOG
        return self.ends.get(topic, 0)


def read_evidence(store: Path, log: CommitLog) -> TopicEvidence:
    """Read marks, consume queues, configuration and state of a store. O(queues * log entries).

    Unreadable files are no evidence.
    """
    layout = StoreLayout(store)
    ends = read_ends(layout, log)
    present: set[str] = set()
    first_offsets: dict[str, int] = {}
    older: set[str] = set()
    dispatched = 0
    queues = queues_in(layout.consume_queue)
    for name in queues.names():
        queue = queues.queue(*name)
        if queue is None or not queue.files:
            continue
        present.add(name.topic)
        first = queue.first_kept(log.min_offset)
        if first > 0:
            older.add(name.topic)
        offset = _first_sound(queue, first, log, name)
        if offset is None:
            continue
        first_offsets[name.topic] = min(first_offsets.get(name.topic, offset), offset)
        last = queue.last_entry()
        dispatched = max(dispatched, offset + 1)
        if last is not None and log.record_of(last, name, queue.max_offset - 1) is not None:
            dispatched = max(dispatched, last.physical_offset + 1)
    queues.close()
    for topic, offset in first_offsets.items():
        if topic not in older:
            ends[topic] = max(ends.get(topic, 0), offset)
    dispatched = max(dispatched, _add_from_state(layout, log, ends, present))
    return TopicEvidence(ends, frozenset(present), configured_topics(layout), dispatched)


def _add_from_state(
    layout: StoreLayout, log: CommitLog, ends: Mapping[str, int], present: set[str]
) -> int:
    """Add the topics of ``state.json``; return the physical offset below which all have entries."""
    state = read_state(layout)
    if state is None or not state.is_of(log) or not state.is_last_writer(layout):
        # A RocketMQ broker that has run since can have deleted topics.
        return 0
    for topic, queues in state.queue_offsets.items():
        is_newer = ends.get(topic, -1) < state.queues_offset
        if is_newer and any(end > first for first, end in queues.values()):
            present.add(topic)
    return state.queues_offset


def _first_sound(queue: ConsumeQueue, first: int, log: CommitLog, name: QueueName) -> int | None:
    """Return the physical offset of the first entry that leads to its own record."""
    for queue_offset in range(first, min(first + _MAX_ENTRIES_TRIED, queue.max_offset)):
        entry = queue.entry(queue_offset)
        if entry is not None and log.record_of(entry, name, queue_offset) is not None:
            return entry.physical_offset
    return None


def configured_topics(layout: StoreLayout) -> frozenset[str] | None:
    """Return the topics of ``config/topics.json`` and its changes.

    Return None if the file is missing, damaged or empty: a topic that its backup lacks may exist.
    """
    table = read_table(layout.root, TOPICS_FILE, TOPICS_MEMBER)
    return frozenset(table.entries) if table.entries and not table.problem else None


def runs_of(
    zero_rows: Sequence[int], queue_offsets: Sequence[int], offsets: Sequence[int]
) -> Iterator[Run]:
    """Split the records of one queue, in log order, before each queue offset 0.

    ``zero_rows``: the rows with queue offset 0, ascending.
    """
    edges = [0, *(row for row in zero_rows if row), len(queue_offsets)]
    for start, stop in pairwise(edges):
        if start < stop:
            yield Run(
                stop - start,
                int(queue_offsets[start]),
                int(queue_offsets[start + 1]) if stop - start > 1 else -1,
                int(queue_offsets[stop - 1]),
                int(offsets[start]),
                int(offsets[stop - 1]),
            )


class DeletionMark(NamedTuple):
    """The end of a deleted topic's messages in the log, and the last record before it."""

    end_offset: int
    last_record_offset: int
    last_record_timestamp_ms: int


def decode_marks(content: bytes | None) -> dict[str, DeletionMark]:
    note = decode_note(NOTE_KIND, content or b"")
    try:
        marks = note.value.items() if note is not None else ()
        return {str(topic): DeletionMark(*map(int, numbers)) for topic, numbers in marks}
    except (ValueError, TypeError):
        return {}


def read_ends(layout: StoreLayout, log: CommitLog) -> dict[str, int]:
    """Return ``end_offset`` by topic, from the marks of the store's current log."""
    marks = decode_marks(fs.read_bytes(layout.deleted, limits.MAX_CONFIG_READ_BYTES))
    return {topic: mark.end_offset for topic, mark in marks.items() if is_of_log(mark, log)}


def is_of_log(mark: DeletionMark, log: CommitLog) -> bool:
    """Return True if the log has the record of a mark, and still has older ones."""
    if mark.end_offset <= log.min_offset:
        return False
    try:
        record = read_record(log, mark.last_record_offset)
    except RecordError:
        return False
    end_offset = mark.last_record_offset + record.total_size
    return (end_offset, record.store_timestamp_ms) == (
        mark.end_offset,
        mark.last_record_timestamp_ms,
    )
