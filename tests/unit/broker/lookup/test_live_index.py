"""Memory for the log that no index file covers: read in steps, dropped once one covers it.

The newest messages of a key of very many cost what the answer costs: in a store, by code 12.
"""

from contextlib import contextmanager

import pytest

import rocketlens
from rocketlens.broker.lookup import live_index, look_up
from rocketlens.broker.lookup.live_index import LiveIndex
from rocketlens.broker.lookup.look_up import LookUp
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.store.read.index.index import IndexFile
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.broker_world import in_broker, records_of
from tests.support.made_stores import NOW_MS, Sent, make_store
from tests.support.written_stores import open_small, send_many
from tests.unit.broker.searches import LARGE, NO_BUILDER


@contextmanager
def indexing(path, **arguments):
    """Open a store and its live index."""
    store = open_small(path, **arguments)
    index = LiveIndex(store)
    try:
        index.open()
        yield store, index
    finally:
        index.close()
        store.close_abruptly()


def read_all(index):
    while index.step():
        pass


def build_index(store):
    store.flush()
    while not store.build_index():
        pass


def result_of(work):
    """Run a look-up to its end."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def places(index, key):
    """Return where the messages of a key are."""
    asked = LookUp(MessageFilter("Orders", key=key, unique_key=key), 64)
    found = result_of(look_up.by_key(index, asked))
    assert not found.failures
    return [record.physical_offset for record in records_of(found.body)]


def assert_found(index, sent, step=1):
    """Look for messages, each ``step``-th of all."""
    for number in range(0, len(sent), step):
        assert places(index, f"k{number}") == [sent[number].physical_offset]
        assert places(index, f"U{number:06}") == [sent[number].physical_offset]


def test_without_any_builder_log_is_in_memory_before_anyone_asks(tmp_path):
    with indexing(tmp_path, config=LARGE, options=NO_BUILDER) as (store, index):
        sent = send_many(store, 4000, body_bytes=300)
        read_all(index)
        assert index.read_to == store.end_offset
        assert index.needs_few_reads
        assert_found(index, sent, 97)


def test_no_step_reads_more_than_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(live_index, "STEP_BYTES", 10_000)
    with indexing(tmp_path, config=LARGE, options=NO_BUILDER) as (store, index):
        sent = send_many(store, 300)
        steps, before = 0, 0
        while index.step():
            steps += 1
            assert 0 < index.read_to - before < 10_000 + sent[-1].store_size
            before = index.read_to
        assert steps >= store.end_offset // 10_500
        assert_found(index, sent)


def test_a_look_up_between_two_steps_reads_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(live_index, "STEP_BYTES", 5_000)
    with indexing(tmp_path, options=NO_BUILDER) as (store, index):
        sent = send_many(store, 200)
        index.step()
        assert index.read_to < store.end_offset
        assert index.is_far_behind
        assert places(index, "k199") == [sent[199].physical_offset]
        assert places(index, "all") == [one.physical_offset for one in sent[-64:]]


def test_what_index_files_cover_is_dropped_from_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    with indexing(tmp_path) as (store, index):
        sent = []
        for _ in range(5):
            sent += send_many(store, 100, first=len(sent))
            read_all(index)
            build_index(store)
            read_all(index)
            assert index.tail.entry_count <= 100
            assert_found(index, sent)


def test_memory_answers_for_what_a_late_builder_has_not_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    with indexing(tmp_path) as (store, index):
        sent = send_many(store, 400)
        read_all(index)
        store.flush()
        most = index.tail.entry_count
        while not store.build_index(at_most_bytes=10_000):
            read_all(index)
            assert index.tail.entry_count <= most
            assert_found(index, sent, 21)
        read_all(index)
        assert index.tail.entry_count <= 100
        assert_found(index, sent)


def test_messages_that_the_cleaner_took_leave_memory_too(tmp_path):
    with indexing(tmp_path, options=NO_BUILDER) as (store, index):
        sent = send_many(store, 300)
        read_all(index)
        before = index.tail.entry_count
        for segment in store._log.list_segments()[:3]:
            segment.path.unlink()
        store._log.list_segments()
        index.reader.log.refresh()
        read_all(index)
        assert index.tail.entry_count < before
        assert places(index, "k0") == []
        assert places(index, "k299") == [sent[299].physical_offset]


def test_a_damaged_index_file_is_not_believed_again_when_they_are_opened_anew(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    monkeypatch.setattr("rocketlens.broker.lookup.live_index.MAX_INDEX_GAP_BYTES", 1000)
    with indexing(tmp_path) as (store, index):
        sent = send_many(store, 200)
        read_all(index)
        build_index(store)
        read_all(index)
        assert_found(index, sent, 20)
        names = sorted(path.name for path in (tmp_path / "index").iterdir())
        for name in names[1:]:
            (tmp_path / "index" / name).write_bytes(b"")
        before = index.reader
        assert index.open_at > 0
        for _ in range(3):
            sent += send_many(store, 60, first=len(sent))
            read_all(index)
            assert_found(index, sent, 7)
        assert index.reader is before


@pytest.mark.parametrize("is_built_meanwhile", [False, True])
def test_a_look_up_in_pieces_keeps_its_reader_open(tmp_path, monkeypatch, is_built_meanwhile):
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    with indexing(tmp_path) as (store, index):
        send_many(store, 300)
        read_all(index)
        reader = index.reader
        with index.using(reader):
            assert index._users.total() == 1
            if is_built_meanwhile:
                build_index(store)
                read_all(index)
            assert (index.reader is not reader) == is_built_meanwhile
            reader.check_open()
        assert not index._users
        assert reader.is_closed == is_built_meanwhile


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
