"""A broker process that is out of descriptors again and again, with connections and questions.

It has few (``ulimit -n``), more connections are made than it may have, and in each squeeze it gets
no descriptor at all. What was acknowledged is there afterwards, and meanwhile nothing that is there
is said not to be.
"""

import asyncio
import random
import resource
import socket
from contextlib import ExitStack, contextmanager, suppress

import pytest

import rocketlens
from tests.crash.broker_load import BROKER_GONE, TOPIC, Load, assert_found, clients_of
from tests.crash.test_broker_kill import check_log
from tests.crash.test_store_kill import check_index_has_each_entry_once
from tests.support.broker_process import BrokerProcess

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
