"""Look-ups: as a whole process, with the real tool, and in an open store.

Times are medians of several runs, with files in the page cache; the first run is not counted. For
look-ups in an open store, which take microseconds, the fastest window of many counts, by its
median.
"""

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import rocketlens
from bench.synthetic import QUEUES, TOPIC, SyntheticStore
from tests.peer.rocketmq_peer import RocketMQPeer

PROGRAM = "import sys; from rocketlens.main import main; sys.exit(main())"
LOOK_UPS = 2000
WINDOW = 100


class Lookups(NamedTuple):
    """Microseconds of one look-up in an open store: the median of the fastest window."""

    key: float
    unique_key: float
    offset_id: float
    queue_position: float


WANTED = Lookups(key=60, unique_key=75, offset_id=30, queue_position=30)


def seconds_of_processes(store: SyntheticStore, runs: int) -> dict[str, float]:
    """Time ``rocketlens`` from start to exit, with Python's own start."""
    number = store.messages * 2 // 3
    at_store = ("--store", str(store.path))
    commands = {
        "--help": ("--help",),
        "find by key, in every topic": ("find", store.key(number), *at_store),
        "find by key": ("find", store.key(number), "--topic", TOPIC, *at_store),
        "find by unique key": ("find", store.unique_key(number), "--topic", TOPIC, *at_store),
        "find by offset id": ("find", store.offset_msg_id(number), *at_store),
        "find by queue position": ("find", store.position(number), *at_store),
    }
    expected = store.unique_key(number)
    times = {}
    for name, command in commands.items():
        times[name] = median_seconds(partial(run_program, command, expected), runs)
    return times


def run_program(arguments: tuple[str, ...], expected: str) -> None:
    """Run ``rocketlens``, and check that it finds the messages."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if arguments[0] == "find" and expected not in done.stdout:
        message = f"{arguments} did not find {expected}"
        raise AssertionError(message)


def seconds_of_mqadmin(
    peer: RocketMQPeer, version: str, store: SyntheticStore, runs: int
) -> dict[str, float]:
    """Time the real tool with a real broker on the same store, which the broker changes."""
    number = store.messages * 2 // 3
    key, unique_key = store.key(number), store.unique_key(number)
    with peer.start(version, store.path.parent) as broker:
        address = ("-n", broker.namesrv_address, "-t", TOPIC)

        def ask(*command: str) -> None:
            said = peer.mqadmin(version, *command)
            if unique_key not in said:
                message = f"mqadmin {' '.join(command)} did not find it:\n{said[-500:]}"
                raise AssertionError(message)

        return {
            "find by key": median_seconds(lambda: ask("queryMsgByKey", *address, "-k", key), runs),
            "find by unique key": median_seconds(
                lambda: ask("queryMsgByUniqueKey", *address, "-i", unique_key), runs
            ),
        }


def microseconds_of_lookups(store: SyntheticStore, seed: int = 1) -> Lookups:
    """Time look-ups of messages all over an open store."""
    generator = random.Random(seed)
    numbers = [generator.randrange(store.messages) for _ in range(LOOK_UPS)]
    with rocketlens.open_store(store.path) as opened:
        ways: Mapping[str, tuple[Callable[..., object], list[tuple[object, ...]]]] = {
            "key": (opened.query_message, [(TOPIC, store.key(n)) for n in numbers]),
            "unique_key": (opened.view_message, [(TOPIC, store.unique_key(n)) for n in numbers]),
            "offset_id": (opened.view_message, [(store.offset_msg_id(n),) for n in numbers]),
            "queue_position": (
                opened.query_by_queue_offset,
                [(TOPIC, n % QUEUES, n // QUEUES) for n in numbers],
            ),
        }
        fastest = {}
        for name, (look_up, asked) in ways.items():
            times = []
            for arguments in asked * 2:
                begin = time.perf_counter_ns()
                look_up(*arguments)
                times.append(time.perf_counter_ns() - begin)
            windows = (times[at : at + WINDOW] for at in range(0, len(times), WINDOW))
            fastest[name] = min(map(statistics.median, windows)) / 1000
    return Lookups(**fastest)


def median_seconds(run: Callable[[], object], runs: int) -> float:
    """Return the median of several runs after one that is not counted."""
    run()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def read_into_cache(directory: Path) -> None:
    """Read log and index once, into the page cache."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass
    os.sync()
