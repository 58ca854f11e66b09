"""Answers that wait for the disk."""

import asyncio

from rocketlens.errors import StoreFailed
from rocketlens.wire.codes import ResponseCode
from tests.support.async_tests import within
from tests.support.broker_world import in_broker, properties_of


@within(in_broker, "tmp_path", flushDiskType="SYNC_FLUSH")
async def test_with_sync_flush_an_answer_comes_when_the_message_is_on_the_disk(world, /):
    store = world.core.store
    answers = await asyncio.gather(*(world.send() for _ in range(20)))
    assert {answer.code for answer in answers} == {0}
    assert store.flushed_offset == store.end_offset


@within(in_broker, "tmp_path", flushDiskType="SYNC_FLUSH", syncFlushTimeout=1)
async def test_with_sync_flush_a_slow_disk_is_told_and_a_failed_one_refuses(world, /):
    core = world.core
    core.replies._when_durable = lambda *_: None
    late = await world.send()
    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert late.ext_fields["queueOffset"] == "0"
    assert (await world.send(properties=properties_of(WAIT="false"))).code == 0
    core.replies._when_durable = lambda _, waiter: waiter(StoreFailed("the disk is gone"))
    failed = await world.send()
    assert (failed.code, failed.remark) == (14, "the disk is gone")
