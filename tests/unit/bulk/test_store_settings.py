"""How a broker writes its store is read from the store's own files."""

import pytest

from rocketlens.bulk import store_settings
from rocketlens.formats.consumequeue_entry import DEFAULT_FILE_BYTES
from rocketlens.formats.index_file import DEFAULT_GEOMETRY, Geometry
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.synthetic import record, reference_index, write_log


@pytest.fixture
def indexed(tmp_path):
    """Make a store with an index, with or without entries of tags."""
    geometry = Geometry(50, 40)

    def make(*, with_tags):
        log = write_log(tmp_path, [record(n, TAGS=f"t{n}") for n in range(40)], 1 << 16)
        (tmp_path / "index").mkdir()
        for number, content in enumerate(reference_index(log, geometry, with_tags=with_tags)):
            (tmp_path / "index" / f"{20240101000000000 + number}").write_bytes(content)
        return tmp_path, geometry

    return make


def has_tag_entries(store, geometry):
    log = CommitLog(store / "commitlog")
    try:
        return store_settings.has_tag_entries(store, log, geometry)
    finally:
        log.close()


def test_index_files_are_those_with_a_time_for_a_name(indexed):
    store, _ = indexed(with_tags=False)
    paths = store_settings.index_paths(store)
    assert len(paths) > 1
    for stray in ("2024010100000000", "202401010000000000", "2024010100000000x", "readme"):
        (store / "index" / stray).write_bytes(b"x")
    (store / "index" / "20250101000000000").mkdir()
    assert store_settings.index_paths(store) == paths == sorted(paths)


def test_the_newest_sound_index_file_tells_the_slot_and_entry_counts(indexed, tmp_path):
    assert store_settings.index_geometry(tmp_path / "nothing") == DEFAULT_GEOMETRY
    store, geometry = indexed(with_tags=False)
    assert store_settings.index_geometry(store) == geometry
    (store / "index" / "20250101000000000").write_bytes(b"damaged")
    assert store_settings.index_geometry(store) == geometry


@pytest.mark.parametrize("with_tags", [False, True])
def test_entries_of_records_with_tags_tell_whether_tags_are_indexed(indexed, with_tags):
    store, geometry = indexed(with_tags=with_tags)
    assert has_tag_entries(store, geometry) is with_tags
    # What the files say counts before what the store looks like.
    (store / "rocksdbstore").mkdir()
    assert has_tag_entries(store, geometry) is with_tags


def test_without_entries_what_only_release_5_5_makes_tells_that_tags_are_indexed(tmp_path):
    write_log(tmp_path, [record(0)], 1 << 16)
    assert not has_tag_entries(tmp_path, DEFAULT_GEOMETRY)
    (tmp_path / "rocksdbstore").mkdir()
    assert has_tag_entries(tmp_path, DEFAULT_GEOMETRY)
    (tmp_path / "rocksdbstore").rmdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": 1}')
    assert has_tag_entries(tmp_path, DEFAULT_GEOMETRY)


def test_queue_files_have_the_size_that_most_of_them_have(tmp_path):
    assert store_settings.queue_file_bytes(tmp_path) == DEFAULT_FILE_BYTES
    for queue_id, size in enumerate((2000, 2000, 4000, 33, 0)):
        path = tmp_path / "consumequeue" / "Topic" / str(queue_id) / f"{0:020}"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(size))
    assert store_settings.queue_file_bytes(tmp_path) == 2000


def test_queues_in_rocksdb_and_of_batches_are_known(tmp_path):
    assert not store_settings.queues_are_in_rocksdb(tmp_path)
    assert store_settings.batch_topics(tmp_path) == set()
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").touch()
    (tmp_path / "batchconsumequeue" / "Batches").mkdir(parents=True)
    assert store_settings.queues_are_in_rocksdb(tmp_path)
    assert store_settings.batch_topics(tmp_path) == {"Batches"}
