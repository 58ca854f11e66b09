"""What other files of a store prove about the end and the start of its log.

A log ends where its files end, and a copy can lack the last of them, or hold it cut or full of
zeros. The log itself does not show that; these files do:

==================  =============================================================================
file                what it proves
==================  =============================================================================
consume queues      a record began at the physical offset of their last entry
index files         a record began at the physical offset of their last entry, if others are for
                    records of this log
``synced``          a record of a RocketLens broker was on the disk
``checkpoint``      a record of this store time was on the disk
offsets of groups   their queues had messages: see `GroupEvidence`
==================  =============================================================================

RocketMQ writes all of them after the log, so on a live store they are never ahead of it.
RocketLens writes queues before it, and all others after it.

The begin is proved by index files and consume queues. RocketMQ deletes the first file of a log when
it is old, and in the next seconds the files of queues and of the index that lead to nothing else
any more, but the last one of each. So where such files are there after a clean stop, the log lost
its first file in another way: a copy lacks it. A file before the start that is there and empty, or
a link to one that is not, proves that, too, always.

With the file ``abort`` a broker runs, or did not come so far, and a RocketLens broker deletes index
files later: then they prove nothing.

A group's offset is after the last message that it consumed, so a queue had that message. A broker
that starts on a log without its end cuts queues, index and checkpoint to it, and leaves the offsets
as they are: then only they show that messages were lost.

RocketMQ 4 leaves the offsets of a deleted topic, which may have been made again; RocketMQ 5 removes
them, and has a version in the file. So offsets of RocketMQ 4 prove something only of a log from its
first byte on, which would have the messages of the deleted topic, too, and all of it is read. Those
of a RocketLens broker prove nothing: its ``synced`` proves more.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing, suppress
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
"""How far a checkpoint's time may be ahead of its file's: beyond that it is damage."""

_ENTRIES_COMPARED: Final = 8
"""Entries of an index file that are compared with their records, about."""

_FARTHEST_NEXT_RECORD: Final = 1 << 20
"""Bytes from a queue's last record but one to its last, at most."""

_HEAD_BYTES: Final = 8
"""Size and magic of a record: zero where none was written."""
_VERSION_MEMBER: Final = "dataVersion"


class Proof(NamedTuple):
    """A record that a file of the store leads to."""

    physical_offset: int
    file: str
    queue: QueueName | None = None


class LostEnd(NamedTuple):
    """Messages at the end of a log that are lost: where the last of them was, if a file tells."""

    physical_offset: int | None
    text: str


class LogEvidence:
    """What the files of a store prove about the end of its log.

    The queues are looked at again when the log has another last file; until then only that the
    last record which was proved can be read.
    """

    def __init__(self, layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> None:
        """Set what is compared; nothing is read yet."""
        self._layout = layout
        self._log = log
        self._queues = queues
        self._seen: tuple[int, int] | None = None
        self._last: Proof | None = None
        self._relied_on: dict[int, int | None] | None = None
        """Physical offsets and store times of the records by which the last answer was that nothing
        is lost; None if it was another, or by others.
        """

    def still_holds(self) -> bool:
        """Return whether the last answer was that nothing is lost, and the log still has what
        showed it. The other files of the store must be as they were.
        """
        if self._relied_on is None:
            return False
        if self._seen != (self._log.version, self._log.segments[-1].base_offset):
            return False
        for physical_offset, store_timestamp_ms in self._relied_on.items():
            if self._log.time_at(physical_offset) != store_timestamp_ms:
                return False
        return True

    def lost_end(self) -> LostEnd | None:
        """Return what is known of messages after the end of the log; None if nothing is.

        O(queues + index files) at first.
        """
        state = self._log.version, self._log.segments[-1].base_offset
        self._relied_on = None
        if state != self._seen:
            self._last = max(self._proofs(), default=None)
            self._seen = state
        last = self._last
        is_read = last is None or self._is_read(last)
        if not is_read:
            # Read again: a broker may have cut the log, and the queues after it, since.
            proofs = sorted(self._proofs(), reverse=True)
            last = next((proof for proof in proofs if self._is_read(proof)), None)
            end = self._records_end(last)
            lost = [proof for proof in proofs if proof.physical_offset >= end]
            believed = next((proof for proof in lost if self._is_sound(proof, end)), None)
            if believed is not None:
                return LostEnd(
                    believed.physical_offset,
                    f"{believed.file} leads to a message at physical offset "
                    f"{believed.physical_offset}, and the log does not have it: messages at its "
                    "end are lost",
                )
        lost_end, shown_by = self._by_checkpoint(last)
        if is_read and lost_end is None and shown_by is not None:
            self._rely_on(shown_by if last is None else [*shown_by, last.physical_offset])
        return lost_end

    def _rely_on(self, physical_offsets: list[int]) -> None:
        relied_on = {each: self._log.time_at(each) for each in physical_offsets}
        if None not in relied_on.values():
            self._relied_on = relied_on

    def _proofs(self) -> Iterator[Proof]:
        """Yield the last record that each file leads to. Files that cannot be read prove nothing,
        and entries of records that are deleted.
        """
        least = self._log.min_offset
        proofs = (*self._of_synced_or_queues(), *self._of_index())
        return (proof for proof in proofs if least <= proof.physical_offset)

    def _of_synced_or_queues(self) -> Iterator[Proof]:
        """Yield what `synced` proves, or without it the queues.

        RocketLens writes the entry of a record before the record: its queues prove nothing.
        """
        try:
            synced = read_synced(self._layout)
        except OSError:
            return
        if synced is None:
            yield from self._of_queues()
        elif synced.last_record_offset >= 0:
            yield Proof(synced.last_record_offset, "rocketlens/synced")

    def _of_queues(self) -> Iterator[Proof]:
        for name, queue in self._queues.readable():
            entry = None
            with suppress(OSError):
                entry = queue.last_entry()
            if entry is not None:
                yield Proof(entry.physical_offset, "/".join(queue.directory.parts[-3:]), name)

    def _of_index(self) -> Iterator[Proof]:
        for name, header in self._index_headers():
            if self._begins_here(header):
                yield Proof(header.end_offset, f"index/{name}")

    def _index_headers(self) -> Iterator[tuple[str, IndexHeader]]:
        """Yield the names of index files that have entries, and their headers."""
        try:
            names = [file.name for file in fs.entries(self._layout.index) if file.name.isdigit()]
        except OSError:
            return
        for name in names:
            try:
                content = fs.read_part(self._layout.index / name, 0, HEADER_BYTES)
                header = decode_header(content or b"")
            except (OSError, IndexFileError):
                continue
            if header.last_entry:
                yield name, header

    def _begins_here(self, header: IndexHeader) -> bool:
        """Return whether an index file can be of this log, by its first record."""
        begin = header.begin_offset
        if begin < self._log.min_offset:
            return 0 <= begin <= header.end_offset
        try:
            record = self._log.record_at(begin, check_crc=False)
        except RecordError:
            return begin <= header.end_offset and self._is_lost(begin)
        return record.store_timestamp_ms == header.begin_timestamp_ms

    def _is_sound(self, proof: Proof, end: int) -> bool:
        """Return whether a file that leads after the end of the log is right: it may be damaged,
        or another's.
        """
        try:
            if proof.queue is not None:
                queue = self._queues.queue(*proof.queue)
                return queue is not None and (_goes_on(queue, end) or self._is_led_to(end))
            if proof.file.startswith("index/"):
                return self._ends_with_header(proof) and self._is_index_of_log(end)
        except (OSError, IndexFileError):
            return False
        return True

    def _is_led_to(self, end: int) -> bool:
        """Return whether a queue has an entry of a record at the end of the log. O(queues)."""
        queues = (self._queues.queue(*name) for name in self._queues.names())
        return any(queue is not None and _leads_to(queue, end) for queue in queues)

    def _ends_with_header(self, proof: Proof) -> bool:
        """Return whether an index file's last entry leads where its header says.

        :raises IndexFileError: if the file cannot be used.
        """
        with closing(IndexFile(self._layout.root / proof.file)) as file:
            return file.entry(file.last_entry).physical_offset == proof.physical_offset

    def _is_index_of_log(self, end: int) -> bool:
        """Return whether the last index file that begins in the log is for it: for most records of
        its entries, as some of those can be damaged.

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
        """Return where the records of the log end, read from the last that is known."""
        start = self._last_start() if last is None else last.physical_offset
        walk = LogWalk(self._log, start)
        exhaust(walk)
        return walk.damage[0].start if walk.damage else walk.position

    def _is_read(self, proof: Proof) -> bool:
        """Return whether the log has a record, or its file cannot be opened now."""
        try:
            self._log.record_at(proof.physical_offset, check_crc=False)
        except SegmentLost:
            return True
        except RecordError:
            return False
        return True

    def _is_lost(self, physical_offset: int) -> bool:
        """Return whether the log has nothing at an offset: its readers report damage there."""
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
        """Compare the store time that was on the disk with that of the log's last records.

        Return the offset of a record that shows that none is lost, if one is needed, or None if
        another answer may follow from the same checkpoint.
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
        start = self._last_start() if last is None else last.physical_offset
        walk = LogWalk(self._log, start, grows=True)
        for record in walk.records():
            if record.store_timestamp_ms >= newest_ms:
                return None, [record.physical_offset]
            if walk.position - start > limits.MAX_SHORT_SCAN_BYTES:
                # Too much would have to be read.
                return None, None
        if walk.damage or walk.torn_at is not None or walk.unfinished_at is not None:
            return None, None
        lost = (
            f"the checkpoint names a message that was stored at {newest_ms} (epoch ms), later than "
            "all at the end of the log: messages there are lost"
        )
        return LostEnd(None, lost), None

    def _last_start(self) -> int:
        """Return where the last file that is not empty begins."""
        for segment in reversed(self._log.segments):
            if any(self._log.bytes_at(segment.base_offset, _HEAD_BYTES)):
                return segment.base_offset
        return self._log.min_offset


def _leads_to(queue: ConsumeQueue, end: int) -> bool:
    entry = queue.entry(queue.first_where(lambda entry: entry.physical_offset >= end))
    return entry is not None and entry.physical_offset == end


def _goes_on(queue: ConsumeQueue, end: int) -> bool:
    """Return whether a queue's last two entries are of records after the end of a log, and as far
    from each other as records in a row. Damaged ones lead anywhere.
    """
    last = queue.last_entry()
    if last is None:
        return False
    # Messages of a batch have one record.
    first_of_last = queue.first_where(lambda each: each.physical_offset >= last.physical_offset)
    before = queue.entry(first_of_last - 1)
    if before is None or before.physical_offset < end:
        return False
    step = last.physical_offset - before.physical_offset
    return MIN_RECORD_BYTES <= before.store_size <= step <= _FARTHEST_NEXT_RECORD


def lost_end_of(
    layout: StoreLayout, log: CommitLog, takes_topic: Callable[[str], bool] = lambda _: True
) -> LostEnd | None:
    """Return what is known of messages after the end of a store's log, looked at once.

    What groups consumed counts if it is of topics that are read.
    """
    queues = queues_in(layout.consume_queue)
    try:
        lost = LogEvidence(layout, log, queues).lost_end()
        if lost is None:
            ahead = first_ahead(layout, log, queues, takes_topic)
            lost = None if ahead is None else LostEnd(None, str(ahead))
        return lost
    finally:
        queues.close()


def lost_begin(layout: StoreLayout, log: CommitLog, queues: ConsumeQueues) -> str | None:
    """Return what is known of messages before the start of the log that no broker deleted; None if
    nothing is. O(queues + index files).
    """
    least = log.min_offset
    unreadable = log.unreadable_before()
    if unreadable is not None:
        return (
            f"the log begins at physical offset {least}, and {unreadable} before that is empty or "
            "no file: what was in it is lost"
        )
    if least == 0 or layout.abort.exists() or layout.own.exists():
        return None
    for file, last in _deleted_with_log(layout, queues):
        if 0 <= last < least:
            return (
                f"the log begins at physical offset {least}, and {file} leads to what was before: "
                "a broker that deletes a file of the log deletes that, too, so the log's first "
                "file is lost"
            )
    return None


def first_time(log: CommitLog) -> int:
    """Return the store time of a log's first message, or, if that is damaged, any later."""
    try:
        return log.record_at(log.min_offset, check_crc=False).store_timestamp_ms
    except RecordError:
        return limits.MAX_TIMESTAMP_MS


def lost_begin_of(layout: StoreLayout, log: CommitLog, begin_ms: int) -> str | None:
    """Return what is known of messages from a store time on before the start of a store's log,
    looked at once.
    """
    if begin_ms >= first_time(log):
        return None
    queues = queues_in(layout.consume_queue)
    try:
        return lost_begin(layout, log, queues)
    finally:
        queues.close()


def _deleted_with_log(layout: StoreLayout, queues: ConsumeQueues) -> Iterator[tuple[str, int]]:
    """Yield the first file of the index and of each queue, and the last physical offset in it.

    Not of those that have only one: a broker keeps that.
    """
    try:
        names = [file.name for file in fs.entries(layout.index) if file.name.isdigit()]
        if len(names) > 1:
            content = fs.read_part(layout.index / names[0], 0, HEADER_BYTES)
            header = decode_header(content or b"")
            if header.last_entry and header.begin_offset <= header.end_offset:
                yield f"index/{names[0]}", header.end_offset
    except (OSError, IndexFileError):
        pass
    for _, queue in queues.readable():
        last = -1
        with suppress(OSError):
            last = _last_of_first_file(queue)
        if last >= 0:
            yield "/".join(queue.files[0].path.parts[-4:]), last


def _last_of_first_file(queue: ConsumeQueue) -> int:
    """Return the last physical offset in a queue's first file; -1 if it has no other file."""
    if len(queue.files) < 2:
        return -1
    first = queue.files[0]
    entry = queue.entry(first.first_queue_offset + first.entry_count - 1)
    return -1 if entry is None or entry.is_end else entry.physical_offset


class GroupAhead(NamedTuple):
    """A group whose offset is after the end of a queue."""

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
        self._is_settled = False

    def still_holds(self) -> bool:
        """Return whether the last answer was that no group is ahead, and only the files of offsets
        can change that.
        """
        return self._is_settled

    def ahead(self) -> list[GroupAhead]:
        """Return the group that is farthest ahead of each queue whose end it proves to be lost.

        O(offsets of groups), and the log after the queues where some are ahead of those.
        """
        root = self._layout.root
        stamp = stamp_of(root, OFFSETS_FILE)
        self._is_settled = not is_in_database(root, OFFSETS_FILE)
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
                self._is_settled = False
                continue
            # RocketMQ 4 leaves nothing of a deleted topic's queues.
            if offset > end and (end or not is_of_4):
                ends[name] = end
                first = self._log.min_offset
                starts[name] = first if entry is None or is_of_4 else entry.physical_offset
        start = max(min(starts.values(), default=0), self._log.min_offset)
        if starts and self._log.max_offset - start > limits.MAX_TOPIC_SCAN_BYTES:
            self._is_settled = False
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
        if ahead:
            self._is_settled = False
        else:
            self._useless = stamp
        return ahead

    def _ends(self, start: int) -> Iterator[tuple[QueueName, int]]:
        """Yield the queues of the log's records from an offset on, and where each ends by them."""
        start = min(start, self._log.max_offset)
        for read in LogWalk(self._log, start).rows():
            for topic, queue_id, rows in read.queued().queues():
                fields = rows.as_array
                last = int(fields["physical_offset"][fields["queue_offset"].argmax()])
                record = self._log.record_at(last, check_crc=False)
                yield QueueName(topic, queue_id), record.queue_offset + message_count(record)


def _farthest(table: Mapping[str, Any]) -> dict[QueueName, tuple[int, str]]:
    """Return for each queue the largest offset of a group, and that group."""
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


def first_ahead(
    layout: StoreLayout, log: CommitLog, queues: ConsumeQueues, takes_topic: Callable[[str], bool]
) -> GroupAhead | None:
    """Return a group that is ahead of a queue of some topics, looked at once."""
    groups = GroupEvidence(layout, log, queues).ahead()
    return next((each for each in groups if takes_topic(each.queue.topic)), None)
