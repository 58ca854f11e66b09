"""A walk over a log meets every sound record and names what is damaged.

Offsets at which a record begins are told from all others.

Behind damage the next record is found, and not looked for too far.
Rows are chosen, told apart and read as the records that they are of.
"""

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import BadInput, RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.formats.compiled.rows import RECORD_DTYPE
from rocketlens.formats.rows import ROW_BYTES, Rows
from rocketlens.store import fs
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.resync import next_record
from rocketlens.store.read.log.scan import LogWalk, RecordStarts, exhaust
from tests.support import made_stores
from tests.support.made_stores import flip, make_store, overwrite, some_messages


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


def test_the_next_record_is_found_by_either_of_the_damaged_ones_own_words(made, log):
    hit, following = made.records[30], made.records[31]
    for byte in (0, 1, 2, 3, 4, 7, 84, 85, 86, 87):
        flip(made.segment_path(0), hit.physical_offset + byte, 0x10)
        found = next_record(log, hit.physical_offset, Reason.SIZE)
        assert found == following.physical_offset
        flip(made.segment_path(0), hit.physical_offset + byte, 0x10)


@pytest.fixture
def zeros_between(tmp_path):
    """A log of one segment: some records, 12 MiB of written zeros, and some records more."""
    made = make_store(tmp_path / "store", some_messages(20), segment_bytes=1 << 24, index=None)
    offset = made.records[-1].physical_offset + made.records[-1].total_size + (12 << 20)
    for n in range(30):
        sent = made_stores.Sent("Behind", f"behind-{n}", body=b"behind", queue_id=7)
        record, encoded = made_stores.record_of(sent, offset, n)
        overwrite(made.segment_path(0), offset, encoded)
        made.records.append(record)
        offset += record.total_size
    return made


def test_records_behind_many_written_zeros_are_found_and_the_zeros_named(zeros_between):
    with rocketlens.open_store(zeros_between.path) as store:
        answer = store.query_message("Behind", "behind-3")
        assert [m.body for m in answer] == [b"behind"]
        assert not answer.complete
        first = zeros_between.records[20].physical_offset
        assert str(first) in str(answer.failures)
        scanned = store.scan()
        assert len(list(scanned)) == 50
        assert not scanned.complete
        assert store.view_message(zeros_between.records[-1].offset_msg_id).body == b"behind"


def test_zeros_behind_the_end_are_read_to_the_end_of_the_file_once(tmp_path, monkeypatch):
    made = make_store(tmp_path / "store", some_messages(20), segment_bytes=1 << 24, index=None)
    monkeypatch.setattr(limits, "MAX_UNWRITTEN_SEARCH_BYTES", 1 << 20)
    log = CommitLog(made.path / "commitlog")
    end = made.records[-1].physical_offset + made.records[-1].total_size
    mapping = log.map(log.segments[0])
    assert next_record(log, end, Reason.END) is None
    assert mapping.zeros_from <= 1 << 20
    content = mapping.content
    read = []

    class Watched:
        def __getitem__(self, place):
            read.append(place.start)
            return content[place]

    monkeypatch.setattr(mapping, "content", Watched())
    assert next_record(log, end, Reason.END) is None
    assert max(read) < 4 << 20


@pytest.fixture
def rows_of_log(log):
    """The rows of the records of the first segment, as far as they are together."""
    *_, last = LogWalk(log, 0, log.segments[0].end_offset).rows()
    return last


def test_columns_are_those_of_the_array(rows_of_log):
    assert RECORD_DTYPE.itemsize == ROW_BYTES
    assert RECORD_DTYPE.names is not None
    for name in RECORD_DTYPE.names:
        assert rows_of_log.column(name).tolist() == rows_of_log.as_array[name].tolist()
    again = Rows.of(rows_of_log.content, rows_of_log.base_offset, rows_of_log.as_array)
    assert list(again.records()) == list(rows_of_log.records())


def test_rows_are_chosen_by_time_position_and_topic(rows_of_log):
    records = list(rows_of_log.records())
    assert len(records) > 9
    middle = records[len(records) // 2].store_timestamp_ms
    topic = records[0].topic
    for begin, end in ((None, None), (middle, None), (None, middle), (middle, middle)):
        for position in (None, (records[3].queue_id, records[3].queue_offset), (0, 1 << 70)):
            for takes_topic in (None, topic.__eq__):
                chosen = rows_of_log.choose(
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


def test_times_outside_of_all_numbers_choose_all_rows_or_none(rows_of_log):
    assert rows_of_log.choose(begin=-5, end=1 << 90).offsets() == rows_of_log.offsets()
    assert rows_of_log.choose(begin=1 << 63).offsets() == []


def test_what_rows_have_together(rows_of_log):
    records = list(rows_of_log.records())
    assert rows_of_log.newest_ms == max(each.store_timestamp_ms for each in records)
    flags = 0
    for each in records:
        flags |= each.sys_flag
    assert rows_of_log.sys_flags == flags
    nothing = rows_of_log.part(0, 0)
    assert (len(nothing), nothing.newest_ms, nothing.sys_flags) == (0, 0, 0)
    assert (nothing.offsets(), nothing.topics().names, bytes(nothing.sound())) == ([], [], b"")
    assert len(nothing.as_array) == 0


def test_rows_of_another_buffer_are_refused(rows_of_log):
    other = Rows(rows_of_log.content[:100], rows_of_log.base_offset, rows_of_log.memory)
    for ask in (other.topics, other.sound, lambda: other.index_entries(with_tags=True)):
        with pytest.raises(BadInput, match="row "):
            ask()
