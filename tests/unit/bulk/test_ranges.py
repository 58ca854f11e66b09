from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketlens.formats import commitlog_record
from rocketlens.store.read.log.commitlog import CommitLog
from tests.support.effort import sized
from tests.support.synthetic import record, write_log

SEGMENT = 1 << 13


def read(log_range):
    """Walk a range as an executor does; give the walk and the offsets of its records."""
    from rocketlens.bulk.ranges import RangeReader, open_range

    mapped, content = open_range(log_range)
    reader = RangeReader(log_range, content)
    offsets = [int(offset) for rows in reader for offset in rows["physical_offset"]]
    del content
    mapped.close()
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
        mapped, content = open_range(one)
        start = true_start(one, content)
        del content
        mapped.close()
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
            mapped, content = ranges.open_range(planned)
            found.append(ranges.true_start(planned, content, known_start))
            near.append(planned.start - known_start)
            del content
            mapped.close()
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
