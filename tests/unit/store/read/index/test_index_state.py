"""How far the index is safe is read back as it was written, or not at all."""

from dataclasses import replace

import pytest

from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.index_file import Geometry, IndexHeader
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import (
    IndexState,
    ResumePoint,
    full_index_end,
    read_index_state,
    safe_offset_of,
)
from rocketlens.store.read.note import encode_note

GEOMETRY = Geometry(50, 100)
FULL = IndexHeader(1, 2000, 10, 5000, 40, 100)
PART = IndexHeader(2001, 3000, 5100, 9000, 20, 30)
STATE = IndexState(
    ResumePoint(9100, 0),
    with_tags=True,
    geometry=GEOMETRY,
    files=(("20231114221320000", FULL), ("20231114221320001", PART)),
    mark=None,
    slots_crc=77,
)


@pytest.fixture
def layout(tmp_path):
    made = StoreLayout(tmp_path)
    made.own.mkdir()
    return made


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        replace(STATE, resume_point=ResumePoint(9000, 3), with_tags=False, slots_crc=None),
        replace(STATE, files=(), is_beside=True, kept_full=FULL),
    ],
)
def test_a_state_is_read_back_as_it_was_written(layout, state):
    layout.index_state.write_bytes(state.encode())
    assert read_index_state(layout) == state
    assert safe_offset_of(layout) == state.resume_point.physical_offset


def test_without_a_file_nothing_is_safe(layout):
    assert read_index_state(layout) is None
    assert safe_offset_of(layout) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"safeOffset": "x"},
        {"geometry": [1]},
        {"geometry": None},
        {"files": [["name"]]},
        {"files": [["name", "00"]]},
        {"keptFull": "zz"},
    ],
)
def test_a_member_of_another_kind_makes_the_whole_state_unbelieved(layout, change):
    value = {
        "safeOffset": 5,
        "entriesIn": 0,
        "tags": True,
        "geometry": [50, 100],
        "slotsCrc": None,
        "beside": False,
        "keptFull": None,
        "files": [],
    }
    layout.index_state.write_bytes(encode_note("index", value, None))
    assert safe_offset_of(layout) == 5
    layout.index_state.write_bytes(encode_note("index", value | change, None))
    assert read_index_state(layout) is None
    assert safe_offset_of(layout) == 0


def test_the_newest_full_file_is_one_that_has_all_the_entries_it_can_have():
    assert STATE.newest_full() == FULL
    assert replace(STATE, files=STATE.files[1:]).newest_full() is None
    assert replace(STATE, files=()).newest_full() is None
    # Files beside the store's own are not in its index yet.
    assert replace(STATE, is_beside=True).newest_full() is None
    assert replace(STATE, is_beside=True, kept_full=FULL).newest_full() == FULL


def test_full_files_reach_as_far_as_the_note_says_or_without_one_the_checkpoint(layout):
    before = Checkpoint(1, 2, 1234)
    assert full_index_end(layout, before) == (before.index_msg_timestamp_ms, 0)
    layout.index_state.write_bytes(STATE.encode())
    assert full_index_end(layout, before) == (FULL.end_timestamp_ms, FULL.end_offset)
    layout.index_state.write_bytes(replace(STATE, files=()).encode())
    assert full_index_end(layout, before) == (0, 0)
