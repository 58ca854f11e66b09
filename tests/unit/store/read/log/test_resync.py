"""Behind damage the next record is found, and not looked for too far."""

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.formats.commitlog_record import Reason
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.resync import next_record
from tests.support import made_stores
from tests.support.made_stores import flip, make_store, overwrite, some_messages


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
