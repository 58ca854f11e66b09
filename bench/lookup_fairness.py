"""Look-ups by key at our broker beside one busy connection.

The busy connection keeps :data:`AT_ONCE` look-ups in flight: by a tag that no message has, by a key
that all messages have, or by that key in a time without messages, which compares each of them. It
is a process of its own, and so is the broker.
"""

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final, NamedTuple

from bench.history import Row
from bench.report import goal, table, thirds_p99
from rocketlens.errors import CallTimeout
from rocketlens.formats import batch_body
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.connection import Connection, ResponseReceived
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import reap

MESSAGES: Final = 300_000
QUEUES: Final = 4
BATCH: Final = 250
AT_ONCE: Final = 200
SECONDS: Final = 8.0
WARM_UP_S: Final = 2.0
"""A broker that started just now loads its kernels, and reads the log that no index file covers."""
PAUSE_S: Final = 0.005
"""Between two look-ups of the honest client."""
TIMEOUT_S: Final = 30.0
"""So long is waited for one answer; one that does not come in it counts as that."""
HOT: Final = "hot"
BUSY_LOADS: Final = {
    "tag scans": {"key": "absent", "indexType": "T"},
    "hot key": {"key": HOT},
    "hot key, old times": {"key": HOT, "endTimestamp": "1"},
}
QUIET: Final = "nothing else"
TIMES_QUIET: Final = 10
MAX_WAIT_MS: Final = 250.0
"""What the 99th percentile of waits may be: so many times what it is with no load, and no more."""


class Waits(NamedTuple):
    """What look-ups of the honest client took, in milliseconds, and how many there were."""

    median: float
    p99: float
    longest: float
    count: int
    sends_p99: float
    """The same of its sends."""
    thirds: list[float]
    """The 99th percentile of each third of the time."""


def report(directory: Path) -> Iterator[str | Row]:
    """Say what the honest client waited, and whether that is little enough."""
    waits = measure(directory)
    rows = [
        (name, f"{one.median:.1f}", f"{one.p99:.1f}", f"{one.longest:.1f}", f"{one.sends_p99:.1f}")
        for name, one in waits.items()
    ]
    titles = ("one connection asks for", "p50 ms", "p99 ms", "longest ms", "sends p99 ms")
    yield f"  {MESSAGES:,} messages; {AT_ONCE} look-ups under way, another client waits for its own"
    yield from table(titles, rows)
    for name, one in waits.items():
        yield Row(f"fairness, {name}, others' look-ups p99 ms", one.thirds)
    wanted = min(waits[QUIET].p99 * TIMES_QUIET, MAX_WAIT_MS)
    for name in BUSY_LOADS:
        text = f"{name}: others wait {waits[name].p99:.1f} ms (p99), wanted under {wanted:.1f} ms"
        yield goal(is_met=waits[name].p99 <= wanted, text=text)


def query_fields(**changes: str) -> dict[str, str]:
    """Return the fields of a look-up of all times."""
    times = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    return {"topic": "Orders", "key": "", "maxNum": "64", **times, **changes}


def measure(
    directory: Path, messages: int = MESSAGES, seconds: float = SECONDS
) -> dict[str, Waits]:
    """Return the honest client's waits under each load, the first of which is none."""
    with ExitStack() as stack:
        name_server = OurNameServer()
        stack.callback(name_server.close)
        broker = OurBroker(directory, str(name_server.address), mappedFileSizeCommitLog=1 << 28)
        stack.callback(reap, broker.process)
        asyncio.run(_fill(broker.address, messages))
        asyncio.run(_honest(broker.address, messages, WARM_UP_S))
        found = {}
        for name, fields in {QUIET: None, **BUSY_LOADS}.items():
            found[name] = _under_load(broker.address, fields, messages, seconds)
        return found


def _under_load(
    address: str, fields: dict[str, str] | None, messages: int, seconds: float
) -> Waits:
    spawn = multiprocessing.get_context("spawn")
    began, end = spawn.Event(), spawn.Event()
    busy = spawn.Process(target=keep_asking, args=(address, fields, began, end), daemon=True)
    if fields is not None:
        busy.start()
        began.wait(TIMEOUT_S)
    try:
        return asyncio.run(_honest(address, messages, seconds))
    finally:
        end.set()
        if fields is not None:
            busy.join()


async def _fill(address: str, messages: int) -> None:
    pool = ClientPool(lambda _: True)
    for first in range(0, messages, BATCH):
        body = batch_body.encode(
            batch_body.BatchMember(
                0, bytes(100), f"KEYS\x01k{number} {HOT}\x02TAGS\x01a\x02".encode()
            )
            for number in range(first, min(first + BATCH, messages))
        )
        fields = _send_fields(queue_id=first // BATCH % QUEUES, properties="") | {"m": "true"}
        await _called(pool, address, RequestCode.SEND_BATCH_MESSAGE, fields, body)
    await pool.close()


async def _honest(address: str, messages: int, seconds: float) -> Waits:
    """Look up one key after another, each another one, and send between."""
    pool = ClientPool(lambda _: True)
    waits, sends, number = [], [], 0
    stop = time.monotonic() + seconds
    while time.monotonic() < stop or not waits:
        number = (number + 7919) % messages
        fields = query_fields(key=f"k{number}")
        begin = time.perf_counter()
        await _called(pool, address, RequestCode.QUERY_MESSAGE, fields)
        sent = time.perf_counter()
        waits.append(sent - begin)
        await _called(
            pool, address, RequestCode.SEND_MESSAGE_V2, _send_fields(0, "TAGS\x01a\x02"), b"body"
        )
        sends.append(time.perf_counter() - sent)
        await asyncio.sleep(PAUSE_S)
    await pool.close()
    thirds = thirds_p99(waits)
    waits.sort()
    sends.sort()
    part = 0.99
    return Waits(
        waits[len(waits) // 2] * 1000,
        waits[int(len(waits) * part)] * 1000,
        waits[-1] * 1000,
        len(waits),
        sends[int(len(sends) * part)] * 1000,
        [1000 * each for each in thirds],
    )


async def _called(
    pool: ClientPool, address: str, code: RequestCode, fields: dict[str, str], body: bytes = b""
) -> None:
    try:
        answer = await pool.call(address, int(code), fields, body, timeout_s=TIMEOUT_S)
    except CallTimeout:
        return
    if answer.code != 0:
        message = f"request {code} was answered with {answer.code}: {answer.remark}"
        raise AssertionError(message)


def _send_fields(queue_id: int, properties: str) -> dict[str, str]:
    fixed = {"a": "producers", "b": "Orders", "c": "TBW102", "d": str(QUEUES), "f": "0"}
    fixed |= {"h": "0", "j": "0", "k": "false"}
    return fixed | {"e": str(queue_id), "g": "1700000000000", "i": properties}


def keep_asking(address: str, fields: dict[str, str], began: Event, end: Event) -> None:
    """Keep some look-ups under way on one connection until ``end``; the answers are not read."""
    host, _, port = address.rpartition(":")
    connection: Connection[None] = Connection()
    asked = query_fields(**fields)
    with socket.create_connection((host, int(port))) as peer, suppress(ConnectionError):
        peer.settimeout(0.1)
        missing = AT_ONCE
        while not end.is_set():
            requests = [
                connection.request(RequestCode.QUERY_MESSAGE, asked, context=None)[1]
                for _ in range(missing)
            ]
            peer.settimeout(None)
            peer.sendall(b"".join(requests))
            peer.settimeout(0.1)
            began.set()
            missing = 0
            with suppress(TimeoutError):
                events = connection.receive(peer.recv(1 << 20))
                missing = sum(isinstance(event, ResponseReceived) for event in events)
