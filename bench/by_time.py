"""The newest 20 messages of a topic and a time: as a page, and in a store.

The page is the console's, beside our broker and beside the real one, by turns; the CPU of the
console's process is counted, too. The comparison is RocketMQ's own client in a warm JVM, with the
calls of RocketMQ's dashboard for any 20 messages of that time, without a page. The store has no
consume queues, so its log is read.
"""

import asyncio
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from bench import console
from bench.broker import cpu_seconds
from bench.find import median_seconds, run_program
from bench.history import Row
from bench.report import goal, table
from bench.synthetic import TOPIC, SyntheticStore
from rocketlens import Message, MQAdmin, Producer
from rocketlens.client.connect.route import MessageQueue
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import RocketMQPeer, reap

MESSAGES, QUICK_MESSAGES = 100_000, 20_000
TOPICS: Final = {"Eight": 8, "Thousand": 1_000}
"""Topics by the number of their queues."""
ROUNDS: Final = 5
CLIENT: Final = Path(__file__).parent / "java" / "TopicSearch.java"
PAGES: Final = 10
"""Of each question in a round."""
CLIENT_PAGES: Final = 3
"""Searches of RocketMQ's client, which makes two requests for each queue, one by one."""
WARM_UP: Final = 5
SENT_AT_ONCE: Final = 32
PAGE_MS: Final = 40.0
RUNS: Final = 5
FOUND: Final = 20
_FOUND_LINE: Final = re.compile(r"\d+ \d+")
_Figures = tuple[list[float], list[float], list[float]]
_QUEUE_FILE_BYTES: Final = 60_000
"""So that a thousand queues take no more of the disk than they need."""


class Side(NamedTuple):
    """A console beside a broker."""

    name_server: str
    address: str
    process: int
    times: dict[str, tuple[int, int]]
    """When messages of each topic were sent first and stored last, in epoch milliseconds."""
    client: "subprocess.Popen[str] | None" = None
    """RocketMQ's client, which is asked the same."""


def report(
    directory: Path,
    peer: RocketMQPeer | None,
    version: str,
    store: SyntheticStore,
    *,
    is_quick: bool,
) -> Iterator[str | Row]:
    """Measure, and return the lines of the section."""
    messages = QUICK_MESSAGES if is_quick else MESSAGES
    with ExitStack() as stack:
        sides = {"rocketlens": _at_ours(stack, directory / "ours", messages)}
        if peer is not None:
            sides[f"RocketMQ {version}"] = _at_theirs(
                stack, directory / "theirs", peer, version, messages
            )
            for name, side in sides.items():
                client = _client(stack, peer, version, side.name_server)
                sides[name] = side._replace(client=client)
        figures = asyncio.run(_measure(sides))
    load = os.getloadavg()[0]
    yield f"  {messages:,} messages a topic, over its queues one by one; load {load:.1f}"
    yield f"  medians of {ROUNDS} rounds of {PAGES} pages, by turns"
    rows = [
        (f"{side}: {question}", *(f"{statistics.median(each):.1f}" if each else "" for each in of))
        for (side, question), of in figures.items()
    ]
    titles = ("the page of the newest 20, at the broker of", "ms", "of the console's CPU")
    yield from table((*titles, "RocketMQ's client, any 20, ms"), rows)
    for (side, question), (wall, cpu, client_ms) in figures.items():
        yield Row(f"page at {side}, {question}, ms", wall)
        yield Row(f"page at {side}, {question}, cpu ms", cpu)
        if client_ms:
            yield Row(f"RocketMQ's client at {side}, {question}, ms", client_ms)
        if question.startswith("8 queues"):
            median = statistics.median(wall)
            text = f"{side}, {question}: {median:.1f} ms, wanted under {PAGE_MS:.0f}"
            yield goal(is_met=median < PAGE_MS, text=text)
    yield from _of_store(store)


def _of_store(store: SyntheticStore) -> Iterator[str | Row]:
    """Find the messages of a second in the middle of a store, in a process of its own."""
    middle_ms = store.born_ms + store.messages // 8
    times = ("--since", _text(middle_ms), "--until", _text(middle_ms + 1_000))
    command = ("find", "-t", TOPIC, *times, "--store", str(store.path), "-o", "jsonl")
    run = partial(run_program, command, store.unique_key(store.messages // 2 + 10))
    seconds = [median_seconds(run, 1) for _ in range(RUNS)]
    text = f"a second of {store.messages:,} messages in {store.log_bytes / (1 << 30):.1f} GiB"
    yield f"  find --topic --since --until, {text}: {statistics.median(seconds):.2f} s"
    yield Row("find of a second in a store, s", seconds)


def _client(
    stack: ExitStack, peer: RocketMQPeer, version: str, name_server: str
) -> "subprocess.Popen[str]":
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="java-")))
    classes = peer.compiled(version, CLIENT)
    command = peer.command(version, home, CLIENT.stem, name_server, classes=classes)
    process = stack.enter_context(
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    stack.callback(process.kill)
    return process


def _client_ms(client: "subprocess.Popen[str]", topic: str, times: tuple[int, int]) -> float:
    """Return the milliseconds of one search with RocketMQ's client."""
    assert client.stdin is not None  # noqa: S101 - they are pipes
    assert client.stdout is not None  # noqa: S101
    client.stdin.write(f"{topic} {times[0]} {times[1]} {FOUND}\n")
    client.stdin.flush()
    # The client library prints a line of its own at its start.
    said = next(line for line in client.stdout if _FOUND_LINE.fullmatch(line.strip()))
    count, microseconds = map(int, said.split())
    if count != FOUND:
        message = f"RocketMQ's client found {count} messages of {topic}"
        raise AssertionError(message)
    return microseconds / 1000


def _at_ours(stack: ExitStack, directory: Path, messages: int) -> Side:
    name_server = OurNameServer()
    stack.callback(name_server.close)
    broker = OurBroker(
        directory,
        str(name_server.address),
        mappedFileSizeCommitLog=1 << 28,
        mappedFileSizeConsumeQueue=_QUEUE_FILE_BYTES,
    )
    stack.callback(reap, broker.process)
    return _beside(stack, str(name_server.address), messages)


def _at_theirs(
    stack: ExitStack, directory: Path, peer: RocketMQPeer, version: str, messages: int
) -> Side:
    broker = stack.enter_context(
        peer.start(
            version,
            directory,
            mappedFileSizeConsumeQueue=_QUEUE_FILE_BYTES,
            # On a busy machine sends wait longer than RocketMQ lets them.
            waitTimeMillsInSendQueue=60_000,
        )
    )
    return _beside(stack, broker.namesrv_address, messages)


def _beside(stack: ExitStack, name_server: str, messages: int) -> Side:
    times = {
        topic: asyncio.run(_fill(name_server, topic, queues, messages))
        for topic, queues in TOPICS.items()
    }
    address, process = stack.enter_context(console.running("-n", name_server))
    return Side(name_server, address, process.pid, times)


async def _fill(name_server: str, topic: str, queues: int, messages: int) -> tuple[int, int]:
    """Send the messages; return the times of the first send and of the last store."""
    async with MQAdmin(name_server) as admin, Producer(name_server, group="bench") as producer:
        await admin.create_topic(topic, queues)
        broker = (await admin.message_queues(topic))[0].broker_name
        numbers = iter(range(messages))

        async def send() -> None:
            for number in numbers:
                body = b'{"order": "ORDER-%08d", "amount": 4200, "currency": "EUR"}' % number
                message = Message(topic, body, keys=f"k{number}", tags="PAY")
                queue = MessageQueue(topic, broker, number % queues)
                await producer.send(message, queue=queue)

        first = int(time.time() * 1000)
        await asyncio.gather(*(send() for _ in range(SENT_AT_ONCE)))
        [newest] = (await admin.find(topic=topic, max_num=1)).messages
    return first, newest.store_timestamp_ms


async def _measure(sides: dict[str, Side]) -> dict[tuple[str, str], _Figures]:
    """Return medians over the rounds for each question: ms, CPU ms, and ms of RocketMQ's client."""
    figures: dict[tuple[str, str], _Figures] = defaultdict(lambda: ([], [], []))
    async with httpx.AsyncClient(timeout=60) as client:
        for number in range(ROUNDS + 1):
            for name, side in sides.items():
                for question, topic, since, until in _questions(side.times):
                    count = PAGES if number else WARM_UP
                    parameters = {"topic": topic, "max": str(FOUND)}
                    parameters |= {"since": _text(since)} if since else {}
                    parameters |= {"until": _text(until)} if until else {}
                    taken, cpu = [], cpu_seconds(side.process)
                    for _ in range(count):
                        began = time.perf_counter()
                        answer = await client.get(f"{side.address}/search", params=parameters)
                        taken.append(1000 * (time.perf_counter() - began))
                        if answer.text.count("<tr data-path") != FOUND:
                            message = f"not {FOUND} rows: {answer.text[:300]}"
                            raise AssertionError(message)
                    used = 1000 * (cpu_seconds(side.process) - cpu) / count
                    theirs: list[float] = []
                    if side.client is not None:
                        times = since or 0, until or side.times[topic][1]
                        theirs = [
                            _client_ms(side.client, topic, times) for _ in range(CLIENT_PAGES)
                        ]
                    if number:
                        of = figures[name, question]
                        of[0].append(statistics.median(taken))
                        of[1].append(used)
                        of[2].extend([statistics.median(theirs)] if theirs else [])
    return dict(figures)


def _questions(
    times: dict[str, tuple[int, int]],
) -> Iterator[tuple[str, str, int | None, int | None]]:
    """Yield the questions: name, topic, and times in epoch milliseconds."""
    for topic, queues in TOPICS.items():
        first, last = times[topic]
        fifth = (last - first) // 5
        since, until = first + 2 * fifth, first + 3 * fifth
        yield f"{queues:,} queues, no time", topic, None, None
        yield f"{queues:,} queues, since", topic, since, None
        yield f"{queues:,} queues, of a time that is over", topic, since, until


def _text(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
