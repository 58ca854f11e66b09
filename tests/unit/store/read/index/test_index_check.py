"""An index file is believed only where its slots, its chains and the log agree."""

import pytest

from rocketlens.errors import IndexFileError
from rocketlens.formats.index_file import HEADER_BYTES
from rocketlens.store.read.index.index import IndexFile, log_explains
from rocketlens.store.read.index.index_check import (
    check_links,
    check_samples,
    check_whole,
)
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import flip, make_store, overwrite, some_messages

SLOTS, ENTRIES = 50, 1000


@pytest.fixture
def indexed(tmp_path):
    return make_store(tmp_path / "store", some_messages(100), index=(SLOTS, ENTRIES))


@pytest.fixture
def log(indexed):
    opened = CommitLog(indexed.path / "commitlog")
    yield opened
    opened.close()


def opened(made):
    return IndexFile(made.index_paths()[0])


def entry_position(number):
    return HEADER_BYTES + 4 * SLOTS + 20 * number


def used_slot(made):
    """Return the position of a slot with an entry."""
    content = made.index_paths()[0].read_bytes()
    slots = range(HEADER_BYTES, entry_position(0), 4)
    return next(at for at in slots if any(content[at : at + 4]))


def test_a_sound_file_passes_every_check_and_answers_for_its_log(indexed, log):
    file = opened(indexed)
    file.count_slots()
    check_links(file)
    first, last = (indexed.records[at].physical_offset for at in (0, -1))
    for extent in (check_whole(file, log), check_samples(file, log, 256)):
        assert extent == (first, last, ())


def test_the_columns_are_the_entries(indexed):
    file = opened(indexed)
    columns = file.entry_columns()
    assert len(columns) == file.last_entry + 1
    for number in range(1, file.last_entry + 1, 7):
        entry = file.entry(number)
        assert int(columns["key_hash"][number]) == entry.key_hash
        assert int(columns["physical_offset"][number]) == entry.physical_offset


def test_a_lost_slot_is_found_by_counting_by_chains_and_by_the_whole_check(indexed, log):
    overwrite(indexed.index_paths()[0], used_slot(indexed), bytes(4))
    file = opened(indexed)
    for check in (
        IndexFile.count_slots,
        check_links,
        lambda one: check_whole(one, log),
    ):
        with pytest.raises(IndexFileError, match=file.path.name):
            check(file)


@pytest.mark.parametrize("part", [3, 16])
def test_a_changed_hash_or_link_of_any_entry_contradicts_its_chain(indexed, log, part):
    path = indexed.index_paths()[0]
    for number in range(1, opened(indexed).last_entry + 1, 17):
        flip(path, entry_position(number) + part, 0x01)
        with pytest.raises(IndexFileError):
            check_whole(opened(indexed), log)
        with pytest.raises(IndexFileError):
            check_links(opened(indexed))
        flip(path, entry_position(number) + part, 0x01)
    check_whole(opened(indexed), log)


def test_files_of_another_log_are_told_by_their_offsets(indexed, tmp_path):
    other = make_store(tmp_path / "other", some_messages(100, body_bytes=333))
    log = CommitLog(other.path / "commitlog")
    with pytest.raises(IndexFileError):
        check_whole(opened(indexed), log)
    # The first record is the same in both logs, and all that the file may answer for.
    assert check_samples(opened(indexed), log)[:2] == (0, 0)
    log.close()


def test_a_damaged_record_explains_an_offset_and_a_sound_one_does_not(indexed, log):
    records = indexed.records
    assert not log_explains(log, records[0].physical_offset, records[9].physical_offset)
    end = records[-1].physical_offset + records[-1].total_size
    assert log_explains(log, records[90].physical_offset, end)
    flip(indexed.segment_path(0), records[9].physical_offset + 4)
    hurt = CommitLog(indexed.path / "commitlog")
    assert log_explains(hurt, records[0].physical_offset, records[9].physical_offset)
    assert not log_explains(hurt, records[0].physical_offset, records[8].physical_offset)
    hurt.close()
