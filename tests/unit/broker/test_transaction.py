"""Half messages become messages once, or never."""

import asyncio
from dataclasses import replace

import pytest

from rocketlens.broker import ended as ended_halves
from rocketlens.model import properties as props
from rocketlens.wire.codes import RequestCode
from tests.unit.broker.broker_world import in_broker, properties_of, records_of, running

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
MARKS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


async def send_half(world, number=0, **named):
    sent = properties_of(
        UNIQ_KEY=f"{number:032X}", TRAN_MSG="true", PGROUP="producers", KEYS=f"k{number}", **named
    )
    answer = await world.send(body=b"%d" % number, e=2, f=4, properties=sent)
    return {
        "producerGroup": "producers",
        "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": int(answer.ext_fields["msgId"][16:], 16),
        "commitOrRollback": COMMIT,
        "transactionId": answer.ext_fields["transactionId"],
    }


async def end(world, fields, **changes):
    return await world.call(RequestCode.END_TRANSACTION, **(fields | changes))


def test_a_commit_stores_the_message_in_its_topic(tmp_path):
    async def test(world):
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

    in_broker(tmp_path, test)


def half_properties(record):
    return props.parse(record.properties.decode())


def test_a_rollback_stores_nothing_but_its_mark(tmp_path):
    async def test(world):
        await send_half(world)
        fields = await send_half(world, 1)
        assert (await end(world, fields, commitOrRollback=ROLLBACK)).code == 0
        assert not world.stored("Orders", 2)
        (mark,) = world.stored(MARKS)
        assert (mark.body, half_properties(mark)["TAGS"]) == (b"1,", "d")

    in_broker(tmp_path, test)


def test_an_unknown_end_leaves_it_open(tmp_path):
    async def test(world):
        fields = await send_half(world)
        assert (await end(world, fields, commitOrRollback=UNKNOWN)).code == 0
        assert not world.stored(MARKS)

    in_broker(tmp_path, test)


def test_an_end_that_comes_again_is_done_once_even_after_a_restart(tmp_path):
    async def main():
        async with running(tmp_path, listenPort=0) as world:
            fields = await send_half(world)
            for _ in range(2):
                assert (await end(world, fields)).code == 0
            assert (await end(world, fields, commitOrRollback=ROLLBACK)).code == 0
        async with running(tmp_path) as world:
            assert (await end(world, fields)).code == 0
            assert len(world.stored("Orders", 2)) == len(world.stored(MARKS)) == 1

    asyncio.run(main())


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
def test_an_end_of_another_message_is_refused(tmp_path, changes, words):
    async def test(world):
        fields = await send_half(world)
        answer = await end(world, fields, **changes)
        assert (answer.code, answer.remark) == (1, words)
        assert not world.stored("Orders", 2)

    in_broker(tmp_path, test)


def test_a_message_that_is_no_half_cannot_be_committed(tmp_path):
    async def test(world):
        sent = await world.send(properties=properties_of(PGROUP="producers"))
        fields = {"producerGroup": "producers", "tranStateTableOffset": 0}
        offset = int(sent.ext_fields["msgId"][16:], 16)
        answer = await end(world, fields, commitLogOffset=offset, commitOrRollback=COMMIT)
        assert answer.remark == "Find prepared transaction message failed"

    in_broker(tmp_path, test)


def test_a_delayed_half_message_is_delayed_from_its_commit_on(tmp_path):
    async def test(world):
        fields = await send_half(world, DELAY=2)
        await end(world, fields)
        (record,) = world.stored("SCHEDULE_TOPIC_XXXX", 1)
        assert half_properties(record)["REAL_TOPIC"] == "Orders"
        assert record.sys_flag == 8

    in_broker(tmp_path, test)


async def end_many(world, count, first=0):
    """Send and commit transactions; gives what each was ended with."""
    ended = []
    for number in range(first, first + count):
        fields = await send_half(world, number)
        assert (await end(world, fields)).code == 0
        ended.append(fields)
    return ended


@pytest.fixture
def marks_read(monkeypatch):
    """The physical offsets of the marks that are read."""
    found = []
    named_at = ended_halves._named_at

    def counted(log, physical_offset):
        found.append(physical_offset)
        return named_at(log, physical_offset)

    monkeypatch.setattr(ended_halves, "_named_at", counted)
    return found


def test_no_mark_is_read_for_transactions_of_after_the_start(tmp_path, marks_read):
    async def main():
        async with running(tmp_path) as world:
            await end_many(world, 30)
        async with running(tmp_path) as world:
            ended = await end_many(world, 5, first=30)
            for fields in ended:
                assert (await end(world, fields)).code == 0
            assert len(world.stored(MARKS)) == 35
        assert marks_read == []

    asyncio.run(main())


def test_only_marks_behind_a_half_message_are_read_and_each_once(tmp_path, marks_read, monkeypatch):
    monkeypatch.setattr(ended_halves, "MARKS_READ", 4)

    async def main():
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

    asyncio.run(main())


def test_ends_that_come_together_after_a_restart_are_done_once(tmp_path):
    async def main():
        async with running(tmp_path) as world:
            await end_many(world, 3)
            waits = await send_half(world, 3)
        async with running(tmp_path) as world:
            answers = await asyncio.gather(*(end(world, waits) for _ in range(8)))
            assert [answer.code for answer in answers] == [0] * 8
            assert len(world.stored("Orders", 2)) == len(world.stored(MARKS)) == 4

    asyncio.run(main())


def test_ended_transactions_take_a_bit_each_until_the_log_has_them_no_more(tmp_path):
    async def test(world):
        ended = world.service._handlers[RequestCode.END_TRANSACTION].__self__._ended
        await end_many(world, 3)
        (half, *_) = world.stored(HALF)
        for queue_offset in range(10_000):
            ended.add(replace(half, queue_offset=queue_offset))
        assert sorted(ended._pages) == [0, 1, 2]
        world.core.store.queues.get(HALF, 0).min_offset_cache = (world.core.store.min_offset, 9000)
        ended.add(replace(half, queue_offset=12_288))
        assert sorted(ended._pages) == [2, 3]

    in_broker(tmp_path, test)
