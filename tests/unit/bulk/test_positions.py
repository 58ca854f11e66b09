"""Positions of queues, ranges of a log, and where a stream is in it."""

import json
import zlib
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlens import limits, read_batches
from rocketlens.bulk.positions import EARLIEST, LATEST, AskedQueue, positions_option
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
from rocketlens.errors import BadInput, StoreError
from rocketlens.formats import commitlog_record
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.effort import sized
from tests.support.synthetic import record, write_log
from tests.support.written_stores import open_small, send

START = "startingOffsets"


def positions(text, **named):
    return positions_option({START: text}, START, **{"refused": None, "has_topic": None, **named})


def test_both_forms_are_read_by_topic_broker_and_queue():
    text = '{"A":{"b-1":{"0":23,"1":-1},"b-2":{"0":-2}},"%RETRY%g":{"7":5},"0":{"0":{"0":1}}}'
    assert positions(text).offsets == {
        AskedQueue("A", "b-1", 0): 23,
        AskedQueue("A", "b-1", 1): LATEST,
        AskedQueue("A", "b-2", 0): EARLIEST,
        AskedQueue("%RETRY%g", None, 7): 5,
        # A broker may have a number for a name.
        AskedQueue("0", "0", 0): 1,
    }
    assert positions_option({}, START, refused=None, has_topic=None).offsets == {}


@pytest.mark.parametrize(
    "text",
    [
        *["{", "{}", '{"A"}', '{"A":5}', '{"A":{}}', '{"A":{"b":{}}}', '{"A":[1]}', '{"A":null}'],
        *['{"A":{"b":{"x":1}}}', '{"A":{"b":{"0":"1"}}}', '{"A":{"b":{"0":1.0}}}'],
        *['{"A":{"b":{"0":true}}}', '{"A":{"b":{"0":-3}}}', '{"A":{"b":{"-1":0}}}'],
        *['{"A":{"b":5}}', '{"A":{"b":{"0":1},"0":5}}', '{"A":{"b":{"\u0663":1}}}'],
        json.dumps({"A": {"b": {"0": limits.MAX_QUEUE_OFFSET + 1}}}),
        json.dumps({"A": {"b": {str(limits.MAX_INT + 1): 0}}}),
        f'{{"A":{{"b":{{"0":{"9" * 5000}}}}}}}',
        '{"A":' * 100_000,
        # Which of both would count?
        *['{"A":{"0":1},"A":{"0":2}}', '{"A":{"b":{"0":1,"0":2}}}', '{"A":{"b":{"0":1,"00":1}}}'],
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_position_is_refused_with_the_form(text):
    with pytest.raises(BadInput, match=START) as refused:
        positions(text)
    assert len(str(refused.value)) < 500


def test_what_an_option_cannot_have_is_refused():
    with pytest.raises(BadInput, match=r"cannot be -1 \(latest\), as for topic A, queue 0"):
        positions('{"A":{"0":-1}}', refused=LATEST)
    with pytest.raises(BadInput, match="names topic A, which is not read"):
        positions('{"A":{"0":1}}', has_topic="B".__eq__)
    options = {START: '{"A":{"0":1}}', "startingTimestamp": "5"}
    with pytest.raises(BadInput, match="not both options"):
        positions_option(options, START, refused=None, has_topic=None)


def test_the_broker_of_a_queue_may_be_left_out_where_one_has_the_topic():
    queues = [("A", "b-1", 0), ("B", "b-1", 0), ("B", "b-2", 0)]
    found = positions('{"A":{"0":5},"B":{"b-2":{"0":6}}}').by_queue(queues)
    assert found == {("A", "b-1", 0): 5, ("B", "b-2", 0): 6}
    with pytest.raises(BadInput, match=r"topic B is on 2 brokers \(b-1, b-2\)"):
        positions('{"B":{"0":5}}').by_queue(queues)
    with pytest.raises(BadInput, match="no such queue: topic C, queue 0"):
        positions('{"C":{"0":5}}').by_queue(queues)

    # A filter that was pushed leaves the topic out.


def test_a_position_at_either_end_of_a_queue_is_in_it():
    asked = positions('{"A":{"0":5}}')
    assert asked.outside("q", 3, (3, 9)) == asked.outside("q", 9, (3, 9)) == []
    assert asked.outside("q", 2, (3, 9)) == [f"q begins at offset 3, but {START} is 2"]
    assert asked.outside("q", 10, (3, 9)) == [f"q ends at offset 9, but {START} is 10"]


# Stores.


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A store with 40 messages of Orders in each of the queues 0 to 2, and one of Other."""
    path = tmp_path_factory.mktemp("store")
    with open_small(path) as store:
        for number in range(120):
            send(store, number, queue_id=number % 3)
        send(store, 120, topic="Other")
    return path


def offsets_of(store, **options):
    """Return the queue offsets that are read, by topic and queue."""
    found = {}
    given = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in options.items()
    }
    for batch in read_batches(store, **given):
        for row in batch.to_pylist():
            found.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    return found


@pytest.mark.parametrize("has_name", [True, False], ids=["broker", "no broker"])
def test_positions_bound_what_is_read_of_the_queues_of_a_store(written, has_name):
    def of(queues):
        return {"Orders": {"any-name": queues} if has_name else queues}

    starts, ends = of({"0": 7, "1": -2}), of({"0": 9, "2": 0})
    found = offsets_of(written, startingOffsets=starts, endingOffsets=ends)
    assert found == {("Orders", 0): [7, 8], ("Orders", 1): [*range(40)], ("Other", 0): [0]}
    assert offsets_of(written, topic="Orders", startingOffsets=of({"0": 40, "1": 40})) == {
        ("Orders", 2): [*range(40)]
    }
    assert len(offsets_of(written, endingOffsets=of({"0": -1}))[("Orders", 0)]) == 40


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({START: {"Orders": {"3": 0}}}, "the store has no such queue: topic Orders, queue 3"),
        ({START: {"Ordrs": {"0": 0}}}, "no topic 'Ordrs'; did you mean Orders"),
        ({START: {"Orders": {"a": {"0": 1}, "b": {"0": 1}}}}, r"2 brokers \(a, b\) are named"),
        (
            {START: {"Orders": {"a": {"0": 1}}}, "endingOffsets": {"Orders": {"b": {"0": 1}}}},
            r"startingOffsets and endingOffsets: 2 brokers \(a, b\) are named, but a store has one",
        ),
        ({START: {"Orders": {"a": {"0": 1}}, "Other": {"0": 0}}, "topic": "Orders"}, "not read"),
        ({START: {"Orders": {"0": 5}}, "endingOffsets": {"Orders": {"0": 4}}}, "is 5, but"),
        ({START: {"Orders": {"0": -1}}}, "startingOffsets cannot be -1"),
        ({START: {"Orders": {"0": 1}}, "startingOffset": 5}, "give one"),
        ({START: {"Orders": {"0": 1}}, "table": "damage"}, "damage has no queues"),
    ],
)
def test_positions_that_a_store_cannot_have_are_errors_before_it_is_read(written, options, said):
    with pytest.raises(BadInput, match=said):
        offsets_of(written, **options)


@pytest.mark.parametrize("name", [START, "endingOffsets"])
def test_a_position_behind_the_end_is_logged_or_an_error(written, name, caplog):
    options = {name: {"Orders": {"0": 41}}}
    expected = [] if name == START else [*range(40)]
    assert offsets_of(written, **options).get(("Orders", 0), []) == expected
    assert f"topic Orders, queue 0 ends at offset 40, but {name} is 41" in caplog.text
    with pytest.raises(StoreError, match="ends at offset 40"):
        offsets_of(written, failOnDataLoss=True, **options)


def test_a_position_that_the_broker_deleted_is_logged_or_an_error(tmp_path, caplog):
    with open_small(tmp_path) as store:
        for number in range(120):
            send(store, number, queue_id=0, body=bytes(200))
    first = tmp_path / "commitlog" / f"{0:020}"
    first.unlink()
    found = offsets_of(tmp_path)[("Orders", 0)]
    assert found[0] > 1
    assert offsets_of(tmp_path, startingOffsets={"Orders": {"0": 1}}) == {("Orders", 0): found}
    assert f"queue 0 begins at offset {found[0]}, but {START} is 1" in caplog.text
    caplog.clear()
    at = {"Orders": {"0": found[0]}}
    assert offsets_of(tmp_path, failOnDataLoss=True, startingOffsets=at) == {("Orders", 0): found}
    with pytest.raises(StoreError, match=f"begins at offset {found[0]}"):
        offsets_of(tmp_path, failOnDataLoss=True, startingOffsets={"Orders": {"0": 1}})


def test_of_a_log_alone_any_queue_may_be_named(written, tmp_path):
    (tmp_path / "commitlog").symlink_to(written / "commitlog")
    found = offsets_of(tmp_path, startingOffsets={"Orders": {"0": 39, "9": 5}})
    assert found[("Orders", 0)] == [39]


SEGMENT_BYTES = 1 << 12
BODY_AT = 88
"""Of a record with addresses of IPv4, from its begin."""


@pytest.fixture
def written_log(tmp_path):
    return write_log(tmp_path, [record(n) for n in range(100)], SEGMENT_BYTES)


@pytest.fixture
def log(tmp_path, written_log):
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


def test_an_anchor_has_the_checksum_of_all_bytes_of_the_record_before_it(
    log, written_log, tmp_path
):
    content = (tmp_path / "commitlog" / f"{0:020}").read_bytes()
    size = written_log[0].total_size
    offset = moved(log, StreamOffset(0), written_log, 1)
    assert offset == StreamOffset(
        size, (Anchor(size, 0, zlib.crc32(content[:size]), written_log[0].store_timestamp_ms),)
    )
    assert StreamOffset(0).moved_to(5, None, log) == StreamOffset(5)


def test_anchors_stay_few_and_reach_back_to_the_first(log, written_log):
    offset = StreamOffset(0)
    for count in range(1, 101):
        offset = moved(log, offset, written_log, count)
    reached = [anchor.physical_offset for anchor in offset.anchors]
    assert reached == sorted(reached, reverse=True)
    assert reached[0] == offset.physical_offset
    assert reached[-1] == written_log[0].total_size
    assert len(reached) < 15


def test_a_log_that_was_written_on_another_way_is_common_up_to_an_older_anchor(
    log, written_log, tmp_path
):
    offset = StreamOffset(0)
    for count in (10, 20, 30):
        offset = moved(log, offset, written_log, count)
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


def test_the_last_record_before_an_offset_is_found(log, written_log):
    for count in (1, 2, 50, 100):
        last = written_log[count - 1]
        found = last_record(log, 0, last.physical_offset + last.total_size)
        assert found.physical_offset == last.physical_offset
        starts = [each.physical_offset for each in written_log[::7]]
        assert last_record(log, 0, last.physical_offset + last.total_size, starts) == found
    assert last_record(log, 0, 0) is None


def test_offsets_that_no_segment_holds_are_named(tmp_path, written_log):
    (tmp_path / "commitlog" / f"{SEGMENT_BYTES:020}").unlink()
    log = CommitLog(tmp_path / "commitlog")
    end = log.max_offset
    hole = (SEGMENT_BYTES, 2 * SEGMENT_BYTES)
    assert list(missing(log, 0, end)) == [hole]
    assert list(missing(log, SEGMENT_BYTES + 5, end)) == [(SEGMENT_BYTES + 5, 2 * SEGMENT_BYTES)]
    assert list(missing(log, 0, SEGMENT_BYTES)) == []
    assert list(missing(log, end - 1, end + 5)) == [(end, end + 5)]
    log.close()


def test_an_anchor_in_a_deleted_segment_proves_nothing(log, written_log, tmp_path):
    offset = moved(log, StreamOffset(0), written_log, 5)
    [anchor] = offset.anchors
    assert anchor.is_in(log) is True
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    # One that was opened before the file was deleted, and one that never saw it.
    for later in (CommitLog(tmp_path / "commitlog"), log):
        assert anchor.is_in(later) is not False
        assert not is_replaced(later, offset)
        later.close()


def test_the_last_record_is_whole_when_something_follows_it(log, written_log):
    assert all(is_whole(log, each, is_closed=False) for each in written_log)


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


def test_what_was_deleted_before_it_was_read_is_told_with_its_times(log, written_log):
    offset = moved(log, StreamOffset(0), written_log, 3)
    begin, end = offset.physical_offset, written_log[9].physical_offset
    assert deletion(log, begin, end, offset) == (
        f"{end - begin} bytes of the log, physical offsets {begin} to {end}, stored "
        f"after {time_of(written_log[2])} and before {time_of(written_log[9])}, were deleted "
        "before they were read"
    )
    behind = deletion(log, begin, log.max_offset, StreamOffset(begin))
    assert "stored" not in behind


def time_of(one):
    stored = datetime.fromtimestamp(one.store_timestamp_ms / 1000, UTC)
    return stored.isoformat(timespec="milliseconds")


def test_a_log_that_is_another_one_is_told_by_the_record_that_is_not_there_any_more(
    log, written_log, tmp_path
):
    offset = StreamOffset(0)
    for count in (10, 30):
        offset = moved(log, offset, written_log, count)
    other = [record(n, body=b"body" if n < 25 else b"ydob") for n in range(100)]
    write_log(tmp_path / "other", other, SEGMENT_BYTES)
    replaced = CommitLog(tmp_path / "other" / "commitlog")
    told = replacement(replaced, offset)
    common = offset.anchors[1].physical_offset
    assert f"the record stored at {time_of(written_log[29])} is not at physical offset" in told
    assert f"messages at physical offsets {common} to {offset.physical_offset} may be" in told
    replaced.close()
    far = StreamOffset(log.max_offset + 7)
    assert f"it ends before {log.max_offset}" in replacement(log, far)


SEGMENT = 1 << 13


def read(log_range):
    """Walk a range as an executor does; give the walk and the offsets of its records."""
    from rocketlens.bulk.ranges import RangeReader, open_range

    with open_range(log_range) as mapped:
        reader = RangeReader(log_range, mapped.view)
        offsets = [offset for rows in reader for offset in rows.offsets()]
    return Read(reader.walked, offsets)


class Read:
    def __init__(self, walked, offsets):
        self.walked, self.offsets = walked, offsets


def cut_at(log: CommitLog, edges: list[int]):
    from rocketlens.bulk.ranges import LogRange

    ranges = []
    for segment in log.segments:
        own = sorted({0, segment.size, *(edge % segment.size for edge in edges)})
        for start, stop in pairwise(own):
            path = str(segment.path)
            ranges.append(
                LogRange(path, segment.base_offset, segment.size, start, stop, start == 0)
            )
    return ranges


def make_log(directory: Path, damage: list[tuple[int, int]]) -> CommitLog:
    forged = commitlog_record.encode(record(9, topic="Forged", body=b""))
    log = [record(n, body=bytes(n * 37 % 700)) for n in range(40)]
    placed = write_log(directory / "first", log, SEGMENT)
    for n in range(0, 40, 3):
        at = placed[n].physical_offset + 84
        fake = replace(record(9, topic="Forged", body=b""), physical_offset=at)
        log[n] = replace(log[n], body=commitlog_record.encode(fake).ljust(len(log[n].body), b"\0"))
    assert len(forged) > 91
    write_log(directory, log, SEGMENT)
    for at, bit in damage:
        path = sorted((directory / "commitlog").iterdir())[at // SEGMENT % 3]
        content = bytearray(path.read_bytes())
        content[at % SEGMENT] ^= 1 << bit
        path.write_bytes(content)
    return CommitLog(directory / "commitlog")


@settings(
    max_examples=sized(40, 150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    edges=st.lists(st.integers(1, SEGMENT - 1), max_size=8),
    damage=st.lists(st.tuples(st.integers(0, 3 * SEGMENT - 1), st.integers(0, 7)), max_size=3),
)
def test_a_log_cut_anywhere_and_damaged_anywhere_reads_as_in_one_piece(
    tmp_path_factory, edges, damage
):
    from rocketlens.bulk.ranges import stitch

    log = make_log(tmp_path_factory.mktemp("log"), damage)
    whole = stitch([read(one) for one in cut_at(log, [])], read)
    pieces = stitch([read(one) for one in cut_at(log, edges)], read)
    assert [o for r in pieces.results for o in r.offsets] == [
        o for r in whole.results for o in r.offsets
    ]
    assert pieces.damage_count == whole.damage_count
    assert [place[:2] for place in pieces.damage] == [place[:2] for place in whole.damage]
    assert (pieces.end_offset, pieces.torn) == (whole.end_offset, whole.torn)


@settings(
    max_examples=sized(30, 100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    edges=st.lists(st.integers(1, SEGMENT - 1), max_size=5),
    damage=st.lists(st.tuples(st.integers(0, 3 * SEGMENT - 1), st.integers(0, 7)), max_size=3),
)
def test_each_range_alone_finds_its_true_start(tmp_path_factory, edges, damage):
    from rocketlens.bulk.ranges import open_range, stitch, true_start

    log = make_log(tmp_path_factory.mktemp("log"), damage)
    whole = stitch([read(one) for one in cut_at(log, [])], read)
    found = []
    for one in cut_at(log, edges):
        with open_range(one) as mapped:
            start = true_start(one, mapped.view)
        if start is not None:
            found += read(start).offsets
    assert found == [o for r in whole.results for o in r.offsets]


@settings(
    max_examples=sized(30, 100),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    step=st.integers(1, 2000),
    damage=st.lists(st.tuples(st.integers(0, 3 * SEGMENT - 1), st.integers(0, 7)), max_size=3),
)
def test_tasks_begin_at_offsets_that_a_walk_passed_and_read_the_same(
    tmp_path_factory, step, damage
):
    from rocketlens.bulk import ranges

    log = make_log(tmp_path_factory.mktemp("log"), damage)
    starts = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ranges, "_STEP_BYTES", step)
        end = ranges.walk_log(log, 0, 3 * SEGMENT, starts)
    assert end == ranges.walk_log(log, 0, 3 * SEGMENT)
    assert starts == sorted(starts)
    for start in starts[:-1]:
        assert ranges.walk_log(log, start, end) == end
    found, near = [], []
    for hints in ((), starts):
        for planned, known_start in ranges.stretches(log, 0, end, 1000, hints):
            with ranges.open_range(planned) as mapped:
                found.append(ranges.true_start(planned, mapped.view, known_start))
            near.append(planned.start - known_start)
    half = len(found) // 2
    assert found[half:] == found[:half]
    if not damage:
        # A record has less than 1000 bytes.
        assert max(near[half:]) < step + 1000


@pytest.mark.parametrize("range_bytes", [1, 1 << 16, 1 << 20])
def test_ranges_cover_every_written_byte_once(tmp_path, range_bytes):
    from rocketlens.bulk.ranges import cut

    directory = tmp_path / "commitlog"
    directory.mkdir()
    sizes = [300_000, 1, 5_000_000]
    base = 0
    for size in sizes:
        (directory / f"{base:020}").write_bytes(b"x" * size)
        base += size + 7
    ranges = cut(CommitLog(directory), range_bytes)
    for size, segment in zip(sizes, CommitLog(directory).segments, strict=True):
        own = [one for one in ranges if one.base_offset == segment.base_offset]
        assert own[0].start == 0
        assert own[-1].stop == size
        assert all(a.stop == b.start for a, b in pairwise(own))


def test_the_hole_at_the_end_of_a_segment_made_in_advance_is_not_read(tmp_path):
    from rocketlens.bulk.ranges import cut

    directory = tmp_path / "commitlog"
    directory.mkdir()
    with (directory / f"{0:020}").open("wb") as file:
        file.write(b"x" * 100_000)
        file.truncate(1 << 30)
    ranges = cut(CommitLog(directory), 1 << 26)
    assert 100_000 <= ranges[-1].stop < 4 << 20
    assert ranges[-1].size == 1 << 30
