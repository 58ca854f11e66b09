"""Appends entries to the index files of a store, and stores their safe offset.

An index file's header is its commit point. After the files were synced, ``rocketlens/index.json``
is written with the physical offset up to which everything is indexed (the *safe offset*), and with
the headers of all files. The next writer continues from there
(:mod:`rocketlens.store.write.index.index_resume`). So a record's entries are written once, even if
writers are killed, or other programs add to the files in between.

Only entries of synced records are written, so after a power cut the index is never ahead of the
log. One writer of all processes holds ``index.lock``.
"""

from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rocketlens.errors import RecordError
from rocketlens.formats.compiled import index
from rocketlens.formats.index_file import HEADER, HEADER_BYTES, Geometry, IndexHeader
from rocketlens.formats.rows import IndexEntries
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import INDEX_LOCK, StoreLayout, index_file_name
from rocketlens.store.lock import StoreLock
from rocketlens.store.read.index.index_state import IndexState, ResumePoint
from rocketlens.store.read.log.commitlog import OpenLog
from rocketlens.store.read.log.scan import LogWalk
from rocketlens.store.read.note import LogMark
from rocketlens.store.write.index.index_resume import index_names, resume, slots_crc

_RESERVED_BYTES: Final = 1 << 20
_NO_HEADER: Final = IndexHeader(0, 0, 0, 0, 0, 1)


class IndexWriter:
    """Writes the end of a store's index files. For one thread at a time.

    ``safe_offset``: that in ``index.json``. ``resume_point``: the end of the written entries.
    """

    def __init__(
        self,
        layout: StoreLayout,
        geometry: Geometry,
        *,
        with_tags: bool,
        disk: Disk,
        clock: Callable[[], int],
        log_end: int,
    ) -> None:
        """Lock the index, and find the resume point. The log has synced records below ``log_end``.

        Entries beyond ``log_end``, which an earlier writer wrote, stay if the log still has their
        records.

        :raises StoreLocked: if another writer holds the lock.
        :raises OSError: if the index files cannot be read or repaired.
        """
        disk.make_directory(layout.own)
        self._lock = StoreLock(layout.own, INDEX_LOCK)
        try:
            self._layout = layout
            self._geometry = geometry
            self._with_tags = with_tags
            self._disk = disk
            self._clock = clock
            self._log = OpenLog(layout.commit_log, may_lose=True)
            self._current: WritableFile | None = None
            self._unsynced: list[WritableFile] = []
            self._reserved = 0
            self._is_changed = False
            self._is_closed = False
            self._has_others = False
            self._forgotten: list[str] = []
            resumed = resume(
                layout, geometry, disk, self._log, with_tags=with_tags, log_end=log_end
            )
            self._directory, self._names, self._headers = resumed[:3]
            self._kept_until, self._kept_full = resumed.kept_until, resumed.kept_full
            self.resume_point = resumed.resume_point
            self._mark: LogMark | None = None
            self.safe_offset = self.resume_point.physical_offset
            self._write_state()
            self._replace_others()
        except BaseException:
            self._lock.release()
            raise

    def put(self, entries: IndexEntries, next_offset: int) -> None:
        """Write the entries of all records from ``resume_point`` to ``next_offset``, in log order.

        Entries before ``resume_point`` are skipped.

        :raises OSError: if the disk is full. ``resume_point`` is after the written entries then.
        """
        resume_point = self.resume_point
        if next_offset <= resume_point.physical_offset:
            return
        first = bisect_left(entries.offsets, resume_point.physical_offset)
        start = first + resume_point.entries_in
        count = len(entries.offsets)
        try:
            while start < count:
                if not self._room():
                    self._roll()
                stop = min(count, start + self._room())
                self._put_many(entries.part(start, stop))
                start = stop
        except OSError:
            offset = int(entries.offsets[start])
            first = bisect_left(entries.offsets, offset)
            self.resume_point = ResumePoint(offset, start - first)
            raise
        finally:
            self._write_header()
        self.resume_point = ResumePoint(next_offset, 0)

    def _put_many(self, entries: IndexEntries) -> None:
        file, header = self._file(), self._headers[-1]
        first = header.next_entry
        last = first + len(entries.hashes) - 1
        self._reserve(self._geometry.entry_position(last + 1))
        content = memoryview(file.content)
        start = self._geometry.entry_position(0)
        used = index.build(
            *(*entries, first, header.begin_timestamp_ms, self._geometry.slot_count),
            *(content[HEADER_BYTES:start], content[start:]),
        )
        if first == 1:
            header = header._replace(
                begin_timestamp_ms=int(entries.timestamps[0]), begin_offset=int(entries.offsets[0])
            )
        self._headers[-1] = header._replace(
            end_timestamp_ms=int(entries.timestamps[-1]),
            end_offset=int(entries.offsets[-1]),
            used_slot_count=header.used_slot_count + used,
            next_entry=last + 1,
        )
        self._is_changed = True

    def _room(self) -> int:
        if not self._headers:
            return 0
        return self._geometry.entry_count - self._headers[-1].next_entry

    def _file(self) -> WritableFile:
        if self._current is None:
            self._current = self._disk.open_file(self._directory / self._names[-1])
            self._unsynced.append(self._current)
            self._reserved = 0
        return self._current

    def _reserve(self, stop: int) -> None:
        """Reserve blocks for the slots, and step by step for the entries."""
        if stop > self._reserved:
            limit = min(stop + _RESERVED_BYTES, self._geometry.file_bytes)
            self._file().reserve(self._reserved, limit)
            self._reserved = limit

    def _roll(self) -> None:
        self._write_header()
        before = self._names[-1] if self._names else ""
        since = self._headers[-1].end_timestamp_ms if self._headers else 0
        name = index_file_name(self._clock(), before)
        while (self._layout.index / name).exists():
            # Another builder's file has this name, and must not be replaced too early.
            name = index_file_name(self._clock(), name)
        path = self._directory / name
        self._disk.make_file(path, self._geometry.file_bytes, self._layout.scratch)
        self._current = None
        self._names.append(name)
        self._headers.append(_NO_HEADER._replace(begin_timestamp_ms=since))

    def _write_header(self) -> None:
        if self._current is not None and self._headers[-1].next_entry > 1:
            HEADER.pack_into(self._current.content, 0, *self._headers[-1])

    def sync(self) -> None:
        """Wait until all written entries are on the disk, then advance the safe offset.

        :raises OSError: if they may not be; the safe offset stays.
        """
        if self._is_changed or self.safe_offset != self.resume_point.physical_offset:
            for file in self._unsynced:
                file.sync()
            if self._names:
                self._disk.sync_directory(self._directory)
                self._disk.sync_directory(self._directory.parent)
            for file in self._unsynced:
                if file is not self._current:
                    file.close()
            self._unsynced = [self._current] if self._current is not None else []
            self._write_state()
            self._is_changed = False
            self._is_closed = False
            self.safe_offset = self.resume_point.physical_offset
        self._replace_others()

    def _write_state(self, slots: int | None = None) -> None:
        self._mark = self._last_mark()
        state = IndexState(
            self.resume_point,
            self._with_tags,
            self._geometry,
            tuple(zip(self._names, self._headers, strict=True)),
            self._mark,
            slots,
            self._is_beside,
            self._kept_full if self._is_beside else None,
        )
        self._disk.write_durably(self._layout.index_state, state.encode())

    def _last_mark(self) -> LogMark | None:
        stop = self.resume_point.physical_offset
        if stop > self._log.max_offset:
            self._log.refresh()
        starts = [self._log.min_offset, self._mark.record_offset if self._mark else 0]
        starts += [header.end_offset for header in self._headers[-1:]]
        walk = LogWalk(self._log, max(start for start in starts if start < stop or not start), stop)
        last: int | None = None
        for rows in walk.rows():
            last = rows.offsets()[-1]
        try:
            return None if last is None else LogMark.at(self._log, last)
        except RecordError:
            return None

    @property
    def _is_beside(self) -> bool:
        return self._directory != self._layout.index

    def _replace_others(self) -> None:
        """Replace the files of another builder by the new ones, if these cover as much of the log.

        :raises OSError: if it failed for now. A later call continues.
        """
        layout, disk = self._layout, self._disk
        if self._is_beside and self.resume_point.physical_offset >= self._kept_until:
            beside, self._directory = self._directory, layout.index
            try:
                # From now on the files in either directory are those of the store.
                self._write_state()
                for name in index_names(beside):
                    disk.move(beside / name, layout.index / name)
            except BaseException:
                self._directory = beside
                raise
            self._has_others = True
        if not self._has_others:
            return
        disk.sync_directory(layout.index)
        disk.sync_directory(layout.root)
        for name in index_names(layout.index):
            if name not in self._names:
                disk.remove_file(layout.index / name)
        disk.remove_tree(layout.new_index)
        self._has_others = False

    def forget_below(self, physical_offset: int) -> None:
        """Delete the files whose last entry is below ``physical_offset``, never the last file."""
        while len(self._names) > 1 and self._headers[0].end_offset < physical_offset:
            self._forgotten.append(self._names.pop(0))
            self._headers.pop(0)
            self._is_changed = True
        if self._forgotten:
            # The state must name only the remaining files before the others are deleted.
            self.sync()
            for name in self._forgotten:
                self._disk.remove_file(self._directory / name)
            self._forgotten.clear()

    def close(self) -> None:
        """Unmap everything and release the lock. The next writer writes unsynced entries again."""
        if self._is_closed:
            return
        if not self._is_changed and self.safe_offset == self.resume_point.physical_offset:
            with suppress(OSError):
                names = self._names
                crc = slots_crc(self._directory / names[-1], self._geometry) if names else None
                self._write_state(crc)
        self.close_abruptly()

    def close_abruptly(self) -> None:
        """Unmap everything and release the lock, as if this process were killed."""
        self._is_closed = True
        for file in self._unsynced:
            file.close()
        self._unsynced.clear()
        self._current = None
        self._log.close()
        self._lock.release()
