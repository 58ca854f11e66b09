"""The log of a store that is being written, for readers in the same process."""

from pathlib import Path
from typing import Final

from rocketlens.errors import NotAStore, StoreBusy
from rocketlens.formats.commitlog_record import TOTAL_SIZE
from rocketlens.store.read.log.commitlog import CommitLog, Segment
from rocketlens.store.write.append import Appender


class LogView:
    """Reads records of a log while it is appended to. For the thread that appends."""

    def __init__(self, directory: Path, appender: Appender, first_end_offset: int) -> None:
        """Open the log, which ended at ``first_end_offset`` before anything was appended.

        :raises OSError: when it cannot be opened now.
        """
        try:
            self._log: Final = CommitLog(directory)
        except NotAStore as error:
            raise error.__cause__ or error from None
        self._appender = appender
        self._first_end_offset = first_end_offset

    @property
    def min_offset(self) -> int:
        """The physical offset of the first byte that is not deleted."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """The physical offset behind the last record."""
        last = self._appender.last
        return self._first_end_offset if last is None else last.physical_offset + last.store_size

    @property
    def appended_bytes(self) -> int:
        """Number of bytes appended since the log was opened."""
        return self.end_offset - self._first_end_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Return the bytes of a record; None if the log does not have all of them.

        ``size``: as its consume queue says, or 0 for what its first four bytes say.

        :raises StoreBusy: when the segments cannot be listed now, and it may be in a new one.
        :raises SegmentLost: when its segment cannot be opened now.
        """
        tail = self.log_from(physical_offset)
        if tail is None:
            return None
        view, base_offset = tail
        start = physical_offset - base_offset
        if not size and start + TOTAL_SIZE.size <= len(view):
            (size,) = TOTAL_SIZE.unpack_from(view, start)
        stop = start + size
        return view[start:stop] if size > 0 and stop <= len(view) else None

    def log_from(self, physical_offset: int) -> tuple[memoryview, int] | None:
        """Return the segment with an offset, up to the end of the log, and its first offset.

        None if the log does not have the offset.

        :raises StoreBusy: as :meth:`record`.
        :raises SegmentLost: as :meth:`record`.
        """
        if not self.min_offset <= physical_offset < self.end_offset:
            return None
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            self._log.refresh()
            segment = self._log.segment_of(physical_offset)
        if segment is None:
            if self._log.unlisted is not None:
                # For a pull, what the log does not have is a message to pass over.
                raise StoreBusy(self._log.unlisted)
            return None
        view, base_offset = self._log.map(segment).view, segment.base_offset
        return view[: self.end_offset - base_offset], base_offset

    def listed(self) -> list[Segment]:
        """List the directory again, and return its segments, oldest first."""
        self._log.refresh()
        return list(self._log.segments)

    def close(self) -> None:
        """Unmap everything."""
        self._log.close()
