"""Packed entries give what was put in, whatever their order, windows and merges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.store.read.index.entry_runs import EntryRuns

WINDOW = 1 << 32
HASHES = st.integers(0, 3) | st.integers(0, 2**31 - 1)
STEPS = st.integers(0, 5) | st.integers(WINDOW - 2, 3 * WINDOW)
PARTS = st.lists(st.lists(st.tuples(HASHES, STEPS), max_size=20), max_size=12)


def filled(parts):
    """Put parts in, one after another; gives the runs, and hashes with offsets beside them."""
    runs, pairs, offset = EntryRuns(), [], 0
    for part in parts:
        new = []
        for key_hash, step in part:
            offset += step
            new.append((key_hash, offset))
        pairs += new
        hashes = np.array([one[0] for one in new], np.int32)
        runs.add(hashes, np.array([one[1] for one in new], np.int64))
    return runs, pairs


def found(runs, *hashes):
    offsets = list(runs.find(hashes))
    assert offsets == sorted(offsets, reverse=True), "newest first"
    return offsets[::-1]


@given(PARTS, st.lists(HASHES, max_size=5, unique=True), st.integers(0, 9), st.booleans())
def test_a_look_up_gives_every_entry_of_its_hashes(parts, hashes, look_ups, is_tidy):
    runs, pairs = filled(parts)
    if is_tidy:
        runs.compact()
    for _ in range(look_ups):
        found(runs, 1)
    wanted = sorted(set(hashes))
    assert found(runs, *wanted) == sorted(offset for key, offset in pairs if key in wanted)
    assert runs.count == len(pairs)


@given(PARTS, st.integers(0, 3 * WINDOW), st.booleans())
def test_entries_before_an_offset_are_dropped_and_no_other(parts, offset, is_tidy):
    runs, pairs = filled(parts)
    if is_tidy:
        runs.compact()
    runs.drop_below(offset)
    kept = [pair for pair in pairs if pair[1] >= offset]
    assert runs.count == len(kept)
    for key_hash in {pair[0] for pair in pairs}:
        assert found(runs, key_hash) == sorted(place for key, place in kept if key == key_hash)


def test_many_small_parts_become_few_runs():
    runs, pairs = filled([[(number % 7, 1)] for number in range(1000)])
    for _ in range(5):
        found(runs, 1)
    assert len(runs._runs) <= 12
    assert found(runs, 3) == sorted(offset for key, offset in pairs if key == 3)
