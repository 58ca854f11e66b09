"""Index files built by Spark while a broker appends to the log."""

import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from rocketlens.errors import NotAStore, StoreError, StoreLocked
from rocketlens.pipeline.follow import MAX_STREAM_STARTS, IndexFollower
from tests.peer.rocketmq_peer import POLL_SECONDS, PeerFailed, wait_until
from tests.support.patience import PATIENCE_S
from tests.support.synthetic import record, write_log
from tests.support.written_stores import (
    QUIET,
    SMALL,
    Clock,
    builder_of,
    entries_of,
    expected_entries,
    open_small,
    send_many,
)

LEFT_TO_OTHERS = replace(QUIET, build_index=False)


@pytest.fixture
def live(tmp_path):
    """A store that is written, whose index files are left to others."""
    with open_small(tmp_path / "store", options=LEFT_TO_OTHERS) as store:
        yield store


def follower_of(path):
    return IndexFollower.open(path, SMALL.geometry, with_tags=True, clock=Clock())


def grow(store, count):
    first = sum(queue.next_offset for queue in store._appender.queues.values())
    send_many(store, count, first)
    store.flush()


def test_the_files_are_those_that_the_broker_builds_itself(spark, live, tmp_path):
    path = live.layout.root
    grow(live, 300)
    with follower_of(path) as follower:
        follower.run_once(spark)
        grow(live, 20)
        follower.run_once(spark)
        assert follower.writer.safe_offset == live.end_offset == live.indexed_offset
    followed = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
    assert entries_of(path) == expected_entries(path)
    for file in (path / "index").iterdir():
        file.unlink()
    (path / "rocketlens" / "index.json").unlink()
    builder = builder_of(path, live.end_offset)
    while not builder.build(live.end_offset):
        pass
    builder.sync()
    builder.close()
    assert {file.name: file.read_bytes() for file in (path / "index").iterdir()} == followed


def test_a_process_that_spark_cannot_call_is_told_so_and_does_not_wait(live):
    grow(live, 1)
    server = SimpleNamespace(server_socket=SimpleNamespace(fileno=lambda: 1024))
    gateway = SimpleNamespace(_callback_server=server)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    with (
        follower_of(live.layout.root) as follower,
        pytest.raises(StoreError, match="more than 1024 files open"),
    ):
        follower.run_once(spark)


def test_only_what_the_log_has_synced_is_indexed(spark, live):
    grow(live, 10)
    synced = live.end_offset
    send_many(live, 10, 10)
    with follower_of(live.layout.root) as follower:
        follower.run_once(spark)
        assert follower.writer.safe_offset == synced < live.end_offset


def test_a_growing_log_is_followed_until_it_is_told_to_stop(spark, live):
    stop = threading.Event()
    grow(live, 5)
    with follower_of(live.layout.root) as follower:
        thread = threading.Thread(target=follower.follow, args=(spark, stop, "0 seconds"))
        thread.start()
        for _ in range(5):
            grow(live, 30)
            while live.indexed_offset < live.end_offset:
                thread.join(POLL_SECONDS)
                assert thread.is_alive()
        stop.set()
        thread.join()
    assert entries_of(live.layout.root) == expected_entries(live.layout.root)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("put", marks=pytest.mark.slow),
        "sync",
        pytest.param("_write_state", marks=pytest.mark.slow),
    ],
)
def test_a_batch_that_fails_anywhere_ends_it_with_the_reason_and_the_next_one_goes_on(
    spark, live, monkeypatch, step
):
    path = live.layout.root
    grow(live, 120)
    with follower_of(path) as follower:
        follower.run_once(spark)
    grow(live, 120)
    with follower_of(path) as follower:
        work = getattr(follower.writer, step)

        def fail(*arguments):
            work(*arguments)
            raise OSError(28, "no room on the disk")

        monkeypatch.setattr(follower.writer, step, fail)
        with pytest.raises(StoreError, match=r"indexing ended: .*no room on the disk"):
            follower.run_once(spark)
        monkeypatch.undo()
        # As a process that ends: nothing is written on the way out.
        follower.writer.close_abruptly()
    with follower_of(path) as follower:
        follower.run_once(spark)
    assert entries_of(path) == expected_entries(path)


SLOW_START = RuntimeError("Python worker failed to connect back.")


class FailedQuery:
    """A query that Spark gave up, for want of a worker."""

    isActive = False  # noqa: N815 - as Spark spells it

    def exception(self):
        return SLOW_START

    def awaitTermination(self):  # noqa: N802 - as Spark spells it
        pass

    def stop(self):
        pass


def failing_starts(follower, monkeypatch, count):
    """Have the first starts of a follower's query fail; gives the list of all that were made."""
    start, made = follower._start, []

    def start_or_fail(spark, trigger):
        made.append(trigger)
        return FailedQuery() if len(made) <= count else start(spark, trigger)

    monkeypatch.setattr(type(follower), "_start", lambda _, *given: start_or_fail(*given))
    return made


def test_a_worker_that_starts_too_slowly_costs_a_start_and_no_message(spark, live, monkeypatch):
    grow(live, 30)
    with follower_of(live.layout.root) as follower:
        # One of them: on a machine that is busy the next can really be too slow.
        made = failing_starts(follower, monkeypatch, 1)
        follower.run_once(spark)
        assert follower.writer.safe_offset == live.end_offset
    assert len(made) > 1
    assert entries_of(live.layout.root) == expected_entries(live.layout.root)


def test_workers_that_never_start_end_it_with_the_reason(live, monkeypatch):
    grow(live, 1)
    with follower_of(live.layout.root) as follower:
        made = failing_starts(follower, monkeypatch, 100)
        with pytest.raises(StoreError, match="indexing ended: Python worker failed to connect"):
            follower.follow(None, threading.Event())
    assert len(made) == MAX_STREAM_STARTS


def test_index_files_whose_records_the_broker_deleted_are_deleted(spark, live):
    path = live.layout.root
    grow(live, 300)
    with follower_of(path) as follower:
        follower.run_once(spark)
        before = sorted(file.name for file in (path / "index").iterdir())
        for segment in sorted((path / "commitlog").iterdir())[:3]:
            segment.unlink()
        follower.clean()
        after = sorted(file.name for file in (path / "index").iterdir())
    assert set(after) < set(before)
    assert after[-1] == before[-1]


def test_what_the_broker_deleted_before_it_was_indexed_is_passed_over(spark, live):
    path = live.layout.root
    grow(live, 300)
    for segment in sorted((path / "commitlog").iterdir())[:2]:
        segment.unlink()
    with follower_of(path) as follower:
        follower.run_once(spark)
        assert follower.writer.safe_offset == live.end_offset
    assert entries_of(path) == expected_entries(path)


def test_one_builder_at_a_time(live):
    grow(live, 1)
    with follower_of(live.layout.root), pytest.raises(StoreLocked):
        follower_of(live.layout.root)


def test_a_store_whose_broker_is_not_ours_is_refused(tmp_path):
    write_log(tmp_path, [record(0)], 1 << 14)
    with pytest.raises(NotAStore, match="index build"):
        follower_of(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["commitlog"]


def test_a_store_closed_after_its_builder_ended_is_indexed_to_its_end(spark, live):
    path = live.layout.root
    grow(live, 50)
    with follower_of(path) as follower:
        follower.run_once(spark)
    grow(live, 50)
    live.adopt_index_builder()
    live.close()
    assert entries_of(path) == expected_entries(path)
    assert not live.layout.abort.exists()


def test_a_store_closed_while_its_builder_runs_is_not_taken_for_a_complete_one(live):
    grow(live, 50)
    with follower_of(live.layout.root):
        live.adopt_index_builder()
        live.close()
    assert live.layout.abort.exists()


@contextmanager
def followed(path):
    """Run ``rocketlens index follow`` as a process, ready, and kill it at the end."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rocketlens.main", "index", "follow"),
            *("--store", path, "--master", "local[2]", "--until-stdin-ends"),
            *("--slots", str(SMALL.maxHashSlotNum), "--entries", str(SMALL.maxIndexNum)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait(process, condition):
    """Return once ``condition`` holds; the process must not end before."""
    try:
        wait_until(condition, process, PATIENCE_S)
    except PeerFailed as failure:
        pytest.fail(f"{failure}: {process.stderr.read() if process.poll() is not None else ''}")


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 5])
def test_a_builder_that_is_killed_leaves_neither_gap_nor_duplicate(spark, live, kills):
    path = live.layout.root
    chance = random.Random(kills)
    grow(live, 50)
    for _ in range(kills):
        with followed(path) as process:
            line = process.stdout.readline()
            assert line.startswith("ready: indexes"), process.stderr.read()
            begin = live.indexed_offset
            wanted = chance.randrange(1, 400)
            for _ in range(wanted):
                grow(live, 1)
            wait(process, lambda begin=begin: live.indexed_offset > begin)
            os.killpg(process.pid, signal.SIGKILL)
    with follower_of(path) as follower:
        follower.run_once(spark)
    assert entries_of(path) == expected_entries(path)


@pytest.mark.slow
def test_the_command_indexes_all_and_ends_with_its_standard_input(live, jdk):
    """`make test` has it with a server, in tests/unit/cli/test_serve.py."""
    assert jdk
    grow(live, 50)
    with followed(live.layout.root) as process:
        assert process.stdout.readline().startswith("ready")
        wait(process, lambda: live.indexed_offset == live.end_offset)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err.count("\n")) == (0, 1)
    assert entries_of(live.layout.root) == expected_entries(live.layout.root)
