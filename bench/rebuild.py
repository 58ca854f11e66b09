"""How long it takes to make index and queues anew from the log: our Spark job, and the real broker.

Both get the same store without ``index`` and ``consumequeue``, both write entries for tags (as
RocketMQ 5.5 does), and what they made is compared byte for byte.
"""

import shutil
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.synthetic import ENTRIES_PER_RECORD, QUEUES, TOPIC, SyntheticStore
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.pipeline.dispatch import dispatch
from rocketlens.pipeline.session import start
from tests.peer.rocketmq_peer import PeerFailed, RocketMQPeer

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
    """Give the index entries of the store's log: unique key, two keys, tag."""
    return store.messages * (ENTRIES_PER_RECORD + 1)


class WholeProcess(NamedTuple):
    """``rocketlens index build`` from the shell: what a person waits, and all processor time."""

    seconds: float
    cpu_seconds: float


# The JVM may end after the command that started it: its time counts, too.
_MEASURES = """
import ctypes, os, resource, subprocess, sys, time
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
begin = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
seconds = time.perf_counter() - begin
try:
    while True:
        os.wait()
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(seconds, used.ru_utime + used.ru_stime)
"""


def rebuild_as_process(store: SyntheticStore, master: str) -> WholeProcess:
    """Rebuild index and queues as a command does that is typed into a shell."""
    forget(store.path)
    options = ["--tag-index", "--slots", str(SLOT_COUNT), "--entries", str(ENTRY_COUNT)]
    command = [sys.executable, "-m", "rocketlens", "index", "build", "--queues", *options]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURES, *command, "--store", store.path, "--master", master],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, cpu_seconds = map(float, done.stdout.split())
    return WholeProcess(seconds, cpu_seconds)


@contextmanager
def spark_session(master: str) -> "Iterator[tuple[SparkSession, float]]":
    """Give a session, with its workers warm, and the seconds that took."""
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
        spark,
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
    """Let a real broker rebuild them, as it does when it starts without."""
    forget(store.path)
    watch = _Watch(store)
    watch.start()
    begin = time.perf_counter()
    with peer.start(version, store.path.parent) as broker:
        watch.join(LONGEST_SECONDS)
        watch.ended = True
        broker.stop()
    if not watch.last:
        message = f"RocketMQ {version} did not rebuild the store in {LONGEST_SECONDS} s"
        raise PeerFailed(message)
    return Rebuilt(entries_of(store), watch.last - watch.first, {}, watch.first - begin)


class _Watch(threading.Thread):
    """Notes when a broker's first index entry, and when its last entry of all is there."""

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
    """Count the entries of all index files by their headers, which a broker writes as it goes."""
    made = 0
    for path in store.glob("index/*"):
        with path.open("rb") as file:
            head = file.read(_INDEX_COUNT_AT + 4)
        if len(head) == _INDEX_COUNT_AT + 4:
            made += max(0, struct.unpack_from(">i", head, _INDEX_COUNT_AT)[0] - 1)
    return made


def has_last_queue_entries(store: SyntheticStore) -> bool:
    """Say whether the last message of each queue has its entry."""
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
    """Delete index and queues."""
    for name in ("index", "consumequeue"):
        shutil.rmtree(store / name, ignore_errors=True)


def set_aside(store: Path, aside: Path) -> None:
    """Move index and queues to another directory of the same file system."""
    aside.mkdir()
    for name in ("index", "consumequeue"):
        (store / name).rename(aside / name)


def differences(store: Path, aside: Path) -> list[str]:
    """Name the index and queue files that are not the same bytes; index files by their order."""
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
