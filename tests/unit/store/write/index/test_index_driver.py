"""Index files are built beside the appends by one builder: each entry once, none missing."""

import errno
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs

import rocketlens
from rocketlens.errors import StoreLocked
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from tests.support.patience import PATIENCE_S
from tests.support.written_stores import (
    QUIET,
    SMALL,
    builder_of,
    entries_of,
    expected_entries,
    open_small,
    send,
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
    store = open_small(tmp_path, options=structs.replace(QUIET, threads=True))
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
    options = structs.replace(QUIET, build_index=False)
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


@pytest.mark.parametrize("step_bytes", [1, 300, 5000, 10**9])
def test_files_are_the_same_however_the_log_is_cut(log_only, step_bytes):
    path, end = log_only
    builder = builder_of(path, end)
    while not builder.build(end, at_most_bytes=step_bytes):
        pass
    builder.sync()
    builder.close()
    assert entries_of(path) == expected_entries(path)
    assert builder.safe_offset == end


@pytest.mark.parametrize("synced_every", [1, 3, 7])
def test_a_builder_killed_anywhere_leaves_neither_gap_nor_duplicate(log_only, synced_every):
    path, end = log_only
    whole = None
    for killed_after in range(1, 400):
        builder = builder_of(path, end)
        step = 0
        while step < killed_after and not builder.build(end, at_most_bytes=700):
            step += 1
            if step % synced_every == 0:
                builder.sync()
        if step < killed_after:
            builder.sync()
            builder.close()
            whole = entries_of(path)
            break
        builder.close_abruptly()
        assert builder.safe_offset <= builder.resume_point.physical_offset
    assert whole == expected_entries(path)


DAMAGE = {
    "the directory deleted": lambda files: shutil.rmtree(files[0].parent),
    "the first file deleted": lambda files: files[0].unlink(),
    "the last file deleted": lambda files: files[-1].unlink(),
    "a file emptied": lambda files: files[2].write_bytes(b""),
    "a header zeroed": lambda files: write_at(files[1], 0, bytes(40)),
    "the last header zeroed": lambda files: write_at(files[-1], 0, bytes(40)),
    "a file of another geometry": lambda files: files[3].write_bytes(bytes(5000)),
    "a stray file": lambda files: (files[0].parent / "20990101000000000").write_bytes(b"x" * 999),
    "our state deleted": lambda files: state_of(files).unlink(),
    "our state damaged": lambda files: state_of(files).write_text('{"safeOffset": "x"}'),
    "our state ahead": lambda files: state_of(files).write_text(
        state_of(files).read_text().replace('"safeOffset":', '"safeOffset":9')
    ),
}


def state_of(files):
    return files[0].parents[1] / "rocketlens/index.json"


def write_at(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_index_in_any_state_is_made_whole(tmp_path, what, end):
    store = open_small(tmp_path)
    send_many(store, 200)
    store.flush_log()
    while not store.build_index():
        pass
    store.close() if end == "closed" else store.close_abruptly()
    DAMAGE[what](sorted((tmp_path / "index").iterdir()))
    with open_small(tmp_path) as store:
        send(store, 200)
    assert entries_of(tmp_path) == expected_entries(tmp_path)
    with rocketlens.open_store(tmp_path) as reader:
        assert len(reader.query_message("Orders", "all", max_num=None).messages) == 201


def test_a_disk_that_is_full_costs_the_builder_time_only(log_only):
    path, end = log_only

    class FullNowAndThen(Disk):
        tries = 0

        def make_file(self, path, size, scratch):
            self.tries += 1
            if self.tries % 2:
                raise OSError(28, "No space left on device", str(path))
            super().make_file(path, size, scratch)

    builder = builder_of(path, end)
    builder._disk = FullNowAndThen()
    failures = 0
    while True:
        try:
            if builder.build(end):
                break
        except OSError:
            failures += 1
    builder.sync()
    builder.close()
    assert failures > 5
    assert entries_of(path) == expected_entries(path)


@pytest.fixture
def failing_open(monkeypatch):
    """Have one mapping of a log's segment fail: ``failing_open.update(at=n, number=errno)``."""
    failing = {"at": -1, "number": errno.EMFILE, "opens": 0}
    whole = fs.MappedFile.__init__

    def refuse(self, path, *arguments, **named):
        if path.parent.name == "commitlog":
            failing["opens"] += 1
            # Twice, for what is kept open is given up, and the first try made again.
            if failing["at"] <= failing["opens"] <= failing["at"] + 1:
                raise OSError(failing["number"], "refused", str(path))
        whole(self, path, *arguments, **named)

    monkeypatch.setattr(fs.MappedFile, "__init__", refuse)
    return failing


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EIO])
def test_a_segment_that_could_not_be_opened_once_leaves_no_hole_in_the_index(
    log_only, failing_open, number
):
    path, end = log_only
    expected = expected_entries(path)
    failures = 0
    for at in range(1, 100):
        shutil.rmtree(path / "index", ignore_errors=True)
        shutil.rmtree(path / "rocketlens", ignore_errors=True)
        builder = builder_of(path, end)
        failing_open.update(at=at, number=number, opens=0)
        is_done = False
        while not is_done:
            try:
                is_done = builder.build(end)
                builder.sync()
            except OSError:
                failures += builder.safe_offset < end
                is_done = False
        builder.close()
        assert entries_of(path) == expected
        if failing_open["opens"] < at:
            break
    assert failures > 1


def test_a_store_that_could_not_open_a_segment_once_goes_on_indexing_it(tmp_path, failing_open):
    store = open_small(tmp_path / "store", options=structs.replace(QUIET, build_index=True))
    send_many(store, 300)
    store.flush_log()
    failing_open.update(at=2, opens=0)
    built = [store.build_index() for _ in range(4)]
    assert failing_open["opens"] >= 2
    assert built[0] is False
    assert built[-1] is True
    store.close()
    assert entries_of(tmp_path / "store") == expected_entries(tmp_path / "store")


def test_entries_beyond_the_synced_ones_are_taken_back(log_only):
    path, end = log_only
    builder = builder_of(path, end)
    builder.build(end // 2)
    builder.sync()
    synced = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
    builder.build(end)
    builder.close_abruptly()
    there = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
    resumed = builder_of(path, end)
    proven = {file.name: file.read_bytes() for file in StoreLayout(path).new_index.iterdir()}
    assert proven == synced
    # What the killed one put in goes when it is in again.
    assert {file.name: file.read_bytes() for file in (path / "index").iterdir()} == there
    resumed.build(end)
    resumed.sync()
    resumed.close()
    assert not StoreLayout(path).new_index.exists()
    assert entries_of(path) == expected_entries(path)


def test_two_builders_exclude_each_other(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 1)
        with pytest.raises(StoreLocked):
            builder_of(tmp_path, 0)
        send(store, 2)


def test_one_build_writes_the_entries_of_all_records(tmp_path):
    geometry = SMALL.geometry._replace(entry_count=3000)
    config = replace(SMALL, maxIndexNum=3000, mappedFileSizeCommitLog=1 << 20)
    with open_small(
        tmp_path, config=config, options=structs.replace(QUIET, build_index=False)
    ) as store:
        send_many(store, 3000)
        end = store.end_offset
    builder = builder_of(tmp_path, end, geometry)
    assert builder.build(end)
    builder.sync()
    builder.close()
    assert entries_of(tmp_path, geometry) == expected_entries(tmp_path)


def test_index_files_of_deleted_log_are_deleted_and_never_the_last(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 200)
        store.flush_log()
        while not store.build_index():
            pass
        files = sorted(file.name for file in (tmp_path / "index").iterdir())
        builder = store._index._builder
        builder.forget_below(builder._headers[3].begin_offset + 1)
        assert sorted(file.name for file in (tmp_path / "index").iterdir()) == files[3:]
        builder.forget_below(10**12)
        assert [file.name for file in (tmp_path / "index").iterdir()] == files[-1:]
