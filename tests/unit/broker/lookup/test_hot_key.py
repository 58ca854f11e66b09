"""The newest messages of a key of very many cost what the answer costs: in a store, by code 12."""

import pytest

import rocketlens
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.broker_world import in_broker, records_of
from tests.support.made_stores import NOW_MS, Sent, make_store

COUNT = 20_000
KINDS = {
    "index files": {"index": (50, 3_000)},
    "one index file": {"index": (5_000, 100_000)},
    "memory": {"index": None},
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=[] if each == "index files" else [pytest.mark.slow])
        for each in KINDS
    ],
)
def made(request, tmp_path_factory):
    """A store with one message of another key among them, the oldest."""
    path = tmp_path_factory.mktemp("hot") / "store"
    messages = [Sent(keys="rare", store_timestamp_ms=NOW_MS)]
    messages += [Sent(keys="hot", store_timestamp_ms=NOW_MS + n) for n in range(1, COUNT + 1)]
    return make_store(path, messages, **KINDS[request.param])


@pytest.fixture
def reads(monkeypatch):
    """How many records are decoded or compared, and index entries read."""
    counts = {"records": 0, "entries": 0}

    def count(kind, owner, name):
        method = getattr(owner, name)

        def counted(self, *arguments, **options):
            counts[kind] += 1
            return method(self, *arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    count("records", CommitLog, "record_at")
    count("entries", IndexFile, "entry")
    return counts


ASKED = [("rare", 64), ("hot", 1), ("hot", 64)]


def assert_cost(key, max_num, times, reads):
    if key == "rare":
        assert times == [NOW_MS]
    else:
        assert times == [NOW_MS + COUNT - n for n in reversed(range(max_num))]
    assert 0 < reads["records"] <= 4 * max_num + 256
    assert reads["entries"] <= 4 * max_num + 256


def test_the_newest_of_a_hot_key_cost_what_they_are_in_a_store(made, reads):
    with rocketlens.open_store(made.path) as store:
        # The log that no index file covers is read by the first look-up.
        store.query_message("Orders", "none")
        for key, max_num in ASKED:
            reads.update(records=0, entries=0)
            found = store.query_message("Orders", key, max_num)
            assert_cost(key, max_num, [each.store_timestamp_ms for each in found], reads)


def test_the_newest_of_a_hot_key_cost_what_they_are_at_a_broker(made, reads):
    async def test(world):
        # The log that no index file covers is read once, before anything is asked.
        while world.core.search.index.read_to < world.core.store.end_offset:
            await world.core.search.between_look_ups(world.core.search.index.step)
        for key, max_num in ASKED:
            reads.update(records=0, entries=0)
            answer = await world.query(key, maxNum=max_num)
            assert answer.code == 0
            found = [each.store_timestamp_ms for each in records_of(answer.body)]
            assert_cost(key, max_num, found, reads)

    slots, entries = made.index or (50, 100)
    in_broker(made.path.parent, test, maxHashSlotNum=slots, maxIndexNum=entries)
