"""Entries of a consume queue.

Entries of a batch queue.
"""

import struct

import pytest

from rocketlens.formats import batchqueue_entry as batch_queue
from rocketlens.formats import consumequeue_entry as queue
from rocketlens.formats.batchqueue_entry import BatchEntry
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


def test_an_entry_is_forty_six_bytes_big_endian():
    entry = BatchEntry(0x0102030405060708, 0x090A0B0C, -2, 5, 6, 7)
    encoded = bytes.fromhex(
        "0102030405060708 090a0b0c fffffffffffffffe 0000000000000005 0000000000000006 0007"
        "ffffffff 00000000"
    )
    assert entry.encode() == encoded
    assert batch_queue.decode(encoded) == entry
    assert batch_queue.decode(b"before" + encoded + b"behind", 6) == entry
    assert entry.stop == 13


def test_an_entry_of_no_size_or_no_message_is_the_end():
    assert batch_queue.decode(bytes(46)).is_end
    assert BatchEntry(1, -1, 0, 0, 0, 1).is_end
    assert BatchEntry(1, 91, 0, 0, 0, 0).is_end
    assert not BatchEntry(0, 91, 0, 0, 0, 1).is_end


def test_each_flipped_byte_of_a_batch_changes_exactly_its_field():
    entry = BatchEntry(4096, 200, 12345, 6, 7, 8)
    ends = [8, 12, 20, 28, 36, 38, 42, 46]
    for position in range(batch_queue.ENTRY_BYTES):
        changed = bytearray(entry.encode())
        changed[position] ^= 0xFF
        differing = [a != b for a, b in zip(batch_queue.decode(bytes(changed)), entry, strict=True)]
        field = next(number for number, end in enumerate(ends) if position < end)
        assert differing == [number == field for number in range(len(ends))]


def test_fewer_bytes_than_an_entry_of_batches_are_never_read_as_one():
    for length in range(batch_queue.ENTRY_BYTES):
        with pytest.raises(struct.error):
            batch_queue.decode(bytes(length))
