"""What a compiled look-up needs to know of the log, as one array: see `kernels_answer`.

It stays right while memory reads on and is sorted, since the arrays of runs never change, and needs
no lock: what was appended since is compared record by record.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from rocketlens import limits
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import segment_at
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.index.entry_runs import WINDOW_BITS

_MAX_RUNS: Final = 32
_MAX_SEGMENTS: Final = 8
"""The newest ones."""


class LogSnapshot(NamedTuple):
    """Runs, index files and segments of the log up to an offset."""

    read_to: int
    reader: StoreReader
    version: int
    """Of the index files, which may be rejected."""
    sources: Any
    kept: tuple[Any, ...]
    """What the addresses in ``sources`` are of."""

    def is_of(self, index: LiveIndex) -> bool:
        """Return whether files and log are those of the index, and nothing was found damaged."""
        tail, reader = index.tail, index.reader
        return (
            self.reader is reader
            and self.version == reader.index.version
            and tail is not None
            and not tail.damage
        )


def snapshot_of(index: LiveIndex) -> LogSnapshot | None:
    """Return a snapshot; None if look-ups have to read log first, or look at too much.

    The thread of look-ups must be kept from working.
    """
    tail, reader = index.tail, index.reader
    runs = None if tail is None or tail.damage or index.unread else tail.packed_runs
    files = reader.index.sound
    if runs is None or len(runs) > _MAX_RUNS or len(files) > limits.MAX_LOOP_INDEX_FILES:
        return None
    if any(
        not run.is_sorted and len(run.packed) > limits.MAX_LOOP_UNSORTED_ENTRIES for run in runs
    ):
        return None
    rows: list[tuple[int, ...]] = []
    kept: list[Any] = []
    for run in reversed(runs):
        kept.append(run.packed)
        begin = run.window << WINDOW_BITS
        rows.append((run.packed.ctypes.data, len(run.packed), int(run.is_sorted), begin))
    for file in reversed(files):
        content, numbers = file.array(), file.walk_numbers()
        kept += (content, numbers)
        counted, at = int(file.are_slots_counted), numbers.ctypes.data
        rows.append((content.ctypes.data, len(content), counted, at))
    segments = _newest_segments(index)
    for content, base_offset in segments:
        kept.append(content)
        rows.append((content.ctypes.data, len(content), 0, base_offset))
    counts = len(runs), len(files), len(segments), index.read_to
    sources = np.array([*counts, *(number for row in rows for number in row)], np.int64)
    return LogSnapshot(index.read_to, reader, reader.index.version, sources, tuple(kept))


def _newest_segments(index: LiveIndex) -> list[tuple[Any, int]]:
    """Return bytes and first offsets of the last segments, the newest first."""
    log, found = index.reader.log, []
    for segment in log.segments[: -_MAX_SEGMENTS - 1 : -1]:
        view, base_offset = segment_at(log, segment.base_offset)
        if not view:
            break
        found.append((np.frombuffer(view, np.uint8), base_offset))
    return found
