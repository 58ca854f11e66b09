"""What the offsets of consumer groups prove about the end of a store's queues.

A group's offset is behind the last message that it consumed, so a queue had that message. A broker
that starts on a log without its end cuts queues, index and checkpoint to it, and leaves the offsets
as they are: then only they show that messages were lost.

RocketMQ 4 leaves the offsets of a deleted topic, which may have been made again; RocketMQ 5 removes
them, and has a version in the file. So offsets of RocketMQ 4 prove something only of a log from its
first byte on, which would have the messages of the deleted topic, too, and all of it is read. Those
of a RocketLens broker prove nothing: its ``synced`` proves more.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.formats.batch_body import message_count
from rocketlens.formats.commitlog_record import Record, has_queue_entry
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.config_tables import OFFSETS_FILE, OFFSETS_MEMBER, read_table, stamp_of
from rocketlens.store.read.consumequeue import ConsumeQueues, QueueName
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import Chunk, LogWalk

_VERSION_MEMBER: Final = "dataVersion"


class GroupAhead(NamedTuple):
    """A group whose offset is behind the end of a queue."""

    queue: QueueName
    group: str
    queue_offset: int
    end: int

    def __str__(self) -> str:
        """Return what that means."""
        topic, queue_id = self.queue
        return (
            f"group {self.group} has consumed topic {topic}, queue {queue_id}, up to queue offset "
            f"{self.queue_offset}, and it ends at {self.end} here: messages at its end are lost"
        )


class GroupEvidence:
    """Compares the offsets of groups with the ends of queues, in their files and in the log."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> None:
        """Set what is compared; nothing is read yet."""
        self._layout = layout
        self._log = log
        self._queues = queues
        self._useless: Hashable = None
        """The stamp of the offsets that proved nothing. Queues only grow."""

    def ahead(self) -> list[GroupAhead]:
        """Return the group that is farthest ahead of each queue whose end it proves to be lost.

        O(offsets of groups), and the log behind the queues where some are ahead of those.
        """
        root = self._layout.root
        stamp = stamp_of(root, OFFSETS_FILE)
        if self._layout.synced.exists() or (stamp is not None and stamp == self._useless):
            return []
        is_of_4 = not read_table(root, OFFSETS_FILE, _VERSION_MEMBER).entries
        offsets: dict[QueueName, tuple[int, str]] = {}
        if not is_of_4 or self._log.min_offset == 0:
            # Before the queues: a running broker goes on.
            offsets = _farthest(read_table(root, OFFSETS_FILE, OFFSETS_MEMBER).entries)
        starts: dict[QueueName, int] = {}
        ends: dict[QueueName, int] = {}
        for name, (offset, _) in offsets.items():
            try:
                queue = self._queues.queue(*name)
                end = queue.max_offset if queue is not None else 0
                entry = queue.last_entry() if queue is not None else None
            except OSError:
                continue
            # RocketMQ 4 leaves nothing of a deleted topic's queues.
            if offset > end and (end or not is_of_4):
                ends[name] = end
                first = self._log.min_offset
                starts[name] = first if entry is None or is_of_4 else entry.physical_offset
        start = max(min(starts.values(), default=0), self._log.min_offset)
        if starts and self._log.max_offset - start > limits.MAX_TOPIC_SCAN_BYTES:
            return []
        for name, end in self._ends(start) if starts else ():
            if name in ends:
                ends[name] = max(ends[name], end)
        # Of a queue without files and messages nothing tells where it ended.
        ahead = [
            GroupAhead(name, offsets[name][1], offsets[name][0], end)
            for name, end in sorted(ends.items())
            if 0 < end < offsets[name][0]
        ]
        if not ahead:
            self._useless = stamp
        return ahead

    def _ends(self, start: int) -> Iterator[tuple[QueueName, int]]:
        """Yield the queues of the log's records from an offset on, and where each ends by them."""
        start = min(start, self._log.max_offset)
        for piece in LogWalk(self._log, start).pieces():
            if isinstance(piece, Chunk):
                for topic, queue_id, rows in piece.queues():
                    queued = rows[has_queue_entry(rows["sys_flag"])]
                    if len(queued):
                        last = queued[queued["queue_offset"].argmax()]
                        record = self._log.record_at(int(last["physical_offset"]), check_crc=False)
                        yield QueueName(topic, queue_id), _end_of(record)
            elif has_queue_entry(piece.sys_flag):
                yield QueueName(piece.topic, piece.queue_id), _end_of(piece)


def _end_of(record: Record) -> int:
    return record.queue_offset + message_count(record)


def _farthest(table: Mapping[str, Any]) -> dict[QueueName, tuple[int, str]]:
    """Return for each queue the largest offset of a group, and that group."""
    farthest: dict[QueueName, tuple[int, str]] = {}
    for text, of_queues in table.items():
        topic, _, group = text.rpartition("@")
        if topic.startswith(LMQ_PREFIX) or not isinstance(of_queues, dict):
            continue
        for queue_id, offset in of_queues.items():
            is_number = str(queue_id).isdecimal() and str(queue_id).isascii()
            if is_number and len(str(queue_id)) < 10 and type(offset) is int:
                name = QueueName(topic, int(queue_id))
                farthest[name] = max(farthest.get(name, (0, "")), (offset, group))
    return farthest


def first_ahead(
    layout: StoreLayout, log: CommitLog, queues: ConsumeQueues, takes_topic: Callable[[str], bool]
) -> GroupAhead | None:
    """Return a group that is ahead of a queue of some topics, looked at once."""
    groups = GroupEvidence(layout, log, queues).ahead()
    return next((each for each in groups if takes_topic(each.queue.topic)), None)
