"""Round trips of a message that a tool passes to a push consumer, through both brokers.

Tool and consumer are RocketMQ's own, in one process. The tool also looks the message up each time,
by its offset message id.
"""

import statistics
from pathlib import Path
from typing import NamedTuple

from bench.broker import Client, our_broker, their_broker

PROGRAM = Path(__file__).parent / "java" / "ConsumeDirectly.java"
TOPIC = "BenchDirectly"


class RoundTrips(NamedTuple):
    """Medians over the rounds, in microseconds."""

    p50: float
    p99: float


def measure(client: Client, directory: Path, count: int, rounds: int) -> dict[str, RoundTrips]:
    """Pass a message on `count` times a round, on both brokers by turns."""
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
    with (
        our_broker(directory / "ours") as ours,
        their_broker(directory / "theirs", client) as theirs,
    ):
        for _ in range(rounds):
            for side in (ours, theirs):
                said = client.peer.java(client.version, PROGRAM, side.namesrv, TOPIC, str(count))
                (line,) = (each for each in said.splitlines() if each.startswith("directly "))
                _, p50, p99 = line.split()
                found[side.side].append((float(p50), float(p99)))
    return {
        side: RoundTrips(*(statistics.median(column) for column in zip(*each, strict=True)))
        for side, each in found.items()
    }
