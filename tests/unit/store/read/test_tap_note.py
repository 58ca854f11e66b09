"""The note of a copy is read as it was written, or not at all."""

import pytest

from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import TapGap, TapNote, read_tap_note

NOTE = TapNote(
    "broker-a",
    "10.0.0.1:10911",
    begin_offset=1_024,
    position=4_096,
    master_end_offset=5_000,
    last_record_ms=9_000,
    written_ms=10_500,
    gaps=(TapGap(2_000, 3_000, 77),),
    replaced=("broker-a.replaced-0001",),
    problem="no room",
)


def test_a_note_is_read_as_it_was_written(tmp_path):
    layout = StoreLayout(tmp_path)
    assert read_tap_note(layout) is None
    layout.own.mkdir()
    layout.tap.write_bytes(NOTE.encode())
    assert read_tap_note(layout) == NOTE


def test_how_far_a_copy_is_behind_follows_from_what_was_noted():
    assert (NOTE.behind_bytes, NOTE.behind_ms) == (904, 1_500)
    complete = TapNote("b", "a", 0, position=10, master_end_offset=10, written_ms=99)
    assert (complete.behind_bytes, complete.behind_ms) == (0, 0)


@pytest.mark.parametrize("step", [0, 7, 50])
def test_of_a_damaged_note_nothing_is_believed(step):
    content = NOTE.encode()
    for cut in range(0, len(content), 11):
        assert TapNote.decode(content[:cut]) is None
    flipped = bytearray(content)
    flipped[60 + step] ^= 1
    assert TapNote.decode(bytes(flipped)) is None


def test_a_note_of_another_kind_is_none():
    from rocketlens.store.read.note import encode_note

    assert TapNote.decode(encode_note("state", {"brokerName": "x"}, None)) is None
    assert TapNote.decode(encode_note("tap", {"brokerName": "x"}, None)) is None
