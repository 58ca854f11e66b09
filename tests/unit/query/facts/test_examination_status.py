"""The state of store directories."""

import shutil

import pytest

import rocketlens
from rocketlens.model.status import StoreClosing
from rocketlens.query.facts.examination import writer_of
from rocketlens.store.layout import StoreLayout
from rocketlens.store.lock import StoreLock
from tests.support.made_stores import Sent, make_store


@pytest.fixture
def store(golden, tmp_path):
    shutil.copytree(golden("5.5.0").store, tmp_path / "store")
    return tmp_path / "store"


def status_of(store):
    with rocketlens.open_store(store) as opened:
        return opened.status()


def test_facts_agree_with_the_listings_that_they_are_taken_from(store):
    with rocketlens.open_store(store) as opened:
        status, topics, groups = opened.status(), opened.topics(), opened.groups()
        records = list(opened.scan(all_topics=True))
    assert status.complete
    assert status.groups == groups.groups
    assert status.newest_ms == max(each.store_timestamp_ms for each in records)
    assert status.oldest_ms == min(each.oldest_ms for each in topics.topics if each.oldest_ms)
    last = max(records, key=lambda each: each.physical_offset)
    assert status.end_offset == last.physical_offset + last.store_size
    assert status.log_bytes == sum(each.stat().st_size for each in (store / "commitlog").iterdir())
    files = (store / "consumequeue").rglob("0*")
    assert status.queue_bytes == sum(each.stat().st_size for each in files if each.is_file())


def test_without_groups_it_is_not_incomplete_for_want_of_their_files(tmp_path):
    made = make_store(tmp_path / "store", [Sent()])
    with rocketlens.open_store(made.path) as opened:
        with_groups, without = opened.status(), opened.status(with_groups=False)
    assert (with_groups.complete, without.complete) == (False, True)
    assert without.groups == ()
    assert without.messages == with_groups.messages


def test_how_it_was_closed_follows_from_lock_and_abort(store):
    assert status_of(store).closing is StoreClosing.CLEAN
    (store / "abort").touch()
    assert status_of(store).closing is StoreClosing.KILLED
    with StoreLock(store):
        assert status_of(store).closing is StoreClosing.IN_USE


def test_log_that_no_index_file_covers_is_counted(store):
    before = status_of(store).index
    shutil.rmtree(store / "index")
    after = status_of(store)
    assert before.uncovered_bytes < 1000
    assert (after.index.files, after.index.entries, after.index.newest_ms) == (0, 0, None)
    assert after.index.uncovered_bytes == after.end_offset


@pytest.mark.parametrize(
    ("made", "writer"),
    [
        ((), "RocketMQ"),
        (("config/topics.json",), "RocketMQ 4"),
        (("timerwheel",), "RocketMQ 5"),
        (("rocksdbstore/",), "RocketMQ 5.5"),
        (("lock", "rocksdbstore/"), "RocketLens"),
    ],
)
def test_the_last_broker_is_named_as_precisely_as_files_tell(tmp_path, made, writer):
    content = {"config/topics.json": '{"topicConfigTable":{"T":{}}}', "lock": "lens"}
    for name in made:
        path = tmp_path / name
        if name.endswith("/"):
            path.mkdir()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content.get(name, ""))
    assert writer_of(StoreLayout(tmp_path)) == writer


def test_a_log_alone_has_a_status(store):
    for each in store.iterdir():
        if each.name != "commitlog":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    status = status_of(store)
    assert (status.messages, status.written_by, status.queue_bytes) == (1703, "RocketMQ", 0)
    assert not status.complete
