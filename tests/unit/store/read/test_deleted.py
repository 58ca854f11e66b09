"""Marks of deleted topics are believed for the log that they were made for, and no other."""

import pytest

from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.deleted import (
    NOTE_KIND,
    DeletionMark,
    decode_marks,
    is_of_log,
    read_ends,
)
from rocketlens.store.read.note import encode_note


def mark_at(record):
    end = record.physical_offset + record.total_size
    return DeletionMark(end, record.physical_offset, record.store_timestamp_ms)


def test_marks_are_read_back_as_they_were_written():
    marks = {"T": DeletionMark(100, 50, 7), "%RETRY%g": DeletionMark(2**62, 2**61, -1)}
    assert decode_marks(encode_note(NOTE_KIND, marks, None)) == marks


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{}",
        encode_note("state", {"T": [1, 2, 3]}, None),
        encode_note(NOTE_KIND, {"T": [1, 2]}, None),
        encode_note(NOTE_KIND, {"T": [1, 2, "x"]}, None),
        encode_note(NOTE_KIND, {"T": 3}, None),
    ],
)
def test_a_file_that_is_missing_or_not_of_marks_has_none(content):
    assert decode_marks(content) == {}


def test_a_mark_is_of_the_log_that_has_its_record_and_of_no_other(made, log):
    mark = mark_at(made.records[50])
    assert is_of_log(mark, log)
    for other in (
        mark._replace(last_record_timestamp_ms=mark.last_record_timestamp_ms + 1),
        mark._replace(last_record_offset=mark.last_record_offset + 1),
        mark._replace(end_offset=mark.end_offset + 1),
        mark._replace(last_record_offset=log.max_offset + 5),
        mark._replace(end_offset=log.min_offset),
    ):
        assert not is_of_log(other, log)


def test_the_ends_of_a_store_are_those_of_its_own_log(made, log):
    layout = StoreLayout(made.path)
    assert read_ends(layout, log) == {}
    mark = mark_at(made.records[50])
    layout.own.mkdir(exist_ok=True)
    marks = {"T": mark, "Other": mark._replace(last_record_timestamp_ms=0)}
    layout.deleted.write_bytes(encode_note(NOTE_KIND, marks, None))
    assert read_ends(layout, log) == {"T": mark.end_offset}
