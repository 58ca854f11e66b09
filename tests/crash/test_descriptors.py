"""Want of descriptors or memory passes: nothing is lost, doubled, or taken for damage by it."""

import errno
import os
import shutil
from dataclasses import replace

import pytest

from rocketlens.errors import StoreBusy
from tests.support.failing_calls import FailingCalls, storms
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import (
    BORN_HOST,
    SMALL,
    Clock,
    content_of,
    open_small,
    properties_of,
    records_of,
    send,
)

CONFIG = replace(SMALL, diskMaxUsedSpaceRatio=60)
HOUR_MS = 3_600_000
MESSAGES = 60
BATCH = 40
"""Members of a batch: more than a queue file has entries."""


class HalfFullDisk(QuickDisk):
    """Full enough that what is old goes."""

    def used_ratio(self, _):
        """Return what is told of every file system."""
        return 0.7


class Life:
    """What a store does from its first start on; each step is tried until it is done."""

    def __init__(self, path, failing):
        self.path = path
        self.failing = failing
        self.clock = Clock()
        self.refusals = []

    def tried(self, work):
        """Do something until it succeeds; what it fails with must say that it may."""
        while True:
            try:
                return work()
            except (OSError, StoreBusy) as error:
                if not self.failing.failed:
                    raise
                self.refusals.append(error)

    def opened(self):
        store = self.tried(
            lambda: open_small(self.path, config=CONFIG, disk=HalfFullDisk(), clock=self.clock)
        )
        assert store.recovered.damage == []
        assert store.recovered.cut is None
        return store

    def live(self):
        """Live through everything, and end closed."""
        store = self.opened()
        for number in range(MESSAGES):
            if number % 10 == 9:
                members = [(0, b"batch", properties_of(number))] * BATCH
                self.tried(
                    lambda m=members: store.append_batch(
                        "Orders", 1, m, BORN_HOST, born_timestamp_ms=1
                    )
                )
            else:
                body = b"%d" % number * 200
                self.tried(lambda n=number, b=body: send(store, n, queue_id=n % 3, body=b))
            if number % 7 == 0:
                store.flush()
                store.build_index()
        self.saved(store)
        store.close_abruptly()
        store = self.opened()
        self.clean(store)
        self.saved(store)
        store.close()
        store = self.opened()
        self.saved(store)
        store.close()
        return store

    def saved(self, store):
        """Make all of it durable and indexed, which is true in the end."""
        for _ in range(200):
            store.flush()
            assert store.failure is None
            if store.build_index() and store._durability.saved_offset == store.end_offset:
                return
        raise AssertionError("it never was saved")

    def clean(self, store):
        for path in sorted((self.path / "commitlog").iterdir())[:2]:
            os.utime(path, (0, self.clock.now_ms / 1000 - 80 * 3600))
        for path in sorted((self.path / "commitlog").iterdir())[2:]:
            os.utime(path, (0, self.clock.now_ms / 1000))
        for _ in range(20):
            self.tried(store.clean)
            store.build_index()
        assert store._cleaner._cleaned_below == store.min_offset > 0


def lived(path, fails=(), number=errno.EMFILE):
    shutil.rmtree(path, ignore_errors=True)
    failing = FailingCalls(path, fails, number)
    with failing.counted():
        life = Life(path, failing)
        life.live()
    return failing, life


def check(path, expected, step, widths=(1, 6), numbers=(errno.EMFILE,)):
    count = expected["count"]
    refused = 0
    for width in widths:
        for place, fails in enumerate(storms(count, width, step)):
            failing, life = lived(path, fails, numbers[place % len(numbers)])
            assert failing.failed, fails
            refused += len(life.refusals)
            assert not [error for error in life.refusals if "full" in str(error)]
            for name in ("commitlog", "consumequeue", "index"):
                assert content_of(path, name) == expected[name], (failing.failed, name)
            left = [one.name for one in path.rglob("*") if one.name.endswith((".new", ".remade"))]
            assert not left, failing.failed
            assert not (path / "abort").exists(), failing.failed
    assert refused


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "store"
    failing, _ = lived(path)
    names = ("commitlog", "consumequeue", "index")
    assert len(records_of(path)) > MESSAGES
    return {"count": failing.calls} | {name: content_of(path, name) for name in names}


def test_a_store_that_runs_out_of_descriptors_now_and_then_ends_as_if_it_never_had(
    tmp_path, expected
):
    numbers = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    check(tmp_path / "store", expected, max(expected["count"] // 12, 1), numbers=numbers)


@pytest.mark.slow
def test_a_store_that_runs_out_of_descriptors_at_any_call_ends_as_if_it_never_had(
    tmp_path, expected
):
    numbers = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    check(tmp_path / "store", expected, 3, widths=(1, 9), numbers=numbers)
