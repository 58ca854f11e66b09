"""Reads batch queues, of the topics of RocketMQ 5 with ``queue.type=BatchCQ``.

They look like consume queues: each message has an entry, and those of a batch lead to one record.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.formats.batchqueue_entry import ENTRY_BYTES, ENTRY_LAYOUT, decode
from rocketlens.formats.consumequeue_entry import DEFAULT_FILE_BYTES, QueueEntry
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES as MESSAGE_ENTRY_BYTES
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT as MESSAGE_ENTRY_LAYOUT
from rocketlens.late import np
from rocketlens.store import fs
from rocketlens.store.fs import MappedFiles
from rocketlens.store.read.consumequeue import (
    QUEUE_FILE_NAME,
    ConsumeQueue,
    ConsumeQueues,
    QueueFile,
    QueueName,
)

_RUN_MESSAGES: Final = DEFAULT_FILE_BYTES // MESSAGE_ENTRY_BYTES


class _Part(NamedTuple):
    """One file up to its last whole entry."""

    path: Path
    size: int
    file_id: fs.FileId | None


class BatchQueue(ConsumeQueue):
    """Reads one queue. ``files`` have the messages at the time of listing."""

    def __init__(self, directory: Path, mapped: MappedFiles | None = None) -> None:
        self._parts: list[_Part] = []
        super().__init__(directory, mapped)

    def refresh(self) -> None:
        self._parts = [
            _Part(Path(entry.path), size, fs.file_id(entry))
            for entry in fs.entries(self.directory)
            if QUEUE_FILE_NAME.match(entry.name)
            and (size := fs.size_of(entry) // ENTRY_BYTES * ENTRY_BYTES)
        ]
        self.files = []
        for part in self._parts:
            view = self._view(*part)
            count = _count_written(view)
            if count:
                first, last = decode(view), decode(view, (count - 1) * ENTRY_BYTES)
                number = last.stop - first.first_queue_offset
                self.files.append(
                    QueueFile(part.path, first.first_queue_offset, number, part.file_id)
                )

    def refresh_if_changed(self) -> None:
        """Call `refresh`: a file changes with each message."""
        self.refresh()

    def entry(self, queue_offset: int) -> QueueEntry | None:
        """Return the entry of a message, or None. O(files * log entries)."""
        for part in reversed(self._parts):
            view = self._view(*part)
            positions = range(0, _count_written(view) * ENTRY_BYTES, ENTRY_BYTES)
            number = bisect_right(
                positions, queue_offset, key=lambda at: decode(view, at).first_queue_offset
            )
            if number:
                entry = decode(view, positions[number - 1])
                if queue_offset >= entry.stop:
                    return None
                return QueueEntry(entry.physical_offset, entry.store_size, entry.tags_code)
        return None

    def contents(self) -> Iterator[tuple[int, memoryview]]:
        """Yield runs of entries of messages, each with the queue offset of its first message."""
        for part in self._parts:
            view = self._view(*part)
            rows = np.frombuffer(view, ENTRY_LAYOUT.dtype)[: _count_written(view)]
            rows = rows[(rows["store_size"] > 0) & (rows["message_count"] > 0)]
            if not len(rows):
                continue
            counts = rows["message_count"].astype("i8")
            firsts = rows["first_queue_offset"].astype("i8")
            is_cut = np.diff(np.cumsum(counts) // _RUN_MESSAGES) > 0
            is_cut |= firsts[1:] != (firsts + counts)[:-1]
            for run in np.split(np.arange(len(rows)), is_cut.nonzero()[0] + 1):
                entries = np.zeros(len(run), MESSAGE_ENTRY_LAYOUT.dtype)
                for name in entries.dtype.names or ():
                    entries[name] = rows[name][run]
                content = np.repeat(entries, counts[run]).tobytes()
                yield int(firsts[run[0]]), memoryview(content)

    @property
    def max_offset(self) -> int:
        for part in reversed(self._parts):
            view = self._view(*part)
            count = _count_written(view)
            if count:
                return decode(view, (count - 1) * ENTRY_BYTES).stop
        return 0


class FileQueues(ConsumeQueues):
    """The queues of a store in files: consume queues, and batch queues in another directory."""

    def __init__(self, directory: Path, batches: Path) -> None:
        super().__init__(directory)
        self._batches = ConsumeQueues(batches)

    def names(self) -> list[QueueName]:
        """List all consume queues, then all batch queues, by topic and number."""
        return [*super().names(), *self._batches.names()]

    def topics(self) -> list[str]:
        topics = [*super().topics(), *self._batches.topics()]
        self.unlisted = self.unlisted or self._batches.unlisted
        return [] if self.unlisted else topics

    def batch_topics(self) -> set[str]:
        """Return the topics with batch queues; empty if they cannot be listed."""
        topics = self._batches.topics()
        self.unlisted = self.unlisted or self._batches.unlisted
        return set(topics)

    def _open_queue(self, name: QueueName) -> ConsumeQueue:
        of_topic = self._batches.directory / name.topic
        if of_topic.is_dir():
            return BatchQueue(of_topic / str(name.queue_id), self._mapped)
        return super()._open_queue(name)


def _count_written(view: memoryview) -> int:
    positions = range(0, len(view) // ENTRY_BYTES * ENTRY_BYTES, ENTRY_BYTES)
    return bisect_left(positions, x=True, key=lambda at: decode(view, at).is_end)
