"""A file of changes is read as far as it is whole, and only for the table it belongs to."""

import zlib

import pytest

from rocketlens.store.read.table_changes import (
    NO_CHANGES,
    Change,
    TableMark,
    changed_names,
    changes_path,
    decode,
    encode_change,
    encode_first,
    mark_of,
    read_changes,
)

MARK = mark_of(b"{}")
CHANGES = [
    Change({"counter": 1}, {"T": {"perm": 6}, "\u6807": {"a": [1, None]}}, []),
    Change({"counter": 2}, {}, ["T", "007"]),
]


def content_of(changes=CHANGES, mark=MARK):
    return encode_first(mark) + b"".join(map(encode_change, changes))


def test_changes_are_read_back_as_they_were_written():
    read = decode(content_of())
    assert (read.mark, read.changes, read.problem) == (MARK, CHANGES, "")
    assert content_of().isascii()


def test_a_mark_differs_with_every_content():
    assert mark_of(b"{}") == TableMark(2, zlib.crc32(b"{}"))
    assert len({mark_of(content) for content in (b"", b"{}", b"[]", b"{} ")}) == 4


def test_a_last_line_cut_anywhere_was_never_acknowledged_and_is_left_out():
    content = content_of()
    start = len(content_of(CHANGES[:1]))
    for end in range(start, len(content)):
        read = decode(content[:end])
        assert (read.changes, read.problem) == (CHANGES[:1], "")


def test_a_changed_byte_costs_its_own_line_alone_and_is_reported():
    content = content_of()
    first, second = len(encode_first(MARK)), len(content_of(CHANGES[:1]))
    separator = first + 8
    for at in {*range(first, second - 1)} - {separator}:
        hurt = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        read = decode(hurt)
        assert (read.changes, read.problem) == (CHANGES[1:], "1 of its 2 lines are damaged")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"rocketlens-changes 2 2 00000000",
        b"rocketlens-changes 1 2",
        b"rocketlens-changes 1 x y",
    ],
)
def test_without_its_first_line_no_change_is_believed(first):
    read = decode(first + b"\n" + encode_change(CHANGES[0]))
    assert (read.mark, list(read.changes)) == (None, [])
    assert "first line" in read.problem


def test_changes_stand_beside_their_table_and_are_none_without_a_file(tmp_path):
    table = tmp_path / "topics.json"
    assert read_changes(table) == NO_CHANGES
    assert changed_names(table) == set()
    assert changes_path(table) == tmp_path / "topics.json.changes"
    changes_path(table).write_bytes(content_of())
    assert read_changes(table).changes == CHANGES
    assert changed_names(table) == {"T", "\u6807"}
