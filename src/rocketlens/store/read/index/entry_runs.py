"""Index entries in memory: 8 bytes each, in sorted runs.

======  ============  =========================================================================
bits    what          notes
======  ============  =========================================================================
63..32  key hash      0 .. 2**31 - 1, as in an index file
31..0   offset        physical offset less the start of the run's window of 4 GiB
======  ============  =========================================================================

So a run is one array of numbers, sorted as they are; a look-up is two binary searches in each run,
and its entries are unpacked one by one, newest first, so that a look-up of the newest few of a
million pays for a few.
New entries make a run of their own. Runs of one window are merged while they are short, or the
older is less than twice as long as the newer, up to a length: a merge is a matter of 10 ms, and a
look-up in 24 million entries of some 15 runs.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

from rocketlens.late import np, npt

MAX_RUN_ENTRIES: Final = 1 << 21
"""Entries of a sorted run that merging makes: 16 MiB."""
WINDOW_BITS: Final = 32
_OFFSET_MASK: Final = (1 << WINDOW_BITS) - 1
_SORT_AFTER_LOOK_UPS: Final = 4
"""Entries are sorted after this number of look-ups: a single one is cheaper unsorted.

A look-up in a million unsorted entries takes 2.8 ms; sorting them takes 10 ms, and after that a
look-up takes 6 us.
"""

_SMALL: Final = 1 << 16
"""Entries of runs that are merged however long each is: a millisecond."""
_FIRST_UNPACKED: Final = 64
_MAX_UNPACKED: Final = 8192
"""Entries of a hash that are unpacked at once: few at first, then more and more."""


class EntryRun(NamedTuple):
    """Packed entries of one window of the log."""

    window: int
    packed: "npt.NDArray[np.uint64]"
    is_sorted: bool = False

    def find(self, bounds: "npt.NDArray[np.uint64]", few: list[int]) -> list[Iterator[int]]:
        """Look up the physical offsets of the entries of each hash.

        A hash has the entries from ``bounds[2 * i]`` to below ``bounds[2 * i + 1]``. Those of a
        hash that has few are added to ``few``, in no order; those of another are returned as an
        iterator that descends.
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
        """Yield the physical offsets of the entries of one hash from the last to the first."""
        base = self.window << WINDOW_BITS
        end, count = len(packed), _FIRST_UNPACKED
        while end > 0:
            start = max(end - count, 0)
            for entry in packed[start:end][::-1].tolist():
                yield base + (entry & _OFFSET_MASK)
            end, count = start, min(2 * count, _MAX_UNPACKED)

    def _candidates(self, bounds: "npt.NDArray[np.uint64]") -> "npt.NDArray[np.uint64]":
        """Return the entries that have one of the hashes of ``bounds``, sorted."""
        shift = np.uint64(WINDOW_BITS)
        packed = self.packed[np.isin(self.packed >> shift, bounds[::2] >> shift)]
        packed.sort()
        return packed


class EntryRuns:
    """Hashes and physical offsets. For one thread at a time."""

    def __init__(self) -> None:
        """Create an empty collection."""
        self._runs: list[EntryRun] = []
        self.is_compact = True
        """Whether all runs are sorted."""
        self._look_ups = 0
        self.count = 0
        """Number of entries."""

    @property
    def runs(self) -> Sequence[EntryRun]:
        """All runs; those that are not sorted have their entries in the log's order."""
        return self._runs

    def add(self, hashes: "npt.NDArray[np.int32]", offsets: "npt.NDArray[np.int64]") -> None:
        """Add entries, whose offsets ascend."""
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
        each run, and each further one of many O(log runs), so take no more than are needed.
        ``others`` are offsets that come in between.
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
        """Sort unsorted entries, and merge short runs."""
        if self.is_compact:
            return
        self.is_compact = True
        unsorted = [run for run in self._runs if not run.is_sorted]
        self._runs = [run for run in self._runs if run.is_sorted]
        for window, runs in groupby(unsorted, key=lambda run: run.window):
            packed = np.concatenate([run.packed for run in runs])
            packed.sort()
            self._runs.append(EntryRun(window, packed, is_sorted=True))
            while len(self._runs) > 1 and _are_to_merge(*self._runs[-2:]):
                packed = np.concatenate([run.packed for run in self._runs[-2:]])
                # A stable sort merges two sorted halves at a tenth of the default sort's cost.
                packed.sort(kind="stable")
                self._runs[-2:] = [EntryRun(window, packed, is_sorted=True)]

    def drop_below(self, physical_offset: int) -> None:
        """Drop the entries of records before an offset. O(entries of that offset's window)."""
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
    """Merge descending iterators, without reading ahead in them."""
    return parts[0] if len(parts) == 1 else merge(*parts, reverse=True)


def _are_to_merge(older: EntryRun, newer: EntryRun) -> bool:
    lengths = len(older.packed), len(newer.packed)
    return older.window == newer.window and (
        sum(lengths) <= _SMALL or (lengths[0] < 2 * lengths[1] and sum(lengths) <= MAX_RUN_ENTRIES)
    )
