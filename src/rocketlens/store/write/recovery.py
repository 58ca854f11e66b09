"""Recovers a store after any end of the last run, so that it can be appended to.

The steps can be interrupted anywhere and run again:

1. *start*: the consume queues are compared with the state that was synced with them, and searched
   for holes (:mod:`rocketlens.store.write.queue.queue_recovery`). The log is read from the end of
   the last record that certainly has its entry; from its start if there is no state of this log.
2. *read*: each record from there on gets its queue entry if it has none. Records of deleted topics
   get none, and neither do records before the first one of a queue. If queue offsets restart at 0,
   the topic was deleted and created again, and its queue begins there.
3. *cut*: bytes after the last synced position that are not a record are the torn tail. They are
   copied to ``aside/`` and zeroed, and the queues end where the log ends.

A killed process leaves whole records: its pages outlive it, and the first bytes of a record are
written last. A power cut can lose any sector of a record that was not synced: see
:mod:`rocketlens.store.write.torn`. The synced position can then be a second old. Sound records
after it may have been acknowledged, so all of them stay.

Torn is not corrupt. Bad bytes before the last synced position affect only the records in them. They
stay, are reported, and are copied to ``aside/``. If the synced position is unknown (a RocketMQ
broker wrote the store, or an earlier version of ours), only bad bytes that no record follows are
torn. No file of the log is deleted or shortened. A file that cannot be opened now is an error, and
neither damage nor the end of the log.

A second run changes nothing, because entries are compared before they are written.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, field

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.batch_body import message_count
from rocketlens.formats.commitlog_record import MIN_RECORD_BYTES, Record, has_queue_entry
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES, FILLER_SIZE
from rocketlens.formats.rows import Rows
from rocketlens.model.rocketmq import DELAY_TOPIC, SYS_FLAG_INNER_BATCH, is_topic_name
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import begins_again
from rocketlens.store.read.log.commitlog import OpenLog, Segment, SegmentLost
from rocketlens.store.read.log.scan import Damage, LogWalk
from rocketlens.store.read.state import StoreState, Synced
from rocketlens.store.write.append import Appended, Appender
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.store.write.queue.queue_files import QueueFiles
from rocketlens.store.write.queue.queue_recovery import PreparedQueues, QueueEnding, QueueRecovery
from rocketlens.store.write.torn import lacks_a_sector

MAX_KEPT_PIECE_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a file in ``aside/``."""


class Row(NamedTuple):
    """The fields of a record that recovery needs: columns of `Rows`, its topic and its checks."""

    physical_offset: int
    store_size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    tags_hash: int
    delay_level: int
    store_timestamp_ms: int
    topic: str
    is_sound: bool
    """Whether the checks that were made succeeded: the body's checksum, and no missing sector."""

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.store_size


class Recovered(Struct):
    """The result of recovery."""

    base_offset: int = 0
    end_offset: int = 0
    read_from: int = 0
    record_count: int = 0
    entries_written: int = 0
    damage: list[Damage] = field(default_factory=list)
    """Unreadable ranges that stay in the log, at most `limits.MAX_DAMAGE_REPORTS`."""
    cut: Damage | None = None
    """The range that was cut off the log's end."""
    notes: list[str] = field(default_factory=list)
    """Further findings for operators, a sentence each."""
    last: Appended | None = None
    is_ours: bool = False
    """Whether a RocketLens broker ran last, so that its state is still true."""
    later: list[Callable[[], None]] = field(default_factory=list)
    """Work to do before the first append, because the disk was too full."""
    deleted: dict[str, Appended] = field(default_factory=dict)
    """Topics that another broker deleted, and the record up to which the log has their messages."""


class Recovery:
    """One recovery of a store. The caller holds the store's lock."""

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        log: OpenLog,
        appender: Appender,
        *,
        files: QueueFiles,
        deleted: Mapping[str, int] | None = None,
    ) -> None:
        """Prepare; nothing is read yet. The appender gets the queues.

        ``files``: all queue files. ``deleted``: topics, and the physical offset below which their
        records get no queue entry.
        """
        self._layout = layout
        self._disk = disk
        self._log = log
        self._appender = appender
        self._files = files
        self._deleted = deleted or {}
        self._result = Recovered()
        self._synced: int | None = None
        self._has_lost_power = False
        self._queues = PreparedQueues(log.min_offset)
        self._first: Final[dict[tuple[str, int], tuple[int, int]]] = {}

    def run(
        self, state: StoreState | None, synced: Synced | None, *, is_marked: bool, was_closed: bool
    ) -> Recovered:
        """Recover the store.

        ``is_marked``: whether no RocketMQ broker has started since a RocketLens broker marked the
        lock file. ``was_closed``: whether the last broker stopped cleanly.

        :raises OSError: if the disk is full or broken, or a file cannot be read now. The recovery
            can run again.
        """
        result = self._result
        if state is not None and not state.is_of(self._log):
            result.notes.append("the log is not the one that was here before: reading all of it")
            state = None
        is_ours = state is not None and is_marked and state.is_last_writer(self._layout)
        result.is_ours = is_ours
        if state is not None and is_ours:
            self._synced = state.queues_offset
            if synced is not None and synced.may_be_of(self._log):
                self._synced = max(synced.offset, self._synced)
            self._has_lost_power = state.boot != self._disk.boot_id()
        queue_recovery = QueueRecovery(
            self._layout,
            self._disk,
            self._log,
            self._appender,
            files=self._files,
            deleted=self._deleted,
        )
        self._queues = queue_recovery.prepare(state, QueueEnding(is_ours, was_closed))
        start = result.read_from = self._queues.start
        result.notes += self._queues.notes
        result.deleted.update(self._queues.deleted)
        noted = set(result.deleted)
        if state is not None and state.mark is not None:
            mark = state.mark
            result.last = Appended(
                mark.record_offset, 0, state.last_record_timestamp_ms, mark.record_bytes
            )
        walk = LogWalk(self._log, start, confirm=self._is_in_queue)
        result.end_offset = self._replay(walk)
        self._cut_log(result.end_offset)
        for segment in self._log.segments:
            # A killed process can have left unsynced pages, which count as synced from now on.
            if segment.end_offset > start:
                self._disk.sync_file(segment.path)
        for queue in self._appender.queues.values():
            self._cut_queue(queue, result.end_offset)
        # This segment can be missing although later ones exist, after a power cut.
        result.base_offset = result.end_offset - result.end_offset % self._appender.segment_bytes
        self._keep_damage()
        result.notes += [
            f"topic {topic} has no consume queue: another broker deleted it"
            for topic in sorted(result.deleted.keys() - noted)
        ]
        return result

    def _replay(self, walk: LogWalk) -> int:
        result, synced = self._result, self._synced
        unsound: Damage | None = None
        named = 0
        for row in self._rows(walk, synced):
            torn_at = self._torn_among(walk.damage[named:])
            named = len(walk.damage)
            if torn_at is not None:
                return torn_at
            unsound = None
            if not row.is_sound:
                if synced is not None and row.physical_offset >= synced:
                    return row.physical_offset
                reason = "the checksum of its body is wrong"
                unsound = Damage(row.physical_offset, row.end_offset, reason)
                self._report(unsound)
            result.record_count += 1
            self._put(row)
            result.last = Appended(
                row.physical_offset, row.queue_offset, row.store_timestamp_ms, row.store_size
            )
        torn_at = self._torn_among(walk.damage[named:])
        if torn_at is not None:
            return torn_at
        if unsound is not None and synced is None:
            # No record follows it, so it may never have been whole.
            result.damage = [damage for damage in result.damage if damage != unsound]
            return unsound.start
        return walk.position

    def _torn_among(self, passed: list[Damage]) -> int | None:
        """Report skipped damage; return the first start after the synced position, or None."""
        for damage in passed:
            if self._synced is not None and damage.start >= self._synced:
                return damage.start
            self._report(damage)
        return None

    def _report(self, damage: Damage) -> None:
        if len(self._result.damage) < limits.MAX_DAMAGE_REPORTS:
            self._result.damage.append(damage)

    def _rows(self, walk: LogWalk, check_from: int | None) -> Iterator[Row]:
        """Yield the records of a walk.

        Bodies are checked from ``check_from`` on, or all of them. After a possible power cut,
        topics and properties are checked for missing sectors, too.
        """
        check_from = 0 if check_from is None else check_from
        sectors_from = check_from if self._has_lost_power else self._log.max_offset
        for rows in walk.rows():
            yield from _rows_of(rows, check_from, sectors_from)

    def _put(self, row: Row) -> None:
        if not has_queue_entry(row.sys_flag):
            return
        if not is_topic_name(row.topic) or not 0 <= row.queue_id < 1 << 31 or row.queue_offset < 0:
            self._report(Damage(row.physical_offset, row.end_offset, "queue is not valid"))
            return
        if row.physical_offset < self._deleted.get(row.topic, 0):
            return
        if self._was_deleted(row):
            return
        queue = self._appender.queue(row.topic, row.queue_id)
        if not self._result.is_ours and self._is_of_former_topic(row, queue):
            return
        if (row.topic, row.queue_id) in self._queues.unseen:
            self._queues.unseen.discard((row.topic, row.queue_id))
            queue.begin_at(row.queue_offset)
        # Read the queue's end only if it matters: this runs for every record.
        if row.queue_offset == 0 and begins_again(0, row.physical_offset, _last_offset(queue)):
            self._queues.at_least.pop((row.topic, row.queue_id), None)
            queue.cut(0)
        if row.queue_offset < queue.next_offset:
            # The entry exists, or in an old broker's store another record has the queue offset.
            return
        if (row.queue_offset - queue.next_offset) * MIN_RECORD_BYTES > row.physical_offset and (
            queue.has_files
        ):
            self._report(Damage(row.physical_offset, row.end_offset, "queue offset is not valid"))
            return
        tags_code = row.tags_hash
        if row.topic == DELAY_TOPIC and row.delay_level > 0:
            tags_code = self._appender.due_time(row.delay_level, row.store_timestamp_ms)
        count = 1
        if row.sys_flag & SYS_FLAG_INNER_BATCH:
            count = message_count(self._log.record_at(row.physical_offset, check_crc=False))
        for number in range(count):
            self._result.entries_written += queue.put(
                row.queue_offset + number,
                row.physical_offset,
                row.store_size,
                tags_code,
                has_lost_power=self._has_lost_power,
            )

    def _is_of_former_topic(self, row: Row, queue: QueueWriter) -> bool:
        """Return whether a record belongs to a topic that was deleted before the queue began.

        With an entry, it would be found in the queue instead of a later record.
        """
        name = (queue.topic, queue.queue_id)
        if name not in self._first:
            self._first[name] = self._proven_first(queue)
        physical_offset, queue_offset = self._first[name]
        return row.physical_offset < physical_offset and row.queue_offset >= queue_offset

    def _proven_first(self, queue: QueueWriter) -> tuple[int, int]:
        """Return the physical offset of a queue's first entry, or -1, and its queue offset.

        The entry must lead to its own record.
        """
        files = self._files.get((queue.topic, queue.queue_id))
        queue_offset = files[0].base // ENTRY_BYTES if files else 0
        entry = queue.entry(queue_offset) if files else None
        try:
            record = self._log.record_at(entry[0] if entry else -1, check_crc=False)
        except SegmentLost:
            raise
        except RecordError:
            return -1, 0
        position = (record.topic, record.queue_id, record.queue_offset)
        is_its_own = position == (queue.topic, queue.queue_id, queue_offset)
        return (record.physical_offset if is_its_own else -1), queue_offset

    def _was_deleted(self, row: Row) -> bool:
        mark = self._queues.deleted.get(row.topic)
        is_known = mark is not None and row.physical_offset <= mark.physical_offset
        if not is_known and (
            row.topic in self._queues.topics
            or row.store_timestamp_ms >= self._queues.deleted_before_ms
        ):
            return False
        if mark is None or row.physical_offset > mark.physical_offset:
            self._queues.deleted[row.topic] = self._result.deleted[row.topic] = Appended(
                row.physical_offset, 0, row.store_timestamp_ms, row.store_size
            )
        return True

    def _is_in_queue(self, record: Record) -> bool | None:
        """Return whether the record's queue entry leads to it; None without an entry."""
        if record.queue_id < 0 or record.queue_offset < 0 or not is_topic_name(record.topic):
            return False
        queue = self._appender.queues.get((record.topic, record.queue_id))
        entry = queue.entry(record.queue_offset) if queue else None
        if entry is None or entry.is_filler:
            return None
        return entry[:2] == (record.physical_offset, record.total_size)

    def _cut_log(self, end_offset: int) -> None:
        """Copy the bytes after the log's end to ``aside/``, and zero them."""
        stop = 0
        for segment in self._log.segments:
            start = max(end_offset - segment.base_offset, 0)
            if segment.end_offset <= end_offset:
                continue
            view = self._log.map(segment).view
            last = fs.last_written(segment.path, view, start)
            if last is None:
                continue
            self._when_there_is_room(partial(self._cut_segment, segment, start, last + 1))
            stop = segment.base_offset + last + 1
        if stop:
            self._result.cut = Damage(end_offset, stop, "an unfinished write")

    def _when_there_is_room(self, step: Callable[[], None]) -> None:
        """Run a step now, or before the first append if the disk is full."""
        try:
            step()
        except OSError as error:
            if error.errno not in fs.DISK_FULL_ERRORS:
                raise
            self._result.later.append(step)

    def _cut_segment(self, segment: Segment, start: int, stop: int) -> None:
        """Copy bytes ``start`` to ``stop`` of a segment to ``aside/``, then zero them."""
        with fs.MappedFile(segment.path, stop) as mapped:
            for begin in range(start, stop, MAX_KEPT_PIECE_BYTES):
                piece = bytes(mapped.view[begin : begin + MAX_KEPT_PIECE_BYTES])
                if piece != bytes(len(piece)):
                    self._keep(f"{segment.base_offset + begin:020}", "cut", piece)
        file = self._disk.open_file(segment.path)
        try:
            file.clear(start)
            file.sync()
        finally:
            file.close()

    def _cut_queue(self, queue: QueueWriter, end_offset: int) -> None:
        while queue.next_offset:
            last = queue.entry(queue.next_offset - 1)
            if last is None or last[1] == FILLER_SIZE or last[0] + last[1] <= end_offset:
                break
            queue.next_offset -= 1
        listed = self._files.get((queue.topic, queue.queue_id), [])
        starts = (
            queue.starts() if queue.has_made_files else [(file.base, file.name) for file in listed]
        )
        if queue.has_bytes_after_end(starts):
            keep = partial(self._keep_entries, queue, starts, end_offset, queue.next_offset)
            self._when_there_is_room(keep)
            if keep in self._result.later:
                self._result.later.append(partial(_cut_later, queue, queue.next_offset))
            else:
                queue.cut(queue.next_offset)
                starts = queue.starts()
        queue.seal()
        # The queue offsets of deleted messages are not used again.
        if end_offset > self._log.min_offset or self._log.min_offset:
            expected = self._queues.at_least.get((queue.topic, queue.queue_id), 0)
            if expected > queue.next_offset:
                starts = self._end_at(queue, expected, starts)
        queue.has_files = bool(starts)
        first = starts[0][0] // ENTRY_BYTES if starts else queue.next_offset
        queue.first_offset = first - first % (queue.file_bytes // ENTRY_BYTES)

    def _end_at(
        self, queue: QueueWriter, expected: int, starts: list[tuple[int, str]]
    ) -> list[tuple[int, str]]:
        """End a queue at a queue offset although earlier entries are missing; return its files.

        The log was read for them, so their records are gone. Fillers replace them, or each start
        would read the log again. Without files the queue begins at its end.
        """
        if starts and not self._result.later:
            first = min(queue.next_offset, expected)
            base = (expected - 1) * ENTRY_BYTES // queue.file_bytes * queue.file_bytes
            last = queue.entry(queue.next_offset - 1)
            if last is None or (not last.is_filler and last[0] < self._log.min_offset):
                # The log has no record of the queue any more: only its last file is needed.
                first = max(first, base // ENTRY_BYTES)
                for begin, name in starts:
                    if begin < base:
                        self._disk.remove_file(Path(name))
                queue.next_offset = first
            try:
                queue.fill(expected)
            except OSError as error:
                if error.errno not in fs.DISK_FULL_ERRORS:
                    raise
            queue.seal()
            starts = queue.starts()
        queue.next_offset = expected
        return starts

    def _keep_entries(
        self, queue: QueueWriter, starts: list[tuple[int, str]], log_end: int, queue_end: int
    ) -> None:
        """Copy entries after a queue's end that lead into the log to ``aside/``.

        Those that a killed process left lead after the log, and are useless. Others can belong to a
        queue of RocketMQ 5 that has no records of its own.
        """
        end = queue_end * ENTRY_BYTES
        for base, name in starts:
            byte_offset = max(end - base, 0)
            if byte_offset >= queue.file_bytes:
                continue
            with fs.MappedFile(Path(name)) as mapped:
                last = fs.last_written(mapped.path, mapped.view, byte_offset)
                content = b"" if last is None else bytes(mapped.view[byte_offset : last + 1])
            content += bytes(-len(content) % ENTRY_BYTES)
            if any(
                size > 0
                and size != FILLER_SIZE
                and self._log.min_offset <= offset
                and offset + size <= log_end
                for offset, size, _ in ENTRY.iter_unpack(content)
            ):
                kept = f"{queue.topic}.{queue.queue_id}.{base + byte_offset:020}"
                self._keep(kept, "queue", content)

    def _keep_damage(self) -> None:
        """Copy damaged bytes to ``aside/`` for repair. They stay in the log."""
        try:
            self._copy_damage()
        except OSError as error:
            if error.errno not in fs.DISK_FULL_ERRORS:
                raise
            self._result.notes.append(
                f"there is no room for a copy of the damaged bytes of the log: {error}"
            )

    def _copy_damage(self) -> None:
        for damage in self._result.damage:
            segment = self._log.segment_of(damage.start)
            if segment is None:
                continue
            start = damage.start - segment.base_offset
            stop = min(
                damage.stop - segment.base_offset, segment.size, start + MAX_KEPT_PIECE_BYTES
            )
            if fs.file_size(self._layout.aside / f"{damage.start:020}.damaged") is None:
                content = bytes(self._log.map(segment).view[start:stop])
                self._keep(f"{damage.start:020}", "damaged", content)

    def _keep(self, name: str, ending: str, content: bytes) -> None:
        """Write bytes to a new file in ``aside/``, unless one with the same content exists."""
        number, path = 1, self._layout.aside / f"{name}.{ending}"
        while (size := fs.file_size(path)) is not None:
            if size == len(content) and fs.read_bytes(path, size) == content:
                return
            number += 1
            path = self._layout.aside / f"{name}.{number}.{ending}"
        self._disk.write_durably(path, content)


def _cut_later(queue: QueueWriter, end: int) -> None:
    """Cut off entries after a queue's end without changing its next offset."""
    next_offset = queue.next_offset
    queue.cut(end)
    queue.next_offset = next_offset


def _last_offset(queue: QueueWriter) -> int | None:
    last = queue.entry(queue.next_offset - 1)
    return None if last is None or last.is_filler else last[0]


def _rows_of(rows: Rows, check_from: int, sectors_from: int) -> Iterator[Row]:
    topics = rows.topics()
    names = [topics.names[number] for number in topics.number_of_row]
    offsets = rows.offsets()
    sound = rows.sound() if offsets[-1] >= check_from else bytearray(b"\1" * len(rows))
    for row, offset in enumerate(offsets):
        if offset < check_from:
            sound[row] = True
        if offset >= sectors_from and sound[row]:
            sound[row] = not _lacks_a_sector(rows, row)
    columns = (rows.column(name).tolist() for name in Row._fields[:-2])
    return map(Row, *columns, names, map(bool, sound))


def _lacks_a_sector(rows: Rows, row: int) -> bool:
    """Return whether a record has zeros in its topic, or may lack a sector of its properties."""
    names = ("physical_offset", "topic_start", "topic_length")
    start, topic_start, topic_length = (rows.column(name)[row] for name in names)
    start -= rows.base_offset
    topic = bytes(rows.content[start + topic_start : start + topic_start + topic_length])
    start += rows.column("properties_start")[row]
    stop = start + rows.column("properties_length")[row]
    return 0 in topic or lacks_a_sector(rows.content, start, stop)
