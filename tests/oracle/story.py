"""What happens to one store directory while readers keep it open: steps, in any order.

A story has one path, the readers that look at it, and a broker at a time. Each step leaves the
store in place and no broker running, or the broker running that was there before.
"""

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rocketlens.client.mq_admin import MQAdmin
from rocketlens.wire.commands.brokers import (
    DELETE_TOPIC_IN_BROKER,
    DELETE_TOPIC_IN_NAMESRV,
    DeleteTopicFromNamesrvRequest,
    TopicRequest,
)
from tests.oracle.ledger import Ledger
from tests.oracle.load import Load
from tests.oracle.servers import OURS, OurServer, RealServer

REPOSITORY = Path(__file__).parents[2]
TOPICS = ("Orders", "Payments", "order-paid-topic", "T")
CLUSTER = "DefaultCluster"
AHEAD = 150
"""How many acknowledged messages a reader may have left to ask after while more are sent."""
SLOW_READERS = ("command", "spark")
"""They are not waited for: they ask after many messages at once, or after some of them."""
HANDLES = ("handle", "scans")
ASKED_IN_VAIN = 3
PATIENCE_S = 900
POLL_S = 0.02
KEPT_SEGMENTS = 5


class StoryFailed(Exception):
    """Something other than an answer went wrong; its text says what."""


class ReaderHandle:
    """A reader process, as the story sees it."""

    def __init__(self, story: "Story", kind: str, number: int) -> None:
        self.kind = kind
        self.name = f"{kind}-{number}"
        self.report = story.directory / f"{self.name}.report"
        self.progress = story.directory / f"{self.name}.progress"
        self.report.touch()
        self.progress.write_text("0 0")
        orders = {
            "kind": kind,
            "ledger": str(story.ledger.path),
            "store": str(story.store),
            "report": str(self.report),
            "progress": str(self.progress),
            "seed": story.seed + number,
        }
        program = [sys.executable, "-W", "error", "-m", "tests.oracle.reader_process"]
        self.process = subprocess.Popen([*program, json.dumps(orders)], cwd=REPOSITORY)

    @property
    def done(self) -> int:
        """How many acknowledged messages it has asked after."""
        return int(self.progress.read_text().split()[0])

    @property
    def in_vain(self) -> int:
        """How often it has asked while there was no store."""
        return int(self.progress.read_text().split()[1])

    def lines(self, what: str) -> list[dict[str, Any]]:
        """What it has reported of one kind."""
        # Its last line may be half written.
        whole = self.report.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole) if line["what"] == what]


class Story:
    """One store, its readers and its brokers."""

    def __init__(self, directory: Path, seed: int, peer: Any = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.store = directory / "broker" / "store"
        self.store.parent.mkdir()
        self.seed = seed
        self.chance = random.Random(seed)
        self.ledger = Ledger(directory / "ledger", seed)
        self.load = Load(self.ledger, seed, TOPICS, self._is_ahead)
        self.readers: list[ReaderHandle] = []
        self.servers: dict[str, OurServer | RealServer] = {}
        self.server: OurServer | RealServer | None = None
        self.peer = peer
        self.steps: list[str] = []
        self.acked_by: Counter[str] = Counter()
        self._lineages = 0
        self._settled = 0

    def reader(self, kind: str) -> ReaderHandle:
        """Start a reader that stays until the end."""
        reader = ReaderHandle(self, kind, len(self.readers))
        self.readers.append(reader)
        return reader

    def _is_ahead(self) -> bool:
        quick = [reader.done for reader in self.readers if reader.kind not in SLOW_READERS]
        return bool(quick) and self.ledger.acked_count - min(quick) > AHEAD

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; what makes it impossible is an error at once."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for reader in self.readers:
                if reader.process.poll() is not None and not reader.lines("figures"):
                    raise StoryFailed(f"{reader.name} ended: {reader.lines('broken')}")
            if time.monotonic() > deadline:
                raise StoryFailed(f"gave up waiting for {what} after {self.steps}")
            await asyncio.sleep(POLL_S)

    # Steps.

    async def start(self, writer: str, *, cleans: bool = False) -> None:
        """Start a broker of ours, or of a version, on the store."""
        self.steps.append(f"start {writer}" + (" that cleans" if cleans else ""))
        if writer not in self.servers:
            self.servers[writer] = (
                OurServer(self.directory, self.store)
                if writer == OURS
                else RealServer(self.peer, writer, self.store.parent)
            )
        self.server = self.servers[writer]
        await asyncio.to_thread(self.server.start, cleans=cleans)
        self.ledger.broker(self.server.name_server, is_ours=writer == OURS)

    async def stop(self) -> None:
        """Stop the broker cleanly."""
        await self._end_server("stop")

    async def kill(self, after: int) -> None:
        """Kill the broker once this many more sends are acknowledged, while more are under way."""
        enough = self.ledger.acked_count + after
        is_over = False
        sending = asyncio.create_task(self._send(lambda: is_over))
        await self.until(lambda: self.ledger.acked_count >= enough, f"{after} acknowledged")
        await self._end_server("kill")
        is_over = True
        await sending

    async def _end_server(self, way: str) -> None:
        self.steps.append(way)
        server, self.server = self.server, None
        self.ledger.broker(None, is_ours=False)
        await asyncio.to_thread(getattr(server, way))

    async def send(self, count: int) -> None:
        """Send until this many more messages are acknowledged."""
        self.steps.append(f"send {count}")
        enough = self.ledger.acked_count + count
        sending = asyncio.create_task(self._send(lambda: self.ledger.acked_count >= enough))
        await self.until(sending.done, f"{count} acknowledged; failed so far: {self.load.failed}")
        await sending

    async def _send(self, until: Callable[[], bool]) -> None:
        before = self.ledger.acked_count
        writer = self.server.writer
        await self.load.send(self.server.name_server, until)
        self.acked_by[writer] += self.ledger.acked_count - before

    async def remake_topic(self, topic: str, count: int) -> None:
        """Delete a topic, and send to it again, while others are sent to all the time."""
        self.steps.append(f"delete {topic} and make it again")
        is_over = False
        sending = asyncio.create_task(self._send(lambda: is_over))
        await self.load.hold(topic)
        async with MQAdmin(self.server.name_server) as admin:
            await self._dispatched(admin, topic)
            self.ledger.deleting(topic)
            await _delete_topic(admin, topic)
            self.ledger.deleted(topic)
        self.load.release(topic)
        enough = self.ledger.acked_count + count
        await self.until(
            lambda: self.ledger.acked_count >= enough or sending.done(), "the topic made again"
        )
        is_over = True
        await sending

    async def _dispatched(self, admin: MQAdmin, topic: str) -> None:
        """Wait until a topic's queues have all that was acknowledged, as a careful operator."""
        deadline = time.monotonic() + PATIENCE_S
        for (of, queue_id), end in list(self.load.ends.items()):
            while of == topic:
                with_queue = await self._queue_end(admin, topic, queue_id)
                if with_queue >= end:
                    break
                if time.monotonic() > deadline:
                    raise StoryFailed(f"{topic}/{queue_id} ends at {with_queue}, not {end}")
                await asyncio.sleep(POLL_S)

    async def _queue_end(self, admin: MQAdmin, topic: str, queue_id: int) -> int:
        queues = await admin.message_queues(topic)
        queue = next(queue for queue in queues if queue.queue_id == queue_id)
        return await admin.max_offset(queue)

    def delete_oldest(self) -> None:
        """Delete the oldest segments, as a cleaner does; the newest few stay."""
        self.steps.append("delete the oldest segments")
        for path in sorted((self.store / "commitlog").iterdir())[:-KEPT_SEGMENTS]:
            path.unlink()

    async def move_away_and_back(self) -> None:
        """Have nothing, then an empty directory, then the store again at the path."""
        self.steps.append("move the store away and back")
        aside = self.store.with_name("aside")
        self.ledger.moving()
        self.store.rename(aside)
        await self.asked_more()
        self.store.mkdir()
        await self.asked_more()
        self.store.rmdir()
        aside.rename(self.store)
        self.ledger.placed(self.ledger.lineage)

    async def put_copy(self) -> None:
        """Put a copy of the store in its place; the old one is gone."""
        self.steps.append("put a copy in the store's place")
        aside, copy = self.store.with_name("aside"), self.store.with_name("copy")
        self.ledger.moving()
        shutil.copytree(self.store, copy)
        self.store.rename(aside)
        copy.rename(self.store)
        self._place_new(parent=self.ledger.lineage)
        shutil.rmtree(aside)

    async def write_another(self, writer: str, count: int) -> None:
        """Write a store from its beginning at the same path, then put the old one back."""
        aside = self.store.with_name("aside")
        lineage, ends = self.ledger.lineage, dict(self.load.ends)
        self.ledger.moving()
        self.store.rename(aside)
        self.load.ends.clear()
        await self.start(writer)
        self._place_new(parent=None)
        await self.send(count)
        await self.stop()
        await self.read_up()
        self.ledger.moving()
        shutil.rmtree(self.store)
        aside.rename(self.store)
        self.load.ends.clear()
        self.load.ends.update(ends)
        self.ledger.placed(lineage)
        self.steps.append("put the first store back")

    def _place_new(self, parent: int | None) -> None:
        self._lineages += 1
        self.ledger.placed(self._lineages, parent)

    async def read_up(self) -> None:
        """Wait until each reader has asked after all that was acknowledged."""
        await self.until(
            lambda: all(reader.done >= self.ledger.acked_count for reader in self.readers),
            "readers that have asked after everything",
        )

    async def asked_more(self) -> None:
        """Let each reader ask on while the store is not what it was."""
        asking = [r for r in self.readers if r.kind in HANDLES and r.lines("ready")]
        before = [reader.in_vain for reader in asking]

        def all_have() -> bool:
            return all(
                reader.in_vain >= count + ASKED_IN_VAIN
                for reader, count in zip(asking, before, strict=True)
            )

        await self.until(all_have, "readers that ask while there is no store")

    async def settle(self) -> None:
        """Have every reader find everything, now that nothing is written."""
        self.steps.append("settle")
        self._settled += 1
        self.ledger.settle(self._settled)

        def all_settled() -> bool:
            return all(
                any(line["number"] == self._settled for line in reader.lines("settled"))
                for reader in self.readers
            )

        await self.until(all_settled, "readers that have looked everything up once more")

    def close(self) -> None:
        """End everything."""
        self.ledger.end()
        for reader in self.readers:
            try:
                reader.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                reader.process.kill()
                reader.process.wait()
        for server in self.servers.values():
            server.close()

    # Results.

    def failures(self) -> list[dict[str, Any]]:
        """Everything that readers found wrong."""
        return [line for reader in self.readers for line in reader.lines("failure")]

    def figures(self) -> dict[str, Any]:
        """How much was sent and asked, and how it went."""
        asked: Counter[str] = Counter()
        verdicts: Counter[str] = Counter()
        late, max_late_ms, scans = 0, 0, 0
        for reader in self.readers:
            for line in reader.lines("figures"):
                asked.update({f"{reader.kind}: {k}": n for k, n in line["asked"].items()})
                verdicts.update(line["verdicts"])
                late += line["late"]
                scans += line["scans"]
                max_late_ms = max(max_late_ms, line["max_late_ms"])
        return {
            "acknowledged": dict(self.acked_by),
            "look_ups": dict(sorted(asked.items())),
            "scans": scans,
            "wrong": verdicts["wrong"],
            "false_complete": verdicts["false complete"],
            "errors": verdicts["error"],
            "never_complete": verdicts["never complete"],
            "incomplete": verdicts["incomplete"],
            "late": late,
            "max_late_ms": max_late_ms,
            "sends_failed": dict(self.load.failed),
        }


async def _delete_topic(admin: MQAdmin, topic: str) -> None:
    """Delete a topic from the broker and from the name server, as RocketMQ's tool does."""
    cluster = admin._cluster
    brokers = await cluster.all_brokers(CLUSTER)
    for broker in brokers.values():
        await cluster.ask(broker.master, DELETE_TOPIC_IN_BROKER, TopicRequest(topic=topic))
    header = DeleteTopicFromNamesrvRequest(topic=topic, cluster_name=CLUSTER)
    for address in cluster.name_servers:
        await cluster.ask(address, DELETE_TOPIC_IN_NAMESRV, header)


def told(failures: Iterable[dict[str, Any]], story: Story, most: int = 6) -> str:
    """Tell of failures, one line for each thing known."""
    failures = list(failures)
    lines = [f"{len(failures)} failures; seed {story.seed}; steps: {story.steps}"]
    for failure in failures[:most]:
        lines += ["", *(f"  {name}: {value}" for name, value in failure.items() if name != "what")]
    return "\n".join(lines)
