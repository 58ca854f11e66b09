"""How long a look-up takes: as a whole process, beside the real tool, and inside one open store.

Times are medians of several runs, with files in the page cache; the first of each is not counted.
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
from bench.synthetic import TOPIC, SyntheticStore
from tests.peer.rocketmq_peer import RocketMQPeer

PROGRAM = "import sys; from rocketlens.main import main; sys.exit(main())"
LOOK_UPS = 2000


class Lookups(NamedTuple):
    """Median microseconds of one look-up in a store that is open."""

    key: float
    unique_key: float
    offset_id: float
    queue_position: float


def seconds_of_processes(store: SyntheticStore, runs: int) -> dict[str, float]:
    """Time ``rocketlens`` from start to exit, Python's own start included."""
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
    """Run ``rocketlens`` and make sure that it finds what it is asked for."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if arguments[0] == "find" and expected not in done.stdout:
        message = f"{arguments} did not find {expected}"
        raise AssertionError(message)


def seconds_of_mqadmin(
    peer: RocketMQPeer, version: str, store: SyntheticStore, runs: int
) -> dict[str, float]:
    """Time the real tool against a real broker on the same store, which it changes."""
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
    """Time look-ups of messages all over a store that is open, one after another."""
    generator = random.Random(seed)
    numbers = [generator.randrange(store.messages) for _ in range(LOOK_UPS)]
    with rocketlens.open_store(store.path) as opened:
        ways: Mapping[str, Callable[[int], object]] = {
            "key": lambda n: opened.query_message(TOPIC, store.key(n)).messages[0],
            "unique_key": lambda n: opened.view_message(TOPIC, store.unique_key(n)),
            "offset_id": lambda n: opened.view_message(store.offset_msg_id(n)),
            "queue_position": lambda n: opened.query_by_queue_offset(TOPIC, n % 4, n // 4),
        }
        medians = {}
        for name, look_up in ways.items():
            times = []
            for number in numbers:
                begin = time.perf_counter_ns()
                look_up(number)
                times.append(time.perf_counter_ns() - begin)
            medians[name] = statistics.median(times) / 1000
    return Lookups(**medians)


def median_seconds(run: Callable[[], object], runs: int) -> float:
    """Give the median of several runs; one before them is not counted."""
    run()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def read_into_cache(directory: Path) -> None:
    """Read the log and the index once, so that no run pays for the disk."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass
    os.sync()
