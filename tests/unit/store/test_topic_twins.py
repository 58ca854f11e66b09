"""Two topics that the compiled scan's 64-bit hash cannot tell apart. Anyone may make them."""

import shutil

import pytest

import rocketlens
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk
from tests.support import written_stores
from tests.support.made_stores import Sent, make_store

VICTIM = "order-paid-topic"
TWIN = "-NOxL7-LAfpI-mTe"


@pytest.fixture
def made(tmp_path):
    topics = ["First", TWIN, *[VICTIM] * 6, TWIN]
    sent = [Sent(topic=topic, keys=f"k{n}") for n, topic in enumerate(topics)]
    return make_store(tmp_path / "store", sent, index=None, with_queues=False)


def test_the_topics_here_are_twins(made):
    log = CommitLog(made.path / "commitlog")
    (rows,) = LogWalk(log, 0).rows()
    hashes = rows.column("topic_hash").tolist()
    assert len(set(hashes[1:])) == 1
    assert hashes[0] != hashes[1]


def test_topics_of_rows_are_told_apart_by_their_bytes(made):
    log = CommitLog(made.path / "commitlog")
    (rows,) = LogWalk(log, 0).rows()
    topics = rows.topics()
    names = [topics.names[number] for number in topics.number_of_row]
    assert names == [record.topic for record in made.records]
    offsets = [record.physical_offset for record in made.records if record.topic == TWIN]
    assert rows.choose(takes_topic=TWIN.__eq__).offsets() == offsets
    assert not len(rows.choose(takes_topic="Absent".__eq__))


@pytest.mark.parametrize("topic", [VICTIM, TWIN])
def test_a_scan_finds_each_message_of_a_topic_and_none_of_its_twin(made, topic):
    expected = [r.physical_offset for r in made.records if r.topic == topic]
    with rocketlens.open_store(made.path) as store:
        assert [m.physical_offset for m in store.scan(topic)] == expected
        found = store.find(topic=topic)
        assert ([m.physical_offset for m in found], found.complete) == (expected, True)


def test_a_key_is_found_in_either_topic_when_none_is_named(made):
    with rocketlens.open_store(made.path) as store:
        for n in range(1, len(made.records)):
            assert len(store.find(f"k{n}")) == 1


def test_recovery_gives_each_topic_its_own_queue_entries(tmp_path):
    store = written_stores.open_small(tmp_path / "store")
    for n, topic in enumerate(["First", TWIN, *[VICTIM] * 20, TWIN]):
        written_stores.send(store, n, topic=topic)
    store.close()
    for name in ("rocketlens", "consumequeue", "index", "checkpoint"):
        path = tmp_path / "store" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    store = written_stores.open_small(tmp_path / "store")
    assert [store.queues.max_offset(topic, 0) for topic in ("First", TWIN, VICTIM)] == [1, 2, 20]
    store.close()
