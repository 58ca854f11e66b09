"""Bounds of store times: where in the log records of a time, or of a later one, can begin.

A look-up that goes through the records of a key from the newest to the oldest stops where no older
record can be in its range of times. Store times do not always rise, because clocks are set back, so
the maximum of all records up to an offset decides, and not the time of one of them.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate

_BLOCK_BYTES = 1024 * 1024
"""Records that begin within this many bytes of log share one maximum."""


class TimeBounds:
    """The maximum store time up to each block of records. O(log blocks) to look up."""

    def __init__(self) -> None:
        """Create bounds of no records."""
        self._starts: list[int] = []
        self._most_ms: list[int] = []
        """The maximum of each block and of all blocks before it."""

    def add(self, physical_offset: int, most_ms: int) -> None:
        """Add records from an offset on, and their maximum store time.

        Records that are added in the log's order cost O(1), others O(blocks).
        """
        if not self._starts or physical_offset >= self._starts[-1] + _BLOCK_BYTES:
            self._starts.append(physical_offset)
            self._most_ms.append(max(most_ms, self._most_ms[-1]) if self._most_ms else most_ms)
            return
        if physical_offset < self._starts[-1]:
            index = bisect_right(self._starts, physical_offset)
            self._starts.insert(index, physical_offset)
            self._most_ms.insert(index, most_ms)
            self._most_ms = list(accumulate(self._most_ms, max))
        self._most_ms[-1] = max(most_ms, self._most_ms[-1])

    def first_offset(self, begin_ms: int) -> int | None:
        """Return an offset before which no record has the time ``begin_ms`` or a later one.

        Return None if no record has.
        """
        index = bisect_left(self._most_ms, begin_ms)
        return self._starts[index] if index < len(self._starts) else None

    def drop_below(self, physical_offset: int) -> None:
        """Drop the blocks that end before an offset."""
        count = max(bisect_right(self._starts, physical_offset) - 1, 0)
        del self._starts[:count], self._most_ms[:count]
