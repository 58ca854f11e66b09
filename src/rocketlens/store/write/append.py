"""Appends records to the commit log, each with its consume queue entry.

A record is written into the mapped segment with zeros for its size and magic, then its queue entry,
then size and magic. So a reader that walks the log finds the whole record or nothing, even if this
process is killed in between. After a power cut see :mod:`rocketlens.store.write.recovery`.

Room is reserved before anything is written, so on a full disk a message is refused and nothing
changes. Segments are sparse, and reserved in steps of 16 MiB.
"""

import errno
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import MessageIllegal, StoreError
from rocketlens.formats.commitlog_record import (
    HOST_BITS,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    has_queue_entry,
    unwritten_head,
)
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES
from rocketlens.model import properties as props
from rocketlens.model.rocketmq import (
    CRC_MASK,
    DELAY_TOPIC,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
    is_topic_name,
)
from rocketlens.model.text.java import decode_utf8
from rocketlens.store import fs
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.config import Limits
from rocketlens.store.write.queue.queue_append import OpenQueues, QueueWriter, TagsCodes
from rocketlens.store.write.refused_writes import RefusedWrites, refused, too_large

if TYPE_CHECKING:
    from mmap import mmap

RESERVED_BYTES: Final = 16 * 1024 * 1024
"""Blocks of a segment are reserved in steps of this size."""
AHEAD_BYTES: Final = limits.MAX_UNWRITTEN_SEARCH_BYTES
"""Bytes reserved after the writable part: readers search them for lost records.

On a file system in memory (tmpfs), even reading a hole needs room; without it the process dies.
"""
BLANK_BYTES: Final = SIZE_AND_MAGIC.size
"""Bytes of its segment that every record leaves for the filler, at least."""

_NO_HOST_BITS: Final = ~HOST_BITS


class Appended(NamedTuple):
    """The offsets and the store time of a stored message."""

    physical_offset: int
    queue_offset: int
    store_timestamp_ms: int
    store_size: int


class Snapshot(NamedTuple):
    """The state of a store at one moment."""

    queues: dict[tuple[str, int], tuple[int, int]]
    """By topic and queue id: the queue offset at which its first file begins, and the next one."""
    last: Appended | None


class RunRoom(NamedTuple):
    """Room for records side by side, up to ``limit``, with bodies of at most ``body_bytes``."""

    content: "mmap | bytearray"
    byte_offset: int
    limit: int
    physical_offset: int
    timestamp_ms: int
    body_bytes: int


class Appender:
    """Appends to a log and its queues. One thread at a time appends; other threads can sync.

    ``last``: the last record, or None. ``refusal``: an error to raise instead of appending, or
    None. ``zeros_end_offset``: the physical offset after the last record with a zero byte in its
    properties, or a later one: see :mod:`rocketlens.store.write.torn`.
    """

    def __init__(
        self,
        layout: StoreLayout,
        disk: Disk,
        *,
        clock: Callable[[], int],
        store_host: bytes,
        bounds: Limits,
        delays_ms: tuple[int, ...],
        segment_bytes: int,
        queue_file_bytes: int,
        open_queues: int,
    ) -> None:
        """Prepare; :meth:`start` opens the log.

        ``store_host``: 4 or 16 address bytes and the port as i32. ``delays_ms[n]``: the delay of
        level n (element 0 unused). ``open_queues``: the maximum number of queues with open files.
        """
        self._layout = layout
        self._disk = disk
        self._clock = clock
        self._store_host = store_host
        self._max_body = bounds.message_bytes
        self._long_topics = bounds.long_topics
        self._delays_ms = delays_ms
        self._open_queues = OpenQueues(disk, queue_file_bytes, open_queues)
        self._heads = {
            born: unwritten_head(born, len(store_host)) for born in (HOST_BYTES_V4, HOST_BYTES_V6)
        }
        self._flag_bits = {
            born: (SYS_FLAG_BORN_HOST_V6 if born == HOST_BYTES_V6 else 0)
            | (SYS_FLAG_STORE_HOST_V6 if len(store_host) == HOST_BYTES_V6 else 0)
            for born in (HOST_BYTES_V4, HOST_BYTES_V6)
        }
        self._tags = TagsCodes()
        self._refused = RefusedWrites(clock)
        self.segment_bytes = segment_bytes
        self.queues: dict[tuple[str, int], QueueWriter] = {}
        self.refusal: StoreError | None = None
        self.last: Appended | None = None
        self.zeros_end_offset = 0
        self._batch_steps = 0
        self._is_snapshot_due = False
        self._offered: Snapshot | None = None
        self.watched: Collection[tuple[str, int]] = ()
        self.on_arrival: Callable[[tuple[str, int]], None] = lambda _: None
        """Called in the appending thread after an append to a queue in ``watched``."""
        self._removed: list[QueueWriter] = []
        self._first: list[Callable[[], None]] = []
        self._segment: WritableFile | None = None
        self._content: mmap | bytearray = bytearray()
        self._base = self._byte_offset = self._limit = 0
        self._lock = Lock()
        self._unsynced: list[WritableFile] = []
        self._has_new_segment = False

    def snapshot(self) -> "Snapshot | None":
        """Return the length of each queue, and the last record; no queue is ahead of the log.

        For a thread that syncs. Return None while a batch is written or a queue is removed. The
        next batch then prepares a snapshot for the next call, because a busy log is seldom between
        two batches. An append counts its queue entry last.
        """
        before = self._batch_steps
        table = {name: queue.span for name, queue in list(self.queues.items())}
        last = self.last
        is_between = before == self._batch_steps and not before & 1
        snapshot = Snapshot(table, last) if is_between else self._offered
        self._offered, self._is_snapshot_due = None, snapshot is None
        return snapshot

    def _end_batch(self) -> None:
        self._batch_steps += 1
        if self._is_snapshot_due:
            self._offered = self.snapshot()

    def start(
        self, base_offset: int, end_offset: int, first: Sequence[Callable[[], None]] = ()
    ) -> OSError | None:
        """Continue at ``end_offset``, in the segment of ``base_offset``, and create it if needed.

        ``first``: work to do before anything is stored. If the disk is full, the error is returned,
        and each append tries all this again.

        :raises OSError: if something cannot be opened or created for another reason.
        """
        self._base, self._byte_offset = base_offset, end_offset - base_offset
        self._limit = self._byte_offset
        # Recovery has decided about the existing bytes; it must not be repeated.
        self.zeros_end_offset = end_offset
        self._first = list(first)
        try:
            self._begin()
        except OSError as error:
            if error.errno not in fs.DISK_FULL_ERRORS:
                raise
            return error
        return None

    def _begin(self) -> None:
        """Do the pending work before the first append."""
        while self._first:
            self._first[0]()
            del self._first[0]
        if self._segment is None:
            byte_offset = self._byte_offset
            self._switch_segment(self._new_segment(self._base), self._base)
            self._byte_offset = self._limit = byte_offset

    def _new_segment(self, base: int) -> WritableFile:
        path = self._layout.segment_path(base)
        size = fs.file_size(path)
        is_new = not size
        if is_new:
            # This also replaces an empty file, which a crashed RocketMQ broker leaves.
            self._disk.make_file(path, self.segment_bytes, self._layout.scratch)
        elif size != self.segment_bytes:
            raise OSError(
                errno.EINVAL, f"has {size} bytes, a segment {self.segment_bytes}", str(path)
            )
        segment = self._disk.open_file(path)
        try:
            segment.reserve(0, min(RESERVED_BYTES + AHEAD_BYTES, self.segment_bytes))
        except OSError:
            segment.close()
            if is_new:
                self._disk.remove_file(path)
            raise
        return segment

    def _switch_segment(self, segment: WritableFile, base: int) -> None:
        """Append to ``segment`` from now on. The previous one must still be synced."""
        with self._lock:
            self._has_new_segment = True
            self._unsynced.append(segment)
        self._segment, self._content, self._base = segment, segment.content, base
        self._byte_offset = 0
        self._limit = min(RESERVED_BYTES, self.segment_bytes - BLANK_BYTES)

    def queue(self, topic: str, queue_id: int) -> QueueWriter:
        """Return the writer of a queue, without creating anything on the disk.

        :raises MessageIllegal: if the topic or the queue id is not valid.
        """
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            longest = limits.MAX_TOPIC_CHARACTERS if self._long_topics else MAX_TOPIC_BYTES_V1
            if not is_topic_name(topic) or len(topic) > longest:
                raise MessageIllegal(f"topic {topic[:300]!r} cannot be stored")
            if not 0 <= queue_id <= limits.MAX_INT:
                raise MessageIllegal(f"invalid queue id {queue_id}: expected 0 to {limits.MAX_INT}")
            queue = QueueWriter(self._open_queues, self._layout, topic, queue_id)
            name = topic.encode()
            is_long = len(name) > MAX_TOPIC_BYTES_V1
            queue.magic = MAGIC_V2 if is_long else MAGIC_V1
            queue.topic_part = (TOPIC_LENGTH_V2 if is_long else TOPIC_LENGTH_V1).pack(
                len(name)
            ) + name
            queue.head_bytes = (
                self._heads[HOST_BYTES_V4].size
                - HOST_BYTES_V4
                + len(queue.topic_part)
                + PROPERTIES_LENGTH.size
            )
            queue.is_schedule = topic == DELAY_TOPIC
            self.queues[topic, queue_id] = queue
        return queue

    def remove_queues(self, topic: str, move: Callable[[], None]) -> None:
        """Remove the queues of a topic after ``move`` has moved their files away.

        The next sync of the queues closes their files.

        :raises OSError: if ``move`` raises it; the queues stay.
        """
        queues = [queue for (name, _), queue in self.queues.items() if name == topic]
        for queue in queues:
            # Set before the move: another thread may be about to sync the directory.
            queue.is_removed = True
        self._batch_steps += 1
        self._offered = None
        try:
            move()
        except OSError:
            for queue in queues:
                queue.is_removed = False
            raise
        finally:
            self._batch_steps += 1
        for queue in queues:
            del self.queues[topic, queue.queue_id]
            self._open_queues.forget(queue)
        self._removed += queues

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        born_host: bytes,  # 4 or 16 address bytes, port as i32
        *,
        born_timestamp_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> Appended:
        """Store one message: readable at once, durable after a sync.

        :raises MessageIllegal: if it is too large, or its topic is not valid.
        :raises StoreFull, StoreBusy: if there is no room, descriptor or memory now.
        :raises StoreFailed, struct.error: if a write failed before; if a number is too large.
        """
        queue = self.queues.get((topic, queue_id)) or self.queue(topic, queue_id)
        body_bytes, property_bytes, born_bytes = len(body), len(properties), len(born_host)
        size = queue.head_bytes + body_bytes + property_bytes + born_bytes
        is_too_large = body_bytes > self._max_body or property_bytes > limits.MAX_PROPERTIES_BYTES
        if is_too_large or self.refusal:
            raise self.refusal or too_large(self._max_body)
        byte_offset, is_queued = self._byte_offset, has_queue_entry(sys_flag)
        if byte_offset + size > self._limit or queue.byte_offset >= queue.limit:
            byte_offset = self._reserve_record(size, queue, 1)
        physical_offset, timestamp_ms = self._base + byte_offset, self._clock()
        queue_offset = queue.next_offset if is_queued else 0
        self._content[byte_offset : byte_offset + size] = b"".join(
            (
                self._heads[born_bytes].pack(
                    zlib.crc32(body) & CRC_MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag & _NO_HOST_BITS | self._flag_bits[born_bytes],
                    born_timestamp_ms,
                    born_host,
                    timestamp_ms,
                    self._store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                    body_bytes,
                ),
                body,
                queue.topic_part,
                PROPERTIES_LENGTH.pack(property_bytes),
                properties,
            )
        )
        if is_queued:
            code = self._tags.of(properties)
            if queue.is_schedule:
                code = self._schedule_code(properties, timestamp_ms, code)
            ENTRY.pack_into(queue.content, queue.byte_offset, physical_offset, size, code)
            queue.is_dirty = True  # Before `last`: a thread that reads `last` must sync its entry.
        if 0 in properties:
            self.zeros_end_offset = physical_offset + size
        SIZE_AND_MAGIC.pack_into(self._content, byte_offset, size, queue.magic)
        self._byte_offset = byte_offset + size
        appended = self.last = Appended(physical_offset, queue_offset, timestamp_ms, size)
        if is_queued:
            queue.byte_offset, queue.next_offset = queue.byte_offset + ENTRY_BYTES, queue_offset + 1
            if self.watched:
                self._notify(topic, queue_id)
        return appended

    def room(self) -> RunRoom | None:
        """Return room for :meth:`append_run`; None while messages are refused."""
        return None if self.refusal else self._room()

    def _room(self) -> RunRoom:
        at, physical_offset = self._byte_offset, self._base + self._byte_offset
        now_ms, body_bytes = self._clock(), self._max_body
        return RunRoom(self._content, at, self._limit, physical_offset, now_ms, body_bytes)

    def batch_room(self, queue: QueueWriter, byte_count: int, entry_count: int) -> RunRoom:
        """Reserve and return room for a batch. Errors as :meth:`append`."""
        if self.refusal is not None:
            raise self.refusal
        entries_end = queue.byte_offset + entry_count * ENTRY_BYTES
        if self._byte_offset + byte_count > self._limit or entries_end > queue.limit:
            self._reserve_record(byte_count, queue, entry_count)
        return self._room()

    def append_run(
        self,
        entries: Sequence[tuple[QueueWriter, bytes | memoryview]],
        commit: Callable[[], None],
        last: Appended,
    ) -> None:
        """Finish records that were written into :meth:`room`: write queue entries, then commit.

        ``commit`` writes the sizes and magics, in order.
        """
        self._batch_steps += 1
        for queue, some in entries:
            queue.append_entries(some)
        commit()
        self._byte_offset = last.physical_offset + last.store_size - self._base
        self.last = last
        self._end_batch()
        for queue, _ in entries:
            self._notify(queue.topic, queue.queue_id)

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        members: Sequence[tuple[int, bytes, bytes]],
        born_host: bytes,
        *,
        born_timestamp_ms: int,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> list[Appended]:
        """Store each member of a batch, ``(flag, body, properties)``, as a record.

        They are side by side in one segment, with consecutive queue offsets. If this process is
        killed meanwhile, the first members are stored.

        Errors as :meth:`append`; MessageIllegal also without members, or in a transaction.
        """
        queue = self.queues.get((topic, queue_id)) or self.queue(topic, queue_id)
        if not members or sys_flag & SYS_FLAG_TRANSACTION_MASK or queue.is_schedule:
            raise MessageIllegal("a batch needs members, and can have no transaction or delay")
        fixed = queue.head_bytes + len(born_host)
        room = self.batch_room(queue, self._batch_bytes(members, fixed), len(members))
        physical_offset, queue_offset = room.physical_offset, queue.next_offset
        head, timestamp_ms = self._heads[len(born_host)], room.timestamp_ms
        sys_flag = sys_flag & _NO_HOST_BITS | self._flag_bits[len(born_host)]
        parts: list[bytes] = []
        entries: list[bytes] = []
        appended: list[Appended] = []
        for flag, body, properties in members:
            size = fixed + len(body) + len(properties)
            parts += (
                head.pack(
                    zlib.crc32(body) & CRC_MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born_timestamp_ms,
                    born_host,
                    timestamp_ms,
                    self._store_host,
                    reconsume_times,
                    0,
                    len(body),
                ),
                body,
                queue.topic_part,
                PROPERTIES_LENGTH.pack(len(properties)),
                properties,
            )
            entries.append(ENTRY.pack(physical_offset, size, self._tags.of(properties)))
            appended.append(Appended(physical_offset, queue_offset, timestamp_ms, size))
            queue_offset += 1
            physical_offset += size
        if any(0 in properties for _, _, properties in members):
            self.zeros_end_offset = physical_offset
        end = physical_offset - self._base
        self._content[room.byte_offset : end] = b"".join(parts)
        run = [(queue, b"".join(entries))]
        self.append_run(run, lambda: self._commit_batch(appended, queue.magic), appended[-1])
        return appended

    def _notify(self, topic: str, queue_id: int) -> None:
        if (topic, queue_id) in self.watched:
            self.on_arrival((topic, queue_id))

    def _batch_bytes(self, members: Sequence[tuple[int, bytes, bytes]], fixed: int) -> int:
        """Return the size of all records; ``fixed`` is the size of one without its own bytes."""
        total = len(members) * fixed
        for _, body, properties in members:
            if len(body) > self._max_body or len(properties) > limits.MAX_PROPERTIES_BYTES:
                raise too_large(self._max_body)
            total += len(body) + len(properties)
        return total

    def _commit_batch(self, appended: list[Appended], magic: int) -> None:
        for one in appended:
            begin = one.physical_offset - self._base
            SIZE_AND_MAGIC.pack_into(self._content, begin, one.store_size, magic)

    def _schedule_code(self, properties: bytes, timestamp_ms: int, tags_code: int) -> int:
        """Return the tags code of a message: the delivery time if it is delayed."""
        level = props.delay_level(props.parse(decode_utf8(properties)))
        return self.due_time(level, timestamp_ms) if level > 0 else tags_code

    def due_time(self, level: int, store_timestamp_ms: int) -> int:
        return store_timestamp_ms + self._delays_ms[min(level, len(self._delays_ms) - 1)]

    def _reserve_record(self, size: int, queue: QueueWriter, entry_count: int) -> int:
        if size > self.segment_bytes - BLANK_BYTES:
            raise too_large(self._max_body)
        try:
            if self._segment is None or self._first:
                self._begin()
            if queue.byte_offset >= queue.limit:
                queue.make_room()
            if entry_count > 1:
                queue.reserve_ahead(entry_count)
            if self._byte_offset + size > self.segment_bytes - BLANK_BYTES:
                self._roll(size)
            elif self._byte_offset + size > self._limit:
                self._reserve(self._byte_offset + size)
        except OSError as error:
            queue.drop_ahead()
            self._open_queues.close_half(error)
            self._refused.refuse(error)
            raise refused(error) from error
        self._refused.accept()
        return self._byte_offset

    def _reserve(self, stop: int) -> None:
        assert self._segment is not None  # noqa: S101 - opened by start
        limit = min(max(stop, self._limit + RESERVED_BYTES), self.segment_bytes - BLANK_BYTES)
        reserved = min(limit + AHEAD_BYTES, self.segment_bytes)
        self._segment.reserve(self._byte_offset, reserved)
        self._limit = limit

    def _roll(self, size: int) -> None:
        """Create and reserve the next segment, then close this one with a filler."""
        segment, byte_offset = self._segment, self._byte_offset
        assert segment is not None  # noqa: S101 - opened by start
        segment.reserve(byte_offset, byte_offset + BLANK_BYTES)
        following = self._new_segment(self._base + self.segment_bytes)
        SIZE_AND_MAGIC.pack_into(
            segment.content, byte_offset, self.segment_bytes - byte_offset, MAGIC_BLANK
        )
        with suppress(OSError):
            segment.touch()
        self._switch_segment(following, self._base + self.segment_bytes)
        if size > self._limit:
            self._reserve(size)

    def sync_log(self) -> None:
        """Wait until every record appended before this call is on the disk.

        :raises SyncFailed: if a record may never reach the disk.
        :raises OSError: if a directory cannot be opened; the next call tries again.
        """
        with self._lock:
            segments = list(self._unsynced)
            has_new, self._has_new_segment = self._has_new_segment, False
        for segment in segments:
            segment.sync()
        if has_new:
            try:
                self._disk.sync_directory(self._layout.commit_log)
                self._disk.sync_directory(self._layout.root)
            except OSError:
                self._has_new_segment = True
                raise
        with self._lock:
            del self._unsynced[: len(segments) - 1]
        for segment in segments[:-1]:
            segment.close()

    def sync_queues(self) -> None:
        """Wait until every queue entry written before this call is on the disk.

        :raises OSError: if an entry may not be on the disk.
        """
        # Only this thread syncs queues, and these are no longer in its list.
        removed = self._removed[:]
        for queue in list(self.queues.values()):
            if queue.is_dirty:
                queue.sync()
        del self._removed[: len(removed)]
        for queue in removed:
            queue.close()

    def close(self) -> None:
        for queue in (*self.queues.values(), *self._removed):
            queue.close()
        for segment in self._unsynced:
            segment.close()
        self._unsynced.clear()
        self._segment, self._content = None, bytearray()
