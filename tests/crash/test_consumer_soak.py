"""Consumers in Python and Java while broker and members are killed: nothing acknowledged is lost.

``ROCKETLENS_CONSUMER_SECONDS`` says for how long the slow form runs; 20 minutes without it.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketlens import LitePullConsumer, Message, MQAdmin, Producer, SendStatus
from tests.crash.broker_load import BROKER_GONE
from tests.peer.rocketmq_peer import VERSIONS
from tests.support.broker_process import BrokerProcess

SEED = 20_261_122
SHORT_S = 15
LASTS_S = int(os.environ.get("ROCKETLENS_CONSUMER_SECONDS", "1200"))
PATIENCE_S = 400
TOPICS = {"concurrent": "SoakConcurrent", "orderly": "SoakOrderly"}
GROUPS = {"concurrent": "g_concurrent", "orderly": "g_orderly"}
QUEUES = 6
MAX_MEMBERS = 4
REPOSITORY = Path(__file__).parents[2]
JAVA_MEMBER = REPOSITORY / "tests" / "peer" / "java" / "SoakMember.java"
FILES = {
    "mappedFileSizeCommitLog": 1 << 22,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxIndexNum": 1_000_000,
    "maxHashSlotNum": 250_000,
}
"""Nothing is cleaned: all of it is read again in the end."""


class Consumed(NamedTuple):
    """A line of a member."""

    at_ns: int
    member: str
    queue_id: int
    queue_offset: int
    body: str


class Journal:
    """What the members wrote, read as far as it has come."""

    def __init__(self, directory):
        self.directory = directory
        self.sent = set()
        self.ready = set()
        self.consumed = {kind: [] for kind in GROUPS}
        self.bodies = {kind: set() for kind in GROUPS}
        self._read_to = Counter()

    def read(self):
        """Read the whole lines that were added."""
        for path in self.directory.glob("*.txt"):
            with path.open("rb") as file:
                file.seek(self._read_to[path.stem])
                content = file.read()
            content = content[: content.rfind(b"\n") + 1]
            self._read_to[path.stem] += len(content)
            for line in content.decode().splitlines():
                self._add(path.stem, line.split(" "))

    def _add(self, member, words):
        if words[0] == "ready":
            self.ready.add(member)
        elif words[0] == "sent":
            self.sent.add(words[1])
        else:
            line = Consumed(int(words[1]), member, int(words[2]), int(words[3]), words[4])
            self.consumed[words[0]].append(line)
            self.bodies[words[0]].add(line.body)

    async def until(self, condition):
        """Read until something holds of it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.read()
                if condition():
                    return
                await asyncio.sleep(0.1)


class Group:
    """The member processes, which come and go."""

    def __init__(self, peer, broker, journal, running):
        self.peer = peer
        self.broker = broker
        self.journal = journal
        self.directory = journal.directory
        self.running = running
        self.members = {}
        self.count = 0

    def join(self, *, in_java=False):
        """Start a member; return its name."""
        self.count += 1
        name = f"{'java' if in_java else 'python'}{self.count}"
        words = [self.broker.name_server, *TOPICS.values(), name]
        words.append(str(self.directory / f"{name}.txt"))
        command = [sys.executable, "-m", "tests.crash.soak_member", *words]
        if in_java:
            version = VERSIONS[self.count % len(VERSIONS)]
            classes = self.peer.compiled(version, JAVA_MEMBER)
            home = self.directory / name
            command = self.peer.command(version, home, JAVA_MEMBER.stem, *words, classes=classes)
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY)
        self.members[name] = process
        self.running.callback(lambda: (process.kill(), process.wait()))
        return name

    def end(self, name, *, orderly):
        """Kill a member, or let it leave."""
        process = self.members.pop(name)
        process.send_signal(signal.SIGTERM if orderly else signal.SIGKILL)
        code = process.wait(PATIENCE_S)
        if not orderly:
            return
        # A JVM that a signal ends has the signal in its code, however clean the shutdown was.
        expected = {0, 128 + signal.SIGTERM}
        self.journal.read()
        if name not in self.journal.ready:
            expected.add(-signal.SIGTERM)
        assert code in expected, (self.directory / f"{name}.log").read_text()

    @property
    def has_java(self):
        return any(name.startswith("java") for name in self.members)


async def keep_sending(producer, queue, sent):
    """Send to one queue, each message after the one before; ``sent`` are the acknowledged."""
    number = 0
    while True:
        body = f"{queue.topic}-{queue.queue_id}-{number}"
        number += 1
        try:
            result = await producer.send(Message(queue.topic, body), queue=queue)
        except BROKER_GONE:
            await asyncio.sleep(0.05)
            continue
        if result.send_status is SendStatus.SEND_OK:
            sent.add(body)
        await asyncio.sleep(0.05)


class Trouble:
    """What happens to broker and members, by a seed."""

    def __init__(self, broker, group, rng):
        self.broker = broker
        self.group = group
        self.rng = rng
        self.counts = Counter()

    async def happen(self):
        """Do something that may happen; some of it takes a while."""
        members = sorted(self.group.members)
        choices = ["kill broker"]
        if len(members) > 1:
            choices += ["kill member", "kill member", "leave", "freeze"]
        if len(members) < MAX_MEMBERS:
            choices += ["join", "join"]
        event = self.rng.choice(choices)
        self.counts[event] += 1
        if event == "kill broker":
            self.broker.kill()
            await asyncio.to_thread(self.broker.start)
        elif event == "join":
            in_java = self.group.peer is not None and not self.group.has_java
            await asyncio.to_thread(self.group.join, in_java=in_java)
        elif event == "freeze":
            frozen = self.group.members[self.rng.choice(members)]
            frozen.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self.rng.uniform(0.5, 3))
            frozen.send_signal(signal.SIGCONT)
        else:
            name = self.rng.choice(members)
            await asyncio.to_thread(self.group.end, name, orderly=event == "leave")


async def stored(name_server, topic, lengths):
    """Read everything that a topic has: the bodies by queue id."""
    lengths = {queue: length for queue, length in lengths.items() if queue.topic == topic}
    bodies = defaultdict(list)
    async with LitePullConsumer(name_server, group="g_reader", begin="first") as reader:
        reader.assign(list(lengths))
        async with asyncio.timeout(PATIENCE_S):
            while sum(map(len, bodies.values())) < sum(lengths.values()):
                for each in await reader.poll():
                    assert each.queue_offset == len(bodies[each.queue_id])
                    bodies[each.queue_id].append(each.body.decode())
    return bodies


def assert_in_order(lines):
    """Check that nothing was consumed before what precedes it in its queue.

    A member that takes a queue over may begin before what another consumed and had not committed.
    """
    high = Counter()
    for line in sorted(lines):
        assert line.queue_offset <= high[line.queue_id], line
        high[line.queue_id] = max(high[line.queue_id], line.queue_offset + 1)
    return high


async def soak(broker, group, seconds, rng):
    """Have everything happen for some time, then wait for the rest; return what happened."""
    trouble, journal = Trouble(broker, group, rng), group.journal
    name_server = broker.name_server
    async with MQAdmin(name_server) as admin, Producer(name_server) as producer:
        for topic in TOPICS.values():
            await admin.create_topic(topic, QUEUES)
        for _ in range(2):
            group.join()
        if group.peer is not None:
            group.join(in_java=True)
        await journal.until(lambda: set(group.members) <= journal.ready)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        queues = [each for topic in TOPICS.values() for each in await producer.write_queues(topic)]
        tasks = [
            asyncio.create_task(keep_sending(producer, queue, journal.sent)) for queue in queues
        ]
        while loop.time() < end_s:
            await asyncio.sleep(rng.uniform(0.5, 2.5))
            await trouble.happen()
            journal.read()
            assert not any(task.done() for task in tasks)
        # What is in the middle of a send may be acknowledged still.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in [each for each in group.members if each.startswith("java")]:
            await asyncio.to_thread(group.end, name, orderly=True)
        group.join()
        lengths = {each: await admin.max_offset(each) for each in queues}
        everything = {
            kind: await stored(name_server, topic, lengths) for kind, topic in TOPICS.items()
        }
    try:
        await journal.until(lambda: not any(not_consumed(journal, everything).values()))
    except TimeoutError:
        raise AssertionError(not_consumed(journal, everything)) from None
    return trouble.counts, everything


def not_consumed(journal, everything):
    """Return the bodies that are stored, and that no member consumed, by the kind of group."""
    return {
        kind: sorted({body for each in queues.values() for body in each} - journal.bodies[kind])
        for kind, queues in everything.items()
    }


async def not_committed(admin):
    """Return the queues in which a group has anything left to consume: retries included."""
    behind = {}
    for group in GROUPS.values():
        stats = await admin.examine_consume_stats(group)
        assert stats.offset_table
        for queue, progress in stats.offset_table.items():
            if progress.broker_offset != progress.consumer_offset:
                behind[group, queue] = progress
    return behind


async def everything_is_committed(name_server):
    """Wait until nothing is left: what a killed member consumed and did not commit comes again,
    in order when its lock has expired.
    """
    async with MQAdmin(name_server) as admin:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await not_committed(admin):  # noqa: ASYNC110 - the members commit every 5 s
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(await not_committed(admin)) from None


@pytest.fixture
def java(request):
    """RocketMQ's clients; None where they are not installed."""
    try:
        return request.getfixturevalue("peer")
    except pytest.skip.Exception:
        return None


@pytest.mark.parametrize(
    "seconds", [SHORT_S, pytest.param(LASTS_S, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_killed_brokers_and_members_lose_no_message_and_no_order(
    seconds, java, tmp_path, record_property
):
    directory = tmp_path / "members"
    directory.mkdir()
    journal = Journal(directory)
    with BrokerProcess(tmp_path / "broker", **FILES) as broker, ExitStack() as running:
        broker.start()
        group = Group(java, broker, journal, running)
        rng = random.Random(SEED)
        counts, everything = asyncio.run(soak(broker, group, seconds, rng))
        asyncio.run(everything_is_committed(broker.name_server))
        for name in list(group.members):
            group.end(name, orderly=True)
        said = broker.said()
    journal.read()
    record_property("events", dict(counts))
    record_property("acknowledged", len(journal.sent))
    for kind, queues in everything.items():
        record_property(f"stored {kind}", sum(map(len, queues.values())))
        record_property(f"consumed {kind}", len(journal.consumed[kind]))
    found = {body for queues in everything.values() for each in queues.values() for body in each}
    assert journal.sent <= found
    high = assert_in_order(journal.consumed["orderly"])
    assert high == {queue_id: len(each) for queue_id, each in everything["orderly"].items()}
    assert "Traceback" not in said
