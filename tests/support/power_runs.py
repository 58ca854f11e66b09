"""Writers of a store that are used for a while, with a power cut now and then.

Each run is told by its writer and its seed alone.
"""

import asyncio
import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from msgspec import structs

from rocketlens.broker.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketlens.broker.tables.topics import GroupTable, StoredTopic, TopicTable
from rocketlens.namesrv.kv import KvConfig
from rocketlens.store.layout import StoreLayout
from tests.support import rocketmq_walk
from tests.support.power_oracle import Oracle, acknowledge, check_image, queues_of, send, send_batch
from tests.support.simulated_disk import SimDisk
from tests.support.written_stores import QUIET, SMALL, Clock, open_small

if TYPE_CHECKING:
    from rocketlens.pipeline.follow import IndexFollower
    from rocketlens.store.write.message_store import MessageStore

STEPS = 70
TOPICS = ("Orders", "Payments", "Gone")
SEED = "POWER_CUT_SEED"
CLEANED_WHEN_FULL = replace(SMALL, minFileReservedTime=0)
"""However young a segment is, it goes when there is no room."""


class PowerRun:
    """Cuts the power now and then while :meth:`use` does something; the next image is ``due``."""

    writer = ""

    def __init__(self, directory: Path, seed: str, events_between: int = 60) -> None:
        self.directory, self.seed = directory, seed
        self.randomness = random.Random(f"{self.writer} {seed}")
        self.events_between = events_between
        self.oracle = Oracle()
        self.images = 0
        self.is_appending_allowed = False
        self.root = directory / "live"
        self.root.mkdir(parents=True)
        self.disk = SimDisk(self.root)
        self.write_back = self.randomness.choice((0, 0, 0.05, 0.3))
        self.due = self._next()
        self.store: MessageStore | None = None

    def _next(self) -> int:
        return self.disk.events + 1 + int(self.randomness.expovariate(1 / self.events_between))

    def run(self) -> int:
        """Do all of it; gives how many images were looked at."""
        try:
            self.disk.on_event = self.on_event
            self.use()
        finally:
            self.disk.on_event = lambda _: None
            if self.store is not None:
                self.store.close_abruptly()
            self.disk.close()
            shutil.rmtree(self.directory)
        return self.images

    def on_event(self, what: str) -> None:
        """Cut the power, or let another thread send a message in the meantime."""
        if self.write_back and self.randomness.random() < 0.05:
            self.disk.write_back(self.randomness, self.write_back)
        if self.is_appending_allowed and self.randomness.random() < 0.03:
            self.is_appending_allowed = False
            self.send()
            self.is_appending_allowed = True
        if self.disk.events >= self.due:
            self.due = self._next()
            self.images += 1
            self.check(what)

    def check(self, what: str) -> None:
        """Look at an image of this moment."""
        randomness = random.Random(f"{self.writer} {self.seed} {self.images}")
        image = self.directory / f"image{self.images}"
        mood = self.disk.image(image, randomness)
        try:
            self.look_at(image, randomness)
        except Exception as error:
            raise AssertionError(
                f"image {self.images} of writer {self.writer}, seed {self.seed}, {mood}, power cut "
                f"{what}: {type(error).__name__}: {error}\n"
                f"again: {SEED}={self.seed} .venv/bin/python -m pytest "
                f"tests/crash/test_power_cut.py -k '{self.writer}-200'"
            ) from error
        for left in self.directory.glob(image.name + "*"):
            shutil.rmtree(left)

    def look_at(self, image: Path, randomness: random.Random) -> None:
        """Hold an image to what was acknowledged."""
        raise NotImplementedError

    def use(self) -> None:
        """Do what is to be done."""
        raise NotImplementedError

    def send(self) -> None:
        """Send one message."""
        raise NotImplementedError


class StoreRun(PowerRun):
    """Sends, flushes, indexes, cleans, deletes topics and restarts."""

    writer = "store"

    def look_at(self, image: Path, randomness: random.Random) -> None:
        """Hold an image to what was acknowledged."""
        check_image(image, self.oracle.copy(), randomness)

    def properties(self) -> bytes | None:
        """Give the properties of the next message, None for usual ones."""
        return None

    def use(self) -> None:
        """Send, flush, index, clean, delete, restart."""
        self.open()
        steps = {
            self.send: 40,
            self.send_batch: 4,
            self.flush_log: 14,
            self.flush: 5,
            self.build_index: 6,
            self.close: 1,
            self.kill: 1.5,
            self.clean: 0.5,
            self.delete_topic: 1,
        }
        for _ in range(STEPS):
            self.randomness.choices(list(steps), list(steps.values()))[0]()

    def open(self) -> None:
        self.store = open_small(self.root, CLEANED_WHEN_FULL, disk=self.disk)

    def send(self) -> None:
        """Send one message; the power may go between two lines of it."""
        topic = self.randomness.choice(TOPICS)
        queue_id = self.randomness.randrange(2)
        body = self.randomness.randbytes(self.randomness.choice((0, 30, 300, 1500)))
        flags = self.randomness.choice((0, 0, 0, 0, 0x4, 0x8, 0xC))
        chance = 0.02 if self.randomness.random() < 0.1 else 0
        with self._between_lines(chance):
            send(
                self.store,
                self.oracle,
                topic,
                queue_id,
                body,
                properties=self.properties(),
                sys_flag=flags,
            )

    def send_batch(self) -> None:
        bodies = [self.randomness.randbytes(100) for _ in range(self.randomness.randint(1, 5))]
        with self._between_lines(0.01):
            send_batch(self.store, self.oracle, "Orders", 0, bodies)

    def _between_lines(self, chance: float) -> AbstractContextManager[None]:
        if not chance:
            return nullcontext()
        return self.disk.between_lines(lambda: self.randomness.random() < chance)

    def flush_log(self) -> None:
        self._meanwhile(lambda: acknowledge(self.store, self.oracle, self.store.flush_log))

    def flush(self) -> None:
        self._meanwhile(lambda: acknowledge(self.store, self.oracle, self.store.flush))

    def build_index(self) -> None:
        self._meanwhile(self.store.build_index)

    def _meanwhile(self, work: Callable[[], object]) -> None:
        """Do what another thread than the appending one does."""
        before, self.is_appending_allowed = self.is_appending_allowed, True
        try:
            work()
        finally:
            self.is_appending_allowed = before

    def close(self) -> None:
        store, self.store = self.store, None
        store.close()
        self.oracle.durable = len(self.oracle.sent)
        self.open()

    def kill(self) -> None:
        store, self.store = self.store, None
        store.close_abruptly()
        self.open()

    def clean(self) -> None:
        """Delete all segments but the last."""
        self.oracle.cleaned = max(
            self.oracle.cleaned, self.store.end_offset // SMALL.mappedFileSizeCommitLog * 16384
        )
        self.disk.used = 0.995
        self.store.clean()
        self.disk.used = 0.0

    def delete_topic(self) -> None:
        topic, store, oracle = "Gone", self.store, self.oracle
        end_offset = store.end_offset
        if not store.deleted.mark(topic):
            return
        oracle.deleting[topic] = end_offset
        self._meanwhile(lambda: acknowledge(store, oracle, store.deleted.snapshot()))
        oracle.deleted[topic] = end_offset
        # What was sent in the meantime loses its queue, too; a recovery may give it back.
        oracle.deleting[topic] = store.end_offset
        self.disk.remove_tree(store.deleted.remove_queues(topic))


class OddRun(StoreRun):
    """Sends what no producer should, and RocketMQ takes: properties that are no text of pairs."""

    writer = "odd"

    def use(self) -> None:
        """Say what is special, and send."""
        self.oracle.with_zeros = True
        super().use()

    def properties(self) -> bytes:
        """Give properties with a key, and something odd."""
        number = len(self.oracle.sent)
        odd = self.randomness.choice(
            (b"a\x01x\0y\x02", b"a\x01\xff\xfe\x02", b"nothing\x02", b"\x02\x02", b"\0" * 40, b"")
        )
        return b"UNIQ_KEY\x01U%06d\x02KEYS\x01k%d\x02" % (number, number) + odd


class NotesRun(StoreRun):
    """Lets the disk garble the notes beside the log, or has them be of another time or store."""

    writer = "notes"
    names = (
        "rocketlens/state.json",
        "rocketlens/synced",
        "rocketlens/index.json",
        "rocketlens/deleted.json",
        "checkpoint",
    )

    def use(self) -> None:
        """Keep some older notes, and those of another store, for later."""
        self.older: dict[str, list[bytes]] = {name: [] for name in self.names}
        self.others = self._notes_of_another_store()
        super().use()

    def _notes_of_another_store(self) -> dict[str, bytes]:
        path, oracle = self.directory / "other", Oracle()
        with open_small(path) as store:
            for _ in range(self.randomness.randint(1, 60)):
                send(store, oracle, "Orders", 0, self.randomness.randbytes(200))
            store.deleted.mark("Orders")
            store.deleted.snapshot()()
        return {name: (path / name).read_bytes() for name in self.names}

    def build_index(self) -> None:
        """Keep the notes of this moment, too."""
        super().build_index()
        for name in self.names:
            with suppress(FileNotFoundError):
                self.older[name].append((self.root / name).read_bytes())

    def delete_topic(self) -> None:
        """Delete none: without its note a deleted topic may come back."""

    def look_at(self, image: Path, randomness: random.Random) -> None:
        """Garble a note, and hold the image to what was acknowledged."""
        for name in randomness.sample(self.names, randomness.randint(1, 2)):
            self._garble(image, name, self.older[name], randomness)
        check_image(image, replace(self.oracle.copy(), with_holes=True), randomness)

    def _garble(
        self, image: Path, name: str, older: list[bytes], randomness: random.Random
    ) -> None:
        path = image / name
        now = self.root / name
        content = path.read_bytes() if path.exists() else b""
        digits = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
        kind = randomness.choice(("digit", "digit", "older", "newer", "cut", "gone", "other"))
        if kind == "digit" and digits:
            place = randomness.choice(digits)
            content = content[:place] + b"%d" % randomness.randrange(10) + content[place + 1 :]
        elif kind == "older" and older:
            content = randomness.choice(older)
        elif kind == "newer" and now.exists():
            content = now.read_bytes()
        elif kind == "other":
            content = self.others[name]
        elif kind == "cut":
            content = content[: randomness.randint(0, len(content))]
        elif kind == "gone":
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


class FollowRun(StoreRun):
    """Leaves the index files to `index follow`, whose batches are put in without Spark."""

    writer = "follow"
    follower: "IndexFollower | None" = None

    def open(self) -> None:
        """Open the store, and follow it."""
        options = structs.replace(QUIET, build_index=False)
        self.store = open_small(self.root, options=options, disk=self.disk)
        if self.follower is None:
            self.follow()

    def follow(self) -> None:
        """Begin to follow, again after the builder was killed."""
        from rocketlens.pipeline.follow import IndexFollower

        if self.follower is not None:
            self.follower.writer.close_abruptly()
        self.follower = IndexFollower.open(
            self.root, SMALL.geometry, with_tags=True, clock=Clock(), disk=self.disk
        )

    def build_index(self) -> None:
        """Put one micro-batch in, as Spark would bring it."""
        if self.randomness.random() < 0.1:
            self.follow()
        self._meanwhile(self._put_batch)

    def _put_batch(self) -> None:
        import pyarrow as pa

        from rocketlens.bulk.index_entries import Gap
        from rocketlens.pipeline.stream import RocketMQStreamReader

        begin = self.follower.writer.resume_point.physical_offset
        options = {
            "store": str(self.root),
            "table": "index_entries",
            "startingOffset": str(begin),
            "maxPartitionBytes": str(self.randomness.choice((2000, 20_000))),
        }
        reader = RocketMQStreamReader(options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        batches = [b for part in reader.partitions(start, end) for b in reader.read(part)]
        if batches:
            table = pa.Table.from_batches(batches)
            try:
                self.follower._put(SimpleNamespace(toArrow=lambda: table), 0)
            except Gap:
                # The cleaner was faster: the builder ends, and is started again.
                self.follow()

    def clean(self) -> None:
        """Delete segments, then index files."""
        super().clean()
        self.follower.clean()

    def close(self) -> None:
        """Close the store alone: the builder goes on."""
        super().close()

    def run(self) -> int:
        """Do all of it."""
        try:
            return super().run()
        finally:
            if self.follower is not None:
                self.follower.writer.close_abruptly()


class BuildRun(StoreRun):
    """Builds index files and queues anew from the log of a store, without Spark."""

    writer = "build"

    def use(self) -> None:
        """Fill a store with the power on, and build."""
        from rocketlens.pipeline import dispatch, jobs

        self.due = 1 << 62
        self.open()
        for _ in range(self.randomness.randint(5, 60)):
            self.randomness.choice((self.send, self.send, self.send_batch, self.flush))()
        self.store.close()
        self.store = None
        self.oracle.durable = len(self.oracle.sent)
        if self.randomness.random() < 0.3:
            self.disk.remove_tree(self.root / "index")
            self.disk.sync_directory(self.root)
        self.had_index = (self.root / "index").exists()
        self.events_between = 12
        self.due = self._next()
        run, jobs.run = jobs.run, _run_here
        try:
            for _ in range(2):
                dispatch.dispatch(
                    SimpleNamespace(defaultParallelism=2),
                    self.root,
                    slot_count=SMALL.maxHashSlotNum,
                    entry_count=SMALL.maxIndexNum,
                    tag_index=True,
                    queues=True,
                    queue_file_size=SMALL.mappedFileSizeConsumeQueue,
                    range_bytes=self.randomness.choice((3000, 1 << 20)),
                    disk=self.disk,
                )
                self.had_index = True
        finally:
            jobs.run = run
        self.on_event("the end")

    def look_at(self, image: Path, randomness: random.Random) -> None:
        """The directories are whole, the old ones or the new; and the store is as it was."""
        records = rocketmq_walk.log_records(image)
        if self.had_index or (image / "index").exists():
            pairs = rocketmq_walk.index_pairs(image, SMALL.maxHashSlotNum)
            expected = [(one, r.physical_offset) for r in records for one in r.hashes()]
            assert sorted(pairs) == sorted(expected), "index"
        queued = {(r.topic, r.queue_id) for r in records if r.is_queued}
        assert queues_of(image).keys() == queued, "queues"
        super().look_at(image, randomness)


def _run_here(_spark, _phase, tasks, function, _progress=None):
    return [function(task) for task in tasks]


class TablesRun(PowerRun):
    """Saves topics, groups and offsets: each table is the saved one, or the one being saved."""

    writer = "tables"

    def use(self) -> None:
        """Change tables, and save them."""
        layout, clock = StoreLayout(self.root), Clock()
        self.saved: dict[str, list[object]] = {name: [0] for name in self.read(self.root)}
        topics = TopicTable(layout, self.disk, clock)
        groups = GroupTable(layout, self.disk, clock)
        offsets = ConsumerOffsets(layout, self.disk, clock)
        delays = DelayOffsets(layout, self.disk, clock)
        values = KvConfig(self.root / "namesrv" / "kvConfig.json", self.disk)
        for number in range(1, 40):
            name = self.randomness.choice(list(self.saved))
            self.saved[name].append(number)
            if name == "topics":
                topics.put(StoredTopic("T", read_queue_count=number))
                topics.save()
            elif name == "groups":
                groups.put("G", retryMaxTimes=number)
                groups.save()
            elif name == "offsets":
                offsets.put("G", "T", 0, number)
                offsets.save()
            elif name == "delays":
                delays.put(1, number)
                delays.save()
            else:
                asyncio.run(values.put("ns", "key", str(number)))
            del self.saved[name][:-1]

    def read(self, root: Path) -> dict[str, int]:
        """Read all tables; 0 for one that is not there."""
        layout, clock = StoreLayout(root), Clock()
        topic = TopicTable(layout, self.disk, clock).entries.get("T")
        group = GroupTable(layout, self.disk, clock).entries.get("G")
        return {
            "topics": topic.read_queue_count if topic else 0,
            "groups": group["retryMaxTimes"] if group else 0,
            "offsets": ConsumerOffsets(layout, self.disk, clock).get("G", "T", 0) or 0,
            "delays": DelayOffsets(layout, self.disk, clock).table.get(1, 0),
            "values": int(KvConfig(root / "namesrv" / "kvConfig.json").get("ns", "key") or 0),
        }

    def look_at(self, image: Path, _: random.Random) -> None:
        """Each table can be read, and is one of those it may be."""
        for name, found in self.read(image).items():
            assert found in self.saved[name], f"{name} is {found}, saved was {self.saved[name]}"


KINDS = (StoreRun, OddRun, NotesRun, FollowRun, BuildRun, TablesRun)
RUNS = {run.writer: run for run in KINDS}
