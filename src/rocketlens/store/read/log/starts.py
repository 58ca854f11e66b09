"""Remembers record starts, to decide whether an offset is one."""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Final

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.resync import Confirm
from rocketlens.store.read.log.scan import Damage, LogWalk, interpreted_bytes

_GRAIN_BYTES: Final = 4096
"""Bytes of the log for which one start is remembered."""
_INTERPRETED_BYTES: Final = 1 << 20
"""Longer walks use the compiled scan."""
_STEP_BYTES: Final = 4 << 20
"""Bytes that are walked in one step: some milliseconds."""

NearestStart = Callable[[int], int]
"""Returns a record start at or before an offset, or 0."""


class RecordStarts:
    """Decides whether an offset is a record start, by walking from the nearest known one."""

    def __init__(self, log: CommitLog, confirm: Confirm, nearest: NearestStart) -> None:
        """Start with the segments' first offsets, and those that ``nearest`` returns."""
        self._log = log
        self._confirm = confirm
        self._nearest = nearest
        self._starts: list[int] = []
        self._damage: list[Damage] = []

    def begins_at(self, physical_offset: int) -> bool:
        """Return whether a record really begins at an offset. Walks there once."""
        position = self._walk_to(physical_offset, physical_offset)
        return position == physical_offset and not self.is_known_damage(physical_offset)

    def approach(self, physical_offset: int) -> Iterator[None]:
        """Walk near to an offset in steps of some ms: then :meth:`begins_at` costs little."""
        offset = self._start_before(physical_offset) + _STEP_BYTES
        while offset < physical_offset and not self.is_known_damage(offset):
            self._walk_to(offset, offset)
            yield
            offset += _STEP_BYTES

    def is_damaged_at(self, physical_offset: int) -> bool:
        """Return whether a record began at an offset whose bytes are now damaged."""
        segment = self._log.segment_of(physical_offset)
        if segment is None:
            return False
        try:
            self._log.record_at(physical_offset, check_crc=False)
        except RecordError as error:
            if error.reason == Reason.END and self._is_behind_end(physical_offset):
                return False
        self._walk_to(physical_offset, physical_offset + 1)
        return any(damage.start == physical_offset for damage in self._damage)

    def is_known_damage(self, physical_offset: int) -> bool:
        """Return whether an offset is in a range that a walk found to be damaged."""
        index = bisect_right(self._damage, physical_offset, key=lambda damage: damage.start) - 1
        if index < 0 or physical_offset >= self._damage[index].stop:
            return False
        try:
            self._log.record_at(self._damage[index].start, check_crc=False)
        except RecordError:
            return True
        # Its bytes were written again since.
        del self._damage[index]
        return False

    def _is_behind_end(self, physical_offset: int) -> bool:
        """Return whether the log ends at or before an offset at which nothing is written."""
        last = self._starts[-1] if self._starts else self._log.min_offset
        if physical_offset < last:
            return False
        walk = LogWalk(self._log, last, confirm=self._confirm)
        self._take(walk)
        return physical_offset >= walk.position

    def _walk_to(self, physical_offset: int, stop: int) -> int:
        """Walk from the nearest known start to ``stop``; return where the walk came to."""
        if self.is_known_damage(physical_offset):
            return -1
        start = self._start_before(physical_offset)
        walk = LogWalk(self._log, start, stop, confirm=self._confirm)
        self._take(walk)
        return walk.position

    def _start_before(self, physical_offset: int) -> int:
        """Return the nearest known record start at or before an offset."""
        segment = self._log.segment_of(physical_offset)
        start = segment.base_offset if segment else self._log.min_offset
        index = bisect_right(self._starts, physical_offset) - 1
        if index >= 0:
            start = max(start, self._starts[index])
        if physical_offset - start > _GRAIN_BYTES:
            start = max(start, self._nearest(physical_offset))
        return start

    def _take(self, walk: LogWalk) -> None:
        """Walk to the end, and remember starts and damage."""
        grain = -1
        for physical_offset in walk.offsets(interpreted_bytes(_INTERPRETED_BYTES)):
            if physical_offset // _GRAIN_BYTES != grain:
                grain = physical_offset // _GRAIN_BYTES
                self._remember(physical_offset)
        for damage in walk.damage:
            if not damage.is_unread and not self.is_known_damage(damage.start):
                insort(self._damage, damage)

    def _remember(self, start: int) -> None:
        index = bisect_right(self._starts, start)
        if index == 0 or self._starts[index - 1] // _GRAIN_BYTES != start // _GRAIN_BYTES:
            self._starts.insert(index, start)
