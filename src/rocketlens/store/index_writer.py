"""Appends entries to the index files of a store, and keeps how far they are safe.

An index file's header is its commit point. ``rocketlens/index.json`` is written after the files
were synced: the physical offset up to which everything is indexed (the *safe offset*), and the
header that every file had then. The next writer compares, takes back what was put in later, and
goes on from there; so a record's entries are in once, however often writers are killed.

Only entries of records that the log has synced may be put in, so an index never knows more than
the log does after a power cut. Exactly one writer, of whatever process, holds ``index.lock``.
"""

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rocketlens.errors import RecordError
from rocketlens.formats.index_file import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    SLOT,
    Geometry,
    IndexHeader,
    decode_header,
)
from rocketlens.store import fs
from rocketlens.store.commitlog import CommitLog
from rocketlens.store.fs import Disk, WritableFile
from rocketlens.store.index_state import IndexPlace, IndexState, read_index_state
from rocketlens.store.layout import INDEX_LOCK, StoreLayout, index_file_name
from rocketlens.store.lock import StoreLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketlens.formats.kernels import EntryArrays

_NAME_DIGITS: Final = 17
_RESERVED_BYTES: Final = 1 << 20
_INT_MAX: Final = 2**31 - 1
_ENTRY_DTYPE: Final = [
    ("key_hash", ">i4"),
    ("physical_offset", ">i8"),
    ("seconds", ">i4"),
    ("previous_entry", ">i4"),
]
_NO_HEADER: Final = IndexHeader(0, 0, 0, 0, 0, 1)


class IndexWriter:
    """The end of a store's index files. Not for several threads at once.

    ``safe_offset`` is what ``index.json`` says; ``place`` how far entries are in.
    """

    def __init__(
        self,
        layout: StoreLayout,
        geometry: Geometry,
        *,
        with_tags: bool,
        disk: Disk,
        clock: "Callable[[], int]",
        log_end: int,
    ) -> None:
        """Take the lock, and find out where to go on. The log has records below ``log_end``.

        :raises StoreLocked: when another writer has it.
        :raises OSError: when the index files cannot be read or mended.
        """
        layout.own.mkdir(parents=True, exist_ok=True)
        self._lock = StoreLock(layout.own, INDEX_LOCK)
        try:
            self._layout = layout
            self._geometry = geometry
            self._with_tags = with_tags
            self._disk = disk
            self._clock = clock
            self._log = CommitLog(layout.commit_log)
            self._names: list[str] = []
            self._headers: list[IndexHeader] = []
            self._current: WritableFile | None = None
            self._unsynced: list[WritableFile] = []
            self._reserved = 0
            self._is_changed = False
            self._is_clean = False
            self.place = self._resume()
            if self.place.physical_offset > log_end:
                self.place = IndexPlace(log_end, 0)
            self.safe_offset = self.place.physical_offset
            self._write_state()
        except BaseException:
            self._lock.release()
            raise

    def put(self, entries: "EntryArrays", next_offset: int) -> None:
        """Put in the entries of all records from ``place`` to ``next_offset``, in log order.

        What is in already is left out: entries of records before ``place`` may be given, too.

        :raises OSError: when the disk is full; ``place`` says what is in.
        """
        import numpy as np

        place = self.place
        if next_offset <= place.physical_offset:
            return
        start = int(np.searchsorted(entries.offsets, place.physical_offset)) + place.entries_in
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
            first = int(np.searchsorted(entries.offsets, offset))
            self.place = IndexPlace(offset, start - first)
            raise
        finally:
            self._write_header()
        self.place = IndexPlace(next_offset, 0)

    def _put(self, key_hash: int, physical_offset: int, timestamp_ms: int) -> None:
        file, header = self._file(), self._headers[-1]
        number = header.next_entry
        begin = header.begin_timestamp_ms
        content = file.content
        slot_position = self._geometry.slot_position(key_hash % self._geometry.slot_count)
        previous: int = SLOT.unpack_from(content, slot_position)[0]
        is_new = not 0 < previous < number
        late = timestamp_ms - begin
        seconds = min(late // 1000, _INT_MAX) if begin > 0 and late > 0 else 0
        position = self._geometry.entry_position(number)
        self._reserve(position + ENTRY_BYTES)
        ENTRY.pack_into(
            content, position, key_hash, physical_offset, seconds, 0 if is_new else previous
        )
        SLOT.pack_into(content, slot_position, number)
        if number == 1:
            header = header._replace(begin_timestamp_ms=timestamp_ms, begin_offset=physical_offset)
        self._headers[-1] = header._replace(
            end_timestamp_ms=timestamp_ms,
            end_offset=physical_offset,
            used_slot_count=header.used_slot_count + is_new,
            next_entry=number + 1,
        )
        self._is_changed = True

    def _put_many(self, entries: "EntryArrays") -> None:
        from rocketlens.formats import kernels

        file, header = self._file(), self._headers[-1]
        first = header.next_entry
        last = first + len(entries.hashes) - 1
        self._reserve(self._geometry.entry_position(last + 1))
        content = file.array()
        start = self._geometry.entry_position(0)
        used = kernels.build_index_file(
            entries,
            content[HEADER_BYTES:start],
            content[start:],
            slot_count=self._geometry.slot_count,
            begin_timestamp_ms=header.begin_timestamp_ms,
            first_entry=first,
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
        """Give how many entries the current file takes yet."""
        if not self._headers:
            return 0
        return self._geometry.entry_count - self._headers[-1].next_entry

    def _file(self) -> WritableFile:
        if self._current is None:
            self._current = self._disk.open_file(self._layout.index / self._names[-1])
            self._unsynced.append(self._current)
            self._reserved = 0
        return self._current

    def _reserve(self, stop: int) -> None:
        """Reserve room for the slots, and for the entries as they come."""
        if stop > self._reserved:
            limit = min(stop + _RESERVED_BYTES, self._geometry.file_bytes)
            self._file().reserve(self._reserved, limit)
            self._reserved = limit

    def _roll(self) -> None:
        """Make the next file; the current one is full, or there is none."""
        self._write_header()
        before = self._names[-1] if self._names else ""
        since = self._headers[-1].end_timestamp_ms if self._headers else 0
        name = index_file_name(self._clock(), before)
        path = self._layout.index / name
        self._disk.make_file(path, self._geometry.file_bytes, self._layout.scratch)
        self._current = None
        self._names.append(name)
        self._headers.append(_NO_HEADER._replace(begin_timestamp_ms=since))

    def _write_header(self) -> None:
        if self._current is not None and self._headers[-1].next_entry > 1:
            HEADER.pack_into(self._current.content, 0, *self._headers[-1])

    def sync(self) -> None:
        """Wait until what was put in is on the disk, then move the safe offset.

        :raises OSError: when it may not be; the safe offset stays.
        """
        if not self._is_changed and self.safe_offset == self.place.physical_offset:
            return
        for file in self._unsynced:
            file.sync()
        if self._names:
            self._disk.sync_directory(self._layout.index)
            self._disk.sync_directory(self._layout.root)
        for file in self._unsynced:
            if file is not self._current:
                file.close()
        self._unsynced = [self._current] if self._current is not None else []
        self._write_state()
        self._is_changed = False
        self.safe_offset = self.place.physical_offset

    def _write_state(self) -> None:
        files = tuple(zip(self._names, self._headers, strict=True))
        state = IndexState(self.place, self._with_tags, self._is_clean, files)
        self._disk.write_durably(self._layout.index_state, state.encode())

    def forget_below(self, physical_offset: int) -> list[str]:
        """Delete the files whose last entry is below ``physical_offset``, never the last; names."""
        deleted: list[str] = []
        while len(self._names) > 1 and self._headers[0].end_offset < physical_offset:
            deleted.append(self._names.pop(0))
            self._headers.pop(0)
        if deleted:
            # The files that stay must be known before the others go.
            self._is_changed = True
            self.sync()
            for name in deleted:
                self._disk.remove_file(self._layout.index / name)
        return deleted

    def _resume(self) -> IndexPlace:
        """Take the sound files over, delete the others, and give where to go on."""
        present = [
            entry.name
            for entry in fs.entries(self._layout.index)
            if len(entry.name) == _NAME_DIGITS and entry.name.isdigit() and entry.is_file()
        ]
        known = self._read_state()
        place: IndexPlace | None = None
        if known is not None:
            self._is_clean = known.is_clean
            for name, header in known.files:
                if not self._is_good(name, header, is_last=name == known.files[-1][0]):
                    break
                self._names.append(name)
                self._headers.append(header)
            if len(self._names) == len(known.files):
                place = known.place
            else:
                self._is_clean = False
        # Nothing tells whether files of another writer lack entries, so they are made anew.
        for name in present:
            if name not in self._names:
                self._disk.remove_file(self._layout.index / name)
        if not self._is_clean:
            self._take_back()
        self._is_clean = False
        return place if place is not None else self._place_behind()

    def _read_state(self) -> IndexState | None:
        """Read ``index.json``; None when it is not there, damaged, or of another log."""
        known = read_index_state(self._layout)
        if known is None or known.with_tags != self._with_tags:
            return None
        safe_offset = known.place.physical_offset
        if safe_offset < self._log.min_offset:
            return replace(known, place=IndexPlace(self._log.min_offset, 0))
        if safe_offset > self._log.min_offset and not self._is_boundary(safe_offset):
            return None
        return known

    def _is_boundary(self, physical_offset: int) -> bool:
        """Say whether a record, the log's end or a segment's end is at an offset."""
        if physical_offset >= self._log.max_offset:
            return physical_offset == self._log.max_offset
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except RecordError as error:
            return error.reason in ("end", "blank")
        return True

    def _is_good(self, name: str, header: IndexHeader, *, is_last: bool) -> bool:
        """Say whether a file still is what it was when it was synced, as far as its header says."""
        content = fs.read_bytes(self._layout.index / name, HEADER_BYTES)
        path = self._layout.index / name
        if content is None or len(content) < HEADER_BYTES:
            return False
        if path.stat().st_size != self._geometry.file_bytes:
            return False
        found = decode_header(content)
        if not is_last:
            return found == header and self._points_to_log(header)
        return (
            max(found.next_entry, 1) >= header.next_entry
            and (header.next_entry == 1 or found.begin_offset == header.begin_offset)
            and self._points_to_log(header)
        )

    def _points_to_log(self, header: IndexHeader) -> bool:
        """Say whether a file's last entry is for a record of the log, or one deleted from it."""
        if header.next_entry == 1 or header.end_offset < self._log.min_offset:
            return True
        try:
            record = self._log.record_at(header.end_offset, check_crc=False)
        except RecordError:
            return False
        return record.store_timestamp_ms == header.end_timestamp_ms

    def _take_back(self) -> None:
        """Make the last file as it was synced: later entries go, slots are made from the rest."""
        import numpy as np

        if not self._names:
            return
        file, header = self._file(), self._headers[-1]
        geometry = self._geometry
        file.reserve(0, geometry.entry_position(header.next_entry))
        content = file.array()
        start = geometry.entry_position(0)
        entries = content[start : geometry.entry_position(header.next_entry)].view(_ENTRY_DTYPE)
        hashes = entries["key_hash"][1:].astype(np.int64)
        slots = np.zeros(geometry.slot_count, np.int32)
        # Of several entries of one slot the last assignment stays: the newest entry.
        slots[hashes % geometry.slot_count] = np.arange(1, header.next_entry, dtype=np.int32)
        on_disk = content[HEADER_BYTES:start].view(">i4")
        if not np.array_equal(on_disk, slots):
            on_disk[:] = slots
        del content, entries, on_disk
        file.clear(geometry.entry_position(header.next_entry))
        if header.next_entry > 1:
            file.content[:HEADER_BYTES] = header.encode()
        else:
            file.content[:HEADER_BYTES] = bytes(HEADER_BYTES)

    def _place_behind(self) -> IndexPlace:
        """Find which record the last entry is of, and how many entries of it there are."""
        if not self._headers:
            return IndexPlace(self._log.min_offset, 0)
        end_offset = self._headers[-1].end_offset
        count = 0
        for name, header in zip(reversed(self._names), reversed(self._headers), strict=True):
            number = header.last_entry
            with fs.MappedFile(self._layout.index / name) as mapped:
                while number > 0:
                    position = self._geometry.entry_position(number)
                    if ENTRY.unpack_from(mapped.view, position)[1] != end_offset:
                        break
                    count += 1
                    number -= 1
            if number > 0:
                break
        if end_offset < self._log.min_offset:
            return IndexPlace(self._log.min_offset, 0)
        return IndexPlace(end_offset, count)

    def close(self) -> None:
        """Unmap everything and give the lock up. What was not synced is put in again later."""
        if not self._is_changed and self.safe_offset == self.place.physical_offset:
            self._is_clean = True
            with suppress(OSError):
                self._write_state()
        self.abandon()

    def abandon(self) -> None:
        """Unmap everything and give the lock up, as if this process were killed."""
        for file in self._unsynced:
            file.close()
        self._unsynced.clear()
        self._current = None
        self._log.close()
        self._lock.release()
