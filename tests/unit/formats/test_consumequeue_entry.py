"""Entries of a consume queue."""

import struct

import pytest

from rocketlens.formats import consumequeue_entry as queue
from rocketlens.formats.consumequeue_entry import FILLER, QueueEntry


def test_an_entry_is_twenty_bytes_big_endian():
    entry = QueueEntry(0x0102030405060708, 0x090A0B0C, -2)
    encoded = bytes.fromhex("0102030405060708 090a0b0c fffffffffffffffe")
    assert entry.encode() == encoded
    assert queue.decode(encoded) == entry
    assert queue.decode(b"before" + encoded + b"behind", 6) == entry


def test_an_entry_of_no_size_is_the_end():
    assert queue.decode(bytes(20)).is_end
    assert QueueEntry(1, -1, 0).is_end
    assert not QueueEntry(0, 1, 0).is_end


def test_the_filler_stands_for_entries_below_the_first():
    assert FILLER.encode() == bytes.fromhex("0000000000000000 7fffffff 0000000000000000")
    assert FILLER.is_filler
    assert not FILLER.is_end
    assert not QueueEntry(0, 91, 0).is_filler
    assert not QueueEntry(1, queue.FILLER_SIZE, 0).is_filler


def test_each_flipped_byte_changes_exactly_the_field_it_is_in():
    entry = QueueEntry(4096, 200, 12345)
    for position in range(queue.ENTRY_BYTES):
        changed = bytearray(entry.encode())
        changed[position] ^= 0xFF
        differing = [a != b for a, b in zip(queue.decode(bytes(changed)), entry, strict=True)]
        assert differing == [position < 8, 8 <= position < 12, position >= 12]


def test_fewer_bytes_than_an_entry_are_never_read_as_one():
    for length in range(queue.ENTRY_BYTES):
        with pytest.raises(struct.error):
            queue.decode(bytes(length))
