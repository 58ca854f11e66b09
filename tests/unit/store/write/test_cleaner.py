"""What is old goes, oldest first, and whoever reads it meanwhile reads on."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import rocketlens
from rocketlens.errors import StoreFull
from rocketlens.store.disk import Disk
from rocketlens.store.write import cleaner
from rocketlens.store.write.cleaner import SegmentAge
from rocketlens.store.write.config import StoreConfig
from tests.support.written_stores import SMALL, Clock, open_small, send, send_many

FILE = 4_096
HOUR_MS = 3_600_000
FOUR_O_CLOCK = int(datetime(2024, 5, 6, 4, 30).astimezone().timestamp() * 1000)
NOON = int(datetime(2024, 5, 6, 12, 30).astimezone().timestamp() * 1000)


def ages(now_ms, *hours):
    return [SegmentAge(Path(str(n)), n, now_ms - h * HOUR_MS) for n, h in enumerate(hours)]


@pytest.mark.parametrize(
    ("now_ms", "used", "hours", "count", "is_full"),
    [
        (FOUR_O_CLOCK, 0.5, (100, 80, 73, 1, 0), 3, False),
        (FOUR_O_CLOCK, 0.5, (100, 71, 100, 0), 1, False),
        (FOUR_O_CLOCK, 0.5, (100,), 0, False),
        (FOUR_O_CLOCK, 0.5, (100,) * 30, 10, False),
        (NOON, 0.5, (100, 80, 0), 0, False),
        (NOON, 0.76, (100, 80, 0), 2, False),
        (NOON, 0.76, (1, 1, 0), 0, False),
        (NOON, 0.85, (9, 9, 0), 0, False),
        (NOON, 0.86, (2, 1, 0), 2, False),
        (NOON, 0.91, (2, 1, 0), 2, True),
        (NOON, 0.86, (2, 0.9, 0), 1, False),
        (NOON, 0.91, (0.9, 0.9, 0), 0, True),
    ],
)
def test_segments_expire_by_age_and_by_how_full_the_disk_is(now_ms, used, hours, count, is_full):
    plan = cleaner.plan(StoreConfig(), ages(now_ms, *hours), now_ms, used)
    assert [segment.base_offset for segment in plan.segments] == list(range(count))
    assert plan.is_full == is_full


@pytest.mark.parametrize(
    ("most", "count"), [(0, 0), (1, 3), (3 * FILE - 1, 2), (3 * FILE, 1), (9 * FILE, 0)]
)
def test_a_log_that_is_larger_than_it_may_be_loses_its_oldest_files_at_once(most, count):
    config = StoreConfig(fileReservedBytes=most, mappedFileSizeCommitLog=FILE)
    plan = cleaner.plan(config, ages(NOON, 100, 0, 0, 0), NOON, 0.5)
    assert [segment.base_offset for segment in plan.segments] == list(range(count))
    assert plan.forced_count == 0
    if count:
        assert "larger than fileReservedBytes" in cleaner.describe_deleted(plan, config, 0.5)


def test_nothing_is_forced_where_that_is_switched_off():
    config = StoreConfig(cleanFileForciblyEnable=False)
    assert not cleaner.plan(config, ages(NOON, 1, 1, 0), NOON, 0.99).segments


def test_only_what_is_expired_goes_where_nothing_may_be_forced():
    plan = cleaner.plan(StoreConfig(), ages(NOON, 80, 5, 0), NOON, 0.99, may_force=False)
    assert [segment.base_offset for segment in plan.segments] == [0]
    assert plan.forced_count == 0


def test_how_long_a_file_is_kept_on_a_full_disk_is_configured():
    for hours, count in ((0, 2), (1, 1), (3, 0)):
        config, _ = StoreConfig.from_properties({"minFileReservedTime": str(hours)})
        plan = cleaner.plan(config, ages(NOON, 2, 0, 0), NOON, 0.99)
        assert (len(plan.segments), plan.forced_count) == (count, count)
    expired = cleaner.plan(StoreConfig(fileReservedTime=0), ages(NOON, 0.1, 0.1, 0), NOON, 0.99)
    assert (len(expired.segments), expired.forced_count) == (2, 0)


class FullDisk(Disk):
    ratio = 0.5

    def used_ratio(self, path):  # noqa: ARG002 - every path is on it
        return self.ratio


def test_expired_log_takes_its_queue_and_index_files_with_it_and_readers_read_on(tmp_path, caplog):
    caplog.set_level("INFO")
    disk = FullDisk()
    clock = Clock(NOON)
    config = replace(SMALL, diskMaxUsedSpaceRatio=75)
    with open_small(tmp_path, config=config, disk=disk, clock=clock) as store:
        sent = send_many(store, 300)
        store.flush_log()
        while not store.build_index():
            pass
        with rocketlens.open_store(tmp_path) as reader:
            assert reader.query_message("Orders", "k0").messages
            before = sorted((tmp_path / "commitlog").iterdir())
            for path in before[:3]:
                os.utime(path, (0, (NOON - 73 * HOUR_MS) / 1000))
            for path in before[3:]:
                os.utime(path, (0, NOON / 1000))
            assert store.clean() == []
            disk.ratio = 0.8
            assert store.clean() == before[:3]
            assert caplog.messages[-1] == (
                f"deleted 3 commit log files, {before[0].name} to {before[2].name}, with messages "
                f"up to {datetime.fromtimestamp(NOON / 1000 - 73 * 3600, UTC).isoformat()}: older "
                "than fileReservedTime (72 hours), and the disk is 80% full"
            )
            min_offset = store.min_offset
            assert min_offset == 3 * config.mappedFileSizeCommitLog
            assert reader.query_by_queue_offset("Orders", 2, 99).queue_offset == 99
        kept = [n for n, a in enumerate(sent) if a.physical_offset >= min_offset]
        for queue_id in range(3):
            first = min(sent[n].queue_offset for n in kept if n % 3 == queue_id)
            assert store.queues.min_offset("Orders", queue_id) == first
            assert store.queues.max_offset("Orders", queue_id) == 100
            files = store.queues.get("Orders", queue_id).files()
            assert 0 < files[0][0] <= first * 20
        assert store.clean() == []
    with open_small(tmp_path, config=config, disk=disk, clock=clock) as store:
        assert store.recovered.record_count == 0
        assert store.queues.min_offset("Orders", 0) > 0
        assert send(store, 300).queue_offset == 100
    with rocketlens.open_store(tmp_path) as reader:
        answer = reader.query_message("Orders", "all", max_num=None)
        assert len(answer.messages) == len(kept) + 1


def test_a_disk_over_its_limit_refuses_messages_until_it_is_below(tmp_path, caplog):
    disk = FullDisk()
    config = replace(SMALL, diskSpaceWarningLevelRatio=90)
    with open_small(tmp_path, config=config, disk=disk) as store:
        send(store, 0)
        disk.ratio = 0.95
        store.clean()
        with pytest.raises(StoreFull, match="disk is full"):
            send(store, 1)
        store.clean()
        disk.ratio = 0.85
        store.clean()
        assert send(store, 1).queue_offset == 1
    told = [each for each in caplog.messages if each.startswith("the disk is")]
    assert told == [
        "the disk is 95 % full, above 90 %: messages are refused",
        "the disk is 85 % full: messages are stored again",
    ]


def test_what_is_deleted_for_want_of_room_is_told_and_what_is_young_is_kept(tmp_path, caplog):
    disk, clock = FullDisk(), Clock(NOON)
    config = replace(SMALL, diskSpaceCleanForciblyRatio=85, diskSpaceWarningLevelRatio=90)
    with open_small(tmp_path, config=config, disk=disk, clock=clock) as store:
        send_many(store, 300)
        for number in range(3):
            send(store, 300 + number, topic="Later")
        before = sorted((tmp_path / "commitlog").iterdir())
        for place, path in enumerate(before):
            os.utime(path, (0, (NOON - (90 if place < 2 else 30) * 60_000) / 1000))
        disk.ratio = 0.88
        assert store.clean(may_force=False) == []
        assert not caplog.records
        assert store.clean() == before[:2]
        (told,) = [one.getMessage() for one in caplog.records]
        for words in ("88% full", "2 of 2", before[0].name, before[1].name, "90 min ago", "Orders"):
            assert words in told
        assert "Later" not in told
        send(store, 303)
        disk.ratio = 0.95
        assert store.clean() == []
        with pytest.raises(StoreFull, match="disk is full"):
            send(store, 304)
        disk.ratio = 0.5
        assert store.clean() == []
        send(store, 304)


def test_files_of_many_queues_go_in_pieces_and_all_again_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaner, "_QUEUES_AT_ONCE", 5)
    looked_at = []
    fails_at = 7

    def look(files, *_):
        if len(looked_at) == fails_at:
            raise OSError("the disk is broken")
        looked_at.append(files[0][1].parent)
        return []

    monkeypatch.setattr(cleaner, "expired_queue_files", look)
    with open_small(tmp_path) as store:
        for queue_id in range(12):
            send(store, queue_id, queue_id=queue_id)
        store.clean()
        assert len(looked_at) == 5
        with pytest.raises(OSError, match="broken"):
            store.clean_queues()
        fails_at = -1
        looked_at.clear()
        assert [store.clean_queues() for _ in range(4)] == [True, True, False, False]
        assert len(set(looked_at)) == 12
