"""A tap on several of our brokers at once: bytes of log per second of its processor time."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.synthetic import write_store
from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.sync import LoopThread
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.state import read_synced_offset
from tests.peer.rocketmq_peer import free_ports

BROKERS = 3
START_SHARE = 0.1
PATIENCE_S = 300.0
_PROGRAM = (sys.executable, "-m", "rocketlens.main")


class Tapped(NamedTuple):
    """The cost of copying everything after the first part, in which the tap starts."""

    copied_bytes: int
    seconds: float
    tap_cpu_seconds: float
    brokers_cpu_seconds: float

    @property
    def bytes_a_cpu_second(self) -> float:
        return self.copied_bytes / self.tap_cpu_seconds


def measure(directory: Path, log_bytes: int) -> Tapped:
    """Copy the logs of BROKERS brokers, ``log_bytes`` in total, with one tap."""
    with ExitStack() as running:
        address = running.enter_context(_name_server())
        brokers, ends = [], {}
        for number in range(BROKERS):
            home = directory / f"broker-{number}"
            written = write_store(home / "store", log_bytes // BROKERS)
            ends[home.name] = written.log_bytes
            brokers.append(running.enter_context(_broker(home, address)))
        tap = running.enter_context(
            _server("tap", "-n", address, "--home", str(directory / "home"))
        )
        stores = [StoreLayout(directory / "home" / name) for name in ends]

        def reach(share: float) -> tuple[float, ...]:
            """Wait until a share of all is copied; return bytes and seconds so far."""
            begun_s = time.perf_counter()
            while sum(map(_synced, stores)) < share * sum(ends.values()):
                if time.perf_counter() - begun_s > PATIENCE_S:
                    raise TimeoutError("the tap does not come on")
                time.sleep(0.02)
            copied_bytes = sum(map(_synced, stores))
            cpu_seconds = map(_cpu_seconds, (tap, *brokers))
            return (copied_bytes, time.perf_counter(), *cpu_seconds)

        first = reach(START_SHARE)
        taken = [now - before for now, before in zip(reach(1.0), first, strict=True)]
        return Tapped(int(taken[0]), taken[1], taken[2], sum(taken[3:]))


def _synced(layout: StoreLayout) -> int:
    return read_synced_offset(layout) or 0


@contextmanager
def _name_server() -> Iterator[str]:
    thread = LoopThread()

    async def start() -> tuple[NameServer, str]:
        server = NameServer(NameServerConfig(listenPort=0))
        return server, str(server.start())

    server, address = thread.run(start())
    try:
        yield address
    finally:
        thread.run(server.stop())
        thread.close()


@contextmanager
def _broker(home: Path, name_server: str) -> Iterator[int]:
    conf = {
        "brokerName": home.name,
        "listenPort": free_ports(-2, 1),
        "storePathRootDir": home / "store",
        "fileReservedTime": 720,
        "diskMaxUsedSpaceRatio": 95,
    }
    file = home / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    with _server("broker", "-c", str(file), "-n", name_server) as process_id:
        yield process_id


@contextmanager
def _server(*arguments: str) -> Iterator[int]:
    """Run a server until the end of the block; yield its process id."""
    with subprocess.Popen(
        [*_PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        line = process.stdout.readline() if process.stdout else ""
        try:
            if not line.startswith("ready: "):
                raise RuntimeError(f"rocketlens {arguments[0]} did not start")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def _cpu_seconds(process_id: int) -> float:
    """Return the processor time of all threads of a process, from schedstat."""
    threads = Path(f"/proc/{process_id}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9
