"""Stores that real brokers laid out in different ways: see tests/golden/README.md."""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property

import rocketlens
from tests.support.sparse_files import copy

DLEDGER = ("dledger-4.9.7", "dledger-5.5.0")
ELSEWHERE = ("elsewhere-4.9.7", "elsewhere-5.5.0", "multi-5.5.0")
LIGHT = ("lmq-4.9.7", "lmq-5.5.0")
REPLICAS = ("slave-4.9.7", "controller-5.5.0", "controllerslave-5.5.0")
ROCKSDB, ONE_ROCKSDB, BATCHES, TIERED, COMPACTED = (
    f"{kind}-5.5.0" for kind in ("rocksdb", "onerocksdb", "batchcq", "tiered", "compaction")
)
LAYOUTS = (
    *(*DLEDGER, *ELSEWHERE, *LIGHT, *REPLICAS),
    *(ROCKSDB, ONE_ROCKSDB, BATCHES, TIERED, COMPACTED),
)
CRASHED = tuple(each for each in LAYOUTS if each != ONE_ROCKSDB)
"""Those of which there is a copy that was made while the broker ran, or after it was killed."""
MEMBERS = 3
"""Messages of a batch."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """What the producer was told of one message, and the key that it gave it.

    Of the messages of a batch that is one record, the unique keys are not known.
    """

    topic: str
    queue_id: int
    queue_offset: int
    offset_msg_id: str
    key: str
    n: int
    unique_key: str | None = None

    @property
    def position(self):
        return f"{self.topic}/{self.queue_id}/{self.queue_offset}"


class Layout:
    """A copy of a broker's directory, and what was sent to it."""

    def __init__(self, path):
        self.path = path
        self.store = path / "store"
        lines = (path / "sent.jsonl").read_text(encoding="utf-8").splitlines()
        self.sent = [json.loads(line) for line in lines]
        self.conf = path / "conf" / "broker.conf"
        self.conf.parent.mkdir()
        text = (path / "broker.conf").read_text(encoding="utf-8")
        self.conf.write_text(text.replace("/data/broker", str(path)), encoding="utf-8")
        (path / "broker.conf").unlink()

    @cached_property
    def messages(self):
        """Each message that was sent; a batch has several."""
        return [message for each in self.sent for message in messages_of(each)]

    def crash(self):
        """Be the copy of the store that was made while the broker ran."""
        shutil.rmtree(self.store)
        (self.path / "store-crashed").rename(self.store)

    def open(self):
        return rocketlens.open_store(self.store)

    def log_files(self):
        names = ("store/commitlog", "store/dledger-n0/data", "log", "disk1", "disk2")
        files = [path for name in names for path in (self.path / name).glob("0*")]
        return sorted(files, key=lambda path: path.name)


def messages_of(line):
    """Return the messages of a line of what was sent."""
    first = line["batch"] - 2 if "batch" in line else line["n"]
    return [
        SentMessage(
            line["topic"],
            line["queue_id"],
            line["queue_offset"] + number,
            line["offset_msg_id"],
            f"k{first + number}",
            first + number,
            line.get("unique_key"),
        )
        for number in range(MEMBERS if "batch" in line else 1)
    ]


def copied(layouts, name, directory):
    """Return a copy of a layout; ``NAME crashed`` is that of a broker that runs."""
    name, _, crashed = name.partition(" ")
    layout = Layout(shutil.copytree(layouts / name, directory, copy_function=copy))
    if crashed:
        layout.crash()
    return layout


def ids(answer):
    return [message.offset_msg_id for message in answer.messages]
