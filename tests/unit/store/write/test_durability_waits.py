"""Who waits for the disk is told once, and only the truth."""

import threading

from rocketlens.errors import StoreFailed
from rocketlens.store.write.durability import FlushThread, GroupCommit
from rocketlens.store.write.message_store import StoreOptions
from tests.support.patience import PATIENCE_S
from tests.support.written_stores import STORE_HOST, open_small, send


def test_one_round_serves_everyone_who_came_before_it():
    group, told = GroupCommit(10), []
    for end in (5, 20, 30, 40):
        group.wait_for(end, lambda failure, end=end: told.append((end, failure)))
    assert told == [(5, None)]
    group.end_round(30)
    assert told == [(5, None), (20, None), (30, None)]
    assert group.has_waiting
    group.end_round(25)
    assert group.flushed_offset == 30
    group.end_round(40)
    assert [end for end, _ in told] == [5, 20, 30, 40]
    assert not group.has_waiting


def test_after_a_failure_nobody_is_told_that_anything_is_durable():
    group, told = GroupCommit(0), []
    group.wait_for(5, told.append)
    first = StoreFailed("first")
    group.fail(first)
    group.fail(StoreFailed("second"))
    group.end_round(100)
    group.wait_for(1, told.append)
    assert told == [first, first]
    assert group.flushed_offset == 0


def test_a_thread_flushes_when_asked_and_stops_when_told():
    flushed = threading.Semaphore(0)
    thread = FlushThread("test", flushed.release, 1000)
    for _ in range(3):
        thread.ask()
        assert flushed.acquire(timeout=PATIENCE_S)
    thread.stop()
    assert not flushed.acquire(blocking=False)


def test_a_thread_flushes_now_and_then_without_being_asked():
    flushed = threading.Semaphore(0)
    thread = FlushThread("test", flushed.release, 0.001)
    for _ in range(3):
        assert flushed.acquire(timeout=PATIENCE_S)
    thread.stop()


def test_many_appends_that_wait_share_syncs_and_all_are_told(tmp_path):
    with open_small(tmp_path, options=StoreOptions(STORE_HOST)) as store:
        rounds = []
        sync = store._appender.sync_log
        store._appender.sync_log = lambda: rounds.append(1) or sync()
        told, all_told = [], threading.Event()

        def waiter(failure):
            told.append(failure)
            if len(told) == 300:
                all_told.set()

        for number in range(300):
            appended = send(store, number)
            store.when_durable(appended.physical_offset + appended.store_size, waiter)
        assert all_told.wait(timeout=PATIENCE_S)
        assert set(told) == {None}
        assert len(rounds) < 300
