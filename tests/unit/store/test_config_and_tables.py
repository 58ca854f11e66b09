"""RocketMQ's own files: broker.conf, and the tables in config/*.json."""

import json

import pytest

from rocketlens.errors import BadInput, ConfigError
from rocketlens.formats import config_json
from rocketlens.store.config import StoreConfig, parse_delay_levels, parse_properties
from rocketlens.store.config_table import ConfigFile, DataVersion, dumps
from rocketlens.store.fs import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.store.topics import GroupTable, TopicConfig, TopicTable
from tests.unit.store.written_stores import Clock


def test_a_broker_conf_is_read_as_java_reads_it():
    text = (
        "# comment\n! comment\n\nbrokerName=broker-a\n  listenPort : 10911 \ndeleteWhen 04\n"
        "path=C:\\\\store\\ttab\\u00e9\nlong = one \\\n    two\nkey\\ with\\=odd=1=2\n"
        "empty=\nalone"
    )
    assert parse_properties(text) == {
        "brokerName": "broker-a",
        "listenPort": "10911 ",
        "deleteWhen": "04",
        "path": "C:\\store\ttab\xe9",
        "long": "one two",
        "key with=odd": "1=2",
        "empty": "",
        "alone": "",
    }


def test_the_stores_keys_are_taken_and_the_others_handed_back():
    config, others = StoreConfig.from_properties(
        {
            "mappedFileSizeCommitLog": "262144",
            "flushDiskType": "SYNC_FLUSH",
            "messageIndexEnable": "False",
            "brokerName": "a",
            "noSuchKey": "1",
        }
    )
    assert (config.mappedFileSizeCommitLog, config.is_sync_flush) == (262_144, True)
    assert config.messageIndexEnable is False
    assert others == {"brokerName": "a", "noSuchKey": "1"}
    assert StoreConfig.from_properties({})[0] == StoreConfig()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mappedFileSizeCommitLog", "1G"),
        ("mappedFileSizeCommitLog", "-1"),
        ("mappedFileSizeCommitLog", str(2**31)),
        ("maxIndexNum", "1"),
        ("maxIndexNum", "200000000"),
        ("messageIndexEnable", "yes"),
        ("flushDiskType", "NO_FLUSH"),
        ("deleteWhen", "25"),
        ("deleteWhen", "4am"),
        ("messageDelayLevel", "1s 5x"),
        ("flushIntervalCommitLog", "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_key(key, text):
    with pytest.raises(BadInput, match=key):
        StoreConfig.from_properties({key: text})


def test_a_queue_file_holds_whole_entries():
    assert StoreConfig(mappedFileSizeConsumeQueue=6_000_001).queue_file_bytes == 6_000_020


def test_delay_levels_count_from_one():
    assert parse_delay_levels("1s 2m 3h 4d") == (0, 1000, 120_000, 10_800_000, 345_600_000)


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
    assert topics.topics["PayTopic"].read_queue_count == 4
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
        read, expected = config_json.loads(ours), config_json.loads(before)
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


def test_integer_keys_stand_without_quotes_and_everything_is_indented_by_tabs():
    assert dumps({"a": {1: 2}, "b": [], "c": {}, "d": [1, "\u6807"]}) == (
        '{\n\t"a":{\n\t\t1:2\n\t},\n\t"b":[],\n\t"c":{},\n\t"d":[\n\t\t1,\n\t\t"\u6807"\n\t]\n}'
    )


def test_the_file_before_is_the_backup_and_serves_when_the_file_is_damaged(tmp_path):
    path = tmp_path / "config" / "x.json"
    file = ConfigFile(path, Disk())
    assert file.read() == {}
    assert file.write({"a": 1})
    assert not file.write({"a": 1})
    assert file.write({"a": 2})
    assert json.loads(file.backup.read_text()) == {"a": 1}
    path.write_text('{"a": ')
    assert ConfigFile(path, Disk()).read() == {"a": 1}
    file.backup.write_text("[]")
    with pytest.raises(ConfigError, match=r"x\.json"):
        ConfigFile(path, Disk()).read()
    path.unlink()
    file.backup.unlink()
    assert ConfigFile(path, Disk()).read() == {}


def test_a_change_of_topics_is_counted_and_on_the_disk_when_saved(tmp_path):
    clock = Clock()
    layout = StoreLayout(tmp_path)
    topics = TopicTable(layout, Disk(), clock)
    topics.put(TopicConfig("T", others={"future": [1]}), TopicConfig("U"))
    assert topics.remove("U").topic == "U"
    assert topics.remove("U") is None
    assert topics.is_changed
    assert TopicTable(layout, Disk(), clock).topics == {}
    topics.save()
    assert not topics.is_changed
    again = TopicTable(layout, Disk(), clock)
    assert again.topics == {"T": TopicConfig("T", others={"future": [1]})}
    assert again.data_version.encode() == {
        "counter": 2,
        "stateVersion": 0,
        "timestamp": clock.now_ms,
    }


def test_groups_have_rocketmqs_defaults_and_what_was_asked(tmp_path):
    layout = StoreLayout(tmp_path)
    groups = GroupTable(layout, Disk(), Clock())
    assert groups.put("g", retryMaxTimes=3)["retryMaxTimes"] == 3
    assert groups.put("g", consumeEnable=False)["retryMaxTimes"] == 3
    groups.save()
    assert GroupTable(layout, Disk(), Clock()).groups["g"]["consumeEnable"] is False
    assert groups.remove("g")
    assert not groups.remove("g")


def test_offsets_are_kept_until_saved_and_forgotten_when_removed(tmp_path):
    layout = StoreLayout(tmp_path)
    offsets = ConsumerOffsets(layout, Disk(), Clock())
    offsets.put("g", "T", 0, 5)
    offsets.put("g", "U", 1, 6)
    assert ConsumerOffsets(layout, Disk(), Clock()).get("g", "T", 0) is None
    offsets.save()
    offsets = ConsumerOffsets(layout, Disk(), Clock())
    assert [offsets.get("g", "T", 0), offsets.get("g", "T", 1)] == [5, None]
    offsets.remove("g", "T")
    assert offsets.topics_of("g") == ["U"]
    offsets.remove("g")
    assert offsets.table == {}
    delays = DelayOffsets(layout, Disk(), Clock())
    delays.table[3] = 9
    delays.save()
    assert DelayOffsets(layout, Disk(), Clock()).table == {3: 9}


@pytest.mark.parametrize("value", [None, 3, {"counter": "x"}, {"timestamp": None}])
def test_a_data_version_that_is_none_begins_now(value):
    assert DataVersion.decode(value, 77).encode()["timestamp"] == 77


def test_tables_with_members_of_other_kinds_keep_the_sound_ones(tmp_path):
    layout = StoreLayout(tmp_path)
    layout.config.mkdir()
    (layout.config / "topics.json").write_text(
        '{"topicConfigTable": {"a": 3, "b": {"topicName": "b", "perm": 4}}, "dataVersion": 1}'
    )
    (layout.config / "consumerOffset.json").write_text('{"offsetTable": {"a@g": 3, "b@g": {0: 1}}}')
    assert TopicTable(layout, Disk(), Clock()).topics["b"].perm == 4
    assert ConsumerOffsets(layout, Disk(), Clock()).table == {"b@g": {0: 1}}
