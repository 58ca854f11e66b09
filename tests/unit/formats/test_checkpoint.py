"""The checkpoint file."""

import pytest

from rocketlens.errors import CheckpointError
from rocketlens.formats import checkpoint
from rocketlens.formats.checkpoint import Checkpoint

WHOLE = Checkpoint(1, 2, 3, -4, 2**63 - 1, -(2**63))


def test_a_checkpoint_fills_its_page_and_comes_back():
    encoded = WHOLE.encode()
    assert len(encoded) == 4096
    assert encoded[:48].hex() == (
        "000000000000000100000000000000020000000000000003"
        "fffffffffffffffc7fffffffffffffff8000000000000000"
    )
    assert encoded[48:] == bytes(4048)
    assert checkpoint.decode(encoded) == WHOLE
    assert checkpoint.decode(memoryview(encoded)) == WHOLE


def test_a_checkpoint_of_nothing_is_all_zero():
    assert Checkpoint().encode() == bytes(4096)
    assert checkpoint.decode(bytes(4096)) == Checkpoint()


def test_every_prefix_with_the_fields_reads_and_every_shorter_one_is_an_error():
    encoded = WHOLE.encode()
    for length in range(48):
        with pytest.raises(CheckpointError, match=f"has {length} bytes"):
            checkpoint.decode(encoded[:length])
    for length in (48, 49, 4095):
        assert checkpoint.decode(encoded[:length]) == WHOLE


def test_each_flipped_byte_changes_exactly_the_field_it_is_in():
    encoded = WHOLE.encode()
    for position in range(64):
        changed = bytearray(encoded)
        changed[position] ^= 0xFF
        differing = [
            index
            for index, (now, before) in enumerate(
                zip(checkpoint.decode(changed), WHOLE, strict=True)
            )
            if now != before
        ]
        assert differing == ([position // 8] if position < 48 else [])
