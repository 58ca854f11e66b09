"""The broker's own builder of index files: appends what was synced to the log, as RocketMQ would.

An index file's header is its commit point. ``rocketlens/index.json`` is written after the files
were synced: the physical offset up to which everything is indexed (the *safe offset*), and the
header that every file had then. The next builder compares, takes back what was put in later, and
goes on from there; so a record's entries are in once, however often builders are killed.

Only what the log has synced is indexed, so an index never knows more than the log does after a
power cut. Exactly one builder, of this process or another, holds ``index.lock``.
"""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import (
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
    Record,
)
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
from rocketlens.model import properties as props
from rocketlens.model.java import decode_utf8, index_hash
from rocketlens.store import fs
from rocketlens.store.commitlog import CommitLog
from rocketlens.store.fs import Disk, WritableFile
from rocketlens.store.layout import INDEX_LOCK, StoreLayout, index_file_name
from rocketlens.store.lock import StoreLock
from rocketlens.store.scan import LogWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketlens.formats.kernels import EntryArrays

_NAME_DIGITS: Final = 17
_STATE_BYTES: Final = 64 * 1024 * 1024
_RESERVED_BYTES: Final = 1 << 20
_INT_MAX: Final = 2**31 - 1
_ENTRY_DTYPE: Final = [
    ("key_hash", ">i4"),
    ("physical_offset", ">i8"),
    ("seconds", ">i4"),
    ("previous_entry", ">i4"),
]
_NO_HEADER: Final = IndexHeader(0, 0, 0, 0, 0, 1)


class IndexPlace(NamedTuple):
    """Where a builder goes on: a record's physical offset, and its entries that are in already."""

    physical_offset: int
    entries_in: int


class _Known(NamedTuple):
    """The content of ``index.json``."""

    place: IndexPlace
    files: list[tuple[str, IndexHeader]]
    is_clean: bool
    """Whether nothing was put in after it was written."""


def index_entry_hashes(record: Record, *, with_tags: bool) -> "Iterator[int]":
    """Give the hashes of a record's index entries in RocketMQ's order."""
    if record.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK:
        return
    properties = props.parse(decode_utf8(record.properties))
    if unique_key := properties.get(props.UNIQUE_KEY):
        yield index_hash(f"{record.topic}#{unique_key}")
    for key in props.split_keys(properties.get(props.KEYS)):
        yield index_hash(f"{record.topic}#{key}")
    if with_tags and (tags := properties.get(props.TAGS)):
        yield index_hash(f"{record.topic}#T#{tags}")


def safe_offset_of(layout: StoreLayout) -> int:
    """Give the safe offset of a store's index files, whoever builds them; 0 without one."""
    try:
        state: Any = json.loads(fs.read_bytes(layout.index_state, _STATE_BYTES) or b"")
        return int(state["safeOffset"])
    except (ValueError, KeyError, TypeError):
        return 0


class IndexBuilder:
    """Appends to the index files of a store. Not for several threads at once.

    ``safe_offset`` is what ``index.json`` says, ``position`` how far entries are in.
    ``made_progress``: whether the last :meth:`build` put anything in, or passed anything.
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

        :raises StoreLocked: when another builder has it.
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
            place = self._resume()
            if place.physical_offset > log_end:
                place = IndexPlace(log_end, 0)
            self.position, self._entries_in = place
            self.safe_offset = place.physical_offset
            self.made_progress = False
            self._write_state()
            self._full = self._newest_full()
        except BaseException:
            self._lock.release()
            raise

    @property
    def full(self) -> IndexHeader | None:
        """The header of the newest file that is full and synced."""
        return self._full

    def build(self, up_to: int, *, at_most_bytes: int = 64 * 1024 * 1024) -> bool:
        """Put in the entries of records that begin below ``up_to``; True when all of them are.

        ``up_to`` must not be above the synced end of the log.

        :raises OSError: when the disk is full; nothing is lost, and the next call goes on.
        """
        before = self.position
        self.made_progress = False
        if self.position >= up_to:
            return True
        self._log.refresh()
        stop = min(up_to, self.position + at_most_bytes)
        walk = LogWalk(self._log, self.position, stop)
        if walk.position > self.position:
            self._entries_in = 0
        switch_at = walk.position + limits.INTERPRETED_SCAN_BYTES
        try:
            for record in walk.records():
                self._put_record(record)
                self.position = walk.position
                if walk.position > switch_at:
                    break
            for chunk in walk.chunks():
                self._put_chunk(chunk.content, chunk.base_offset, chunk.rows)
                self.position = walk.position
        finally:
            self._write_header()
        self.position = max(walk.position, self.position)
        self.made_progress = self.position > before
        return self.position >= up_to or walk.torn_at is not None

    def _put_record(self, record: Record) -> None:
        hashes = list(index_entry_hashes(record, with_tags=self._with_tags))
        for key_hash in hashes[self._entries_in :]:
            if not self._room():
                self._roll()
            self._put(key_hash, record.physical_offset, record.store_timestamp_ms)
            self._entries_in += 1
        self._entries_in = 0

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

    def _put_chunk(self, content: Any, base_offset: int, rows: Any) -> None:
        import numpy as np

        from rocketlens.formats import kernels

        with_tags = self._with_tags
        count = kernels.count_index_entries(content, base_offset, rows, with_tags=with_tags)
        entries = kernels.EntryArrays.allocate(count)
        kernels.index_entries(content, base_offset, rows, entries, with_tags=with_tags)
        start, self._entries_in = self._entries_in, 0
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
            self.position, self._entries_in = offset, start - first
            raise

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
        if not self._is_changed and self.safe_offset == self.position:
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
        self.safe_offset = self.position
        self._full = self._newest_full()

    def _newest_full(self) -> IndexHeader | None:
        full = [one for one in self._headers[-2:] if one.next_entry >= self._geometry.entry_count]
        return full[-1] if full else None

    def _write_state(self) -> None:
        files = [
            [name, header.encode().hex()]
            for name, header in zip(self._names, self._headers, strict=True)
        ]
        state = {
            "safeOffset": self.position,
            "entriesIn": self._entries_in,
            "tags": self._with_tags,
            "clean": self._is_clean,
            "files": files,
        }
        self._disk.write_durably(
            self._layout.index_state, json.dumps(state, separators=(",", ":")).encode()
        )

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

    def _read_state(self) -> "_Known | None":
        """Read ``index.json``; None when it is not there, damaged, or of another log."""
        content = fs.read_bytes(self._layout.index_state, _STATE_BYTES)
        try:
            state: Any = json.loads(content or b"")
            files = [
                (str(name), decode_header(bytes.fromhex(header))) for name, header in state["files"]
            ]
            safe_offset, entries_in = int(state["safeOffset"]), int(state["entriesIn"])
            is_clean = state["clean"] is True
            if bool(state["tags"]) != self._with_tags:
                return None
        except (ValueError, KeyError, TypeError, IndexFileError):
            return None
        if safe_offset > self._log.min_offset and not self._is_boundary(safe_offset):
            return None
        if safe_offset < self._log.min_offset:
            safe_offset, entries_in = self._log.min_offset, 0
        return _Known(IndexPlace(safe_offset, entries_in), files, is_clean)

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
        if not self._is_changed and self.safe_offset == self.position:
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
