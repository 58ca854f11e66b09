"""A second broker on a live store: the real one on ours, and ours on the real one's."""

import asyncio
import os
import signal
import subprocess

import pytest

from tests.crash.broker_load import Load, assert_found, clients_of, undisturbed
from tests.crash.test_broker_kill import check_log
from tests.crash.test_second_starter import listing
from tests.peer.our_servers import broker_conf
from tests.peer.rocketmq_peer import (
    BROKER_MAIN,
    START_SECONDS,
    free_ports,
    properties,
    reap,
    tail_of,
)
from tests.peer.test_rocketmq_peer import PRODUCER
from tests.support.broker_process import PROGRAM, BrokerProcess

SEED = 20_241_126
VERSIONS = ["4.9.7", "5.5.0"]
SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
}
STARTS = 3

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_broker_that_starts_on_our_live_store_costs_it_no_message(peer, version, tmp_path):
    load = Load(SEED)

    async def start_real_ones(broker):
        directory = tmp_path / "theirs"
        directory.mkdir()
        async with clients_of(broker.name_server, START_SECONDS) as clients:
            tasks = load.tasks(clients, senders=2, askers=1)
            await undisturbed(tasks, 1)
            for _ in range(STARTS):
                conf = broker_conf(directory, free_ports(-2, 1), broker.name_server) | SIZES
                conf |= {
                    "brokerName": "second",
                    "storePathRootDir": broker.store,
                    "storePathCommitLog": broker.store / "commitlog",
                }
                real = peer.launch(version, directory, BROKER_MAIN, conf)
                try:
                    assert await asyncio.to_thread(real.wait, START_SECONDS) != 0
                finally:
                    reap(real)
                assert "Lock failed" in tail_of(directory / "broker.log", 100)
                await undisturbed(tasks, 0.5)
            newest = load.acknowledged[-500:]
            await asyncio.gather(*(assert_found(clients[1], sent) for sent in newest))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def check(broker):
        async with clients_of(broker.name_server) as (_, admin):
            for sent in load.acknowledged[:: max(len(load.acknowledged) // 2_000, 1)]:
                await assert_found(admin, sent)

    with BrokerProcess(tmp_path / "ours", **SIZES) as broker:
        broker.start()
        asyncio.run(start_real_ones(broker))
        broker.stop()
        check_log(broker, load, SEED)
        broker.start()
        asyncio.run(check(broker))
        broker.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_ours_is_refused_on_the_live_store_of_a_real_broker_and_touches_nothing(
    peer, version, tmp_path
):
    send = tmp_path / "Send.java"
    send.write_text(PRODUCER)
    with peer.start(version, tmp_path / "theirs", **SIZES) as real:
        peer.java(version, send, real.namesrv_address)
        conf = tmp_path / "ours.conf"
        conf.write_text(
            properties(
                broker_conf(tmp_path, free_ports(-2, 1), real.namesrv_address)
                | {"storePathRootDir": real.store, "storePathCommitLog": real.store / "commitlog"}
            )
        )
        real.broker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, real.broker.pid, os.WSTOPPED | os.WNOWAIT)
        before = listing(real.store)
        for _ in range(STARTS):
            done = subprocess.run(
                [*PROGRAM, "broker", "-c", str(conf), "-n", real.namesrv_address],
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stdout) == (2, "")
            assert "belongs to a running broker" in done.stderr
        assert listing(real.store) == before
        real.broker.send_signal(signal.SIGCONT)
        peer.java(version, send, real.namesrv_address)
