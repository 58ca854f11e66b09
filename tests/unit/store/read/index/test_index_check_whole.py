"""The rules of an index file have the same outcome, whether numpy reads its entries or not."""

import random
from itertools import pairwise

import pytest

from rocketlens.errors import IndexFileError
from rocketlens.formats.index_file import HEADER_BYTES
from rocketlens.store.read.index import index_files
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.index.index_check import check_whole
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import flip, make_store, overwrite, some_messages, write_index

SLOTS, ENTRIES = 50, 400


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(60), segment_bytes=8192, index=(SLOTS, 400))


def outcome(path, log, *, by_numpy):
    """What a check returns, or what it says is wrong."""
    try:
        file = IndexFile(path)
    except IndexFileError:
        return None
    try:
        return check_whole(file, log, by_numpy=by_numpy)
    except IndexFileError as error:
        return str(error)
    finally:
        file.close()


def both(made):
    """The outcome with both readers for each file of a store, after comparing them."""
    log = CommitLog(made.path / "commitlog")
    try:
        found = []
        for path in made.index_paths():
            one, other = (outcome(path, log, by_numpy=by_numpy) for by_numpy in (False, True))
            assert one == other
            found.append(one)
        return found
    finally:
        log.close()


def test_a_sound_file_passes_with_the_log_that_it_covers(made):
    first, last = (made.records[at].physical_offset for at in (0, -1))
    assert both(made) == [(first, last, ())]


def test_every_changed_byte_has_the_same_outcome(made):
    path = made.index_paths()[0]
    entries = HEADER_BYTES + 4 * SLOTS
    used = range(entries + 20 * (1 + 3 * 60))
    wrong = 0
    for position in random.Random(7).sample(used, 900):
        for bits in (0x01, 0x80):
            flip(path, position, bits)
            wrong += isinstance(both(made)[0], str)
            flip(path, position, bits)
    assert wrong > 900
    assert not isinstance(both(made)[0], str)


def test_every_changed_byte_of_the_log_has_the_same_outcome(made):
    bases = sorted(path.name for path in (made.path / "commitlog").iterdir())
    rng = random.Random(11)
    outcomes = set()
    for _ in range(300):
        path = made.path / "commitlog" / rng.choice(bases)
        position = rng.randrange(8192)
        flip(path, position, 0x10)
        outcomes.add(str(both(made)))
        flip(path, position, 0x10)
    assert len(outcomes) > 10


def test_records_without_entries_are_gaps(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), index=None)
    records = made.records
    write_index(made.path, [*records[:20], *records[22:40], *records[41:]], SLOTS, ENTRIES)
    ends = [record.physical_offset + record.total_size for record in records]
    gaps = ((ends[19], ends[21]), (ends[39], ends[40]))
    assert both(made) == [(0, records[-1].physical_offset, gaps)]


def test_a_damaged_record_is_no_gap_and_two_files_meet(tmp_path):
    made = make_store(tmp_path / "store", some_messages(200), index=(SLOTS, 301))
    overwrite(made.segment_path(0), made.records[9].physical_offset + 4, bytes(4))
    before, after = both(made)
    assert before.gaps == after.gaps == ()
    assert before.last < after.first


def test_a_log_that_lost_its_begin_or_its_end_has_the_same_outcome(made):
    segments = sorted((made.path / "commitlog").iterdir())
    for lost in (segments[-1], segments[0]):
        content = lost.read_bytes()
        lost.unlink()
        ((found,),) = [both(made)]
        assert not isinstance(found, str)
        lost.write_bytes(content)


def test_files_of_another_log_are_refused(made, tmp_path):
    other = make_store(tmp_path / "other", some_messages(60, body_bytes=333), segment_bytes=8192)
    made.index_paths()[0].replace(other.index_paths()[0])
    assert "point to no records" in both(other)[0]


def test_the_golden_files_pass(golden):
    for version in ("4.9.7", "5.5.0"):
        store = golden(version).store
        log = CommitLog(store / "commitlog")
        extents = [
            outcome(path, log, by_numpy=False) for path in sorted((store / "index").iterdir())
        ]
        assert extents == [
            outcome(path, log, by_numpy=True) for path in sorted((store / "index").iterdir())
        ]
        assert all(
            before.first <= before.last <= after.first for before, after in pairwise(extents)
        )
        log.close()


@pytest.mark.parametrize(("bound", "by_numpy"), [(10_000, False), (100, True)])
def test_the_number_of_entries_decides_how_a_file_is_read(made, monkeypatch, bound, by_numpy):
    called = []
    monkeypatch.setattr(
        "rocketlens.store.read.index.index_files.MAX_INTERPRETED_INDEX_ENTRIES", bound
    )
    monkeypatch.setattr(
        index_files,
        "check_whole",
        lambda file, log, by_numpy: (
            called.append(by_numpy) or check_whole(file, log, by_numpy=by_numpy)
        ),
    )
    log = CommitLog(made.path / "commitlog")
    files = index_files.IndexFiles(made.path / "index", log)
    assert called == [by_numpy]
    assert len(files.sound) == 1
    files.close()
    log.close()
