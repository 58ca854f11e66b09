"""Which records of a log are of a topic that was deleted, by what the log and the files say.

Marks of deleted topics are believed for the log that they were made for, and no other.
"""

import pytest

from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import (
    NOTE_KIND,
    WHOLE_LOG,
    DeletionMark,
    TopicEvidence,
    begins_again,
    decode_marks,
    ends_of_former,
    is_of_log,
    read_ends,
    runs_of,
)
from rocketlens.store.read.note import encode_note


def runs(*records):
    """Runs of one queue whose records are given as (queue offset, physical offset)."""
    queue_offsets = [queue_offset for queue_offset, _ in records]
    zeros = [place for place, queue_offset in enumerate(queue_offsets) if queue_offset == 0]
    return list(runs_of(zeros, queue_offsets, [offset for _, offset in records]))


def test_a_queue_begins_again_at_0_behind_its_last_record_only():
    assert begins_again(0, 500, 400)
    assert not begins_again(1, 500, 400)
    assert not begins_again(0, 500, None)
    assert not begins_again(0, 500, 500)
    assert not begins_again(0, 500, 600)


def test_records_are_cut_into_runs_where_offset_0_comes_again():
    found = runs((3, 10), (4, 20), (0, 30), (0, 40), (1, 50))
    assert [(run.record_count, run.first_queue_offset, run.first_offset) for run in found] == [
        (2, 3, 10),
        (1, 0, 30),
        (2, 0, 40),
    ]
    assert [run.second_queue_offset for run in found] == [4, -1, 1]


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        # Never deleted.
        ({0: [(0, 1), (1, 3)], 1: [(0, 2), (1, 4)]}, {}),
        # Made again; the other queue got nothing since, or its first message.
        ({0: [(0, 1), (1, 3), (0, 5)], 1: [(0, 2)]}, {0: 5, 1: WHOLE_LOG}),
        ({0: [(0, 1), (1, 3), (0, 5)], 1: [(0, 7)]}, {0: 5}),
        # One message each time.
        ({0: [(0, 1), (0, 5)]}, {0: 5}),
        # Made again twice.
        ({0: [(0, 1), (0, 5), (1, 6), (0, 8)], 1: [(0, 2), (0, 7)]}, {0: 8, 1: 7}),
        # One damaged queue offset, and the queue goes on.
        ({0: [(0, 1), (1, 3), (0, 5), (3, 6)]}, {}),
        ({0: [(7, 1), (0, 3), (9, 5)]}, {}),
    ],
)
def test_offsets_that_begin_again_end_the_former_topic_in_all_its_queues(queues, expected):
    assert ends_of_former({number: runs(*own) for number, own in queues.items()}) == expected


def test_a_topic_without_queue_files_is_judged_by_configuration_and_by_the_other_queues():
    evidence = TopicEvidence({"Marked": 70}, frozenset({"Has"}), frozenset({"Has", "Empty"}), 50)
    assert evidence.end_of("Has") == 0
    assert evidence.end_of("Gone") == evidence.known_end_of("Gone") == WHOLE_LOG
    assert (evidence.end_of("Empty"), evidence.known_end_of("Empty")) == (50, 0)
    assert evidence.end_of("SCHEDULE_TOPIC_XXXX") == evidence.end_of("rmq_sys_wheel_timer") == 0
    unknown = evidence._replace(configured=None)
    assert unknown.end_of("Marked") == unknown.known_end_of("Marked") == 70
    assert (unknown.end_of("Gone"), unknown.known_end_of("Gone")) == (50, 0)
    assert unknown._replace(dispatched_offset=0).end_of("Gone") == 0


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
