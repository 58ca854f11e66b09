"""Spark's index beside an appending broker: its lag under a steady load."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.broker import TOPIC, Client
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import read_index_state, safe_offset_of
from rocketlens.store.read.state import read_synced_offset

PROGRAM = Path(__file__).parent / "java" / "PacedLoad.java"
SAMPLE_SECONDS = 0.5
START_SECONDS = 120.0


class Followed(NamedTuple):
    """A load, and the median bytes of unindexed log in each third of it."""

    messages: int
    seconds: float
    bytes_a_second: float
    lags: tuple[float, float, float]
    rest_seconds: float
    """How long it took to index what was left when the load ended."""


def measure(directory: Path, client: Client, rate: int, seconds: int, master: str) -> Followed:
    """Run `serve` with Spark's builder, send ``rate`` messages a second, and watch the index."""

    def send(name_server: str, *load: int) -> list[str]:
        words = (name_server, TOPIC, *map(str, load))
        return client.peer.java(client.version, PROGRAM, *words).split()

    layout = StoreLayout(directory / "store")
    with served(directory, master) as name_server:
        send(name_server, 100, 1)
        # The builder is there once it has indexed these.
        wait(lambda: (state := read_index_state(layout)) is not None and bool(state.files))
        lags: list[int] = []
        begin = synced(layout)
        ended = threading.Event()
        watcher = threading.Thread(target=watch, args=(layout, lags, ended))
        watcher.start()
        messages, took = send(name_server, rate, seconds)
        ended.set()
        watcher.join()
        rest_seconds = wait(lambda: safe_offset_of(layout) >= synced(layout))
        third = max(len(lags) // 3, 1)
        thirds = (lags[:third], lags[third : 2 * third], lags[2 * third :] or lags)
        return Followed(
            int(messages),
            float(took),
            (synced(layout) - begin) / float(took),
            tuple(median(part) for part in thirds),
            rest_seconds,
        )


@contextmanager
def served(directory: Path, master: str) -> Iterator[str]:
    """Run `rocketlens serve`; yield the address of its name server."""
    command = [
        *(sys.executable, "-m", "rocketlens.main", "serve", "--home", str(directory)),
        *("--namesrv-port", "0", "--broker-port", "0"),
        *("--index-builder", "spark", "--master", master),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        ready = re.match(r"ready: name server (\S+),", line)
        try:
            if ready is None:
                raise RuntimeError("rocketlens serve did not start")
            yield ready[1]
        finally:
            process.send_signal(signal.SIGTERM)


def watch(layout: StoreLayout, lags: list[int], ended: threading.Event) -> None:
    """Sample the bytes of unindexed log."""
    while not ended.wait(SAMPLE_SECONDS):
        lags.append(max(synced(layout) - safe_offset_of(layout), 0))


def synced(layout: StoreLayout) -> int:
    """Return the synced end of the log."""
    return read_synced_offset(layout) or 0


def wait(condition: Callable[[], bool]) -> float:
    """Wait for a condition; return the seconds."""
    pause = threading.Event()
    waited = 0.0
    while not condition():
        if waited > START_SECONDS:
            raise TimeoutError("the index builder does not come on")
        pause.wait(0.05)
        waited += 0.05
    return waited
