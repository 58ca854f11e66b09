"""Reading all messages of a topic: as lines of JSON, as Arrow, and only the newest ones.

Whole processes, with files in the page cache; rates include Python's start.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.synthetic import QUEUES, TOPIC, SyntheticStore
from rocketlens.formats.consumequeue_entry import ENTRY_LAYOUT

PROGRAM = "import sys; from rocketlens.main import main; sys.exit(main())"
ARROW = """
import sys, rocketlens
rows = sum(batch.num_rows for batch in rocketlens.read_batches(sys.argv[1], topic=sys.argv[2]))
assert rows == int(sys.argv[3]), rows
"""
NEWEST = 10
QUEUE_FILE_ENTRIES = 300_000


class Reading(NamedTuple):
    """Wall-clock and processor time of one process."""

    seconds: float
    cpu_seconds: float


def measure(store: SyntheticStore, runs: int) -> dict[str, Reading]:
    """Return the best run of each way to read."""
    write_queues(store)
    find = (PROGRAM, "find", "--store", str(store.path), "--topic", TOPIC)
    commands = {
        "find -o jsonl, messages/s": (*find, "-o", "jsonl"),
        "read_batches, rows/s": (ARROW, str(store.path), TOPIC, str(store.messages)),
        f"find --newest {NEWEST}, s": (*find, "--newest", str(NEWEST), "-o", "jsonl"),
    }
    return {
        name: min((run(command) for _ in range(runs + 1)), key=lambda each: each.seconds)
        for name, command in commands.items()
    }


def run(command: tuple[str, ...]) -> Reading:
    """Run a Python program, and discard its output."""
    began, cpu_began = time.perf_counter(), _children_seconds()
    subprocess.run(
        [sys.executable, "-c", *command],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return Reading(time.perf_counter() - began, _children_seconds() - cpu_began)


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def write_queues(store: SyntheticStore) -> None:
    """Write the consume queues as a broker does."""
    numbers = np.arange(store.messages)
    offsets = np.array([store.physical_offset(number) for number in range(store.messages)])
    for queue_id in range(QUEUES):
        own = offsets[numbers % QUEUES == queue_id]
        directory = store.path / "consumequeue" / TOPIC / str(queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(own), QUEUE_FILE_ENTRIES):
            part = own[start : start + QUEUE_FILE_ENTRIES]
            entries = np.zeros(QUEUE_FILE_ENTRIES, np.dtype(ENTRY_LAYOUT.dtype))
            entries["physical_offset"][: len(part)] = part
            entries["store_size"][: len(part)] = store.record_bytes
            name = f"{start * entries.itemsize:020d}"
            Path(directory, name).write_bytes(entries.tobytes())
