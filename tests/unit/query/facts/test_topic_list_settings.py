"""How a topic is configured, by the files of a store."""

import json

import pytest

from rocketlens.model.topic import TopicSettings
from rocketlens.query.facts.topic_list import settings_in_store


def written(path, entry):
    (path / "config").mkdir()
    table = {"topicConfigTable": {"T": entry}, "dataVersion": {}}
    (path / "config" / "topics.json").write_text(json.dumps(table))
    return settings_in_store(path, "T")


def test_the_file_of_topics_tells_permission_queues_order_and_attributes(tmp_path):
    entry = {
        "topicName": "T",
        "perm": 4,
        "readQueueNums": 8,
        "writeQueueNums": 2,
        "order": True,
        "attributes": {"message.type": "FIFO"},
    }
    expected = TopicSettings(None, 4, 8, 2, is_ordered=True, attributes={"message.type": "FIFO"})
    assert written(tmp_path, entry) == expected


def test_a_topic_that_no_file_names_has_no_settings(tmp_path):
    assert settings_in_store(tmp_path, "T") is None


@pytest.mark.parametrize("entry", [None, 7, [], "text"])
def test_an_entry_that_is_no_object_is_none(tmp_path, entry):
    assert written(tmp_path, entry) is None


def test_a_value_that_rocketmq_does_not_write_is_not_known(tmp_path):
    entry = {"perm": True, "readQueueNums": "8", "order": "x", "attributes": [1]}
    assert written(tmp_path, entry) == TopicSettings(None, None, None, None)


def test_a_damaged_file_is_named_beside_what_its_backup_says(tmp_path):
    written(tmp_path, {"perm": 6, "readQueueNums": 4, "writeQueueNums": 4})
    path = tmp_path / "config" / "topics.json"
    path.with_name("topics.json.bak").write_bytes(path.read_bytes())
    path.write_text("{")
    found = settings_in_store(tmp_path, "T")
    assert found.perm == 6
    assert found.error.startswith("config/topics.json: ")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_topics_of_a_real_broker_can_be_read_and_written(golden, version):
    found = settings_in_store(golden(version).store, "PayTopic")
    assert (found.perm, found.read_queues, found.error) == (6, 4, None)
