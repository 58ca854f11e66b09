"""Values that operators keep."""

import asyncio
import json
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.errors import BadInput, StoreFailed
from rocketlens.namesrv.kv import MAX_KV_BYTES, KvConfig
from rocketlens.store.disk import Disk
from tests.support.effort import sized


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def change(kv, *changes):
    """Put values, or delete them (None); the first failure is raised."""

    async def main():
        for namespace, key, value in changes:
            if value is None:
                await kv.delete(namespace, key)
            else:
                await kv.put(namespace, key, value)

    asyncio.run(main())


def test_values_are_kept_over_a_restart_in_rocketmqs_own_file(path):
    change(
        KvConfig(path),
        ("ORDER_TOPIC_CONFIG", "T", "broker-a:4"),
        ("ns", "键", "值 \x01"),
        ("ns", "gone", "x"),
        ("ns", "gone", None),
    )
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
    change(kv, ("ns", "key", "value"))
    assert kv.get("ns", "key") == "value"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"configTable":[]}', '{"configTable":{"ns":1}}'])
def test_a_damaged_file_stops_no_start_is_told_and_kept(path, content, caplog):
    path.parent.mkdir()
    path.write_text(content)
    kv = KvConfig(path)
    assert kv.namespace("ns") is None
    assert "kvConfig.json: " in caplog.text
    assert "there are no values" in caplog.text
    change(kv, ("ns", "key", "value"))
    assert KvConfig(path).get("ns", "key") == "value"
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_text() == content
    path.write_text(content)
    path.with_name("kvConfig.json.bak").write_text('{"configTable":{"ns":{"a":"b"}}}')
    assert KvConfig(path).get("ns", "a") == "b"
    assert "kvConfig.json.bak is used" in caplog.text


def test_a_file_with_more_than_may_be_put_is_read(path):
    change(KvConfig(path), ("ns", "key", "x" * 5_000))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketlens.namesrv.kv.MAX_KV_BYTES", 1_000)
        kv = KvConfig(path)
        assert len(kv.get("ns", "key")) == 5_000
        with pytest.raises(BadInput, match="allowed"):
            change(kv, ("ns", "other", ""))
        change(kv, ("ns", "key", "less"), ("ns", "other", "1"))
        assert KvConfig(path).namespace("ns") == {"key": "less", "other": "1"}


def test_a_change_that_cannot_be_written_has_not_happened(path, monkeypatch):
    kv = KvConfig(path)
    change(kv, ("ns", "key", "before"))

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Disk, "write_durably", fail)
    with pytest.raises(StoreFailed, match="No space left"):
        change(kv, ("ns", "key", "after"))
    with pytest.raises(StoreFailed):
        change(kv, ("ns", "key", None))
    assert kv.get("ns", "key") == KvConfig(path).get("ns", "key") == "before"


def test_values_do_not_grow_beyond_their_limit(path):
    kv = KvConfig(path)
    with pytest.raises(BadInput, match="allowed"):
        change(kv, ("ns", "key", "x" * MAX_KV_BYTES))
    assert kv.namespace("ns") is None


class GatedDisk(Disk):
    """Writes wait until they may; counted."""

    def __init__(self):
        self.may_write = threading.Event()
        self.writes = 0

    def write_durably(self, path, content):
        self.may_write.wait()
        self.writes += 1
        super().write_durably(path, content)


async def test_changes_that_come_while_one_is_written_go_together_and_hold_nobody_up(path):
    disk = GatedDisk()
    kv = KvConfig(path, disk)
    puts = [asyncio.ensure_future(kv.put("ns", "0", "x"))]
    await asyncio.sleep(0)
    puts += [asyncio.ensure_future(kv.put("ns", str(n), "x")) for n in range(1, 200)]
    # The loop turns though a write hangs, and nothing is there that is not durable.
    for _ in range(100):
        await asyncio.sleep(0)
    assert not any(each.done() for each in puts)
    assert kv.namespace("ns") is None
    disk.may_write.set()
    await asyncio.gather(*puts)
    assert disk.writes == 2
    assert len(KvConfig(path).namespace("ns")) == 200
    await kv.close()


texts = st.text(max_size=5) | st.sampled_from(["007", "-0", "\ud800", '"', "\\", "\x00", "\u2028"])


@settings(max_examples=sized(20, 50))
@given(
    st.lists(st.tuples(st.sampled_from(["ns", "", "007"]), texts, texts | st.none()), max_size=8)
)
def test_whatever_is_put_is_there_after_a_start(changes):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "kvConfig.json"
        expected = {}
        kv = KvConfig(path)
        for namespace, key, value in changes:
            change(kv, (namespace, key, value))
            if value is not None:
                expected.setdefault(namespace, {})[key] = value
            elif namespace in expected:
                expected[namespace].pop(key, None)
        for found in (kv, KvConfig(path)):
            assert {name: found.namespace(name) for name in expected} == expected
        assert kv._bytes >= (path.stat().st_size if path.exists() else 0) - 30
