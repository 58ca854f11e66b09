"""Delayed messages: Java producers of both versions, and stores that change hands meanwhile."""

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rocketlens import open_store
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import VERSIONS, reap, wait_until
from tests.support.broker_world import properties_of, send_fields, text_of
from tests.support.patience import PATIENCE_S

PROGRAM = Path(__file__).parent / "java" / "Delayed.java"
# As our broker is configured here: brokers of one store need one size of segments.
SIZES = {
    "mappedFileSizeCommitLog": 16 * 1024 * 1024,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
}


@contextmanager
def our_broker(directory):
    """Our name server and broker; stopped cleanly in the end."""
    with ExitStack() as running:
        namesrv = OurNameServer()
        running.callback(namesrv.close)
        broker = OurBroker(directory, str(namesrv.address))
        running.callback(broker.process.stdout.close)
        running.callback(reap, broker.process)
        yield str(namesrv.address), broker
        broker.stop()


def lines_of(printed):
    """Return what the program told; a refusal names the broker by its port."""
    lines = re.sub(r"(BROKER: \S+):\d+", r"\1", printed).splitlines()
    return [line for line in lines if line.split(":")[0] in KINDS]


KINDS = {"sent", "received", "refused", "ended"}


@pytest.mark.slow
def test_java_consumers_receive_each_delayed_message_once_and_in_time(peer, tmp_path):
    """Clients of both versions; a broker of 4.9 stores other properties, so one of 5.5.0 judges."""
    keys = {version: {"plain", "level1", "level2", "last"} for version in VERSIONS}
    keys["5.5.0"] |= {"seconds", "milliseconds", "moment", "past", "both"}

    def program(address, version):
        more = ["timers"] if version == "5.5.0" else []
        topic = f"Delayed{version[0]}"
        return lines_of(peer.java(version, PROGRAM, address, topic, *more))

    with (
        our_broker(tmp_path / "ours") as (address, _),
        peer.start("5.5.0", tmp_path / "theirs") as real,
        ThreadPoolExecutor() as side_by_side,
    ):
        ours, theirs = (
            {version: side_by_side.submit(program, name_server, version) for version in VERSIONS}
            for name_server in (address, real.namesrv_address)
        )
        ours = {version: lines.result() for version, lines in ours.items()}
        theirs = {version: lines.result() for version, lines in theirs.items()}
    for version, lines in ours.items():
        received = [line for line in lines if line.startswith("received")]
        assert {line.split()[1] for line in received} == keys[version]
        assert all(line.count("in time") == 1 and "early" not in line for line in received)
        assert lines[-1] == "ended: true"
    assert ours == theirs


async def ask(address, code, body=b"", **fields):
    """Ask a broker once."""
    pool = ClientPool(lambda _: True)
    texts = {name: text_of(value) for name, value in fields.items() if value is not None}
    try:
        return await pool.call(address, int(code), texts, body, timeout_s=60)
    finally:
        await pool.close()


def send_timers(address, names):
    """Send messages that are due so many milliseconds from now; returns when each is due."""
    due = {}

    async def main():
        for name, delay_ms in names.items():
            due[name] = time.time_ns() // 1_000_000 + delay_ms
            fields = send_fields("Orders", properties_of(TIMER_DELIVER_MS=due[name]))
            answer = await ask(address, RequestCode.SEND_MESSAGE_V2, name.encode(), **fields)
            assert answer.code == 0, answer.remark

    asyncio.run(main())
    return due


def delivered(store):
    """Return name and store time of each message in the topic."""
    with open_store(store) as opened:
        return [
            (message.body.decode(), message.store_timestamp_ms)
            for message in opened.find(topic="Orders", only_delivered=True)
        ]


def wait_for(store, process, *names):
    """Wait until these messages are delivered."""
    wait_until(lambda: {*names} <= {name for name, _ in delivered(store)}, process, PATIENCE_S)


def check(store, due, *, may_come_again=()):
    """Check that each message came once, and none early."""
    found = delivered(store)
    names = [name for name, _ in found]
    assert {name: names.count(name) for name in due if name not in may_come_again} == {
        name: 1 for name in due if name not in may_come_again
    }
    assert set(names) == set(due)
    assert [name for name, stored_ms in found if stored_ms < due[name]] == []


def test_what_waits_in_a_store_of_the_real_broker_is_delivered_once_by_ours(peer, tmp_path):
    store = tmp_path / "store"
    with peer.start("5.5.0", tmp_path, **SIZES) as theirs:
        due = send_timers(theirs.broker_address, {"first": 1_000, "second": 20_000})
        due |= send_timers(theirs.broker_address, {"third": 17_000, "fourth": 1_500})
        wait_for(store, theirs.broker, "first", "fourth")
        theirs.stop()
    with our_broker(tmp_path) as (_, broker):
        due |= send_timers(broker.address, {"fifth": 2_000})
        wait_for(store, broker.process, *due)
    check(store, due)


@pytest.mark.slow
def test_what_waits_in_a_store_of_ours_is_delivered_by_the_real_broker(peer, tmp_path):
    store = tmp_path / "store"
    with our_broker(tmp_path) as (_, broker):
        due = send_timers(broker.address, {"first": 1_000, "second": 25_000})
        due |= send_timers(broker.address, {"third": 1_000, "fourth": 22_000})
        wait_for(store, broker.process, "first", "third")
    with peer.start("5.5.0", tmp_path, **SIZES) as theirs:
        due |= send_timers(theirs.broker_address, {"fifth": 2_000})
        wait_for(store, theirs.broker, *due)
        theirs.stop()
    with our_broker(tmp_path) as (_, broker):
        due |= send_timers(broker.address, {"sixth": 1_000})
        wait_for(store, broker.process, *due)
    # "third" was sent after "second", which waits: RocketMQ may deliver it again.
    check(store, due, may_come_again=("third",))
