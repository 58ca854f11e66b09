"""A store belongs to one process, and its lock says who ran last."""

import os
import subprocess
import sys

import pytest

from rocketlens.errors import StoreLocked
from rocketlens.store.disk import Disk
from rocketlens.store.lock import LOCK_TEXT, OUR_TEXT, StoreLock, is_locked
from tests.conftest import fingerprint
from tests.support.written_stores import (
    be_a_real_broker,
    open_small,
    send,
    send_many,
)


def test_the_lock_says_who_ran_last(tmp_path):
    with open_small(tmp_path):
        assert (tmp_path / "lock").read_bytes() == OUR_TEXT
    be_a_real_broker(tmp_path)
    store = open_small(tmp_path)
    assert not store.recovered.is_ours
    store.close_abruptly()
    store = open_small(tmp_path)
    assert store.recovered.is_ours
    store.close_abruptly()


def test_a_second_opener_is_refused_and_touches_nothing(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 50)
        before = fingerprint(tmp_path)
        with pytest.raises(StoreLocked):
            open_small(tmp_path)
        program = (
            "import sys; from tests.support.written_stores import open_small;"
            "open_small(sys.argv[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "StoreLocked" in done.stderr
        assert fingerprint(tmp_path) == before
        send(store, 50)


def test_a_lock_is_held_until_it_is_released_and_readers_see_it(tmp_path):
    assert not is_locked(tmp_path)
    with StoreLock(tmp_path) as lock:
        assert is_locked(tmp_path)
        with pytest.raises(StoreLocked, match="stop it first"):
            StoreLock(tmp_path)
        with StoreLock(tmp_path, "index.lock"):
            assert is_locked(tmp_path, "index.lock")
        assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
    with StoreLock(tmp_path):
        pass


def test_asking_whether_a_store_is_locked_makes_no_file(tmp_path):
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_mark_of_ours_stays_until_a_real_broker_writes_its_text(tmp_path):
    with StoreLock(tmp_path) as lock:
        assert (tmp_path / "lock").read_bytes() == LOCK_TEXT
        assert not lock.is_marked()
        lock.mark(Disk())
        assert lock.is_marked()
    with StoreLock(tmp_path) as lock:
        assert lock.is_marked()
    (tmp_path / "lock").write_bytes(LOCK_TEXT)
    with StoreLock(tmp_path) as lock:
        assert not lock.is_marked()


def test_asking_does_not_refuse_a_broker_that_starts_meanwhile(tmp_path, monkeypatch):
    StoreLock(tmp_path).release()
    real, started = os.close, []

    def close(descriptor):
        monkeypatch.undo()
        started.append(StoreLock(tmp_path))
        real(descriptor)

    monkeypatch.setattr(os, "close", close)
    assert not is_locked(tmp_path)
    assert is_locked(tmp_path)
    started[0].release()
