"""A broker for minutes under clients that do their worst, and honest ones that notice nothing.

``ROCKETLENS_HOSTILE_SECONDS`` says for how long; 30 minutes without it.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.broker_load import Load, assert_found, clients_of
from tests.support.broker_process import BrokerProcess

SEED = 20_261_122
LASTS_S = int(os.environ.get("ROCKETLENS_HOSTILE_SECONDS", "1800"))
SAMPLE_S = 1.0
HONEST_TIMEOUT_S = 3.0
"""As the clients of RocketMQ wait for a send."""
WARM_UP = 0.3
MOST_GROWN = 1.1
REPOSITORY = Path(__file__).parents[2]
FILES = {
    "mappedFileSizeCommitLog": 1 << 26,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxIndexNum": 1_000_000,
    "maxHashSlotNum": 250_000,
}
"""Nothing is cleaned: what honest clients sent is asked for."""


async def be_honest(load, clients, until_s, waits_ms):
    """Send a message and find it in each way, again and again; gives what failed."""
    producer, admin = clients
    failures = []
    while time.monotonic() < until_s:
        begun_s = time.monotonic()
        try:
            await load.send_one(producer)
            await assert_found(admin, load.acknowledged[-1])
        except Exception as error:  # noqa: BLE001 - whatever it was is a failure
            failures.append(repr(error))
        waits_ms.append((time.monotonic() - begun_s) * 1000)
        del load.acknowledged[:-100]
    return failures


async def sample(broker, until_s):
    """Look once a second what the broker takes, in KiB."""
    taken = []
    while time.monotonic() < until_s:
        await asyncio.sleep(SAMPLE_S)
        taken.append(broker.kib("RssAnon"))
    return taken


async def honest_beside(broker, load):
    until_s = time.monotonic() + LASTS_S
    waits_ms = []
    async with clients_of(broker.name_server, HONEST_TIMEOUT_S) as clients:
        results = await asyncio.gather(
            sample(broker, until_s),
            *(be_honest(load, clients, until_s, waits_ms) for _ in range(2)),
        )
    return results[0], [each for failures in results[1:] for each in failures], waits_ms


@pytest.mark.slow
def test_honest_clients_notice_nothing_of_hostile_ones_and_memory_stays_as_it_is(
    tmp_path, record_property
):
    load = Load(SEED)
    with BrokerProcess(tmp_path, **FILES) as broker:
        broker.start()
        command = [sys.executable, "-m", "tests.crash.hostile_peers", str(broker.port), str(SEED)]
        with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE) as hostile:
            taken, failures, waits_ms = asyncio.run(honest_beside(broker, load))
            hostile.stdin.close()
        said = broker.said()
        broker.stop()
    taken = taken[int(len(taken) * WARM_UP) :]
    half = len(taken) // 2
    early, late = statistics.median(taken[:half]), statistics.median(taken[half:])
    record_property("seconds", LASTS_S)
    record_property("sent", load.next_number)
    record_property("failures", len(failures))
    record_property("wait_ms_p50", round(statistics.median(waits_ms), 1))
    record_property("wait_ms_max", round(max(waits_ms), 1))
    record_property("rss_mib", [round(early / 1024), round(late / 1024), max(taken) // 1024])
    assert not failures, failures[:5]
    assert late <= MOST_GROWN * early
    assert "Traceback" not in said
