"""Reads the commit log: segment files with one sequence of records.

A broker with ``enableDLegerCommitLog`` has a DLedger log, one copy of a replicated log: `Replica`.
"""

import re
import struct
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from itertools import chain, islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from rocketlens import limits
from rocketlens.errors import NotAStore, RecordError
from rocketlens.formats import commitlog_record, dledger
from rocketlens.formats.batch_body import message_at
from rocketlens.formats.commitlog_record import (
    MIN_RECORD_BYTES,
    TOTAL_SIZE,
    Reason,
    Record,
    RecordView,
    is_dispatched_to,
)
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.store import fs
from rocketlens.store.fs import MappedFiles
from rocketlens.store.layout import StoreLayout
from rocketlens.store.missing_log import missing_log

if TYPE_CHECKING:
    from os import DirEntry

SEGMENT_NAME_DIGITS: Final = 20
_SEGMENT_NAME: Final = re.compile(rf"([0-9a-f]{{8}})?[0-9]{{{SEGMENT_NAME_DIGITS}}}")
"""In tiered storage the name begins with 8 digits of a hash of the offset."""
_DATA: Final = "data"
_INDEX: Final = "index"
_CHECKPOINT: Final = "checkpoint"
_BASE_OFFSET: Final = attrgetter("base_offset")


class Segment(NamedTuple):
    """One file of the log: the physical offset of its first byte, and its size in bytes.

    ``file_id`` identifies the file that had this name when the log was listed.
    """

    path: Path
    base_offset: int
    size: int
    file_id: fs.FileId | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.size


class SegmentLost(RecordError):
    """A listed segment cannot be opened, because of ``cause``.

    ``is_gone``: the segment was deleted. Otherwise its content is unknown, and another try can
    succeed: too many open files, no memory, a failing disk, another file in its place.
    """

    def __init__(self, segment: Segment, cause: OSError) -> None:
        detail = f"{segment.path.name} cannot be read: {cause.strerror}"
        super().__init__(Reason.END, detail, segment.base_offset)
        self.cause = cause
        self.is_gone = isinstance(cause, FileNotFoundError)


class SegmentUnread(OSError):
    """A segment cannot be opened, and the reader must not skip it."""


class CommitLog:
    """Reads the records of a commit log in one or more directories.

    ``segments`` are the existing files: the broker's cleaner deletes the first ones, and a copy can
    lack others or have truncated ones. They never overlap: see :func:`_disjoint`. ``odd_files``
    names other files, including empty ones. ``version`` grows when the log is no longer the one
    that was read before: a file was replaced, truncated, or removed from the middle. ``unlisted``
    is the reason why the segments cannot be listed now; the known ones stay.
    """

    def __init__(self, *directories: Path) -> None:
        """List the segments without opening one.

        :raises NotAStore: if no segment exists, a directory cannot be read, or two directories have
            the same part of the log.
        """
        directory = directories[0]
        self.replica = Replica.beside(directory)
        """The DLedger log, if the broker writes one now."""
        if self.replica is not None:
            others = (each for each in directories if each != self.replica.data)
            directories = (self.replica.data, *filter(_has_segments, others))
        self.directories = directories
        self._mapped = MappedFiles()
        self.odd_files: tuple[str, ...] = ()
        self.segments: list[Segment] = []
        self.version = 0
        self.unlisted: str | None = None
        self.tap_note: Path | None = None
        """The note of a copy, with the ranges that it lacks."""
        self._recent: tuple[memoryview, int] | None = None
        self._stop = limits.MAX_PHYSICAL_OFFSET
        self._stamps: list[tuple[str, fs.DirectoryStamp | None]] = []
        try:
            self._list()
        except OSError as error:
            message = f"{error.filename or directory} cannot be read: {error.strerror}"
            raise NotAStore(message) from error
        if not self.segments:
            raise NotAStore(missing_log(directory))

    @classmethod
    def of(cls, layout: StoreLayout) -> Self:
        log = cls(*layout.commit_logs)
        log.tap_note = layout.tap
        return log

    def end_before(self, physical_offset: int) -> None:
        """Hide the log from a record start on."""
        self._stop = physical_offset
        self.refresh()

    def refresh(self) -> None:
        """List the segments again: a running broker adds and deletes some.

        If none is left, or the directory cannot be read any more, the list stays and ``unlisted``
        is set.
        """
        before = self.segments
        self.unlisted = None
        try:
            self._list()
        except OSError as error:
            self.unlisted = f"{error.filename or self._names} cannot be listed: {error.strerror}"
        except NotAStore as error:
            self.unlisted = str(error)
        else:
            if not self.segments:
                self.unlisted = f"{self._names} has no segment any more"
        if self.unlisted is not None:
            self.segments, self._stamps = before, []
            return
        for file in set(map(_file_of, before)).difference(map(_file_of, self.segments)):
            self._mapped.drop(file)
        if _is_other_log(before, self.segments):
            self.version += 1

    def refresh_if_changed(self) -> None:
        """List the segments again if a file was added, deleted or replaced since the last listing.

        A system call for each directory. A file that grew or was truncated in place is noticed when
        it is read.
        """
        self._mapped.invalidate()
        self._recent = None
        if self.replica is not None:
            self.replica.refresh()
        for directory, stamp in self._stamps:
            if stamp is None or not fs.is_as_stamped(directory, stamp):
                break
        else:
            if self._stamps:
                return
        self.refresh()

    def _list(self) -> None:
        self._recent = None
        self._stamps = [(str(each), fs.directory_stamp(each)) for each in self.directories]
        segments: list[Segment] = []
        odd_files: list[str] = []
        for entry in self._entries():
            size = _segment_size(entry)
            if size:
                base_offset = _base_offset(entry.name)
                segments.append(Segment(Path(entry.path), base_offset, size, fs.file_id(entry)))
            else:
                odd_files.append(entry.name)
        segments.sort(key=lambda segment: segment.base_offset)
        # Unchanged segments are kept: the mapping of an identical path object is found faster.
        before = {segment.base_offset: segment for segment in self.segments}
        self.segments = [
            known if (known := before.get(segment.base_offset)) == segment else segment
            for segment in map(self._before_stop, _disjoint(segments))
            if segment.size > 0
        ]
        kept = {segment.path for segment in self.segments}
        odd_files += [s.path.name for s in segments if s.path not in kept]
        self.odd_files = tuple(odd_files)

    def _before_stop(self, segment: Segment) -> Segment:
        size = min(segment.size, self._stop - segment.base_offset)
        return segment if size == segment.size else segment._replace(size=size)

    def _entries(self) -> "list[DirEntry[str]]":
        """Return the entries of all directories, by name.

        :raises NotAStore: if two directories have the same part of the log.
        """
        if len(self.directories) == 1:
            return list(fs.entries(self.directories[0]))
        entries = [entry for each in self.directories for entry in fs.entries(each)]
        entries.sort(key=lambda entry: entry.name)
        files = [entry for entry in entries if _segment_size(entry)]
        for one, other in pairwise(files):
            is_elsewhere = Path(one.path).parent != Path(other.path).parent
            if is_elsewhere and _base_offset(one.name) + _segment_size(one) > _base_offset(
                other.name
            ):
                raise NotAStore(f"{one.path} and {other.path} are the same part of the log")
        return entries

    @property
    def _names(self) -> str:
        return " and ".join(map(str, self.directories))

    @property
    def min_offset(self) -> int:
        """The physical offset of the first byte that is not deleted."""
        return self.segments[0].base_offset

    @property
    def max_offset(self) -> int:
        """The physical offset after the last file. The records end before it."""
        return self.segments[-1].end_offset

    @property
    def segment_bytes(self) -> int:
        distances = [
            after.base_offset - before.base_offset for before, after in pairwise(self.segments)
        ]
        return min(distances, default=self.segments[-1].size)

    def unreadable_before(self) -> Path | None:
        """Return a file before the start of the log that is empty or no regular file, or None.

        A broker never leaves one: it deletes files whole, and creates new ones only at the end.
        """
        for name in self.odd_files:
            if _SEGMENT_NAME.fullmatch(name) and _base_offset(name) < self.min_offset:
                for path in (directory / name for directory in self.directories):
                    # The broker can be deleting it. A link can be broken.
                    if path.exists() or path.is_symlink():
                        return path
        return None

    def segment_of(self, physical_offset: int) -> Segment | None:
        """Return the segment with an offset; None if no file has it. O(log segments)."""
        last = self.segments[-1]
        if physical_offset >= last.base_offset:
            return last if physical_offset < last.base_offset + last.size else None
        number = bisect_right(self.segments, physical_offset, key=_BASE_OFFSET)
        if number and physical_offset < self.segments[number - 1].end_offset:
            return self.segments[number - 1]
        return None

    def map(self, segment: Segment) -> fs.MappedFile:
        """Return the segment's bytes from the cache of mapped files.

        :raises SegmentLost: if its file cannot be opened.
        """
        try:
            return self._mapped.get(segment.path, segment.size, segment.file_id)
        except OSError as error:
            raise SegmentLost(segment, error) from error

    def bytes_at(self, physical_offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes of a segment from an offset on.

        Return empty bytes if no segment has the offset, or it cannot be opened.
        """
        try:
            found = self._view_at(physical_offset)
        except SegmentLost:
            return b""
        if found is None:
            return b""
        byte_offset = physical_offset - found[1]
        return bytes(found[0][byte_offset : byte_offset + count])

    def _view_at(self, physical_offset: int) -> tuple[memoryview, int] | None:
        """Return the bytes and the base offset of the segment with an offset, or None.

        :raises SegmentLost: as `map`.
        """
        recent = self._recent
        if recent is not None and 0 <= physical_offset - recent[1] < len(recent[0]):
            return recent
        segment = self.segment_of(physical_offset)
        if segment is None:
            return None
        self._recent = found = self.map(segment).view, segment.base_offset
        return found

    def record_at(self, physical_offset: int, *, check_crc: bool = True) -> Record:
        """Read the record at ``physical_offset``, or after the header of a DLedger entry there.

        This does not prove that a record begins there: bytes inside a body can look like one.

        :raises RecordError: with the reason, if the bytes are not a whole record of this offset.
        """
        try:
            found = self._view_at(physical_offset)
            if found is None and physical_offset >= self.max_offset:
                self.refresh()
                found = self._view_at(physical_offset)
        except SegmentLost:
            self.refresh()
            raise
        if found is None:
            detail = f"the log has offsets {self.min_offset} to {self.max_offset}"
            raise RecordError(Reason.END, detail, physical_offset)
        view, base = found
        try:
            return _record(view, base, physical_offset, check_crc=check_crc)
        except RecordError:
            header_bytes = dledger.bytes_before_record(
                view, physical_offset - base, physical_offset
            )
            if not header_bytes:
                raise
        return _record(view, base, physical_offset + header_bytes, check_crc=check_crc)

    def record_of(
        self, entry: QueueEntry, name: tuple[str, int], queue_offset: int
    ) -> Record | None:
        """Return the record that a queue entry leads to; None if it is not the entry's record."""
        try:
            record = self.record_at(entry.physical_offset, check_crc=False)
        except RecordError:
            return None
        is_it = (record.topic, record.queue_id) == name and message_at(record, queue_offset)
        return record if is_it or is_dispatched_to(record, name[0]) else None

    def time_at(self, physical_offset: int) -> int | None:
        """Return the store time of the record at an offset; None if it cannot be read now.

        Checks no checksum, and finds no record after the header of a DLedger entry.
        """
        try:
            found = self._view_at(physical_offset)
            if found is None:
                return None
            view, base = found
            return RecordView(view, physical_offset - base, physical_offset).store_timestamp_ms
        except RecordError:
            return None

    def is_finished(self, record: Record) -> bool:
        """Return True if a record is known to be written to its last byte.

        A broker copies a record from front to back, and one record after the other. So a record is
        finished if its last byte is not zero, or bytes follow it, directly or in a later segment.
        A record whose properties end with a zero byte can be finished, too. In a DLedger log a
        record is finished when it is committed.
        """
        if self.replica is not None:
            return self.replica.has_committed(record.physical_offset)
        if record.properties:
            if record.properties[-1]:
                return True
        elif not record.topic.endswith("\0"):
            return True
        end = record.physical_offset + record.total_size
        later = (each.base_offset for each in self.segments if each.base_offset > end)
        return any(
            any(self.bytes_at(offset, commitlog_record.SIZE_AND_MAGIC.size))
            for offset in chain([end], later)
        )

    def close(self) -> None:
        self._recent = None
        self._mapped.close()


class OpenLog(CommitLog):
    """A log that raises OSError for a segment that cannot be opened.

    A reader reports the segment as lost. Recovery and index builders must not take it for damage
    or for the end of the log.
    """

    def __init__(self, *directories: Path, may_lose: bool = False) -> None:
        """List the segments. With ``may_lose``, a segment deleted meanwhile counts as lost.

        :raises NotAStore: if no segment exists.
        """
        self._may_lose = may_lose
        try:
            super().__init__(*directories)
        except NotAStore as error:
            if isinstance(error.__cause__, OSError):
                # The log exists: the caller must not treat it as deleted.
                raise error.__cause__ from None
            raise

    def map(self, segment: Segment) -> fs.MappedFile:
        """Return the segment's bytes.

        :raises SegmentLost: if it was deleted, with ``may_lose``.
        """
        try:
            return super().map(segment)
        except SegmentLost as error:
            if self._may_lose and error.is_gone:
                raise
            raise error.cause from None


def _file_of(segment: Segment) -> "fs.FileId | Path":
    return segment.file_id or segment.path


def _has_segments(directory: Path) -> bool:
    return any(entry.name.isdigit() for entry in fs.entries(directory))


def _is_other_log(before: list[Segment], after: list[Segment]) -> bool:
    """Return True if a log has changed other than by appends and deletions of first segments."""
    previous = {segment.base_offset: segment for segment in before}
    for segment in after:
        old = previous.pop(segment.base_offset, None)
        if old is None:
            if before and segment.base_offset < before[-1].end_offset:
                return True
        elif old.file_id != segment.file_id or segment.size < old.size:
            return True
    return any(base_offset > after[0].base_offset for base_offset in previous)


def _record(view: memoryview, base: int, physical_offset: int, *, check_crc: bool) -> Record:
    byte_offset = physical_offset - base
    try:
        (size,) = TOTAL_SIZE.unpack_from(view, byte_offset)
        is_written = size > 0 and view[byte_offset + size - 1] != 0
    except (struct.error, IndexError):
        is_written = False
    # A record ends with its properties, or with the topic and the length 0 of the properties.
    before = b"" if is_written else _last_bytes(view, byte_offset)
    record = RecordView(view, byte_offset, physical_offset)
    if check_crc:
        record.check_crc()
    decoded = record.record()
    if is_written or before == _last_bytes(view, byte_offset):
        return decoded
    # A broker wrote its end meanwhile, so the decoded fields can be incomplete, too.
    return commitlog_record.decode(
        view, byte_offset, physical_offset=physical_offset, check_crc=check_crc
    )


def _last_bytes(view: memoryview, byte_offset: int) -> bytes:
    """Return the last 3 bytes of a record; empty if its size is impossible."""
    if byte_offset + TOTAL_SIZE.size > len(view):
        return b""
    (size,) = TOTAL_SIZE.unpack_from(view, byte_offset)
    end = byte_offset + size
    return (
        bytes(view[end - 3 : end]) if MIN_RECORD_BYTES <= size <= len(view) - byte_offset else b""
    )


def _base_offset(name: str) -> int:
    return int(name[-SEGMENT_NAME_DIGITS:])


def _segment_size(entry: "DirEntry[str]") -> int:
    if _SEGMENT_NAME.fullmatch(entry.name) is None:
        return 0
    return fs.size_of(entry) if _base_offset(entry.name) <= limits.MAX_PHYSICAL_OFFSET else 0


def _disjoint(segments: list[Segment]) -> list[Segment]:
    """Cut or drop overlapping segments.

    Overlaps come from stray files and from files that were made longer. A file that begins inside
    another is stray if its offset is no multiple of the segment size, and it does not begin with a
    record of its offset. Otherwise the other file ends there.
    """
    result: list[Segment] = []
    counts = Counter(segment.size for segment in segments)
    common_size = max(counts, key=lambda size: counts[size], default=1)
    for segment in segments:
        before = result[-1] if result else None
        if before is not None and segment.base_offset < before.end_offset:
            if segment.base_offset % common_size and not _begins_with_its_record(segment):
                continue
            result[-1] = before._replace(size=segment.base_offset - before.base_offset)
        result.append(segment)
    return result


def _begins_with_its_record(segment: Segment) -> bool:
    try:
        with fs.MappedFile(segment.path) as mapped:
            commitlog_record.decode(
                mapped.view, physical_offset=segment.base_offset, check_crc=False
            )
    except (OSError, RecordError):
        return False
    return True


class Replica:
    """The committed part of one copy of a replicated log. Later records can be taken back.

    The checkpoint in the directory is some seconds old. The broker writes a queue entry only after
    the commit of its record, so consume queues show later commits.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.data = root / _DATA
        self.committed_to = -1
        """The physical offset of the last record that is known to be committed; -1 without one."""
        self._index: int | None = None
        names = (entry.name for entry in fs.entries(self.data))
        self._first: Final = min((int(name) for name in names if name.isdigit()), default=0)
        self.refresh()

    @classmethod
    def beside(cls, commit_log: Path) -> "Replica | None":
        """Return the DLedger log beside the directory of a commit log, or None.

        If the commit log exists as well, the broker was switched to DLedger, whose log continues
        it.

        :raises NotAStore: if there is more than one DLedger log.
        """
        directory = commit_log.parent
        if commit_log.name == _DATA and directory.name.startswith("dledger-"):
            return cls(directory)
        roots = sorted(_dledger_logs(directory))
        if not roots:
            return None
        if len(roots) > 1:
            logs = ", ".join(map(str, roots))
            message = f"{directory} has more than one DLedger log ({logs}): copy it with one"
            raise NotAStore(message)
        return cls(roots[0])

    def has_committed(self, physical_offset: int) -> bool:
        """Return whether a record is known to be committed, or belongs to the log before."""
        return physical_offset <= self.committed_to or physical_offset < self._first

    def refresh(self) -> None:
        """Read the committed index again; keep the old one if it cannot be read."""
        with suppress(OSError):
            content = fs.read_bytes(self._root / _CHECKPOINT, limits.MAX_STATE_BYTES) or b""
            index = dledger.committed_index(content)
            if index is not None and index != self._index:
                self.committed_to = self._record_of(index)
                self._index = index

    def _record_of(self, index: int) -> int:
        position = index * dledger.INDEX_ITEM.size
        bases = [int(e.name) for e in fs.entries(self._root / _INDEX) if e.name.isdigit()]
        base = max((base for base in bases if base <= position), default=None)
        if base is None:
            return -1
        path = self._root / _INDEX / f"{base:020}"
        item = fs.read_part(path, position - base, dledger.INDEX_ITEM.size)
        if len(item) < dledger.INDEX_ITEM.size:
            return -1
        magic, offset, _, own_index, _ = dledger.INDEX_ITEM.unpack(item)
        is_item = magic == dledger.ENTRY_MAGIC and own_index == index
        return offset + dledger.ENTRY_HEADER_BYTES if is_item else -1


def _dledger_logs(directory: Path) -> list[Path]:
    with suppress(OSError):
        paths = islice(directory.glob("dledger-*"), limits.MAX_LOOKED_AT_ENTRIES)
        return [root for root in paths if any(fs.entries(root / _DATA))]
    return []
