"""Reads consume queues: the physical offsets of messages, for each topic and queue."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, QueueEntry, decode
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.store import fs
from rocketlens.store.fs import MappedFiles

QUEUE_FILE_NAME: Final = re.compile(r"\d{20}\Z")


class QueueName(NamedTuple):
    """A topic and one of its queues."""

    topic: str
    queue_id: int


class QueueFile(NamedTuple):
    """One file of a queue, and the queue offset of its first entry."""

    path: Path
    first_queue_offset: int
    entry_count: int
    file_id: fs.FileId | None = None


class ConsumeQueue:
    """Reads the entries of one queue.

    An entry is found by its queue offset alone. Bytes after the last whole entry of a truncated
    file are not entries; a file that is missing between others leaves a hole. A file that exists
    and cannot be opened raises OSError, and never counts as a file without entries.
    """

    def __init__(self, directory: Path, mapped: MappedFiles | None = None) -> None:
        """List the files. ``mapped``: the mappings that all queues of a store share."""
        self.directory = directory
        self._directory_text = str(directory)
        self._mapped = MappedFiles() if mapped is None else mapped
        self.files: list[QueueFile] = []
        self._stamp: fs.DirectoryStamp | None = None
        self.refresh()

    def refresh(self) -> None:
        """List the files again: a running broker adds and deletes files."""
        stamp = fs.directory_stamp(self.directory)
        self.files = [
            QueueFile(
                Path(entry.path),
                int(entry.name) // ENTRY_BYTES,
                size // ENTRY_BYTES,
                fs.file_id(entry),
            )
            for entry in fs.entries(self.directory)
            if QUEUE_FILE_NAME.match(entry.name)
            and int(entry.name) % ENTRY_BYTES == 0
            and (size := fs.size_of(entry))
        ]
        self._stamp = stamp

    def refresh_if_changed(self) -> None:
        """List the files again if one was added, deleted or replaced."""
        if self._stamp is None or not fs.is_as_stamped(self._directory_text, self._stamp):
            self.refresh()

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return one entry; None for a filler, or if no file has it or it was never written."""
        for file in reversed(self.files):
            index = queue_offset - file.first_queue_offset
            if 0 <= index < file.entry_count:
                entry = decode(self._map(file), index * ENTRY_BYTES)
                return None if entry.is_end or entry.is_filler else entry
        return None

    def entries(self) -> Iterator[tuple[int, QueueEntry]]:
        """Yield the written entries with their queue offsets, in order, without fillers."""
        for first_queue_offset, content in self.contents():
            for index in range(len(content) // ENTRY_BYTES):
                entry = decode(content, index * ENTRY_BYTES)
                if not entry.is_end and not entry.is_filler:
                    yield first_queue_offset + index, entry

    def contents(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the queue offset of each file's first entry, and its bytes, in order.

        The bytes include fillers and entries that were never written.
        """
        for file in self.files:
            yield file.first_queue_offset, self._map(file)

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message, after the last written entry. O(log entries).

        Assumes that the written entries of the last file are its first ones.
        """
        for file in reversed(self.files):
            content = self._map(file)
            positions = range(0, file.entry_count * ENTRY_BYTES, ENTRY_BYTES)
            count = bisect_left(positions, x=True, key=lambda at: decode(content, at).is_end)
            if count:
                return file.first_queue_offset + count
        return 0

    def first_where(self, holds: Callable[[QueueEntry], bool]) -> int:
        """Return the queue offset of the first entry for which ``holds`` is True, or `max_offset`.

        ``holds`` must be True for all later entries as well. Fillers and entries that were never
        written count as earlier ones. O(log entries).
        """
        low = self.files[0].first_queue_offset if self.files else 0

        def holds_at(queue_offset: int) -> bool:
            entry = self.entry(queue_offset)
            return entry is not None and holds(entry)

        return low + bisect_left(range(low, self.max_offset), x=True, key=holds_at)

    def first_kept(self, min_physical_offset: int) -> int:
        """Return the queue offset of the first entry whose record is not deleted, or `max_offset`.

        ``min_physical_offset``: the start of the log.
        """
        return self.first_where(lambda entry: entry.physical_offset >= min_physical_offset)

    def last_entry(self) -> QueueEntry | None:
        return self.entry(self.max_offset - 1) if self.files else None

    def _map(self, file: QueueFile) -> memoryview:
        return self._view(file.path, file.entry_count * ENTRY_BYTES, file.file_id)

    def _view(self, path: Path, size: int, file_id: fs.FileId | None) -> memoryview:
        """Return a file's bytes; zeros, which are not entries, if it was deleted or truncated.

        :raises OSError: if the file cannot be opened now.
        """
        try:
            view = self._mapped.get(path, size, file_id).view
        except FileNotFoundError:
            view = memoryview(b"")
        return view if len(view) == size else memoryview(bytes(size))

    def close(self) -> None:
        self._mapped.close()


class ConsumeQueues:
    """All queues of a store, each opened when it is first used.

    ``unlisted``: the reason why the last try to list the topics failed. ``missing``: the reason
    why a queue has no files. The directory may not exist.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._mapped = MappedFiles()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._checked: set[tuple[str, int]] = set()
        self.unlisted: str | None = None
        self.missing = "it has no files: the log was read"

    def names(self) -> list[QueueName]:
        return [
            QueueName(topic.name, int(queue.name))
            for topic in fs.entries(self.directory)
            if is_topic_name(topic.name)
            for queue in sorted(fs.entries(Path(topic.path)), key=lambda entry: len(entry.name))
            if queue.name.isascii() and queue.name.isdigit()
        ]

    def topics(self) -> list[str]:
        """List the topics that have queues, by name; on failure set ``unlisted`` and return []."""
        self.unlisted = None
        try:
            return [
                entry.name
                for entry in fs.entries(self.directory)
                if is_topic_name(entry.name) and entry.is_dir()
            ]
        except OSError as error:
            self.unlisted = f"{self.directory} cannot be listed: {error.strerror}"
            return []

    def batch_topics(self) -> set[str]:
        """Return the topics with batch queues: none in this class."""
        return set()

    def invalidate(self) -> None:
        """Check each queue's directory again before the queue is next returned.

        A broker can add files meanwhile, or delete a topic and create it again.
        """
        self._checked.clear()
        self._mapped.invalidate()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return one queue; None if the topic's name is not safe in a path."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not is_topic_name(topic):
                return None
            name = QueueName(topic, queue_id)
            queue = self._queues[name] = self._open_queue(name)
        elif (topic, queue_id) not in self._checked:
            queue.refresh_if_changed()
        self._checked.add((topic, queue_id))
        return queue

    def readable(self) -> Iterator[tuple[QueueName, ConsumeQueue]]:
        names: list[QueueName] = []
        with suppress(OSError):
            names = self.names()
        for name in names:
            queue = None
            with suppress(OSError):
                queue = self.queue(*name)
            if queue is not None:
                yield name, queue

    def _open_queue(self, name: QueueName) -> ConsumeQueue:
        directory = self.directory / name.topic / str(name.queue_id)
        return ConsumeQueue(directory, self._mapped)

    def close(self) -> None:
        self._mapped.close()
        self._queues.clear()
