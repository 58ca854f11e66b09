"""Where records of a time or a later one can begin, whatever the clocks did."""

from hypothesis import given
from hypothesis import strategies as st

from rocketlens.store.read.log import time_bounds
from rocketlens.store.read.log.time_bounds import TimeBounds

PARTS = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(-5, 50)), min_size=1, max_size=40)


@given(PARTS, st.integers(-6, 51), st.integers(0, 3_000_000))
def test_no_record_of_the_time_or_a_later_one_is_before_the_bound(parts, begin_ms, dropped):
    bounds = TimeBounds()
    for offset, most_ms in parts:
        bounds.add(offset, most_ms)
    for least in (0, dropped):
        bounds.drop_below(least)
        first = bounds.first_offset(begin_ms)
        late = [offset for offset, ms in parts if ms >= begin_ms and offset >= least]
        assert not late or (first is not None and first <= min(late))


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(-1, 21))
def test_the_bound_is_the_block_of_the_first_record_that_is_late_enough(times, begin_ms):
    bounds = TimeBounds()
    offsets = [number * time_bounds._BLOCK_BYTES for number in range(len(times))]
    for offset, most_ms in zip(offsets, times, strict=True):
        bounds.add(offset, most_ms)
    late = [offset for offset, ms in zip(offsets, times, strict=True) if ms >= begin_ms]
    assert bounds.first_offset(begin_ms) == (late[0] if late else None)
