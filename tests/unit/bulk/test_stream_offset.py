"""Where a stream is in the log, and how it shows that the log is another one."""

import zlib

import pytest

from rocketlens.bulk.stream_offset import (
    Anchor,
    StreamOffset,
    is_replaced,
    last_common,
    last_record,
    missing,
)
from rocketlens.store.read.commitlog import CommitLog
from tests.pipeline.synthetic import record, write_log

SEGMENT_BYTES = 1 << 12


@pytest.fixture
def written(tmp_path):
    return write_log(tmp_path, [record(n) for n in range(100)], SEGMENT_BYTES)


@pytest.fixture
def log(tmp_path, written):
    opened = CommitLog(tmp_path / "commitlog")
    yield opened
    opened.close()


def moved(log, offset, written, count):
    """Return the offset behind the first ``count`` records."""
    last = written[count - 1]
    return offset.moved_to(last.physical_offset + last.total_size, last, log)


def test_an_offset_comes_back_from_its_checkpoint_as_it_was():
    offset = StreamOffset(50, (Anchor(50, 40, 7, 1000), Anchor(30, 20, 2**32 - 1, 900)))
    assert offset.to_json() == {
        "physical_offset": 50,
        "anchors": "50:40:7:1000 30:20:4294967295:900",
    }
    assert StreamOffset.from_json(offset.to_json()) == offset
    assert StreamOffset.from_json({"physical_offset": 9}) == StreamOffset(9)
    assert StreamOffset.from_json(9) == StreamOffset(9)
    assert StreamOffset(9).to_json() == {"physical_offset": 9}


def test_an_anchor_has_the_checksum_of_all_bytes_of_the_record_before_it(log, written, tmp_path):
    content = (tmp_path / "commitlog" / f"{0:020}").read_bytes()
    size = written[0].total_size
    offset = moved(log, StreamOffset(0), written, 1)
    assert offset == StreamOffset(
        size, (Anchor(size, 0, zlib.crc32(content[:size]), written[0].store_timestamp_ms),)
    )
    assert StreamOffset(0).moved_to(5, None, log) == StreamOffset(5)


def test_anchors_stay_few_and_reach_back_to_the_first(log, written):
    offset = StreamOffset(0)
    for count in range(1, 101):
        offset = moved(log, offset, written, count)
    reached = [anchor.physical_offset for anchor in offset.anchors]
    assert reached == sorted(reached, reverse=True)
    assert reached[0] == offset.physical_offset
    assert reached[-1] == written[0].total_size
    assert len(reached) < 15


def test_a_log_that_was_written_on_another_way_is_common_up_to_an_older_anchor(
    log, written, tmp_path
):
    offset = StreamOffset(0)
    for count in (10, 20, 30):
        offset = moved(log, offset, written, count)
    assert not is_replaced(log, offset)
    assert last_common(log, offset) == offset
    other = [record(n, body=b"body" if n < 25 else b"ydob") for n in range(100)]
    write_log(tmp_path / "other", other, SEGMENT_BYTES)
    replaced = CommitLog(tmp_path / "other" / "commitlog")
    assert is_replaced(replaced, offset)
    assert last_common(replaced, offset) == StreamOffset(
        offset.anchors[1].physical_offset, offset.anchors[1:]
    )
    replaced.close()


def test_without_an_anchor_only_an_offset_behind_the_end_is_of_another_log(log):
    assert not is_replaced(log, StreamOffset(log.max_offset))
    assert is_replaced(log, StreamOffset(log.max_offset + 1))


def test_the_last_record_before_an_offset_is_found(log, written):
    for count in (1, 2, 50, 100):
        last = written[count - 1]
        found = last_record(log, 0, last.physical_offset + last.total_size)
        assert found.physical_offset == last.physical_offset
    assert last_record(log, 0, 0) is None


def test_offsets_that_no_segment_holds_are_named(tmp_path, written):
    (tmp_path / "commitlog" / f"{SEGMENT_BYTES:020}").unlink()
    log = CommitLog(tmp_path / "commitlog")
    end = log.max_offset
    hole = (SEGMENT_BYTES, 2 * SEGMENT_BYTES)
    assert list(missing(log, 0, end)) == [hole]
    assert list(missing(log, SEGMENT_BYTES + 5, end)) == [(SEGMENT_BYTES + 5, 2 * SEGMENT_BYTES)]
    assert list(missing(log, 0, SEGMENT_BYTES)) == []
    assert list(missing(log, end - 1, end + 5)) == [(end, end + 5)]
    log.close()
