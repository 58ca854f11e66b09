"""The columns of an archive's tables, the hash of keys, and the order of rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.archive.rows import SortedKeyRows
from rocketlens.archive.tables import day_text, days_of, key_hash, key_hashes


def fnv1a(key):
    hashed = 0xCBF29CE484222325
    for byte in key.encode():
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    return hashed - 2**64 if hashed >= 2**63 else hashed


def test_the_hash_is_that_of_the_published_vectors():
    # http://www.isthe.com/chongo/src/fnv/test_fnv.c, fnv1a_64.
    vectors = {"": 0xCBF29CE484222325, "a": 0xAF63DC4C8601EC8C, "foobar": 0x85944171F73967E8}
    for key, hashed in vectors.items():
        assert key_hash(key) % 2**64 == hashed


def test_keys_of_any_length_are_hashed_at_once_and_keep_their_order():
    keys = ["b" * 70_000, "", "订单-42", "a", "ORDER-1", "a"]
    whole = pa.array(["before", *keys])
    assert key_hashes(whole.slice(1)).tolist() == [fnv1a(key) for key in keys]


@pytest.mark.parametrize(
    ("store_timestamp_ms", "day"),
    [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (1_790_000_000_000, "2026-09-21"),
        (2**63 - 1, "9999-12-31"),
        (-(2**63), "0001-01-01"),
    ],
)
def test_every_store_time_has_a_day(store_timestamp_ms, day):
    (number,) = days_of(np.array([store_timestamp_ms], np.int64)).tolist()
    assert day_text(number) == day


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
