"""What a broker says of its topics."""

import json
import struct
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import limits
from rocketlens.errors import CommandBodyError
from rocketlens.wire.bodies.tables import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicFilterType,
    decode_registration,
)
from rocketlens.wire.declare import write_body

VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1_700_000_000_000}
TOPICS = {
    "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6),
    "%RETRY%g": TopicConfig(
        topic_name="%RETRY%g",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=7,
        topic_filter_type=TopicFilterType.MULTI_TAG,
    ),
}
BODY = RegisterBrokerBody(
    topic_config_table=TopicConfigTable(
        data_version=DataVersion(counter=3, timestamp_ms=1_700_000_000_000),
        topic_config_table=TOPICS,
    ),
    filter_server_list=("10.0.0.1:7000",),
)


def part(content):
    return struct.pack(">i", len(content)) + content


def parts(version=5):
    """Write BODY in parts, as the Java class does."""
    written = part(json.dumps(VERSION).encode()) + struct.pack(">i", len(TOPICS))
    for each in TOPICS.values():
        words = [each.topic_name, each.read_queue_nums, each.write_queue_nums, each.perm]
        line = " ".join(map(str, [*words, each.topic_filter_type.name, ""]))
        written += part(f"{line}{{}}".encode() if version >= 5 else line.encode())
    written += part(b'["10.0.0.1:7000"]')
    return written + struct.pack(">i", 0) if version >= 5 else written


@pytest.mark.parametrize("version", [4, 5])
def test_a_compressed_registration_says_the_same_as_a_plain_one(version):
    assert decode_registration(write_body(BODY)) == BODY
    assert decode_registration(zlib.compress(parts(version)), compressed=True) == BODY


def test_no_body_is_a_broker_without_topics():
    assert decode_registration(b"") == RegisterBrokerBody()


def test_a_broker_before_3_0_11_sends_its_topics_alone():
    content = write_body(BODY.topic_config_table)
    read = decode_registration(content, version=0)
    assert read.topic_config_table == BODY.topic_config_table
    assert read.filter_server_list == ()


def test_a_compressed_registration_cut_anywhere_is_an_error():
    packed = zlib.compress(parts())
    for length in range(1, len(packed)):
        with pytest.raises(CommandBodyError):
            decode_registration(packed[:length], compressed=True)
    plain = parts(4)
    for length in range(len(plain)):
        with pytest.raises(CommandBodyError):
            decode_registration(zlib.compress(plain[:length]), compressed=True)


@given(st.data())
def test_whatever_is_in_it_is_a_registration_or_an_error(data):
    plain = bytearray(parts())
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CommandBodyError):
        decode_registration(zlib.compress(bytes(plain)), compressed=True)


def test_a_bomb_stops_at_the_limit():
    bomb = zlib.compress(bytes(8 * limits.MAX_JSON_BODY_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(CommandBodyError, match="over"):
            decode_registration(bomb, compressed=True)
        assert tracemalloc.get_traced_memory()[1] <= 3 * limits.MAX_JSON_BODY_BYTES
    finally:
        tracemalloc.stop()


def test_a_count_of_topics_that_cannot_be_is_an_error_before_any_work():
    lie = part(json.dumps(VERSION).encode()) + struct.pack(">i", 2**31 - 1)
    with pytest.raises(CommandBodyError, match="a length of 2147483647"):
        decode_registration(zlib.compress(lie), compressed=True)
