"""Delayed messages come when they are due, each once, as copies with values of their own."""

import asyncio
import errno

import pytest

from rocketlens.broker.delivery.schedule import Schedule
from rocketlens.errors import StoreFailed, StoreFull
from rocketlens.formats.consumequeue_entry import ENTRY
from rocketlens.store.read.log.commitlog import SegmentLost
from tests.support.broker_world import NOW_MS, Clock, properties_of, running
from tests.support.patience import PATIENCE_S


def deliver(world):
    """Deliver what is due, without waiting for the broker's own timer."""
    return world.service._schedule.deliver_due(500)


async def send_delayed(world, body, level, **named):
    await world.send(body=body, e=1, properties=properties_of(DELAY=level, **named))


async def test_a_message_comes_when_it_is_due_and_not_before(world):
    await send_delayed(world, b"soon", 1, KEYS="k")
    await send_delayed(world, b"later", 3)
    assert (await world.query("k")).code == 22
    world.clock.now_ms = NOW_MS + 999
    assert deliver(world) == 0
    world.clock.now_ms = NOW_MS + 1000
    assert deliver(world) == 1
    world.clock.now_ms = NOW_MS + 10_000
    assert deliver(world) == 1
    assert [record.body for record in world.stored("Orders", 1)] == [b"soon", b"later"]
    assert (await world.query("k")).code == 0


async def test_it_is_stored_again_with_its_properties_as_they_were(world):
    await send_delayed(world, b"body", 1)
    world.clock.now_ms += 1000
    deliver(world)
    (record,), (waited,) = world.stored("Orders", 1), world.stored("SCHEDULE_TOPIC_XXXX")
    assert record.properties == waited.properties
    assert record.born_host == waited.born_host
    assert record.born_timestamp_ms == waited.born_timestamp_ms
    assert record.store_timestamp_ms == NOW_MS + 1000


async def test_a_restart_goes_on_where_it_was(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        for number in range(3):
            await send_delayed(world, b"%d" % number, 1)
            clock.now_ms += 1000
        assert deliver(world) == 3
        await send_delayed(world, b"3", 1)
    clock.now_ms += 1000
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == 1
        assert [each.body for each in world.stored("Orders", 1)] == [b"0", b"1", b"2", b"3"]


async def test_how_far_it_came_is_on_the_disk_soon_after_and_a_kill_delivers_nothing_again(
    tmp_path,
):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        await send_delayed(world, b"once", 1)
        clock.now_ms += 1000
        world.service._deliver()
        # Not before the disk has what was delivered, and a busy one takes its time.
        async with asyncio.timeout(PATIENCE_S):
            while world.core.delay_offsets.is_changed:
                await world.core.saver.save(world.core.delay_offsets)
                await asyncio.sleep(0)
        await world.service.close_abruptly()
    async with running(tmp_path, clock=clock) as world:
        assert deliver(world) == 0
        assert [each.body for each in world.stored("Orders", 1)] == [b"once"]


@pytest.mark.broker(flushIntervalCommitLog=3_600_000)
async def test_how_far_it_came_is_never_on_the_disk_before_what_was_delivered(world):
    await send_delayed(world, b"body", 1)
    world.clock.now_ms += 1000
    world.core.store._durability.group_commit.fail(StoreFailed("no disk"))
    assert deliver(world) == 1
    await world.core.saver.save(world.core.delay_offsets)
    assert not (world.core.store.layout.config / "delayOffset.json").exists()
    assert world.core.delay_offsets.is_changed


async def test_many_that_are_due_come_in_steps(world):
    for number in range(600):
        await send_delayed(world, b"%d" % number, 1)
    world.clock.now_ms += 1000
    assert [deliver(world), deliver(world), deliver(world)] == [500, 100, 0]


async def test_a_message_of_a_clock_that_was_ahead_comes_now(world):
    world.clock.now_ms = NOW_MS + 86_400_000
    await send_delayed(world, b"ahead", 1)
    world.clock.now_ms = NOW_MS
    assert deliver(world) == 1


async def test_a_delay_whose_queue_entry_has_no_time_is_that_of_its_record_and_level(world):
    await send_delayed(world, b"body", 1)
    queue = world.core.store.queues.get("SCHEDULE_TOPIC_XXXX", 0)
    # As RocketMQ writes it with enableConsumeQueueExt: an address of another file.
    ENTRY.pack_into(queue.content, 0, *queue.entry(0)[:2], -(2**63))
    world.clock.now_ms = NOW_MS + 999
    assert deliver(world) == 0
    world.clock.now_ms = NOW_MS + 1000
    assert deliver(world) == 1


async def test_with_a_full_disk_delayed_messages_wait(world):
    await send_delayed(world, b"body", 1)
    world.clock.now_ms += 1000
    world.core.store._appender.refusal = StoreFull("full")
    assert deliver(world) == 0
    world.core.store._appender.refusal = None
    assert deliver(world) == 1


async def test_that_delayed_messages_wait_is_a_line_when_it_begins_and_one_when_it_is_over(
    world, caplog
):
    await send_delayed(world, b"body", 1)
    world.clock.now_ms += 1000
    world.core.store._appender.refusal = StoreFull("full")
    assert [deliver(world) for _ in range(10)] == [0] * 10
    assert words_of(caplog) == ["delayed messages of level 1 wait: full"]
    world.core.store._appender.refusal = None
    assert deliver(world) == 1
    assert words_of(caplog)[1].startswith("delayed messages of level 1 are delivered again; ")
    assert len(words_of(caplog)) == 2


def words_of(caplog):
    """Return the lines about messages that wait."""
    return [each for each in caplog.messages if each.startswith("delayed messages")]


def schedule_of(core):
    levels = core.settings.store.messageDelayLevel
    return Schedule(core.store, core.copies, core.delay_offsets, core.clock, levels)


async def test_a_message_whose_real_topic_cannot_be_is_skipped(world, caplog):
    store, core = world.core.store, world.core
    for topic, queue_id in (("../x", "0"), ("Orders", "-1"), ("RMQ_SYS_TRANS_HALF_TOPIC", "0")):
        named = properties_of(DELAY=1, REAL_TOPIC=topic, REAL_QID=queue_id).encode()
        arguments = ("SCHEDULE_TOPIC_XXXX", 0, b"", named, core.store_host)
        store.append(*arguments, born_timestamp_ms=NOW_MS)
    world.clock.now_ms += 1000
    end = store.end_offset
    assert schedule_of(core).deliver_due(500) == 3
    assert store.end_offset == end
    assert "is skipped" in caplog.text


async def test_messages_of_a_level_that_the_configuration_has_no_more_are_delivered(tmp_path):
    clock = Clock()
    async with running(tmp_path, clock=clock) as world:
        await send_delayed(world, b"waits", 3)
    clock.now_ms += 10_000
    async with running(tmp_path, clock=clock, messageDelayLevel="1s 5s") as world:
        assert deliver(world) == 1
        assert [record.body for record in world.stored("Orders", 1)] == [b"waits"]


async def test_a_read_that_failed_has_no_delayed_message_delivered_twice(world):
    for number in range(4):
        await send_delayed(world, b"%d" % number, 1)
    world.clock.now_ms += 1000
    schedule, store, whole = schedule_of(world.core), world.core.store, world.core.store.record
    reads = []

    def record(*arguments):
        reads.append(arguments)
        if len(reads) == 3:
            raise SegmentLost(
                store._log.list_segments()[0], OSError(errno.EMFILE, "Too many files")
            )
        return whole(*arguments)

    store.record = record
    assert schedule.deliver_due(500) == 2
    assert schedule.deliver_due(500) == 2
    queues = [world.stored("Orders", queue_id) for queue_id in range(4)]
    assert sorted(one.body for queue in queues for one in queue) == [b"0", b"1", b"2", b"3"]


KEYS = properties_of(KEYS="k1")


async def test_a_copy_has_the_values_of_its_message_and_counts_as_one(world):
    await world.send("Orders", b"paid", KEYS, h=7)
    [record], total = world.stored("Orders"), world.core.stats.put_total
    world.core.copies.write(record, "Others", 2)
    [copy] = world.stored("Others", 2)
    assert (copy.topic, copy.queue_id, copy.body) == ("Others", 2, b"paid")
    for name in ("properties", "born_timestamp_ms", "born_host", "flag", "sys_flag"):
        assert getattr(copy, name) == getattr(record, name)
    assert (copy.reconsume_times, copy.prepared_transaction_offset) == (0, 0)
    assert world.core.stats.put_total == total + 1


async def test_a_copy_has_the_values_that_are_given(world):
    await world.send("Orders", b"paid", KEYS)
    [record] = world.stored("Orders")
    world.core.copies.write(
        record,
        "Others",
        0,
        {"TAGS": "late"},
        sys_flag=8,
        reconsume_times=3,
        prepared_transaction_offset=41,
    )
    [copy] = world.stored("Others")
    assert copy.properties == properties_of(TAGS="late").encode()
    assert (copy.sys_flag, copy.reconsume_times) == (8, 3)
    assert copy.prepared_transaction_offset == 41
