"""Half messages become messages once or never, and producers are asked about those not ended."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from rocketlens.broker.delivery import ended_halves
from rocketlens.broker.requests import transaction_checks
from rocketlens.model import properties as props
from rocketlens.net.pool import ClientPool
from rocketlens.wire.codes import RequestCode
from tests.support.broker_world import NOW_MS, World, properties_of, records_of, running
from tests.unit.broker.heartbeats import beat
from tests.unit.broker.transactions import (
    COMMIT,
    HALF,
    MARKS,
    ROLLBACK,
    UNKNOWN,
    end,
    end_many,
    half_properties,
    send_half,
)

GROUP = "CID_RMQ_SYS_TRANS"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"


class Asked:
    """A producer that notes what it is asked."""

    def __init__(self):
        self.checks = asyncio.Queue()

    def note(self, command, _):
        self.checks.put_nowait(command)

    async def next(self):
        return await asyncio.wait_for(self.checks.get(), 20)

    async def numbers(self, count):
        """The bodies of the half messages in the next checks."""
        return [records_of((await self.next()).body)[0].body for _ in range(count)]


@asynccontextmanager
async def producer(world, client_id="one"):
    """A producer of the group, with a connection of its own."""
    asked = Asked()
    pool = ClientPool(lambda _: True, handlers={RequestCode.CHECK_TRANSACTION_STATE: asked.note})
    its_own = World(world.service, pool, world.clock)
    try:
        await beat(its_own, client_id)
        yield asked
        await its_own.call(
            RequestCode.UNREGISTER_CLIENT, clientID=client_id, producerGroup="producers"
        )
    finally:
        await pool.close()


def checks_of(world):
    return world.service._checks


async def run_round(world, after_ms=0):
    world.clock.now_ms += after_ms
    await checks_of(world).run_round()


def offsets_of(world):
    """Where the next broker continues; all is made durable first."""
    world.core.store.flush_log()
    checks_of(world)._save()
    offsets = world.core.offsets
    return offsets.get(GROUP, HALF, 0), offsets.get(GROUP, MARKS, 0)


async def test_a_producer_is_asked_as_by_rocketmq(world):
    async with producer(world) as asked:
        fields = await send_half(world)
        await run_round(world, 6_000)
        check = await asked.next()
        half = world.stored(HALF)[0]
        assert check.flag & 2
        assert {name: check.ext_fields[name] for name in check.ext_fields} == {
            "tranStateTableOffset": "0",
            "commitLogOffset": str(half.physical_offset),
            "msgId": "0" * 32,
            "transactionId": "0" * 32,
            "offsetMsgId": half.offset_msg_id,
            "topic": HALF,
            "bname": "broker-a",
        }
        (message,) = records_of(check.body)
        assert (message.topic, message.queue_id, message.body) == ("Orders", 2, b"0")
        expected = half_properties(half) | {"TRANSACTION_CHECK_TIMES": "1"}
        assert half_properties(message) == dict(props.java_order(expected))
        answer = await end(world, fields, commitOrRollback=COMMIT, fromTransactionCheck=True)
        assert answer.code == 0
        assert len(world.stored("Orders", 2)) == 1
        await run_round(world, 60_000)
        assert offsets_of(world) == (1, 0)
    assert asked.checks.empty()


async def test_a_producer_is_not_asked_before_the_timeout_nor_about_what_is_ended(world):
    async with producer(world) as asked:
        await end_many(world, 3)
        await send_half(world, 3)
        rolled_back = await send_half(world, 4)
        await end(world, rolled_back, commitOrRollback=ROLLBACK)
        unknown = await send_half(world, 5)
        await end(world, unknown, commitOrRollback=UNKNOWN)
        await run_round(world, 5_994)
        # The half messages were born 5 ms before.
        await run_round(world, 1)
        assert await asked.numbers(2) == [b"3", b"5"]
        assert offsets_of(world)[0] == 3
    assert asked.checks.empty()


async def test_a_message_says_itself_how_long_its_producers_are_not_asked(world):
    async with producer(world) as asked:
        await send_half(world, 0, CHECK_IMMUNITY_TIME_IN_SECONDS=100)
        await send_half(world, 1)
        await send_half(world, 2, CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
        await run_round(world, 10_000)
        assert await asked.numbers(2) == [b"1", b"2"]
        await run_round(world, 100_000)
        assert await asked.numbers(3) == [b"0", b"1", b"2"]


@pytest.mark.broker(transactionCheckMax=2)
async def test_after_the_last_check_a_half_message_is_put_aside(world):
    fields = await send_half(world)
    # Checks count while no producer is connected.
    for _ in range(2):
        await run_round(world, 30_000)
    assert not world.stored(DISCARDED)
    for _ in range(2):
        await run_round(world, 30_000)
    (record,) = world.stored(DISCARDED)
    half = world.stored(HALF)[0]
    assert half_properties(record) == half_properties(half) | {"TRANSACTION_CHECK_TIMES": "2"}
    assert (record.body, record.born_host) == (half.body, half.born_host)
    assert world.core.topics.get(DISCARDED).perm == 6
    assert offsets_of(world)[0] == 1
    # A producer may still end it, as with RocketMQ.
    assert (await end(world, fields)).code == 0
    assert len(world.stored("Orders", 2)) == 1


@pytest.mark.broker(fileReservedTime=1)
async def test_a_half_message_older_than_the_log_is_kept_is_put_aside(world):
    async with producer(world) as asked:
        await send_half(world)
        await run_round(world, 3_600_000)
        assert len(world.stored(DISCARDED)) == 1
    assert asked.checks.empty()


async def test_the_producers_of_a_group_are_asked_in_turn_and_closed_ones_are_not(world):
    async with producer(world, "one") as one:
        async with producer(world, "two") as two:
            for number in range(4):
                await send_half(world, number)
            await run_round(world, 10_000)
            asked = await asyncio.gather(one.numbers(2), two.numbers(2))
            assert sorted(asked[0] + asked[1]) == [b"0", b"1", b"2", b"3"]
        await run_round(world, 30_000)
        assert await one.numbers(4) == [b"0", b"1", b"2", b"3"]


async def test_the_next_broker_continues_where_this_one_left_off(tmp_path):
    async with running(tmp_path) as world:
        await end_many(world, 5)
        await send_half(world, 5)
        await end_many(world, 5, first=6)
        await run_round(world, 10_000)
        assert offsets_of(world)[0] == 5
    async with running(tmp_path) as world, producer(world) as asked:
        await run_round(world, 10_000)
        assert await asked.numbers(1) == [b"5"]
        assert len(world.stored("Orders", 2)) == 10


async def test_marks_of_open_half_messages_are_not_passed(world):
    ended = await end_many(world, 3)
    waits = await send_half(world, 3)
    await run_round(world, 10_000)
    await end_many(world, 2, first=4)
    await run_round(world, 10_000)
    # The half message 3 is open: RocketMQ needs the marks of 4 and 5.
    assert offsets_of(world) == (3, 0)
    await end(world, waits)
    await run_round(world, 10_000)
    assert offsets_of(world) == (6, 5)
    assert ended


async def test_a_copy_that_rocketmq_made_is_ended_by_the_end_of_the_first(world):
    async with producer(world) as asked:
        first = await send_half(world, 0, CHECK_IMMUNITY_TIME_IN_SECONDS=7)
        await send_half(world, 0, CHECK_IMMUNITY_TIME_IN_SECONDS=7, TRAN_PREPARED_QUEUE_OFFSET=0)
        await end(world, first)
        await run_round(world, 10_000)
        assert offsets_of(world)[0] == 2
    assert asked.checks.empty()


async def test_producers_that_do_not_read_are_asked_later(world, monkeypatch):
    monkeypatch.setattr(transaction_checks, "WAIT_S", 0)
    async with producer(world) as asked:
        (channel,) = world.core.clients.producers["producers"]
        await send_half(world, 0)
        channel._writable = asyncio.Event()
        for _ in range(20):
            await run_round(world, 30_000)
        assert not world.stored(DISCARDED)
        channel._writable = None
        await run_round(world, 30_000)
        assert await asked.numbers(1) == [b"0"]
    assert asked.checks.empty()


@pytest.mark.parametrize("born_ms", [NOW_MS + 10**9, -5])
async def test_a_clock_that_is_wrong_delays_no_check_for_long(world, born_ms):
    async with producer(world) as asked:
        await send_half(world, 0)
        sent = props.format_properties(
            {"UNIQ_KEY": "1" * 32, "TRAN_MSG": "true", "PGROUP": "producers"}
        )
        await world.send(body=b"1", e=2, f=4, g=born_ms, properties=sent)
        await run_round(world, 10_000)
        if born_ms > 0:
            assert await asked.numbers(2) == [b"0", b"1"]
        else:
            assert await asked.numbers(1) == [b"0"]
            assert len(world.stored(DISCARDED)) == 1


@pytest.mark.broker(transactionCheckInterval=20)
async def test_a_round_is_begun_by_time(world):
    async with producer(world) as asked:
        world.clock.now_ms += 10_000
        await send_half(world, 0)
        assert await asked.numbers(2) == [b"0", b"0"]


async def test_an_end_that_comes_again_is_done_once_even_after_a_restart(tmp_path):
    async with running(tmp_path, listenPort=0) as world:
        fields = await send_half(world)
        for _ in range(2):
            assert (await end(world, fields)).code == 0
        assert (await end(world, fields, commitOrRollback=ROLLBACK)).code == 0
    async with running(tmp_path) as world:
        assert (await end(world, fields)).code == 0
        assert len(world.stored("Orders", 2)) == len(world.stored(MARKS)) == 1


@pytest.fixture
def marks_read(monkeypatch):
    """The physical offsets of the marks that are read."""
    found = []
    named_at = ended_halves._halves_named_at

    def counted(log, physical_offset):
        found.append(physical_offset)
        return named_at(log, physical_offset)

    monkeypatch.setattr(ended_halves, "_halves_named_at", counted)
    return found


async def test_no_mark_is_read_for_transactions_of_after_the_start(tmp_path, marks_read):
    async with running(tmp_path) as world:
        await end_many(world, 30)
    async with running(tmp_path) as world:
        ended = await end_many(world, 5, first=30)
        for fields in ended:
            assert (await end(world, fields)).code == 0
        assert len(world.stored(MARKS)) == 35
    assert marks_read == []


async def test_only_marks_behind_a_half_message_are_read_and_each_once(
    tmp_path, marks_read, monkeypatch
):
    monkeypatch.setattr(ended_halves, "MARKS_PER_READ", 4)
    async with running(tmp_path) as world:
        ended = await end_many(world, 250)
        waits = await send_half(world, 250)
        ended += await end_many(world, 6, first=251)
        marks = [each.physical_offset for each in world.stored(MARKS)]
    async with running(tmp_path) as world:
        assert (await end(world, waits)).code == 0
        assert marks_read == marks[:-9:-1]
        for fields in [*ended[240:], waits, *ended[:3]]:
            assert (await end(world, fields)).code == 0
        assert marks_read == marks[::-1]
        assert len(world.stored(MARKS)) == 257
        assert len(world.stored("Orders", 2)) == 257


async def test_ends_that_come_together_after_a_restart_are_done_once(tmp_path):
    async with running(tmp_path) as world:
        await end_many(world, 3)
        waits = await send_half(world, 3)
    async with running(tmp_path) as world:
        answers = await asyncio.gather(*(end(world, waits) for _ in range(8)))
        assert [answer.code for answer in answers] == [0] * 8
        assert len(world.stored("Orders", 2)) == len(world.stored(MARKS)) == 4


async def test_ended_transactions_take_a_bit_each_until_the_log_has_them_no_more(world):
    ended = world.service._handlers[RequestCode.END_TRANSACTION].__self__._halves
    await end_many(world, 3)
    for queue_offset in range(10_000):
        ended.add(queue_offset)
    assert sorted(ended._pages) == [0, 1, 2]
    world.core.store.queues.get(HALF, 0).min_offset_cache = (world.core.store.min_offset, 9000)
    ended.add(12_288)
    assert sorted(ended._pages) == [2, 3]


async def test_open_half_messages_are_those_that_no_mark_names(world):
    ended = world.service._handlers[RequestCode.END_TRANSACTION].__self__._halves
    for queue_offset in range(20_000):
        if queue_offset not in (0, 4095, 4096, 9_000, 19_999):
            ended.add(queue_offset)
    assert list(ended.open_halves(0, 20_002)) == [0, 4095, 4096, 9_000, 19_999, 20_000, 20_001]
    assert list(ended.open_halves(1, 4096)) == [4095]
    assert list(ended.open_halves(4096, 4097)) == [4096]
    assert list(ended.open_halves(5, 5)) == []


async def test_a_commit_stores_the_message_in_its_topic(world):
    await send_half(world)
    fields = await send_half(world, 1)
    assert (await world.query("k1")).code == 22
    assert (await end(world, fields)).code == 0
    (record,) = world.stored("Orders", 2)
    half = world.stored(HALF)[1]
    assert (record.body, record.sys_flag) == (b"1", 8)
    assert record.prepared_transaction_offset == half.physical_offset
    assert record.born_host == half.born_host
    dropped = ("REAL_TOPIC", "REAL_QID")
    expected = {n: v for n, v in half_properties(half).items() if n not in dropped}
    assert list(half_properties(record).items()) == list(expected.items())
    found = records_of((await world.query("k1")).body)
    assert [each.physical_offset for each in found] == [record.physical_offset]


async def test_a_rollback_stores_nothing_but_its_mark(world):
    await send_half(world)
    fields = await send_half(world, 1)
    assert (await end(world, fields, commitOrRollback=ROLLBACK)).code == 0
    assert not world.stored("Orders", 2)
    (mark,) = world.stored(MARKS)
    assert (mark.body, half_properties(mark)["TAGS"]) == (b"1,", "d")


async def test_an_unknown_end_leaves_it_open(world):
    fields = await send_half(world)
    assert (await end(world, fields, commitOrRollback=UNKNOWN)).code == 0
    assert not world.stored(MARKS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"producerGroup": "others"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 2**62}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_of_another_message_is_refused(world, changes, words):
    fields = await send_half(world)
    answer = await end(world, fields, **changes)
    assert (answer.code, answer.remark) == (1, words)
    assert not world.stored("Orders", 2)


async def test_a_message_that_is_no_half_cannot_be_committed(world):
    sent = await world.send(properties=properties_of(PGROUP="producers"))
    fields = {"producerGroup": "producers", "tranStateTableOffset": 0}
    offset = int(sent.ext_fields["msgId"][16:], 16)
    answer = await end(world, fields, commitLogOffset=offset, commitOrRollback=COMMIT)
    assert answer.remark == "Find prepared transaction message failed"


async def test_a_delayed_half_message_is_delayed_from_its_commit_on(world):
    fields = await send_half(world, DELAY=2)
    await end(world, fields)
    (record,) = world.stored("SCHEDULE_TOPIC_XXXX", 1)
    assert half_properties(record)["REAL_TOPIC"] == "Orders"
    assert record.sys_flag == 8
