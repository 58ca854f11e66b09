"""The broker's own builder of index files: it reads the synced part of the log, as RocketMQ
does.
"""

from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.index_file import ENTRY_BYTES, SLOT
from rocketlens.formats.index_keys import index_hashes
from rocketlens.store.read.index.index_state import ResumePoint
from rocketlens.store.read.kernel_loader import KERNELS
from rocketlens.store.read.log.scan import Chunk, LogWalk, interpreted_bytes
from rocketlens.store.write.index.index_writer import IndexWriter


class IndexBuilder(IndexWriter):
    """Appends to the index files of a store. For one thread at a time.

    ``made_progress``: whether the last :meth:`build` put anything in, or passed anything.
    """

    made_progress = False

    def build(self, up_to: int, *, at_most_bytes: int = 64 * 1024 * 1024) -> bool:
        """Write the entries of records that begin below ``up_to``; return True if all are written.

        ``up_to`` must not be above the synced end of the log.

        :raises OSError: when the disk is full, or a segment cannot be opened now; nothing is lost,
            and the next call goes on.
        :raises StoreBusy: when it needs kernels that are not loaded any more; likewise.
        """
        before = self.resume_point.physical_offset
        self.made_progress = False
        if before >= up_to:
            return True
        if KERNELS.is_in_background and min(up_to - before, at_most_bytes) > interpreted_bytes():
            KERNELS.load(load_kernels)
        self._log.refresh()
        walk = LogWalk(self._log, before, min(up_to, before + at_most_bytes), must_read=True)
        if walk.position > before:
            self.resume_point = ResumePoint(walk.position, 0)
        try:
            for piece in walk.pieces(at_once=True):
                if isinstance(piece, Chunk):
                    self._put_chunk(piece, walk.position)
                else:
                    self._put_record(piece)
                    self.resume_point = ResumePoint(walk.position, 0)
        finally:
            self._write_header()
        self.resume_point = max(self.resume_point, ResumePoint(walk.position, 0))
        self.made_progress = self.resume_point.physical_offset > before
        return self.resume_point.physical_offset >= up_to or walk.torn_at is not None

    def _put_record(self, record: Record) -> None:
        hashes = index_hashes(record, with_tags=self._with_tags)
        for key_hash in hashes[self.resume_point.entries_in :]:
            if not self._room():
                self._roll()
            self._put(key_hash, record.physical_offset, record.store_timestamp_ms)
            self.resume_point = ResumePoint(
                record.physical_offset, self.resume_point.entries_in + 1
            )

    def _put_chunk(self, chunk: Chunk, next_offset: int) -> None:
        from rocketlens.formats.compiled import kernels

        content, base_offset, rows = chunk.content, chunk.base_offset, chunk.rows
        count = kernels.count_index_entries(content, base_offset, rows, with_tags=self._with_tags)
        entries = kernels.EntryArrays.allocate(count)
        kernels.index_entries(content, base_offset, rows, entries, with_tags=self._with_tags)
        self.put(entries, next_offset)


def load_kernels() -> None:
    """Load the kernels of a builder. Takes a second, in any thread."""
    import numpy as np

    from rocketlens.formats.compiled import kernels

    content, rows = np.zeros(1, np.uint8), np.empty(1, kernels.RECORD_DTYPE)
    kernels.scan_records(content, 0, 0, 1, rows)
    entries = kernels.EntryArrays.allocate(0)
    kernels.count_index_entries(content, 0, rows[:0], with_tags=False)
    kernels.index_entries(content, 0, rows[:0], entries, with_tags=False)
    slots, room = np.zeros(SLOT.size, np.uint8), np.zeros(ENTRY_BYTES, np.uint8)
    kernels.build_index_file(entries, slots, room, slot_count=1, begin_timestamp_ms=0)
