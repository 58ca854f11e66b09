"""Slaves of a broker: what they are sent, what they acknowledge, and which sends wait for them."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest

from rocketlens.broker.replication import replicas
from rocketlens.broker.replication.replicas import MAX_REPLICAS, MAX_REPORTS_A_TICK
from rocketlens.model.rocketmq import MASTER_ID
from rocketlens.tap.service import Tap, TapOptions
from rocketlens.wire.codes import ResponseCode
from rocketlens.wire.ha import FrameReader, Heartbeat, encode_report
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of, running
from tests.support.fake_cluster import FakeNameServer
from tests.support.patience import PATIENCE_S

SEGMENT = 16_384


class Slave:
    """A slave that a test plays: it keeps what it is sent, and acknowledges when told."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self.log, self.begin, self.heartbeats = b"", None, 0

    def report(self, offset):
        self.write(encode_report(offset))

    def write(self, content):
        self._writer.write(content)

    async def receive(self):
        """Read on; return False at the end of the connection."""
        received = await self._reader.read(100_000)
        for event in self._frames.feed(received):
            if isinstance(event, Heartbeat):
                self.heartbeats += 1
                continue
            self.begin = event.physical_offset if self.begin is None else self.begin
            self.log += bytes(event.body)
        assert self._frames.failure is None
        return bool(received)

    async def has(self, end_offset):
        while self.begin is None or self.begin + len(self.log) < end_offset:
            assert await self.receive()


@asynccontextmanager
async def slave_of(world, first=None, host="127.0.0.1"):
    port = world.core.settings.ha_port(world.core.store.store_host.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    slave = Slave(reader, writer)
    if first is not None:
        slave.report(first)
    try:
        yield slave
    finally:
        writer.close()


def run(directory, scenario, **settings):
    async def bounded(world):
        async with asyncio.timeout(PATIENCE_S):
            await scenario(world)

    settings = {"mappedFileSizeCommitLog": SEGMENT} | settings
    in_broker(directory, bounded, **settings)


async def fill(world, count=60):
    for number in range(count):
        await world.send(body=bytes([number]) * 1_000)


def log_of(world, begin):
    files = sorted(world.core.store.layout.commit_log.iterdir())
    log = b"".join(file.read_bytes() for file in files)
    return log[begin : world.core.store.end_offset]


async def stored_after(world, end_offset):
    """Wait until something is stored behind an offset."""
    while world.core.store.end_offset == end_offset:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0)


@pytest.mark.parametrize("first", [1, 1_000, SEGMENT, 3 * SEGMENT - 7])
@within(run, "tmp_path")
async def test_a_slave_has_the_log_byte_for_byte_from_where_it_asked_for_it(world, /, first):
    await fill(world)
    async with slave_of(world, first) as slave:
        await slave.has(world.core.store.end_offset)
        assert slave.begin == first
        assert slave.log == log_of(world, first)
        await fill(world, 30)
        await slave.has(world.core.store.end_offset)
        assert slave.log == log_of(world, first)


@within(run, "tmp_path")
async def test_a_slave_that_asks_for_offset_0_begins_with_the_last_segment_as_at_rocketmq(world, /):
    await fill(world)
    end = world.core.store.end_offset
    async with slave_of(world, 0) as slave:
        await slave.has(end)
        assert slave.begin == end - end % SEGMENT > 0


@pytest.mark.parametrize("first", [10_000_000, 2**40])
def test_a_slave_ahead_of_the_log_is_sent_heartbeats_only(tmp_path, monkeypatch, first):
    monkeypatch.setattr(replicas, "HEARTBEAT_S", 0.01)

    async def scenario(world):
        await fill(world, 3)
        async with slave_of(world, first) as slave:
            while slave.heartbeats < 2:
                assert await slave.receive()
            assert slave.log == b""

    run(tmp_path, scenario)


@within(run, "tmp_path")
async def test_what_is_no_report_ends_the_connection(world, /):
    async with slave_of(world, -5) as slave:
        while await slave.receive():
            pass
    assert world.core.replicas.count == 0


async def until_closed(slave):
    while await slave.receive():
        pass


@pytest.mark.parametrize("begun", ["nothing", "a part of a report"])
def test_a_slave_that_does_not_say_where_to_begin_is_disconnected(tmp_path, monkeypatch, begun):
    monkeypatch.setattr(replicas, "FIRST_REPORT_S", 0.0)

    async def scenario(world):
        async with slave_of(world) as slave:
            if begun != "nothing":
                slave.write(encode_report(1)[:3])
            await until_closed(slave)

    run(tmp_path, scenario)


def test_slaves_of_an_address_have_half_of_the_places(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.replication.replicas.MAX_REPLICAS", 2)

    async def scenario(world):
        await fill(world, 3)
        async with slave_of(world, 1) as first, slave_of(world, 1) as second:
            await first.has(world.core.store.end_offset)
            assert not await second.receive()
            async with slave_of(world, 1, host="127.0.0.2") as other:
                await other.has(world.core.store.end_offset)

    run(tmp_path, scenario)


@within(run, "tmp_path")
async def test_slaves_that_say_nothing_keep_nobody_out(world, /):
    await fill(world, 3)
    async with AsyncExitStack() as stack:
        for host in ("127.0.0.1", "127.0.0.2"):
            for _ in range(MAX_REPLICAS):
                await stack.enter_async_context(slave_of(world, host=host))
        honest = await stack.enter_async_context(slave_of(world, 1))
        await honest.has(world.core.store.end_offset)
        assert world.core.replicas.count <= MAX_REPLICAS


def test_reports_without_end_are_read_in_shares(tmp_path, monkeypatch):
    """Work is counted, not time: how many reads there are between two ticks."""
    reads, counts = [], []
    received, ticked = replicas.SlaveConnection.data_received, replicas.Replicas._tick

    def data_received(self, chunk):
        reads.append(len(chunk))
        received(self, chunk)

    def tick(self):
        counts.append(len(reads))
        reads.clear()
        ticked(self)

    monkeypatch.setattr(replicas.SlaveConnection, "data_received", data_received)
    monkeypatch.setattr(replicas.Replicas, "_tick", tick)

    async def scenario(world):
        await fill(world, 3)
        async with slave_of(world, 1) as flood, slave_of(world, 1, host="127.0.0.2") as honest:
            for _ in range(4):
                flood.write(encode_report(1) * 500_000)
            await honest.has(world.core.store.end_offset)
            while len(counts) < 5:
                await world.send()
                honest.report(world.core.store.end_offset)
                await honest.receive()

    run(tmp_path, scenario)
    assert max(counts) < 2 * MAX_REPORTS_A_TICK


@within(run, "tmp_path", mappedFileSizeCommitLog=1 << 20)
async def test_a_slave_that_does_not_read_costs_bounded_memory_and_gets_all_when_it_does(world, /):
    async with slave_of(world, 1) as slave:
        for _ in range(80):
            await world.send(body=bytes(100_000))
        await slave.has(world.core.store.end_offset)
        assert slave.log == log_of(world, 1)


@within(run, "tmp_path", brokerRole="SYNC_MASTER")
async def test_a_sync_masters_send_is_acknowledged_when_a_slave_has_the_message(world, /):
    await fill(world, 1)
    async with slave_of(world, 1) as slave:
        await slave.has(world.core.store.end_offset)
        slave.report(world.core.store.end_offset)
        sending = asyncio.create_task(world.send())
        await stored_after(world, world.core.store.end_offset)
        await slave.has(world.core.store.end_offset)
        assert not sending.done()
        slave.report(world.core.store.end_offset)
        answer = await sending
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "1")


@within(run, "tmp_path", brokerRole="SYNC_MASTER", slaveTimeout=1)
async def test_a_sync_masters_send_tells_that_no_slave_has_the_message(world, /):
    alone = await world.send()
    assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert alone.ext_fields["queueOffset"] == "0"
    assert (await world.send(properties=properties_of(WAIT="false"))).code == 0
    async with slave_of(world, 1) as slave:
        # It never acknowledges more than where it began.
        await slave.has(world.core.store.end_offset)
        late = await world.send()
        assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert late.ext_fields["queueOffset"] == "2"


@within(run, "tmp_path", brokerRole="SYNC_MASTER", haSlaveFallbehindMax=1000)
async def test_a_slave_that_is_too_far_behind_is_not_waited_for(world, /):
    await fill(world, 3)
    async with slave_of(world, 1) as slave:
        await slave.has(world.core.store.end_offset)
        assert (await world.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("lie", [10_000_000, 2**40])
@within(run, "tmp_path", brokerRole="SYNC_MASTER", slaveTimeout=100)
async def test_an_acknowledgement_of_what_was_not_sent_counts_for_nothing(world, /, lie):
    await fill(world, 3)
    async with slave_of(world, 1) as slave:
        await slave.has(world.core.store.end_offset)
        slave.report(lie)
        late = await world.send()
        assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


@within(run, "tmp_path", brokerRole="SYNC_MASTER", flushDiskType="SYNC_FLUSH")
async def test_with_sync_flush_and_sync_master_a_send_waits_for_both(world, /):
    assert (await world.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE
    async with slave_of(world, 1) as slave:
        await slave.has(world.core.store.end_offset)
        slave.report(world.core.store.end_offset)
        sending = asyncio.create_task(world.send())
        await stored_after(world, world.core.store.end_offset)
        await slave.has(world.core.store.end_offset)
        slave.report(world.core.store.end_offset)
        assert (await sending).code == 0
        assert world.core.store.flushed_offset == world.core.store.end_offset


@within(
    run,
    "tmp_path",
    authenticationEnabled=True,
    initAuthenticationUser='{"username":"admin","password":"s3cret"}',
)
async def test_the_port_for_slaves_is_closed_where_others_need_a_password(world, /):
    assert world.core.settings.ha_port(world.core.store.store_host.port) == 0
    assert not world.core.replicas._server


@asynccontextmanager
async def tapped(world, home):
    """A tap that has all of a broker's log; gives its store."""
    server = FakeNameServer()
    server.brokers["broker-a"] = {MASTER_ID: SimpleNamespace(address=world.service.address)}
    await server.start()
    tap = Tap(server.address, TapOptions(home))
    try:
        await tap.start()
        store = tap.followers[0].copy.store
        while store.flushed_offset < world.core.store.end_offset:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield store
    finally:
        await tap.stop()
        await server.die()


def test_a_broker_that_is_started_on_a_copy_goes_on_with_it(tmp_path):
    home = tmp_path / "home"
    settings = {"storePathRootDir": home / "broker-a", "mappedFileSizeCommitLog": SEGMENT}

    async def scenario(world):
        await fill(world, 40)
        async with tapped(world, home):
            pass
        async with running(tmp_path, **settings) as heir:
            assert heir.stored("Orders") == world.stored("Orders")
            answer = await heir.send()
            assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "40")
            assert (await heir.pull(40)).code == 0

    run(tmp_path / "master", scenario)


def test_a_tap_copies_our_broker_and_its_acknowledgements_are_what_a_send_waits_for(tmp_path):
    home = tmp_path / "home"

    async def scenario(world):
        await fill(world, 40)
        async with tapped(world, home) as store:
            answers = [await world.send() for _ in range(5)]
            assert {each.code for each in answers} == {0}
            assert store.flushed_offset == world.core.store.end_offset
            assert log_of(world, 0) == b"".join(
                file.read_bytes() for file in sorted(store.layout.commit_log.iterdir())
            ).rstrip(b"\0").ljust(world.core.store.end_offset, b"\0")
            topics = json.loads((store.layout.config / "topics.json").read_bytes())
            assert "Orders" in topics["topicConfigTable"]

    run(tmp_path, scenario, brokerRole="SYNC_MASTER")
