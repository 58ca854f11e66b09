"""A table is written whole; changes that an earlier version left beside it are read once."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.broker.tables.config_table import ConfigFile, damaged_tables
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import configured_topics
from rocketlens.store.read.table_changes import Change, mark_of
from rocketlens.wire.declare import members_of
from tests.support.changes_files import encode_change, encode_first
from tests.support.effort import sized
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import Clock


def table_of_topics(directory, count=100, kind=TopicTable):
    """A table of T0, T1, …, in its file."""
    table = kind(StoreLayout(directory), QuickDisk(), Clock())
    if kind is TopicTable:
        table.put(*(StoredTopic(f"T{number}") for number in range(count)))
    else:
        table.put_many({f"T{number}": {} for number in range(count)})
    table.save()
    return table


def again(directory, kind=TopicTable):
    return kind(StoreLayout(directory), QuickDisk(), Clock())


def test_entries_that_were_read_count_once_when_they_are_replaced(tmp_path):
    table_of_topics(tmp_path)
    table = again(tmp_path)
    read_bytes = table._bytes
    table.put(*table.entries.values())
    assert table._bytes == read_bytes
    for name in list(table.entries):
        table.remove(name)
    assert table._bytes == 0


@pytest.mark.parametrize("kind", [TopicTable, GroupTable])
def test_the_file_has_what_its_layout_says_of_all_entries(tmp_path, kind):
    table = table_of_topics(tmp_path, kind=kind)
    table.remove("T7")
    table.put_all({"007": table.entries["T0"], "\u6807": table.entries["T1"]})
    table.save()
    other = ConfigFile(tmp_path / "other.json", QuickDisk())
    other.write(table.value())
    content = (tmp_path / "config" / kind.FILE).read_bytes()
    assert content == (tmp_path / "other.json").read_bytes()
    assert again(tmp_path, kind).entries == table.entries
    assert table._bytes < len(content) < table._bytes + 1000


def leave_changes(directory, *changes, of=None):
    """Write a file of changes beside the table of topics."""
    file = directory / "config" / "topics.json"
    first = encode_first(mark_of(file.read_bytes() if of is None else of))
    path = file.with_name("topics.json.changes")
    path.write_bytes(first + b"".join(map(encode_change, changes)))
    return path


def put(name, counter=9):
    version = {"counter": counter, "stateVersion": 0, "timestamp": 5}
    return Change(version, {name: StoredTopic(name).encode()}, [])


def test_changes_left_beside_a_table_are_read_once_and_removed_when_it_is_written(tmp_path):
    table_of_topics(tmp_path)
    removal = Change({"counter": 11, "stateVersion": 0, "timestamp": 6}, {}, ["T3"])
    path = leave_changes(tmp_path, put("New"), put("007", 10), removal)
    assert "New" in configured_topics(StoreLayout(tmp_path))
    found = again(tmp_path)
    assert {"New", "007"} < found.entries.keys()
    assert "T3" not in found.entries
    assert found.data_version.counter == 11
    # The next save writes it, though nothing was changed since.
    assert found.is_changed
    assert path.exists()
    found.snapshot()()
    assert not path.exists()
    assert again(tmp_path).entries == found.entries
    assert not again(tmp_path).is_changed


def test_a_kill_before_the_changes_are_removed_loses_and_repeats_nothing(tmp_path, caplog):
    table_of_topics(tmp_path)
    path = leave_changes(tmp_path, put("New"))
    content = path.read_bytes()
    found = again(tmp_path)
    found.save()
    path.write_bytes(content)
    assert again(tmp_path).entries == found.entries
    assert not caplog.messages


def test_a_last_change_that_was_cut_was_never_acknowledged(tmp_path, caplog):
    table_of_topics(tmp_path)
    path = leave_changes(tmp_path, put("N0"), put("N1"))
    path.write_bytes(path.read_bytes()[:-1])
    found = again(tmp_path)
    assert "N0" in found.entries
    assert "N1" not in found.entries
    assert not caplog.messages


def test_a_damaged_change_costs_itself_and_is_reported(tmp_path, caplog):
    table_of_topics(tmp_path)
    path = leave_changes(tmp_path, *(put(f"N{number}") for number in range(3)))
    path.write_bytes(path.read_bytes().replace(b'"topicName":"N1"', b'"topicName":"N9"'))
    (told,) = damaged_tables(tmp_path / "config")
    assert "1 of its 3 lines are damaged" in told
    found = again(tmp_path)
    assert {"N0", "N2"} < found.entries.keys()
    assert "N1" not in found.entries
    assert "1 of its 3 lines are damaged" in caplog.text
    assert len(list((tmp_path / "rocketlens" / "aside").iterdir())) == 1
    found.save()
    assert not path.exists()


def test_what_another_program_wrote_since_counts_and_what_it_lacks_is_reported(tmp_path, caplog):
    table_of_topics(tmp_path)
    leave_changes(tmp_path, put("New"))
    file = tmp_path / "config" / "topics.json"
    file.write_text(file.read_text().replace("T1", "X1"))
    found = again(tmp_path)
    assert "X1" in found.entries
    assert "New" not in found.entries
    assert "was written by another program, and lacks 1 that were made before: 'New'" in caplog.text


names = st.text(st.sampled_from("%|aZ09_-"), min_size=1, max_size=4) | st.sampled_from(
    ["007", "-0", "-01", "1e5", "null", "true"]
)


@settings(max_examples=sized(20, 50))
@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "start"]), names)))
def test_a_table_is_what_was_put_whatever_was_written_of_it_when(steps):
    with TemporaryDirectory() as directory:
        table = table_of_topics(Path(directory), 20)
        expected = dict(table.entries)
        for step, name in steps:
            if step == "put":
                expected[name] = StoredTopic(name, len(expected))
                table.put(expected[name])
                table.snapshot()()
            elif step == "remove":
                expected.pop(name, None)
                table.remove(name)
                table.snapshot()()
            else:
                version = members_of(table.data_version)
                table = again(Path(directory))
                assert members_of(table.data_version) == version
            assert table.entries == expected
        assert again(Path(directory)).entries == expected


def test_a_table_of_any_topics_is_read_as_it_was_written(tmp_path):
    table = TopicTable(StoreLayout(tmp_path), Disk(), Clock())
    odd = StoredTopic('q"\\\t', 1, 2, 7, 'M"', 3, order=True, attributes={"a": "\xe9"})
    table.put(odd, StoredTopic("\ud800", others={"later": [1, {"x": None}]}))
    table.save()
    found = again(tmp_path).entries
    assert found['q"\\\t'].attributes == {"a": "\xe9"}
    assert [each.others for each in found.values()] == [{}, {"later": [1, {"x": None}]}]
