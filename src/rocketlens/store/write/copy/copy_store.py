"""A store whose log is a copy of another broker's, byte for byte at the same offsets.

It is a :class:`rocketlens.store.write.message_store.MessageStore` in all but how bytes get into
its log: not by messages, but by :meth:`CopyStore.take` and :meth:`CopyStore.append_taken`. So it
is recovered, synced, indexed, cleaned and read as any store.
"""

from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import SEGMENT_NAME_DIGITS
from rocketlens.store.write.append import Appender
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.copy.copy_append import CopyAppender
from rocketlens.store.write.message_store import MessageStore


class CopyStore(MessageStore):
    """A store for the copy of a log. A context manager, as its base.

    ``take``, ``append_taken`` and ``go_on_at`` are those of
    :class:`rocketlens.store.write.copy.copy_append.CopyAppender`.
    """

    def _open(self) -> None:
        super()._open()
        copy = self._copy
        copy.on_topic_again = self._begin_topic_again
        self.take, self.append_taken = copy.take, copy.append_taken
        self.go_on_at, self.drop_taken = copy.go_on_at, copy.drop_taken

    def _new_appender(self) -> Appender:
        self._copy: CopyAppender = self._appender_of(CopyAppender)
        return self._copy

    @property
    def position(self) -> int:
        """The physical offset up to which the log is written, a filler at its end included."""
        return self._copy.position

    @property
    def received_offset(self) -> int:
        """The physical offset behind the last byte that was taken."""
        return self._copy.received_offset

    def log_bytes(self, physical_offset: int) -> bytes:
        """Return what is written from an offset on, which is in the segment that is written, or is
        that of the last record.
        """
        base_offset = physical_offset - physical_offset % self.config.mappedFileSizeCommitLog
        path = self.layout.commit_log / f"{base_offset:0{SEGMENT_NAME_DIGITS}}"
        stop = min(self.position, base_offset + self.config.mappedFileSizeCommitLog)
        return fs.read_part(path, physical_offset - base_offset, stop - physical_offset)

    def _begin_topic_again(self, topic: str) -> None:
        """Remove the queues of a topic that the other broker deleted and created again."""
        deleted = self.deleted
        # A mark is good as long as its record is.
        self.flush_log()
        if self.failure is not None:
            raise self.failure
        if deleted.mark(topic):
            deleted.save()
            self._disk.remove_tree(deleted.remove_queues(topic))


def prepare_copy(
    layout: StoreLayout, config: StoreConfig, begin_offset: int, disk: Disk | None = None
) -> None:
    """Create the first segment of a copy that begins at an offset, where a segment begins.

    Nothing is done if the store has a segment already.

    :raises OSError: when it cannot be written.
    """
    disk = disk or Disk()
    if layout.commit_log.is_dir() and any(layout.commit_log.iterdir()):
        return
    name = f"{begin_offset:0{SEGMENT_NAME_DIGITS}}"
    disk.make_file(layout.commit_log / name, config.mappedFileSizeCommitLog, layout.scratch)
