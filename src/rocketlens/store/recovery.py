"""Brings a store into a state that can be appended to, whatever ended the last run.

What is done, in this order, and why it may be ended anywhere and begun again:

1. *where to begin*: the consume queues are compared with the state that was synced with them, and
   looked through for holes. The log is read from the end of the last record whose entry is surely
   there; from its begin when there is no state, or it is of another log.
2. *read*: each record from there on gets its queue entry, where that is not there already.
   Records of deleted topics get none, and where the queue offsets of a topic begin again at 0 the
   topic was deleted and made again: its queue then begins there.
3. *cut*: bytes that are no record, behind the last synced position, are the torn tail. They are
   kept aside and zeroed, and the queues end where the log ends.

A process that is killed leaves whole records, for its pages outlive it and a record's first bytes
are written last. A machine that loses power may leave any part of a record that was not synced, and
no checksum covers its properties; so behind the synced position their text must make sense, too.

Torn is not corrupt. Bad bytes before the last synced position cost the records in them and no
other: they stay, are reported, and a copy is kept aside. Where nothing is known about syncing (a
real broker wrote the store), only bad bytes that no record follows are torn. No file of the log is
ever deleted, and none is shortened.

Doing all this twice changes nothing the second time: entries are compared before they are written.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import RecordError
from rocketlens.formats.checkpoint import CHECKPOINT_BYTES, Checkpoint
from rocketlens.formats.commitlog_record import (
    CRC_MASK,
    SMALLEST_RECORD,
    SYS_FLAG_TRANSACTION_MASK,
    Record,
)
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER_SIZE, SCHEDULE_TOPIC
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8, string_hash
from rocketlens.store import fs
from rocketlens.store.append import Appended, Appender
from rocketlens.store.commitlog import CommitLog
from rocketlens.store.consumequeue import ConsumeQueues, is_topic_name
from rocketlens.store.fs import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.queue_append import QueueWriter
from rocketlens.store.scan import Chunk, Damage, LogWalk, interpreted_bytes
from rocketlens.store.state import StoreState

_QUEUED_TYPES: Final = (0, 0x8)
_CHECKED_FILES: Final = 2
"""Files at a queue's end that are looked through even where there are too many to look at all."""

_CHECKED_BYTES: Final = 128 * 1024 * 1024
"""Consume queues of so many bytes together are looked through whole: some 0.2 s."""
_INTERPRETED_BYTES: Final = 4 * 1024 * 1024
"""Log up to this long is read without the kernels: it takes 0.3 s, and loading them up to 1 s."""
_ALL: Final = 1 << 62
_KEPT_BYTES: Final = 64 * 1024 * 1024


class Row(NamedTuple):
    """As much of a record as recovery needs."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    tags_code: int
    delay_level: int
    store_timestamp_ms: int
    is_sound: bool
    """Whether the body has its checksum, as far as that was looked at."""


@dataclass(slots=True)
class Recovered:
    """What recovery found and did."""

    base_offset: int = 0
    """Where the segment begins in which the log ends."""
    end_offset: int = 0
    read_from: int = 0
    record_count: int = 0
    entries_written: int = 0
    damage: list[Damage] = field(default_factory=list)
    """Ranges of the log without a readable record that stay, at most ``limits.DAMAGE_REPORTS``."""
    cut: Damage | None = None
    """What was taken off the log's end."""
    notes: list[str] = field(default_factory=list)
    """What else a person should know, a sentence each."""
    last: Appended | None = None
    """The last record of the log, None when there is none."""


class Recovery:
    """One recovery of one store, whose lock the caller holds."""

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        log: CommitLog,
        appender: Appender,
        deleted: Mapping[str, int] | None = None,
    ) -> None:
        """Prepare; nothing is read yet. The appender gets the queues that are found.

        ``deleted``: topics of which no record below a physical offset gets a queue entry.
        """
        self._layout = layout
        self._disk = disk
        self._log = log
        self._appender = appender
        self._names = ConsumeQueues(layout.consume_queue)
        self._deleted = deleted or {}
        self._result = Recovered()
        self._synced: int | None = None
        self._has_lost_power = False
        self._at_least: dict[tuple[str, int], int] = {}
        self._queue_bytes = 0
        self._unseen: set[tuple[str, int]] = set()

    def run(self, state: StoreState | None, synced_offset: int | None) -> Recovered:
        """Do all of it.

        :raises OSError: when the disk is full, or broken; everything can be done again.
        """
        result = self._result
        if state is not None and not state.is_of(self._log):
            result.notes.append("the log is not the one that was here before: reading all of it")
            state = None
        if state is not None and self._is_ours(state):
            self._synced = max(synced_offset or 0, state.queues_offset)
            self._has_lost_power = state.boot != self._disk.boot()
        start = self._prepare_queues(state)
        result.read_from = start
        if state is not None and state.last_record_offset is not None:
            size = state.queues_offset - state.last_record_offset
            result.last = Appended(
                state.last_record_offset, 0, state.last_record_timestamp_ms, size
            )
        walk = LogWalk(self._log, start, confirm=self._queue_knows)
        result.end_offset = self._replay(walk)
        self._cut_log(result.end_offset)
        for segment in self._log.segments:
            # A killed process may have left pages unsynced that are taken for synced from now on.
            if segment.end_offset > start:
                self._disk.sync_file(segment.path)
        for queue in self._appender.queues.values():
            self._cut_queue(queue, result.end_offset)
        holder = self._log.segment_of(result.end_offset)
        result.base_offset = holder.base_offset if holder else self._log.max_offset
        self._keep_damage()
        return result

    def _is_ours(self, state: StoreState) -> bool:
        """Say whether no real broker has run since: it would have written its checkpoint."""
        content = fs.read_bytes(self._layout.checkpoint, CHECKPOINT_BYTES)
        content = Checkpoint().encode() if content is None else content
        return zlib.crc32(content) in state.checkpoint_crcs

    def _prepare_queues(self, state: StoreState | None) -> int:
        """Open all queues, ended where they are surely right; gives where to read the log from."""
        start = trusted = self._log.min_offset if state is None else state.queues_offset
        table = self._expected(state) if state else {}
        named = {(topic, queue_id) for topic, queues in table.items() for queue_id in queues}
        named |= {(name.topic, name.queue_id) for name in self._names.names()}
        for topic, queue_id in sorted(named):
            if not is_topic_name(topic):
                continue
            queue = self._appender.queue(topic, queue_id)
            first, expected = table.get(topic, {}).get(queue_id, (0, 0))
            if topic in self._deleted:
                self._remove_deleted(queue)
            if not self._mend_files(queue, first, expected):
                queue.next_offset = first
            elif state is None or self._queue_bytes <= _CHECKED_BYTES:
                queue.next_offset = self._good_end(queue, trusted, _ALL)
                if state is None and queue.entry(queue.next_offset - 1) is None:
                    self._unseen.add((topic, queue_id))
            else:
                queue.next_offset = self._good_end(queue, trusted, _CHECKED_FILES)
            if queue.next_offset < expected:
                self._at_least[topic, queue_id] = expected
                start = min(start, self._offset_of_last(queue))
                self._result.notes.append(
                    f"queue {topic}/{queue_id} has no entries from {queue.next_offset} on: "
                    "reading the log for them"
                )
        return start

    def _expected(self, state: StoreState) -> dict[str, dict[int, tuple[int, int]]]:
        """Give how long queues were, without those that have been deleted since."""
        return {
            topic: queues
            for topic, queues in state.queue_offsets.items()
            if state.queues_offset > self._deleted.get(topic, -1)
        }

    def _remove_deleted(self, queue: QueueWriter) -> None:
        """Remove a queue's files when they are from before its topic was deleted."""
        for _, rows in queue.columns(_ALL):
            written = rows[(rows["size"] > 0) & (rows["size"] != FILLER_SIZE)]
            if len(written):
                if written["physical_offset"][0] < self._deleted[queue.topic]:
                    for _, path in queue.files():
                        self._disk.remove_file(path)
                return

    def _offset_of_last(self, queue: QueueWriter) -> int:
        """Give where the record of a queue's last entry begins, else where the log begins."""
        last = queue.entry(queue.next_offset - 1) if queue.next_offset else None
        try:
            if (
                last is not None
                and self._log.record_at(last[0], check_crc=False).total_size == (last[1])
            ):
                return last[0]
        except RecordError:
            pass
        return self._log.min_offset

    def _mend_files(self, queue: QueueWriter, first: int, expected: int) -> bool:
        """Give files that were cut their size back, and say whether all files seem to be there.

        ``first`` and ``expected`` are the queue offsets at which the queue is known to begin and
        to end. A file before the last that lacks its first or last entry lacks all of them.
        """
        files = queue.files()
        self._queue_bytes += len(files) * queue.file_bytes
        seems_whole = not files or files[0][0] // ENTRY_BYTES <= first or first == expected
        for base, path in files:
            if path.stat().st_size != queue.file_bytes:
                self._disk.set_size(path, queue.file_bytes)
            ends = [base // ENTRY_BYTES, (base + queue.file_bytes) // ENTRY_BYTES - 1]
            if any(end < expected and queue.entry(end) is None for end in ends):
                seems_whole = False
        return seems_whole

    def _good_end(self, queue: QueueWriter, below: int, file_count: int) -> int:
        """Give the queue offset up to which entries follow each other as they must.

        Entries for records from physical offset ``below`` on are left out.
        """
        import numpy as np

        end, before = 0, -1
        for first, rows in queue.columns(file_count):
            if end and first != end:
                return end
            offsets = rows["physical_offset"].astype(np.int64)
            is_filler = (offsets == 0) & (rows["size"] == FILLER_SIZE)
            good = (rows["size"] > 0) & (offsets < below)
            ends = offsets + rows["size"]
            good[1:] &= (offsets[1:] >= ends[:-1]) | is_filler[1:] | is_filler[:-1]
            good[0] &= bool(offsets[0] > before or is_filler[0])
            count = len(good) if good.all() else int(np.argmin(good))
            end = first + count
            if count < len(good):
                return end
            before = -1 if is_filler[-1] else int(ends[-1]) - 1
        return end

    def _replay(self, walk: LogWalk) -> int:
        """Give every record its queue entry; gives where the log ends."""
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
                end = row.physical_offset + row.size
                unsound = Damage(row.physical_offset, end, "its body has not its checksum")
                self._report(unsound)
            result.record_count += 1
            self._put(row)
            result.last = Appended(
                row.physical_offset, row.queue_offset, row.store_timestamp_ms, row.size
            )
        torn_at = self._torn_among(walk.damage[named:])
        if torn_at is not None:
            return torn_at
        if unsound is not None and synced is None:
            # Nothing follows it, and nothing says that it was ever whole.
            result.damage = [damage for damage in result.damage if damage != unsound]
            return unsound.start
        return walk.position

    def _torn_among(self, passed: list[Damage]) -> int | None:
        """Report what the walk passed over; gives the start of what was never synced."""
        for damage in passed:
            if self._synced is not None and damage.start >= self._synced:
                return damage.start
            self._report(damage)
        return None

    def _report(self, damage: Damage) -> None:
        if len(self._result.damage) < limits.DAMAGE_REPORTS:
            self._result.damage.append(damage)

    def _rows(self, walk: LogWalk, check_from: int | None) -> Iterator[Row]:
        """Give the records of a walk, by the way that is cheaper for what is left of it.

        Bodies are checked from ``check_from`` on, all of them when that is None, and texts when
        the power may have gone.
        """
        switch_at = walk.position + interpreted_bytes(_INTERPRETED_BYTES)
        check_from = 0 if check_from is None else check_from
        for record in walk.records():
            is_checked = record.physical_offset >= check_from
            yield _row_of(
                record, is_checked=is_checked, has_text_checked=is_checked and self._has_lost_power
            )
            if walk.position > switch_at:
                break
        for chunk in walk.chunks():
            text_from = check_from if self._has_lost_power else self._log.max_offset
            yield from _rows_of(chunk, check_from, text_from)

    def _put(self, row: Row) -> None:
        """Write the queue entry of a record, unless it has none or it is there."""
        if row.sys_flag & SYS_FLAG_TRANSACTION_MASK not in _QUEUED_TYPES:
            return
        if not is_topic_name(row.topic) or not 0 <= row.queue_id < 1 << 31 or row.queue_offset < 0:
            self._report(Damage(row.physical_offset, row.physical_offset + row.size, "no queue"))
            return
        if row.physical_offset < self._deleted.get(row.topic, 0):
            return
        queue = self._appender.queue(row.topic, row.queue_id)
        if (row.topic, row.queue_id) in self._unseen:
            self._unseen.discard((row.topic, row.queue_id))
            queue.begin_at(row.queue_offset)
        if row.queue_offset == 0 and _is_behind_all(row, queue):
            self._at_least.pop((row.topic, row.queue_id), None)
            queue.cut(0)
        if row.queue_offset < queue.next_offset:
            # There already; or another record has the place, as in an old broker's store.
            return
        if (row.queue_offset - queue.next_offset) * SMALLEST_RECORD > row.physical_offset and (
            queue.has_files
        ):
            self._report(Damage(row.physical_offset, row.physical_offset + row.size, "no place"))
            return
        tags_code = row.tags_code
        if row.topic == SCHEDULE_TOPIC and row.delay_level > 0:
            tags_code = self._appender.due_time(row.delay_level, row.store_timestamp_ms)
        if queue.put(row.queue_offset, row.physical_offset, row.size, tags_code):
            self._result.entries_written += 1

    def _queue_knows(self, record: Record) -> bool | None:
        """Say whether the record's queue points to it; None when it has no such entry."""
        if record.queue_id < 0 or record.queue_offset < 0:
            return False
        queue = self._names.queue(record.topic, record.queue_id)
        entry = queue.entry(record.queue_offset) if queue else None
        if entry is None:
            return None
        return entry[:2] == (record.physical_offset, record.total_size)

    def _cut_log(self, end_offset: int) -> None:
        """Keep aside and zero whatever is behind the log's end."""
        stop = 0
        for segment in self._log.segments:
            start = max(end_offset - segment.base_offset, 0)
            if segment.end_offset <= end_offset:
                continue
            view = self._log.map(segment).view
            last = fs.last_written(segment.path, view, start)
            if last is None:
                continue
            name = f"{segment.base_offset + start:020}.cut"
            self._keep(name, bytes(view[start : min(last + 1, start + _KEPT_BYTES)]))
            file = self._disk.open_file(segment.path)
            try:
                file.clear(start)
                file.sync()
            finally:
                file.close()
            stop = segment.base_offset + last + 1
        if stop:
            self._result.cut = Damage(end_offset, stop, "an unfinished write")

    def _cut_queue(self, queue: QueueWriter, end_offset: int) -> None:
        """End a queue behind its last entry for a record of the log."""
        while queue.next_offset:
            last = queue.entry(queue.next_offset - 1)
            if last is None or last[1] == FILLER_SIZE or last[0] + last[1] <= end_offset:
                break
            queue.next_offset -= 1
        if queue.has_bytes_behind():
            queue.cut(queue.next_offset)
        queue.turn_to_appending()
        # Messages that the cleaner took with their log: their offsets are not given again.
        if end_offset > self._log.min_offset or self._log.min_offset:
            expected = self._at_least.get((queue.topic, queue.queue_id), 0)
            queue.next_offset = max(queue.next_offset, expected)
        files = queue.files()
        first = files[0][0] // ENTRY_BYTES if files else queue.next_offset
        queue.first_offset = first - first % (queue.file_bytes // ENTRY_BYTES)

    def _keep_damage(self) -> None:
        """Keep a copy of damaged bytes, which the log keeps too, for whoever mends them."""
        for damage in self._result.damage:
            segment = self._log.segment_of(damage.start)
            if segment is None:
                continue
            start = damage.start - segment.base_offset
            stop = min(damage.stop - segment.base_offset, segment.size, start + _KEPT_BYTES)
            name = f"{damage.start:020}.damaged"
            if not (self._layout.aside / name).exists():
                self._keep(name, bytes(self._log.map(segment).view[start:stop]))

    def _keep(self, name: str, content: bytes) -> None:
        self._disk.write_durably(self._layout.aside / name, content)


def _is_behind_all(row: Row, queue: QueueWriter) -> bool:
    """Say whether a record comes in the log after that of its queue's last entry."""
    last = queue.entry(queue.next_offset - 1)
    return last is not None and not last.is_filler and last[0] < row.physical_offset


def _makes_sense(properties: bytes) -> bool:
    """Say whether properties are text of names and values, as a broker writes them."""
    if b"\0" in properties:
        return False
    try:
        text = properties.decode()
    except UnicodeDecodeError:
        return False
    parts = text.removesuffix(props.PROPERTY_SEPARATOR).split(props.PROPERTY_SEPARATOR)
    return not text or all(part.find(props.NAME_VALUE_SEPARATOR) > 0 for part in parts)


def _row_of(record: Record, *, is_checked: bool, has_text_checked: bool) -> Row:
    properties = props.parse(decode_utf8(record.properties))
    level = properties.get(props.DELAY, "")
    is_sound = (
        not is_checked or not record.body or zlib.crc32(record.body) & CRC_MASK == record.body_crc
    ) and (not has_text_checked or _makes_sense(record.properties))
    return Row(
        record.physical_offset,
        record.total_size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.sys_flag,
        string_hash(properties.get(props.TAGS, "")),
        int(level) if level.isascii() and level.isdigit() and len(level) < 10 else 0,
        record.store_timestamp_ms,
        is_sound,
    )


def _rows_of(chunk: Chunk, check_from: int, text_from: int) -> Iterator[Row]:
    from rocketlens.formats import kernels

    rows, topics = chunk.rows, chunk.topics()
    number_of_row = topics.number_of_row.tolist()
    columns = [
        rows[name].tolist()
        for name in (
            "physical_offset",
            "store_size",
            "queue_id",
            "queue_offset",
            "sys_flag",
            "tags_hash",
            "delay_level",
            "store_timestamp_ms",
        )
    ]
    sound = [True] * len(rows)
    if columns[0][-1] >= check_from:
        sound = kernels.crc_ok(chunk.content, chunk.base_offset, rows).tolist()
    for place in range(len(rows)):
        if columns[0][place] >= text_from:
            row = rows[place]
            start = int(row["physical_offset"] + row["properties_start"]) - chunk.base_offset
            stop = start + int(row["properties_length"])
            sound[place] = sound[place] and _makes_sense(bytes(chunk.content[start:stop]))
    for place, values in enumerate(zip(*columns, strict=True)):
        offset, size, queue_id, queue_offset, flags, tags, level, stored_ms = values
        yield Row(
            offset,
            size,
            topics.names[number_of_row[place]],
            queue_id,
            queue_offset,
            flags,
            tags,
            level,
            stored_ms,
            sound[place] or offset < check_from,
        )
