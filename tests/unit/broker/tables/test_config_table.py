"""Files of tables, config/*.json: read whole, written as RocketMQ writes them, with a backup."""

import errno
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.broker.tables.config_table import ConfigFile, damaged_tables, version_in
from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.model.text import json_dialect
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.bodies.tables import DataVersion
from tests.support.effort import sized
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
    assert file.write({"a": 1})
    assert not file.write({"a": 1})
    assert file.write({"a": 2})
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
    assert damaged.write({"a": 3})
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
