"""Opens, checks and searches all index files of a store, and finds the log they do not cover.

RocketMQ writes to an index file through the page cache, and syncs it when it is full. It then puts
the file's end time into the checkpoint. So an unfinished file can have old pages after a power cut,
or in a snapshot of a disk. A slot of an old page misses the newest entries of its chain, and
nothing in the file shows that.

These files are known to be complete; RocketMQ deletes the others when it starts:

* all files, without ``abort``: the store was closed;
* all files, while a broker runs: it removed or repaired unsynced files when it started, and reads
  see its writes in the page cache;
* a full file with an end time at or before that of the checkpoint: RocketMQ has synced it;
* a file with the header in ``rocketlens/index.json``: the builder has synced it and added nothing.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import suppress
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from msgspec import Struct

from rocketlens.errors import CheckpointError, IndexFileError, RecordError
from rocketlens.formats import checkpoint
from rocketlens.formats.commitlog_record import Record
from rocketlens.formats.compiled.index import address_of, find_entries
from rocketlens.formats.index_file import Geometry, IndexHeader, index_hashes
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.index.index_check import Extent, check_links, check_samples, check_whole
from rocketlens.store.read.index.index_state import read_index_state
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk, exhaust

if TYPE_CHECKING:
    from os import DirEntry

MAX_INDEX_CHECK_ENTRIES: Final = 400_000
"""Index files with at most this many entries together are checked whole before they are used.

Larger ones are checked by samples, and along each path of a look-up. RocketMQ checks nothing.
"""
_SAMPLE_COUNT: Final = 1024
"""Samples of all files together if they are not checked whole."""


class SyncedFiles:
    """Decides which index files of a store are known to be complete, by a state read once."""

    def __init__(self, layout: StoreLayout) -> None:
        self._are_all_complete = not layout.abort.exists() or _is_in_use(layout.root)
        self._synced_to_ms = 0
        self._headers: dict[str, IndexHeader] = {}
        if not self._are_all_complete:
            with suppress(OSError, CheckpointError):
                content = fs.read_bytes(layout.checkpoint, checkpoint.CHECKPOINT_BYTES) or b""
                self._synced_to_ms = checkpoint.decode(content).index_msg_timestamp_ms
            with suppress(OSError):
                state = read_index_state(layout)
                if state is not None and not state.is_beside:
                    self._headers = dict(state.files)

    def has(self, path: Path, header: IndexHeader, geometry: Geometry | None) -> bool:
        if self._are_all_complete or self._headers.get(path.name) == header:
            return True
        is_full = geometry is not None and header.next_entry >= geometry.entry_count
        return is_full and 0 < header.end_timestamp_ms <= self._synced_to_ms


def _is_in_use(store: Path) -> bool:
    # Imported late: few look-ups need it, and it imports much.
    from rocketlens.store.lock import is_locked

    with suppress(OSError):
        return is_locked(store)
    return False


class IndexFileState(Struct, frozen=True):
    """The state of one index file. ``error``: why the file is not used, or None."""

    path: Path
    file: IndexFile | None
    error: str | None


class Hit(NamedTuple):
    """An entry with one of the hashes. Number 0 marks a pause: see :meth:`IndexFiles.find`."""

    physical_offset: int
    file: IndexFile
    number: int


PAUSE: Final = (-1, None)
"""Stands among candidates for a millisecond without one."""


def newest_first(hits: Iterator[Hit], offsets: Iterator[int]) -> Iterator[tuple[int, Hit | None]]:
    """Merge the results of index files and memory: each physical offset once, newest first.

    Both must descend, and are read lazily. Each offset comes with its entry, or None if only the
    memory has it. A pause becomes :data:`PAUSE`.
    """
    hit, offset = next(hits, None), next(offsets, -1)
    while hit is not None or offset >= 0:
        if hit is not None and hit.physical_offset >= offset:
            if not hit.number:
                yield PAUSE
                hit = next(hits, None)
                continue
            newest = hit.physical_offset
            yield newest, hit
        else:
            newest = offset
            yield newest, None
        while hit is not None and hit.physical_offset == newest and hit.number:
            hit = next(hits, None)
        while offset == newest:
            offset = next(offsets, -1)


class NewestFirst(NamedTuple):
    """Index files in the form for compiled look-ups, newest first."""

    files: list[IndexFile]
    rows: "array[int]"
    """Four numbers for each: see `rocketlens.formats.compiled.answer`."""
    views: list[memoryview]
    """Keep the memory alive whose addresses are in the rows."""

    @classmethod
    def of(cls, files: list[IndexFile]) -> Self:
        """``files``: oldest first."""
        newest = files[::-1]
        views = [memoryview(file.view) for file in newest]
        rows = array("q")
        for file, view in zip(newest, views, strict=True):
            rows.extend((address_of(view), len(view), 0, file.walk_numbers.buffer_info()[0]))
        return cls(newest, rows, views)


class CorruptIndexFile(Exception):
    """An index file in use contradicts itself or the log."""

    def __init__(self, file: IndexFile, error: IndexFileError) -> None:
        super().__init__(str(error))
        self.file = file
        self.error = error


class IndexFiles:
    """All index files of a store. ``sound`` has the usable ones with entries, oldest first.

    Look-ups raise CorruptIndexFile if a file turns out to be damaged.
    """

    def __init__(self, directory: Path, log: CommitLog) -> None:
        """Open and check all files. Files with other names are ignored."""
        self._log = log
        self._directory = directory
        self._extents: dict[IndexFile, Extent] = {}
        self._uncovered: list[tuple[int, int | None]] | None = None
        self.states: list[IndexFileState] = []
        self.version = 0
        likely: tuple[Geometry, ...] = ()
        for entry in self._list_files():
            state = _open(entry, likely)
            if state.file and state.file.geometry:
                likely = (state.file.geometry,)
            self.states.append(state)
        self._check()
        self.sound = self._in_order()
        self.newest_first = NewestFirst.of(self.sound)

    def _list_files(self) -> "list[DirEntry[str]]":
        try:
            return [entry for entry in fs.entries(self._directory) if entry.name.isdigit()]
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
            self.states.append(IndexFileState(self._directory, None, text))
            return []

    def find(self, hashes: Collection[int], *, pauses: bool = False) -> Iterator[Hit]:
        """Yield the entries with one of the hashes lazily, newest first.

        A record with two of the hashes comes twice. With ``pauses``, a hit with number 0 is yielded
        about every millisecond, with an offset that is not below those of later entries.
        """
        files, wanted, searched = self.newest_first, array("q", hashes), 0
        while searched < len(files.files):
            hits, searched = find_entries(files.rows, searched, wanted)
            for index, number, physical_offset in hits:
                yield Hit(physical_offset, files.files[index], number)
            if searched < len(files.files):
                file = files.files[searched]
                yield from self._walk(file, hashes, pauses=pauses)
                searched += 1

    def _walk(self, file: IndexFile, hashes: Collection[int], *, pauses: bool) -> Iterator[Hit]:
        """Do :meth:`find` in a file that the compiled code leaves to this method."""
        walks = [file.find(key_hash, self._log, pauses=pauses) for key_hash in hashes]
        entries = walks[0] if len(walks) == 1 else merge(*walks, reverse=True)
        try:
            for number, physical_offset in entries:
                yield Hit(physical_offset, file, number)
        except IndexFileError as error:
            raise CorruptIndexFile(file, error) from error
        if pauses:
            yield Hit(file.header.begin_offset, file, 0)

    def first_offset(self, begin_ms: int) -> int | None:
        """Return an offset before which no entry is for a record stored at ``begin_ms`` or later.

        Return None if no entry at all is. O(entries) at the first call, then O(files).
        """
        for file in self.sound:
            offset = file.time_bounds.first_offset(begin_ms)
            if offset is not None:
                return offset
        return None

    def count_slots(self) -> None:
        """Count the used slots: only their number shows that one was lost."""
        for _ in self.counting_slots():
            pass

    def counting_slots(self) -> Iterator[None]:
        """Do :meth:`count_slots`, and yield after each file."""
        for file in self.sound:
            if file.are_slots_counted:
                continue
            try:
                file.count_slots()
            except IndexFileError as error:
                raise CorruptIndexFile(file, error) from error
            yield

    def reject(self, file: IndexFile, error: IndexFileError) -> None:
        self._set_error(file, str(error))
        self.sound = [sound for sound in self.sound if sound is not file]
        self.newest_first = NewestFirst.of(self.sound)
        self._uncovered = None
        self.version += 1

    def _set_error(self, file: IndexFile, error: str) -> None:
        for index, state in enumerate(self.states):
            if state.file is file:
                self.states[index] = IndexFileState(state.path, None, _about(state.path, error))

    def has_grown(self) -> bool:
        names = {state.path.name for state in self.states}
        return any(entry.name not in names for entry in self._list_files()) or any(
            file.has_grown() for file in self.sound[-1:]
        )

    def has_entry_of(self, record: Record) -> bool | None:
        """Return whether these files have an entry for a record.

        Return None if they do not cover its offset, or the record has no keys.
        """
        offset = record.physical_offset
        for file in self.sound:
            if file.header.begin_offset <= offset <= file.header.end_offset:
                number = file.number_before(offset)
                if number and file.entry(number).physical_offset == offset:
                    return file.entry(number).key_hash in index_hashes(record, with_tags=True)
        is_open = any(
            start <= offset and (stop is None or offset < stop) for start, stop in self.uncovered()
        )
        return None if is_open or not index_hashes(record, with_tags=True) else False

    def uncovered(self) -> list[tuple[int, int | None]]:
        """Return the ranges of physical offsets that no sound file covers, ascending.

        Each begins at a record start, and has all records that begin before its end. The last one
        has no end. A file can become full within a record, so between two files that do not meet,
        the last record of one and the first of the other count as not covered.
        """
        if self._uncovered is None:
            self._uncovered = self._find_uncovered()
        return self._uncovered

    def _find_uncovered(self) -> list[tuple[int, int | None]]:
        ranges: list[tuple[int, int | None]] = []
        last: int | None = None
        for file in self.sound:
            extent = self._extents[file]
            first = max(extent.first, self._log.min_offset)
            if last is None:
                if first > self._log.min_offset:
                    ranges.append((self._log.min_offset, first + 1))
            elif (first > last and first != self._after(last)) or not (
                self._has_all_of(last) and self._has_all_of(first)
            ):
                ranges.append((last, first + 1))
            ranges += extent.gaps
            last = max(extent.last, last or 0, self._log.min_offset)
        ranges.append((self._log.min_offset if last is None else last, None))
        return ranges

    def _has_all_of(self, physical_offset: int) -> bool:
        """Return whether the files have all entries of a record.

        RocketMQ names a file by the millisecond, so it can overwrite one that has few entries.
        """
        try:
            record = self._log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return True
        hashes = set()
        first = bisect_left(self.sound, physical_offset, key=lambda file: file.header.end_offset)
        for file in islice(self.sound, first, None):
            if file.header.begin_offset > physical_offset:
                break
            for number in range(file.number_before(physical_offset), 0, -1):
                entry = file.entry(number)
                if entry.physical_offset < physical_offset:
                    break
                hashes.add(entry.key_hash)
        return hashes.issuperset(index_hashes(record, with_tags=False))

    def _after(self, physical_offset: int) -> int | None:
        """Return the offset after a record, or the start of the next segment."""
        walk = LogWalk(self._log, physical_offset, physical_offset + 1)
        exhaust(walk)
        segment = self._log.segment_of(walk.position)
        if segment is None or walk.damage:
            return walk.position
        # Skip a filler.
        over = LogWalk(self._log, walk.position, segment.end_offset)
        return next((record.physical_offset for record in over.records()), over.position)

    def _check(self) -> None:
        files = [state.file for state in self.states if state.file and state.file.last_entry]
        entry_count = sum(file.last_entry for file in files)
        is_small = entry_count <= MAX_INDEX_CHECK_ENTRIES
        sample_count = max(_SAMPLE_COUNT // max(len(files), 4), 4)
        synced = None if is_small else SyncedFiles(StoreLayout(self._directory.parent))
        for file in files:
            try:
                if is_small:
                    self._extents[file] = check_whole(file, self._log)
                    file.are_slots_counted = True
                else:
                    if synced and not synced.has(file.path, file.header, file.geometry):
                        check_links(file)
                        file.are_slots_counted = True
                    self._extents[file] = check_samples(file, self._log, sample_count)
            except IndexFileError as error:
                self._set_error(file, str(error))

    def _in_order(self) -> list[IndexFile]:
        """Sort the sound files by offset: names are out of order after a clock was set back.

        Of two files that overlap one is stale, and the later one is not used.
        """
        files = [state.file for state in self.states if state.file and state.file.last_entry]
        files.sort(key=lambda file: (file.header.begin_offset, file.header.end_offset))
        sound: list[IndexFile] = []
        for file in files:
            if sound and file.header.begin_offset < sound[-1].header.end_offset:
                self._set_error(file, f"{file.path.name}: overlaps {sound[-1].path.name}")
            else:
                sound.append(file)
        return sound

    def close(self) -> None:
        self.newest_first = NewestFirst.of([])
        for state in self.states:
            if state.file:
                state.file.close()


def _open(entry: "DirEntry[str]", likely: tuple[Geometry, ...]) -> IndexFileState:
    path = Path(entry.path)
    if not entry.is_file():
        return IndexFileState(path, None, "is not a file")
    try:
        file = IndexFile(path, likely)
        if not file.last_entry:
            file.check_empty()
    except IndexFileError as error:
        return IndexFileState(path, None, _about(path, str(error)))
    except OSError as error:
        return IndexFileState(path, None, f"cannot be read: {error.strerror}")
    return IndexFileState(path, file, None)


def _about(path: Path, error: str) -> str:
    """Remove the file's name from an error: it is shown beside it."""
    return error.removeprefix(f"{path.name}: ")
