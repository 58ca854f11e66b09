"""A tap on the real RocketMQ: its copy is the broker's log, whatever was killed meanwhile."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

import rocketlens
from rocketlens.client.send.send_result import SendStatus
from rocketlens.errors import RocketLensError
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import read_tap_note
from tests.peer.our_servers import OurBroker
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.console_client import answer, store_at
from tests.support.patience import PATIENCE_S

SETTINGS = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 6_000}
PROGRAM = [sys.executable, "-W", "error", "-m", "rocketlens.main"]


class Tap:
    """A tap in a process of its own, ready."""

    def __init__(self, address, home, *options):
        environment = {**os.environ, "ROCKETLENS_LOG": "warning"}
        self.process = subprocess.Popen(
            [*PROGRAM, "tap", "-n", address, "--home", str(home), *options],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout.readline().startswith("ready: tap of broker-a from ")

    def end(self, how):
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@pytest.fixture
def start_tap():
    """Start a tap, which does not outlive the test."""
    taps = []

    def start(*arguments):
        taps.append(Tap(*arguments))
        return taps[-1]

    yield start
    for tap in taps:
        if tap.process.poll() is None:
            tap.end(signal.SIGKILL)


@contextmanager
def sends(address):
    """Send without end, until the broker is gone or this is left; give the keys of messages that
    are where the broker wants them.
    """
    keys, is_over = [], threading.Event()

    def send():
        rng = random.Random(len(address))
        with rocketlens.SyncProducer(address) as producer:
            while not is_over.is_set():
                key = f"{time.time_ns()}"
                body = rng.randbytes(rng.randrange(3_000))
                with suppress(RocketLensError):
                    result = producer.send(rocketlens.Message("TapTopic", body, keys=key))
                    if result.send_status is SendStatus.SEND_OK:
                        keys.append(key)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield keys
    finally:
        is_over.set()
        thread.join()


def log_bytes(directory):
    """The bytes of a log's files, without those that are not written yet."""
    files = sorted(directory.iterdir())
    return b"".join(file.read_bytes() for file in files if file.name.isdigit()).rstrip(b"\0")


def copied(directory):
    """The physical offset behind the last byte of a copy that is not zero."""
    last = max((file for file in directory.glob("[0-9]*")), default=None)
    return 0 if last is None else int(last.name) + len(last.read_bytes().rstrip(b"\0"))


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def all_are_found(copy, keys):
    """Every one of some keys is in the copy, once."""
    with rocketlens.open_store(copy) as store:
        for key in keys:
            answer = store.find(key, topic="TapTopic")
            assert len(answer.messages) == 1, (key, answer.coverage)


def kill_both_again_and_again(start_tap, peer, version, tmp_path, *, rounds, seed=0):
    home, rng, keys = tmp_path / "home", random.Random(seed), []
    log = home / "broker-a" / "commitlog"

    def start(address, sent):
        """Start a tap; return it at a moment at which it copies what is sent."""
        before, tap = copied(log), start_tap(address, home)
        wait_for(lambda: copied(log) > before)
        count = len(sent) + rng.randrange(100)
        wait_for(lambda: len(sent) > count)
        return tap

    for number in range(rounds):
        with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
            address = broker.namesrv_address
            with sends(address) as sent:
                start(address, sent).end(signal.SIGKILL)
                tap = start(address, sent)
                if number % 2:
                    broker.kill()
                    tap.end(signal.SIGKILL)
                else:
                    tap.end(signal.SIGKILL)
                    broker.kill()
            keys += sent
    with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
        tap = start_tap(broker.namesrv_address, home)
        log = log_bytes(broker.store / "commitlog")
        wait_for(lambda: log_bytes(home / "broker-a" / "commitlog") == log)
        assert tap.end(signal.SIGTERM) == 0
        broker.kill()
        copy = home / "broker-a"
        assert log_bytes(copy / "commitlog") == log_bytes(broker.store / "commitlog")
    note = read_tap_note(StoreLayout(copy))
    assert (note.gaps, note.replaced) == ((), ())
    with rocketlens.open_store(copy) as store:
        for key in keys[:: max(len(keys) // 200, 1)]:
            answer = store.find(key, topic="TapTopic")
            assert answer.complete
            assert len(answer.messages) == 1
    assert (copy / "config" / "topics.json").read_bytes().startswith(b"{")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_is_the_real_brokers_log_though_both_were_killed(peer, start_tap, version, tmp_path):
    kill_both_again_and_again(start_tap, peer, version, tmp_path, rounds=2)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A directory for tests that go on with what the one before left."""
    return tmp_path_factory.mktemp("kept")


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(5))
@pytest.mark.parametrize("version", VERSIONS)
def test_fifty_kills_of_both_cost_no_byte(peer, start_tap, version, kept, tens):
    kill_both_again_and_again(start_tap, peer, version, kept / version, rounds=10, seed=tens)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_sync_master_acknowledged_is_in_the_copy_though_the_tap_was_killed(
    peer, start_tap, version, tmp_path
):
    home, keys = tmp_path / "home", []
    roles = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 1_000}
    if version.startswith("5"):
        # Without it, a master of RocketMQ 5 waits for itself only.
        roles["inSyncReplicas"] = 2
    with peer.start(version, tmp_path / "broker", **SETTINGS, **roles) as broker:
        address = broker.namesrv_address
        tap = start_tap(address, home, "--no-ack")
        with rocketlens.SyncProducer(address, send_timeout_s=PATIENCE_S) as producer:
            result = producer.send(rocketlens.Message("TapTopic", b"no", keys="unacknowledged"))
            assert result.send_status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert tap.end(signal.SIGTERM) == 0
        for _ in range(3):
            tap = start_tap(address, home)
            with sends(address) as sent:
                wait_for(lambda sent=sent: len(sent) > 40)
                tap.end(signal.SIGKILL)
            keys += sent
        broker.kill()
    all_are_found(home / "broker-a", [*keys, "unacknowledged"])


def new_copies_begin_where_they_are_told(start_tap, broker, tmp_path):
    log = log_bytes(broker.store / "commitlog")
    size = SETTINGS["mappedFileSizeCommitLog"]
    least = min(int(file.name) for file in (broker.store / "commitlog").iterdir())
    last = (least + len(log) - 1) // size * size
    middle = (least + last) // 2 // size * size
    for begin, offset in (("latest", last), (str(middle + 100), middle)):
        copy = tmp_path / f"from-{begin}" / "broker-a" / "commitlog"
        tap = start_tap(broker.namesrv_address, copy.parents[1], "--from", begin)
        wait_for(lambda copy=copy, begun=log[offset - least :]: log_bytes(copy) == begun)
        assert min(int(file.name) for file in copy.iterdir()) == offset
        assert tap.end(signal.SIGTERM) == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_gap_and_a_replaced_log_of_a_real_broker_are_named(peer, start_tap, version, tmp_path):
    home, store, copy = tmp_path / "home", tmp_path / "broker" / "store", tmp_path / "home/broker-a"
    with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
        tap = start_tap(broker.namesrv_address, home)
        with sends(broker.namesrv_address) as first:
            wait_for(lambda: len(first) > 50)
            wait_for(lambda: len(log_bytes(copy / "commitlog")) > 10_000)
            tap.end(signal.SIGKILL)
            wait_for(lambda: len(list((store / "commitlog").iterdir())) > 4)
        broker.kill()
    for file in sorted((store / "commitlog").iterdir())[:3]:
        file.unlink()
    with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
        tap = start_tap(broker.namesrv_address, home, "--from", "latest")
        wait_for(lambda: read_tap_note(StoreLayout(copy)).gaps)
        wait_for(lambda: log_bytes(copy / "commitlog").endswith(log_bytes(store / "commitlog")))
        assert tap.end(signal.SIGTERM) == 0
        new_copies_begin_where_they_are_told(start_tap, broker, tmp_path)
        broker.kill()
    with rocketlens.open_store(copy) as reader:
        found = reader.find(first[-1], topic="TapTopic")
        assert (len(found.messages), found.complete) == (1, False)
        assert any("the broker deleted them before" in (one.error or "") for one in found.coverage)
    shutil.rmtree(store)
    with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
        with sends(broker.namesrv_address) as sent:
            wait_for(lambda: len(sent) > 20)
        tap = start_tap(broker.namesrv_address, home)
        wait_for(lambda: log_bytes(copy / "commitlog") == log_bytes(store / "commitlog"))
        assert tap.end(signal.SIGTERM) == 0
        broker.kill()
    assert read_tap_note(StoreLayout(copy)).replaced == ("broker-a.replaced-0001",)
    all_are_found(copy, sent)
    all_are_found(home / "broker-a.replaced-0001", first[-1:])


@pytest.mark.slow
def test_two_brokers_are_followed_at_once_and_every_command_reads_their_copies(
    peer, start_tap, tmp_path, spark
):
    home = tmp_path / "home"
    with peer.start("5.5.0", tmp_path / "broker", **SETTINGS) as broker:
        address = broker.namesrv_address
        ours = OurBroker(tmp_path / "ours", address, brokerName="broker-b", **SETTINGS)
        try:
            with rocketlens.SyncMQAdmin(address) as admin:
                admin.create_topic("TapTopic", 4)
            peer.mqadmin(
                "5.5.0", "updateSubGroup", "-n", address, "-c", "DefaultCluster", "-g", "readers"
            )
            tap = start_tap(address, home)
            with sends(address) as sent:
                wait_for(lambda: len(sent) > 60)
            for name, store in (("broker-a", broker.store), ("broker-b", ours.store)):
                copy, log = home / name / "commitlog", store / "commitlog"
                wait_for(lambda copy=copy, log=log: log_bytes(copy) == log_bytes(log) != b"")
                wait_for((home / name / "config" / "consumerOffset.json").exists)
            found = {}
            for name in ("broker-a", "broker-b"):
                store = str(home / name)
                for command in ("status", "doctor", "topics", "groups"):
                    done = cli(command, "--store", store)
                    assert done.returncode in (0, 3), done.stderr
                    assert command in ("topics", "groups") or name in done.stdout
                done = cli("find", "--topic", "TapTopic", "--store", store, "-o", "jsonl")
                assert done.returncode == 0, done.stderr
                found[name] = len(done.stdout.splitlines())
                rows = spark.read.format("rocketmq").option("store", store).load()
                assert rows.where("topic = 'TapTopic'").count() == found[name]
                (page,) = answer("/api/brokers", store_at(home / name, "s")).json()["stores"]
                assert page["tap"]["broker_name"] == name
            assert sum(found.values()) >= len(sent)
            assert all(found.values())
            assert tap.end(signal.SIGTERM) == 0
        finally:
            ours.kill()
            broker.kill()


def cli(*arguments):
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False)
