"""Notes about a log: believed whole or not at all, and only of the log they were made of."""

import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens.errors import RecordError
from rocketlens.store import fs
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.note import LogMark, Note, decode_note, encode_note, read_note
from tests.support.written_stores import QUIET, Clock, open_small, records_of, send_many

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
