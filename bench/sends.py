"""What a message costs our broker: processor time for each, over a raw socket, 1,000 in flight.

The time is what the kernel counts for each thread of the broker's process (schedstat), so it can be
compared on a machine that others use, too; messages a second cannot.
"""

import socket
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.history import Row
from bench.report import goal, table
from rocketlens.wire.command import RemotingCommand
from rocketlens.wire.connection import encode_command
from tests.peer.our_servers import OurBroker, OurNameServer

IN_FLIGHT = 1_000
AT_ONCE = 100
QUEUES = 4
BODY = b"x" * 100
GOAL_US = 12.0
LOADED_SECONDS = 2.0


def frames(count: int, codec: int, *, is_plain: bool) -> list[bytes]:
    """Give ``count`` sends, as a Java producer of 5.5 writes them, to four queues by turns."""
    now_ms = int(time.time() * 1000)
    sent = []
    for number in range(count):
        fields = {
            "a": "bench-producers",
            "b": "BenchTopic",
            "c": "TBW102",
            "d": str(QUEUES),
            "e": str(number % QUEUES),
            "f": "0",
            "g": str(now_ms),
            "h": "0",
            "i": f"KEYS\x01order-{number:08d}\x02UNIQ_KEY\x017F000001{number:024X}\x02"
            "WAIT\x01true\x02TAGS\x01paid\x02",
            "j": "0",
            "k": "false",
            "m": "false",
            "n": "broker-a",
        }
        if codec and not is_plain:
            fields["z"] = ""
        one = encode_command(RemotingCommand(310, number, 0, None, fields, BODY), codec)
        if not codec and not is_plain:
            head = one.index(b"{") + 1
            lengths = (int.from_bytes(one[at : at + 4]) + 1 for at in (0, 4))
            one = b"".join(each.to_bytes(4) for each in lengths) + b"{ " + one[head:]
        sent.append(one)
    return sent


def thread_seconds(process: int) -> dict[str, float]:
    """Give the processor time of each thread of a process, by its number and name."""
    seconds = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        name = (task / "comm").read_text().strip()
        seconds[f"{task.name} {name}"] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return seconds


def used_seconds(before: dict[str, float], after: dict[str, float]) -> float:
    """Return what threads used in between; those that ended are left out."""
    return sum(seconds - before.get(name, 0.0) for name, seconds in after.items())


def wait_until_idle(process: int) -> None:
    """Return when a broker that nobody uses computes nothing any more: its kernels are loaded."""
    is_idle = False
    while not is_idle:
        before = thread_seconds(process)
        time.sleep(LOADED_SECONDS)
        is_idle = used_seconds(before, thread_seconds(process)) < 0.02 * LOADED_SECONDS


class Sender:
    """Sends over one raw socket; answers are counted by their lengths, and looked at no further."""

    def __init__(self, address: str) -> None:
        """Connect to a broker."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.answered = 0

    def send(self, parts: list[bytes]) -> None:
        """Send all, and return when all are answered."""
        room = threading.Semaphore(IN_FLIGHT // AT_ONCE)
        self.answered = 0

        def read() -> None:
            held = b""
            while self.answered < len(parts):
                held += self.socket.recv(1 << 18)
                answered = before = self.answered
                position = 0
                while len(held) - position >= 4:
                    length = int.from_bytes(held[position : position + 4])
                    if len(held) - position < 4 + length:
                        break
                    position += 4 + length
                    answered += 1
                held = held[position:]
                self.answered = answered
                for _ in range(answered // AT_ONCE - before // AT_ONCE):
                    room.release()

        reader = threading.Thread(target=read)
        reader.start()
        for start in range(0, len(parts), AT_ONCE):
            room.acquire()
            self.socket.sendall(b"".join(parts[start : start + AT_ONCE]))
        reader.join()


def measure(directory: Path, count: int, rounds: int) -> dict[tuple[str, str], list[float]]:
    """Give the microseconds of a message, by way and header, a value for each round, by turns.

    What is sent as no client of RocketMQ writes it, with a space or one more field in the header,
    is handled one by one.
    """
    figures: dict[tuple[str, str], list[float]] = {}
    namesrv = OurNameServer()
    settings = {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000}
    broker = OurBroker(directory, str(namesrv.address), **settings)
    try:
        sender = Sender(broker.address)
        sender.send(frames(count, 0, is_plain=True))
        wait_until_idle(broker.process.pid)
        sent = {
            (way, header): frames(count, codec, is_plain=way == "together")
            for header, codec in (("JSON", 0), ("binary", 1))
            for way in ("one by one", "together")
        }
        for _ in range(rounds):
            for name, parts in sent.items():
                before = thread_seconds(broker.process.pid)
                sender.send(parts)
                used = used_seconds(before, thread_seconds(broker.process.pid))
                figures.setdefault(name, []).append(used * 1e6 / count)
    finally:
        broker.kill()
        namesrv.close()
    return figures


def report(directory: Path, *, is_quick: bool) -> Iterator[str | Row]:
    """Say what a message costs."""
    figures = measure(directory, 20_000 if is_quick else 50_000, 5)
    rows = [
        (way, header, f"{statistics.median(values):.1f}", f"{min(values):.1f}")
        for (way, header), values in figures.items()
    ]
    yield from table(("sends, 1,000 in flight", "header", "us a message", "least"), rows)
    for (way, header), values in figures.items():
        yield Row(f"sends {way}, {header}, cpu us", values)
    for header in ("JSON", "binary"):
        used = statistics.median(figures["together", header])
        text = f"{header}: {used:.1f} us of processor a message, wanted {GOAL_US}"
        yield goal(is_met=used <= GOAL_US, text=text)
