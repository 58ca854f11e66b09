"""Topics and groups as the broker keeps them: config/topics.json and subscriptionGroup.json."""

import pytest

from rocketlens import limits
from rocketlens.broker.tables.entry_table import MAX_CONFIG_ENTRY_BYTES
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.errors import BadInput
from rocketlens.model.text.json_dialect import MAX_JSON_DEPTH
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.declare import members_of
from tests.support.written_stores import Clock


def test_a_change_of_topics_is_counted_and_on_the_disk_when_saved(tmp_path):
    clock = Clock()
    layout = StoreLayout(tmp_path)
    topics = TopicTable(layout, Disk(), clock)
    topics.put(StoredTopic("T", others={"future": [1]}), StoredTopic("U"))
    assert topics.remove("U").topic == "U"
    assert topics.remove("U") is None
    assert topics.is_changed
    assert TopicTable(layout, Disk(), clock).entries == {}
    topics.save()
    assert not topics.is_changed
    again = TopicTable(layout, Disk(), clock)
    assert again.entries == {"T": StoredTopic("T", others={"future": [1]})}
    assert members_of(again.data_version) == {
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
    assert GroupTable(layout, Disk(), Clock()).entries["g"]["consumeEnable"] is False
    assert groups.remove("g")
    assert not groups.remove("g")


def test_names_that_an_earlier_version_wrote_without_quotes_are_read(tmp_path):
    layout = StoreLayout(tmp_path)
    layout.config.mkdir()
    (layout.config / "topics.json").write_text(
        '{"topicConfigTable":{\n\t007:{"topicName":"007"},\n\t-0:{"topicName":"-0"},'
        '12:{"topicName":"12"}}}'
    )
    assert list(TopicTable(layout, Disk(), Clock()).entries) == ["007", "-0", "12"]


def test_a_lone_surrogate_in_a_member_is_written_and_read_back(tmp_path):
    layout = StoreLayout(tmp_path)
    groups = GroupTable(layout, Disk(), Clock())
    groups.put("g", x="\ud800")
    groups.save()
    assert GroupTable(layout, Disk(), Clock()).entries["g"]["x"] == "\ud800"


def test_members_nested_as_deep_as_a_request_may_be_are_read_back(tmp_path):
    layout = StoreLayout(tmp_path)
    deep = 1
    for _ in range(MAX_JSON_DEPTH):
        deep = {"a": deep}
    groups = GroupTable(layout, Disk(), Clock())
    groups.put("007", x=deep)
    groups.save()
    assert GroupTable(layout, Disk(), Clock()).entries["007"]["x"] == deep


def test_what_would_not_be_read_back_is_refused_before_it_is_kept(tmp_path, monkeypatch):
    layout = StoreLayout(tmp_path)
    groups, topics = GroupTable(layout, Disk(), Clock()), TopicTable(layout, Disk(), Clock())
    with pytest.raises(BadInput, match=r"'g' in subscriptionGroup\.json"):
        groups.put("g", x="A" * MAX_CONFIG_ENTRY_BYTES)
    with pytest.raises(BadInput, match=r"'T' in topics\.json"):
        topics.put(StoredTopic("T", others={"x": "A" * MAX_CONFIG_ENTRY_BYTES}))
    assert not groups.entries
    assert not topics.entries
    monkeypatch.setattr(limits, "MAX_CONFIG_BYTES", (1 << 20) + 200_000)
    for number in range(20):
        try:
            groups.put(f"g{number}", x="A" * 50_000)
        except BadInput as error:
            assert "subscriptionGroup.json is full" in str(error)  # noqa: PT017
            break
    assert 1 < len(groups.entries) < 20
    groups.save()
    again = GroupTable(layout, Disk(), Clock())
    assert again.entries == groups.entries
    with pytest.raises(BadInput, match="is full"):
        again.put("one more", x="A" * 50_000)
    groups.remove("g0")
    groups.put("one more", x="A" * 50_000)
