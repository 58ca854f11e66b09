"""Notes about a log and its copy: believed whole or not at all, and only of that log."""

import errno
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rocketlens.errors import RecordError
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import LogMark, Note, decode_note, encode_note, read_note
from rocketlens.store.read.state import StoreState, read_synced
from rocketlens.store.read.tap_note import TapGap, TapNote, read_tap_note
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import (
    QUIET,
    Clock,
    open_small,
    queue_lengths,
    records_of,
    send_many,
)

MARK = LogMark(4711, 230, 2864434397)
VALUE = {"safeOffset": 96788992, "clean": True, "files": [["20261121233000123", "00ff"]]}


@pytest.fixture
def log(tmp_path):
    """The log of a store of 30 messages, and the physical offset of each."""
    with open_small(tmp_path, options=QUIET) as store:
        send_many(store, 30)
    log = CommitLog(tmp_path / "commitlog")
    yield log, [record.physical_offset for record in records_of(tmp_path)]
    log.close()


@given(
    st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()),
    st.none() | st.builds(LogMark, *[st.integers(0, 2**62 - 1)] * 3),
)
def test_a_note_is_read_back_as_it_was_written(value, mark):
    assert decode_note("index", encode_note("index", value, mark)) == Note(value, mark)


def test_a_note_is_json():
    content = json.loads(encode_note("index", VALUE, MARK))
    assert content["note"] == {"kind": "index", "log": list(MARK), "value": VALUE}


def test_no_changed_byte_and_no_cut_of_a_note_is_believed():
    content = encode_note("index", VALUE, MARK)
    for position in range(len(content)):
        assert decode_note("index", content[:position]) is None
        for changed in {content[position] ^ (1 << bit) for bit in range(8)}:
            damaged = content[:position] + bytes([changed]) + content[position + 1 :]
            assert decode_note("index", damaged) is None, damaged


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b'{"safeOffset":120,"entriesIn":0,"tags":true,"clean":true,"files":[]}',
        encode_note("state", VALUE, MARK),
        encode_note("index", VALUE, MARK) + b"\n",
    ],
    ids=["empty", "null", "of an earlier version", "of another kind", "with more behind it"],
)
def test_what_is_no_note_of_this_kind_is_not_believed(content):
    assert decode_note("index", content) is None


def test_a_mark_knows_its_own_log_again(log):
    commit_log, offsets = log
    for offset in offsets:
        mark = LogMark.at(commit_log, offset)
        assert mark.is_of(commit_log)
        assert not mark._replace(record_crc=mark.record_crc ^ 1).is_of(commit_log)
        assert not mark._replace(record_offset=offset + 1).is_of(commit_log)


def test_a_mark_is_not_of_a_log_whose_record_there_is_another(log, tmp_path_factory):
    commit_log, offsets = log
    other = tmp_path_factory.mktemp("other")
    with open_small(other, options=QUIET, clock=Clock(1_700_000_000_001)) as store:
        send_many(store, 30)
    other_log = CommitLog(other / "commitlog")
    # The same messages at the same offsets, stored at other times.
    assert [record.physical_offset for record in records_of(other)] == offsets
    assert not any(LogMark.at(commit_log, offset).is_of(other_log) for offset in offsets)
    other_log.close()


def test_where_no_record_is_there_is_no_mark(log):
    commit_log, offsets = log
    with pytest.raises(RecordError):
        LogMark.at(commit_log, offsets[3] + 1)
    assert not MARK._replace(record_offset=commit_log.max_offset).is_of(commit_log)


def test_a_segment_that_cannot_be_opened_now_says_nothing_about_a_mark(log, monkeypatch):
    commit_log, offsets = log
    mark = LogMark.at(commit_log, offsets[0])
    commit_log.close()

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(fs.MappedFile, "__init__", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            mark.is_of(commit_log)
    assert mark.is_of(commit_log)


def test_a_note_that_is_not_there_is_none_and_one_that_cannot_be_read_is_an_error(
    tmp_path, monkeypatch
):
    path = tmp_path / "index.json"
    assert read_note(path, "index", max_bytes=1000) is None
    path.write_bytes(encode_note("index", VALUE, MARK))
    assert read_note(path, "index", max_bytes=1000) == Note(VALUE, MARK)
    assert read_note(path, "index", max_bytes=50) is None

    def refuse(*_):
        raise OSError(errno.ENFILE, "Too many open files in system")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(OSError, match="in system"):
        read_note(path, "index", max_bytes=1000)


def test_no_changed_byte_of_what_is_remembered_is_believed(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 100)
        lengths = queue_lengths(store)
    for name in ("state.json", "synced"):
        path = tmp_path / "rocketlens" / name
        sound = path.read_bytes()
        places = [place for place in range(len(sound)) if sound[place]]
        for place in places[:: max(len(places) // 40, 1)]:
            changed = sound[place] ^ 1
            path.write_bytes(sound[:place] + bytes([changed]) + sound[place + 1 :])
            store = open_small(
                tmp_path, options=replace(QUIET, build_index=False), disk=QuickDisk()
            )
            assert queue_lengths(store) == lengths
            assert store.recovered.cut is None
            store.close_abruptly()
            path.write_bytes(sound)


def test_notes_of_earlier_versions_are_as_good_as_none(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 100)
        lengths, end = queue_lengths(store), store.end_offset
    layout = store.layout
    layout.synced.write_bytes(struct.pack(">qq", end - 500, ~(end - 500)))
    layout.state.write_text(
        f'{{"queuesOffset":{end},"lastRecordOffset":null,"lastRecordTimestamp":1,'
        '"queueOffsets":{"Orders":{"0":[0,97]}},"checkpoints":[],"boot":""}'
    )
    assert read_synced(layout) is None
    assert StoreState.decode(layout.state.read_bytes()) is None
    with open_small(tmp_path) as store:
        assert store.recovered.record_count == 100
        assert queue_lengths(store) == lengths


def test_what_is_synced_of_another_log_says_nothing_of_this_one(tmp_path):
    stores = {name: open_small(tmp_path / name) for name in ("a", "b")}
    for name, store in stores.items():
        send_many(store, 30, body_bytes=100 if name == "a" else 60)
        store.flush()
    stores["b"].close_abruptly()
    later = send_many(stores["a"], 5, first=30)
    stores["a"].flush_log()
    stores["a"].close_abruptly()
    log = stores["b"]._log._log
    synced = read_synced(stores["a"].layout)
    assert synced.last_record_offset == later[-1].physical_offset
    assert read_synced(stores["b"].layout).may_be_of(log)
    first = records_of(tmp_path / "b")[3]
    other = synced._replace(last_record_offset=first.physical_offset)
    assert not other.may_be_of(log)


def test_a_reader_finds_what_is_synced_while_it_is_being_written(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 10)
        store.flush_log()
        first = store.end_offset
        send_many(store, 10, first=10)
        store.flush_log()
        content = store.layout.synced.read_bytes()
        second = read_synced(store.layout).offset
        assert second == store.end_offset
        # Each slot may be half written when it is read; the other one holds.
        found = set()
        for start in (0, 512):
            store.layout.synced.write_bytes(
                content[: start + 10] + bytes(10) + content[start + 20 :]
            )
            found.add(read_synced(store.layout).offset)
            store.layout.synced.write_bytes(content)
        assert found == {first, second}


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
