"""The commit log: segment files that together are one long sequence of records."""

import struct
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketlens.errors import NotAStore, RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import SMALLEST_RECORD, Reason, Record
from rocketlens.store import fs
from rocketlens.store.mapped import MappedFiles

if TYPE_CHECKING:
    from os import DirEntry

SEGMENT_NAME_DIGITS: Final = 20
SIZE_WORD: Final = struct.Struct(">i")
LAST_BASE_OFFSET: Final = 2**62
"""Above it no physical offset is believed: they are signed 64-bit numbers."""


class Segment(NamedTuple):
    """One file of the log: the physical offset of its first byte, and its size in bytes."""

    path: Path
    base_offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """The physical offset after its last byte."""
        return self.base_offset + self.size


class SegmentLost(RecordError):
    """A segment that was listed and cannot be opened now: deleted meanwhile, or not readable."""


class CommitLog:
    """Reads the records of a commit log directory.

    Segments are those that are there: the first may have been deleted by the broker's cleaner,
    and a copy may lack others or hold cut ones. They never overlap here: see :func:`_disjoint`.
    ``odd_files`` names files that are no segment, empty ones among them.
    """

    def __init__(self, directory: Path) -> None:
        """List the segments; none is opened yet.

        :raises NotAStore: when there is not one segment, or the directory cannot be read.
        """
        self.directory = directory
        self._mapped = MappedFiles()
        self.odd_files: tuple[str, ...] = ()
        self.segments: list[Segment] = []
        try:
            self._list()
        except OSError as error:
            message = f"{directory} cannot be read: {error.strerror}"
            raise NotAStore(message) from error
        if not self.segments:
            message = f"{directory} holds no commit log segment (a file named by 20 digits)"
            raise NotAStore(message)

    def refresh(self) -> None:
        """List the segments again: a running broker adds and deletes some.

        When none is left, or the directory cannot be read any more, the list stays as it was.
        """
        before = self.segments
        try:
            self._list()
        except OSError:
            self.segments = before
        if not self.segments:
            self.segments = before
        for segment in {s.path for s in before} - {s.path for s in self.segments}:
            self._mapped.drop(segment)

    def _list(self) -> None:
        segments: list[Segment] = []
        odd_files: list[str] = []
        for entry in fs.entries(self.directory):
            size = _segment_size(entry)
            if size:
                segments.append(Segment(Path(entry.path), int(entry.name), size))
            else:
                odd_files.append(entry.name)
        self.segments = _disjoint(segments)
        kept = {segment.path for segment in self.segments}
        odd_files += [s.path.name for s in segments if s.path not in kept]
        self.odd_files = tuple(odd_files)

    @property
    def min_offset(self) -> int:
        """The physical offset of the first byte that is still there."""
        return self.segments[0].base_offset

    @property
    def max_offset(self) -> int:
        """The physical offset after the last file; the written part ends before it."""
        return self.segments[-1].end_offset

    @property
    def segment_bytes(self) -> int:
        """The size that the broker gives its segments: the distance between their names."""
        distances = [
            after.base_offset - before.base_offset
            for before, after in zip(self.segments, self.segments[1:], strict=False)
        ]
        return min(distances, default=self.segments[-1].size)

    def segment_of(self, physical_offset: int) -> Segment | None:
        """Give the segment that holds an offset; None when no file does. O(log segments)."""
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= physical_offset:
                low = middle + 1
            else:
                high = middle
        if low and physical_offset < self.segments[low - 1].end_offset:
            return self.segments[low - 1]
        return None

    def map(self, segment: Segment) -> fs.MappedFile:
        """Give the segment's bytes, mapped once and kept for a while.

        :raises SegmentLost: when its file cannot be opened.
        """
        try:
            return self._mapped.get(segment.path, segment.size)
        except OSError as error:
            detail = f"{segment.path.name} cannot be read: {error.strerror}"
            raise SegmentLost(Reason.END, detail, segment.base_offset) from error

    def bytes_at(self, physical_offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes of the segment that holds an offset; none if it has none.

        So it is, too, when the segment cannot be opened.
        """
        segment = self.segment_of(physical_offset)
        if segment is None:
            return b""
        place = physical_offset - segment.base_offset
        try:
            return bytes(self.map(segment).view[place : place + count])
        except SegmentLost:
            return b""

    def record_at(self, physical_offset: int, *, check_crc: bool = True) -> Record:
        """Read the record that claims to begin at ``physical_offset``.

        Nothing here proves that a record begins there: bytes inside a body can look like one.

        :raises RecordError: with the reason, when these bytes are not one whole record that
            belongs at this offset.
        """
        segment = self.segment_of(physical_offset)
        if segment is None and physical_offset >= self.max_offset:
            self.refresh()
            segment = self.segment_of(physical_offset)
        if segment is None:
            detail = f"the log has offsets {self.min_offset} to {self.max_offset}"
            raise RecordError(Reason.END, detail, physical_offset)
        try:
            mapped = self.map(segment)
        except SegmentLost:
            self.refresh()
            raise
        view, place = mapped.view, physical_offset - segment.base_offset
        last_bytes = _last_bytes(view, place)
        record = commitlog_record.decode(
            view, place, physical_offset=physical_offset, check_crc=check_crc
        )
        if any(last_bytes[2:]) or last_bytes == _last_bytes(view, place):
            return record
        # A broker wrote the end of it meanwhile, so perhaps also what was decoded before that.
        return commitlog_record.decode(
            view, place, physical_offset=physical_offset, check_crc=check_crc
        )

    def is_finished(self, record: Record) -> bool:
        """Say whether the log shows that a record of it was written to its last byte.

        A broker copies a record from front to back, and each after the one before. So the record
        is finished when its last byte is not zero, or when something follows it. A record whose
        properties end with a zero byte can be finished though nothing here shows it.
        """
        if record.properties:
            if record.properties[-1]:
                return True
        elif not record.topic.endswith("\0"):
            return True
        end = record.physical_offset + record.total_size
        return any(self.bytes_at(end, commitlog_record.SIZE_AND_MAGIC.size))

    def close(self) -> None:
        """Unmap all segments."""
        self._mapped.close()


def _last_bytes(view: memoryview, place: int) -> bytes:
    """Return the last 3 bytes of the record at ``place``, none where its size is impossible.

    They are the end of the properties, or of the topic and the length of no properties.
    """
    if place + SIZE_WORD.size > len(view):
        return b""
    (size,) = SIZE_WORD.unpack_from(view, place)
    end = place + size
    return bytes(view[end - 3 : end]) if SMALLEST_RECORD <= size <= len(view) - place else b""


def _segment_size(entry: "DirEntry[str]") -> int:
    """Give the size of a file whose name is that of a segment; 0 for anything else."""
    name = entry.name
    if len(name) != SEGMENT_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return 0
    return fs.size_of(entry) if int(name) <= LAST_BASE_OFFSET else 0


def _disjoint(segments: list[Segment]) -> list[Segment]:
    """Cut or leave out segments so that no two hold the same offset.

    Overlaps come from strays and from files that were made longer. A file that begins inside
    another, in a place where segments don't begin, and not with a record that belongs there, is a
    stray; otherwise the other ends there.
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
