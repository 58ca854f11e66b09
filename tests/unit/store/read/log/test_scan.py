"""A walk over a log meets every sound record and names what is damaged.

Offsets at which a record begins are told from all others.
"""

import pytest

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.store import fs
from rocketlens.store.read.log.scan import LogWalk, RecordStarts, exhaust
from tests.support.made_stores import flip, overwrite


def test_a_segment_that_cannot_be_opened_is_damage_and_the_walk_goes_on(made, log, monkeypatch):
    unreadable = made.segment_path(1 << 13)
    whole = fs.MappedFile.__init__

    def refuse(self, path, *arguments, **named):
        if path == unreadable:
            raise PermissionError(13, "Permission denied", str(path))
        whole(self, path, *arguments, **named)

    monkeypatch.setattr(fs.MappedFile, "__init__", refuse)
    walk = LogWalk(log, 0)
    offsets = [record.physical_offset for record in walk.records()]
    stored = [record.physical_offset for record in made.records]
    assert offsets == [o for o in stored if made.segment_path(o) != unreadable]
    assert [(d.start, d.stop) for d in walk.damage] == [(1 << 13, 2 << 13)]
    assert "Permission denied" in str(walk.damage[0])


def test_walks_by_rows_and_by_records_meet_the_same(made, log):
    overwrite(made.segment_path(0), made.records[9].physical_offset, bytes(50))
    flip(made.segment_path(1 << 13), made.records[70].physical_offset % (1 << 13) + 5)
    by_record, by_row = LogWalk(log, 0), LogWalk(log, 0)
    records = list(by_record.records())
    assert [offset for rows in by_row.rows() for offset in rows.offsets()] == [
        record.physical_offset for record in records
    ]
    assert records == made.records[:9] + made.records[10:70] + made.records[71:]
    assert by_row.damage == by_record.damage
    assert by_row.position == by_record.position


def test_a_walk_gives_a_few_rows_first_and_then_more(log):
    counts = [len(rows) for rows in LogWalk(log, 0).rows()]
    assert (counts[0], sum(counts)) == (16, 200)
    assert max(counts) > 16


def test_a_walk_to_the_end_costs_no_memory_of_what_it_met(log):
    walk = LogWalk(log, 0)
    exhaust(walk)
    assert (walk.damage, walk.torn_at) == ([], None)


def test_only_the_last_record_of_a_log_may_still_be_being_written(made, log):
    def walked():
        walk = LogWalk(log, 0, grows=True)
        return walk, [record.physical_offset for record in walk.records()]

    stored = [record.physical_offset for record in made.records]
    # A page of the disk is lost: the end of one record, and all of the next.
    lost = made.records[9].physical_offset + made.records[9].total_size - 4
    overwrite(made.segment_path(0), lost, bytes(made.records[11].physical_offset - lost))
    walk, offsets = walked()
    assert walk.unfinished_at is None
    assert offsets == stored[:10] + stored[11:]
    assert [(each.start, each.stop) for each in walk.damage] == [(stored[10], stored[11])]
    last = made.records[-1]
    end = (last.physical_offset + last.total_size) % made.segment_bytes
    overwrite(made.segment_path(last.physical_offset), end - 4, bytes(4))
    walk, offsets = walked()
    assert walk.unfinished_at == last.physical_offset
    assert offsets == stored[:10] + stored[11:-1]


def knows_nothing(_record):
    """No queue and no index file can tell."""


def knows_nothing_before(_offset):
    return 0


def is_blank(log, offset):
    """Whether the filler of a segment begins here."""
    with pytest.raises(RecordError) as caught:
        log.record_at(offset)
    return caught.value.reason == Reason.BLANK


def test_record_starts_are_told_from_all_other_offsets(made, log):
    starts = RecordStarts(log, knows_nothing, knows_nothing_before)
    true_starts = {record.physical_offset for record in made.records}
    last = max(true_starts)
    for offset in [*range(0, last, 7), *true_starts]:
        is_walked_to = starts.begins_at(offset)
        assert is_walked_to == (offset in true_starts) or is_blank(log, offset)
        assert not starts.is_damaged_at(offset)
    flip(made.segment_path(0), made.records[12].physical_offset + 4)
    starts = RecordStarts(log, knows_nothing, knows_nothing_before)
    for record in made.records:
        is_hit = record is made.records[12]
        assert starts.is_damaged_at(record.physical_offset) == is_hit
        assert starts.begins_at(record.physical_offset) != is_hit
