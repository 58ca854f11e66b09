"""A copy of another log that is written for a while, with a power cut now and then."""

import random
from pathlib import Path

from rocketlens.store.layout import StoreLayout
from rocketlens.store.write.copy_append import CopyStore, prepare_copy
from tests.support.failing_disks import RestartedDisk
from tests.support.power_oracle import Oracle, send, send_batch
from tests.support.power_runs import TOPICS, PowerRun
from tests.support.written_stores import QUIET, SMALL, Clock, content_of, open_small

MESSAGES = 60


def open_copy(path, disk):
    """Open a copy, or begin one at offset 0, as a tap does."""
    prepare_copy(StoreLayout(path), SMALL, 0, disk)
    return CopyStore(path, SMALL, QUIET, disk=disk, clock=Clock())


class CopyRun(PowerRun):
    """Takes the log of another store in pieces, flushes, indexes and restarts."""

    writer = "tap"

    def use(self) -> None:
        """Make the other store with the power on, and copy it."""
        self.acknowledged = 0
        self.original = self.directory / "original"
        self._make_original()
        self.store = open_copy(self.root, self.disk)
        steps = {
            self.send: 30,
            self.flush_log: 8,
            self.flush: 4,
            self.build_index: 4,
            self.close: 0.5,
            self.kill: 1,
        }
        while self.store.received_offset < len(self.log):
            self.randomness.choices(list(steps), list(steps.values()))[0]()

    def _make_original(self) -> None:
        oracle, randomness = Oracle(), self.randomness
        with open_small(self.original) as store:
            for _ in range(MESSAGES):
                topic, queue_id = randomness.choice(TOPICS), randomness.randrange(2)
                body = randomness.randbytes(randomness.choice((0, 30, 300, 1500)))
                flags = randomness.choice((0, 0, 0, 0x4, 0x8))
                send(store, oracle, topic, queue_id, body, sys_flag=flags)
                if randomness.random() < 0.1:
                    send_batch(store, oracle, "Orders", 0, [randomness.randbytes(90)] * 4)
            end_offset = store.end_offset
        files = sorted((self.original / "commitlog").iterdir())
        self.log = b"".join(file.read_bytes() for file in files)[:end_offset]

    def send(self) -> None:
        """Take some bytes, which begin and end anywhere."""
        start = self.store.received_offset
        self.store.receive(self.log[start : start + self.randomness.choice((9, 700, 5_000))])
        self.store.append_received()

    def flush_log(self) -> None:
        """Sync the log; what is synced is acknowledged to the other broker."""
        self._meanwhile(self.store.flush_log)

    def flush(self) -> None:
        """Save the queues, too."""
        self._meanwhile(self.store.flush)

    def build_index(self) -> None:
        """Index some of what was copied."""
        self._meanwhile(self.store.build_index)

    def _meanwhile(self, work) -> None:
        self.is_appending_allowed = True
        work()
        self.is_appending_allowed = False
        assert self.store.failure is None
        self.acknowledged = max(self.acknowledged, self.store.flushed_offset)

    def close(self) -> None:
        """Stop cleanly, and start again."""
        store, self.store = self.store, None
        store.close()
        self.store = open_copy(self.root, self.disk)

    def kill(self) -> None:
        """Be killed, and start again."""
        store, self.store = self.store, None
        store.close_abruptly()
        self.store = open_copy(self.root, self.disk)

    def look_at(self, image: Path, randomness: random.Random) -> None:
        """Copy on from what the power cut left: all that was acknowledged is there."""
        acknowledged = self.acknowledged
        for stop in (randomness.randrange(len(self.log)), len(self.log)):
            with open_copy(image, RestartedDisk()) as store:
                position = store.position
                assert position >= acknowledged, (position, acknowledged)
                assert self._copied(image, position) == self.log[:position], position
                store.receive(self.log[position : max(stop, position)])
                store.append_received()
                store.flush()
                acknowledged = store.flushed_offset
                while not store.build_index():
                    pass
        for names in (("commitlog",), ("consumequeue",)):
            assert content_of(image, *names) == content_of(self.original, *names), names

    @staticmethod
    def _copied(image: Path, position: int) -> bytes:
        files = sorted((image / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files)[:position]
