"""What a tap copies, acknowledges and keeps, and what its copy lacks."""

import asyncio
import errno
import random

import pytest

import rocketlens
from rocketlens.errors import BadInput, CopyFailed
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.tap_note import read_tap_note
from rocketlens.tap import follower
from rocketlens.tap.follower import MAX_REPLACED_PAUSE_S
from rocketlens.tap.service import Tap, TapOptions
from rocketlens.wire.codes import RequestCode
from tests.support.fake_master import followed
from tests.support.written_stores import content_of, open_small, send_many
from tests.unit.tap.tapping import (
    SEGMENT,
    assert_copied,
    log_of,
    master_of,
    reaches,
    start,
    tapped,
    tapping,
    until,
)


async def test_the_copy_is_the_masters_store(original, tmp_path):
    path, log = original
    async with tapped(tmp_path, log) as (master, tap):
        await master.acknowledged(len(log))
        await until((tmp_path / "broker-a/config/consumerOffset.json").exists)
        assert not tap.problems()
    copy = tmp_path / "broker-a"
    for names in (("commitlog", "consumequeue"), ("index",)):
        copied, made = content_of(copy, *names), content_of(path, *names)
        # Index files are named by the time they were made.
        assert sorted(copied.values()) == sorted(made.values())
        assert names == ("index",) or copied == made
    assert (copy / "config/consumerOffset.json").read_bytes() == b'{"offsetTable":{"T@g":{0:7}}}'
    with rocketlens.open_store(copy) as reader:
        answer = reader.find("k123", topic="Orders")
        assert answer.complete
        assert len(answer.messages) == 1


async def test_a_cut_stream_and_dropped_connections_cost_nothing(original, tmp_path):
    path, log = original
    master = master_of(log[:20_000])
    master.cuts, master.drops_after = True, 7_000
    async with followed(master) as address, tapping(address, tmp_path) as tap:
        while len(master.log) < len(log):
            master.append(log[len(master.log) :][: master.rng.randrange(1, 3_000)])
            await asyncio.sleep(0)
        await reaches(tap, len(log))
        assert len(master.starts) > 5
    assert_copied(tmp_path / "broker-a", path, "consumequeue")


async def test_it_goes_on_where_it_was_after_either_side_was_killed(original, tmp_path):
    path, log = original
    rng = random.Random(5)
    for length in (3_000, 20_000, 20_000, 40_000, 60_000, len(log)):
        async with followed(master_of(log[:length])) as address:
            tap = Tap(address, TapOptions(tmp_path))
            await tap.start()
            await reaches(tap, rng.randrange(length))
            for task in tap._tasks:
                task.cancel()
            await asyncio.wait(tap._tasks)
            for one in tap.followers:
                await one.close(abruptly=True)
            await tap._cluster.close()
    async with tapped(tmp_path, log) as (master, _):
        await master.acknowledged(len(log))
    assert_copied(tmp_path / "broker-a", path, "consumequeue")


async def test_only_what_is_synced_is_acknowledged(log, tmp_path):
    async with tapped(tmp_path, log) as (master, tap):
        store = tap.followers[0].copy.store
        flush, may_sync = store._durability.flush_log, asyncio.Event()
        loop = asyncio.get_running_loop()
        await master.acknowledged(len(log))
        assert store.flushed_offset == len(log)
        # From now on nothing is synced until it may be.
        store._durability._flusher._flush = lambda: (
            asyncio.run_coroutine_threadsafe(may_sync.wait(), loop).result(),
            flush(),
        )
        store._durability._saver.stop()
        more = bytearray(log[:200])
        size = int.from_bytes(log[:4])
        more[28:36] = len(log).to_bytes(8)
        master.append(bytes(more[:size]))
        await reaches(tap, len(log) + size)
        count = len(master.reports)
        await until(lambda: len(master.reports) > count + 3)
        assert max(master.reports) == len(log)
        may_sync.set()
        await master.acknowledged(len(log) + size)


async def test_without_acknowledging_only_the_first_offset_is_repeated(log, tmp_path):
    async with tapped(tmp_path, log, acknowledges=False) as (master, tap):
        await reaches(tap, len(log))
        await until(lambda: len(master.reports) > 10)
        assert set(master.reports) == {1}


async def test_a_gap_that_comes_while_it_is_connected_is_passed(log, tmp_path):
    async with tapped(tmp_path, log[: SEGMENT // 2]) as (master, tap):
        await reaches(tap, SEGMENT // 2 - 1_000)
        master.log, master.min_offset = log[2 * SEGMENT :], 2 * SEGMENT
        await master.acknowledged(len(log))
        assert len(tap.followers[0].copy.note.gaps) == 1


async def test_what_comes_while_the_master_answers_does_not_make_it_another_log(tmp_path, log):
    async with tapped(tmp_path, log[:20_000]) as (master, tap):

        async def grow():
            master.append(log[len(master.log) :][:4_000])
            await reaches(tap, len(master.log) - 1_000)

        master.before_it_answers = grow
        await reaches(tap, len(log))
    assert [each.name for each in tmp_path.iterdir()] == ["broker-a"]


async def test_a_log_that_is_replaced_while_it_is_connected_is_noticed(tmp_path, log):
    async with tapped(tmp_path, log) as (master, tap):
        await master.acknowledged(len(log))
        master.log = log[:5_000]
        await until((tmp_path / "broker-a.replaced-0001").is_dir)
        await until(lambda: tap.followers[0].copy.store is not None)
        await reaches(tap, 4_000)


async def test_a_master_that_sends_nothing_of_what_it_should_have_is_told(tmp_path, log):
    async with tapped(tmp_path, log) as (master, tap):
        await master.acknowledged(len(log))
        master.is_mute = True
        master.drop()
        await until(lambda: any("did not send its log" in one for one in tap.problems()))
        master.is_mute = False
        master.drop()
        await until(lambda: not tap.problems())


@pytest.mark.parametrize(
    ("begin", "at"),
    [("earliest", SEGMENT), ("latest", 5 * SEGMENT), (2 * SEGMENT + 100, 2 * SEGMENT)],
)
async def test_a_new_copy_begins_where_it_was_told(tmp_path, log, begin, at):
    assert 5 * SEGMENT < len(log) < 6 * SEGMENT
    async with tapped(tmp_path, log, min_offset=SEGMENT, begin=begin) as (master, tap):
        await master.acknowledged(len(log))
        assert tap.followers[0].copy.store.min_offset == at
    copy = tmp_path / "broker-a"
    assert log_of(copy, at, len(log)) == log[at:]
    with rocketlens.open_store(copy) as reader:
        assert reader.find("k19", topic="Other").complete
    assert read_tap_note(StoreLayout(copy)).begin_offset == at


@pytest.mark.parametrize("begin", [5, 10_000_000])
async def test_an_offset_that_the_master_does_not_have_is_refused(tmp_path, log, begin):
    master = master_of(log, SEGMENT)
    async with followed(master) as address:
        with pytest.raises(BadInput, match=f"--from {begin}"):
            await start(address, tmp_path, begin=begin)
    assert not (tmp_path / "broker-a" / "commitlog").exists()


async def test_metrics_and_status_tell_how_many_bytes_and_seconds_a_copy_is_behind(tmp_path, log):
    async with tapped(tmp_path, log[:20_000]) as (master, tap):
        copy = tap.followers[0].copy
        await until(lambda: copy.store.received_offset == 20_000)
        master.is_mute = True
        master.log = log
        behind_bytes = len(log) - copy.store.position
        await until(lambda: copy.note.behind_bytes == behind_bytes)
        metrics = {one.name: one.samples[0].value for one in await tap.metrics()}
        assert metrics["rocketlens_tap_behind_bytes"] == behind_bytes
        last_ms = copy.store.last_appended.store_timestamp_ms
        seconds = (copy.note.written_ms - last_ms) / 1000
        assert metrics["rocketlens_tap_behind_seconds"] == seconds > 0
    with rocketlens.open_store(tmp_path / "broker-a") as reader:
        status = reader.status().tap
    assert status.behind_bytes == behind_bytes
    assert status.behind_ms > 0


async def test_a_copy_that_cannot_be_put_aside_is_when_it_can(tmp_path, log, monkeypatch):
    refused = []

    def refuse(disk, path, target):
        if len(refused) < 3:
            refused.append(target)
            raise OSError(errno.EACCES, "Permission denied", str(target))
        real(disk, path, target)

    real = Disk.move
    monkeypatch.setattr(Disk, "move", refuse)
    async with tapped(tmp_path, log) as (master, tap):
        await master.acknowledged(len(log))
        master.log = log[:5_000]
        await until(lambda: any("cannot be moved aside" in one for one in tap.problems()))
        await until((tmp_path / "broker-a.replaced-0001").is_dir)
        await until(lambda: tap.followers[0].copy.store is not None)
        await reaches(tap, 4_000)
        assert tap.failure is None
    assert log_of(tmp_path / "broker-a.replaced-0001", 0, len(log)) == log


async def test_a_table_that_is_refused_does_not_keep_the_others_waiting(tmp_path, log, caplog):
    master = master_of(log)
    master.refused.add(RequestCode.GET_ALL_CONSUMER_OFFSET)
    async with followed(master) as address, tapping(address, tmp_path) as tap:
        await until((tmp_path / "broker-a/config/subscriptionGroup.json").exists)
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        count = master.codes().count(code)
        await until(lambda: master.codes().count(code) > count + 3)
        assert not tap.problems()
    assert not (tmp_path / "broker-a/config/consumerOffset.json").exists()
    # Once, and not at every try.
    assert caplog.text.count("its tables are not copied") == 1


async def test_a_copy_that_is_larger_than_it_may_be_loses_its_oldest_files(tmp_path, log):
    async with tapped(tmp_path, log, retention_bytes=2 * SEGMENT) as (master, tap):
        await master.acknowledged(len(log))
        await until(lambda: tap.followers[0].copy.store.min_offset == 4 * SEGMENT)
    with rocketlens.open_store(tmp_path / "broker-a") as reader:
        assert reader.find("k19", topic="Other").complete


async def test_a_full_disk_stops_the_stream_until_there_is_room(tmp_path, original):
    path, log = original
    async with tapped(tmp_path, log[:10_000]) as (master, tap):
        await reaches(tap, 9_000)
        store = tap.followers[0].copy.store
        room = store._copy._reserve
        real_segment = store._copy._new_segment

        def no_room(*_):
            raise OSError(28, "No space left on device")

        store._copy._reserve = store._copy._new_segment = no_room
        master.append(log[10_000:])
        await until(lambda: any("disk is full" in one for one in tap.problems()))
        assert store.position < 2 * SEGMENT
        store._copy._reserve, store._copy._new_segment = room, real_segment
        await master.acknowledged(len(log))
        await until(lambda: not tap.problems())
    assert_copied(tmp_path / "broker-a", path)


@pytest.mark.parametrize("is_down", [False, True])
async def test_files_expire_so_long_after_they_were_copied(tmp_path, log, is_down):
    async with tapped(tmp_path, log, retention_hours=1) as (master, tap):
        await master.acknowledged(len(log))
        store = tap.followers[0].copy.store
        assert store.min_offset == 0
        if is_down:
            await master.die()
            await until(tap.problems)
        now_ms = store._cleaner.clock
        store._cleaner.clock = lambda: now_ms() + 2 * 3_600_000
        await until(lambda: store.min_offset == 5 * SEGMENT)
        if is_down:
            await master.start()
    with rocketlens.open_store(tmp_path / "broker-a") as reader:
        assert reader.find("k19", topic="Other").complete


async def has_other_log(tap, length, count):
    """Wait until the copy is longer than a log will be, after so many were put aside."""
    copy = tap.followers[0].copy
    await until(
        lambda: len(copy.replaced_copies()) == count and copy.store and copy.store.position > length
    )


async def test_a_master_that_keeps_changing_is_waited_for_and_only_so_many_copies_are_kept(
    tmp_path, log, monkeypatch
):
    monkeypatch.setattr("rocketlens.tap.copy_log.MAX_REPLACED_COPIES", 3)
    async with tapped(tmp_path, log) as (master, tap):
        for number, length in enumerate((80_000, 60_000, 40_000, 20_000)):
            await has_other_log(tap, length, number)
            master.log = log[:length]
        await until(lambda: any("3 copies of earlier logs" in one for one in tap.problems()))
        assert tap.failure is None
    aside = sorted(each.name for each in tmp_path.iterdir())
    assert aside == ["broker-a", *(f"broker-a.replaced-{number:04}" for number in (1, 2, 3))]
    pauses = [follower.replaced_pause_s(number) for number in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_REPLACED_PAUSE_S


async def test_copies_put_aside_have_no_more_bytes_than_a_copy_may_have(tmp_path, log):
    async with tapped(tmp_path, log, retention_bytes=SEGMENT) as (master, tap):
        await has_other_log(tap, 40_000, 0)
        master.log = log[:40_000]
        await has_other_log(tap, 20_000, 1)
        master.log = log[:20_000]
        await until(lambda: any("bytes of copies" in one for one in tap.problems()))


async def test_what_the_master_deleted_before_it_was_copied_is_a_named_gap(log, tmp_path):
    async with tapped(tmp_path, log[: SEGMENT + 3_000]) as (master, tap):
        await master.acknowledged(tap.followers[0].copy.store.end_offset)
        await reaches(tap, SEGMENT + 2_000)
        before = tap.followers[0].copy.store.position
    async with tapped(tmp_path, log, min_offset=3 * SEGMENT) as (later, tap):
        await later.acknowledged(len(log))
        (gap,) = tap.followers[0].copy.note.gaps
        assert gap[:2] == (before, 3 * SEGMENT)
    copy = tmp_path / "broker-a"
    said = f"physical offsets {before} to {3 * SEGMENT}: the broker deleted them before they"
    with rocketlens.open_store(copy) as reader:
        for answer in (
            reader.find("k20", topic="Orders"),
            reader.find(topic="Orders"),
            reader.find("nothing", topic="Orders"),
        ):
            assert not answer.complete
            assert any(said in (one.error or "") for one in answer.coverage)
        assert reader.find("k20", topic="Orders").messages
        assert reader.find("k399", topic="Orders").messages
        status = reader.status()
        assert status.tap.gaps == ((before, 3 * SEGMENT),)
        (last,) = reader.find("k399", topic="Orders").messages
        same = reader.find(f"Orders/{last.queue_id}/{last.queue_offset}")
        assert [one.keys for one in same.messages] == [last.keys]
    # Nothing was put into the gap.
    first = log_of(copy, SEGMENT, 2 * SEGMENT)
    assert first == log[SEGMENT:before] + bytes(2 * SEGMENT - before)
    assert not (copy / "commitlog" / f"{2 * SEGMENT:020}").exists()


async def test_a_store_that_is_no_copy_is_never_written(tmp_path, log):
    with open_small(tmp_path / "broker-a") as store:
        send_many(store, 3)
    before = content_of(tmp_path / "broker-a")
    async with followed(master_of(log)) as address:
        with pytest.raises(CopyFailed, match="has a store that is not a copy"):
            await start(address, tmp_path)
    assert content_of(tmp_path / "broker-a") == before


async def test_a_master_without_a_log_is_followed_from_its_first_message_on(tmp_path, original):
    path, log = original
    master = master_of(b"")
    master.said_min_offset = -1
    async with followed(master) as address, tapping(address, tmp_path) as tap:
        assert not tap.problems()
        master.append(log)
        master.said_min_offset = None
        await master.acknowledged(len(log))
    assert_copied(tmp_path / "broker-a", path)


@pytest.mark.parametrize("how", ["other bytes", "shorter"])
async def test_the_copy_of_a_log_that_was_replaced_is_kept_aside_and_named(tmp_path, log, how):
    with open_small(tmp_path / "other") as store:
        send_many(store, 500 if how == "other bytes" else 20, first=9_000)
        end = store.end_offset
    other = log_of(tmp_path / "other", 0, end)
    home = tmp_path / "home"
    async with tapped(home, log) as (master, _):
        await master.acknowledged(len(log))
    async with tapped(home, other) as (master, tap):
        await master.acknowledged(len(other))
        assert tap.followers[0].copy.note.replaced == ("broker-a.replaced-0001",)
    assert log_of(home / "broker-a", 0, end) == other
    assert log_of(home / "broker-a.replaced-0001", 0, len(log)) == log
    with rocketlens.open_store(home / "broker-a") as reader:
        answer = reader.find("k20", topic="Orders")
        assert not answer.messages
        assert not answer.complete
        aside = str(home / "broker-a.replaced-0001")
        assert any(aside in (one.error or "") for one in answer.coverage)
    with rocketlens.open_store(home / "broker-a.replaced-0001") as reader:
        assert reader.find("k20", topic="Orders").messages
