"""A name server over the loopback interface: its settings, and values that operators keep."""

import asyncio
import json
import logging
import os
import signal
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlens.errors import BadInput, StoreFailed
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.kv import MAX_KV_BYTES, KvConfig
from rocketlens.namesrv.service import NameServer, run
from rocketlens.net.pool import ClientPool
from rocketlens.net.server import RemotingServer
from rocketlens.store.disk import Disk
from tests.support.clocks import Seconds
from tests.support.effort import sized
from tests.support.patience import PATIENCE_S
from tests.unit.namesrv.name_server_world import NAMES, Asking, asking


async def test_a_broker_is_dropped_with_its_connection_or_when_it_is_silent():
    clock = Seconds(0.0)
    async with asyncio.timeout(PATIENCE_S), asking(clock) as broker:
        client = Asking(broker.server, broker.address, ClientPool(lambda _: True))
        await broker.register()
        clock.now_s = 100.0
        assert (await broker.ask(904, **NAMES)).code == 0
        clock.now_s = 220.0
        broker.server.sweep()
        assert (await client.ask(105, topic="T")).code == 0
        clock.now_s = 221.0
        broker.server.sweep()
        assert (await client.ask(105, topic="T")).code == 17
        # Its connection was closed, too. It comes back with another, and goes.
        for channel in list(broker.pool.group.channels):
            channel.close()
        await broker.register()
        assert (await client.ask(105, topic="T")).code == 0
        for channel in list(broker.pool.group.channels):
            channel.close()
        while (await client.ask(105, topic="T")).code == 0:
            pass
        await client.pool.close()


async def test_two_name_servers_on_one_port_is_an_error_that_names_it():
    async with asking() as name_server:
        port = int(name_server.address.rpartition(":")[2])
        with pytest.raises(BadInput, match=f"cannot listen on 127.0.0.1:{port}"):
            NameServer(NameServerConfig(listenPort=port)).start()


@pytest.mark.usefixtures("takes_hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_runs_until_a_signal_and_frees_its_port(number):
    bound = []

    def ready(address):
        bound.append(address)
        os.kill(os.getpid(), number)

    async with asyncio.timeout(PATIENCE_S):
        await run(NameServerConfig(listenPort=0), ready=ready)
    again = NameServer(NameServerConfig(listenPort=bound[0].port))
    again.start()
    await again.stop()


def test_more_signals_while_it_stops_are_logged_once_and_so_is_its_end(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    abort = RemotingServer.abort

    async def signal_and_hang(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def abort_after_signals(self):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
        await abort(self)

    monkeypatch.setattr(RemotingServer, "stop", signal_and_hang)
    monkeypatch.setattr(RemotingServer, "abort", abort_after_signals)

    async def main():
        async with asyncio.timeout(PATIENCE_S):
            await run(
                NameServerConfig(listenPort=0), ready=lambda _: os.kill(os.getpid(), signal.SIGTERM)
            )

    asyncio.run(main())
    assert [each for each in caplog.messages if each.startswith("stop")] == [
        "stopping: SIGTERM",
        "stops without waiting for clients: SIGTERM",
        "stopped",
    ]


def test_rocketmqs_keys_are_taken_and_unknown_ones_given_back():
    config, left = NameServerConfig.from_properties(
        {
            "listenPort": "9877",
            "kvConfigPath": "/var/kv.json",
            "orderMessageEnable": "true",
            "clusterTest": "false",
        }
    )
    assert (config.listenPort, str(config.kv_config_path)) == (9877, "/var/kv.json")
    assert config.orderMessageEnable
    assert config.bindAddress == "127.0.0.1"
    assert left == {"clusterTest": "false"}
    for wrong in ({"listenPort": "65536"}, {"listenPort": "x"}, {"orderMessageEnable": "yes"}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            NameServerConfig.from_properties(wrong)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


def change(kv, *changes):
    """Put values, or delete them (None); the first failure is raised."""

    async def main():
        for namespace, key, value in changes:
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
