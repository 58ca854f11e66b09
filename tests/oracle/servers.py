"""The brokers that write: ours or a real one, started and ended on the same store in turn."""

import contextlib
from pathlib import Path
from typing import Any

from tests.peer.rocketmq_peer import RocketMQPeer
from tests.support.broker_process import CLEANING, BrokerProcess

SEGMENT_BYTES = 1 << 20
SIZES = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 4_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "cleanResourceInterval": 1_000,
}
"""A segment lasts a second, an index file a few."""

OURS = "ours"


class OurServer:
    """``rocketlens broker``, with a name server of ours."""

    writer = OURS

    def __init__(self, directory: Path, store: Path) -> None:
        self._broker = BrokerProcess(directory / OURS, **SIZES, storePathRootDir=store)
        self.name_server = self._broker.name_server

    def start(self, *, cleans: bool) -> None:
        """Start it; it serves when this returns."""
        cleaning = CLEANING if cleans else {"fileReservedTime": 72}
        self._broker.start(**cleaning)

    def stop(self) -> None:
        """Stop it cleanly."""
        self._broker.stop()

    def kill(self) -> None:
        """End it as a crash does."""
        self._broker.kill()

    def close(self) -> None:
        """Leave nothing running."""
        self._broker.__exit__()


class RealServer:
    """A real broker of some version, with its own name server."""

    def __init__(self, peer: RocketMQPeer, version: str, directory: Path) -> None:
        self.writer = version
        self.name_server = ""
        self._peer = peer
        self._directory = directory
        self._running: Any = None
        self._broker: Any = None

    def start(self, *, cleans: bool) -> None:
        """Start both; they serve when this returns."""
        cleaning = CLEANING if cleans else {}
        settings = SIZES | cleaning
        self._running = self._peer.start(self.writer, self._directory, **settings)
        self._broker = self._running.__enter__()
        self.name_server = self._broker.namesrv_address

    def stop(self) -> None:
        """Stop both cleanly; no effect on what was killed."""
        running, self._running = self._running, None
        self._broker.stop()
        running.__exit__(None, None, None)

    def kill(self) -> None:
        """Kill the broker, and stop the name server."""
        self._broker.kill()
        self.stop()

    def close(self) -> None:
        """Leave nothing running."""
        if self._running is not None:
            with contextlib.suppress(Exception):
                self._broker.kill()
            self.stop()
