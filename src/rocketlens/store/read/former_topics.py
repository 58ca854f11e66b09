"""Decides which records of a log are of a deleted topic, and so have no queue entry.

A broker that deletes a topic removes its consume queues at once and leaves its records in the log
until they expire. A topic that is made again under the name begins at queue offset 0 in each queue.
Recovery, which writes consume queues, and the jobs that build and compare them decide by the same
evidence, strongest first:

1. *marks*: the broker of this project notes how far the log is of a deleted topic, see below.
2. *offsets that begin again*: a record with queue offset 0 behind all others of its queue
   (:func:`begins_again`), and what that says about the other queues of the topic
   (:func:`ends_of_former`).
3. *queues that are there* (:class:`TopicEvidence`): a broker writes the entries of all queues in
   the order of the log. When the first entry of every queue of a topic is at queue offset 0, the
   topic's records before the earliest of those entries are of a former topic. When a topic has no
   queue files and others have entries for later records, its records are of a former topic.
4. *configuration*: a topic that has no queue files and is not in ``config/topics.json`` is deleted.

Evidence 3 is not used where a queue begins at another offset, for then the topic is older than the
log, and entries that are missing are lost. A topic whose queues ``rocketlens/state.json`` names
has lost them when they are missing; it was not deleted.

Marks are in ``rocketlens/deleted.json``: which topics were deleted, and how far the log is theirs.
The log keeps the messages of a deleted topic until they expire, and one that is made again under
its name begins at queue offset 0, as in RocketMQ. So recovery must not give the old messages queue
entries again: of a topic that is named here, no record below ``end_offset`` gets one, and a queue
with an entry for such a record was not removed in time and is removed now.

It is on the disk before a queue is removed. The record that ended at ``end_offset`` shows that a
mark is of this log; it goes when the log has nothing below it any more.

The file is a note with a checksum (:mod:`rocketlens.store.read.note`). One that is damaged, or that
an earlier version wrote without one, has no marks.
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
from rocketlens.store.read.note import decode_note, opened_record
from rocketlens.store.read.rocks import queues_in
from rocketlens.store.read.state import read_state

WHOLE_LOG: Final = 2**63 - 1
"""As an end: every record of the topic is of the deleted one."""
_MAX_ENTRIES_TRIED: Final = 16
"""Entries at the begin of a queue that are checked for one that leads to its record."""
NOTE_KIND: Final = "deleted"


def begins_again(queue_offset: int, physical_offset: int, last_offset: int | None) -> bool:
    """Return whether a record starts its queue again, because its topic was deleted and created
    again.

    ``last_offset`` is the physical offset of the record that the queue ends with, None for none.
    """
    return queue_offset == 0 and last_offset is not None and last_offset < physical_offset


class Run(NamedTuple):
    """Records of one queue, in log order, of which none but the first may have queue offset 0.

    ``second_queue_offset`` is -1 when there is one record only.
    """

    record_count: int
    first_queue_offset: int
    second_queue_offset: int
    last_queue_offset: int
    first_offset: int
    last_offset: int


def ends_of_former(queues: Mapping[int, Sequence[Run]]) -> dict[int, int]:
    """Return the physical offset below which records of each queue are of the deleted topic.

    ``queues`` has the runs of each queue id, in log order. A queue whose offsets begin again ends
    its former records there. The topic was deleted at one point of the log, so another queue that
    has no record from there on, and did not begin again, has former records only.
    """
    begins: dict[int, int] = {}
    lasts: dict[int, int] = {}
    for queue_id, runs in queues.items():
        for number in range(len(runs) - 1, 0, -1):
            if _is_new_life(runs, number):
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


def _is_new_life(runs: Sequence[Run], number: int) -> bool:
    """Return whether a run starts its queue again; False for one damaged queue offset.

    When the records behind it go on where the one before it ended, the offset 0 is damage.
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
    """Topics that have queue files, or should have."""
    configured: frozenset[str] | None
    """Topics of ``config/topics.json``; None when it cannot be read."""
    dispatched_offset: int
    """Records below this physical offset got their queue entries; 0 when no queue has one."""

    def end_of(self, topic: str) -> int:
        """Return the physical offset below which a topic's records are of a former topic."""
        end = self.known_end_of(topic)
        if topic in self.present or is_system_topic(topic):
            return end
        return max(end, self.dispatched_offset)

    def known_end_of(self, topic: str) -> int:
        """Return the part of :meth:`end_of` that follows not only from missing queue files.

        A broker leaves a topic of the configuration without queue files when the topic was deleted
        and made again and got no message since; a store that lost the files looks the same.
        """
        is_gone = self.configured is not None and topic not in self.configured
        if is_gone and topic not in self.present and not is_system_topic(topic):
            return WHOLE_LOG
        return self.ends.get(topic, 0)


def read_evidence(store: Path, log: CommitLog) -> TopicEvidence:
    """Read marks, consume queues, configuration and state of a store.

    O(queues * log entries). What cannot be read is not evidence.
    """
    layout = StoreLayout(store)
    ends = read_ends(layout, log)
    present: set[str] = set()
    anew: dict[str, int] = {}
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
        anew[name.topic] = min(anew.get(name.topic, offset), offset)
        last = queue.last_entry()
        dispatched = max(dispatched, offset + 1)
        if last is not None and log.record_of(last, name, queue.max_offset - 1) is not None:
            dispatched = max(dispatched, last.physical_offset + 1)
    queues.close()
    for topic, offset in anew.items():
        if topic not in older:
            ends[topic] = max(ends.get(topic, 0), offset)
    dispatched = max(dispatched, _add_named_by_state(layout, log, ends, present))
    return TopicEvidence(ends, frozenset(present), configured_topics(layout), dispatched)


def _add_named_by_state(
    layout: StoreLayout, log: CommitLog, ends: Mapping[str, int], present: set[str]
) -> int:
    """Add the topics of ``state.json``; return the physical offset below which all entries were
    written.
    """
    state = read_state(layout)
    if state is None or not state.is_of(log) or not state.is_last_writer(layout):
        # A real broker that has run since may have deleted topics.
        return 0
    for topic, queues in state.queue_offsets.items():
        is_newer = ends.get(topic, -1) < state.queues_offset
        if is_newer and any(end > first for first, end in queues.values()):
            present.add(topic)
    return state.queues_offset


def _first_sound(queue: ConsumeQueue, first: int, log: CommitLog, name: QueueName) -> int | None:
    """Return the physical offset in the first entry that leads to its own record."""
    for queue_offset in range(first, min(first + _MAX_ENTRIES_TRIED, queue.max_offset)):
        entry = queue.entry(queue_offset)
        if entry is not None and log.record_of(entry, name, queue_offset) is not None:
            return entry.physical_offset
    return None


def configured_topics(layout: StoreLayout) -> frozenset[str] | None:
    """Return the topics of ``config/topics.json`` and of its changes.

    None when it is missing, damaged or empty: what a backup lacks is not evidence.
    """
    table = read_table(layout.root, TOPICS_FILE, TOPICS_MEMBER)
    return frozenset(table.entries) if table.entries and not table.problem else None


def runs_of(
    zero_rows: Sequence[int], queue_offsets: Sequence[int], offsets: Sequence[int]
) -> Iterator[Run]:
    """Split the records of one queue, in log order, where queue offset 0 comes again.

    ``zero_rows`` are the rows with queue offset 0, ascending.
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
    """The physical offset up to which the log has a deleted topic's messages, and the record
    there.
    """

    end_offset: int
    last_record_offset: int
    last_record_timestamp_ms: int


def decode_marks(content: bytes | None) -> dict[str, DeletionMark]:
    """Return the marks in a file by topic; empty if it is damaged or missing."""
    note = decode_note(NOTE_KIND, content or b"")
    try:
        marks = note.value.items() if note is not None else ()
        return {str(topic): DeletionMark(*map(int, numbers)) for topic, numbers in marks}
    except (ValueError, TypeError):
        return {}


def read_ends(layout: StoreLayout, log: CommitLog) -> dict[str, int]:
    """Return ``end_offset`` by topic, of the marks that are of the store's log. Read only.

    :raises OSError: when the file, or the log, cannot be read now.
    """
    marks = decode_marks(fs.read_bytes(layout.deleted, limits.MAX_CONFIG_READ_BYTES))
    return {topic: mark.end_offset for topic, mark in marks.items() if is_of_log(mark, log)}


def is_of_log(mark: DeletionMark, log: CommitLog) -> bool:
    """Return whether the log has the record of a mark, and still has older ones.

    :raises OSError: when the log cannot be read now.
    """
    if mark.end_offset <= log.min_offset:
        return False
    try:
        record = opened_record(log, mark.last_record_offset)
    except RecordError:
        return False
    end_offset = mark.last_record_offset + record.total_size
    return (end_offset, record.store_timestamp_ms) == (
        mark.end_offset,
        mark.last_record_timestamp_ms,
    )
