"""Index files are built beside the appends, by one builder, and without a busy loop."""

import errno
import threading
from dataclasses import replace
from types import SimpleNamespace

from tests.support.patience import PATIENCE_S
from tests.support.written_stores import (
    QUIET,
    builder_of,
    entries_of,
    expected_entries,
    open_small,
    send_many,
)


def test_a_builder_of_index_files_waits_after_a_step_that_brought_nothing(tmp_path, monkeypatch):
    attempts, waits = [], []
    enough = threading.Event()

    class Stop(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            if len(waits) >= 5:
                enough.set()
                return super().wait(timeout)
            return False

    def fail(self, *_, **__):
        self.made_progress = False
        attempts.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    # The driver's events alone: those that threads themselves start and stop with stay whole.
    of_driver = SimpleNamespace(Event=Stop, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr("rocketlens.store.write.index.index_driver.threading", of_driver)
    monkeypatch.setattr("rocketlens.store.write.index.index_driver.IndexBuilder.build", fail)
    store = open_small(tmp_path, options=replace(QUIET, threads=True))
    try:
        send_many(store, 10)
        store.flush_log()
        assert enough.wait(PATIENCE_S)
        assert len(attempts) <= len(waits) + 1
    finally:
        store.close(at_most_seconds=0)


def test_only_what_is_synced_is_indexed(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 10)
    assert store.build_index()
    assert store.indexed_offset == 0
    store.flush_log()
    assert store.build_index()
    assert store.indexed_offset == store.end_offset
    send_many(store, 10, first=10)
    assert store.build_index()
    assert store.indexed_offset < store.end_offset
    store.close_abruptly()


def test_a_store_closed_before_its_index_is_complete_stays_marked_and_goes_on(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 200)
    store._index.build_until = lambda _: None
    store.close(at_most_seconds=0)
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path):
        pass
    assert not (tmp_path / "abort").exists()
    assert entries_of(tmp_path) == expected_entries(tmp_path)


def test_a_store_whose_index_another_builds_stays_marked_until_that_is_complete(tmp_path):
    options = replace(QUIET, build_index=False)
    with open_small(tmp_path, options=options) as store:
        end = [send_many(store, 10), store.end_offset][1]
        assert not store.build_index()
    assert (tmp_path / "abort").exists()
    store = open_small(tmp_path, options=options)
    builder = builder_of(tmp_path, end)
    assert builder.build(end)
    builder.sync()
    builder.close()
    store.close()
    assert not (tmp_path / "abort").exists()


def test_a_builder_that_cannot_go_on_is_not_asked_in_a_busy_loop(tmp_path, monkeypatch):
    waited, tries = threading.Event(), []

    class Stop(threading.Event):
        def wait(self, timeout=None):
            waited.set()
            return super().wait(timeout)

    with open_small(tmp_path) as store:
        send_many(store, 10)
        store.flush_log()
        index = store._index
        index._stop = Stop()
        index.build = lambda **_: tries.append(1) and False
        index.start()
        assert waited.wait(PATIENCE_S)
        index.stop()
        del index.build
    # Each failure but the last was followed by a wait.
    assert 1 <= len(tries) <= 2
