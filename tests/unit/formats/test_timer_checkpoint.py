"""The file that says how far timers are delivered."""

import pytest

from rocketlens.errors import CheckpointError
from rocketlens.formats import timer_checkpoint
from rocketlens.formats.timer_checkpoint import FIELDS, OWN_MARK, TimerCheckpoint

# What RocketMQ 5.5.0 wrote after 18 timers.
REAL = bytes.fromhex(
    "000001a203a0c6b000000000000003a80000000000000012000000000000001200000000000000000000"
    "01a203a0c8ca000000000000000f"
).ljust(4096, b"\0")
OURS = TimerCheckpoint(1, 2, 3, 3, 4, 5, 6, 0, 7, 8, 9, 10)


def test_what_rocketmq_wrote_is_read_and_is_not_ours():
    found = timer_checkpoint.decode(REAL)
    assert found.read_time_ms == 1795357198000
    assert (found.timer_log_flushed_offset, found.queue_offset, found.master_queue_offset) == (
        18 * 52,
        18,
        18,
    )
    assert (found.state_version, found.version_timestamp_ms, found.version_counter) == (
        0,
        1795357198538,
        15,
    )
    assert not found.is_own


def test_ours_fills_its_page_comes_back_and_has_rocketmqs_fields_where_it_reads_them():
    encoded = OURS.encode()
    assert len(encoded) == 4096
    assert encoded[:56] == FIELDS.pack(*OURS)[:56]
    assert encoded[FIELDS.size :] == bytes(4096 - FIELDS.size)
    found = timer_checkpoint.decode(memoryview(encoded))
    assert found.is_own
    assert found._replace(own_mark=0, checksum=0) == OURS
    assert found.own_mark == OWN_MARK


def test_every_prefix_with_the_fields_reads_and_every_shorter_one_is_an_error():
    encoded = OURS.encode()
    for length in range(FIELDS.size):
        with pytest.raises(CheckpointError, match=f"has {length} bytes"):
            timer_checkpoint.decode(encoded[:length])
    for length in (FIELDS.size, FIELDS.size + 1, 4095):
        assert timer_checkpoint.decode(encoded[:length]).is_own


def test_each_flipped_byte_of_the_fields_makes_it_no_longer_ours():
    encoded = OURS.encode()
    for position in range(FIELDS.size):
        changed = bytearray(encoded)
        changed[position] ^= 0x10
        assert not timer_checkpoint.decode(changed).is_own, position


def test_what_rocketmq_writes_over_ours_is_not_taken_for_ours():
    assert not timer_checkpoint.decode(REAL[:56] + OURS.encode()[56:]).is_own
