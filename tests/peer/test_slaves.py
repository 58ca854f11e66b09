"""Real slaves of our broker: they have its log, and serve every message after it was killed."""

from contextlib import contextmanager

import pytest

import rocketlens
from tests.peer.our_servers import BROKER_NAME, CLUSTER, OurBroker, OurNameServer
from tests.peer.rocketmq_peer import (
    BROKER_MAIN,
    START_SECONDS,
    VERSIONS,
    accepts_connections,
    free_ports,
    reap,
    wait_until,
)
from tests.peer.test_tap import log_bytes, wait_for
from tests.support.patience import PATIENCE_S

FILES = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 6_000}
MESSAGES = 600


@pytest.fixture
def namesrv():
    server = OurNameServer()
    try:
        yield str(server.address)
    finally:
        server.close()


@contextmanager
def slave_of(peer, version, directory, namesrv):
    """Run a real slave; gives its process and store."""
    directory.mkdir()
    port = free_ports(-2, 1)
    conf = {
        "brokerClusterName": CLUSTER,
        "brokerName": BROKER_NAME,
        "brokerId": 1,
        "brokerRole": "SLAVE",
        # Without it, a slave of RocketMQ 5 answers look-ups, and refuses pulls.
        "slaveReadEnable": True,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": namesrv,
        "storePathRootDir": directory / "store",
        "storePathCommitLog": directory / "store" / "commitlog",
        "diskMaxUsedSpaceRatio": 95,
        **FILES,
    }
    process = peer.launch(version, directory, BROKER_MAIN, conf)
    try:
        wait_until(lambda: accepts_connections(port), process, START_SECONDS)
        yield directory / "store"
    finally:
        reap(process)


def send_many(namesrv, count, first=0):
    """Send messages; give their keys and statuses."""
    with rocketlens.SyncProducer(namesrv, send_timeout_s=PATIENCE_S) as producer:
        for number in range(first, first + count):
            key = f"key-{number}"
            message = rocketlens.Message("SlaveTopic", bytes([number % 251]) * 700, keys=key)
            yield key, producer.send(message).send_status.name


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_slave_serves_every_message_after_our_master_was_killed(
    peer, version, tmp_path, namesrv
):
    master = OurBroker(tmp_path / "master", namesrv, brokerRole="SYNC_MASTER", **FILES)
    try:
        sent = dict(send_many(namesrv, 20))
        assert set(sent.values()) == {"SLAVE_NOT_AVAILABLE"}
        with slave_of(peer, version, tmp_path / "slave", namesrv) as store:
            log = master.store / "commitlog"
            wait_for(lambda: _is_copied(store / "commitlog", log))
            later = dict(send_many(namesrv, MESSAGES, first=20))
            # Each was answered when the real slave had it.
            assert set(later.values()) == {"SEND_OK"}
            wait_for(lambda: b"SlaveTopic" in _table(store, "topics.json"))
            wait_for(lambda: b"offsetTable" in _table(store, "consumerOffset.json"))
            wait_for(lambda: b"offsetTable" in _table(store, "delayOffset.json"))
            master.kill()
            assert _is_copied(store / "commitlog", log)
            with rocketlens.SyncMQAdmin(namesrv) as admin:
                wait_for(lambda: _answers(admin, f"key-{MESSAGES + 19}"))
                for key in [*sent, *later][::7]:
                    assert _answers(admin, key)
                messages = admin.scan("SlaveTopic")
                assert len(list(messages)) == MESSAGES + 20, messages.coverage
    finally:
        if master.process.poll() is None:
            master.kill()


def _table(store, name):
    file = store / "config" / name
    return file.read_bytes() if file.exists() else b""


def _is_copied(copy, log):
    return copy.is_dir() and log_bytes(copy) == log_bytes(log) != b""


def _answers(admin, key):
    found = admin.find(key, topic="SlaveTopic")
    return [message.keys for message in found.messages] == [(key,)]
