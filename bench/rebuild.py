"""Rebuilds of index and queues from the log: our Spark job, and the real broker.

Both get the same store without ``index`` and ``consumequeue``, and write entries for tags, as
RocketMQ 5.5 does. Their files are compared byte for byte.
"""

import shutil
import struct
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.broker import cpu_seconds
from bench.synthetic import ENTRIES_PER_RECORD, QUEUES, TOPIC, SyntheticStore
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.pipeline.dispatch import dispatch
from rocketlens.pipeline.session import start
from tests.peer.rocketmq_peer import PeerFailed, RocketMQPeer, RunningBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SLOT_COUNT, ENTRY_COUNT = 5_000_000, 20_000_000
LONGEST_SECONDS = 900
_POLL_SECONDS = 0.02
_INDEX_COUNT_AT = 36


class Rebuilt(NamedTuple):
    """One rebuild: index entries made, and seconds from the first byte read to the last synced."""

    entries: int
    seconds: float
    phases: dict[str, float]
    start_seconds: float
    """Before that: the Spark session, or the broker's own start."""


def entries_of(store: SyntheticStore) -> int:
    """Return the index entries of the store's log: unique key, two keys, tag."""
    return store.messages * (ENTRIES_PER_RECORD + 1)


@contextmanager
def spark_session(master: str) -> "Iterator[tuple[SparkSession, float]]":
    """Return a session with warm workers, and the seconds of its start."""
    begin = time.perf_counter()
    spark = start(master)
    try:
        yield spark, time.perf_counter() - begin
    finally:
        spark.stop()


def rebuild_with_spark(
    spark: "SparkSession", store: SyntheticStore, session_seconds: float
) -> Rebuilt:
    """Rebuild index and queues with the job."""
    forget(store.path)
    begin = time.perf_counter()
    result = dispatch(
        spark.sparkContext,
        store.path,
        slot_count=SLOT_COUNT,
        entry_count=ENTRY_COUNT,
        tag_index=True,
        queues=True,
    )
    seconds = time.perf_counter() - begin
    if (result.index_entries, result.queue_entries) != (entries_of(store), store.messages):
        message = f"{result.index_entries} and {result.queue_entries} entries were built"
        raise AssertionError(message)
    return Rebuilt(result.index_entries, seconds, dict(result.seconds), session_seconds)


def rebuild_with_rocketmq(peer: RocketMQPeer, version: str, store: SyntheticStore) -> Rebuilt:
    """Rebuild with a real broker, and stop it, so that its files are complete."""
    with recovered(peer, version, store) as (recovery, broker):
        broker.stop()
    seconds, start_seconds = recovery.last - recovery.first, recovery.first - recovery.begin
    return Rebuilt(entries_of(store), seconds, {}, start_seconds)


class Recovery(NamedTuple):
    """The times of a real broker's start, first entry and last entry."""

    begin: float
    first: float
    last: float
    cpu_seconds: float


@contextmanager
def recovered(
    peer: RocketMQPeer, version: str, store: SyntheticStore
) -> "Iterator[tuple[Recovery, RunningBroker]]":
    """Start a real broker without index and queues, and wait until it has rebuilt them."""
    forget(store.path)
    watch = _Watch(store)
    watch.start()
    # By default the newest ten files of the log are all that it reads.
    files = len(list((store.path / "commitlog").iterdir()))
    begin = time.perf_counter()
    try:
        with peer.start(version, store.path.parent, commitLogRecoverMaxNum=files) as broker:
            watch.join(LONGEST_SECONDS)
            if not watch.last:
                message = f"RocketMQ {version} did not rebuild the store in {LONGEST_SECONDS} s"
                raise PeerFailed(message)
            yield (Recovery(begin, watch.first, watch.last, cpu_seconds(broker.broker.pid)), broker)
    finally:
        watch.ended = True


class _Watch(threading.Thread):
    """Records the times of a broker's first and last index entry."""

    def __init__(self, store: SyntheticStore) -> None:
        super().__init__(daemon=True)
        self._store = store
        self.first = self.last = 0.0
        self.ended = False

    def run(self) -> None:
        wanted = entries_of(self._store)
        while not self.ended and not self.last:
            made = index_entries(self._store.path)
            if made and not self.first:
                self.first = time.perf_counter()
            if made >= wanted and has_last_queue_entries(self._store):
                self.last = time.perf_counter()
            time.sleep(_POLL_SECONDS)


def index_entries(store: Path) -> int:
    """Count the entries of all index files by their headers."""
    made = 0
    for path in store.glob("index/*"):
        with path.open("rb") as file:
            head = file.read(_INDEX_COUNT_AT + 4)
        if len(head) == _INDEX_COUNT_AT + 4:
            made += max(0, struct.unpack_from(">i", head, _INDEX_COUNT_AT)[0] - 1)
    return made


def has_last_queue_entries(store: SyntheticStore) -> bool:
    """Return True if the last message of each queue has its entry."""
    for queue_id in range(QUEUES):
        offset = (store.messages - 1 - queue_id) // QUEUES * ENTRY_BYTES
        files = sorted((store.path / "consumequeue" / TOPIC / str(queue_id)).glob("*"))
        holding = [path for path in files if int(path.name) <= offset]
        if not holding:
            return False
        with holding[-1].open("rb") as file:
            file.seek(offset - int(holding[-1].name))
            entry = file.read(ENTRY_BYTES)
        if not any(entry[8:12]):
            return False
    return True


def forget(store: Path) -> None:
    """Delete everything but log and configuration."""
    for path in store.iterdir():
        if path.name in {"commitlog", "config"}:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def set_aside(store: Path, aside: Path) -> None:
    """Move index and queues to another directory of the same file system."""
    aside.mkdir()
    for name in ("index", "consumequeue"):
        (store / name).rename(aside / name)


def differences(store: Path, aside: Path) -> list[str]:
    """Return the names of differing index and queue files; index files are compared in order."""
    different = []
    for kind in ("index", "consumequeue"):
        ours, theirs = (
            sorted(path for path in (root / kind).rglob("*") if path.is_file())
            for root in (aside, store)
        )
        if len(ours) != len(theirs):
            different.append(f"{kind}: {len(ours)} and {len(theirs)} files")
        different += [
            f"{kind}: {one.name}"
            for one, other in zip(ours, theirs, strict=False)
            if one.read_bytes() != other.read_bytes()
        ]
    return different
