"""Compressed bodies of every kind, and bombs."""

import resource
import tracemalloc
import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard

from rocketlens.errors import BodyError
from rocketlens.formats import body_compression as compression
from tests.unit.formats import record_vectors

KINDS = {
    "legacy zlib": 0x001,
    "LZ4": 0x101,
    "Zstandard": 0x201,
    "zlib": 0x301,
}
TEXT = ("the body 消息 " * 300).encode()

every_kind = pytest.mark.parametrize("sys_flag", KINDS.values(), ids=KINDS)


def zeros(sys_flag, length):
    """A small body that grows to ``length`` bytes, made without the bytes themselves."""
    step = bytes(1 << 20)
    if sys_flag == KINDS["LZ4"]:
        packer = lz4.frame.LZ4FrameCompressor()
        parts = [packer.begin()]
        parts += [packer.compress(step) for _ in range(length >> 20)]
        return b"".join([*parts, packer.flush()])
    if sys_flag == KINDS["Zstandard"]:
        stream = zstandard.ZstdCompressor(level=19).compressobj()
    else:
        stream = zlib.compressobj(9)
    return b"".join([stream.compress(step) for _ in range(length >> 20)] + [stream.flush()])


@every_kind
def test_a_body_comes_back(sys_flag):
    for body in (b"", b"x", TEXT, bytes(100_000)):
        assert compression.decompress(compression.compress(body, sys_flag), sys_flag) == body


def test_bodies_that_rocketmq_packed_are_unpacked():
    unpacked = [
        fields["body"].decode()
        for raw, fields in record_vectors.all_records()
        if fields["topic"] == "Packed"
    ]
    assert unpacked == ["the body 消息 " * 8] * 8


@pytest.mark.parametrize("sys_flag", [0, 0x2, 0x100, 0x300, 0x700])
def test_a_body_without_the_bit_is_left_as_it_is(sys_flag):
    assert compression.decompress(b"\x78\x9c no", sys_flag) == b"\x78\x9c no"
    assert compression.compress(TEXT, sys_flag) == TEXT


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_an_unknown_compression_is_an_error(sys_flag):
    with pytest.raises(BodyError, match=f"{sys_flag:#x}"):
        compression.decompress(TEXT, sys_flag)
    with pytest.raises(BodyError, match=f"{sys_flag:#x}"):
        compression.compress(TEXT, sys_flag)


@every_kind
def test_a_body_of_exactly_the_limit_is_given_and_one_byte_more_is_an_error(sys_flag):
    packed = compression.compress(TEXT, sys_flag)
    assert compression.decompress(packed, sys_flag, len(TEXT)) == TEXT
    with pytest.raises(BodyError, match=f"grows beyond {len(TEXT) - 1} bytes"):
        compression.decompress(packed, sys_flag, len(TEXT) - 1)
    with pytest.raises(BodyError, match="grows beyond 0 bytes"):
        compression.decompress(packed, sys_flag, 0)


@every_kind
def test_a_bomb_stops_at_the_limit_before_its_memory_is_taken(sys_flag):
    bomb = zeros(sys_flag, 256 << 20)
    assert len(bomb) < 2 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(BodyError, match="grows beyond"):
            compression.decompress(bomb, sys_flag, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert peak < 24 << 20
    assert grown < 64 << 10  # KiB


@every_kind
def test_a_body_too_large_to_keep_while_it_is_counted_comes_back_whole(sys_flag):
    packed = zeros(sys_flag, 17 << 20)
    assert compression.decompress(packed, sys_flag, 17 << 20) == bytes(17 << 20)


@every_kind
def test_every_prefix_of_a_packed_body_is_an_error(sys_flag):
    packed = compression.compress(TEXT[:500], sys_flag)
    for length in range(len(packed)):
        with pytest.raises(BodyError):
            compression.decompress(packed[:length], sys_flag)


@every_kind
def test_a_flipped_bit_gives_a_body_or_an_error_never_another_exception(sys_flag):
    packed = compression.compress(TEXT[:300], sys_flag)
    for position in range(len(packed)):
        for bit in range(8):
            changed = bytearray(packed)
            changed[position] ^= 1 << bit
            with suppress(BodyError):
                assert len(compression.decompress(bytes(changed), sys_flag, 1 << 20)) <= 1 << 20


@every_kind
def test_bytes_of_another_kind_are_an_error(sys_flag):
    for other in KINDS.values():
        same = {other, sys_flag} <= {KINDS["zlib"], KINDS["legacy zlib"]} or other == sys_flag
        if not same:
            with pytest.raises(BodyError):
                compression.decompress(compression.compress(TEXT, other), sys_flag)
    with pytest.raises(BodyError):
        compression.decompress(b"no packed body", sys_flag)
    with pytest.raises(BodyError):
        compression.decompress(b"", sys_flag)


@every_kind
def test_bytes_behind_a_packed_body_are_ignored_as_rocketmq_ignores_them(sys_flag):
    packed = compression.compress(TEXT, sys_flag)
    assert compression.decompress(packed + b"behind", sys_flag) == TEXT
