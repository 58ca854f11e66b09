"""What an index led to is an answer, a failure, or nothing: the log decides."""

import pytest

from rocketlens.errors import IndexFileError
from rocketlens.query.lookup.message_filter import (
    MessageFilter,
    check_entry,
    read_candidate,
)
from rocketlens.store.read.index.index_files import CorruptIndexFile, Hit
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.made_stores import Sent, flip, make_store

ASKED = MessageFilter(topic="Orders", key="asked")


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", [Sent(keys="asked"), Sent(keys="other")])


class Entry:
    """An index file whose only entry is sound, or not."""

    def __init__(self, *, is_sound):
        self.is_sound = is_sound
        self.checked = 0

    def check_entry(self, _, number):
        self.checked += 1
        if not self.is_sound:
            raise IndexFileError(f"entry {number} is of another record")


def candidate(made, record, hit=None, **options):
    failures = []
    log = CommitLog(made.path / "commitlog")
    try:
        found = read_candidate(log, ASKED, record.physical_offset, hit, failures, **options)
    finally:
        log.close()
    return found, failures


def hit_of(entry):
    return Hit(0, entry, 1)


def test_a_record_that_matches_is_the_answer_and_its_entry_is_not_checked(made):
    entry = Entry(is_sound=False)
    assert candidate(made, made.records[0], hit_of(entry)) == (made.records[0], [])
    assert entry.checked == 0


def test_a_record_that_does_not_match_is_nothing_when_its_entry_is_that_of_another_key(made):
    entry = Entry(is_sound=True)
    assert candidate(made, made.records[1], hit_of(entry)) == (None, [])
    assert entry.checked == 1


def test_an_entry_that_contradicts_the_log_makes_its_file_corrupt(made):
    with pytest.raises(CorruptIndexFile):
        candidate(made, made.records[1], hit_of(Entry(is_sound=False)))


def test_what_the_memory_led_to_was_read_from_the_log_and_is_not_checked(made):
    check_entry(None, None)
    assert candidate(made, made.records[1]) == (None, [])


@pytest.mark.parametrize(("number", "is_failure"), [(0, True), (1, False)])
def test_a_damaged_body_is_a_failure_only_of_a_record_that_would_match(made, number, is_failure):
    record = made.records[number]
    flip(made.segment_path(0), record.physical_offset + 90)
    found, failures = candidate(made, record)
    assert (found, bool(failures)) == (None, is_failure)


def test_bytes_that_are_not_a_record_are_a_failure_unless_they_are_deleted(made):
    record = made.records[0]
    flip(made.segment_path(0), record.physical_offset + 4)
    found, failures = candidate(made, record, hit_of(Entry(is_sound=True)))
    assert (found, len(failures)) == (None, 1)
    deleted = candidate(made, record, min_offset=record.physical_offset + 1)
    assert deleted == (None, [])
