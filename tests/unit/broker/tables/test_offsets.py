"""Offsets as the broker keeps them: config/consumerOffset.json and delayOffset.json.

What a broker remembers of queues fits the log that is there, whatever became of that.

Which timers are delivered, as the file says; what happens with them is in test_timers.py.
"""

import asyncio
import errno
import shutil

import pytest

from rocketlens import limits
from rocketlens.broker.tables.offsets import (
    ConsumerOffsets,
    DelayOffsets,
    LogIdentity,
    format_checksums,
    is_another_log,
    parse_checksums,
)
from rocketlens.broker.tables.timer_progress import TimerProgress
from rocketlens.errors import BadInput, StoreFailed
from rocketlens.formats.timer_checkpoint import TimerCheckpoint
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.wire.codes import RequestCode
from tests.support.async_tests import within
from tests.support.broker_world import Clock as BrokerClock
from tests.support.broker_world import properties_of, running
from tests.support.written_stores import Clock, open_small, send_many


def test_offsets_are_kept_until_saved_and_forgotten_when_removed(tmp_path):
    layout = StoreLayout(tmp_path)
    offsets = ConsumerOffsets(layout, Disk(), Clock())
    offsets.put("g", "T", 0, 5)
    offsets.put("g", "U", 1, 6)
    assert ConsumerOffsets(layout, Disk(), Clock()).get("g", "T", 0) is None
    offsets.save()
    offsets = ConsumerOffsets(layout, Disk(), Clock())
    assert [offsets.get("g", "T", 0), offsets.get("g", "T", 1)] == [5, None]
    offsets.remove(group="g", topic="T")
    assert offsets.topics_of("g") == ["U"]
    offsets.remove(group="g")
    assert offsets.table == {}
    delays = DelayOffsets(layout, Disk(), Clock())
    delays.table[3] = 9
    delays.save()
    assert DelayOffsets(layout, Disk(), Clock()).table == {3: 9}


def test_offsets_that_would_not_be_read_back_are_refused(tmp_path, monkeypatch):
    offsets = ConsumerOffsets(StoreLayout(tmp_path), Disk(), Clock())
    monkeypatch.setattr(limits, "MAX_CONFIG_BYTES", 4000)
    for queue_id in range(20):
        offsets.put("g", "T", queue_id, 2**63 - 1)
    with pytest.raises(BadInput, match=r"consumerOffset\.json is full"):
        offsets.put("g2", "T" * 300, 0, 0)
    offsets.put("g", "T", 0, 1)
    offsets.save()
    assert (tmp_path / "config" / "consumerOffset.json").stat().st_size < 4000
    offsets.remove(group="g")
    offsets.put("g", "T", 0, 1)


def test_offsets_of_deleted_topics_take_no_room(tmp_path, monkeypatch):
    offsets = ConsumerOffsets(StoreLayout(tmp_path), Disk(), Clock())
    monkeypatch.setattr(limits, "MAX_CONFIG_BYTES", 4000)
    for number in range(100):
        topic = f"{number}" + "T" * 300
        offsets.put("g", topic, 0, 1)
        offsets.remove(topic=topic)
    assert offsets.table == {}


async def send_delayed(world, *bodies):
    for body in bodies:
        await world.send(body=body, e=1, properties=properties_of(DELAY=1))


def deliver(world):
    """Deliver what is due in a second, without waiting for the broker's own timer."""
    world.clock.now_ms += 1000
    return world.service._schedule.deliver_due(500)


async def commit(world, queue_offset):
    asked = {"consumerGroup": "readers", "topic": "Orders", "queueId": 0}
    world.core.groups.find("readers")
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    assert (await world.call(code, commitOffset=queue_offset, **asked)).code == 0


async def committed(world):
    asked = {"consumerGroup": "readers", "topic": "Orders", "queueId": 0}
    answer = await world.call(RequestCode.QUERY_CONSUMER_OFFSET, **asked)
    return int(answer.ext_fields["offset"])


def run_in(directory, *tests):
    """Run a broker for each test after another, on one store and with one clock."""

    async def main():
        clock = BrokerClock()
        for test in tests:
            if asyncio.iscoroutinefunction(test):
                async with running(directory, clock=clock) as world:
                    await test(world)
            else:
                test(directory / "store")

    asyncio.run(main())


def remove_log(store):
    shutil.rmtree(store / "commitlog")


def test_delayed_messages_are_delivered_after_the_log_was_removed(tmp_path):
    async def before(world):
        await send_delayed(world, *(b"old %d" % number for number in range(5)))
        assert deliver(world) == 5

    async def after(world):
        assert world.core.delay_offsets.table == {1: 0}
        sent = [b"new %d" % number for number in range(5)]
        await send_delayed(world, *sent)
        assert deliver(world) == 5
        assert [record.body for record in world.stored("Orders", 1)] == sent

    run_in(tmp_path, before, remove_log, after)


@within(run_in, "tmp_path")
async def test_a_delay_offset_behind_the_end_of_its_queue_is_corrected_while_the_broker_runs(
    world, /
):
    await send_delayed(world, b"first")
    world.core.delay_offsets.put(1, 7)
    assert deliver(world) == 0
    await send_delayed(world, b"second")
    assert deliver(world) == 1
    assert [record.body for record in world.stored("Orders", 1)] == [b"second"]


def test_a_log_that_lost_its_end_has_nothing_delivered_again(tmp_path):
    async def before(world):
        await send_delayed(world, b"0", b"1", b"2")
        assert deliver(world) == 3

    def keep(store):
        shutil.copytree(store, tmp_path / "kept")

    async def later(world):
        await send_delayed(world, b"3", b"4")
        assert deliver(world) == 2

    def restore(store):
        for name in ("commitlog", "consumequeue", "rocketlens"):
            shutil.rmtree(store / name)
            shutil.copytree(tmp_path / "kept" / name, store / name)

    async def after(world):
        assert deliver(world) == 0
        await send_delayed(world, b"5")
        assert deliver(world) == 1
        assert [record.body for record in world.stored("Orders", 1)] == [b"0", b"1", b"2", b"5"]

    run_in(tmp_path, before, keep, later, restore, after)


def test_waiting_messages_of_another_log_are_delivered(tmp_path):
    waiting = [b"other %d" % number for number in range(8)]

    async def other(world):
        await world.send(body=b"another log begins with this")
        await send_delayed(world, *waiting)

    async def before(world):
        await send_delayed(world, *(b"old %d" % number for number in range(5)))
        assert deliver(world) == 5

    def replace(store):
        for name in ("commitlog", "consumequeue"):
            shutil.rmtree(store / name)
        shutil.copytree(tmp_path / "other/store/commitlog", store / "commitlog")

    async def after(world):
        assert deliver(world) == 8
        assert [record.body for record in world.stored("Orders", 1)] == waiting
        assert deliver(world) == 0

    async def later(world):
        assert deliver(world) == 0

    run_in(tmp_path / "other", other)
    run_in(tmp_path / "this", before, replace, after, later)


def test_a_group_reads_what_is_sent_after_the_log_was_removed(tmp_path):
    async def before(world):
        for number in range(5):
            await world.send(body=b"%d" % number)
        await commit(world, 5)

    async def after(world):
        await world.send(body=b"new")
        assert await committed(world) == 0

    run_in(tmp_path, before, remove_log, after)


def test_a_group_reads_all_of_another_log(tmp_path):
    async def send_ten(world):
        for number in range(10):
            await world.send(body=b"%d" % number)

    async def before(world):
        await world.send(body=b"this log begins with this", topic="Others")
        await send_ten(world)
        await commit(world, 5)

    def replace(store):
        for name in ("commitlog", "consumequeue"):
            shutil.rmtree(store / name)
        shutil.copytree(tmp_path / "other/store/commitlog", store / "commitlog")

    async def after(world):
        assert await committed(world) == 0
        await commit(world, 3)

    async def later(world):
        assert await committed(world) == 3

    run_in(tmp_path / "other", send_ten)
    run_in(tmp_path / "this", before, replace, after, later)


def test_offsets_within_the_queues_of_the_same_log_stay_as_they_are(tmp_path):
    async def before(world):
        for number in range(5):
            await world.send(body=b"%d" % number)
        await commit(world, 2)

    async def after(world):
        assert await committed(world) == 2
        assert not world.core.offsets.is_changed

    run_in(tmp_path, before, after, after)


def test_a_log_that_grew_or_lost_its_oldest_segments_is_the_same(tmp_path):
    with open_small(tmp_path) as store:
        identity = LogIdentity(tmp_path / "commitlog")
        assert identity.checksums() == {}
        send_many(store, 200)
        before = identity.checksums()
        assert len(before) > 1
        send_many(store, 200, first=200)
        oldest = tmp_path / "commitlog" / f"{0:020}"
        oldest.unlink()
        after = identity.checksums()
        assert after == LogIdentity(tmp_path / "commitlog").checksums()
        assert len(after) > len(before) - 1
    assert not is_another_log(before, after)


def test_a_log_of_other_messages_is_another(tmp_path):
    found = []
    for name in ("one", "two"):
        with open_small(tmp_path / name) as store:
            send_many(store, 200, first=len(found))
            found.append(LogIdentity(tmp_path / name / "commitlog").checksums())
    assert is_another_log(*found)


def test_logs_that_share_no_segment_may_be_the_same():
    assert not is_another_log({0: 1}, {16_384: 1})
    assert not is_another_log({}, {0: 1})
    assert not is_another_log({0: 1, 16_384: 2}, {0: 1, 16_384: 3})


def test_checksums_are_parsed_as_they_were_formatted():
    checksums = {0: 7, 16_384: 2**32 - 1}
    assert parse_checksums(format_checksums(checksums)) == checksums
    for other in (None, 3, [1], {"0": 1}, "", "x:y"):
        assert parse_checksums(other) == {}


def test_offsets_are_not_written_without_their_log_when_that_cannot_be_read(tmp_path, monkeypatch):
    with open_small(tmp_path) as store:
        send_many(store, 10)
    layout = StoreLayout(tmp_path)
    identity = LogIdentity(layout.commit_log)
    consumers = ConsumerOffsets(layout, Disk(), Clock())
    delays = DelayOffsets(layout, Disk(), Clock())
    consumers.log_checksums = delays.log_checksums = identity.checksums
    consumers.put("G", "Orders", 0, 3)
    delays.put(1, 3)

    def refuse(path, _):
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(fs, "read_bytes", refuse)
        for table in (consumers, delays):
            with pytest.raises(OSError, match="Too many open files"):
                table.save()
            assert table.is_changed
    assert not any(layout.config.glob("*ffset.json"))
    for table in (consumers, delays):
        table.save()
    assert ConsumerOffsets(layout, Disk(), Clock()).log == identity.checksums() != {}
    assert DelayOffsets(layout, Disk(), Clock()).log == identity.checksums()


NOW_MS = 1_700_000_000_000


def open_progress(root, delivered=lambda: None, log_checksums=dict):
    return TimerProgress(StoreLayout(root), Disk(), lambda: NOW_MS, delivered, log_checksums)


def save(progress, *, oldest_waiting=None, oldest_late=None):
    """Write the progress; nothing waits but what is said."""
    waiting = progress.queue_offset if oldest_waiting is None else oldest_waiting
    progress.oldest = lambda: (waiting, oldest_late)
    progress.snapshot()()


def written(root, content):
    path = StoreLayout(root).config / "timercheck"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_what_was_written_is_read_again(tmp_path):
    progress = open_progress(tmp_path, log_checksums=lambda: {0: 1, 1024: 77})
    progress.next_queue_offset = 9
    progress.advance(NOW_MS, 5)
    save(progress, oldest_waiting=3)
    again = open_progress(tmp_path)
    assert (again.read_time_ms, again.second_queue_offset) == (NOW_MS, 5)
    assert (again.next_queue_offset, again.queue_offset) == (9, 3)
    assert again.log == {1024: 77}
    assert again.is_delivered(8, NOW_MS - 1000)
    assert again.is_delivered(4, NOW_MS)
    assert not again.is_delivered(5, NOW_MS)
    assert not again.is_delivered(0, NOW_MS + 1000)


def test_it_never_goes_back_but_after_a_clock_did(tmp_path):
    progress = open_progress(tmp_path)
    progress.advance(NOW_MS, 5)
    progress.advance(NOW_MS - 1000, 9)
    progress.advance(NOW_MS, 0)
    assert (progress.read_time_ms, progress.second_queue_offset) == (NOW_MS, 5)
    progress.set_back(NOW_MS - 1000)
    assert progress.read_time_ms == NOW_MS
    progress.set_back(NOW_MS - 2000)
    assert (progress.read_time_ms, progress.second_queue_offset) == (NOW_MS - 2000, 0)


def test_what_is_late_is_read_again_after_a_restart(tmp_path):
    progress = open_progress(tmp_path)
    progress.next_queue_offset = 9
    save(progress, oldest_waiting=2, oldest_late=4)
    again = open_progress(tmp_path)
    assert (again.next_queue_offset, again.queue_offset) == (4, 2)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 4096, b"\x7f" * 4096])
def test_damage_makes_it_begin_anew_and_it_can_be_written(tmp_path, content):
    written(tmp_path, content)
    progress = open_progress(tmp_path)
    assert progress.read_time_ms <= NOW_MS
    assert progress.queue_offset == 0
    progress.fit_to_queue(2, 5)
    assert 2 <= progress.queue_offset <= progress.next_queue_offset <= 5
    save(progress)
    assert open_progress(tmp_path).queue_offset == progress.queue_offset


def test_of_a_file_of_rocketmq_a_time_ahead_of_the_clock_is_not_believed(tmp_path):
    theirs = TimerCheckpoint(NOW_MS + 60_000, 0, 7, 7)
    written(tmp_path, theirs.encode()[:56].ljust(4096, b"\0"))
    progress = open_progress(tmp_path)
    assert (progress.read_time_ms, progress.next_queue_offset) == (NOW_MS, 7)
    assert progress.queue_offset == 0


def test_nothing_is_written_before_what_was_delivered_is_durable(tmp_path):
    def fail():
        raise StoreFailed("no disk")

    progress = open_progress(tmp_path, fail)
    with pytest.raises(StoreFailed):
        save(progress)
    assert not progress.path.exists()


def test_what_rocketmq_derived_is_removed_only_once_the_file_is_there(tmp_path):
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerwheel").write_bytes(b"wheel")

    class Full(Disk):
        def write_durably(self, path, content):
            raise OSError(28, "full", f"{path}: {len(content)} bytes")

    progress = TimerProgress(StoreLayout(tmp_path), Full(), lambda: NOW_MS, lambda: None)
    with pytest.raises(OSError, match="full"):
        save(progress)
    assert (tmp_path / "timerlog").exists()
    assert (tmp_path / "timerwheel").exists()
    save(open_progress(tmp_path))
    assert not (tmp_path / "timerlog").exists()
    assert not (tmp_path / "timerwheel").exists()
