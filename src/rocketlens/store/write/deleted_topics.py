"""Deletes queues of topics after their marks (`rocketlens.store.read.former_topics`) are saved."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocketlens import limits
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import NOTE_KIND, DeletionMark, decode_marks, is_of_log
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import encode_note
from rocketlens.store.write.append import Appender

_REMOVED: Final = "removed."


class DeletedTopics:
    """The marks by topic, and the deletion of a topic's queues.

    ``make_durable`` makes the log durable or raises: a mark is valid only while the log has its
    record.
    """

    def __init__(
        self, layout: StoreLayout, disk: Disk, appender: Appender, make_durable: Callable[[], None]
    ) -> None:
        """Read the marks, and complete unfinished removals."""
        self._path = layout.deleted
        self._layout = layout
        self._disk = disk
        self._appender = appender
        self._make_durable = make_durable
        self._removals = 0
        for entry in fs.entries(layout.scratch):
            if entry.name.startswith(_REMOVED):
                disk.remove_tree(Path(entry.path))
        self.is_changed = False
        self.marks: dict[str, DeletionMark] = decode_marks(
            fs.read_bytes(self._path, limits.MAX_CONFIG_READ_BYTES)
        )

    def keep_those_of(self, log: CommitLog) -> None:
        """Drop marks of another log, and those without messages left below them."""
        kept = {topic: mark for topic, mark in self.marks.items() if is_of_log(mark, log)}
        self.is_changed |= len(kept) < len(self.marks)
        self.marks = kept

    def put(self, topic: str, mark: DeletionMark) -> None:
        self.marks[topic] = mark
        self.is_changed = True

    def mark(self, topic: str) -> bool:
        """Mark a topic as deleted; return False if the store has no messages of it.

        Write the file before calling :meth:`remove_queues`.
        """
        last = self._appender.last
        if last is None or not self._has_queues(topic):
            return False
        end_offset = last.physical_offset + last.store_size
        self.put(topic, DeletionMark(end_offset, last.physical_offset, last.store_timestamp_ms))
        return True

    def _has_queues(self, topic: str) -> bool:
        return any(name == topic for name, _ in self._appender.queues)

    def remove_queues(self, topic: str) -> Path:
        """Move the queues of a topic away; return the directory, which the caller deletes.

        The next message gets queue offset 0. Queries by key or id still find the old messages in
        the log.

        :raises OSError: if the files cannot be moved away; nothing has changed then.
        """
        self._removals += 1
        aside = self._layout.scratch / f"{_REMOVED}{fs.pid()}.{self._removals}"

        def move() -> None:
            # Queues without messages have no files.
            with suppress(FileNotFoundError):
                self._disk.move(self._layout.consume_queue / topic, aside)

        # Only the topic name of an existing queue is known to be safe in a path.
        if self._has_queues(topic):
            self._appender.remove_queues(topic, move)
        return aside

    @property
    def ends(self) -> Mapping[str, int]:
        return {topic: mark.end_offset for topic, mark in self.marks.items()}

    def snapshot(self) -> Callable[[], None]:
        """Return a function that writes the current marks, in any thread.

        The function raises OSError and the errors of ``make_durable``.
        """
        content = self._encode()

        def write() -> None:
            self._make_durable()
            self._disk.write_durably(self._path, content)

        return write

    def write_recovered(self) -> None:
        """Write marks from recovery, whose records are durable already."""
        self._disk.write_durably(self._path, self._encode())

    def _encode(self) -> bytes:
        return encode_note(NOTE_KIND, dict(self.marks), None)

    def save(self) -> None:
        """Write the file now. Errors as the function of :meth:`snapshot`."""
        self.snapshot()()
        self.is_changed = False
