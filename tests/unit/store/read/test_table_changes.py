"""A file of changes is read as far as it is whole, and only for the table it belongs to."""

import itertools
import zlib

import pytest

from rocketlens.store.read.table_changes import (
    Change,
    Changes,
    TableMark,
    changes_path,
    decode,
    mark_of,
    read_changes,
)
from tests.support.changes_files import encode_change, encode_compaction, encode_first

MARK = mark_of(b"{}")
CHANGES = [
    Change({"counter": 1}, {"T": {"perm": 6}, "\u6807": {"a": [1, None]}}, []),
    Change({"counter": 2}, {}, ["T", "007"]),
]


def content_of(changes=CHANGES, mark=MARK):
    return encode_first(mark) + b"".join(map(encode_change, changes))


def test_changes_are_read_as_they_were_written():
    read = decode(content_of())
    assert (read.since(MARK), read.problem) == (CHANGES, "")


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
    for at, bit in itertools.product(range(first, second - 1), (1, 32)):
        hurt = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        read = decode(hurt)
        assert (read.changes, read.problem) == (CHANGES[1:], "1 of its 2 lines are damaged")


LATER = mark_of(b"later")


def compacted(lines=1):
    """A file of two changes, of which another file of the table has the first."""
    announced = encode_compaction(LATER, lines)
    return content_of(CHANGES[:1]) + announced + encode_change(CHANGES[1])


def test_a_file_announced_lacks_the_changes_behind_those_it_has():
    read = decode(compacted())
    assert read.problem == ""
    assert read.since(MARK) == CHANGES
    assert read.since(LATER) == CHANGES[1:]
    assert read.since(mark_of(b"other")) is None
    # A damaged table begins with its backup, which may be any of them.
    assert read.since(None) == CHANGES
    assert decode(compacted(lines=0)).since(LATER) == CHANGES
    assert decode(compacted(lines=99)).since(LATER) == CHANGES[1:]


def test_an_announcement_counts_lines_that_are_damaged():
    content = compacted().replace(b"perm", b"wrong")
    read = decode(content)
    assert (read.problem, read.since(LATER)) == ("1 of its 3 lines are damaged", CHANGES[1:])


def test_a_changed_byte_of_an_announcement_is_damage():
    content = compacted()
    first = len(content_of(CHANGES[:1]))
    end = content.index(b"\n", first)
    for at, bit in itertools.product(range(first, end), (1, 32)):
        hurt = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        read = decode(hurt)
        assert (read.since(MARK), read.since(LATER)) == (CHANGES, None)
        assert read.problem == "1 of its 3 lines are damaged"


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
    assert (read.since(MARK), list(read.changes)) == (None, [])
    assert "first line" in read.problem


def test_changes_stand_beside_their_table_and_are_none_without_a_file(tmp_path):
    table = tmp_path / "topics.json"
    assert read_changes(table) == Changes()
    assert changes_path(table) == tmp_path / "topics.json.changes"
    changes_path(table).write_bytes(content_of())
    assert read_changes(table).changes == CHANGES
