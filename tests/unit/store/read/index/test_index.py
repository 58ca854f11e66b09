"""An index file is searched along its chains, and does not lie about what it has."""

import struct
from array import array
from dataclasses import replace

import pytest

from rocketlens.errors import IndexFileError
from rocketlens.formats.compiled.index import find_entries
from rocketlens.formats.index_file import HEADER_BYTES
from rocketlens.model.text.java import index_hash
from rocketlens.store.read.index import index
from rocketlens.store.read.index import tail as tail_module
from rocketlens.store.read.index.index import IndexFile, is_near
from rocketlens.store.read.index.index_files import Hit, IndexFiles
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support import made_stores, written_stores
from tests.support.made_stores import flip, make_store, overwrite, some_messages


def test_an_index_file_gives_the_entries_of_a_hash_newest_first(made, log):
    files = IndexFiles(made.path / "index", log)
    assert [state.error for state in files.states] == [None]
    (file,) = files.sound
    for record in made.records[::9]:
        for key_hash in made_stores.hashes_of(record):
            found = [offset for _, offset in file.find(key_hash, log)]
            assert record.physical_offset in found
            assert found == sorted(found, reverse=True)
        assert file.known_start_before(record.physical_offset) == record.physical_offset
        assert file.known_start_before(record.physical_offset + 1) == record.physical_offset
        assert files.has_entry_of(record)
        stranger = made_stores.replace(record, physical_offset=record.physical_offset + 1)
        assert not files.has_entry_of(stranger)
    files.close()


@pytest.mark.parametrize("geometry", [(64, 50), (7, 200), (1, 5000)])
def test_a_compiled_look_up_in_all_files_finds_what_walks_find(tmp_path, geometry):
    made = make_store(tmp_path / "store", some_messages(300), index=geometry, with_tags=True)
    log = CommitLog(made.path / "commitlog")
    files = IndexFiles(made.path / "index", log)
    wanted = {h for record in made.records[::40] for h in made_stores.hashes_of(record)}
    for hashes in [*({each} for each in wanted), wanted, {index_hash("Orders#none")}, set()]:
        walked = [
            Hit(offset, file, number)
            for file in reversed(files.sound)
            for number, offset in sorted(
                (found for each in hashes for found in file.find(each, log)), reverse=True
            )
        ]
        assert list(files.find(hashes)) == walked
    rows = files.newest_first.rows
    with pytest.raises(ValueError, match="no rows"):
        find_entries(rows[:-1], 0, array("q", wanted))
    with pytest.raises(TypeError):
        find_entries(rows, 0, array("i", [1]))
    files.close()
    assert list(files.find(wanted)) == []
    log.close()


def test_hashes_that_differ_in_one_byte_are_near():
    assert is_near(0x01020304, 0x01020384)
    assert is_near(0x01020304, 0x01FF0304)
    assert is_near(0x71020304, 0x01020304)
    assert not is_near(0x01020304, 0x01020405)


def test_a_file_that_says_it_is_empty_is_looked_through(tmp_path):
    path = tmp_path / "20231114221320000"
    path.write_bytes(struct.pack(">qqqqii", 1, 1, 1, 1, 0, 1).ljust(22040, b"\0"))
    IndexFile(path).check_empty()
    overwrite(path, 15_000, b"\1")
    with pytest.raises(IndexFileError):
        IndexFile(path).check_empty()


def test_a_long_chain_is_searched_as_a_short_one_is(tmp_path, monkeypatch):
    made = make_store(tmp_path / "store", some_messages(300), index=(1, 5000), with_tags=True)
    log = CommitLog(made.path / "commitlog")
    hashes = [h for record in made.records[::20] for h in made_stores.hashes_of(record)]
    walked = [list(IndexFile(made.index_paths()[0]).find(h, log)) for h in hashes]
    monkeypatch.setattr("rocketlens.store.read.index.index._LONG_CHAIN", 10)
    monkeypatch.setattr("rocketlens.store.read.index.index._ENTRIES_TO_PAUSE", 23)
    assert [list(IndexFile(made.index_paths()[0]).find(h, log)) for h in hashes] == walked
    # A hash with one wrong byte, on the one chain there is.
    flip(made.index_paths()[0], 44 + 20 * 50 + 2)
    hurt = IndexFile(made.index_paths()[0])
    offset = hurt.entry(50).physical_offset
    (record,) = [r for r in made.records if r.physical_offset == offset]
    errors = 0
    for key_hash in made_stores.hashes_of(record):
        try:
            list(hurt.find(key_hash, log))
        except IndexFileError:
            errors += 1
    assert errors
    log.close()


def test_an_index_file_that_a_builder_is_writing_to_is_no_damage(tmp_path):
    # A builder puts entries on their slots, and counts all of them in the header afterwards.
    config = replace(written_stores.SMALL, maxHashSlotNum=400_000)
    with written_stores.open_small(tmp_path, config=config) as store:
        sent = written_stores.send_many(store, 8)
        store.flush()
        assert store.build_index()
        (path,) = (tmp_path / "index").iterdir()
        log = CommitLog(tmp_path / "commitlog")
        opened = IndexFile(path)
        counted = path.read_bytes()[:HEADER_BYTES]
        sent += written_stores.send_many(store, 8, first=8)
        store.flush()
        assert store.build_index()
        with path.open("r+b") as file:
            file.write(counted)
        opened.count_slots()
        for number, one in enumerate(sent):
            found = [offset for _, offset in opened.find(index_hash(f"Orders#k{number}"), log)]
            assert found == [one.physical_offset]
        opened.close()
        log.close()


def test_no_record_of_a_time_or_a_later_one_is_before_the_bound_of_a_file(made, log, monkeypatch):
    monkeypatch.setattr(index, "_ENTRIES_OF_TIME", 4)
    monkeypatch.setattr(tail_module, "_BLOCK_BYTES", 100)
    files = IndexFiles(made.path / "index", log)
    (file,) = files.sound
    times = sorted({record.store_timestamp_ms for record in made.records})
    for begin_ms in (times[0] - 1, *times, times[-1] + 1000):
        late = [r.physical_offset for r in made.records if r.store_timestamp_ms >= begin_ms]
        first = files.first_offset(begin_ms)
        assert not late or first <= min(late)
    assert files.first_offset(times[-1] + 1000) is None
    assert files.first_offset(times[0]) == file.header.begin_offset
    files.close()
