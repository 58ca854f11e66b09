"""What the index does not have yet is found in memory, or read again.

Where records of a time or a later one can begin, whatever the clocks did.

Packed entries give what was put in, whatever their order, windows and merges.
"""

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens.model.text.java import index_hash
from rocketlens.store import fs
from rocketlens.store.read.index import tail
from rocketlens.store.read.index import tail as tail_module
from rocketlens.store.read.index.entry_runs import EntryRuns
from rocketlens.store.read.index.tail import TimeBounds
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support import made_stores, written_stores
from tests.support.failing_calls import FailingCalls
from tests.support.made_stores import make_store, some_messages
from tests.support.patched import change_for

PARTS = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(-5, 50)), min_size=1, max_size=40)


def knows_nothing(_record):
    """No queue and no index file can tell."""


def test_log_beyond_what_the_memory_keeps_is_read_again_and_found(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.store.read.index.tail.MAX_TAIL_ENTRIES", 50)
    monkeypatch.setattr("rocketlens.store.read.log.scan.CHUNK_ROWS", 32)
    made = make_store(tmp_path / "store", some_messages(300), index=None)
    with rocketlens.open_store(made.path) as store:
        for topic, text in made.texts()[::3]:
            found = store.query_message(topic, text, None)
            expected = [r.physical_offset for r in made.with_key(topic, text)]
            assert [m.physical_offset for m in found] == expected


def test_the_memory_sorts_what_is_asked_often_and_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "_MAX_DICTIONARY_ENTRIES", 0)
    monkeypatch.setattr("rocketlens.store.read.log.scan.CHUNK_ROWS", 16)
    made = make_store(tmp_path / "store", some_messages(200), index=None)
    log = CommitLog(made.path / "commitlog")
    memory = tail.Tail(log, knows_nothing)
    memory.cover([(0, None)])
    memory.read_new()
    hashes = {h for record in made.records[50:60] for h in made_stores.hashes_of(record)}
    first = list(memory.find(hashes))
    assert {r.physical_offset for r in made.records[50:60]} <= set(first)
    assert first == sorted(first, reverse=True)
    assert all(list(memory.find(hashes)) == first for _ in range(8))
    assert memory.end_offset == made.records[-1].physical_offset + made.records[-1].total_size
    assert set(memory.topics) == {"Topic0", "Topic1", "Topic2"}
    log.close()


def test_log_that_could_not_be_listed_is_read_once_it_can_be(tmp_path, monkeypatch):
    with written_stores.open_small(tmp_path) as store:
        written_stores.send_many(store, 60)
        log = CommitLog(tmp_path / "commitlog")
        memory = tail.Tail(log, knows_nothing)
        memory.cover([(0, None)])
        memory.read(0, store.end_offset)
        read_to = store.end_offset
        while len(list((tmp_path / "commitlog").iterdir())) < len(log.segments) + 2:
            written_stores.send(store, 60, body=b"x" * 3000)
        with monkeypatch.context() as patched:
            failing = FailingCalls(tmp_path, range(10_000))
            list_directory, here = os.scandir, threading.get_ident()

            def fail_here(path):
                # The threads of the store list directories, too.
                if threading.get_ident() != here:
                    return list_directory(path)
                return failing.count("scandir", path)

            change_for(patched, fs, "os", scandir=fail_here)
            log.refresh()
            assert memory.read(read_to, store.end_offset) == store.end_offset
            assert list(memory.damage)
            hits = set(memory.find({index_hash("Orders#k60")}))
            assert list(memory.damage)
        hits |= set(memory.find({index_hash("Orders#k60")}))
        assert [one.physical_offset for one in written_stores.records_of(tmp_path)[60:]] == sorted(
            hits
        )
        assert not memory.damage
        log.close()


@pytest.mark.parametrize("step_bytes", [1 << 30, 700])
def test_records_that_come_after_a_segment_could_not_be_opened_are_found(tmp_path, step_bytes):
    """What could not be opened is read again from where it began, however the log has grown."""

    def read_on(read_to):
        while read_to < store.end_offset:
            come_to = memory.read_end(read_to, min(store.end_offset, read_to + step_bytes))
            if come_to == read_to:
                break
            read_to = come_to
        return read_to

    with written_stores.open_small(tmp_path) as store:
        written_stores.send_many(store, 20)
        log = CommitLog(tmp_path / "commitlog")
        memory = tail.Tail(log, knows_nothing)
        read_to = read_on(0)
        assert read_to == store.end_offset
        for number in range(20, 30):
            written_stores.send(store, number)
        log._mapped.close()
        with FailingCalls(tmp_path, range(10_000)).counted():
            read_to = read_on(read_to)
            (damage,) = memory.damage
            assert damage.is_unread
            assert damage.start == read_to < store.end_offset
        for number in range(30, 40):
            written_stores.send(store, number)
        assert read_on(read_to) == store.end_offset
        assert not memory.damage
        for number in range(40):
            found = list(memory.find({index_hash(f"Orders#k{number}")}))
            assert found == [written_stores.records_of(tmp_path)[number].physical_offset]
        log.close()


@given(PARTS, st.integers(-6, 51), st.integers(0, 3_000_000))
def test_no_record_of_the_time_or_a_later_one_is_before_the_bound(parts, begin_ms, dropped):
    bounds = TimeBounds()
    for offset, most_ms in parts:
        bounds.add(offset, most_ms)
    for least in (0, dropped):
        bounds.drop_below(least)
        first = bounds.first_offset(begin_ms)
        late = [offset for offset, ms in parts if ms >= begin_ms and offset >= least]
        assert not late or (first is not None and first <= min(late))


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(-1, 21))
def test_the_bound_is_the_block_of_the_first_record_that_is_late_enough(times, begin_ms):
    bounds = TimeBounds()
    offsets = [number * tail_module._BLOCK_BYTES for number in range(len(times))]
    for offset, most_ms in zip(offsets, times, strict=True):
        bounds.add(offset, most_ms)
    late = [offset for offset, ms in zip(offsets, times, strict=True) if ms >= begin_ms]
    assert bounds.first_offset(begin_ms) == (late[0] if late else None)


WINDOW = 1 << 32
HASHES = st.integers(0, 3) | st.integers(0, 2**31 - 1)
STEPS = st.integers(0, 5) | st.integers(WINDOW - 2, 3 * WINDOW)
RUN_PARTS = st.lists(st.lists(st.tuples(HASHES, STEPS), max_size=20), max_size=12)


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


@given(RUN_PARTS, st.lists(HASHES, max_size=5, unique=True), st.integers(0, 9), st.booleans())
def test_a_look_up_gives_every_entry_of_its_hashes(parts, hashes, look_ups, is_tidy):
    runs, pairs = filled(parts)
    if is_tidy:
        runs.compact()
    for _ in range(look_ups):
        found(runs, 1)
    wanted = sorted(set(hashes))
    assert found(runs, *wanted) == sorted(offset for key, offset in pairs if key in wanted)
    assert runs.count == len(pairs)


@given(RUN_PARTS, st.integers(0, 3 * WINDOW), st.booleans())
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
