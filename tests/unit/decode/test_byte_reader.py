"""Bytes read one after another, within bounds."""

import struct

import pytest

from rocketlens import limits
from rocketlens.decode.byte_reader import ByteReader
from rocketlens.errors import BodyError


def test_numbers_are_read_one_after_another():
    reader = ByteReader(bytes.fromhex("01 ff fe ff fe 00 00 00 02 ac 02"))
    assert reader.peek() == reader.byte() == 1
    assert reader.signed(2) == -2
    assert reader.unsigned(2) == 0xFFFE
    assert reader.unpack(struct.Struct(">i")) == (2,)
    assert reader.varint() == 300
    reader.end()


def test_what_ends_too_early_is_refused_with_its_position():
    reader = ByteReader(b"\x80")
    with pytest.raises(BodyError, match="at byte 0: it ends too early: 2 bytes are named, 1 are"):
        reader.take(2)
    with pytest.raises(BodyError, match="at byte 0"):
        reader.take(-1)
    with pytest.raises(BodyError, match="at byte 1: it ends too early"):
        reader.varint()
    with pytest.raises(BodyError, match="at byte 0: 1 bytes are left"):
        ByteReader(b"a").end()


def test_a_varint_has_64_bits_at_most():
    assert ByteReader(b"\xff" * 9 + b"\x01").varint() == 2**64 - 1
    with pytest.raises(BodyError, match="64 bits"):
        ByteReader(b"\xff" * 9 + b"\x02").varint()
    with pytest.raises(BodyError, match="10 bytes"):
        ByteReader(b"\xff" * 11).varint()


def test_values_are_counted_in_the_whole():
    whole = ByteReader(b"")
    part = ByteReader(b"", whole.work)
    part.count(limits.MAX_BINARY_VALUES)
    with pytest.raises(BodyError, match="more than"):
        whole.count()
    with pytest.raises(BodyError, match="count of -1"):
        whole.count(-1)


def test_a_level_that_failed_is_counted_no_more():
    reader = ByteReader(b"")
    for _ in range(limits.MAX_DECODED_LEVELS + 1):
        with pytest.raises(BodyError, match="early"), reader.level():
            reader.byte()
