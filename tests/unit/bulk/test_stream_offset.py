"""Where a stream is in the log, and how it shows that the log is another one."""

import zlib
from datetime import UTC, datetime

import pytest

from rocketlens.bulk.stream_offset import (
    Anchor,
    StreamOffset,
    deletion,
    is_replaced,
    is_whole,
    last_common,
    last_record,
    missing,
    replacement,
)
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.synthetic import record, write_log

SEGMENT_BYTES = 1 << 12
BODY_AT = 88
"""Of a record with addresses of IPv4, from its begin."""


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
        starts = [each.physical_offset for each in written[::7]]
        assert last_record(log, 0, last.physical_offset + last.total_size, starts) == found
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


def test_an_anchor_in_a_deleted_segment_says_nothing(log, written, tmp_path):
    offset = moved(log, StreamOffset(0), written, 5)
    [anchor] = offset.anchors
    assert anchor.is_in(log) is True
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    # One that was opened before the file was deleted, and one that never saw it.
    for later in (CommitLog(tmp_path / "commitlog"), log):
        assert anchor.is_in(later) is not False
        assert not is_replaced(later, offset)
        later.close()


def test_the_last_record_is_whole_when_something_follows_it(log, written):
    assert all(is_whole(log, each, is_closed=False) for each in written)


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize(
    ("zeroed", "whole"),
    [
        (None, (True, True)),
        # Its properties may be half written, unless no broker writes any more.
        (-1, (True, False)),
        (BODY_AT, (False, False)),
    ],
    ids=["as it was", "no last byte", "another body"],
)
def test_the_last_record_of_a_log_is_whole_by_its_checksum_and_its_last_byte(
    tmp_path, zeroed, whole, is_closed
):
    [*_, last] = write_log(tmp_path, [record(n) for n in range(3)], SEGMENT_BYTES)
    path = tmp_path / "commitlog" / f"{0:020}"
    content = bytearray(path.read_bytes())
    if zeroed is not None:
        content[last.physical_offset + zeroed % last.total_size] = 0
    path.write_bytes(content)
    log = CommitLog(tmp_path / "commitlog")
    found = log.record_at(last.physical_offset, check_crc=False)
    assert is_whole(log, found, is_closed=is_closed) is whole[not is_closed]
    log.close()


def test_what_was_deleted_before_it_was_read_is_told_with_its_times(log, written):
    offset = moved(log, StreamOffset(0), written, 3)
    begin, end = offset.physical_offset, written[9].physical_offset
    assert deletion(log, begin, end, offset) == (
        f"{end - begin} bytes of the log, physical offsets {begin} to {end}, stored "
        f"after {time_of(written[2])} and before {time_of(written[9])}, were deleted before they "
        "were read"
    )
    behind = deletion(log, begin, log.max_offset, StreamOffset(begin))
    assert "stored" not in behind


def time_of(one):
    stored = datetime.fromtimestamp(one.store_timestamp_ms / 1000, UTC)
    return stored.isoformat(timespec="milliseconds")


def test_a_log_that_is_another_one_is_told_by_the_record_that_is_not_there_any_more(
    log, written, tmp_path
):
    offset = StreamOffset(0)
    for count in (10, 30):
        offset = moved(log, offset, written, count)
    other = [record(n, body=b"body" if n < 25 else b"ydob") for n in range(100)]
    write_log(tmp_path / "other", other, SEGMENT_BYTES)
    replaced = CommitLog(tmp_path / "other" / "commitlog")
    told = replacement(replaced, offset)
    common = offset.anchors[1].physical_offset
    assert f"the record stored at {time_of(written[29])} is not at physical offset" in told
    assert f"messages at physical offsets {common} to {offset.physical_offset} may be" in told
    replaced.close()
    far = StreamOffset(log.max_offset + 7)
    assert f"it ends before {log.max_offset}" in replacement(log, far)
