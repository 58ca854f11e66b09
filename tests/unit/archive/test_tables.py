"""The columns of an archive's tables, the hash of keys, and the order of rows.

Filters that pyarrow writes are read: what is there is never missed, nor if one is damaged.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocketlens
from rocketlens.archive.bloom import xxh64
from rocketlens.archive.files import TableFile
from rocketlens.archive.location import ArchiveLocation
from rocketlens.archive.reader import _OpenFile
from rocketlens.archive.rows import SortedKeyRows
from rocketlens.archive.tables import day_text, days_of, key_hash, key_hashes, key_schema
from tests.support.archives import archive_store


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


def written(tmp_path, hashes):
    location = ArchiveLocation.of(tmp_path)
    file = TableFile(location, "message_keys", "2026-11-20")
    fields = key_schema()
    columns = [
        pa.array(
            np.sort(hashes) if field.name == "key_hash" else [_VALUES[field.type]] * len(hashes)
        )
        for field in fields
    ]
    file.write(pa.table(columns, fields.names).cast(fields))
    written = file.close()
    return _OpenFile(location, location.path("message_keys", written.path), written)


_VALUES = {pa.string(): "", pa.int64(): 0, pa.int32(): 0}


def test_the_hash_is_that_of_other_programs():
    # Of xxhash 3.5: xxh64(struct.pack("<q", number)).intdigest().
    assert xxh64(0) == 0x34C96ACDCADB1BBB


def test_values_that_are_there_are_never_missed_and_few_others_are_read(tmp_path):
    chosen = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 40_000)
    opened = written(tmp_path, chosen)
    there = 0
    for number in map(int, chosen[:600]):
        (group,) = opened.groups({"key_hash": (number, number)})
        assert opened.read_hash(group, number, xxh64(number)).num_rows == 1
        other = number ^ 1
        there += opened._can_have(group, xxh64(other))
    assert there < 18


def test_every_filter_that_pyarrow_writes_has_its_checksum(tmp_path):
    random = np.random.default_rng(2)
    counts = [1, 2, 79, 315, 1265, 2530, 5050, 10_095, 16_384, 20_000]
    sizes = set()
    for count in counts:
        hashes = random.integers(-(2**63), 2**63 - 1, count)
        hashes[: count // 3] = hashes[0]
        opened = written(tmp_path, hashes)
        for group in range(opened.parquet.num_row_groups):
            _, size = opened._filter(group)
            assert size
            sizes.add(size)
    assert len(sizes) > 5


def test_a_filter_that_is_damaged_hides_no_message(golden, tmp_path):
    archive_store(tmp_path, golden("5.5.0").store)
    for path in tmp_path.glob("message_keys/*/*.parquet"):
        column = pq.ParquetFile(path).metadata.row_group(0).column(0)
        content = bytearray(path.read_bytes())
        at = column.bloom_filter_offset
        content[at : at + column.bloom_filter_length] = bytes(column.bloom_filter_length)
        path.write_bytes(content)
    with rocketlens.open_archive(tmp_path) as archive:
        answer = archive.find("order-42")
        assert answer.messages
        assert answer.complete
