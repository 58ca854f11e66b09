"""The log of a store that is appended to, as its readers in the same process see it."""

from pathlib import Path
from typing import Final

from rocketlens.errors import NotAStore
from rocketlens.formats.commitlog_record import TOTAL_SIZE
from rocketlens.store.read.commitlog import CommitLog, Segment
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
        """The physical offset of the first byte that the log still has."""
        return self._log.min_offset

    @property
    def end_offset(self) -> int:
        """The physical offset behind the last record."""
        last = self._appender.last
        return self._first_end_offset if last is None else last.physical_offset + last.store_size

    @property
    def appended_bytes(self) -> int:
        """How far the log has grown since it was opened."""
        return self.end_offset - self._first_end_offset

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Return the bytes of a record; None when the log does not have them all.

        ``size``: as its consume queue says, or 0 for what its first four bytes say.
        """
        if not self.min_offset <= physical_offset < self.end_offset:
            return None
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            self._log.refresh()
            segment = self._log.segment_of(physical_offset)
        if segment is None:
            return None
        view = self._log.map(segment).view
        start = physical_offset - segment.base_offset
        if not size and start + TOTAL_SIZE.size <= len(view):
            (size,) = TOTAL_SIZE.unpack_from(view, start)
        stop = start + size
        if size <= 0 or stop > len(view) or physical_offset + size > self.end_offset:
            return None
        return view[start:stop]

    def listed(self) -> list[Segment]:
        """List the directory again, and return its segments, oldest first."""
        self._log.refresh()
        return list(self._log.segments)

    def close(self) -> None:
        """Unmap everything."""
        self._log.close()
