"""Files of tables, config/*.json: read whole, written as RocketMQ writes them, with a backup.

A table is written whole; changes that an earlier version left beside it are read once.
"""

import errno
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.broker.tables.config_table import (
    ConfigFile,
    damaged_tables,
    encode_table,
    version_in,
)
from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.model.text import json_dialect
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.former_topics import configured_topics
from rocketlens.store.read.table_changes import Change, mark_of
from rocketlens.wire.bodies.tables import DataVersion
from rocketlens.wire.declare import members_of
from tests.support.changes_files import encode_change, encode_first
from tests.support.effort import sized
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import Clock


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_tables_of_a_real_broker_are_read_whole_and_written_as_it_writes_them(
    golden, version, tmp_path
):
    theirs = golden(version).store / "config"
    layout = StoreLayout(tmp_path)
    layout.config.mkdir()
    names = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
    for name in names:
        (layout.config / name).write_bytes((theirs / name).read_bytes())
    disk, clock = Disk(), Clock()
    topics = TopicTable(layout, disk, clock)
    assert topics.entries["PayTopic"].read_queue_count == 4
    assert topics.data_version.counter == 5
    offsets = ConsumerOffsets(layout, disk, clock)
    assert offsets.get("golden_cg", "PayTopic", 2) == {"4.9.7": 126, "5.5.0": 122}[version]
    assert "PayTopic" in offsets.topics_of("golden_cg")
    assert "golden_cg" in offsets.groups_of("PayTopic")
    for table in (
        topics,
        offsets,
        GroupTable(layout, disk, clock),
        DelayOffsets(layout, disk, clock),
    ):
        table.save()
    for name in names:
        ours, before = ((root / name).read_bytes() for root in (layout.config, theirs))
        read, expected = json_dialect.loads_file(ours), json_dialect.loads_file(before)
        # 4.9 has fewer members; none is lost, and what 5 adds has its default.
        assert_has(read, expected)
        if version == "5.5.0" and name != "subscriptionGroup.json":
            assert ours == before


def assert_has(value, expected):
    if not isinstance(expected, dict):
        assert value == expected
        return
    for name, inner in expected.items():
        assert_has(value[name], inner)


def test_the_content_before_is_the_backup_and_serves_when_the_file_is_damaged(tmp_path, caplog):
    path = tmp_path / "config" / "x.json"
    file = ConfigFile(path, Disk())
    assert file.read() == {}
    assert file.write(encode_table({"a": 1}))
    assert not file.write(encode_table({"a": 1}))
    assert file.write(encode_table({"a": 2}))
    assert json.loads(file.backup.read_text()) == {"a": 1}
    assert not caplog.messages
    path.write_text('{"a": ')
    damaged = ConfigFile(path, Disk())
    assert damaged.read() == {"a": 1}
    assert f"{path}: not JSON" in caplog.text
    assert "x.json.bak is used" in caplog.text
    kept = list((tmp_path / "rocketlens" / "aside").iterdir())
    assert [each.read_text() for each in kept] == ['{"a": ']
    # What is damaged never replaces the backup, which is all there is.
    assert damaged.write(encode_table({"a": 3}))
    assert json.loads(file.backup.read_text()) == {"a": 1}
    path.write_text('{"a": ')
    file.backup.write_text("[]")
    assert ConfigFile(path, Disk()).read() == {}
    assert "the table begins empty" in caplog.messages[-1]
    path.unlink()
    file.backup.unlink()
    assert ConfigFile(path, Disk()).read() == {}


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_a_table_that_is_gone_is_told_when_its_backup_is_used(tmp_path, caplog, content):
    layout = StoreLayout(tmp_path)
    for name in ("T1", "T2"):
        topics = TopicTable(layout, Disk(), Clock())
        topics.put(StoredTopic(name))
        topics.save()
    path = layout.config / "topics.json"
    assert not any(damaged_tables(layout.config))
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (told,) = damaged_tables(layout.config)
    assert "topics.json is missing or empty; its .bak is used" in told
    assert set(TopicTable(layout, Disk(), Clock()).entries) == {"T1"}
    assert "topics.json is missing or empty; topics.json.bak is used" in caplog.text


@pytest.mark.parametrize("value", [None, 3, {"counter": "x"}, {"timestamp": []}])
def test_a_data_version_that_is_none_begins_now(value):
    assert version_in({"dataVersion": value}, 77) == DataVersion(timestamp_ms=77)


def test_tables_with_members_of_other_kinds_keep_the_sound_ones(tmp_path):
    layout = StoreLayout(tmp_path)
    layout.config.mkdir()
    (layout.config / "topics.json").write_text(
        '{"topicConfigTable": {"a": 3, "b": {"topicName": "b", "perm": 4}}, "dataVersion": 1}'
    )
    (layout.config / "consumerOffset.json").write_text('{"offsetTable": {"a@g": 3, "b@g": {0: 1}}}')
    assert TopicTable(layout, Disk(), Clock()).entries["b"].perm == 4
    assert ConsumerOffsets(layout, Disk(), Clock()).table == {"b@g": {0: 1}}


NAMES = ["007", "00", "01", "-0", "-01", "-1", "0", "7", "9" * 19, "9" * 127, "1e5", "%RETRY%01"]


def test_a_name_of_digits_is_the_same_name_after_any_start(tmp_path):
    layout = StoreLayout(tmp_path)
    for number, name in enumerate(NAMES):
        topics = TopicTable(layout, Disk(), Clock())
        groups = GroupTable(layout, Disk(), Clock())
        offsets = ConsumerOffsets(layout, Disk(), Clock())
        assert list(topics.entries) == list(groups.entries) == NAMES[:number]
        topics.put(StoredTopic(name, attributes={name: name}, others={name: {name: 1}}))
        groups.put(name, **{"x" + name: {name: [name]}})
        offsets.put(name, name, number, 5)
        for table in (topics, groups, offsets):
            table.save()
    topics = TopicTable(layout, Disk(), Clock())
    assert topics.entries["007"] == StoredTopic(
        "007", attributes={"007": "007"}, others={"007": {"007": 1}}
    )
    assert GroupTable(layout, Disk(), Clock()).entries["-0"]["x-0"] == {"-0": ["-0"]}
    pairs = ConsumerOffsets(layout, Disk(), Clock()).pairs()
    assert list(pairs) == [(name, name) for name in NAMES]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


ALLOWED = st.text("0123456789-_%|aZ", min_size=1, max_size=20)


@settings(max_examples=sized(15, 40))
@given(
    st.lists(
        st.tuples(
            ALLOWED,
            ALLOWED,
            st.dictionaries(st.text(), st.text(), max_size=3),
            st.dictionaries(st.text(min_size=1).map("x{}".format), VALUES, max_size=3),
            st.integers(0, 2**31 - 1),
            st.integers(-1, 2**63 - 1),
        ),
        max_size=6,
    )
)
def test_whatever_is_put_is_there_after_each_start(changes):
    with TemporaryDirectory() as directory:
        layout = StoreLayout(Path(directory))
        topics, groups, offsets = {}, {}, {}
        for topic, group, attributes, members, queue_id, offset in changes:
            tables = [kind(layout, Disk(), Clock()) for kind in (TopicTable, GroupTable)]
            read = ConsumerOffsets(layout, Disk(), Clock())
            assert tables[0].entries == topics
            assert tables[1].entries == groups
            assert read.table == offsets
            topics[topic] = StoredTopic(topic, attributes=attributes, others=members)
            tables[0].put(topics[topic])
            groups[group] = tables[1].put(group, **members)
            read.put(group, topic, queue_id, offset)
            offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
            for table in (*tables, read):
                table.save()


def test_a_table_that_cannot_be_opened_now_is_no_damaged_one(tmp_path, monkeypatch):
    layout = StoreLayout(tmp_path)
    topics = TopicTable(layout, Disk(), Clock())
    topics.put(StoredTopic("T"))
    topics.save()

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.open", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            TopicTable(layout, Disk(), Clock())
    assert "T" in TopicTable(layout, Disk(), Clock()).entries


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
    other.write(encode_table(table.value()))
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
    assert "was written by another program, and lacks 1 earlier entries: 'New'" in caplog.text


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
