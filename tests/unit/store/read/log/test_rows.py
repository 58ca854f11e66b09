"""Rows are chosen, told apart and read as the records that they are of."""

import pytest

from rocketlens.errors import BadInput
from rocketlens.formats.compiled.rows import RECORD_DTYPE
from rocketlens.formats.rows import ROW_BYTES, Rows
from rocketlens.store.read.log.scan import LogWalk


@pytest.fixture
def rows(log):
    """The rows of the records of the first segment, as far as they are together."""
    *_, last = LogWalk(log, 0, log.segments[0].end_offset).rows()
    return last


def test_columns_are_those_of_the_array(rows):
    assert RECORD_DTYPE.itemsize == ROW_BYTES
    assert RECORD_DTYPE.names is not None
    for name in RECORD_DTYPE.names:
        assert rows.column(name).tolist() == rows.as_array[name].tolist()
    again = Rows.of(rows.content, rows.base_offset, rows.as_array)
    assert list(again.records()) == list(rows.records())


def test_rows_are_chosen_by_time_position_and_topic(rows):
    records = list(rows.records())
    assert len(records) > 9
    middle = records[len(records) // 2].store_timestamp_ms
    topic = records[0].topic
    for begin, end in ((None, None), (middle, None), (None, middle), (middle, middle)):
        for position in (None, (records[3].queue_id, records[3].queue_offset), (0, 1 << 70)):
            for takes_topic in (None, topic.__eq__):
                chosen = rows.choose(
                    begin=begin, end=end, position=position, takes_topic=takes_topic
                )
                assert list(chosen.records()) == [
                    each
                    for each in records
                    if (begin is None or begin <= each.store_timestamp_ms)
                    and (end is None or each.store_timestamp_ms <= end)
                    and position in (None, (each.queue_id, each.queue_offset))
                    and (takes_topic is None or each.topic == topic)
                ]


def test_times_outside_of_all_numbers_choose_all_rows_or_none(rows):
    assert rows.choose(begin=-5, end=1 << 90).offsets() == rows.offsets()
    assert rows.choose(begin=1 << 63).offsets() == []


def test_what_rows_have_together(rows):
    records = list(rows.records())
    assert rows.newest_ms == max(each.store_timestamp_ms for each in records)
    flags = 0
    for each in records:
        flags |= each.sys_flag
    assert rows.sys_flags == flags
    nothing = rows.part(0, 0)
    assert (len(nothing), nothing.newest_ms, nothing.sys_flags) == (0, 0, 0)
    assert (nothing.offsets(), nothing.topics().names, bytes(nothing.sound())) == ([], [], b"")
    assert len(nothing.as_array) == 0


def test_rows_of_another_buffer_are_refused(rows):
    other = Rows(rows.content[:100], rows.base_offset, rows.memory)
    for ask in (other.topics, other.sound, lambda: other.index_entries(with_tags=True)):
        with pytest.raises(BadInput, match="row "):
            ask()
