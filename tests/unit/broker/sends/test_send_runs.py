"""Sends that are handled together are what they are one by one, byte for byte.

Batches whose members are stored by compiled code: what is there when something fails.
"""

import asyncio
import random
import shutil
from unittest.mock import Mock

import pytest

import rocketlens
from rocketlens.broker.sends import send_runs as batches
from rocketlens.broker.sends.send_runs import SendRuns
from rocketlens.errors import StoreFailed
from rocketlens.formats import batch_body
from rocketlens.formats.batch_body import BatchMember
from rocketlens.formats.commitlog_record import decode
from rocketlens.wire.codes import RequestCode, ResponseCode
from rocketlens.wire.command import ONE_WAY_FLAG, RemotingCommand
from rocketlens.wire.commands.messages import SEND_MESSAGE, SEND_MESSAGE_V2
from tests.support.async_tests import within
from tests.support.binary_header import encode_command
from tests.support.broker_world import create_topic, in_broker, send_fields, text_of
from tests.support.effort import sized
from tests.support.failing_disks import FailingDisk
from tests.support.fed_channel import commands_in, feed
from tests.support.patience import PATIENCE_S

KEY = "0A0000091F4018B4AAC2140DD5A2"
LONG = SEND_MESSAGE.request.wire_names
SHORT = SEND_MESSAGE_V2.request.wire_names


def plain_frame(number, codec=0, code=310, flag=0, body=None, **changes):
    """A send that is plain unless the changes say otherwise."""
    key = f"{KEY}{number:04d}"
    properties = (
        f"KEYS\x01k{number}\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01t{number % 3}\x02"
    )
    fields = send_fields("Orders", properties) | {"e": number % 4} | changes
    texts = {name: text_of(value) for name, value in fields.items() if value is not None}
    if code == RequestCode.SEND_MESSAGE:
        of_short = {short: LONG[name] for name, short in SHORT.items()}
        texts = {of_short.get(name, name): text for name, text in texts.items()}
    content = b"body %d" % number if body is None else body
    return encode_command(RemotingCommand(code, number, flag, None, texts, content), codec)


def odd_properties(rng, number):
    """Properties with something that makes a message another case, or nearly."""
    parts = [f"UNIQ_KEY\x01{KEY}{number:04d}\x02", "TAGS\x01paid\x02", "KEYS\x01a b\x02"]
    parts += [f"name{rng.randrange(300)}\x01v{n}\x02" for n in range(rng.choice([0, 3, 20, 120]))]
    odd = [
        *("DELAY\x011\x02", "DELAY\x010\x02", "TRAN_MSG\x01true\x02", "TRAN_MSG\x01false\x02"),
        *("TIMER_DELAY_SEC\x015\x02", "MSG_REGION\x01mine\x02", "CLUSTER\x01c\x02"),
        *("POP_CK\x01x\x02", "TAGS\x01again\x02", "empty\x01\x02", "\x01value\x02", "alone\x02"),
        *("\x02", "a\x01b\x01c\x02", "name\x01caf\u00e9\x02", "zero\x01\0\x02"),
        *('quote\x01"\\/\x02', "line\x01\n\t\r\x02", "\x7f\x01\x7f\x02", "x\x01\x1f\x02"),
        *("UNIQ_KEY\x01other\x02", f"long\x01{'x' * 5000}\x02", 'UNIQ_KEY\x01"quoted"\x02'),
        *("WAIT\x01false\x02", "WAIT\x01TRUE\x02", "WAIT\x01true\x02"),
        *("caf\u00e9\x01v\x02", "TAGS\x01\u652f\u4ed8\x02", "n\x01\ufffd\x02"),
        "n\x01\u652f\u4ed8\U0001f600\x02",
        *(f"UNIQ_KEY\x01{'k' * 200}\x02", "Aa\x01one\x02BB\x01bucket\x02"),
    ]
    parts += rng.sample(odd, rng.randrange(3))
    if rng.random() < 0.2:
        del parts[0]
    rng.shuffle(parts)
    text = "".join(parts)
    return text[:-1] if rng.random() < 0.2 else text


def odd_frame(rng, number):
    """A frame that may be anything but plain."""
    codec, code = rng.choice([0, 1]), rng.choice([310, 310, 10])
    kind = rng.randrange(10)
    if kind == 9:
        return batch_frame(rng, number, codec, is_odd=True)
    if kind == 0:
        return plain_frame(number, codec, code, i=odd_properties(rng, number))
    if kind == 1:
        return plain_frame(number, codec, code, e=rng.choice([-1, 9, "007", "+2", "x", "", None]))
    if kind == 2:
        topics = ["Unknown", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "caf\u00e9", "Other", "", None]
        return plain_frame(number, codec, code, b=rng.choice(topics))
    if kind == 3:
        numbers = ["0", "-7", "2147483647", "2147483648", "1e3", "00", "+1", " 1", None]
        changed = {rng.choice("fghj"): rng.choice(numbers) for _ in range(2)}
        return plain_frame(number, codec, code, **changed)
    if kind == 4:
        return plain_frame(number, codec, code, m=rng.choice([True, "TRUE", "no", ""]))
    if kind == 5:
        return plain_frame(number, codec, code, ONE_WAY_FLAG)
    if kind == 6:
        return plain_frame(number, codec, code, body=rng.randbytes(rng.choice([0, 1, 700, 9000])))
    if kind == 7:
        return plain_frame(number, codec, rng.choice([320, 30, 9999, 310]), z="unknown field")
    return mutated(rng, plain_frame(number, codec, code))


def batch_frame(rng, number, codec=0, *, is_odd=False, **changes):
    """A batch that is plain unless it is to be odd, or the changes say otherwise."""
    members = []
    for member in range(rng.choice([1, 3, 40])):
        properties = f"UNIQ_KEY\x01{KEY}{number:04d}{member:03d}\x02TAGS\x01t{member % 3}\x02"
        if is_odd and rng.random() < 0.2:
            properties = odd_properties(rng, number)
        content = rng.randbytes(rng.choice([0, 1, 90, 700]))
        members.append(BatchMember(rng.choice([0, 0, -1]), content, properties.encode()))
    body = batch_body.encode(members)
    if is_odd and rng.random() < 0.3:
        body = mutated(rng, body) if len(body) > 30 else body[:-1]
    fields = {"i": rng.choice(["", "WAIT\x01true\x02", f"UNIQ_KEY\x01{KEY}b{number}\x02"])}
    if is_odd and rng.random() < 0.3:
        fields = rng.choice(
            [
                *({"i": "DELAY\x011\x02"}, {"i": "TIMER_DELAY_SEC\x015\x02"}, {"f": 8}, {"e": -1}),
                *({"b": "%RETRY%g"}, {"b": "Unknown"}, {"j": 3}, {"g": -1}, {"f": 0x30}),
            ]
        )
    return plain_frame(number, codec, 320, body=body, **fields | changes)


def mutated(rng, frame):
    """A frame with some changed bytes behind its length."""
    changed = bytearray(frame)
    for _ in range(rng.choice([1, 1, 3])):
        at = rng.randrange(4 if rng.random() < 0.05 else 8, len(frame) - 10)
        changed[at] = rng.choice([rng.randrange(256), *b'"\\{}:,0', 1, 2])
    return bytes(changed)


def streams_of(seed, count, odd=0.15, change=lambda _, frame: frame):
    """Streams of bytes, each as chunks: mostly plain sends, and cut anywhere."""
    rng = random.Random(seed)
    number = 0
    for _ in range(count):
        frames = []
        for _ in range(rng.choice([5, 20, 90])):
            number += 1
            is_odd = rng.random() < odd
            codec, code = rng.choice([0, 1]), rng.choice([310] * 12 + [10] * 6 + [320])
            if is_odd:
                frames.append(odd_frame(rng, number % 10_000))
            elif code == RequestCode.SEND_BATCH_MESSAGE:
                frames.append(batch_frame(rng, number % 10_000, codec))
            else:
                frames.append(plain_frame(number % 10_000, codec, code))
        content = b"".join(change(rng, frame) for frame in frames)
        chunks = []
        while content:
            size = rng.choice([len(content), rng.randrange(1, 60), rng.randrange(1, 20_000)])
            chunks.append(content[:size])
            content = content[size:]
        yield chunks


def state_of(world):
    """The log, all queues and the counts of a broker, with its port masked."""
    store = world.core.store
    host = world.core.store_host
    content, offset = b"", store.min_offset
    while (segment := store.log_from(offset)) is not None:
        view, base = segment
        content += bytes(view[offset - base :]).replace(host, b"H" * len(host))
        offset = base + len(view)
        if offset < store.end_offset and offset % (1 << 20):
            offset = (offset // (1 << 20) + 1) << 20
    queues = {
        (queue.topic, queue.queue_id): (
            queue.next_offset,
            b"".join(queue.read_bytes(at, 1) for at in range(queue.next_offset)),
        )
        for topic in world.core.topics.topics
        for queue in store.queues.of_topic(topic)
    }
    return content, queues, store.last_appended, world.core.stats.put_total


def outcome(directory, streams, *, with_runs, prepare=None, **settings):
    """What a broker answers to streams, and what it has stored then."""
    taken, batches = [], []

    async def test(world):
        if prepare is not None:
            await prepare(world)
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        await create_topic(world, topic="Other")
        # The answer to a message that creates its topic comes when the name servers know that.
        await feed(world, [plain_frame(9999, b="%RETRY%g", e=0)])
        if with_runs:
            world.core.load_kernels()
            runs = world.core.network.runs
            take, answer = runs.take, runs.answer

            def answered_alone(*given):
                reply = answer(*given)
                taken.append((int(reply is not None), 0, b""))
                return reply

            runs.take = lambda *given: taken.append(take(*given)) or taken[-1]
            runs.answer = answered_alone
            store = world.core.batches.store
            world.core.batches.store = lambda *given, **more: (
                batches.append(store(*given, **more)) or batches[-1]
            )
        prefix = world.core.id_prefix.encode()
        answers = []
        for chunks in streams:
            written, is_closed = await feed(world, chunks)
            answers.append((written.replace(prefix, b"I" * len(prefix)), is_closed))
        return answers, state_of(world)

    answered, state = in_broker(directory, test, autoCreateTopicEnable=False, **settings)
    stored = sum(batch is not None for batch in batches)
    return answered, state, sum(count for count, _, _ in taken), stored


def in_order(answered):
    """Answers by the numbers of their requests: those that wait come behind others, or never, if
    the broker closes the connection before.
    """
    written, is_closed = answered
    if is_closed:
        return is_closed
    answers = commands_in(written)
    return sorted(answers, key=lambda each: each.opaque)


def assert_same(directory, streams, *, is_ordered=True, **more):
    """Compare what becomes of streams with runs and without; return how much was in runs."""
    single = outcome(directory / "single", streams, with_runs=False, **more)
    together = outcome(directory / "together", streams, with_runs=True, **more)
    if not is_ordered:
        single = [in_order(each) for each in single[0]], *single[1:]
        together = [in_order(each) for each in together[0]], *together[1:]
    for number, (one, other) in enumerate(zip(single[0], together[0], strict=True)):
        assert one == other, number
    assert single[1] == together[1]
    assert single[2:] == (0, 0)
    return together[2:]


@pytest.mark.parametrize("seed", range(sized(1, 2)))
def test_a_run_does_what_single_sends_do_however_the_bytes_are_cut(tmp_path, seed):
    messages, batches = assert_same(tmp_path, list(streams_of(seed, 40)))
    assert messages > 500
    assert batches > 20


@pytest.mark.parametrize("settings", [{}, {"flushDiskType": "SYNC_FLUSH"}])
def test_a_message_that_comes_alone_is_stored_by_a_run_of_one(tmp_path, settings):
    rng = random.Random(11)
    frames = [
        odd_frame(rng, number) if rng.random() < 0.3 else plain_frame(number, rng.choice([0, 1]))
        for number in range(400)
    ]
    frames[50] = frames[51] + frames[52]
    # A frame that ends its connection is the last one that is read of it.
    streams = [frames[start : start + 8] for start in range(0, len(frames), 8)]
    messages, _ = assert_same(tmp_path, streams, **settings)
    # Where replies wait, a message that comes alone is left to others.
    assert (messages > 200) == (not settings)


def fed_with_runs(directory, act, **changes):
    """Run ``await act(world, send)`` with kernels loaded; ``send(numbers)`` returns answers."""

    async def test(world):
        await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
        world.core.load_kernels()

        async def send(numbers, **fields):
            frames = b"".join(plain_frame(number, **fields) for number in numbers)
            written, _ = await feed(world, [frames])
            return commands_in(written)

        await send(range(8))
        return await act(world, send)

    return in_broker(directory, test, **changes)


@within(fed_with_runs, "tmp_path")
async def test_a_queue_of_a_deleted_topic_begins_anew(world, send, /):
    await send(range(8))
    await world.call(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
    for first in range(0, 24, 8):
        answers = await send(range(8))
        offsets = {int(each.ext_fields["queueOffset"]) for each in answers}
        assert offsets == {first // 4, first // 4 + 1}


@within(fed_with_runs, "tmp_path")
async def test_a_topic_that_may_not_be_written_any_more_is_refused_at_once(world, send, /):
    assert {each.code for each in await send(range(8))} == {0}
    await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4, perm=4)
    assert {each.code for each in await send(range(8))} == {16}


@within(fed_with_runs, "tmp_path")
async def test_a_run_wakes_a_held_pull(world, send, /):
    waiting = asyncio.ensure_future(
        world.pull(offset=2, queue_id=1, sysFlag=6, suspendTimeoutMillis=60_000)
    )
    async with asyncio.timeout(PATIENCE_S):
        while not world.core.held_pulls.count:  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0)
    await send(range(8))
    answer = await waiting
    assert decode(answer.body).queue_offset == 2


def test_many_queues_are_forgotten_and_known_again(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.broker.sends.send_runs.MAX_RUN_QUEUES", 2)

    async def act(world, send):
        for _ in range(12):
            assert {each.code for each in await send(range(8))} == {0}
        counts = [world.core.store.queues.max_offset("Orders", number) for number in range(4)]
        assert counts == [26] * 4

    fed_with_runs(tmp_path, act)


@pytest.mark.parametrize(
    "changes", [{"flushDiskType": "SYNC_FLUSH"}, {"brokerRole": "SYNC_MASTER"}]
)
def test_where_replies_wait_a_run_does_what_single_sends_do(tmp_path, changes):
    messages, batches = assert_same(tmp_path, list(streams_of(5, 8)), is_ordered=False, **changes)
    assert messages > 80
    assert batches > 4


@within(fed_with_runs, "tmp_path", flushDiskType="SYNC_FLUSH", syncFlushTimeout=500)
async def test_replies_of_a_run_wait_for_the_disk_together_and_say_what_became_of_it(
    world, send, /
):
    taken, take = [], world.core.network.runs.take
    world.core.network.runs.take = lambda *given: taken.append(take(*given)) or taken[-1]
    async with asyncio.timeout(PATIENCE_S):
        while not taken or taken[-1][0] < 8:
            await send(range(8))
    store, waited = world.core.store, []
    wait = world.core.replies._when_durable
    world.core.replies._when_durable = lambda *given: waited.append(given) or wait(*given)
    assert {each.code for each in await send(range(8))} == {0}
    assert store.flushed_offset == store.end_offset == waited[0][0]
    assert len(waited) == 1
    world.core.replies._when_durable = lambda *_: None
    late = await send(range(8))
    assert {each.code for each in late} == {ResponseCode.FLUSH_DISK_TIMEOUT}
    assert len({each.ext_fields["msgId"] for each in late}) == 8
    world.core.replies._when_durable = lambda _, waiter: waiter(StoreFailed("it is gone"))
    failed = await send(range(8))
    assert {(each.code, each.remark, len(each.ext_fields)) for each in failed} == {
        (14, "it is gone", 0)
    }
    assert world.core.network.in_flight == 0
    now = await send(range(8), i=f"UNIQ_KEY\x01{KEY}\x02WAIT\x01false\x02")
    assert {each.code for each in now} == {0}


@within(fed_with_runs, "tmp_path")
async def test_sends_that_are_not_plain_and_come_alone_are_seldom_read_in_vain(world, send, /):
    sends, taken = world.core.network.runs._others, []
    for number in range(4):
        await send([number])
    take = sends.take
    sends.take = lambda *given: taken.append(take(*given)) or taken[-1]
    for number in range(40):
        (answer,) = await send([number], i="DELAY\x013\x02")
        assert answer.code == 0
    assert [count for count, _, _ in taken] == [0] * 5
    for number in range(20):
        (answer,) = await send([number])
        assert answer.code == 0
    del taken[:]
    await send([20])
    assert [count for count, _, _ in taken] == [1]


def test_an_error_releases_what_was_received(tmp_path, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    async def act(world, send):
        await send(range(8))
        monkeypatch.setattr(world.core.store, "append_run", fail)
        received = bytearray(plain_frame(8))
        with memoryview(received) as held, pytest.raises(ZeroDivisionError) as caught:
            world.core.network.runs.take(Mock(address="10.0.0.9:1"), held, 9)
        received.clear()
        assert caught.traceback

    fed_with_runs(tmp_path, act)


@within(in_broker, "tmp_path")
async def test_there_are_runs_where_nothing_is_to_be_checked(world, /):
    assert world.core.network.runs is None
    world.core.load_kernels()
    assert isinstance(world.core.network.runs._others, SendRuns)


MEMBERS = [(b"body %d" % number, f"KEYS\x01all\x02N\x01{number}\x02") for number in range(6)]


async def first_sends(world):
    """Send what makes a queue known, and load the kernels."""
    await create_topic(world, topic="Orders", writeQueueNums=4, readQueueNums=4)
    await world.send(properties="KEYS\x01all\x02")
    world.core.load_kernels()
    stored, store = [], world.core.batches.store
    world.core.batches.store = lambda *given, **more: (
        stored.append(store(*given, **more)) or stored[-1]
    )
    return stored


def outcome_of_batch(directory, full_at, *, is_compiled):
    """What a broker answers to batches when its disk is full for a moment, and what it has."""

    async def test(world):
        await first_sends(world)
        if not is_compiled:
            world.core.batches = None
        answers = [await world.send_batch(MEMBERS) for _ in range(4)]
        records = [(each.body, each.queue_offset) for each in world.stored("Orders")]
        said = [
            (each.code, (each.remark or "").replace(str(directory), ""), each.ext_fields)
            for each in answers
        ]
        prefix = world.core.store_host.hex().upper()
        for _, _, fields in said:
            if "msgId" in fields:
                fields["msgId"] = fields["msgId"].replace(prefix, "")
        return said, records

    disk = FailingDisk(full_at=full_at)
    return in_broker(directory, test, disk=disk, mappedFileSizeConsumeQueue=400), disk.reserves


def test_a_batch_is_stored_whole_or_refused_wherever_the_disk_is_full(tmp_path):
    (answers, _), reserves = outcome_of_batch(tmp_path / "first", (), is_compiled=True)
    assert {code for code, _, _ in answers} == {0}
    is_refused = set()
    for number in range(3, reserves + 1):
        full = outcome_of_batch(tmp_path / f"{number}", {number}, is_compiled=True)[0]
        assert (
            full == outcome_of_batch(tmp_path / f"python-{number}", {number}, is_compiled=False)[0]
        )
        is_refused |= {code for code, _, _ in full[0]}
    assert len(is_refused) > 1


@pytest.mark.parametrize("written", [0, 2, 6])
def test_a_broker_that_is_killed_in_a_batch_has_the_first_members(tmp_path, monkeypatch, written):
    def die(log, count, *others):
        assert count == len(MEMBERS)
        commit(log, written, *others)
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        commit(log, count, *others)

    async def test(world):
        stored = await first_sends(world)
        monkeypatch.setattr(batches, "commit_members", die)
        assert (await world.send_batch(MEMBERS)).code == 0
        assert stored[0] is not None

    commit = batches.commit_members
    in_broker(tmp_path, test)
    with rocketlens.open_store(tmp_path / "copy") as reader:
        answer = reader.query_message("Orders", "all")
        assert (len(answer.messages), answer.complete) == (1 + written, True)


@pytest.mark.parametrize(
    ("properties", "code", "is_compiled"),
    [
        ("DELAY\x013\x02", 13, False),
        ("KEYS\x01all\x02DELAY\x013", 13, False),
        ("KEYS\x01all\x02DELAY\x010\x02", 0, False),
        ("MYDELAY\x013\x02", 0, False),
        ("DELAYS\x013\x02DELA\x01Y\x02", 0, True),
        ("KEYS\x01DELAY\x02", 0, True),
    ],
)
@within(in_broker, "tmp_path")
async def test_a_delay_of_a_member_is_a_property_whatever_its_body_says(
    world, /, properties, code, is_compiled
):
    stored = await first_sends(world)
    answer = await world.send_batch([*MEMBERS, (b"DELAY\x013\x02", properties)])
    assert (answer.code, stored[-1] is not None) == (code, is_compiled), answer
