"""A broker as a process of its own, which a test may kill, stop and look at."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rocketlens.namesrv.config import NameServerConfig
from rocketlens.namesrv.service import NameServer
from rocketlens.net.sync import LoopThread
from tests.peer.rocketmq_peer import free_ports

PROGRAM = (sys.executable, "-W", "error", "-m", "rocketlens.main")
SMALL_FILES = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 2_000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "diskMaxUsedSpaceRatio": 99,
    "diskSpaceCleanForciblyRatio": 99,
    "diskSpaceWarningLevelRatio": 100,
}
"""So small that everything rolls several times a second, on a disk however full."""

CLEANING = {"fileReservedTime": 0, "deleteWhen": ";".join(map(str, range(24)))}
"""Whatever is not the last file is old enough to go, at any hour."""

LONGEST_END_S = 60


class BrokerProcess:
    """``rocketlens broker`` on one store, and a name server in this process that outlives it.

    ``open_files``: how many descriptors it may have, None for as many as this process.
    """

    def __init__(self, directory: Path, open_files=None, program=PROGRAM, **conf):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.store = directory / "store"
        self.log = directory / "broker.log"
        self.port = free_ports(-2, 1)
        self.conf = SMALL_FILES | {"listenPort": self.port, "storePathRootDir": self.store} | conf
        self.process = None
        limit = () if open_files is None else ("prlimit", f"--nofile={open_files}")
        self._program = (*limit, *program)
        self._thread = LoopThread()
        self._name_server, self.name_server = self._thread.run(_name_server())

    def start(self, **conf):
        """Start it; it serves when this returns. Gives the seconds that took."""
        begun_s = time.perf_counter()
        file = self.directory / "broker.conf"
        self.conf |= conf
        file.write_text("".join(f"{name}={value}\n" for name, value in self.conf.items()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._program, "broker", "-c", str(file), "-n", self.name_server],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        line = self.process.stdout.readline()
        assert line.startswith(f"ready: broker 127.0.0.1:{self.port}, store "), self.said()
        return time.perf_counter() - begun_s

    def kill(self):
        """End it as a crash does."""
        self.process.kill()
        self._ended()

    def stop(self):
        """Have it stop cleanly."""
        self.process.terminate()
        assert self._ended() == 0, self.said()

    def pause(self):
        """Let it get no further, with all its connections open."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self):
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def said(self):
        """What it wrote to its log, over all starts."""
        return self.log.read_text() if self.log.exists() else ""

    def min_offset(self):
        """Where its log begins now."""
        return min(int(path.name) for path in (self.store / "commitlog").iterdir())

    def kib(self, what):
        """Its memory of one kind, such as ``RssAnon`` or ``VmHWM``, in KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{what}:")[2].split()[0])

    def descriptor_count(self):
        """How many file descriptors it has."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None and self.process.returncode is None:
            self.kill()
        self._thread.run(self._name_server.stop())
        self._thread.close()

    def _ended(self):
        code = self.process.wait(LONGEST_END_S)
        self.process.stdout.close()
        return code


async def _name_server():
    server = NameServer(NameServerConfig(listenPort=0))
    return server, str(server.start())
