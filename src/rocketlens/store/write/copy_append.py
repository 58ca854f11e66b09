"""Appends log bytes of another broker: the same bytes at the same offsets, and queue entries.

The received pieces begin and end anywhere. :meth:`CopyAppender.receive` keeps bytes, and
:meth:`CopyAppender.append_received` writes them:

* whole records with their queue entries, as in :mod:`rocketlens.store.write.append`: sizes and
  magics last, so that a killed process leaves whole records;
* a filler when all of it has arrived; the next segment begins then;
* damage of the other log as it is, without a queue entry, when a record or
  `MAX_COPIED_RECORD_BYTES` follow it.

The rest is kept in memory until more arrives.

So the copy is equal to the other log, and always ends with a record, a filler, or damage that a
record follows. The compiled kernels find some million records a second.

A `CopyStore` is a :class:`rocketlens.store.write.message_store.MessageStore` that appends only
received bytes. Recovery, syncs, indexing, cleaning and readers are those of any store.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rocketlens import limits
from rocketlens.errors import CopyFailed
from rocketlens.formats import batch_rows
from rocketlens.formats.commitlog_record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
)
from rocketlens.formats.compiled.scan import find_start
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER
from rocketlens.formats.rows import ROW_BYTES, Rows, scan_rows
from rocketlens.model.rocketmq import DELAY_TOPIC, is_topic_name
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import begins_again
from rocketlens.store.read.log.scan import CHUNK_ROWS
from rocketlens.store.write.append import BLANK_BYTES, Appended, Appender
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore
from rocketlens.store.write.queue.queue_append import QueueWriter
from rocketlens.store.write.refused_writes import refused

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_COPIED_RECORD_BYTES: Final = 64 * 1024 * 1024
"""Maximum record or filler of a copied log: it is kept in memory until it has arrived. RocketMQ:
maxMessageSize (default 4 MiB) + 64 KiB.
"""
_HELD_BYTES: Final = 4 * 1024 * 1024
_TAIL_BYTES: Final = 1024 * 1024
"""Bytes at the end of endless damage that are not written yet: a record can begin in them."""
_FILLERS_AT_ONCE: Final = 50_000


class _QueuePart(NamedTuple):
    """The rows of one queue that have entries, in log order."""

    queue: QueueWriter
    rows: Rows

    def first_restart(self) -> int | None:
        fields = self.rows.as_array
        begins: list[int] = fields["physical_offset"][fields["queue_offset"] == 0].tolist()
        for physical_offset in begins:
            if physical_offset > fields["physical_offset"][0]:
                return physical_offset
            last = self.queue.entry(self.queue.next_offset - 1)
            last_offset = None if last is None or last.is_filler else last.physical_offset
            if begins_again(0, physical_offset, last_offset):
                return physical_offset
        return None


class CopyAppender(Appender):
    """Appends the bytes of another broker's log. For the thread that appends.

    ``on_topic_restart`` is called with a topic that the other broker has deleted and created again,
    before its first new record is written. It must remove the topic's queues.
    """

    on_topic_restart: Callable[[str], None]
    _held = bytearray()
    _held_bytes = 0
    _rows = memoryview(b"")

    @property
    def position(self) -> int:
        return self._base + self._byte_offset

    @property
    def received_offset(self) -> int:
        return self.position + self._held_bytes

    def receive(self, body: memoryview | bytes) -> None:
        """Keep log bytes that begin at ``received_offset``."""
        if not self._held:
            self._rows = memoryview(bytearray(CHUNK_ROWS * ROW_BYTES))
            self._held = bytearray(_HELD_BYTES)
        stop = self._held_bytes + len(body)
        if stop > len(self._held):
            grown = bytearray(max(stop, 2 * len(self._held)))
            grown[: self._held_bytes] = memoryview(self._held)[: self._held_bytes]
            self._held = grown
        self._held[self._held_bytes : stop] = body
        self._held_bytes = stop

    def drop_received(self) -> None:
        self._held_bytes = 0

    def append_received(self) -> int:
        """Write received bytes up to the last whole record; return how many were written.

        After an error the other bytes are still kept.

        :raises StoreFull, StoreBusy: if there is no room, descriptor or memory now.
        :raises CopyFailed: if the bytes are no log that can be copied.
        """
        written = 0
        try:
            while written < self._held_bytes:
                if self.refusal is not None:
                    raise self.refusal
                count = self._append_some(written)
                written += count
                if not count:
                    break
        except OSError as error:
            self._open_queues.close_half(error)
            self._refused.refuse(error)
            raise refused(error) from error
        finally:
            if written:
                left = self._held_bytes - written
                self._held[:left] = self._held[written : self._held_bytes]
                self._held_bytes = left
        self._refused.accept()
        return written

    def continue_at(self, physical_offset: int) -> None:
        """Continue at a later offset, because the bytes before it are not available.

        Received bytes that are not written are dropped.

        :raises OSError: if the segment cannot be created; nothing has changed then.
        """
        base = physical_offset - physical_offset % self.segment_bytes
        if base != self._base or self._segment is None:
            self._switch_segment(self._new_segment(base), base)
        self._byte_offset = self._limit = physical_offset - base
        self._held_bytes = 0

    def _append_some(self, start: int) -> int:
        """Write records, a filler or damage from byte ``start`` of the received bytes.

        Return the number of bytes written; 0 if more must arrive first.
        """
        if self._segment is None or self._first:
            self._begin()
        segment_left = self.segment_bytes - self._byte_offset
        stop = min(self._held_bytes, start + segment_left)
        content = memoryview(self._held)[start:stop]
        rows, *_ = scan_rows(content, self.position, 0, len(content), self._rows)
        if len(rows):
            return self._append_records(rows)
        if len(content) < BLANK_BYTES:
            return self._append_raw(content) if len(content) == segment_left else 0
        size, magic = SIZE_AND_MAGIC.unpack_from(content)
        is_head = magic in (MAGIC_V1, MAGIC_V2) and MIN_RECORD_BYTES <= size <= segment_left
        is_filler = magic == MAGIC_BLANK and size == segment_left
        may_come = size <= MAX_COPIED_RECORD_BYTES and len(content) < size
        if (is_head or is_filler) and may_come:
            return 0
        if is_filler:
            return self._append_filler(content)
        return self._append_damage(content, segment_left)

    def _append_filler(self, content: memoryview) -> int:
        if len(content) < self.segment_bytes - self._byte_offset:
            raise CopyFailed(
                f"the filler at physical offset {self.position} is larger than "
                f"{MAX_COPIED_RECORD_BYTES} bytes: no broker leaves that much of a file unused"
            )
        return self._append_raw(content, head_bytes=BLANK_BYTES)

    def _append_damage(self, content: memoryview, segment_left: int) -> int:
        """Write bytes that are not a record, up to the next one."""
        position = find_start(content, self.position, 1, len(content))
        if position > 0:
            return self._append_raw(content[:position])
        if len(content) == segment_left:
            return self._append_raw(content)
        if len(content) > MAX_COPIED_RECORD_BYTES:
            return self._append_raw(content[:-_TAIL_BYTES])
        return 0

    def _append_raw(self, content: memoryview, *, head_bytes: int = 0) -> int:
        """Write bytes, the first ``head_bytes`` last; switch segments at the end of one."""
        size, start = len(content), self._byte_offset
        is_end = start + size == self.segment_bytes
        following = None
        if is_end:
            assert self._segment is not None  # noqa: S101 - opened before
            self._segment.reserve(start, self.segment_bytes)
            following = self._new_segment(self._base + self.segment_bytes)
        else:
            self._make_room(size)
        self._content[start + head_bytes : start + size] = content[head_bytes:]
        self._content[start : start + head_bytes] = content[:head_bytes]
        if following is not None:
            assert self._segment is not None  # noqa: S101 - opened before
            self._segment.touch()
            self._switch_segment(following, self._base + self.segment_bytes)
        else:
            self._byte_offset += size
        return size

    def _make_room(self, size: int) -> None:
        stop = self._byte_offset + size
        if stop > self._limit:
            self._reserve(stop)
            # A broker leaves room for a filler, but damage can reach into it.
            self._limit = max(self._limit, stop)

    def _append_records(self, rows: Rows) -> int:
        """Write records from the position on, up to one that restarts a topic."""
        parts = self._parts(rows)
        again = [(offset, part) for part in parts if (offset := part.first_restart()) is not None]
        if again:
            offset, part = min(again, key=lambda one: one[0])
            count = bisect_left(rows.column("physical_offset"), offset)
            if not count:
                self.on_topic_restart(part.queue.topic)
                # The next call writes the others, with the new queues.
                count = 1
            rows = rows.part(0, count)
            parts = self._parts(rows)
        names = ("physical_offset", "queue_offset", "store_timestamp_ms", "store_size")
        position, last = self.position, Appended(*(rows.column(name)[-1] for name in names))
        size: int = last.physical_offset + last.store_size - position
        self._make_room(size)
        # Odd until all is written: queues can be ahead of the log meanwhile.
        self._batch_steps |= 1
        for part in parts:
            self._append_entries(part)
        self._write_records(rows.content[:size], rows.as_array["physical_offset"] - position)
        self.zeros_end_offset = position + size
        self._byte_offset += size
        self.last = last
        self._end_batch()
        return size

    def _parts(self, rows: Rows) -> list[_QueuePart]:
        """Return the rows of each queue, without records of invalid topics or queue ids."""
        return [
            _QueuePart(self.queue(topic, queue_id), part)
            for topic, queue_id, part in _messages(rows.queued()).queues()
            if is_topic_name(topic) and len(topic) <= limits.MAX_TOPIC_CHARACTERS and queue_id >= 0
        ]

    def _append_entries(self, part: _QueuePart) -> None:
        """Write the entries of one queue's rows, with fillers for records that the log lacks."""
        queue, offsets = part.queue, part.rows.as_array["queue_offset"]
        cuts = [0, *(np.flatnonzero(np.diff(offsets) != 1) + 1).tolist(), len(offsets)]
        for start, stop in pairwise(cuts):
            rows, first = part.rows.part(start, stop), int(offsets[start])
            if first < 0 or first > limits.MAX_QUEUE_OFFSET:
                continue
            if not queue.has_files:
                queue.next_offset = first
                queue.first_offset = first - first % (queue.file_bytes // ENTRY_BYTES)
            if first < queue.next_offset:
                # They exist already; or, in an old broker's log, other records have their offsets.
                rows = rows.part(queue.next_offset - first, len(rows))
                first = queue.next_offset
            if not len(rows):
                continue
            missing = first - queue.next_offset
            if missing * MIN_RECORD_BYTES > rows.column("physical_offset")[0]:
                # The log is too short for that many records: the offset is damaged.
                continue
            for count in range(missing, 0, -_FILLERS_AT_ONCE):
                _append(queue, FILLER.encode() * min(count, _FILLERS_AT_ONCE))
            delays_ms = self._delays_ms if queue.topic == DELAY_TOPIC else ()
            _append(queue, rows.queue_entries(first, array("q", delays_ms)))

    def _write_records(self, content: memoryview, starts: "npt.NDArray[np.int64]") -> None:
        """Write whole records, then the sizes and magics in order, so that no gap precedes one."""
        start, stop = self._byte_offset, self._byte_offset + len(content)
        heads_in = _words(content)
        heads = heads_in[starts]
        heads_in[starts] = 0
        assert self._segment is not None  # noqa: S101 - opened before
        try:
            self._segment.write(start, content)
        finally:
            heads_in[starts] = heads
        _words(memoryview(self._content)[start:stop])[starts] = heads


def _words(content: memoryview) -> "npt.NDArray[np.uint64]":
    """Return a writable view with the 8 bytes from each byte on as one number."""
    return np.ndarray((len(content) - 7,), np.uint64, content, strides=(1,))


def _messages(rows: Rows) -> Rows:
    """Return a row for each message: several for a record that is a batch."""
    parts: list[Rows] = []
    for is_batch, run in batch_rows.runs(rows):
        parts += (piece for piece, _ in batch_rows.messages_of(run)) if is_batch else (run,)
    if len(parts) == 1:
        return parts[0]
    memory = memoryview(b"".join(part.memory for part in parts))
    return Rows(rows.content, rows.base_offset, memory)


def _append(queue: QueueWriter, entries: bytes | memoryview) -> None:
    """Append entries to a queue.

    :raises OSError: if there is no room; nothing is appended then.
    """
    if queue.byte_offset >= queue.limit:
        queue.make_room()
    if queue.byte_offset + len(entries) > queue.limit:
        queue.reserve_ahead(len(entries) // ENTRY_BYTES)
    queue.append_entries(entries)


class CopyStore(MessageStore):
    """A store for the copy of a log. A context manager, like its base.

    ``receive``, ``append_received``, ``drop_received`` and ``continue_at`` are those of
    `CopyAppender`.
    """

    _appender_class = CopyAppender

    def _open(self) -> None:
        super()._open()
        assert isinstance(self._appender, CopyAppender)  # noqa: S101 - of the class above
        copy = self._copy = self._appender
        copy.on_topic_restart = self._restart_topic
        self.receive, self.append_received = copy.receive, copy.append_received
        self.continue_at, self.drop_received = copy.continue_at, copy.drop_received

    @property
    def position(self) -> int:
        """The physical offset up to which the log is written, including a filler at its end."""
        return self._copy.position

    @property
    def received_offset(self) -> int:
        return self._copy.received_offset

    def log_bytes(self, physical_offset: int) -> bytes:
        """Return the written bytes from an offset on, to the end of its segment.

        The offset must be in the current segment, or be that of the last record.
        """
        base_offset = physical_offset - physical_offset % self.config.mappedFileSizeCommitLog
        path = self.layout.segment_path(base_offset)
        stop = min(self.position, base_offset + self.config.mappedFileSizeCommitLog)
        return fs.read_part(path, physical_offset - base_offset, stop - physical_offset)

    def _restart_topic(self, topic: str) -> None:
        deleted = self.deleted
        # A mark is valid only while the log has its record.
        self.flush_log()
        if self.failure is not None:
            raise self.failure
        if deleted.mark(topic):
            deleted.save()
            self._disk.remove_tree(deleted.remove_queues(topic))


def prepare_copy(
    layout: StoreLayout, config: StoreConfig, begin_offset: int, disk: Disk | None = None
) -> None:
    """Create the first segment of a copy that begins at a segment's start, unless one exists."""
    disk = disk or Disk()
    if layout.commit_log.is_dir() and any(layout.commit_log.iterdir()):
        return
    path = layout.segment_path(begin_offset)
    disk.make_file(path, config.mappedFileSizeCommitLog, layout.scratch)
