"""Compiled pulls are answered byte for byte as others, and change the same, or are left to them."""

import asyncio
import copy
import random

import pytest

from rocketlens.broker.delivery.compiled_pulls import CompiledPulls
from rocketlens.broker.delivery.pull_reader import PullRecords
from rocketlens.formats.consumequeue_entry import ENTRY, ENTRY_BYTES
from rocketlens.wire.codes import RequestCode
from rocketlens.wire.command import ONE_WAY_FLAG, RemotingCommand
from tests.support.async_tests import within
from tests.support.binary_header import encode_command
from tests.support.broker_world import bodies, create_topic, in_broker, properties_of, text_of
from tests.support.effort import sized
from tests.support.fed_channel import commands_in, feed
from tests.unit.broker.heartbeats import beat
from tests.unit.broker.lookup.test_compiled import mutated

COUNT = 240
SUSPEND, SUBSCRIPTION = 2, 4
SMALL = {"mappedFileSizeCommitLog": 40_000, "mappedFileSizeConsumeQueue": 2_000}
CONFIGS = [
    {},
    SMALL,
    {"maxTransferCountOnMessageInMemory": 5, "maxTransferBytesOnMessageInMemory": 2_000},
    SMALL | {"accessMessageInMemoryMaxRatio": 0},
]


def pull(offset, queue_id=0, opaque=1, *, codec=0, code=11, flag=0, **changes):
    """A pull as RocketMQ's push consumer writes it; fields that are None are left out."""
    fields = {
        "queueId": queue_id,
        "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION,
        "suspendTimeoutMillis": 15_000,
        "consumerGroup": "readers",
        "subscription": "*",
        "commitOffset": 0,
        "maxMsgBytes": 2**31 - 1,
        "bname": "broker-a",
        "topic": "Orders",
        "queueOffset": offset,
        "expressionType": "TAG",
        "subVersion": 1_700_000_000_000,
    } | changes
    texts = {name: text_of(value) for name, value in fields.items() if value is not None}
    return encode_command(RemotingCommand(code, opaque, flag, None, texts), codec)


def odd_changes(rng):
    """Fields of a pull that make it another case, or nearly."""
    numbers = ["0", "-1", "1", "007", "+3", "x", "", " 1", "2147483647", "2147483648", "1e3", None]
    longs = [*numbers, str(2**63 - 1), str(-(2**63)), str(2**63), "9" * 19]
    odd = {
        "queueId": [*numbers, "3", "4"],
        "queueOffset": longs,
        "maxMsgNums": [*numbers, "5"],
        "sysFlag": [*numbers, "3", "4", "5", "7", "12", "20"],
        "commitOffset": longs,
        "suspendTimeoutMillis": longs,
        "subVersion": longs,
        "maxMsgBytes": [*numbers, "600", "4000", "-2147483648", "-2147483649"],
        "topic": ["Orders", "Unknown", "caf\u00e9", "", "%RETRY%readers", "Other", None],
        "consumerGroup": ["readers", "heard", "new", "", "caf\u00e9", "TOOLS_CONSUMER", None],
        "subscription": ["Tag1", "Tag0 || Tag2", "None", "", '"', "caf\u00e9", "a\\b", " * ", None],
        "expressionType": ["TAG", "", "SQL92", "X", "t\u00e4g", None],
        "requestSource": ["0", "x"],
        "bname": ["b\\u0041", "", None],
        "lo": ["true"],
        "liteTopic": ["none"],
    }
    return {name: rng.choice(odd[name]) for name in rng.sample(sorted(odd), rng.choice([1, 1, 2]))}


def any_pull(rng, opaque, end, odd):
    """A pull that is usual, or nearly."""
    offset = rng.choice([rng.randrange(end), end - 1, end, end + 1])
    changes = {"sysFlag": rng.choice([4, 5, 6, 7])}
    if rng.random() < 0.2:
        # Its subscription is that of a heartbeat.
        changes = {"sysFlag": rng.choice([0, 1, 2]), "consumerGroup": "heard"}
    if rng.random() < 0.3:
        changes["subscription"] = rng.choice(["Tag1", "Tag0 || Tag2", "None"])
    changes["commitOffset"] = rng.randrange(99)
    if rng.random() < odd:
        changes |= odd_changes(rng)
    flag = ONE_WAY_FLAG if rng.random() < odd / 8 else 0
    given = {"codec": rng.choice([0, 0, 1]), "code": rng.choice([11] * 5 + [361] * 2 + [30])}
    frame = pull(offset, rng.randrange(4), opaque, flag=flag, **given, **changes)
    return mutated(rng, frame) if rng.random() < odd else frame


def fail(*_):
    raise ZeroDivisionError


def replies_in(answered):
    """The replies in what was answered."""
    return commands_in(answered)


class Both:
    """A broker that is fed the same bytes with compiled pulls and without."""

    def __init__(self, world):
        self.world, core = world, world.core
        core.load_kernels()
        self.network, self.runs = core.network, core.network.runs
        self.pulls = self.runs._by_number[RequestCode.PULL_MESSAGE.to_bytes(2)]
        assert type(self.pulls) is CompiledPulls
        self.answered = 0
        self._pull = self.pulls._pull
        self.pulls._pull = self._counted

    def _counted(self, *given):
        reply = self._pull(*given)
        self.answered += reply is not None
        return reply

    def state(self):
        """What a pull can change."""
        core, stats = self.world.core, self.world.core.stats
        return (
            0 if core.access is None else core.access.refused,
            (stats.get_found, stats.get_total, stats.get_missed, core.held_pulls.not_held),
            copy.deepcopy(core.offsets.table),
            (dict(core.offsets.resets), core.offsets.refused),
            copy.deepcopy(core.groups.table.entries),
        )

    def restore(self, state):
        """Set what a pull can change to what it was."""
        core, (refused, counts, offsets, resets, groups) = self.world.core, copy.deepcopy(state)
        if core.access is not None:
            core.access._audit.refused = refused
        stats = core.stats
        stats.get_found, stats.get_total, stats.get_missed, core.held_pulls.not_held = counts
        core.offsets.table.clear()
        core.offsets.table.update(offsets)
        core.offsets.resets.clear()
        core.offsets.resets.update(resets[0])
        core.offsets.refused = resets[1]
        core.offsets._count_bytes()
        core.groups.table.entries.clear()
        core.groups.table.entries.update(groups)

    async def assert_same(self, chunks, peer=("10.0.0.9", 4711)):
        """Feed chunks both ways, from the same state."""
        before = self.state()
        self.network.runs = None
        expected = await feed(self.world, chunks, peer), self.state()
        self.restore(before)
        self.network.runs = self.runs
        answered = await feed(self.world, chunks, peer)
        for one, other in zip(replies_in(answered[0]), replies_in(expected[0][0]), strict=True):
            assert one == other
        assert answered == expected[0]
        for one, other in zip(self.state(), expected[1], strict=True):
            assert one == other


async def fill(world):
    """Messages of four queues, by turns and in batches; one queue has most of them."""
    await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
    for number in range(COUNT // 3):
        properties = properties_of(TAGS=f"Tag{number % 3}")
        await world.send(body=bytes(number % 90), properties=properties)
        size = 9_000 if number % 40 == 7 else 200
        await world.send(body=bytes(size), e=number % 3 + 1)
        members = [(b"%d" % each, properties_of(TAGS=f"Tag{each}")) for each in range(2)]
        await world.send_batch(members, e=0)


async def change(rng, world):
    """Do something to a broker, as others do while a consumer pulls."""
    core = world.core
    kind = rng.randrange(6)
    if kind == 0:
        await world.send(e=rng.randrange(4), body=bytes(rng.choice([0, 100, 3000])))
    elif kind == 1:
        core.offsets.reset("readers", "Orders", rng.randrange(4), rng.randrange(50))
    elif kind == 2 and len(segments := core.store._log.list_segments()) > 4:
        segments[0].path.unlink()
        core.store._log.list_segments()
    elif kind == 3:
        version = rng.choice([1_700_000_000_000, 1])
        await beat(world, "client", "Orders", group="heard", version=version)
    elif kind == 4:
        await create_topic(
            world,
            topic="Orders",
            writeQueueNums=4,
            readQueueNums=rng.choice([4] * 3 + [2]),
            perm=rng.choice([6] * 7 + [2]),
        )
    else:
        queue = core.store.queues.get("Orders", 0)
        last = queue.next_offset - 1
        entry = queue.entry(last)
        spoiled = entry.physical_offset + rng.choice([0, 1]), entry.store_size, 7
        ENTRY.pack_into(queue.content, last * ENTRY_BYTES % queue.file_bytes, *spoiled)


def run(directory, seed, rounds, odd):
    """Compare with a broker that a seed changes; return how many pulls were compiled."""
    rng = random.Random(seed)

    async def test(world):
        await fill(world)
        both = Both(world)
        for _ in range(rounds):
            if rng.random() < 0.15:
                await change(rng, world)
            end = world.core.store.queues.get("Orders", 0).next_offset
            frames = [
                any_pull(rng, opaque, end, odd) for opaque in range(rng.choice([1, 1, 1, 3, 12]))
            ]
            content = b"".join(frames)
            cut = rng.randrange(len(content))
            await both.assert_same(
                [content] if rng.random() < 0.7 else [content[:cut], content[cut:]]
            )
        return both.answered

    return in_broker(directory, test, **CONFIGS[seed % len(CONFIGS)])


@pytest.mark.parametrize("seed", range(sized(2, 4)))
def test_compiled_pulls_answer_and_change_what_the_others_do(tmp_path, seed):
    assert run(tmp_path, seed, 300, 0.12) > 60


@within(in_broker, "tmp_path")
async def test_a_usual_pull_is_one_call_of_the_kernel(world, /, monkeypatch):
    await fill(world)
    both = Both(world)
    monkeypatch.setattr(PullRecords, "_take_one", None)
    for queue_id in range(3):
        pulled = await world.pull(5, queue_id, maxMsgNums=9)
        assert pulled.ext_fields["nextBeginOffset"] == "14"
        stored = [record.body for record in world.stored("Orders", queue_id)]
        assert bodies(pulled) == stored[5:14]
    assert both.answered == 3


@within(in_broker, "tmp_path")
async def test_a_pull_that_finds_nothing_is_held_and_woken_by_what_is_sent(world, /):
    await world.send(body=b"first")
    Both(world)
    held = world.core.held_pulls
    for offset in range(1, 20):
        waits = asyncio.create_task(
            world.pull(offset, sysFlag=SUSPEND | SUBSCRIPTION, suspendTimeoutMillis=60_000)
        )
        while not held.count:  # noqa: ASYNC110 - there is nothing to wait for but turns
            await asyncio.sleep(0)
        await world.send(body=b"%d" % offset)
        assert bodies(await waits) == [b"%d" % offset]
        assert not held.count


@within(in_broker, "tmp_path")
async def test_pulls_among_other_requests_are_answered_in_their_order(world, /):
    await fill(world)
    both = Both(world)
    frames = [
        [pull(number, number % 4, number), pull(0, 0, number, code=30), pull(9**9, 0, number)][each]
        for number, each in enumerate([0, 0, 0, 1, 0, 2, 0, 0, 1, 1, 0, 0])
    ]
    await both.assert_same([b"".join(frames)])
    await both.assert_same(frames)
    assert both.answered > 9


@within(in_broker, "tmp_path")
async def test_an_error_releases_what_was_received(world, /, monkeypatch):
    pulls = Both(world).pulls
    monkeypatch.setattr(pulls, "_reply", fail)
    received = bytearray(pull(0))
    with memoryview(received) as held, pytest.raises(ZeroDivisionError) as caught:
        pulls.take(None, held, 9)
    received.clear()
    assert caught.traceback
