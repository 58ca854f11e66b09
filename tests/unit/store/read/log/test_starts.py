"""Offsets at which a record begins are told from all others."""

import pytest

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.store.read.log.starts import RecordStarts
from tests.support.made_stores import flip


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
