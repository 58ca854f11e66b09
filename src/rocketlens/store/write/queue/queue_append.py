"""Writes consume queues: one 20-byte entry for each message, together with the message.

A queue is a sequence of files of equal size. Their blocks are reserved a few thousand entries at a
time, so that thousands of queues need little space, and a full disk is noticed before a write.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.formats.consumequeue_entry import (
    ENTRY,
    ENTRY_BYTES,
    ENTRY_LAYOUT,
    FILLER,
    FILLER_SIZE,
    QueueEntry,
)
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.late import np, npt
from rocketlens.model import properties as props
from rocketlens.model.text.java import decode_utf8, string_hash
from rocketlens.store import fs
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.torn import SECTOR_BYTES

if TYPE_CHECKING:
    from mmap import mmap

RESERVED_ENTRIES: Final = 3_276
RESERVED_BYTES: Final = RESERVED_ENTRIES * ENTRY_BYTES
"""Blocks are reserved in steps of this size: whole entries, just under 64 KiB."""

_MAX_CHECKED_QUEUES: Final = 8
_TAGS_NAME: Final = b"TAGS\x01"
_MAX_CACHED_TAGS: Final = 10_000


class TagsCodes:
    """Computes tags codes from raw properties, with a cache."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}

    def of(self, properties: bytes) -> int:
        start = properties.rfind(_TAGS_NAME)
        if start < 0:
            return 0
        stop = properties.find(2, start)
        tags = properties[start + 5 : stop if stop >= 0 else None]
        cached_code = self._known.get(tags)
        if cached_code is not None and (start == 0 or properties[start - 1] == 2):
            return cached_code
        text = props.parse(decode_utf8(properties)).get(props.TAGS, "")
        code = string_hash(text)
        if text and text.encode() == tags:
            if len(self._known) >= _MAX_CACHED_TAGS:
                self._known.clear()
            self._known[tags] = code
        return code


class OpenQueues:
    """Bounds the number of queues with an open file, each of which needs two descriptors."""

    def __init__(self, disk: Disk, file_bytes: int, max_open: int) -> None:
        self.disk = disk
        self.file_bytes = file_bytes
        self._max_open = max_open
        self._last_seen: dict[QueueWriter, int] = {}

    def track(self, queue: "QueueWriter") -> None:
        """Add a queue with an open file; over the bound, close the file of an idle queue."""
        self._last_seen[queue] = queue.next_offset
        for _ in range(_MAX_CHECKED_QUEUES):
            if len(self._last_seen) <= self._max_open:
                return
            oldest = next(iter(self._last_seen))
            seen_at = self._last_seen.pop(oldest)
            if oldest is queue or oldest.next_offset != seen_at:
                self._last_seen[oldest] = oldest.next_offset
            else:
                oldest.release_file()
        oldest = next(iter(self._last_seen))
        if oldest is not queue:
            del self._last_seen[oldest]
            oldest.release_file()

    def close_half(self, error: OSError) -> None:
        if error.errno in fs.CANNOT_NOW_ERRORS:
            for queue in list(self._last_seen)[: len(self._last_seen) // 2]:
                del self._last_seen[queue]
                queue.release_file()

    def forget(self, queue: "QueueWriter") -> None:
        self._last_seen.pop(queue, None)


class QueueWriter:
    """Writes one queue.

    ``next_offset``: the queue offset of the next message. ``first_offset``: the queue offset at
    which the first file begins, or will begin. :mod:`rocketlens.store.write.append` writes entries
    itself: at ``byte_offset`` of ``content`` while it is below ``limit``, otherwise after
    :meth:`make_room`. ``is_removed``: the directory does not exist any more, or belongs to a new
    queue of this name. ``min_offset_cache``: the log's first physical offset at the last read, and
    the queue's first offset then.
    """

    __slots__ = (
        "_ahead",
        "_base",
        "_disk",
        "_file",
        "_found",
        "_has_files",
        "_layout",
        "_open_queues",
        "_retired",
        "byte_offset",
        "content",
        "directory",
        "file_bytes",
        "first_offset",
        "has_made_files",
        "has_new_names",
        "head_bytes",
        "is_dirty",
        "is_removed",
        "is_schedule",
        "limit",
        "magic",
        "min_offset_cache",
        "next_offset",
        "queue_id",
        "topic",
        "topic_part",
    )

    def __init__(
        self, open_queues: "OpenQueues", layout: StoreLayout, topic: str, queue_id: int
    ) -> None:
        """Create an empty queue without reading or writing the disk."""
        self._open_queues = open_queues
        self._disk = open_queues.disk
        self._layout = layout
        self._file: WritableFile | None = None
        self._retired: list[WritableFile] = []
        self._ahead: dict[int, tuple[WritableFile, int]] = {}
        """Files into which a batch continues, and the end of their reserved blocks."""
        self._found: set[Path] = set()
        self._base = -1
        self.directory = Path(f"{layout.consume_queue}/{topic}/{queue_id}")
        self.topic = topic
        self.queue_id = queue_id
        self.file_bytes = open_queues.file_bytes
        self.content: mmap | bytearray = bytearray()
        self.byte_offset = self.limit = self.next_offset = self.first_offset = 0
        self.is_dirty = self.has_new_names = self.is_schedule = self.is_removed = False
        self.min_offset_cache = (-1, 0)
        self.has_made_files = False
        self._has_files: bool | None = None
        self.topic_part = b""
        self.magic = self.head_bytes = 0

    def make_room(self) -> None:
        """Set ``byte_offset`` to that of entry ``next_offset``, and reserve room after it.

        :raises OSError: if the disk is full; nothing has changed then.
        """
        base, byte_offset = self._locate(self.next_offset)
        self._open_file_at(base)
        assert self._file is not None  # noqa: S101 - just opened
        limit = min(byte_offset + RESERVED_BYTES, self.file_bytes)
        _, reserved = self._ahead.get(self._base, (None, 0))
        if limit > reserved:
            self._file.reserve(byte_offset, limit)
        self.byte_offset, self.limit = byte_offset, limit

    def _locate(self, queue_offset: int) -> tuple[int, int]:
        """Return the first byte offset of an entry's file, and the entry's byte offset in it."""
        byte_offset = queue_offset * ENTRY_BYTES % self.file_bytes
        return queue_offset * ENTRY_BYTES - byte_offset, byte_offset

    def reserve_ahead(self, entry_count: int) -> None:
        """Open the files for many entries, and reserve blocks, so that a write cannot fail.

        :meth:`drop_ahead` closes the files that are not needed.

        :raises OSError: if the disk is full, or a file cannot be opened now.
        """
        position = self.next_offset * ENTRY_BYTES
        stop = position + entry_count * ENTRY_BYTES
        try:
            while position < stop:
                base = position - position % self.file_bytes
                file = self._file if base == self._base else None
                if file is None:
                    file = self._open_or_create(base)
                    self._ahead[base] = file, 0
                # As far as make_room will reserve later.
                end = min(stop - base + RESERVED_BYTES, self.file_bytes)
                file.reserve(position - base, end)
                self._ahead[base] = file, end
                position = base + self.file_bytes
        except OSError:
            self.drop_ahead()
            raise

    def drop_ahead(self) -> None:
        """Close the files that :meth:`reserve_ahead` opened, except the current one."""
        for file, _ in self._ahead.values():
            if file is not self._file and file not in self._retired:
                file.close()
        self._ahead.clear()

    def append_entries(self, entries: bytes | memoryview) -> None:
        written = 0
        while written < len(entries):
            if self.byte_offset >= self.limit:
                self.make_room()
            count = min(self.limit - self.byte_offset, len(entries) - written)
            self.content[self.byte_offset : self.byte_offset + count] = entries[
                written : written + count
            ]
            self.byte_offset += count
            self.next_offset += count // ENTRY_BYTES
            written += count
        self.is_dirty = True
        self.drop_ahead()

    def read(self, queue_offset: int, count: int) -> list[QueueEntry]:
        """Return up to ``count`` entries from ``queue_offset`` on, all from one file."""
        content = self.read_bytes(queue_offset, count)
        return [QueueEntry(*fields) for fields in ENTRY.iter_unpack(content)]

    def read_bytes(self, queue_offset: int, count: int) -> bytes:
        stop = min(queue_offset + count, self.next_offset)
        base, byte_offset = self._locate(queue_offset)
        end = min(stop * ENTRY_BYTES - base, self.file_bytes)
        if queue_offset < 0 or end <= byte_offset:
            return b""
        if base == self._base:
            content = bytes(self.content[byte_offset:end])
        else:
            content = fs.read_part(self._path(base), byte_offset, end - byte_offset)
        return content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]

    def begin_at(self, queue_offset: int) -> None:
        """Start the queue at an entry, or at the start of its file if the file exists."""
        base, _ = self._locate(queue_offset)
        exists = any(base == begin for begin, _ in self.starts())
        self.next_offset = base // ENTRY_BYTES if exists else queue_offset

    def seal(self) -> None:
        """Switch from :meth:`put` to appending: the next entry reserves room first."""
        self.byte_offset = self.limit = 0

    def put(
        self,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        *,
        has_lost_power: bool = False,
    ) -> bool:
        """Write one entry at its queue offset, and fill skipped ones; return False if it exists.

        Later entries stay. An entry for the same record stays as well, because its tags code can be
        a delivery time by an old configuration. Only if a power cut may have torn the entry, its
        tags code is written again.

        :raises OSError: if the disk is full.
        """
        if not self.has_files:
            self.next_offset = queue_offset
        while self.next_offset < queue_offset:
            skipped = self.entry(self.next_offset)
            if skipped is None or skipped[0] > physical_offset:
                self._write(self.next_offset, FILLER.physical_offset, FILLER_SIZE, 0)
            else:
                # Its record is damaged or deleted now.
                self.next_offset += 1
        current = self.entry(queue_offset)
        start = queue_offset * ENTRY_BYTES % self.file_bytes % SECTOR_BYTES
        may_be_torn = has_lost_power and start + ENTRY_BYTES > SECTOR_BYTES
        expected = (physical_offset, size, *((tags_code,) if may_be_torn else ()))
        if current is not None and current[: len(expected)] == expected:
            self.next_offset = max(self.next_offset, queue_offset + 1)
            self._mark_found(queue_offset)
            return False
        self._write(queue_offset, physical_offset, size, tags_code)
        return True

    def fill(self, queue_offset: int) -> None:
        """Write fillers up to a queue offset.

        :raises OSError: if the disk is full.
        """
        while self.next_offset < queue_offset:
            self._write(self.next_offset, FILLER.physical_offset, FILLER_SIZE, 0)

    @property
    def span(self) -> tuple[int, int]:
        """The queue offset of the first file, and the next one; the same without files."""
        return (
            self.next_offset if self._has_files is False else self.first_offset
        ), self.next_offset

    @property
    def has_files(self) -> bool:
        if self._has_files is None:
            self._has_files = self._base >= 0 or bool(self.starts())
        return self._has_files

    @has_files.setter
    def has_files(self, has_files: bool) -> None:
        self._has_files = has_files

    def has_bytes_after_end(self, starts: list[tuple[int, str]]) -> bool:
        """Return whether anything is written after the last entry, in files from :meth:`starts`."""
        end = self.next_offset * ENTRY_BYTES
        return any(
            fs.has_bytes_from(name, max(end - base, 0))
            for base, name in starts
            if base + self.file_bytes > end
        )

    def _mark_found(self, queue_offset: int) -> None:
        base, _ = self._locate(queue_offset)
        if base == self._base:
            self.is_dirty = True
            return
        path = Path(self._path(base))
        if path not in self._found:
            self._found.add(path)
            self.has_new_names = self.is_dirty = True

    def _write(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        base, byte_offset = self._locate(queue_offset)
        self._open_file_at(base)
        file = self._file
        assert file is not None  # noqa: S101 - just opened
        if not self.byte_offset <= byte_offset < self.limit:
            limit = min(byte_offset + RESERVED_BYTES, self.file_bytes)
            file.reserve(byte_offset, limit)
            self.limit = limit
        self.byte_offset = byte_offset
        ENTRY.pack_into(file.content, byte_offset, physical_offset, size, tags_code)
        self.next_offset = max(self.next_offset, queue_offset + 1)
        self.is_dirty = True

    def _open_file_at(self, base: int) -> None:
        if base == self._base:
            return
        file = self._ahead[base][0] if base in self._ahead else self._open_or_create(base)
        if self._file is not None:
            self._retired.append(self._file)
        self._file, self._base, self.content = file, base, file.content
        self.byte_offset = self.limit = 0
        self.is_dirty = True
        self._open_queues.track(self)

    def _open_or_create(self, base: int) -> WritableFile:
        path = Path(self._path(base))
        is_new = not fs.file_size(path)
        if is_new:
            self._disk.make_file(path, self.file_bytes, self._layout.scratch)
            self.has_new_names = self.has_made_files = self._has_files = True
        file: WritableFile | None = None
        try:
            file = self._disk.open_file(path)
            if is_new and self.next_offset * ENTRY_BYTES > base:
                # If a queue begins inside a file, RocketMQ writes fillers before.
                count = self.next_offset - base // ENTRY_BYTES
                file.reserve(0, count * ENTRY_BYTES)
                file.content[: count * ENTRY_BYTES] = FILLER.encode() * count
        except OSError:
            if file is not None:
                file.close()
            if is_new:
                # Otherwise it would pass for a file with fillers.
                self._disk.remove_file(path)
                self._has_files = None
            raise
        return file

    def release_file(self) -> None:
        """Close the open file until the next write. The next sync opens it to sync it."""
        file = self._file
        if file is not None:
            # Before it is closed, because another thread may be about to sync it.
            self._found.add(file.path)
            self.is_dirty = True
        self._file, self._base, self.content = None, -1, bytearray()
        self.byte_offset = self.limit = 0
        if file is not None:
            file.close()

    def sync(self) -> None:
        """Wait until every entry written before this call is on the disk.

        One other thread can append meanwhile.

        :raises OSError: if an entry may not be on the disk.
        """
        self.is_dirty = False
        # In this order: an appender retires a file before it switches to the next one.
        current = self._file
        retired = self._retired[:]
        has_new_names, self.has_new_names = self.has_new_names, False
        try:
            for file in retired:
                file.sync()
            if current is not None:
                current.sync()
            self._sync_found()
            if has_new_names:
                self._sync_names()
        except OSError:
            self.is_dirty = True
            self.has_new_names |= has_new_names
            raise
        for file in retired:
            self._retired.remove(file)
            file.close()

    def _sync_found(self) -> None:
        for path in list(self._found):
            # Before the sync: later writes add it again.
            self._found.discard(path)
            try:
                self._disk.sync_file(path)
            except OSError as error:
                if not self.is_removed or not isinstance(error, FileNotFoundError):
                    self._found.add(path)
                    raise

    def _sync_names(self) -> None:
        try:
            for directory in (self.directory, self.directory.parent, self.directory.parent.parent):
                self._disk.sync_directory(directory)
        except FileNotFoundError:
            if not self.is_removed:
                raise

    def _path(self, base: int) -> str:
        return f"{self.directory}/{base:020}"

    def files(self) -> list[tuple[int, Path]]:
        return [(base, Path(name)) for base, name in self.starts()]

    def starts(self) -> list[tuple[int, str]]:
        return [
            (int(entry.name), entry.path)
            for entry in fs.entries(self.directory)
            if len(entry.name) == 20 and entry.name.isdigit()
        ]

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return one entry; None if it was never written."""
        if queue_offset < 0:
            return None
        base, byte_offset = self._locate(queue_offset)
        if base == self._base and self._file is not None:
            entry = decode_entry(memoryview(self._file.content), byte_offset)
        else:
            content = fs.read_part(self._path(base), byte_offset, ENTRY_BYTES)
            if len(content) < ENTRY_BYTES:
                return None
            entry = decode_entry(content)
        return None if entry.is_end else entry

    def cut(self, queue_offset: int) -> None:
        """End the queue before ``queue_offset``, delete later files, and close the queue."""
        written = {file.path for file in self._open_files()}
        self._found |= written
        self.is_dirty |= bool(written)
        self.close()
        self.has_made_files, self._has_files = True, None
        for base, path in self.files():
            first = base // ENTRY_BYTES
            if first >= queue_offset and base != queue_offset * ENTRY_BYTES:
                self._found.discard(path)
                self._disk.remove_file(path)
            elif queue_offset < first + self.file_bytes // ENTRY_BYTES:
                file = self._disk.open_file(path)
                try:
                    file.clear((queue_offset - first) * ENTRY_BYTES)
                    file.sync()
                finally:
                    file.close()
        self.next_offset = queue_offset

    def _open_files(self) -> list[WritableFile]:
        return [*self._retired, *([self._file] if self._file else [])]

    def close(self) -> None:
        for file in self._open_files():
            file.close()
        self._retired.clear()
        self._file, self._base, self.content = None, -1, bytearray()
        self.byte_offset = self.limit = 0


def read_entries(queue: QueueWriter, start: int, stop: int) -> "npt.NDArray[np.void]":
    """Return the entries from ``start`` to below ``stop``, in any thread; all from one file.

    The array has the fields of `QueueEntry` as columns. It is shorter if the file is.
    :meth:`QueueWriter.read` is for the thread that appends.
    """
    first_byte = start * ENTRY_BYTES
    base = first_byte - first_byte % queue.file_bytes
    with fs.MappedFile(queue.directory / f"{base:020}") as mapped:
        content = bytes(mapped.view[first_byte - base : stop * ENTRY_BYTES - base])
    return np.frombuffer(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_LAYOUT.dtype)
