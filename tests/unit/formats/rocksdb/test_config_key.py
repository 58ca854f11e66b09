"""The keys of RocketMQ 5's configuration database of version 2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.formats.rocksdb.config_key import (
    GROUPS,
    OFFSETS,
    PULL_OFFSETS,
    TOPICS,
    ConfigKey,
    decode,
)

# From the database of a broker of RocketMQ 5.5.0.
GOLDEN = {
    b"\x01\x00\x01\x02\x00\nlayouts_cg\x01\x00\x06Orders\x01\x00\x00\x00\x01": ConfigKey(
        OFFSETS, "layouts_cg", "Orders", 1
    ),
    b"\x01\x00\x02\x02\x00\nlayouts_cg\x01\x00\x06Orders\x01\x00\x00\x00\x00": ConfigKey(
        PULL_OFFSETS, "layouts_cg", "Orders", 0
    ),
    b"\x01\x00\x03\x02\x00\x08Payments": ConfigKey(TOPICS, "Payments"),
    b"\x01\x00\x04\x02\x00\nlayouts_cg": ConfigKey(GROUPS, "layouts_cg"),
}
NAMES = st.text(max_size=20)
KEYS = st.one_of(
    st.builds(ConfigKey, st.sampled_from([TOPICS, GROUPS]), NAMES, st.just(""), st.just(0)),
    st.builds(
        ConfigKey,
        st.sampled_from([OFFSETS, PULL_OFFSETS]),
        NAMES,
        NAMES,
        st.integers(0, (1 << 32) - 1),
    ),
)
every_golden = pytest.mark.parametrize("key", GOLDEN)


@every_golden
def test_keys_of_a_real_broker(key):
    assert decode(key) == GOLDEN[key]
    assert GOLDEN[key].encode() == key


@given(KEYS)
def test_a_key_is_read_as_it_was_written(key):
    assert decode(key.encode()) == key


@every_golden
def test_no_prefix_of_a_key_is_a_key_and_nothing_follows_one(key):
    assert [decode(key[:length]) for length in range(len(key))] == [None] * len(key)
    assert decode(key + b"\x01") is None


@every_golden
def test_a_flipped_byte_makes_another_key_or_none(key):
    for position in range(len(key)):
        flipped = bytearray(key)
        flipped[position] ^= 0x80
        decoded = decode(bytes(flipped))
        assert decoded != GOLDEN[key]
        assert decoded is None or decoded.encode() == bytes(flipped)


@given(st.binary(max_size=60))
def test_other_keys_of_the_database_are_none_of_an_entry(key):
    decoded = decode(key)
    assert decoded is None or decoded.encode() == key


def test_how_often_a_table_was_changed_is_no_entry():
    assert decode(b"\x01\x00\x03\x01data_version") is None
