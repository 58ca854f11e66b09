"""A store belongs to one process, and its lock says who ran last."""

import subprocess
import sys

import pytest

from rocketlens.errors import StoreLocked
from rocketlens.store.lock import OUR_TEXT
from tests.conftest import fingerprint
from tests.unit.store.written_stores import (
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
            "import sys; from tests.unit.store.written_stores import open_small;"
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
