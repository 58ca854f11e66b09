"""Detects messages that a log has lost at its end or start, by the other files of the store.

A copy of a log can lack its last file, or have it truncated or full of zeros. The log itself does
not show that. These files do:

* consume queues: a record began at the physical offset of their last entry;
* index files: the same, if other entries are for records of this log;
* ``synced``: a record of a RocketLens broker was on the disk;
* ``checkpoint``: a record of this store time was on the disk;
* offsets of groups: their queues had messages, see `GroupEvidence`.

RocketMQ writes all of them after the log, so on a live store they are never ahead of it.
RocketLens writes queues before the log, and the others after it.

Index files and consume queues show a lost start. RocketMQ deletes the first file of a log when it
is old. Some seconds later it deletes the queue and index files that lead only to deleted records,
except the last file of each. If these files exist after a clean stop, the log lost its first file
in another way: a copy lacks it. An empty file before the start, or a broken link, always shows
that.

The file ``abort`` means that a broker runs, or stopped before it deleted these files; and a
RocketLens broker deletes index files later. In both cases these files show nothing.

The offset of a group is after the last message that it consumed, so its queue had that message. A
broker that starts on a log without its end cuts queues, index and checkpoint, but not the offsets:
then only these show that messages were lost.

RocketMQ 4 keeps the offsets of a deleted topic, which can have been created again. RocketMQ 5
removes them, and writes a version into the file. So offsets of RocketMQ 4 are used only if the log
still has its first byte, and with it the messages of the deleted topic; all of it is read. Offsets
of a RocketLens broker are not used: its ``synced`` proves more.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import CheckpointError, IndexFileError, RecordError
from rocketlens.formats import checkpoint
from rocketlens.formats.batch_body import message_count
from rocketlens.formats.commitlog_record import MIN_RECORD_BYTES
from rocketlens.formats.index_file import HEADER_BYTES, IndexHeader, decode_header
from rocketlens.model.rocketmq import LMQ_PREFIX
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.config_tables import (
    OFFSETS_FILE,
    OFFSETS_MEMBER,
    is_in_database,
    read_table,
    stamp_of,
)
from rocketlens.store.read.consumequeue import ConsumeQueue, ConsumeQueues, QueueName
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.log.commitlog import CommitLog, SegmentLost
from rocketlens.store.read.log.scan import LogWalk, exhaust
from rocketlens.store.read.rocks import queues_in
from rocketlens.store.read.state import read_synced

_CLOCK_ERROR_MS: Final = 600_000
"""Maximum lead of a checkpoint's time over its file's time. A larger one is damage."""
_ENTRIES_COMPARED: Final = 8
"""Approximate number of entries of an index file that are compared with their records."""
_MAX_RECORD_DISTANCE: Final = 1 << 20
"""Maximum bytes between the last two records of a queue."""
_HEAD_BYTES: Final = 8
"""Size and magic of a record: zero if none was written."""
_VERSION_MEMBER: Final = "dataVersion"


class Proof(NamedTuple):
    """A record that a file of the store leads to."""

    physical_offset: int
    file: str
    queue: QueueName | None = None


class LostEnd(NamedTuple):
    """Messages lost at the end of a log, with the physical offset of the last one, if known."""

    physical_offset: int | None
    text: str


class LogEvidence:
    """Compares the end of a log with the other files of its store.

    Once the log was complete, only the last proven record is read again, until the log has another
    last file.
    """

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> None:
        self._layout = layout
        self._log = log
        self._queues = queues
        self._seen: tuple[int, int] | None = None
        self._last: Proof | None = None
        self._shown_by: dict[int, int | None] | None = None
        """Physical offsets and store times of the records that showed that nothing is lost; None if
        the last answer was another.
        """

    def still_holds(self) -> bool:
        """Return True if nothing was lost at the last call, and the log still has the records that
        showed it. The other files of the store must not have changed.
        """
        if self._shown_by is None:
            return False
        if self._seen != (self._log.version, self._log.segments[-1].base_offset):
            return False
        for physical_offset, store_timestamp_ms in self._shown_by.items():
            if self._log.time_at(physical_offset) != store_timestamp_ms:
                return False
        return True

    def lost_end(self) -> LostEnd | None:
        """Return messages known to be lost at the end, or None. O(queues + index files) once."""
        state = self._log.version, self._log.segments[-1].base_offset
        self._shown_by = None
        if state != self._seen:
            self._last = max(self._proofs(), default=None)
            self._seen = state
        last = self._last
        has_last = last is None or self._may_have(last)
        if not has_last:
            # Read again: a broker can have cut the log, and then the queues, meanwhile.
            proofs = sorted(self._proofs(), reverse=True)
            last = next((proof for proof in proofs if self._may_have(proof)), None)
            end = self._records_end(last)
            lost = [proof for proof in proofs if proof.physical_offset >= end]
            credible = next((proof for proof in lost if self._is_credible(proof, end)), None)
            if credible is not None:
                return LostEnd(
                    credible.physical_offset,
                    f"{credible.file} leads to a message at physical offset "
                    f"{credible.physical_offset}, and the log does not have it: messages at its "
                    "end are lost",
                )
        lost_end, shown_by = self._by_checkpoint(last)
        if has_last and lost_end is None and shown_by is not None:
            offsets = shown_by if last is None else [*shown_by, last.physical_offset]
            times = {each: self._log.time_at(each) for each in offsets}
            self._shown_by = None if None in times.values() else times
        return lost_end

    def _proofs(self) -> Iterator[Proof]:
        """Yield the last record that each file leads to, if the log has not deleted it."""
        index_proofs = (
            Proof(header.end_offset, f"index/{name}")
            for name, header in self._index_headers()
            if self._can_be_of_log(header)
        )
        for proof in (*self._synced_or_queue_proofs(), *index_proofs):
            if proof.physical_offset >= self._log.min_offset:
                yield proof

    def _synced_or_queue_proofs(self) -> Iterator[Proof]:
        """Yield the proof of `synced`, or without the file those of the queues.

        RocketLens writes the entry of a record before the record, so its queues prove nothing.
        """
        try:
            synced = read_synced(self._layout)
        except OSError:
            return
        if synced is None:
            yield from self._queue_proofs()
        elif synced.last_record_offset >= 0:
            yield Proof(synced.last_record_offset, "rocketlens/synced")

    def _queue_proofs(self) -> Iterator[Proof]:
        for name, queue in self._queues.readable():
            entry = None
            with suppress(OSError):
                entry = queue.last_entry()
            if entry is not None:
                yield Proof(entry.physical_offset, "/".join(queue.directory.parts[-3:]), name)

    def _index_headers(self) -> Iterator[tuple[str, IndexHeader]]:
        names: list[str] = []
        with suppress(OSError):
            names = _index_names(self._layout)
        for name in names:
            with suppress(OSError, IndexFileError):
                header = _read_header(self._layout.index / name)
                if header.last_entry:
                    yield name, header

    def _can_be_of_log(self, header: IndexHeader) -> bool:
        """Return whether an index file can belong to this log, by its first record."""
        begin = header.begin_offset
        if begin < self._log.min_offset:
            return 0 <= begin <= header.end_offset
        try:
            record = self._log.record_at(begin, check_crc=False)
        except RecordError:
            return begin <= header.end_offset and self._is_lost(begin)
        return record.store_timestamp_ms == header.begin_timestamp_ms

    def _is_credible(self, proof: Proof, end: int) -> bool:
        """Return False if a file that leads after the end is damaged, or of another log."""
        try:
            if proof.queue is not None:
                queue = self._queues.queue(*proof.queue)
                return queue is not None and (
                    _continues_after(queue, end) or self._has_entry_at(end)
                )
            if proof.file.startswith("index/"):
                return self._ends_with_header(proof) and self._is_index_of_log(end)
        except (OSError, IndexFileError):
            return False
        return True

    def _has_entry_at(self, end: int) -> bool:
        """Return whether a queue has an entry for a record at ``end``. O(queues)."""
        for name in self._queues.names():
            if (queue := self._queues.queue(*name)) is not None:
                entry = queue.entry(queue.first_where(lambda each: each.physical_offset >= end))
                if entry is not None and entry.physical_offset == end:
                    return True
        return False

    def _ends_with_header(self, proof: Proof) -> bool:
        """Return whether an index file's last entry has the offset in its header."""
        with closing(IndexFile(self._layout.root / proof.file)) as file:
            return file.entry(file.last_entry).physical_offset == proof.physical_offset

    def _is_index_of_log(self, end: int) -> bool:
        """Return whether most entries of the last index file that begins in the log match records.

        Some records can be damaged.

        :raises IndexFileError: if the file cannot be used, or an entry is for another record.
        """
        begins = {header.begin_offset: name for name, header in self._index_headers()}
        name = begins.get(max((begin for begin in begins if begin < end), default=-1))
        if name is None:
            return False
        with closing(IndexFile(self._layout.index / name)) as file:
            entry_count = file.number_before(end)
            compared = [
                file.is_for_its_record(self._log, number)
                for number in range(1, entry_count + 1, max(entry_count // _ENTRIES_COMPARED, 1))
                if file.entry(number).physical_offset >= self._log.min_offset
            ]
        return 0 < len(compared) <= 2 * sum(compared)

    def _records_end(self, last: Proof | None) -> int:
        start = self._last_segment_start() if last is None else last.physical_offset
        walk = LogWalk(self._log, start)
        exhaust(walk)
        return walk.damage[0].start if walk.damage else walk.position

    def _may_have(self, proof: Proof) -> bool:
        """Return whether the log has a record. True also if its file cannot be opened now."""
        try:
            self._log.record_at(proof.physical_offset, check_crc=False)
        except SegmentLost:
            return True
        except RecordError:
            return False
        return True

    def _is_lost(self, physical_offset: int) -> bool:
        """Return whether the log has zeros at an offset, which its readers report as damage."""
        if physical_offset < self._log.min_offset:
            return False
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except SegmentLost:
            return False
        except RecordError:
            return not any(self._log.bytes_at(physical_offset, _HEAD_BYTES))
        return False

    def _by_checkpoint(self, last: Proof | None) -> tuple[LostEnd | None, list[int] | None]:
        """Compare the store time in the checkpoint with those of the log's last records.

        Return lost messages, and the offsets of the records that show that none is lost. The
        offsets are None if a later comparison can give another answer.
        """
        try:
            written_ms = self._layout.checkpoint.stat().st_mtime_ns // 1_000_000
            content = fs.read_bytes(self._layout.checkpoint, checkpoint.CHECKPOINT_BYTES)
            saved = checkpoint.decode(content or b"")
        except (FileNotFoundError, CheckpointError):
            return None, []
        except OSError:
            return None, None
        newest_ms = max(saved.physic_msg_timestamp_ms, saved.logics_msg_timestamp_ms)
        if not 0 < newest_ms <= written_ms + _CLOCK_ERROR_MS:
            return None, []
        start = self._last_segment_start() if last is None else last.physical_offset
        walk = LogWalk(self._log, start, grows=True)
        for record in walk.records():
            if record.store_timestamp_ms >= newest_ms:
                return None, [record.physical_offset]
            if walk.position - start > limits.MAX_SHORT_SCAN_BYTES:
                # Reading on would cost too much.
                return None, None
        if walk.damage or walk.torn_at is not None or walk.unfinished_at is not None:
            return None, None
        lost = (
            f"the checkpoint names a message stored at {newest_ms} (epoch ms), later than all at "
            "the end of the log: messages there are lost"
        )
        return LostEnd(None, lost), None

    def _last_segment_start(self) -> int:
        for segment in reversed(self._log.segments):
            if any(self._log.bytes_at(segment.base_offset, _HEAD_BYTES)):
                return segment.base_offset
        return self._log.min_offset


def _index_names(layout: StoreLayout) -> list[str]:
    return [file.name for file in fs.entries(layout.index) if file.name.isdigit()]


def _read_header(path: Path) -> IndexHeader:
    return decode_header(fs.read_part(path, 0, HEADER_BYTES))


def _continues_after(queue: ConsumeQueue, end: int) -> bool:
    """Return whether a queue's last two entries lead after the end of a log, to records that are as
    far from each other as two records can be. Damaged entries lead anywhere.
    """
    last = queue.last_entry()
    if last is None:
        return False
    # The messages of a batch have one record.
    first_of_last = queue.first_where(lambda each: each.physical_offset >= last.physical_offset)
    before = queue.entry(first_of_last - 1)
    if before is None or before.physical_offset < end:
        return False
    step = last.physical_offset - before.physical_offset
    return MIN_RECORD_BYTES <= before.store_size <= step <= _MAX_RECORD_DISTANCE


def lost_end_of(
    layout: StoreLayout, log: CommitLog, takes_topic: Callable[[str], bool] = lambda _: True
) -> LostEnd | None:
    """Return the messages known to be lost after the end of a store's log, or None.

    ``takes_topic``: the topics for which offsets of groups count.
    """
    queues = queues_in(layout.consume_queue)
    try:
        lost = LogEvidence(layout, log, queues).lost_end()
        if lost is None:
            groups = GroupEvidence(layout, log, queues).ahead()
            ahead = (LostEnd(None, str(each)) for each in groups if takes_topic(each.queue.topic))
            lost = next(ahead, None)
        return lost
    finally:
        queues.close()


def lost_begin(layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> str | None:
    """Describe messages before the start of the log that no broker deleted; None if none are known.

    O(queues + index files).
    """
    least = log.min_offset
    unreadable = log.unreadable_before()
    if unreadable is not None:
        return (
            f"the log begins at physical offset {least}, and {unreadable} before that is empty or "
            "no file: its messages are lost"
        )
    if least == 0 or layout.abort.exists() or layout.own.exists():
        return None
    for file, last in _deleted_with_log(layout, queues):
        if 0 <= last < least:
            return (
                f"the log begins at physical offset {least}, and {file} leads to messages before: "
                "a broker that deletes a file of the log deletes that file, too, so the log's "
                "first file is lost"
            )
    return None


def first_time(log: CommitLog) -> int:
    """Return the store time of a log's first message; the largest time if that is damaged."""
    try:
        return log.record_at(log.min_offset, check_crc=False).store_timestamp_ms
    except RecordError:
        return limits.MAX_TIMESTAMP_MS


def lost_begin_of(layout: StoreLayout, log: CommitLog, begin_ms: int) -> str | None:
    """Return `lost_begin` of a store's log for messages from a store time on."""
    if begin_ms >= first_time(log):
        return None
    queues = queues_in(layout.consume_queue)
    try:
        return lost_begin(layout, log, queues)
    finally:
        queues.close()


def _deleted_with_log(layout: StoreLayout, queues: ConsumeQueues) -> Iterator[tuple[str, int]]:
    """Yield the first file of the index and of each queue, and the last physical offset in it.

    A broker keeps the only file of the index or of a queue, so that one is left out.
    """
    with suppress(OSError, IndexFileError):
        names = _index_names(layout)
        if len(names) > 1:
            header = _read_header(layout.index / names[0])
            if header.last_entry and header.begin_offset <= header.end_offset:
                yield f"index/{names[0]}", header.end_offset
    for _, queue in queues.readable():
        if len(queue.files) > 1:
            first, entry = queue.files[0], None
            with suppress(OSError):
                entry = queue.entry(first.first_queue_offset + first.entry_count - 1)
            if entry is not None:
                yield "/".join(first.path.parts[-4:]), entry.physical_offset


class GroupAhead(NamedTuple):
    """A group whose offset is after the end of a queue."""

    queue: QueueName
    group: str
    queue_offset: int
    end: int

    def __str__(self) -> str:
        topic, queue_id = self.queue
        return (
            f"group {self.group} has consumed topic {topic}, queue {queue_id}, up to queue offset "
            f"{self.queue_offset}, and it ends at {self.end} here: messages at its end are lost"
        )


class GroupEvidence:
    """Compares the offsets of groups with the ends of queues, in their files and in the log."""

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> None:
        self._layout = layout
        self._log = log
        self._queues = queues
        self._checked_stamp: Hashable = None
        """The stamp of offsets with which no group was ahead. Queues only grow."""
        self._is_final = False

    def still_holds(self) -> bool:
        """Return True if no group was ahead, and only the files of offsets can change that."""
        return self._is_final

    def ahead(self) -> list[GroupAhead]:
        """Return for each queue with a lost end the group that is farthest ahead of it.

        O(offsets of groups); if some are ahead of their queues, the log after these is read, too.
        """
        root = self._layout.root
        stamp = stamp_of(root, OFFSETS_FILE)
        self._is_final = not is_in_database(root, OFFSETS_FILE)
        if self._layout.synced.exists() or (stamp is not None and stamp == self._checked_stamp):
            return []
        is_of_4 = not read_table(root, OFFSETS_FILE, _VERSION_MEMBER).entries
        offsets: dict[QueueName, tuple[int, str]] = {}
        if not is_of_4 or self._log.min_offset == 0:
            # Read before the queues, because a running broker advances both.
            offsets = _farthest(read_table(root, OFFSETS_FILE, OFFSETS_MEMBER).entries)
        starts: dict[QueueName, int] = {}
        ends: dict[QueueName, int] = {}
        for name, (offset, _) in offsets.items():
            try:
                queue = self._queues.queue(*name)
                end = queue.max_offset if queue is not None else 0
                entry = queue.last_entry() if queue is not None else None
            except OSError:
                self._is_final = False
                continue
            # RocketMQ 4 removes all files of a deleted topic's queues.
            if offset > end and (end or not is_of_4):
                ends[name] = end
                first = self._log.min_offset
                starts[name] = first if entry is None or is_of_4 else entry.physical_offset
        start = max(min(starts.values(), default=0), self._log.min_offset)
        if starts and self._log.max_offset - start > limits.MAX_TOPIC_SCAN_BYTES:
            self._is_final = False
            return []
        for name, end in self._ends(start) if starts else ():
            if name in ends:
                ends[name] = max(ends[name], end)
        # The end of a queue without files and messages is unknown.
        ahead = [
            GroupAhead(name, offsets[name][1], offsets[name][0], end)
            for name, end in sorted(ends.items())
            if 0 < end < offsets[name][0]
        ]
        if ahead:
            self._is_final = False
        else:
            self._checked_stamp = stamp
        return ahead

    def _ends(self, start: int) -> Iterator[tuple[QueueName, int]]:
        """Yield queues and their ends, by the records of the log from an offset on."""
        start = min(start, self._log.max_offset)
        for read in LogWalk(self._log, start).rows():
            for topic, queue_id, rows in read.queued().queues():
                fields = rows.as_array
                last = int(fields["physical_offset"][fields["queue_offset"].argmax()])
                record = self._log.record_at(last, check_crc=False)
                yield QueueName(topic, queue_id), record.queue_offset + message_count(record)


def _farthest(table: Mapping[str, Any]) -> dict[QueueName, tuple[int, str]]:
    """Return the largest committed offset of each queue, with its group."""
    farthest: dict[QueueName, tuple[int, str]] = {}
    for text, of_queues in table.items():
        topic, _, group = text.partition("@")
        if topic.startswith(LMQ_PREFIX) or not isinstance(of_queues, dict):
            continue
        for queue_id, offset in of_queues.items():
            is_number = str(queue_id).isdecimal() and str(queue_id).isascii()
            if is_number and len(str(queue_id)) < 10 and type(offset) is int:
                name = QueueName(topic, int(queue_id))
                farthest[name] = max(farthest.get(name, (0, "")), (offset, group))
    return farthest
