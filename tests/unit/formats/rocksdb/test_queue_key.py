"""The keys of consume queues in RocksDB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats.rocksdb.queue_key import QueueKey, decode
from rocketlens.limits import MAX_QUEUE_OFFSET

# From the database of a broker of RocketMQ 5.5.0.
GOLDEN = bytes.fromhex("00000006014f7264657273010000000101000000000000001d")
KEYS = st.builds(
    QueueKey, st.text(max_size=20), st.integers(0, (1 << 32) - 1), st.integers(0, MAX_QUEUE_OFFSET)
)


def test_a_key_of_a_real_broker():
    assert decode(GOLDEN) == QueueKey("Orders", 1, 29)
    assert QueueKey("Orders", 1, 29).encode() == GOLDEN


@given(KEYS)
def test_a_key_is_read_as_it_was_written(key):
    assert decode(key.encode()) == key


@pytest.mark.parametrize("length", range(len(GOLDEN)))
def test_no_prefix_of_a_key_is_a_key(length):
    assert decode(GOLDEN[:length]) is None


@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 11, 16, 17])
def test_a_key_whose_length_or_separator_is_flipped_is_none(position):
    flipped = bytearray(GOLDEN)
    flipped[position] ^= 0x80
    assert decode(bytes(flipped)) is None


@given(st.binary(max_size=60))
def test_other_keys_of_the_database_are_none_of_an_entry(key):
    decoded = decode(key)
    assert decoded is None or decoded.encode() == key


@given(KEYS, st.integers(0, MAX_QUEUE_OFFSET))
def test_keys_of_a_queue_are_in_the_order_of_its_offsets(key, other):
    ordered = sorted([key, key._replace(queue_offset=other)], key=lambda each: each.queue_offset)
    assert [each.encode() for each in ordered] == sorted(each.encode() for each in ordered)
