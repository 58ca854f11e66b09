"""Keeps index entries in memory: 8 bytes each, in sorted runs.

======  ============  =========================================================================
bits    content       notes
======  ============  =========================================================================
63..32  key hash      0 .. 2**31 - 1, as in an index file
31..0   offset        physical offset less the start of the run's window of 4 GiB
======  ============  =========================================================================

A run is one sorted array of numbers. A look-up makes two binary searches in each run, and unpacks
entries lazily, newest first, so that the newest few of a million are cheap.

New entries make a run of their own. Runs of one window are merged while they are short, or while
the older one is less than twice as long as the newer, up to a length. A merge takes about 10 ms;
24 million entries are in some 15 runs.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

from rocketlens.late import np, npt

MAX_RUN_ENTRIES: Final = 1 << 21
"""Maximum entries of a merged run: 16 MiB."""
WINDOW_BITS: Final = 32
_OFFSET_MASK: Final = (1 << WINDOW_BITS) - 1
_SORT_AFTER_LOOK_UPS: Final = 4
"""Entries are sorted after this number of look-ups.

In a million unsorted entries a look-up takes 2.8 ms. Sorting takes 10 ms, and then a look-up 6 us.
"""
_SMALL: Final = 1 << 16
"""Runs with fewer entries together are always merged, in a millisecond."""
_FIRST_UNPACKED: Final = 64
_MAX_UNPACKED: Final = 8192
"""Entries of a hash that are unpacked at once: few at first, then more."""


class EntryRun(NamedTuple):
    """Packed entries of one window of the log."""

    window: int
    packed: "npt.NDArray[np.uint64]"
    is_sorted: bool = False

    def find(self, bounds: "npt.NDArray[np.uint64]", few: list[int]) -> list[Iterator[int]]:
        """Look up the physical offsets of the entries of each hash.

        Hash ``i`` has the entries from ``bounds[2 * i]`` to below ``bounds[2 * i + 1]``. If they
        are few, their offsets are added to ``few``, unsorted; otherwise a descending iterator of
        them is returned.
        """
        packed = self.packed
        if not self.is_sorted:
            packed = self._candidates(bounds)
        cuts = packed.searchsorted(bounds).tolist()
        many = []
        for begin, end in zip(cuts[::2], cuts[1::2], strict=True):
            if end - begin > _FIRST_UNPACKED:
                many.append(self._descending(packed[begin:end]))
            elif begin < end:
                base = self.window << WINDOW_BITS
                few += [base + (entry & _OFFSET_MASK) for entry in packed[begin:end].tolist()]
        return many

    def _descending(self, packed: "npt.NDArray[np.uint64]") -> Iterator[int]:
        base = self.window << WINDOW_BITS
        end, count = len(packed), _FIRST_UNPACKED
        while end > 0:
            start = max(end - count, 0)
            for entry in packed[start:end][::-1].tolist():
                yield base + (entry & _OFFSET_MASK)
            end, count = start, min(2 * count, _MAX_UNPACKED)

    def _candidates(self, bounds: "npt.NDArray[np.uint64]") -> "npt.NDArray[np.uint64]":
        shift = np.uint64(WINDOW_BITS)
        packed = self.packed[np.isin(self.packed >> shift, bounds[::2] >> shift)]
        packed.sort()
        return packed


class EntryRuns:
    """A collection of hashes and physical offsets. For one thread at a time."""

    def __init__(self) -> None:
        self._runs: list[EntryRun] = []
        self.is_compact = True
        self._look_ups = 0
        self.count = 0

    @property
    def runs(self) -> Sequence[EntryRun]:
        """All runs. Unsorted ones have their entries in log order."""
        return self._runs

    def add(self, hashes: "npt.NDArray[np.int32]", offsets: "npt.NDArray[np.int64]") -> None:
        windows = (offsets[[0, -1]] >> WINDOW_BITS).tolist() if len(offsets) else (0, -1)
        start = 0
        for window in range(windows[0], windows[1] + 1):
            stop = int(np.searchsorted(offsets, (window + 1) << WINDOW_BITS))
            if stop > start:
                packed = hashes[start:stop].astype(np.uint64) << np.uint64(WINDOW_BITS)
                packed |= (offsets[start:stop] - (window << WINDOW_BITS)).astype(np.uint64)
                self._runs.append(EntryRun(window, packed))
                self.is_compact = False
            start = stop
        self.count += len(offsets)

    def find(self, hashes: Collection[int], others: Iterable[int] = ()) -> Iterator[int]:
        """Return the physical offsets of the entries with one of the hashes, newest first.

        A record with two of the hashes comes twice. The first offset costs two binary searches in
        each run, and each further one of many O(log runs), so take no more than needed. ``others``:
        offsets to merge into the result.
        """
        self._look_ups += 1
        if self._look_ups > _SORT_AFTER_LOOK_UPS:
            self.compact()
        steps = [(key_hash + end) << WINDOW_BITS for key_hash in sorted(hashes) for end in (0, 1)]
        bounds = np.array(steps, dtype=np.uint64)
        few = list(others)
        many = [offsets for run in self._runs for offsets in run.find(bounds, few)]
        few.sort(reverse=True)
        return merge_descending([*many, iter(few)])

    def compact(self) -> None:
        if self.is_compact:
            return
        self.is_compact = True
        unsorted = [run for run in self._runs if not run.is_sorted]
        self._runs = [run for run in self._runs if run.is_sorted]
        for window, runs in groupby(unsorted, key=lambda run: run.window):
            packed = np.concatenate([run.packed for run in runs])
            packed.sort()
            self._runs.append(EntryRun(window, packed, is_sorted=True))
            while len(self._runs) > 1 and _should_merge(*self._runs[-2:]):
                packed = np.concatenate([run.packed for run in self._runs[-2:]])
                # A stable sort merges two sorted halves at a tenth of the default sort's cost.
                packed.sort(kind="stable")
                self._runs[-2:] = [EntryRun(window, packed, is_sorted=True)]

    def drop_below(self, physical_offset: int) -> None:
        """Drop the entries of records before an offset. O(entries of the offset's window)."""
        window = physical_offset >> WINDOW_BITS
        least = np.uint32(physical_offset & _OFFSET_MASK)
        kept = [run for run in self._runs if run.window >= window]
        for number, run in enumerate(kept):
            if run.window == window:
                packed = run.packed[run.packed.astype(np.uint32) >= least]
                kept[number] = run._replace(packed=packed)
        self._runs = [run for run in kept if len(run.packed)]
        self.count = sum(len(run.packed) for run in self._runs)


def merge_descending(parts: Sequence[Iterator[int]]) -> Iterator[int]:
    """Merge descending iterators lazily."""
    return parts[0] if len(parts) == 1 else merge(*parts, reverse=True)


def _should_merge(older: EntryRun, newer: EntryRun) -> bool:
    lengths = len(older.packed), len(newer.packed)
    return older.window == newer.window and (
        sum(lengths) <= _SMALL or (lengths[0] < 2 * lengths[1] and sum(lengths) <= MAX_RUN_ENTRIES)
    )
