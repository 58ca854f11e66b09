"""Writes consume queues: one 20-byte entry for each message, with the message.

A queue is a sequence of files of equal size. They take room on the disk as they are filled, a few
thousand entries at a time, so that thousands of queues cost little and a full disk is noticed
before anything is written.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketlens.formats.consumequeue_entry import (
    ENTRY,
    ENTRY_BYTES,
    FILLER,
    FILLER_SIZE,
    QueueEntry,
)
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.store import fs
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout

if TYPE_CHECKING:
    from mmap import mmap

RESERVED_ENTRIES: Final = 3_276
RESERVED_BYTES: Final = RESERVED_ENTRIES * ENTRY_BYTES
"""Room is reserved in steps of this, just under 64 KiB: a whole number of entries."""

_NAME_DIGITS: Final = 20
_LOOKED_AT: Final = 8


class OpenQueues:
    """Bounds how many queues have a file open. An open one costs two descriptors."""

    def __init__(self, disk: Disk, file_bytes: int, most: int) -> None:
        """Begin with none; at most ``most`` will be open."""
        self.disk = disk
        self.file_bytes = file_bytes
        self._most = most
        self._last_seen: dict[QueueWriter, int] = {}

    def opened(self, queue: "QueueWriter") -> None:
        """Note that a queue has a file open; has one that was not written lately give its up."""
        self._last_seen[queue] = queue.next_offset
        for _ in range(_LOOKED_AT):
            if len(self._last_seen) <= self._most:
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

    def could_not(self, error: OSError) -> None:
        """Note that a file could not be opened: half of the queues close theirs."""
        if error.errno in fs.CANNOT_NOW_ERRORS:
            for queue in list(self._last_seen)[: len(self._last_seen) // 2]:
                del self._last_seen[queue]
                queue.release_file()

    def forget(self, queue: "QueueWriter") -> None:
        """Note that a queue is gone; who removed it closes it."""
        self._last_seen.pop(queue, None)


class QueueWriter:
    """Writes one queue. ``next_offset`` is the queue offset that the next message gets,
    ``first_offset`` where its first file begins, or will.

    The append path of :mod:`rocketlens.store.write.append` writes entries itself: at byte ``place``
    of ``content`` while that is below ``limit``, after :meth:`make_room` otherwise. ``is_removed``
    says that its directory is not there any more, or another's of the same name.
    ``min_offset_cache`` is the log's first physical offset when somebody looked, and the queue's
    first offset then.
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
        "place",
        "queue_id",
        "topic",
        "topic_part",
    )

    def __init__(
        self, open_queues: "OpenQueues", layout: StoreLayout, topic: str, queue_id: int
    ) -> None:
        """Begin with an empty queue; nothing is made on the disk, and nothing read."""
        self._open_queues = open_queues
        self._disk = open_queues.disk
        self._layout = layout
        self._file: WritableFile | None = None
        self._retired: list[WritableFile] = []
        self._ahead: dict[int, tuple[WritableFile, int]] = {}
        """Files that a batch goes on into, and up to where room is reserved in them."""
        self._found: set[Path] = set()
        self._base = -1
        self.directory = Path(f"{layout.consume_queue}/{topic}/{queue_id}")
        self.topic = topic
        self.queue_id = queue_id
        self.file_bytes = open_queues.file_bytes
        self.content: mmap | bytearray = bytearray()
        self.place = self.limit = self.next_offset = self.first_offset = 0
        self.is_dirty = self.has_new_names = self.is_schedule = self.is_removed = False
        self.min_offset_cache = (-1, 0)
        self.has_made_files = False
        self._has_files: bool | None = None
        self.topic_part = b""
        self.magic = self.head_bytes = 0

    def make_room(self) -> None:
        """Make ``place`` the place of entry ``next_offset``, with reserved room behind it.

        :raises OSError: when the disk is full, with nothing changed.
        """
        position = self.next_offset * ENTRY_BYTES
        self._open_file_at(position - position % self.file_bytes)
        assert self._file is not None  # noqa: S101 - just opened
        place = position - self._base
        limit = min(place + RESERVED_BYTES, self.file_bytes)
        _, reserved = self._ahead.get(self._base, (None, 0))
        if limit > reserved:
            self._file.reserve(place, limit)
        self.place, self.limit = place, limit

    def reserve_ahead(self, entry_count: int) -> None:
        """Open the files of more entries than :meth:`make_room` does, with room for them.

        So nothing can fail when :meth:`append_entries` writes them. :meth:`drop_ahead` gives up
        what was opened and is not needed.

        :raises OSError: when the disk is full, or a file cannot be opened now.
        """
        position = self.next_offset * ENTRY_BYTES
        stop = position + entry_count * ENTRY_BYTES
        try:
            while position < stop:
                base = position - position % self.file_bytes
                file = self._file if base == self._base else None
                if file is None:
                    file = self._opened(base)
                    self._ahead[base] = file, 0
                # As far as make_room will ask for on the way.
                end = min(stop - base + RESERVED_BYTES, self.file_bytes)
                file.reserve(position - base, end)
                self._ahead[base] = file, end
                position = base + self.file_bytes
        except OSError:
            self.drop_ahead()
            raise

    def drop_ahead(self) -> None:
        """Close the files that :meth:`reserve_ahead` opened, but for the one that is written."""
        for file, _ in self._ahead.values():
            if file is not self._file and file not in self._retired:
                file.close()
        self._ahead.clear()

    def append_entries(self, entries: bytes) -> None:
        """Append whole entries, for which there is room."""
        written = 0
        while written < len(entries):
            if self.place >= self.limit:
                self.make_room()
            count = min(self.limit - self.place, len(entries) - written)
            self.content[self.place : self.place + count] = entries[written : written + count]
            self.place += count
            self.next_offset += count // ENTRY_BYTES
            written += count
        self.is_dirty = True
        self.drop_ahead()

    def read(self, queue_offset: int, count: int) -> list[QueueEntry]:
        """Return up to ``count`` entries from ``queue_offset`` on, of one file only."""
        stop = min(queue_offset + count, self.next_offset)
        position = queue_offset * ENTRY_BYTES
        base = position - position % self.file_bytes
        end = min(stop * ENTRY_BYTES - base, self.file_bytes)
        if queue_offset < 0 or end <= position - base:
            return []
        if base == self._base:
            content = bytes(self.content[position - base : end])
        else:
            path = self.directory / f"{base:0{_NAME_DIGITS}}"
            content = fs.read_part(path, position - base, end - (position - base))
        whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
        return [QueueEntry(*fields) for fields in ENTRY.iter_unpack(content[:whole])]

    def begin_at(self, queue_offset: int) -> None:
        """Begin the queue with an entry, or with the file of it when that is there."""
        position = queue_offset * ENTRY_BYTES
        base = position - position % self.file_bytes
        is_there = any(base == begin for begin, _ in self.files())
        self.next_offset = base // ENTRY_BYTES if is_there else queue_offset

    def seal(self) -> None:
        """End the use of :meth:`put`: the next entry is appended, and asks for room first."""
        self.place = self.limit = 0

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Write one entry where it belongs, and fill what is skipped; False when it is there.

        Entries behind it stay. An entry for the same record stays as it is: its tags code may
        be a delivery time that the configuration no longer gives.

        :raises OSError: when the disk is full.
        """
        if not self.has_files:
            self.next_offset = queue_offset
        while self.next_offset < queue_offset:
            skipped = self.entry(self.next_offset)
            if skipped is None or skipped[0] > physical_offset:
                self._write(self.next_offset, FILLER.physical_offset, FILLER_SIZE, 0)
            else:
                # Its record is damaged now, or gone.
                self.next_offset += 1
        current = self.entry(queue_offset)
        if current is not None and current[:2] == (physical_offset, size):
            self.next_offset = max(self.next_offset, queue_offset + 1)
            self._note_found(queue_offset)
            return False
        self._write(queue_offset, physical_offset, size, tags_code)
        return True

    def fill(self, queue_offset: int) -> None:
        """Write fillers up to a queue offset.

        :raises OSError: when the disk is full.
        """
        while self.next_offset < queue_offset:
            self._write(self.next_offset, FILLER.physical_offset, FILLER_SIZE, 0)

    @property
    def span(self) -> tuple[int, int]:
        """Where its first file begins, and the next queue offset: that twice without any file."""
        return (
            self.next_offset if self._has_files is False else self.first_offset
        ), self.next_offset

    @property
    def has_files(self) -> bool:
        """Whether anything of the queue is on the disk."""
        if self._has_files is None:
            self._has_files = self._base >= 0 or bool(self.starts())
        return self._has_files

    @has_files.setter
    def has_files(self, has_files: bool) -> None:
        """Set what is known from a listing."""
        self._has_files = has_files

    def has_bytes_behind(self, starts: list[tuple[int, str]]) -> bool:
        """Return whether anything is written behind the last entry, in files as of `starts`."""
        end = self.next_offset * ENTRY_BYTES
        return any(
            fs.has_bytes_from(name, max(end - base, 0))
            for base, name in starts
            if base + self.file_bytes > end
        )

    def _note_found(self, queue_offset: int) -> None:
        """Have the next sync wait for an entry that another process wrote."""
        position = queue_offset * ENTRY_BYTES
        base = position - position % self.file_bytes
        if base == self._base:
            self.is_dirty = True
            return
        path = self.directory / f"{base:0{_NAME_DIGITS}}"
        if path not in self._found:
            self._found.add(path)
            self.has_new_names = self.is_dirty = True

    def _write(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        position = queue_offset * ENTRY_BYTES
        self._open_file_at(position - position % self.file_bytes)
        file = self._file
        assert file is not None  # noqa: S101 - just opened
        place = position - self._base
        if not self.place <= place < self.limit:
            limit = min(place + RESERVED_BYTES, self.file_bytes)
            file.reserve(place, limit)
            self.limit = limit
        self.place = place
        ENTRY.pack_into(file.content, place, physical_offset, size, tags_code)
        self.next_offset = max(self.next_offset, queue_offset + 1)
        self.is_dirty = True

    def _open_file_at(self, base: int) -> None:
        """Open the file that begins at byte ``base`` of the queue, making it if need be."""
        if base == self._base:
            return
        file = self._ahead[base][0] if base in self._ahead else self._opened(base)
        if self._file is not None:
            self._retired.append(self._file)
        self._file, self._base, self.content = file, base, file.content
        self.place = self.limit = 0
        self.is_dirty = True
        self._open_queues.opened(self)

    def _opened(self, base: int) -> WritableFile:
        """Open the file that begins at byte ``base``, making it if need be, whole or not at all."""
        path = self.directory / f"{base:0{_NAME_DIGITS}}"
        is_new = not fs.file_size(path)
        if is_new:
            self._disk.make_file(path, self.file_bytes, self._layout.scratch)
            self.has_new_names = self.has_made_files = self._has_files = True
        file: WritableFile | None = None
        try:
            file = self._disk.open_file(path)
            if is_new and self.next_offset * ENTRY_BYTES > base:
                # A queue that begins inside a file: RocketMQ fills what is before.
                count = self.next_offset - base // ENTRY_BYTES
                file.reserve(0, count * ENTRY_BYTES)
                file.content[: count * ENTRY_BYTES] = FILLER.encode() * count
        except OSError:
            if file is not None:
                file.close()
            if is_new:
                # Found there the next time, it would be taken for one that has its fillers.
                self._disk.remove_file(path)
                self._has_files = None
            raise
        return file

    def release_file(self) -> None:
        """Close the open file until the queue is written again; the next sync opens it to sync it.

        Otherwise queues that are written in turn would have more files open than they may.
        """
        file = self._file
        if file is not None:
            # Before it is closed: the syncing thread may be about to sync it.
            self._found.add(file.path)
            self.is_dirty = True
        self._file, self._base, self.content = None, -1, bytearray()
        self.place = self.limit = 0
        if file is not None:
            file.close()

    def sync(self) -> None:
        """Wait until every entry written before this call is on the disk.

        May run beside one thread that appends.

        :raises OSError: when it may not be.
        """
        self.is_dirty = False
        # In this order: an appender retires a file before it turns to the next.
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
            # Before it is synced: what is written meanwhile is put there again.
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

    def files(self) -> list[tuple[int, Path]]:
        """List the files: the byte of the queue at which each begins, and its path."""
        return [(base, Path(name)) for base, name in self.starts()]

    def starts(self) -> list[tuple[int, str]]:
        """List the files as :meth:`files` does, with their paths as strings."""
        return [
            (int(entry.name), entry.path)
            for entry in fs.entries(self.directory)
            if len(entry.name) == _NAME_DIGITS and entry.name.isdigit()
        ]

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Read one entry: physical offset, size, tags code; None where nothing was written."""
        if queue_offset < 0:
            return None
        position = queue_offset * ENTRY_BYTES
        base = position - position % self.file_bytes
        if base == self._base and self._file is not None:
            entry = decode_entry(memoryview(self._file.content), position - base)
            return None if entry.is_end else entry
        path = f"{self.directory}/{base:0{_NAME_DIGITS}}"
        content = fs.read_part(path, position - base, ENTRY_BYTES)
        if len(content) < ENTRY_BYTES:
            return None
        entry = decode_entry(content)
        return None if entry.is_end else entry

    def cut(self, queue_offset: int) -> None:
        """Make the queue end before ``queue_offset``; later files are deleted.

        The queue is closed by this; it is opened again where it is written next.
        """
        written = {file.path for file in (*self._retired, *([self._file] if self._file else []))}
        if written:
            self._found |= written
            self.is_dirty = True
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

    def close(self) -> None:
        """Unmap the files without syncing."""
        for file in (*self._retired, *([self._file] if self._file else [])):
            file.close()
        self._retired.clear()
        self._file, self._base, self.content = None, -1, bytearray()
        self.place = self.limit = 0
