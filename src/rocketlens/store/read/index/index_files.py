"""All index files of a store: their checks, the ranges that they do not cover, and look-ups.

RocketMQ writes to an index file through the page cache, and syncs it when it is full; after that
it puts the file's end time into the checkpoint. So a machine that lost power, and a snapshot of a
disk, can have an unfinished file of which some pages are as they were long ago. A slot of such a
page leads past the newest entries of its chain, and nothing in the file is wrong by itself.

===============================  =============================================================
known to be complete              because
===============================  =============================================================
any file, without ``abort``       the store was closed
any file, while a broker runs     what it wrote is in the page cache, where we read it, and when
                                  it started it removed or mended what was not synced
a full file, its end time at or   RocketMQ had synced it
before that of the checkpoint
a file whose header is that of    the builder had synced it and put nothing in since
``rocketlens/index.json``
===============================  =============================================================

RocketMQ deletes the others when it starts.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
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
from rocketlens.store.read.index.index_check import (
    Extent,
    check_links,
    check_samples,
    check_whole,
)
from rocketlens.store.read.index.index_state import read_index_state
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk

if TYPE_CHECKING:
    from os import DirEntry

MAX_INDEX_CHECK_ENTRIES: Final = 400_000
"""Index files of at most so many entries together are checked whole before they are used.

Larger ones are checked by samples and along each path that a look-up walks. RocketMQ checks
nothing.
"""
_SAMPLE_COUNT: Final = 1024
"""Samples of all files that are too large to be checked whole, together."""


class SyncedFiles:
    """Separates the index files of a store that are known to be complete from the others."""

    def __init__(self, layout: StoreLayout) -> None:
        """Read the state of the store once."""
        self._is_settled = not layout.abort.exists() or _is_in_use(layout.root)
        self._synced_to_ms = 0
        self._noted: dict[str, IndexHeader] = {}
        if not self._is_settled:
            self._synced_to_ms = _index_msg_timestamp_ms(layout.checkpoint)
            self._noted = _noted_files(layout)

    def has(self, path: Path, header: IndexHeader, geometry: Geometry | None) -> bool:
        """Return whether a file is known to be complete."""
        if self._is_settled or self._noted.get(path.name) == header:
            return True
        is_full = geometry is not None and header.next_entry >= geometry.entry_count
        return is_full and 0 < header.end_timestamp_ms <= self._synced_to_ms


def _noted_files(layout: StoreLayout) -> dict[str, IndexHeader]:
    """Return the files of ``index/`` in ``index.json``; empty if it cannot be read."""
    try:
        state = read_index_state(layout)
    except OSError:
        return {}
    return {} if state is None or state.is_beside else dict(state.files)


def _is_in_use(store: Path) -> bool:
    # Imported late: few look-ups need it, and it imports all that writing a file needs.
    from rocketlens.store.lock import is_locked

    try:
        return is_locked(store)
    except OSError:
        return False


def _index_msg_timestamp_ms(path: Path) -> int:
    try:
        content = fs.read_bytes(path, checkpoint.CHECKPOINT_BYTES)
        return checkpoint.decode(content or b"").index_msg_timestamp_ms
    except (OSError, CheckpointError):
        return 0


class IndexFileState(Struct, frozen=True):
    """State of one index file. ``error`` says why it is not used; None if it is."""

    path: Path
    file: IndexFile | None
    error: str | None


class Hit(NamedTuple):
    """An entry with one of the hashes: its physical offset, its file and its number.

    Number 0 is none but a pause, see :meth:`IndexFiles.find`.
    """

    physical_offset: int
    file: IndexFile
    number: int


PAUSE: Final = (-1, None)
"""Among candidates: a millisecond went by without one."""


def newest_first(hits: Iterator[Hit], offsets: Iterator[int]) -> Iterator[tuple[int, Hit | None]]:
    """Merge the results of index files and memory: each physical offset once, newest first.

    Both must descend. With each offset comes the entry that led to it, None if only the memory
    did. Neither is read farther than the result is iterated. A pause becomes :data:`PAUSE`.
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
    """Index files as a compiled look-up has them, the newest first."""

    files: list[IndexFile]
    rows: "array[int]"
    """Four numbers for each: see `rocketlens.formats.compiled.answer`."""
    views: list[memoryview]
    """They keep the memory whose addresses are in the rows."""

    @classmethod
    def of(cls, files: list[IndexFile]) -> Self:
        """Return what there is to know of some files, of which the newest is the last."""
        newest = files[::-1]
        views = [memoryview(file.view) for file in newest]
        rows = array("q")
        for file, view in zip(newest, views, strict=True):
            rows.extend((address_of(view), len(view), 0, file.walk_numbers.buffer_info()[0]))
        return cls(newest, rows, views)


class CorruptIndexFile(Exception):
    """A file in use contradicts itself or the log."""

    def __init__(self, file: IndexFile, error: IndexFileError) -> None:
        """Store the file and the reason."""
        super().__init__(str(error))
        self.file = file
        self.error = error


class IndexFiles:
    """The index files of a store, in the order of their log, sound and unsound."""

    def __init__(self, directory: Path, log: CommitLog) -> None:
        """Open every file and decide which can be used. Files with other names are ignored."""
        self._log = log
        self._directory = directory
        self._extents: dict[IndexFile, Extent] = {}
        self._uncovered: list[tuple[int, int | None]] | None = None
        self.states: list[IndexFileState] = []
        self.version = 0
        """Incremented when a file is rejected."""
        likely: tuple[Geometry, ...] = ()
        for entry in self._listed():
            state = _open(entry, likely)
            if state.file and state.file.geometry:
                likely = (state.file.geometry,)
            self.states.append(state)
        self._check()
        self._sound = self._in_order()
        self.newest_first = NewestFirst.of(self._sound)

    def _listed(self) -> "list[DirEntry[str]]":
        try:
            return [entry for entry in fs.entries(self._directory) if entry.name.isdigit()]
        except OSError as error:
            text = f"cannot be read: {error.strerror}"
            self.states.append(IndexFileState(self._directory, None, text))
            return []

    @property
    def sound(self) -> list[IndexFile]:
        """The files that can be searched, oldest first; each has at least one entry."""
        return self._sound

    def find(self, hashes: Collection[int], *, pauses: bool = False) -> Iterator[Hit]:
        """Yield the entries with one of the hashes, newest first.

        A record with two of the hashes comes twice. Files and chains are looked into no farther
        than it is iterated. With ``pauses`` a hit with the number 0 says that a millisecond may
        have gone by: what follows is at or before its offset.

        :raises CorruptIndexFile: if a file turns out to be damaged.
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
        """Do :meth:`find` in a file that kernels leave to this."""
        walks = [file.find(key_hash, self._log, pauses=pauses) for key_hash in hashes]
        # Numbers ascend with offsets, so one chain needs no merging.
        entries = walks[0] if len(walks) == 1 else merge(*walks, reverse=True)
        try:
            for number, physical_offset in entries:
                yield Hit(physical_offset, file, number)
        except IndexFileError as error:
            raise CorruptIndexFile(file, error) from error
        if pauses:
            yield Hit(file.header.begin_offset, file, 0)

    def first_offset(self, begin_ms: int) -> int | None:
        """Return an offset before which no entry is of a record of ``begin_ms`` or later.

        Return None if no entry is of such a record. O(entries) at the first call, then O(files).
        """
        for file in self._sound:
            offset = file.time_bounds().first_offset(begin_ms)
            if offset is not None:
                return offset
        return None

    def count_slots(self) -> None:
        """Count the slots: only their number shows that one was lost.

        :raises CorruptIndexFile: if a file turns out to be damaged.
        """
        for _ in self.counting_slots():
            pass

    def counting_slots(self) -> Iterator[None]:
        """Do :meth:`count_slots` for one file after another."""
        for file in self._sound:
            if file.are_slots_counted:
                continue
            try:
                file.count_slots()
            except IndexFileError as error:
                raise CorruptIndexFile(file, error) from error
            yield

    def reject(self, file: IndexFile, error: IndexFileError) -> None:
        """Stop using a file that turned out to be damaged."""
        self._set_error(file, str(error))
        self._sound = [sound for sound in self._sound if sound is not file]
        self.newest_first = NewestFirst.of(self._sound)
        self._uncovered = None
        self.version += 1

    def _set_error(self, file: IndexFile, error: str) -> None:
        for index, state in enumerate(self.states):
            if state.file is file:
                self.states[index] = IndexFileState(state.path, None, _about(state.path, error))

    def has_grown(self) -> bool:
        """Return whether a broker added to these files, or made new ones, after the opening."""
        names = {state.path.name for state in self.states}
        return any(entry.name not in names for entry in self._listed()) or any(
            file.has_grown() for file in self._sound[-1:]
        )

    def has_entry_of(self, record: Record) -> bool | None:
        """Return whether these files have an entry of a record.

        None where they do not answer for the place, or the record has nothing to be indexed by.
        """
        offset = record.physical_offset
        for file in self._sound:
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

        Each begins at a record's start; a record that begins before its end belongs to it. The
        last one has no end. A file may have filled up in the middle of a record, so where two
        files do not meet, the last record of one and the first of the other count as not covered.
        """
        if self._uncovered is None:
            self._uncovered = self._find_uncovered()
        return self._uncovered

    def _find_uncovered(self) -> list[tuple[int, int | None]]:
        ranges: list[tuple[int, int | None]] = []
        last: int | None = None
        for file in self._sound:
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
        """Return whether all entries of a record are there, which can be in several files.

        RocketMQ names a file by the millisecond: it can have overwritten one of a few entries.
        """
        try:
            record = self._log.record_at(physical_offset, check_crc=False)
        except RecordError:
            return True
        hashes = set()
        first = bisect_left(self._sound, physical_offset, key=lambda file: file.header.end_offset)
        for file in islice(self._sound, first, None):
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
        for _ in walk.records():
            pass
        segment = self._log.segment_of(walk.position)
        if segment is None or walk.damage:
            return walk.position
        # Skip the filler, too, if that is next.
        over = LogWalk(self._log, walk.position, segment.end_offset)
        return next((record.physical_offset for record in over.records()), over.position)

    def _check(self) -> None:
        """Check each file, whole or by samples, and store the range that it covers."""
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
        """Sort the sound files by the log; their names are out of order after a clock was set back.

        A file that begins before the end of the one before is not used: one of them is stale.
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
        """Unmap everything."""
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
    """Return an error of a file without the file's name, which stands beside it."""
    return error.removeprefix(f"{path.name}: ")
