"""The first send of a new topic at a broker with many topics.

Broker and name server are processes of their own. The client sends a message to one new topic after
another: first in peace, then while the broker registers all topics with a restarted name server.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.hostile import send_fields
from bench.report import goal, table
from rocketlens.broker.tables.topics import StoredTopic, TopicTable
from rocketlens.net.pool import ClientPool
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.codes import RequestCode
from tests.peer.our_servers import OurBroker
from tests.peer.rocketmq_peer import free_ports, reap

TOPICS: Final = 50_000
SENDS, QUICK_SENDS = 300, 100
ROUNDS, QUICK_ROUNDS = 5, 2
"""Times that the name server is started again."""
SENDS_A_ROUND: Final = 30
MAX_MS: Final = 170.0
"""The table of topics is written whole for each of them: half a second with 150,000 topics."""
TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.01
"""Between two sends."""


class Waits(NamedTuple):
    """Milliseconds of first sends."""

    median: float
    p99: float
    longest: float
    count: int


def report(directory: Path, *, is_quick: bool) -> Iterator[str]:
    """Return the lines of the section, with the goal."""
    waits = measure(
        directory, QUICK_SENDS if is_quick else SENDS, QUICK_ROUNDS if is_quick else ROUNDS
    )
    yield f"  {TOPICS:,} topics; each send creates another, and is answered when it is on the disk"
    rows = [
        (name, f"{one.count:,}", f"{one.median:.1f}", f"{one.p99:.1f}", f"{one.longest:.1f}")
        for name, one in waits.items()
    ]
    yield from table(("first sends, while the broker", "sends", "p50 ms", "p99", "longest"), rows)
    for name, one in waits.items():
        text = f"{name}: {one.longest:.1f} ms at most, wanted under {MAX_MS:.0f} ms"
        yield goal(is_met=one.longest < MAX_MS, text=text)


def measure(directory: Path, sends: int, rounds: int) -> dict[str, Waits]:
    """Return the waits in both states of the broker."""
    directory.mkdir(parents=True, exist_ok=True)
    layout = StoreLayout(directory / "store")
    topics = TopicTable(layout, Disk(), lambda: int(time.time() * 1000))
    topics.put(*(StoredTopic(f"Topic{number:06}") for number in range(TOPICS)))
    topics.save()
    port = free_ports()
    with name_server(port) as process:
        broker = OurBroker(directory, f"127.0.0.1:{port}", mappedFileSizeCommitLog=1 << 26)
        try:
            asyncio.run(first_sends(broker.address, "Warm", SENDS_A_ROUND))
            quiet = asyncio.run(first_sends(broker.address, "Quiet", sends))
            registering: list[float] = []
            for number in range(rounds):
                process.kill()
                process.wait()
                with name_server(port):
                    begin = f"Again{number}x"
                    registering += asyncio.run(first_sends(broker.address, begin, SENDS_A_ROUND))
        finally:
            reap(broker.process)
    return {"does nothing else": summary(quiet), "registers all topics": summary(registering)}


@contextmanager
def name_server(port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "rocketlens.main", "namesrv", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if not process.stdout or not process.stdout.readline():
            raise RuntimeError(f"the name server did not start: {process.wait()}")
        yield process
    finally:
        reap(process)


async def first_sends(address: str, begin: str, count: int) -> list[float]:
    """Send a message to each of `count` new topics; return the milliseconds of each."""
    pool = ClientPool(lambda _: True)
    taken = []
    for number in range(count):
        fields = send_fields(f"{begin}{number}")
        code = int(RequestCode.SEND_MESSAGE_V2)
        begun = time.perf_counter()
        answer = await pool.call(address, code, fields, bytes(100), timeout_s=TIMEOUT_S)
        taken.append((time.perf_counter() - begun) * 1000)
        if answer.code != 0:
            raise AssertionError(f"a send was answered with {answer.code}: {answer.remark}")
        await asyncio.sleep(PAUSE_S)
    await pool.close()
    return taken


def summary(taken: list[float]) -> Waits:
    """Return median, 99th percentile and maximum."""
    ordered = sorted(taken)
    return Waits(
        ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1], len(ordered)
    )
