"""Determines the proven part of each consume queue, and the deleted topics.

``state.json`` has the least start and end of each queue, unless its topic was deleted since. A
queue that ends earlier lost entries, and their records are read from the log.

If a RocketMQ broker ran after ``state.json`` was written, or the file is missing, the deleted
topics are unknown. A topic without consume queue is deleted in RocketMQ, so:

* a topic that had messages and has no queue file now was deleted;
* a topic whose queues begin after the end of the state was deleted and created again;
* a record whose topic has no queue file belongs to a deleted topic if its queue entry must have
  been durable: always if the store was closed cleanly, otherwise if it is older than the
  checkpoint's time of the queues less three seconds, as in RocketMQ.

If the directory ``consumequeue`` is missing, or without a state no queue has an entry, the queues
were lost, and no topic was deleted.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from rocketlens.errors import RecordError
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.state import StoreState
from rocketlens.store.write.append import Appended, Appender
from rocketlens.store.write.durability import read_checkpoint
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.store.write.queue.queue_files import (
    QueueFiles,
    StoredQueueFile,
    first_physical_offset,
    good_end,
)

_CHECKED_BYTES: Final = 128 * 1024 * 1024
"""Bytes of entries that are checked, in some 0.2 s. Of further queues only the ends are checked."""
_LAST_ENTRIES: Final = 1_000
"""Entries at the end of a queue that are always checked."""
_DURABLE_FOR_MS: Final = 3_000
_ALL: Final = 1 << 62


class QueueEnding(NamedTuple):
    """The known facts about the end of the last run."""

    is_ours: bool
    was_closed: bool


class PreparedQueues(Struct):
    """The known state of the queues before the log is read."""

    start: int
    at_least: dict[tuple[str, int], int] = field(default_factory=dict)
    """For queues that lack entries: the least queue offset of the next message."""
    unseen: set[tuple[str, int]] = field(default_factory=set)
    """Unknown queues, which begin with the first record found."""
    topics: set[str] = field(default_factory=set)
    deleted_before_ms: int = -1
    """Records of other topics belong to deleted ones if they were stored before this time."""
    deleted: dict[str, Appended] = field(default_factory=dict)
    """Topics that a RocketMQ broker deleted, and the record up to which the log has their messages.
    """
    notes: list[str] = field(default_factory=list)


class QueueRecovery(Struct):
    """Opens all queues of a store, and ends each at its proven part.

    ``files`` and ``deleted`` as for :class:`rocketlens.store.write.recovery.Recovery`.
    """

    layout: StoreLayout
    disk: Disk
    log: CommitLog
    appender: Appender
    files: QueueFiles
    deleted: Mapping[str, int]
    _unchecked_bytes: int = _CHECKED_BYTES

    def prepare(self, state: StoreState | None, ending: QueueEnding) -> PreparedQueues:
        """Open the queues. ``state``: that of this log, or None."""
        start = self.log.min_offset if state is None else state.queues_offset
        prepared = PreparedQueues(start)
        prepared.topics = {topic for (topic, _), files in self.files.items() if files}
        table = self._expected(state) if state else {}
        if not ending.is_ours:
            self._find_deleted(state, table, prepared, ending)
        named = {(topic, queue_id) for topic, queues in table.items() for queue_id in queues}
        for topic, queue_id in sorted(named | set(self.files)):
            if is_topic_name(topic):
                queue = self.appender.queue(topic, queue_id)
                first, expected = table.get(topic, {}).get(queue_id, (0, 0))
                self._open(queue, first, expected, state, prepared)
        return prepared

    def _expected(self, state: StoreState) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the first and next queue offsets at the last save, without deleted topics."""
        return {
            topic: queues
            for topic, queues in state.queue_offsets.items()
            if state.queues_offset > self.deleted.get(topic, -1)
        }

    def _find_deleted(
        self,
        state: StoreState | None,
        table: dict[str, dict[int, tuple[int, int]]],
        prepared: PreparedQueues,
        ending: QueueEnding,
    ) -> None:
        """Find the topics that a RocketMQ broker deleted, and drop them from ``table``."""
        first_offsets = self._first_offsets()
        is_there = fs.file_size(self.layout.consume_queue) is not None
        if not (first_offsets or (state is not None and is_there)):
            return
        if ending.was_closed:
            prepared.deleted_before_ms = _ALL
        else:
            noted = read_checkpoint(self.layout)
            least = min(noted.physic_msg_timestamp_ms, noted.logics_msg_timestamp_ms)
            prepared.deleted_before_ms = least - _DURABLE_FOR_MS
        if state is None or state.mark is None:
            return
        last = Appended(
            state.mark.record_offset, 0, state.last_record_timestamp_ms, state.mark.record_bytes
        )
        for topic in list(table):
            had_messages = any(end > first for first, end in table[topic].values())
            if had_messages and first_offsets.get(topic, _ALL) >= state.queues_offset:
                del table[topic]
                prepared.deleted[topic] = last
                prepared.notes.append(f"topic {topic} was deleted by another broker")

    def _first_offsets(self) -> dict[str, int]:
        """Return the lowest physical offset in the queues of each topic with an entry."""
        lowest: dict[str, int] = {}
        for (topic, _), files in self.files.items():
            first = first_physical_offset(files) if is_topic_name(topic) else None
            if first is not None:
                lowest[topic] = min(first, lowest.get(topic, first))
        return lowest

    def _open(
        self,
        queue: QueueWriter,
        first: int,
        expected: int,
        state: StoreState | None,
        prepared: PreparedQueues,
    ) -> None:
        """Open one queue; ``first`` and ``expected`` are its known start and end."""
        name = (queue.topic, queue.queue_id)
        files = self.files.get(name, [])
        if queue.topic in self.deleted and self._is_of_deleted(queue.topic, files):
            for file in files:
                self.disk.remove_file(file.path)
            files, queue.has_made_files = [], True
        files = self._mend_sizes(queue, files)
        queue.has_files = bool(files)
        from_offset = 0
        if state is not None:
            self._unchecked_bytes -= max(expected - first, 0) * ENTRY_BYTES
            if self._unchecked_bytes < 0:
                from_offset = max(expected - _LAST_ENTRIES, 0)
        trusted = self.log.min_offset if state is None else state.queues_offset
        if first == expected or self._seems_whole(queue, files, first, from_offset):
            queue.next_offset = good_end(files, from_offset, trusted)
            if state is not None:
                queue.next_offset = self._proven_end(queue, expected)
            if first == expected and not files:
                # It had no file, because the log had none of its records.
                queue.next_offset = expected
            if state is None and queue.entry(queue.next_offset - 1) is None:
                prepared.unseen.add(name)
        else:
            queue.next_offset = first
            if _begins_after(files, first):
                # It begins with its first record in the log: earlier messages may have been deleted
                # since the state was saved.
                prepared.unseen.add(name)
        if queue.next_offset < expected:
            prepared.at_least[name] = expected
            prepared.start = min(prepared.start, self._offset_of_last(queue))
            prepared.notes.append(
                f"queue {queue.topic}/{queue.queue_id} has no entries from {queue.next_offset} on: "
                "reading the log for them"
            )

    def _proven_end(self, queue: QueueWriter, expected: int) -> int:
        """Return the queue offset after the last entry that is known or leads to its own record.

        Entries after ``expected`` were not synced when the state was saved. A power cut can leave
        any bytes there, and no later record would replace them.
        """
        for queue_offset in range(expected, queue.next_offset):
            entry = queue.entry(queue_offset)
            try:
                record = self.log.record_at(entry[0] if entry else -1, check_crc=False)
            except RecordError:
                return queue_offset
            expected_entry = (record.topic, record.queue_id, record.queue_offset, record.total_size)
            if entry is None or expected_entry != (
                queue.topic,
                queue.queue_id,
                queue_offset,
                entry[1],
            ):
                return queue_offset
        return queue.next_offset

    def _is_of_deleted(self, topic: str, files: list[StoredQueueFile]) -> bool:
        first = first_physical_offset(files)
        return first is not None and first < self.deleted[topic]

    def _mend_sizes(
        self, queue: QueueWriter, files: list[StoredQueueFile]
    ) -> list[StoredQueueFile]:
        for file in files:
            if file.size < queue.file_bytes:
                self.disk.set_size(file.path, queue.file_bytes)
        return [file._replace(size=queue.file_bytes) for file in files]

    def _seems_whole(
        self, queue: QueueWriter, files: list[StoredQueueFile], first: int, from_offset: int
    ) -> bool:
        """Return whether all queue files seem to exist for which the log has messages.

        The cleaner deletes the first files with their messages, but an earlier state still has
        them: no file is missing if the record of the first existing entry is deleted, too. Of files
        below queue offset ``from_offset``, only the first and the last entry are checked.
        """
        if not files:
            return True
        if _begins_after(files, first):
            first_left = first_physical_offset(files)
            if first_left is None or first_left >= self.log.min_offset:
                return False
        for file in files:
            ends = [file.base // ENTRY_BYTES, (file.base + file.size) // ENTRY_BYTES - 1]
            if any(end < from_offset and queue.entry(end) is None for end in ends):
                return False
        return True

    def _offset_of_last(self, queue: QueueWriter) -> int:
        last = queue.entry(queue.next_offset - 1) if queue.next_offset else None
        try:
            if (
                last is not None
                and self.log.record_at(last[0], check_crc=False).total_size == last[1]
            ):
                return last[0]
        except RecordError:
            pass
        return self.log.min_offset


def _begins_after(files: list[StoredQueueFile], first: int) -> bool:
    return bool(files) and files[0].base // ENTRY_BYTES > first
