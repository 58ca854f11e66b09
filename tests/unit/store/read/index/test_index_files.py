"""The index files of a store together: sound ones answer, and what none answers for is known."""

import pytest

from rocketlens.errors import IndexFileError
from rocketlens.model.text.java import index_hash
from rocketlens.store.read.index.index_files import PAUSE, Hit, IndexFiles, newest_first
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import hashes_of, make_store, overwrite, some_messages


@pytest.fixture
def many(tmp_path):
    """A store whose log is indexed by several files."""
    return make_store(tmp_path / "store", some_messages(200), index=(50, 60))


@pytest.fixture
def log(many):
    opened = CommitLog(many.path / "commitlog")
    yield opened
    opened.close()


def found(files, record):
    return [hit.physical_offset for hit in files.find({*hashes_of(record)})]


def test_every_record_is_found_in_one_of_several_files_newest_first(many, log):
    files = IndexFiles(many.path / "index", log)
    assert len(files.sound) > 3
    for record in many.records[::7]:
        offsets = found(files, record)
        assert record.physical_offset in offsets
        assert offsets == sorted(offsets, reverse=True)
    files.close()


def test_many_look_ups_find_the_same_as_the_first(many, log):
    files = IndexFiles(many.path / "index", log)
    first = found(files, many.records[50])
    assert all(found(files, many.records[50]) == first for _ in range(6))
    files.close()


def test_all_of_the_log_but_its_end_is_covered(many, log):
    files = IndexFiles(many.path / "index", log)
    assert files.uncovered() == [(many.records[-1].physical_offset, None)]
    files.close()


def test_a_missing_file_leaves_its_part_of_the_log_uncovered(many, log):
    whole = IndexFiles(many.path / "index", log)
    gone = whole.sound[1].header
    whole.close()
    many.index_paths()[1].unlink()
    files = IndexFiles(many.path / "index", log)
    (first, last), _ = files.uncovered()
    assert first <= gone.begin_offset
    assert last > gone.end_offset
    files.close()


@pytest.mark.parametrize("name", ["notes.txt", "20231114221320000x"])
def test_files_of_other_names_are_left_alone(many, log, name):
    before = len(many.index_paths())
    (many.path / "index" / name).write_bytes(b"x" * 100)
    files = IndexFiles(many.path / "index", log)
    assert len(files.states) == len(files.sound) == before
    files.close()


def test_a_damaged_file_is_not_used_and_named_with_its_reason(many, log):
    hurt = many.index_paths()[1]
    overwrite(hurt, 40 + 4 * 50 + 20, bytes(200))
    (many.path / "index" / "99990101000000000").mkdir()
    files = IndexFiles(many.path / "index", log)
    errors = {state.path.name: state.error for state in files.states if state.error}
    assert set(errors) == {hurt.name, "99990101000000000"}
    assert errors["99990101000000000"] == "is not a file"
    assert hurt not in [file.path for file in files.sound]
    files.close()


def test_a_file_that_begins_before_the_end_of_the_one_before_is_not_used(many, log):
    paths = many.index_paths()
    (many.path / "index" / "99990101000000000").write_bytes(paths[0].read_bytes())
    files = IndexFiles(many.path / "index", log)
    assert len(files.sound) == len(paths)
    assert [state.error for state in files.states if state.error and "overlaps" in state.error]
    files.close()


def test_a_rejected_file_is_not_looked_into_again(many, log):
    files = IndexFiles(many.path / "index", log)
    rejected, version = files.sound[0], files.version
    record = many.records[0]
    assert record.physical_offset in found(files, record)
    files.reject(rejected, IndexFileError("it is damaged"))
    assert rejected not in files.sound
    assert files.version > version
    assert record.physical_offset not in found(files, record)
    assert files.uncovered()[0][0] == 0
    assert "it is damaged" in {state.error for state in files.states}
    files.close()


def test_files_that_a_broker_makes_or_adds_to_are_seen(many, log, monkeypatch):
    # Small files are copied when they are opened; these are mapped, as large ones are.
    monkeypatch.setattr("rocketlens.store.read.index.index._COPY_BYTES", 0)
    last = many.index_paths()[-1]
    content = last.read_bytes()
    last.unlink()
    files = IndexFiles(many.path / "index", log)
    assert not files.has_grown()
    last.write_bytes(content)
    assert files.has_grown()
    files.close()
    files = IndexFiles(many.path / "index", log)
    next_entry = int.from_bytes(content[36:40], "big")
    overwrite(last, 36, (next_entry + 1).to_bytes(4, "big"))
    assert files.has_grown()
    files.close()


def test_a_directory_that_is_not_there_has_no_files_and_covers_nothing(many, log):
    files = IndexFiles(many.path / "nowhere", log)
    assert files.sound == []
    assert files.uncovered() == [(0, None)]
    assert list(files.find({index_hash("Topic0#k")})) == []
    files.close()


def test_hits_and_memory_are_merged_newest_first_and_each_offset_comes_once():
    hits = [Hit(at, None, number) for at, number in ((9, 3), (7, 2), (7, 1), (5, 0), (3, 1))]
    merged = list(newest_first(iter(hits), iter([10, 7, 4, 4])))
    assert merged == [(10, None), (9, hits[0]), (7, hits[1]), PAUSE, (4, None), (3, hits[4])]
