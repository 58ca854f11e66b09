"""Want of descriptors or memory passes: nothing is lost, doubled, or taken for damage by it."""

import asyncio
import errno
import os
import random
import resource
import shutil
import socket
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

import rocketlens
from rocketlens.errors import StoreBusy
from tests.crash.broker_load import BROKER_GONE, TOPIC, Load, assert_found, clients_of
from tests.crash.test_broker_kill import check_log
from tests.crash.test_store_kill import check_index_has_each_entry_once
from tests.support.broker_process import BrokerProcess
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


SEED = 20_261_123
QUEUES = 150
"""More than have a file open at once under either limit."""
SENDERS, ASKERS = 8, 4
TRIED_IN_A_SQUEEZE, ACKNOWLEDGED_BETWEEN = 60, 40
pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="Linux sets limits so")


class Storm:
    """Clients that go on whatever they are answered, and what came of it."""

    def __init__(self, broker, clients, load):
        self.broker = broker
        self.producer, self.admin = clients
        self.load = load
        self.tried = self.refused = 0
        self.is_over = False
        self.moved = asyncio.Event()

    async def send(self):
        """Send one message or batch after another."""
        while not self.is_over:
            await self._try(self.load.send_one(self.producer))

    async def ask(self):
        """Ask for what was acknowledged, in each way; it is found, or the answer is an error."""
        while not self.is_over:
            if self.load.acknowledged:
                sent = self.load.randomness.choice(self.load.acknowledged)
                await self._try(assert_found(self.admin, sent))
            await asyncio.sleep(0)

    async def _try(self, work):
        try:
            await work
        except BROKER_GONE:
            self.refused += 1
        self.tried += 1
        self.moved.set()

    async def until(self, is_so):
        """Wait until something is so; it is looked at after each answer."""
        while not is_so():
            self.moved.clear()
            await self.moved.wait()

    async def squeeze(self, most):
        """Leave the broker no new descriptor for some answers, and then all of them."""
        ends_at = self.tried + TRIED_IN_A_SQUEEZE
        with squeezed(self.broker, most):
            await self.until(lambda: self.tried >= ends_at)
        enough = len(self.load.acknowledged) + ACKNOWLEDGED_BETWEEN
        await self.until(lambda: len(self.load.acknowledged) >= enough)


@contextmanager
def squeezed(broker, most):
    """Set the limit of a running process so low that it gets no descriptor above ``most``."""
    pid = broker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def crowd(broker, count):
    """Open connections that say nothing; the broker may refuse any."""
    with ExitStack() as peers:
        for _ in range(count):
            peer = peers.enter_context(socket.socket())
            peer.settimeout(0)
            with suppress(OSError):
                peer.connect(("127.0.0.1", broker.port))
        yield


async def storm_over(broker, load, open_files, rounds):
    randomness = random.Random(SEED)
    async with clients_of(broker.name_server) as clients:
        await clients[1].create_topic(TOPIC, QUEUES)
        storm = Storm(broker, clients, load)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(storm.send())
            for _ in range(ASKERS):
                tasks.create_task(storm.ask())
            await storm.until(lambda: len(load.acknowledged) >= ACKNOWLEDGED_BETWEEN)
            for _ in range(rounds):
                with crowd(broker, open_files // 2):
                    most = randomness.choice((0, broker.descriptor_count() + 2))
                    await storm.squeeze(most)
            storm.is_over = True
    return storm


async def check_all(broker, load):
    async with clients_of(broker.name_server) as (_, admin):
        for first in range(0, len(load.acknowledged), 20):
            some = load.acknowledged[first : first + 20]
            await asyncio.gather(*(assert_found(admin, sent) for sent in some))


@pytest.mark.slow
@pytest.mark.parametrize("open_files", [256, pytest.param(1024, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_a_broker_out_of_descriptors_again_and_again_keeps_what_it_acknowledged(
    tmp_path, rounds, open_files, record_property
):
    load = Load(SEED)
    with BrokerProcess(tmp_path, open_files=open_files) as broker:
        broker.start()
        storm = asyncio.run(storm_over(broker, load, open_files, rounds))
        assert storm.refused
        asyncio.run(check_all(broker, load))
        broker.stop()
        assert not (broker.store / "abort").exists()
        check_log(broker, load, SEED)
        check_index_has_each_entry_once(broker.store)
        broker.start()
        asyncio.run(check_all(broker, load))
        broker.stop()
        assert "Traceback" not in broker.said()
    with rocketlens.open_store(broker.store) as store:
        assert all(sent.is_shown_by(*store.find(sent.key)) for sent in load.acknowledged[::10])
    record_property("acknowledged", len(load.acknowledged))
    record_property("refused", storm.refused)
