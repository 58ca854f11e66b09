"""Consume queues: for each topic and queue, where its messages are in the commit log."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens import limits
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, QueueEntry, decode
from rocketlens.store import fs
from rocketlens.store.mapped import MappedFiles

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_FILE_NAME: Final = re.compile(r"\d{20}\Z")


def is_topic_name(text: str) -> bool:
    """Say whether RocketMQ would take ``text`` as a topic, so that it is safe in a path."""
    return len(text) <= limits.TOPIC_CHARACTERS and _TOPIC.match(text) is not None


class QueueName(NamedTuple):
    """A topic and one of its queues."""

    topic: str
    queue_id: int


class QueueFile(NamedTuple):
    """One file of a queue, and the queue offset of its first entry."""

    path: Path
    first_queue_offset: int
    entry_count: int


class ConsumeQueue:
    """Reads the entries of one queue.

    Entry ``n`` is found by its place alone. Bytes behind the last whole entry of a cut file are
    not entries; a file that is missing between others leaves a hole.
    """

    def __init__(self, directory: Path, mapped: MappedFiles | None = None) -> None:
        """List the files of the queue; there may be none.

        ``mapped``: where all queues of a store keep their mappings together.
        """
        self.directory = directory
        self._mapped = MappedFiles() if mapped is None else mapped
        self.files: list[QueueFile] = []
        self.refresh()

    def refresh(self) -> None:
        """List the files again: a running broker adds and deletes some.

        Those that cannot be read count as not there.
        """
        try:
            listed = list(fs.entries(self.directory))
        except OSError:
            listed = []
        self.files = [
            QueueFile(Path(entry.path), int(entry.name) // ENTRY_BYTES, size // ENTRY_BYTES)
            for entry in listed
            if _FILE_NAME.match(entry.name)
            and int(entry.name) % ENTRY_BYTES == 0
            and (size := fs.size_of(entry))
        ]

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Give entry ``queue_offset``; None when no file holds it or nothing was written there."""
        for file in reversed(self.files):
            index = queue_offset - file.first_queue_offset
            if 0 <= index < file.entry_count:
                entry = decode(self._map(file), index * ENTRY_BYTES)
                return None if entry.is_end or entry.is_filler else entry
        return None

    def entries(self) -> Iterator[tuple[int, QueueEntry]]:
        """Give every written entry with its queue offset, in order. O(entries)."""
        for file in self.files:
            content = self._map(file)
            for index in range(file.entry_count):
                entry = decode(content, index * ENTRY_BYTES)
                if not entry.is_end and not entry.is_filler:
                    yield file.first_queue_offset + index, entry

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message will get: after the last written entry.

        O(log entries): the written entries of the last file are taken to be its first ones.
        """
        for file in reversed(self.files):
            content = self._map(file)
            low, high = 0, file.entry_count
            while low < high:
                middle = (low + high) // 2
                if decode(content, middle * ENTRY_BYTES).is_end:
                    high = middle
                else:
                    low = middle + 1
            if low:
                return file.first_queue_offset + low
        return 0

    def last_entry(self) -> QueueEntry | None:
        """Give the newest entry, None when there is none."""
        return self.entry(self.max_offset - 1) if self.files else None

    def _map(self, file: QueueFile) -> memoryview:
        """Give a file's bytes; zeros, which are no entries, when it cannot be opened any more."""
        size = file.entry_count * ENTRY_BYTES
        try:
            view = self._mapped.get(file.path, size).view
        except OSError:
            view = memoryview(b"")
        return view if len(view) == size else memoryview(bytes(size))

    def close(self) -> None:
        """Unmap all files."""
        self._mapped.close()


class ConsumeQueues:
    """All queues of a store, each opened when it is first asked."""

    def __init__(self, directory: Path) -> None:
        """Remember the directory; it may be missing."""
        self.directory = directory
        self._mapped = MappedFiles()
        self._queues: dict[QueueName, ConsumeQueue] = {}

    def names(self) -> list[QueueName]:
        """List all queues, by topic and number."""
        return [
            QueueName(topic.name, int(queue.name))
            for topic in fs.entries(self.directory)
            if is_topic_name(topic.name)
            for queue in sorted(fs.entries(Path(topic.path)), key=lambda entry: len(entry.name))
            if queue.name.isascii() and queue.name.isdigit()
        ]

    def topics(self) -> list[str]:
        """List the topics that have queues, by name; none when the directory cannot be read."""
        try:
            listed = list(fs.entries(self.directory))
        except OSError:
            return []
        return [entry.name for entry in listed if is_topic_name(entry.name) and entry.is_dir()]

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Give one queue; None when the topic's name is not safe in a path."""
        if not is_topic_name(topic):
            return None
        name = QueueName(topic, queue_id)
        queue = self._queues.get(name)
        if queue is None:
            directory = self.directory / topic / str(queue_id)
            queue = self._queues[name] = ConsumeQueue(directory, self._mapped)
        return queue

    def close(self) -> None:
        """Unmap everything."""
        self._mapped.close()
        self._queues.clear()
