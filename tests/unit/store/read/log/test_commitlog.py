"""Offsets of a log lead to its segments and records."""

import pytest

from rocketlens.errors import RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.store.read.log.commitlog import SegmentLost


def test_every_offset_is_in_its_segment_or_in_none(made, log):
    assert (log.min_offset, log.segment_bytes) == (0, 1 << 13)
    for offset in range(0, log.max_offset, 501):
        segment = log.segment_of(offset)
        assert segment.base_offset <= offset < segment.end_offset
    assert log.segment_of(log.max_offset) is None
    assert log.segment_of(-1) is None


def test_a_segment_that_went_is_told_from_one_that_holds_nothing(made, log):
    record = made.records[100]
    made.segment_path(record.physical_offset).unlink()
    with pytest.raises(SegmentLost):
        log.record_at(record.physical_offset)
    with pytest.raises(RecordError) as caught:
        log.record_at(log.max_offset + 5)
    assert caught.value.reason == Reason.END
