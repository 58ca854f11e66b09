"""Opening a store takes it over as it is, or refuses it and changes nothing; its lock."""

import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

import rocketlens
from rocketlens.errors import BadInput, StoreLocked
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.lock import LOCK_TEXT, OUR_TEXT, StoreLock, is_locked
from tests.conftest import fingerprint
from tests.support.written_stores import (
    GOLDEN,
    QUIET,
    SMALL,
    be_a_real_broker,
    content_of,
    kill,
    open_small,
    records_of,
    send,
    send_many,
)


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_empty_next_segment_of_a_real_broker_is_taken_over(tmp_path, end):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.close() if end == "closed" else store.close_abruptly()
    following = tmp_path / "commitlog" / f"{SMALL.mappedFileSizeCommitLog:020}"
    following.touch()
    with open_small(tmp_path) as store:
        send_many(store, 100, first=20)
        assert store.end_offset > SMALL.mappedFileSizeCommitLog
    assert following.stat().st_size == SMALL.mappedFileSizeCommitLog
    assert len(records_of(tmp_path)) == 120


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("what", ["segment", "log", "queues", "queue"])
def test_what_cannot_be_opened_now_is_an_error_and_nothing_is_changed(
    tmp_path, monkeypatch, what, number
):
    store = open_small(tmp_path)
    send_many(store, 200)
    store.flush()
    send_many(store, 10, first=200)
    store.close_abruptly()
    before = content_of(tmp_path)
    failing = {
        "segment": ("MappedFile.__init__", lambda args: args[1].parent.name == "commitlog"),
        "log": ("entries", lambda args: args[0].name == "commitlog"),
        "queues": ("entries", lambda args: args[0].name == "consumequeue"),
        "queue": ("read_part", lambda args: Path(args[0]).parents[1].name == "Orders"),
    }
    name, is_it = failing[what]
    holder = fs.MappedFile if "." in name else fs
    real = getattr(holder, name.rpartition(".")[2])

    def refuse(*args, **arguments):
        if is_it(args):
            raise OSError(number, "it cannot be opened", str(args[0]))
        return real(*args, **arguments)

    with monkeypatch.context() as patched:
        patched.setattr(holder, name.rpartition(".")[2], refuse)
        with pytest.raises(OSError, match="it cannot be opened"):
            open_small(tmp_path)
    assert content_of(tmp_path) == before
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []
        assert store.recovered.cut is None
    assert len(records_of(tmp_path)) == 210


def test_a_closed_store_opens_without_reading_its_log(tmp_path):
    with open_small(tmp_path) as store:
        last = send_many(store, 300)[-1]
    assert not (tmp_path / "abort").exists()
    before = content_of(tmp_path)
    with open_small(tmp_path) as store:
        assert (tmp_path / "abort").read_text().isdigit()
        assert store.recovered.record_count == 0
        assert store.recovered.end_offset == last.physical_offset + last.store_size
        assert store.queues.max_offset("Orders", 0) == 100
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("state", ["store", "crashed"])
def test_a_store_of_a_real_broker_is_taken_over_as_it_is(golden, version, state, end, tmp_path):
    golden_store = golden(version)
    path = tmp_path / "store"
    shutil.copytree(getattr(golden_store, state), path)
    before = content_of(path, "commitlog", "consumequeue")
    options = structs.replace(QUIET, with_tag_index=version == "5.5.0")
    store = open_small(path, config=GOLDEN, options=options)
    assert store.recovered.damage == []
    assert store.recovered.cut is None
    while not store.build_index():
        pass
    if end == "closed":
        store.close()
    else:
        kill(store)
    after = content_of(path, "commitlog", "consumequeue")
    # Queue files without an entry are not kept; all others are as they were.
    assert {name: after.get(name) for name in after} == {name: before[name] for name in after}
    if state == "store":
        ours, theirs = (
            [p.read_bytes() for p in sorted((root / "index").iterdir())]
            for root in (path, golden_store.store)
        )
        assert ours == theirs
    with rocketlens.open_store(path) as reader:
        for sent in golden_store.sent:
            if not sent["kind"].startswith("tx"):
                message = reader.view_message(sent["offset_msg_id"])
                assert message.queue_offset == sent["queue_offset"]


def test_a_store_of_other_file_sizes_is_refused_with_its_size_named(tmp_path):
    with open_small(tmp_path) as store:
        send(store, 1)
    before = content_of(tmp_path, "commitlog", "consumequeue", "index")
    with pytest.raises(BadInput, match="16384 bytes: mappedFileSizeCommitLog"):
        open_small(tmp_path, config=replace(SMALL, mappedFileSizeCommitLog=32_768))
    assert content_of(tmp_path, "commitlog", "consumequeue", "index") == before
    with open_small(tmp_path) as store:
        assert send(store, 2).queue_offset == 1


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("consumequeue/CURRENT", "consumequeue is a RocksDB database"),
        ("config/topics/CURRENT", "topics is a RocksDB database"),
        ("config/subscriptionGroups/CURRENT", "subscriptionGroups is a RocksDB database"),
        ("config/consumerOffsets/CURRENT", "consumerOffsets is a RocksDB database"),
        ("config/metadata/CURRENT", "metadata is a RocksDB database"),
        ("config/rdb/CURRENT", "rdb is a RocksDB database"),
        (f"batchconsumequeue/Orders/0/{0:020}", "has batch queues"),
    ],
)
def test_queues_or_tables_that_only_rocketmq_can_write_are_refused(tmp_path, file, named):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.close()
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    before = content_of(tmp_path)
    with pytest.raises(BadInput, match=f"{named}.*give the broker another storePathRootDir"):
        open_small(tmp_path)
    assert content_of(tmp_path) == before


def test_databases_that_a_broker_left_for_newer_files_do_not_refuse_a_store(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 20)
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):
        database = tmp_path / "config" / name / "CURRENT"
        database.parent.mkdir(parents=True)
        database.touch()
        os.utime(database, ns=(0, 0))
    for name in ("topics", "subscriptionGroup", "consumerOffset"):
        (tmp_path / "config" / f"{name}.json").write_text("{}", encoding="utf-8")
    (tmp_path / "batchconsumequeue" / "Orders" / "0").mkdir(parents=True)
    open_small(tmp_path).close()


def test_the_lock_says_who_ran_last(tmp_path):
    with open_small(tmp_path):
        assert (tmp_path / "lock").read_bytes() == OUR_TEXT
    be_a_real_broker(tmp_path)
    store = open_small(tmp_path)
    assert not store.recovered.is_ours
    store.close_abruptly()
    store = open_small(tmp_path)
    assert store.recovered.is_ours
    store.close_abruptly()


def test_a_second_opener_is_refused_and_touches_nothing(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 50)
        before = fingerprint(tmp_path)
        with pytest.raises(StoreLocked):
            open_small(tmp_path)
        program = (
            "import sys; from tests.support.written_stores import open_small;"
            "open_small(sys.argv[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "StoreLocked" in done.stderr
        assert fingerprint(tmp_path) == before
        send(store, 50)


def test_a_lock_is_held_until_it_is_released_and_readers_see_it(tmp_path):
    assert not is_locked(tmp_path)
    with StoreLock(tmp_path) as lock:
        assert is_locked(tmp_path)
        with pytest.raises(StoreLocked, match="stop it first"):
            StoreLock(tmp_path)
        with StoreLock(tmp_path, "index.lock"):
            assert is_locked(tmp_path, "index.lock")
        assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
    with StoreLock(tmp_path):
        pass


def test_asking_whether_a_store_is_locked_makes_no_file(tmp_path):
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_mark_of_ours_stays_until_a_real_broker_writes_its_text(tmp_path):
    with StoreLock(tmp_path) as lock:
        assert (tmp_path / "lock").read_bytes() == LOCK_TEXT
        assert not lock.is_marked()
        lock.mark(Disk())
        assert lock.is_marked()
    with StoreLock(tmp_path) as lock:
        assert lock.is_marked()
    (tmp_path / "lock").write_bytes(LOCK_TEXT)
    with StoreLock(tmp_path) as lock:
        assert not lock.is_marked()


def test_asking_does_not_refuse_a_broker_that_starts_meanwhile(tmp_path, monkeypatch):
    StoreLock(tmp_path).release()
    real, started = os.close, []

    def close(descriptor):
        monkeypatch.undo()
        started.append(StoreLock(tmp_path))
        real(descriptor)

    monkeypatch.setattr(os, "close", close)
    assert not is_locked(tmp_path)
    assert is_locked(tmp_path)
    started[0].release()
