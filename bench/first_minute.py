"""The first minute after an installation, second by second: both brokers by turns.

Each round installs RocketLens into a new virtual environment, and starts a new broker and a new
Java client, which sends asynchronously and looks messages up. The real broker and its client are
new processes, too.
"""

import os
import statistics
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker import SETTINGS, TOPIC, Client
from bench.history import Row
from bench.report import goal, table
from tests.peer.our_servers import REPOSITORY, OurNameServer, broker_conf
from tests.peer.rocketmq_peer import PeerFailed, free_ports, properties, reap

PROGRAM: Final = Path(__file__).parent / "java" / "FirstMinute.java"
MIN_RATIO, WARM_RATIO = 0.9, 1.2
WARM_FROM_SECOND: Final = 5
KINDS: Final = ("sends", "look-ups")


class Second(NamedTuple):
    """The answered requests of one second."""

    sends: int
    look_ups: int
    failed: int


def report(client: Client, directory: Path, seconds: int, rounds: int) -> Iterator[str | Row]:
    """Measure both sides, and return the lines of the section."""
    ours, theirs = [], []
    for number in range(rounds):
        ours.append(first_seconds_of_ours(client, directory / f"ours-{number}", seconds))
        theirs.append(first_seconds_of_theirs(client, directory / f"theirs-{number}", seconds))
    yield f"  medians of {rounds} rounds; the client's JVM is new in each"
    medians = [_medians(each) for each in (ours, theirs)]
    yield from table(
        ("second", "sends/s", "theirs", "look-ups/s", "theirs"),
        [
            (
                str(number + 1),
                *(f"{value:,.0f}" for pair in zip(*both, strict=True) for value in pair),
            )
            for number, both in enumerate(zip(*medians, strict=True))
        ],
    )
    for kind, name in enumerate(KINDS):
        # The JVM of the client needs a second or two before it sends anything.
        ratios = [
            (number, our[kind] / their[kind])
            for number, (our, their) in enumerate(zip(*medians, strict=True), 1)
            if their[kind]
        ]
        least = min(ratio for _, ratio in ratios)
        warm = min(ratio for number, ratio in ratios if number >= WARM_FROM_SECOND)
        text = f"{name}, ours to theirs: least {least:.2f}x, wanted {MIN_RATIO}x"
        yield goal(is_met=least >= MIN_RATIO, text=text)
        text = f"{name}, from second {WARM_FROM_SECOND} on: {warm:.2f}x, wanted {WARM_RATIO}x"
        yield goal(is_met=warm >= WARM_RATIO, text=text)
        yield Row(f"first {name}, x", [ratio for _, ratio in ratios])
    failed = sum(second.failed for each in ours for second in each)
    yield goal(is_met=not failed, text=f"failures of ours: {failed}, wanted none")


def _medians(rounds: list[list[Second]]) -> list[tuple[float, float]]:
    """Return the medians of sends and look-ups of each second over the rounds."""
    return [
        (
            statistics.median(one.sends for one in same),
            statistics.median(one.look_ups for one in same),
        )
        for same in zip(*rounds, strict=True)
    ]


def first_seconds_of_theirs(client: Client, directory: Path, seconds: int) -> list[Second]:
    """Start the real name server and broker, and load them at once."""
    with client.peer.start(client.version, directory) as broker:
        return _load(client, broker.namesrv_address, seconds)


def first_seconds_of_ours(client: Client, directory: Path, seconds: int) -> list[Second]:
    """Install RocketLens, start our broker, and load it at once."""
    program = installed(directory / "environment")
    name_server = OurNameServer()
    try:
        with broker_of(program, directory, str(name_server.address)):
            return _load(client, str(name_server.address), seconds)
    finally:
        name_server.close()


def installed(directory: Path) -> Path:
    """Install this checkout into a new virtual environment; return the program ``rocketlens``."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", str(REPOSITORY)]
    subprocess.run(command, check=True)
    return directory / "bin" / "rocketlens"


@contextmanager
def broker_of(program: Path, directory: Path, name_server: str) -> Iterator[None]:
    """Run a broker of an installation, with an empty home."""
    port = free_ports(-2, 1)
    conf = broker_conf(directory, port, name_server) | SETTINGS
    file = directory / "broker.conf"
    file.write_text(properties(conf), encoding="utf-8")
    home = directory / "home"
    home.mkdir()
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    command = [str(program), "broker", "-c", str(file)]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True
        )
    try:
        if not process.stdout or not process.stdout.readline():
            raise PeerFailed(f"our broker did not start: code {process.wait()}")
        yield
    finally:
        reap(process)


def _load(client: Client, name_server: str, seconds: int) -> list[Second]:
    said = client.peer.java(client.version, PROGRAM, name_server, TOPIC, str(seconds))
    lines = [line.split() for line in said.splitlines()]
    return [Second(*map(int, words)) for words in lines if len(words) == len(Second._fields)]
