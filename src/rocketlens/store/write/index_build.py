"""The broker's own builder of index files: reads what was synced to the log, as RocketMQ would."""

from typing import Any

from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.index_keys import index_hashes
from rocketlens.store.read.index_state import IndexPlace
from rocketlens.store.read.scan import LogWalk, interpreted_bytes
from rocketlens.store.write.index_writer import IndexWriter


class IndexBuilder(IndexWriter):
    """Appends to the index files of a store. Not for several threads at once.

    ``made_progress``: whether the last :meth:`build` put anything in, or passed anything.
    """

    made_progress = False

    def build(self, up_to: int, *, at_most_bytes: int = 64 * 1024 * 1024) -> bool:
        """Put in the entries of records that begin below ``up_to``; True when all of them are.

        ``up_to`` must not be above the synced end of the log.

        :raises OSError: when the disk is full, or a segment cannot be opened now; nothing is lost,
            and the next call goes on.
        """
        before = self.place.physical_offset
        self.made_progress = False
        if before >= up_to:
            return True
        self._log.refresh()
        walk = LogWalk(self._log, before, min(up_to, before + at_most_bytes), must_read=True)
        if walk.position > before:
            self.place = IndexPlace(walk.position, 0)
        switch_at = walk.position + interpreted_bytes()
        try:
            for record in walk.records():
                self._put_record(record)
                self.place = IndexPlace(walk.position, 0)
                if walk.position > switch_at:
                    break
        finally:
            self._write_header()
        for chunk in walk.chunks():
            self._put_chunk(chunk.content, chunk.base_offset, chunk.rows, walk.position)
        self.place = max(self.place, IndexPlace(walk.position, 0))
        self.made_progress = self.place.physical_offset > before
        return self.place.physical_offset >= up_to or walk.torn_at is not None

    def _put_record(self, record: Record) -> None:
        hashes = index_hashes(record, with_tags=self._with_tags)
        for key_hash in hashes[self.place.entries_in :]:
            if not self._room():
                self._roll()
            self._put(key_hash, record.physical_offset, record.store_timestamp_ms)
            self.place = IndexPlace(record.physical_offset, self.place.entries_in + 1)

    def _put_chunk(self, content: Any, base_offset: int, rows: Any, next_offset: int) -> None:
        from rocketlens.formats import kernels

        count = kernels.count_index_entries(content, base_offset, rows, with_tags=self._with_tags)
        entries = kernels.EntryArrays.allocate(count)
        kernels.index_entries(content, base_offset, rows, entries, with_tags=self._with_tags)
        self.put(entries, next_offset)
