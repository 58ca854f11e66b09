"""Rows of a key come in the order of their times, whatever order they were added in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.archive.rows import SortedKeyRows

pa = pytest.importorskip("pyarrow")
TABLES = st.lists(
    st.lists(st.tuples(st.integers(-5, 5), st.sampled_from(["key", "other"])), max_size=8),
    max_size=5,
)


@given(TABLES, st.sampled_from([-1, 1]), st.lists(st.integers(-5, 5)).map(sorted))
def test_rows_up_to_a_rank_come_once_and_in_order(tables, sign, ranks):
    merged = SortedKeyRows(sign)
    for number, rows in enumerate(tables):
        columns = {
            "store_timestamp_ms": pa.array([time for time, _ in rows], pa.int64()),
            "key": pa.array([key for _, key in rows], pa.string()),
        }
        merged.add(pa.table(columns), "key", f"day {number}")
    expected = sorted(sign * time for rows in tables for time, key in rows if key == "key")
    found = []
    for rank in [*ranks, 5]:
        part = list(merged.rows_to(rank))
        found += part
        assert all(sign * each["store_timestamp_ms"] <= rank for each in part)
        assert len(found) == sum(each <= rank for each in expected)
    assert [sign * each["store_timestamp_ms"] for each in found] == expected
    of_days = sorted((each["day"], each["store_timestamp_ms"]) for each in found)
    assert of_days == sorted(
        (f"day {number}", time)
        for number, rows in enumerate(tables)
        for time, key in rows
        if key == "key"
    )
