"""The commit log: segment files that together are one long sequence of records."""

from pathlib import Path
from typing import Final, NamedTuple

from rocketlens.errors import NotAStore, RecordError
from rocketlens.formats import commitlog_record
from rocketlens.formats.commitlog_record import Reason, Record
from rocketlens.store import fs

SEGMENT_NAME_DIGITS: Final = 20


class Segment(NamedTuple):
    """One file of the log: the physical offset of its first byte, and its size in bytes."""

    path: Path
    base_offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """The physical offset after its last byte."""
        return self.base_offset + self.size


class CommitLog:
    """Reads the records of a commit log directory.

    Segments are those that are there: the first may have been deleted by the broker's cleaner,
    and a copy may lack others or hold cut ones. ``odd_files`` names files that are no segment.
    """

    def __init__(self, directory: Path) -> None:
        """List the segments; none is opened yet.

        :raises NotAStore: when there is not one segment.
        """
        self.directory = directory
        self._mapped: dict[int, fs.MappedFile] = {}
        self.odd_files: tuple[str, ...] = ()
        self.segments: list[Segment] = []
        self.refresh()
        if not self.segments:
            message = f"{directory} holds no commit log segment (a file named by 20 digits)"
            raise NotAStore(message)

    def refresh(self) -> None:
        """List the segments again: a running broker adds and deletes some."""
        segments: list[Segment] = []
        odd_files: list[str] = []
        for entry in fs.entries(self.directory):
            if _is_segment_name(entry.name) and entry.is_file():
                size = entry.stat().st_size
                segments.append(Segment(Path(entry.path), int(entry.name), size))
            else:
                odd_files.append(entry.name)
        kept = {segment.base_offset for segment in segments}
        for base_offset in self._mapped.keys() - kept:
            self._mapped.pop(base_offset).close()
        self.segments = segments
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
        """Give the segment's bytes, mapped once and kept."""
        mapped = self._mapped.get(segment.base_offset)
        if mapped is None:
            mapped = self._mapped[segment.base_offset] = fs.MappedFile(segment.path)
        return mapped

    def record_at(self, physical_offset: int, *, check_crc: bool = True) -> Record:
        """Read the record that claims to begin at ``physical_offset``.

        Nothing here proves that a record begins there: bytes inside a body can look like one.

        :raises RecordError: with the reason, when these bytes are not one whole record that
            belongs at this offset.
        """
        segment = self.segment_of(physical_offset)
        if segment is None:
            detail = f"the log has offsets {self.min_offset} to {self.max_offset}"
            raise RecordError(Reason.END, detail, physical_offset)
        return commitlog_record.decode(
            self.map(segment).view,
            physical_offset - segment.base_offset,
            physical_offset=physical_offset,
            check_crc=check_crc,
        )

    def close(self) -> None:
        """Unmap all segments."""
        for mapped in self._mapped.values():
            mapped.close()
        self._mapped.clear()


def _is_segment_name(name: str) -> bool:
    return len(name) == SEGMENT_NAME_DIGITS and name.isascii() and name.isdigit()
