"""Messages of a key: who wants the newest few of many pays for a few."""

import pytest

import rocketlens
from rocketlens.store.read.index.entry_runs import EntryRuns
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import NOW_MS, Sent, make_store

COUNT = 1200
KINDS = {
    "index files": {"index": (50, 200)},
    "one index file": {"index": (50, 5000)},
    "memory": {"index": None},
}


def many_of_one_key(count=COUNT):
    return [
        Sent(keys=f"often {'odd' if n % 2 else 'even'}", store_timestamp_ms=NOW_MS + n)
        for n in range(count)
    ]


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("newest") / "store"
    return make_store(path, many_of_one_key(), **KINDS[request.param])


@pytest.fixture
def counted(monkeypatch):
    """How many records and index entries are read."""
    counts = {"records": 0, "entries": 0}

    def counting(kind, method):
        def counted_method(self, *args, **options):
            counts[kind] += 1
            return method(self, *args, **options)

        return counted_method

    monkeypatch.setattr(CommitLog, "record_at", counting("records", CommitLog.record_at))
    monkeypatch.setattr(IndexFile, "entry", counting("entries", IndexFile.entry))
    return counts


@pytest.mark.parametrize("look_ups", [1, 5])
def test_the_newest_few_of_a_key_cost_a_few_reads(made, counted, look_ups):
    with rocketlens.open_store(made.path) as store:
        for _ in range(look_ups):
            store.query_message("Orders", "often", 3)
        counted.update(records=0, entries=0)
        answer = store.query_message("Orders", "often", 3)
        assert [m.store_timestamp_ms for m in answer] == [NOW_MS + COUNT - n for n in (3, 2, 1)]
        assert answer.truncated
        assert answer.complete
        assert counted["records"] <= 10
        assert counted["entries"] <= 60


@pytest.mark.parametrize("look_ups", [1, 5])
def test_all_of_a_key_are_found_in_the_order_of_the_log(made, look_ups):
    with rocketlens.open_store(made.path) as store:
        for _ in range(look_ups):
            answer = store.query_message(None, "odd", None)
        assert [m.physical_offset for m in answer] == [
            r.physical_offset for r in made.with_key("Orders", "odd")
        ]
        assert not answer.truncated


def test_as_many_as_there_are_is_not_too_few(made):
    with rocketlens.open_store(made.path) as store:
        answer = store.query_message("Orders", "often", COUNT)
        assert (len(answer), answer.truncated) == (COUNT, False)


def test_index_files_and_memory_together_give_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.store.read.index.tail._MAX_DICTIONARY_ENTRIES", 60)
    monkeypatch.setattr("rocketlens.store.read.log.scan.CHUNK_ROWS", 32)
    made = make_store(tmp_path / "store", many_of_one_key(), index=(50, 200))
    for path in made.index_paths()[2::3]:
        path.unlink()
    expected = [r.physical_offset for r in made.with_key("Orders", "often")]
    with rocketlens.open_store(made.path) as store:
        for max_num in (1, 64, 150, 700, None):
            answer = store.query_message("Orders", "often", max_num)
            assert [m.physical_offset for m in answer] == expected[-(max_num or COUNT) :]


def test_the_memory_unpacks_no_more_than_is_taken(monkeypatch):
    import numpy as np

    runs = EntryRuns()
    offsets = np.arange(300_000, dtype=np.int64) * 100
    runs.add(np.full(300_000, 7, np.int32), offsets)
    runs.compact()
    unpacked = []
    monkeypatch.setattr(
        "rocketlens.store.read.index.entry_runs._OFFSET_MASK", _Counting((1 << 32) - 1, unpacked)
    )
    found = runs.find([7])
    assert [next(found) for _ in range(64)] == offsets[:-65:-1].tolist()
    assert len(unpacked) == 64


class _Counting(int):
    """A number that notes each number it is combined with."""

    def __new__(cls, value, seen):
        self = super().__new__(cls, value)
        self.seen = seen
        return self

    def __rand__(self, other):
        self.seen.append(other)
        return int(self) & other
