"""A broker's settings, what its processors share, and that what is answered is found at once."""

import ast
import asyncio
import inspect
import itertools
import logging

import pytest

from rocketlens.broker import core
from rocketlens.broker.config import parse_settings
from rocketlens.broker.lookup import live_index, search
from rocketlens.client.mq_admin import MQAdmin
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.errors import BadInput
from rocketlens.net.tls import TlsMode
from rocketlens.testing import cluster
from tests.support.broker_world import running


async def test_messages_of_an_ipv6_producer_are_stored_with_its_address(tmp_path):
    async with running(tmp_path, brokerIP1="::1") as world:
        await world.send()
        (record,) = world.stored("Orders")
        assert record.born_host.address == "::1"
        assert record.store_host.address == "::1"


def test_damaged_tables_do_not_stop_the_start_and_are_named_and_kept(tmp_path, caplog):
    async def main(names):
        async with running(tmp_path) as world:
            for name in names:
                await world.send(name)
            return set(world.core.topics.topics)

    names = {"007", "-01", "00"}
    assert names <= asyncio.run(main(names))
    assert names <= asyncio.run(main(()))
    of_tables = [each for each in caplog.records if each.name.startswith("rocketlens.broker")]
    assert not [each for each in of_tables if each.levelno >= logging.WARNING]
    config = tmp_path / "store" / "config"
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text("{]")
    assert not names & asyncio.run(main(()))
    assert "topics.json: not JSON" in caplog.text
    kept = (tmp_path / "store/rocketlens/aside").iterdir()
    assert "{]" in {each.read_text() for each in kept}


def test_nothing_is_put_into_a_core_after_it_was_made():
    """Each attribute is declared Final where it gets its value, and the type checker holds that.

    But `batches`, which are made when kernels are loaded.
    """
    [made] = [
        each
        for each in ast.walk(ast.parse(inspect.getsource(core)))
        if isinstance(each, ast.ClassDef) and each.name == "BrokerCore"
    ]
    declared = set()
    for node in ast.walk(made):
        if isinstance(node, ast.Assign):
            names = [ast.unparse(each) for each in node.targets if isinstance(each, ast.Attribute)]
            own = {name for name in names if name.startswith("self.") and name.count(".") == 1}
            assert own <= {"self.batches"}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            if node.target.attr == "batches":
                continue
            assert ast.unparse(node.annotation).startswith("Final")
            declared.add(node.target.attr)
    assert {"topics", "timers", "held_pulls", "access", "tables"} <= declared


def test_a_file_of_tls_settings_counts_more_than_the_configuration(certificate, tmp_path):
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.server.certPath={certificate[0]}\ntls.server.keyPath={certificate[1]}\n"
        "tls.server.mode=permissive\nbrokerName=no-business-here\n"
    )
    settings = parse_settings(f"tls.config.file={file}\ntls.server.mode=disabled\nbrokerName=b\n")
    assert (settings.broker.brokerName, settings.unknown) == ("b", ())
    assert settings.tls.server.mode is TlsMode.PERMISSIVE
    assert settings.tls.server.context is not None


def test_a_file_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError):
        parse_settings("tls.config.file=/no/such/tls.properties")
    with pytest.raises(BadInput, match="zero character"):
        parse_settings("tls.config.file=\\u0000")


@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog"])
def test_a_path_with_a_zero_character_is_refused(key):
    with pytest.raises(BadInput, match=f"{key} has a zero character"):
        parse_settings(f"{key}=/tmp/a\\u0000b\n")


def test_configuration_comes_from_a_broker_conf(caplog):
    settings = parse_settings(
        "brokerName = b\nlistenPort=20911\nflushDiskType=SYNC_FLUSH\ntraceOn=false\n"
        "storePathRootDir=/data\nstorePathCommitLog=/data/commitlog\nnoSuchKey=1\n"
    )
    assert (settings.broker.brokerName, settings.broker.listenPort) == ("b", 20911)
    assert not settings.broker.traceOn
    assert settings.store.is_sync_flush
    assert str(settings.store_path) == "/data"
    assert settings.unknown == ("noSuchKey",)
    assert "noSuchKey" in caplog.text
    assert settings.with_broker(listenPort=1000).broker.listenPort == 1000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("listenPort=x", "listenPort 'x' is not a whole number"),
        ("listenPort=2", "listenPort 2: the port two below is needed"),
        ("listenPort=70000", "listenPort 70000: give 0 to 65535"),
        ("traceOn=yes", "traceOn 'yes' is neither true nor false"),
        ("brokerName=a/b", "brokerName 'a/b': give 1 to 255 letters, digits"),
        ("brokerIP1=localhost", "brokerIP1 'localhost': give an IPv4 or IPv6 address"),
        ("brokerId=1", "this broker cannot be a slave"),
        ("brokerRole=SLAVE", "this broker cannot be a slave"),
        ("storePathCommitLog=/a,/b", "storePathCommitLog /a,/b: give the absolute path of one"),
        ("storePathCommitLog=log", "storePathCommitLog log: give the absolute path of one"),
        ("flushDiskType=NEVER", "flushDiskType 'NEVER'"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_key(line, words):
    with pytest.raises(BadInput, match=words):
        parse_settings(line)


AT_ONCE = 8


async def send_and_look_up(producer, admin, number):
    """Send a message, and find it by all three ids."""
    key = f"ORDER-{number}"
    sent = await producer.send(Message("Orders", b"%d" % number, tags="TagA", keys=key))
    by_offset_id, by_unique_key, by_key = await asyncio.gather(
        admin.view_message(sent.offset_msg_id),
        admin.query_message_by_unique_key("Orders", sent.msg_id),
        admin.query_message("Orders", key),
    )
    for found in (by_offset_id, *by_unique_key, *by_key):
        assert found.offset_msg_id == sent.offset_msg_id
        assert (found.msg_id, found.body) == (sent.msg_id, b"%d" % number)
    assert len(list(by_unique_key)) == len(list(by_key)) == 1


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_message_is_found_by_all_three_ids_once_its_send_is_answered(count, monkeypatch):
    # Index files are opened anew again and again, and memory drops what they cover.
    monkeypatch.setattr(live_index, "REOPEN_ENTRIES", 100)
    monkeypatch.setattr(search, "READ_INTERVAL_S", 0.02)

    async def main(name_server):
        async with Producer(name_server) as producer, MQAdmin(name_server) as admin:
            numbers = itertools.count()

            async def worker():
                while (number := next(numbers)) < count:
                    await send_and_look_up(producer, admin, number)

            await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    with cluster(build_index=True, maxHashSlotNum=500, maxIndexNum=2000) as running:
        asyncio.run(main(running.name_server))
