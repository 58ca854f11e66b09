"""The newest 64 messages of a key that all messages have, beside a key of one message.

Our client asks our broker, then the real one, each with the same messages.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from bench.report import goal, table
from rocketlens import Message, SyncMQAdmin, SyncProducer
from rocketlens.client.connect.route import MessageQueue
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import RocketMQPeer, reap

MESSAGES: Final = 300_000
QUICK_MESSAGES: Final = 30_000
TOPIC: Final = "Orders"
HOT: Final = "hot"
BATCH: Final = 250
MAX_NUM: Final = 64
LOOK_UPS: Final = 50
MAX_TIMES: Final = 2 * MAX_NUM
"""How many times as long as a message of its own key the newest 64 of a hot key may take."""


def report(
    directory: Path, peer: RocketMQPeer | None, version: str, *, is_quick: bool
) -> Iterator[str]:
    """Return the lines of the section, with the goal."""
    messages = QUICK_MESSAGES if is_quick else MESSAGES
    found = {"rocketlens": _at_ours(directory / "ours", messages)}
    if peer is not None:
        found[f"RocketMQ {version}"] = _at_theirs(directory / "theirs", peer, version, messages)
    yield f"  {messages:,} messages, all with one key; medians of {LOOK_UPS} look-ups"
    rows = [
        (name, *(f"{1000 * one[way]:.2f}" for way in ("rare", "hot")))
        for name, one in found.items()
    ]
    titles = ("our client at the broker of", "rare key, ms", f"hot key, newest {MAX_NUM}, ms")
    yield from table(titles, rows)
    for name, one in found.items():
        text = f"{name}: hot key, newest {MAX_NUM}: {one['hot'] / one['rare']:.1f}x a rare key"
        yield goal(
            is_met=one["hot"] <= MAX_TIMES * one["rare"], text=f"{text}, wanted under {MAX_TIMES}x"
        )


def _at_ours(directory: Path, messages: int) -> dict[str, float]:
    with ExitStack() as stack:
        name_server = OurNameServer()
        stack.callback(name_server.close)
        broker = OurBroker(directory, str(name_server.address), mappedFileSizeCommitLog=1 << 28)
        stack.callback(reap, broker.process)
        return measure(str(name_server.address), messages)


def _at_theirs(
    directory: Path, peer: RocketMQPeer, version: str, messages: int
) -> dict[str, float]:
    with peer.start(version, directory) as broker:
        return measure(broker.namesrv_address, messages)


def measure(name_server: str, messages: int) -> dict[str, float]:
    """Send the messages; return the median seconds of look-ups by either kind of key."""
    with closing(SyncProducer(name_server, group="bench")) as producer:
        producer.send(Message(TOPIC, bytes(100), keys=f"k0 {HOT}"))
        queue = MessageQueue(
            TOPIC, producer.send(Message(TOPIC, b"x")).message_queue.broker_name, 0
        )
        for first in range(1, messages, BATCH):
            batch = [
                Message(TOPIC, bytes(100), keys=f"k{number} {HOT}")
                for number in range(first, min(first + BATCH, messages))
            ]
            producer.send_batch(batch, queue=queue)
    with SyncMQAdmin(name_server) as admin:

        def look_up(key: str, count: int) -> None:
            answer = admin.query_message(TOPIC, key, MAX_NUM)
            if len(answer.messages) != count:
                message = f"{len(answer.messages)} messages of {key}, not {count}"
                raise AssertionError(message)

        return {
            "rare": _median(lambda number: look_up(f"k{number * 7919 % messages}", 1)),
            "hot": _median(lambda _: look_up(HOT, MAX_NUM)),
        }


def _median(look_up: Callable[[int], None]) -> float:
    look_up(0)
    times = []
    for number in range(1, LOOK_UPS + 1):
        begin = time.perf_counter()
        look_up(number)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
