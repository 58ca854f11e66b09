"""Consumption through our broker and a real one: a drained backlog, and latency to a listener.

Producer and push consumer are RocketMQ's own, in one process.
"""

from pathlib import Path

from bench.broker import Client, Figures, our_broker, their_broker

PROGRAM = Path(__file__).parent / "java" / "Consume.java"
DRAIN_CPU = "CPU us/message drained"
METRICS = ("drained /s", DRAIN_CPU, "send to listener p50 us", "send to listener p99 us")
RATE = 1_000


def measure(client: Client, directory: Path, backlog: int, seconds: int, rounds: int) -> Figures:
    """Run the consumer on both brokers by turns, each time with a new topic.

    CPU is that of the broker's process, and therefore comparable on a busy machine.
    """
    figures = Figures()
    with (
        our_broker(directory / "ours") as ours,
        their_broker(directory / "theirs", client) as theirs,
    ):
        for number in range(rounds):
            for side in (ours, theirs):
                topic, process = f"BenchConsume{number}", str(side.process)
                load = (topic, str(backlog), str(RATE), str(seconds), process)
                said = client.peer.java(client.version, PROGRAM, side.namesrv, *load)
                (line,) = (each for each in said.splitlines() if each.startswith("consume "))
                for name, value in zip(METRICS, line.split()[1:], strict=True):
                    figures.of[side.side][name].append(float(value))
    return figures
