"""What a compiled look-up needs to know of the log, as one array: see `answer`.

It stays right while memory reads on and is sorted, since the arrays of runs never change, and needs
no lock: what was appended since is compared record by record.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from rocketlens import limits
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import segment_at
from rocketlens.query.store_reader import StoreReader
from rocketlens.store.read.index.entry_runs import WINDOW_BITS, EntryRun
from rocketlens.store.read.log.commitlog import Segment

_MAX_SEGMENTS: Final = 32
"""The newest ones."""


class LogParts(NamedTuple):
    """Index files and segments of the log: what seldom changes."""

    rows: tuple[int, ...]
    file_count: int
    segment_count: int
    kept: tuple[Any, ...]
    """What the addresses in ``rows`` are of."""
    segments: list[Segment]
    """As the reader had them."""
    are_counted: list[bool]
    """Whether the slots of each file were counted."""

    def are_of(self, reader: StoreReader) -> bool:
        """Return whether the reader still has the same files and segments."""
        files = reader.index.sound
        return self.segments is reader.log.segments and self.are_counted == [
            file.are_slots_counted for file in files
        ]


class LogSnapshot(NamedTuple):
    """Runs, index files and segments of the log up to an offset."""

    read_to: int
    reader: StoreReader
    version: int
    """Of the index files, which may be rejected."""
    sources: Any
    runs: tuple[EntryRun, ...]
    """What the addresses in ``sources`` are of, as those of ``parts``."""
    parts: LogParts

    def is_of(self, index: LiveIndex) -> bool:
        """Return whether files and log are those of the index, and nothing was found damaged."""
        tail, reader = index.tail, index.reader
        return (
            self.reader is reader
            and self.version == reader.index.version
            and tail is not None
            and not tail.damage
        )


def snapshot_of(index: LiveIndex, old: LogSnapshot | None = None) -> LogSnapshot | None:
    """Return a snapshot; None if look-ups have to read log first, or look at too much.

    The thread of look-ups must be kept from working, or be the one that calls this. ``old`` is the
    one before, of which most may hold.
    """
    tail, reader = index.tail, index.reader
    runs = None if tail is None or tail.damage or index.unread else tail.packed_runs
    files = reader.index.sound
    if (
        runs is None
        or len(runs) > limits.MAX_LOOP_RUNS
        or len(files) > limits.MAX_LOOP_INDEX_FILES
        or any(
            not run.is_sorted and len(run.packed) > limits.MAX_LOOP_UNSORTED_ENTRIES for run in runs
        )
    ):
        return None
    parts = None
    if old is not None and old.is_of(index) and old.parts.are_of(reader):
        parts = old.parts
        if old.read_to == index.read_to and list(map(id, old.runs)) == list(map(id, runs)):
            return old
    parts = parts or _parts_of(reader)
    numbers = [len(runs), parts.file_count, parts.segment_count, index.read_to]
    for run in reversed(runs):
        begin = run.window << WINDOW_BITS
        numbers += run.packed.ctypes.data, len(run.packed), int(run.is_sorted), begin
    sources = np.array((*numbers, *parts.rows), np.int64)
    return LogSnapshot(index.read_to, reader, reader.index.version, sources, tuple(runs), parts)


def _parts_of(reader: StoreReader) -> LogParts:
    log, files = reader.log, reader.index.sound
    listed = log.segments
    rows: list[int] = []
    kept: list[Any] = []
    are_counted = [file.are_slots_counted for file in files]
    for file, is_counted in zip(reversed(files), reversed(are_counted), strict=True):
        content, numbers = file.array(), file.walk_numbers()
        kept += (content, numbers)
        rows += content.ctypes.data, len(content), int(is_counted), numbers.ctypes.data
    segment_count = 0
    for segment in listed[: -_MAX_SEGMENTS - 1 : -1]:
        view, base_offset = segment_at(log, segment.base_offset)
        if not view:
            break
        content = np.frombuffer(view, np.uint8)
        kept.append(content)
        rows += content.ctypes.data, len(content), 0, base_offset
        segment_count += 1
    return LogParts(tuple(rows), len(files), segment_count, tuple(kept), listed, are_counted)
