"""A tap on the real RocketMQ: its copy is the broker's log, whatever was killed meanwhile."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

import rocketlens
from rocketlens.errors import RocketLensError
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import read_tap_note
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.patience import PATIENCE_S

SETTINGS = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 6_000}
PROGRAM = [sys.executable, "-W", "error", "-m", "rocketlens.main"]


class Tap:
    """A tap in a process of its own, ready."""

    def __init__(self, address, home):
        environment = {**os.environ, "ROCKETLENS_LOG": "warning"}
        self.process = subprocess.Popen(
            [*PROGRAM, "tap", "-n", address, "--home", str(home)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout.readline().startswith("ready: tap of broker-a from ")

    def end(self, how):
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@contextmanager
def sends(address):
    """Send without end, until the broker is gone or this is left; give the sent keys."""
    keys, is_over = [], threading.Event()

    def send():
        rng = random.Random(len(address))
        with rocketlens.SyncProducer(address) as producer:
            while not is_over.is_set():
                key = f"{time.time_ns()}"
                body = rng.randbytes(rng.randrange(3_000))
                with suppress(RocketLensError):
                    producer.send(rocketlens.Message("TapTopic", body, keys=key))
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


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def kill_both_again_and_again(peer, version, tmp_path, rounds):
    home, rng, keys = tmp_path / "home", random.Random(rounds), []
    for number in range(rounds):
        with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
            address = broker.namesrv_address
            with sends(address) as sent:
                tap = Tap(address, home)
                wait_for(lambda sent=sent: len(sent) > 50)
                tap.end(signal.SIGKILL)
                tap = Tap(address, home)
                wait_for(lambda sent=sent: len(sent) > 100 + rng.randrange(200))
                if number % 2:
                    broker.kill()
                    tap.end(signal.SIGKILL)
                else:
                    tap.end(signal.SIGKILL)
                    broker.kill()
            keys += sent
    with peer.start(version, tmp_path / "broker", **SETTINGS) as broker:
        tap = Tap(broker.namesrv_address, home)
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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_is_the_real_brokers_log_though_both_were_killed(peer, version, tmp_path):
    kill_both_again_and_again(peer, version, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_fifty_kills_of_both_cost_no_byte(peer, version, tmp_path):
    kill_both_again_and_again(peer, version, tmp_path, 50)
