"""Sends and look-ups of a Java client, on our name server and broker and on the real ones.

`python -m bench.broker` measures both in turn, several rounds, and shows the medians; CPU is that
of the broker's process, in microseconds for each message sent, so it is comparable on a machine
that others use, too.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.report import heading, machine_lines, ratio, table
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import RocketMQPeer, reap

PROGRAM = Path(__file__).parent / "java" / "BrokerLoad.java"
VERSION = "5.5.0"
TOPIC = "BenchTopic"
COUNT = 40_000
ROUNDS = 3
KINDS = ("sync", "async", "batch", "queries")
# Sent for the warm-up, too.
SENT_IN_ALL = 1.25
SEGMENT_BYTES = 1 << 30


class Running(NamedTuple):
    """A broker that runs: which, where its name server is, and how long it took to start."""

    side: str
    namesrv: str
    process: int
    start_seconds: float


@contextmanager
def ours(directory: Path) -> Iterator[Running]:
    """Run our name server and broker."""
    with ExitStack() as stack:
        began = time.monotonic()
        namesrv = OurNameServer()
        stack.callback(namesrv.close)
        settings = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "maxHashSlotNum": 5_000_000}
        settings["maxIndexNum"] = 20_000_000
        broker = OurBroker(directory, str(namesrv.address), **settings)
        stack.callback(reap, broker.process)
        seconds = time.monotonic() - began
        yield Running("ours", str(namesrv.address), broker.process.pid, seconds)
        broker.stop()


@contextmanager
def theirs(directory: Path, peer: RocketMQPeer) -> Iterator[Running]:
    """Run the real ones."""
    began = time.monotonic()
    with peer.start(VERSION, directory) as broker:
        seconds = time.monotonic() - began
        yield Running("theirs", broker.namesrv_address, broker.broker.pid, seconds)


def cpu_seconds(process: int) -> float:
    """Give the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_mib(process: int) -> float:
    """Give the memory of a process that is not files."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def measure(
    peer: RocketMQPeer, running: Running, kind: str, count: int, into: dict[str, list[float]]
) -> None:
    """Run the load of one kind, and note what it says under ``kind metric``."""
    before = cpu_seconds(running.process)
    # Look-ups need messages to look for.
    kinds = ("sync", "queries") if kind == "queries" else (kind,)
    printed = peer.java(VERSION, PROGRAM, running.namesrv, TOPIC, str(count), *kinds)
    used = cpu_seconds(running.process) - before
    for line in printed.splitlines():
        words = line.split()
        if line.startswith("#") or len(words) != 5 or (kind == "queries" and words[0] == "sync"):
            continue
        for metric, value in zip(("/s", "p50", "p99", "failed"), words[1:], strict=True):
            into[f"{words[0]} {metric}"].append(float(value))
    if kind != "queries":
        into[f"{kind} cpu"].append(used * 1e6 / count / SENT_IN_ALL)


def rows(
    figures: dict[str, dict[str, list[float]]], names: list[str]
) -> Iterator[tuple[str, str, str, str]]:
    """Give a line for each figure: ours, theirs, and how many times better ours is."""
    for name in names:
        mine, other = (median(figures[side][name]) for side in ("ours", "theirs"))
        better = (mine, other) if name.endswith("/s") else (other, mine)
        shown = ratio(*better) if better[1] else "-"
        yield name, f"{mine:,.1f}", f"{other:,.1f}", shown


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="messages of each kind")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    peer = RocketMQPeer()
    figures: dict[str, dict[str, list[float]]] = {
        side: defaultdict(list) for side in ("ours", "theirs")
    }
    print(*machine_lines(), sep="\n")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        sides = [
            stack.enter_context(ours(Path(scratch, "ours"))),
            stack.enter_context(theirs(Path(scratch, "theirs"), peer)),
        ]
        for kind in options.kinds:
            for _ in range(options.rounds):
                for running in sides:
                    measure(peer, running, kind, options.count, figures[running.side])
                    print(".", end="", flush=True, file=sys.stderr)
        for running in sides:
            figures[running.side]["start s"].append(running.start_seconds)
            figures[running.side]["memory MiB"].append(anonymous_mib(running.process))
    print(heading(f"broker: a Java client of {VERSION}, {options.count:,} messages a kind"))
    titles = ("", "ours", "theirs", "better")
    print(*table(titles, rows(figures, list(figures["ours"]))), sep="\n")


if __name__ == "__main__":
    main()
