"""Values that operators keep."""

import json

import pytest

from rocketlens import limits
from rocketlens.errors import BadInput, ConfigError, StoreFailed
from rocketlens.namesrv.kv import KvConfig
from rocketlens.store.disk import Disk


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def test_values_are_kept_over_a_restart_in_rocketmqs_own_file(path):
    kv = KvConfig(path)
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
    kv.put("ns", "键", "值 \x01")
    kv.put("ns", "gone", "x")
    kv.delete("ns", "gone")
    again = KvConfig(path)
    assert again.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"
    assert again.namespace("ns") == {"键": "值 \x01"}
    assert again.namespace("never") is None
    assert again.get("ns", "gone") is None
    assert json.loads(path.read_text())["configTable"]["ORDER_TOPIC_CONFIG"] == {"T": "broker-a:4"}
    assert [each.name for each in path.parent.iterdir()] == ["kvConfig.json"]


def test_a_file_that_rocketmq_wrote_is_read(path):
    path.parent.mkdir()
    path.write_text('{\n\t"configTable":{"ns":{"a":"1","b":"2"},\n\t\t"empty":{}}\n}')
    kv = KvConfig(path)
    assert kv.namespace("ns") == {"a": "1", "b": "2"}
    assert kv.namespace("empty") == {}


def test_without_a_path_values_are_in_memory_only(tmp_path):
    kv = KvConfig()
    kv.put("ns", "key", "value")
    assert kv.get("ns", "key") == "value"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"configTable":[]}', '{"configTable":{"ns":1}}'])
def test_a_file_that_is_no_table_is_an_error_that_names_it_and_it_is_left_alone(path, content):
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        KvConfig(path)
    assert path.read_text() == content


def test_a_file_over_the_limit_is_not_read(path):
    path.parent.mkdir()
    path.write_bytes(b" " * (limits.KV_BYTES + 1))
    with pytest.raises(ConfigError, match=r"kvConfig\.json is over"):
        KvConfig(path)


def test_a_change_that_cannot_be_written_has_not_happened(path, monkeypatch):
    kv = KvConfig(path)
    kv.put("ns", "key", "before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Disk, "write_durably", fail)
    with pytest.raises(StoreFailed, match="No space left"):
        kv.put("ns", "key", "after")
    with pytest.raises(StoreFailed):
        kv.delete("ns", "key")
    assert kv.get("ns", "key") == KvConfig(path).get("ns", "key") == "before"


def test_values_do_not_grow_beyond_their_limit(path):
    kv = KvConfig(path)
    with pytest.raises(BadInput, match="allowed"):
        kv.put("ns", "key", "x" * limits.KV_BYTES)
    assert kv.namespace("ns") is None
