"""``bench/history.jsonl``: a record for each run, compared with earlier ones.

A row is compared with the last record of the same kind of machine and the same amount of data. It
became worse if its median did by more than the spread of the rounds, now or then, and by more than
3 %. Nothing fails by it.
"""

import json
import os
import statistics
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.report import memory_gib, processor

HISTORY: Final = Path(__file__).with_name("history.jsonl")
MIN_ROUNDS: Final = 3
NOISE: Final = 0.03


class Row(NamedTuple):
    """A result with a value for each round; more is better if the name ends in ``/s`` or ``x``."""

    name: str
    values: list[float]


def machine() -> dict[str, str | int]:
    """Return the kind of this machine, without its name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": processor(), "cores": cores or 1, "memory GiB": round(memory_gib())}


def record(rows: Iterable[Row], *, is_quick: bool, load: float) -> dict[str, Any]:
    """Return one line of the history; rows of less than three rounds have no spread."""
    return {
        "commit": _commit(),
        "machine": machine(),
        "quick": is_quick,
        "load": [round(each, 1) for each in (load, os.getloadavg()[0])],
        "rows": {
            row.name: {
                "median": _short(statistics.median(row.values)),
                "spread": _short(_spread(row.values)),
            }
            for row in rows
            if len(row.values) >= MIN_ROUNDS
        },
    }


def worse(now: dict[str, Any], past: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Return a line for each row that became worse by more than its noise."""
    last: dict[str, tuple[dict[str, Any], dict[str, float]]] = {}
    for one in past:
        if (one["machine"], one["quick"]) == (now["machine"], now["quick"]):
            last.update({name: (one, row) for name, row in one["rows"].items()})
    for name, row in now["rows"].items():
        if name not in last:
            continue
        then, before = last[name]
        change = row["median"] - before["median"]
        noise = max(row["spread"], before["spread"], NOISE * before["median"])
        if (-change if name.endswith(("/s", "x")) else change) > noise:
            yield (
                f"{name}: {before['median']:g} -> {row['median']:g}, more than its noise of "
                f"{noise:g}; {before['median']:g} at {then['commit']}, load {then['load'][-1]}"
            )


def read(path: Path = HISTORY) -> list[dict[str, Any]]:
    """Return the records, oldest first."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def append(one: dict[str, Any], path: Path = HISTORY) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(one) + "\n")


def _commit() -> str:
    """Return the commit, with ``+`` if files differ from it."""
    words = ["git", "-C", str(HISTORY.parent), "describe", "--always", "--dirty=+"]
    words += ["--exclude", "*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _spread(values: list[float]) -> float:
    """Return the range of the middle half of the rounds."""
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return upper - lower


def _short(value: float) -> float:
    return float(f"{value:.4g}")
