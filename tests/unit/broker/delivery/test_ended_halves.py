"""Which half messages were ended, by the marks that say so."""

import asyncio

import pytest

from rocketlens.broker.delivery import ended_halves
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, running
from tests.unit.broker.transactions import (
    HALF,
    MARKS,
    ROLLBACK,
    end,
    end_many,
    send_half,
)


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
    named_at = ended_halves._named_at

    def counted(log, physical_offset):
        found.append(physical_offset)
        return named_at(log, physical_offset)

    monkeypatch.setattr(ended_halves, "_named_at", counted)
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


@within(in_broker, "tmp_path")
async def test_ended_transactions_take_a_bit_each_until_the_log_has_them_no_more(world, /):
    ended = world.service._handlers[RequestCode.END_TRANSACTION].__self__._halves
    await end_many(world, 3)
    for queue_offset in range(10_000):
        ended.add(queue_offset)
    assert sorted(ended._pages) == [0, 1, 2]
    world.core.store.queues.get(HALF, 0).min_offset_cache = (world.core.store.min_offset, 9000)
    ended.add(12_288)
    assert sorted(ended._pages) == [2, 3]


@within(in_broker, "tmp_path")
async def test_open_half_messages_are_those_that_no_mark_names(world, /):
    ended = world.service._handlers[RequestCode.END_TRANSACTION].__self__._halves
    for queue_offset in range(20_000):
        if queue_offset not in (0, 4095, 4096, 9_000, 19_999):
            ended.add(queue_offset)
    assert list(ended.open_halves(0, 20_002)) == [0, 4095, 4096, 9_000, 19_999, 20_000, 20_001]
    assert list(ended.open_halves(1, 4096)) == [4095]
    assert list(ended.open_halves(4096, 4097)) == [4096]
    assert list(ended.open_halves(5, 5)) == []
