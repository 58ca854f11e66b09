"""Entries of a batch queue."""

import struct

import pytest

from rocketlens.formats import batchqueue_entry as queue
from rocketlens.formats.batchqueue_entry import BatchEntry


def test_an_entry_is_forty_six_bytes_big_endian():
    entry = BatchEntry(0x0102030405060708, 0x090A0B0C, -2, 5, 6, 7)
    encoded = bytes.fromhex(
        "0102030405060708 090a0b0c fffffffffffffffe 0000000000000005 0000000000000006 0007"
        "ffffffff 00000000"
    )
    assert entry.encode() == encoded
    assert queue.decode(encoded) == entry
    assert queue.decode(b"before" + encoded + b"behind", 6) == entry
    assert entry.stop == 13


def test_an_entry_of_no_size_or_no_message_is_the_end():
    assert queue.decode(bytes(46)).is_end
    assert BatchEntry(1, -1, 0, 0, 0, 1).is_end
    assert BatchEntry(1, 91, 0, 0, 0, 0).is_end
    assert not BatchEntry(0, 91, 0, 0, 0, 1).is_end


def test_each_flipped_byte_changes_exactly_the_field_it_is_in():
    entry = BatchEntry(4096, 200, 12345, 6, 7, 8)
    ends = [8, 12, 20, 28, 36, 38, 42, 46]
    for position in range(queue.ENTRY_BYTES):
        changed = bytearray(entry.encode())
        changed[position] ^= 0xFF
        differing = [a != b for a, b in zip(queue.decode(bytes(changed)), entry, strict=True)]
        field = next(number for number, end in enumerate(ends) if position < end)
        assert differing == [number == field for number in range(len(ends))]


def test_fewer_bytes_than_an_entry_are_never_read_as_one():
    for length in range(queue.ENTRY_BYTES):
        with pytest.raises(struct.error):
            queue.decode(bytes(length))
