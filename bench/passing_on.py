"""Rates of exports to other tools, and of imports of lines.

Sender and broker are processes of their own.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import rocketlens
from bench.report import goal, table
from bench.synthetic import TOPIC, SyntheticStore
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import reap

LINES, QUICK_LINES = 200_000, 40_000
LINES_GOAL: Final = 20_000
ROWS_GOAL: Final = 1_000_000
BODY_BYTES: Final = 200


def report(directory: Path, store: SyntheticStore, *, is_quick: bool) -> Iterator[str]:
    """Measure, and return the lines of the section."""
    rate = lines_a_second(directory / "lines", QUICK_LINES if is_quick else LINES)
    rows = rows_a_second(store)
    exported = {name: exported_a_second(directory, store, name) for name in ("parquet", "arrow")}
    yield from table(
        ("messages a second", "rate"),
        [
            ("send --lines", f"{rate:,.0f}"),
            ("scan to Arrow", f"{rows:,.0f}"),
            *((f"export to {name}", f"{one:,.0f}") for name, one in exported.items()),
        ],
    )
    yield goal(is_met=rate >= LINES_GOAL, text=f"lines sent: {rate:,.0f}/s, wanted {LINES_GOAL:,}")
    yield goal(is_met=rows >= ROWS_GOAL, text=f"rows: {rows:,.0f}/s, wanted {ROWS_GOAL:,}")


def lines_a_second(directory: Path, count: int) -> float:
    """Time ``rocketlens send --lines`` as a whole process, its start included."""
    directory.mkdir(parents=True)
    lines = directory / "lines"
    lines.write_text(f"{'x' * (BODY_BYTES - 1)}\n" * count)
    name_server = OurNameServer()
    try:
        broker = OurBroker(directory, str(name_server.address))
        try:
            command = [sys.executable, "-m", "rocketlens", "send", TOPIC, "--lines", str(lines)]
            began = time.perf_counter()
            done = subprocess.run(
                [*command, "-n", str(name_server.address)],
                capture_output=True,
                text=True,
                check=True,
            )
            taken = time.perf_counter() - began
        finally:
            reap(broker.process)
    finally:
        name_server.close()
    if f"sent {count:,} messages, 0 failed" not in done.stderr:
        raise AssertionError(done.stderr)
    return count / taken


def rows_a_second(store: SyntheticStore) -> float:
    """Time a scan that is taken as Arrow batches and dropped; kernels are loaded before."""
    with rocketlens.open_store(store.path) as opened:
        next(opened.scan(TOPIC).record_batches())
        scan = opened.scan(TOPIC)
        began = time.perf_counter()
        rows = sum(batch.num_rows for batch in scan.record_batches())
        taken = time.perf_counter() - began
    if rows != store.messages or not scan.complete:
        message = f"{rows} of {store.messages} rows"
        raise AssertionError(message)
    return rows / taken


def exported_a_second(directory: Path, store: SyntheticStore, form: str) -> float:
    """Time ``rocketlens export`` as a whole process."""
    target = directory / f"exported.{form}"
    command = [sys.executable, "-m", "rocketlens", "export", str(target), "-t", TOPIC]
    began = time.perf_counter()
    subprocess.run([*command, "--store", str(store.path)], capture_output=True, check=True)
    taken = time.perf_counter() - began
    target.unlink()
    return store.messages / taken
