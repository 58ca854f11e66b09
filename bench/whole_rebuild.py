"""Rebuilds of index and queues as whole processes, of 1 and of 10 GiB.

``rocketlens index build --queues`` and the recovery of the real broker take turns. ``dd`` shows the
time of reading the log alone, the lower bound. Memory is that of all processes of a side together,
without mapped files, whose pages the system can reclaim.

Then the same on a standalone Spark cluster whose workers have one core each.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench import rebuild
from bench.broker import anonymous_mib, cpu_seconds
from bench.history import Row
from bench.report import goal, ratio, size_text, table
from bench.synthetic import SyntheticStore
from tests.peer.rocketmq_peer import RocketMQPeer
from tests.support.spark_cluster import running

ROUNDS: Final = 3
WORKERS: Final = (1, 2, 4)
OURS: Final = "index build --queues"
TITLES: Final = ("whole process", "s", "CPU s", "MiB", "read s", "build s", "sync s", "swap s")
NO_MORE: Final = 1.25
"""How many times the memory may be with ten times the log: workers fill their buffers by chance."""
_POLL_SECONDS: Final = 0.1
_PHASE: Final = re.compile(r"(\w+) (\d+\.\d+) s")


class Whole(NamedTuple):
    """One rebuild from its start to the last entry: seconds, and the peak memory."""

    seconds: float
    cpu_seconds: float
    memory_mib: float
    phases: dict[str, float]


def by_us(store: SyntheticStore, master: str, *, queues: bool = True) -> Whole:
    """Rebuild with the command."""
    rebuild.forget(store.path)
    options = ["--tag-index", "--slots", rebuild.SLOT_COUNT, "--entries", rebuild.ENTRY_COUNT]
    options += ["--queues"] if queues else []
    command = [sys.executable, "-m", "rocketlens", "index", "build", *map(str, options)]
    command += ["--store", str(store.path), "--master", master]
    begin = time.perf_counter()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process, _watched(process.pid) as used:
        text, errors = process.communicate()
        seconds = time.perf_counter() - begin
    if process.returncode:
        raise AssertionError(errors)
    lines = text.splitlines()
    [took] = [line for line in lines if line.startswith("took ")]
    phases = {name: float(taken) for name, taken in _PHASE.findall(took)}
    return Whole(seconds, sum(used.cpu_seconds.values()), used.memory_mib, phases)


def by_rocketmq(peer: RocketMQPeer, version: str, store: SyntheticStore) -> Whole:
    """Rebuild with the recovery of a real broker, with all its memory."""
    with rebuild.recovered(peer, version, store) as (recovery, broker):
        memory = anonymous_mib(broker.broker.pid)
    return Whole(recovery.last - recovery.begin, recovery.cpu_seconds, memory, {})


def seconds_to_read(store: SyntheticStore, *, is_cold: bool) -> float:
    """Read the log with ``dd``, file by file."""
    if is_cold:
        forget_cached(store)
    begin = time.perf_counter()
    for path in sorted((store.path / "commitlog").iterdir()):
        words = ["dd", f"if={path}", "of=/dev/null", "bs=1M"]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def forget_cached(store: SyntheticStore) -> None:
    """Drop the log from the page cache."""
    for path in (store.path / "commitlog").iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass
class _Used:
    """Resources of a process and its descendants: peak memory, and the time of each."""

    memory_mib: float = 0.0
    cpu_seconds: dict[int, float] = field(default_factory=dict)

    def look(self, root: int) -> bool:
        """Sample the running processes; return False if none runs."""
        memory_mib, is_any = 0.0, False
        # Those whose parent ended are not below it any more.
        for process in _processes_below(root) | self.cpu_seconds.keys():
            # It may end at any time. A parent need not add its time to its own.
            with suppress(OSError, StopIteration):
                self.cpu_seconds[process] = cpu_seconds(process)
                memory_mib += anonymous_mib(process)
                is_any = True
        self.memory_mib = max(self.memory_mib, memory_mib)
        return is_any


@contextmanager
def _watched(root: int) -> Iterator[_Used]:
    """Watch a process and its descendants until all have ended, the JVM included."""
    used, is_over = _Used(), threading.Event()

    def watch() -> None:
        while used.look(root) or not is_over.is_set():
            time.sleep(_POLL_SECONDS)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield used
    finally:
        is_over.set()
        thread.join()


def _processes_below(root: int) -> set[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        children[int(text.rpartition(") ")[2].split()[1])].append(int(path.parent.name))
    found, waiting = {root}, [root]
    while waiting:
        new = children[waiting.pop()]
        found.update(new)
        waiting += new
    return found


def report(
    stores: list[SyntheticStore],
    master: str,
    peer: RocketMQPeer | None,
    version: str,
    goals: list[float],
) -> Iterator[str | Row]:
    """Measure each store, and return the lines of the section."""
    by_us(stores[0], master)  # It may write the archive of classes that the next ones start from.
    memory = []
    for store, wanted in zip(stores, goals, strict=False):
        size = size_text(store.log_bytes)
        reading = {
            "cold": [seconds_to_read(store, is_cold=True) for _ in range(ROUNDS)],
            "warm": [seconds_to_read(store, is_cold=False) for _ in range(ROUNDS)],
        }
        rounds: dict[str, list[Whole]] = defaultdict(list)
        for _ in range(ROUNDS):
            rounds[OURS].append(by_us(store, master))
            if peer is not None:
                rounds[f"RocketMQ {version}"].append(by_rocketmq(peer, version, store))
            rounds["without queues"].append(by_us(store, master, queues=False))
            forget_cached(store)
            rounds["log not in memory"].append(by_us(store, master))
        load = os.getloadavg()[0]
        yield f"  {size} of log, {store.messages:,} messages; medians of {ROUNDS}, load {load:.1f}"
        rows = [_row(name, of) for name, of in rounds.items()]
        rows += [(f"dd, {name}", f"{median(of):.1f}") for name, of in reading.items()]
        width = len(TITLES)
        yield from table(TITLES, [(*row, *[""] * (width - len(row))) for row in rows])
        yield from _rows(size, rounds, reading)
        memory.append(median([one.memory_mib for one in rounds[OURS]]))
        if peer is not None:
            better = [
                theirs.seconds / ours.seconds
                for ours, theirs in zip(rounds[OURS], rounds[f"RocketMQ {version}"], strict=True)
            ]
            yield Row(f"index build, {size}, whole process, x", better)
            text = f"{size}: RocketMQ's time to ours {median(better):.1f}x, wanted {wanted:.0f}x"
            yield goal(is_met=median(better) >= wanted, text=text)
    if len(memory) > 1:
        text = f"memory at {size_text(stores[-1].log_bytes)}: {ratio(memory[-1], memory[0])}"
        yield goal(is_met=memory[-1] <= NO_MORE * memory[0], text=f"{text}, wanted no more")


def _row(name: str, rounds: list[Whole]) -> tuple[str, ...]:
    seconds, cpu, memory = (median([each[place] for each in rounds]) for place in range(3))
    phases = [f"{median([one.phases[phase] for one in rounds]):.1f}" for phase in rounds[0].phases]
    return name, f"{seconds:.1f}", f"{cpu:.1f}", f"{memory:.0f}", *phases


def _rows(
    size: str, rounds: dict[str, list[Whole]], reading: dict[str, list[float]]
) -> Iterator[Row]:
    for name, of in rounds.items():
        row = f"index build, {size}, {name}"
        yield Row(f"{row}, seconds", [one.seconds for one in of])
        yield Row(f"{row}, cpu seconds", [one.cpu_seconds for one in of])
        yield Row(f"{row}, MiB", [one.memory_mib for one in of])
    for name, seconds in reading.items():
        yield Row(f"dd of {size}, {name}, seconds", seconds)


def report_of_clusters(store: SyntheticStore, directory: Path) -> Iterator[str | Row]:
    """Measure the command on standalone clusters, and return the lines of the section."""
    yield f"  {size_text(store.log_bytes)} of log; all workers share {os.cpu_count()} cores"
    of_one = 0.0
    for workers in WORKERS:
        with running(directory / str(workers), workers) as master:
            by_us(store, master)
            rounds = [by_us(store, master) for _ in range(ROUNDS)]
        jobs = [sum(each.phases.values()) for each in rounds]
        of_one = of_one or median(jobs)
        yield Row(f"index build, {workers} workers of a core, job seconds", jobs)
        whole = median([each.seconds for each in rounds])
        yield (
            f"  {workers} workers of a core: {median(jobs):.1f} s for the job, "
            f"{ratio(of_one, median(jobs))} of one worker; {whole:.1f} s as a process; "
            f"load {os.getloadavg()[0]:.1f}"
        )
