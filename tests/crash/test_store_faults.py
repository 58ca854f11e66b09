"""What the disk does to a store, the store survives, and never acknowledges what it has not."""

import gc
import logging
import shutil
from pathlib import Path

import pytest

import rocketlens
from rocketlens.errors import StoreFailed, StoreFull
from tests.crash.small_disk import run_on_a_small_disk
from tests.support.failing_disks import FailingDisk, QuickDisk
from tests.support.written_stores import (
    BORN_HOST,
    SMALL,
    content_of,
    open_small,
    properties_of,
    records_of,
    send,
    send_many,
)


def run_with(disk, path):
    """Use a store until it fails; gives how many messages were acknowledged, and the failure."""
    acknowledged, stored, failure = 0, [], None
    store = None
    try:
        store = open_small(path, disk=disk)
        for number in range(60):
            appended = send(store, number)
            stored.append(number)
            told = []
            store.when_durable(appended.physical_offset + appended.store_size, told.append)
            store.flush() if number % 5 == 0 else store.flush_log()
            store.build_index()
            assert told, "nobody is left waiting"
            if told[0] is None:
                acknowledged += 1
            else:
                assert disk.failed in str(told[0])
                raise told[0]
    except (OSError, StoreFailed) as error:
        failure = error
    finally:
        if store is not None:
            if failure is not None and store.failure is not None:
                check_failed(store, stored, path)
            store.close_abruptly()
    return acknowledged, failure


def check_failed(store, stored, path):
    """After a failure nothing is stored or acknowledged, and reads go on."""
    with pytest.raises(StoreFailed) as refused:
        send(store, 999)
    assert refused.value.code == 14
    store.flush()
    told = []
    store.when_durable(store.end_offset, told.append)
    assert isinstance(told[0], StoreFailed)
    with rocketlens.open_store(path) as reader:
        for number in stored:
            assert len(reader.query_message("Orders", f"k{number}").messages) == 1


@pytest.mark.parametrize("kind", ["commitlog", "consumequeue", "index", "state", ""])
def test_nothing_is_acknowledged_after_a_sync_that_failed(tmp_path, kind):
    counting = FailingDisk(kind=kind)
    run_with(counting, tmp_path / "count")
    assert counting.syncs
    step = max(counting.syncs // 25, 1)
    for fails_at in range(1, counting.syncs + 1, step):
        path = tmp_path / "store"
        shutil.rmtree(path, ignore_errors=True)
        disk = FailingDisk(fails_at, kind)
        acknowledged, failure = run_with(disk, path)
        assert disk.failed
        if kind == "commitlog":
            assert failure is not None
        with open_small(path, disk=QuickDisk()) as store:
            assert store.recovered.damage == []
        assert len(records_of(path)) >= acknowledged


def test_a_full_disk_refuses_messages_answers_queries_and_takes_messages_again(tmp_path):
    for full_at in range(1, 40):
        path = tmp_path / "store"
        shutil.rmtree(path, ignore_errors=True)
        try:
            store = open_small(path, disk=FailingDisk(full_at=(full_at, full_at + 1)))
        except OSError:
            store = open_small(path, disk=QuickDisk())
        refused = 0
        stored = []
        for number in range(150):
            while True:
                try:
                    if number % 10 == 9:
                        member = (0, b"x" * 200, properties_of(number))
                        store.append_batch(
                            "Orders", 0, [member] * 3, BORN_HOST, born_timestamp_ms=1
                        )
                        stored += [number] * 3
                    else:
                        send(store, number, body=b"x" * 200)
                        stored.append(number)
                    break
                except StoreFull as full:
                    refused += full.code == 14 and full.retriable
                assert len(records_of(path)) == len(stored)
        store.flush()
        store.close()
        assert [int(r.properties[10:16]) for r in records_of(path)] == stored
        assert [r.queue_offset for r in records_of(path)] == list(range(len(stored)))
        if full_at > 3:
            assert refused or full_at > 12


def test_a_crash_during_recovery_converges(tmp_path):
    store = open_small(tmp_path / "whole")
    send_many(store, 100)
    store.flush()
    later = send_many(store, 60, first=100)
    store.close_abruptly()
    shutil.rmtree(tmp_path / "whole/consumequeue/Orders/1")
    log = tmp_path / "whole/commitlog"
    torn = later[50]
    segment = sorted(log.iterdir())[torn.physical_offset // SMALL.mappedFileSizeCommitLog]
    with segment.open("r+b") as file:
        file.seek(torn.physical_offset % SMALL.mappedFileSizeCommitLog + 90)
        file.write(b"torn")
    shutil.copytree(tmp_path / "whole", tmp_path / "straight")
    open_small(tmp_path / "straight", disk=QuickDisk()).close_abruptly()
    expected = content_of(tmp_path / "straight", "commitlog", "consumequeue")
    for fails_at in range(1, 40):
        path = tmp_path / "nested"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", path)
        for nested in (fails_at, fails_at // 2 + 1, fails_at // 3 + 1):
            try:
                open_small(path, disk=FailingDisk(nested)).close_abruptly()
            except (OSError, StoreFailed):
                continue
        open_small(path, disk=QuickDisk()).close_abruptly()
        assert content_of(path, "commitlog", "consumequeue") == expected, fails_at


def test_a_start_that_fails_leaves_no_file_open(tmp_path, caplog):
    # A record that pytest keeps holds the traceback, and that the store.
    caplog.set_level(logging.CRITICAL + 1, "rocketlens")
    store = open_small(tmp_path)
    send_many(store, 100)
    store.close_abruptly()
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    failed = 0
    for fails_at in range(1, 8):
        try:
            open_small(tmp_path, disk=FailingDisk(fails_at)).close_abruptly()
        except (OSError, StoreFailed):
            failed += 1
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    assert failed > 2


FILL = """
import os, sys
from pathlib import Path
from dataclasses import replace
from rocketlens.errors import StoreFull
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore
import rocketlens
from tests.support.written_stores import *
path = Path(sys.argv[1])
config = replace(SMALL, mappedFileSizeCommitLog=1 << 20, mappedFileSizeConsumeQueue=60_000,
                 maxHashSlotNum=500, maxIndexNum=2000)
store = MessageStore(path / "store", config, QUIET)
def fill(number):
    while True:
        try:
            send(store, number, body=os.urandom(1000))
        except StoreFull as full:
            assert full.code == 14
            return number
        number += 1
        if number % 500 == 0:
            store.flush()
            store.build_index()
(path / "ballast").write_bytes(bytes(4 << 20))
stored = fill(0)
store.flush_log()
assert store.failure is None
assert not store.build_index() or True
with rocketlens.open_store(path / "store") as reader:
    for number in range(0, stored, 97):
        assert len(reader.query_message("Orders", f"k{number}").messages) == 1
(path / "ballast").unlink()
again = fill(stored)
assert again > stored + 500, (stored, again)
(path / "store" / "rocketlens" / "aside").mkdir(exist_ok=True)
store.close_abruptly()
for old in sorted((path / "store" / "commitlog").iterdir())[:3]:
    old.unlink()
store = MessageStore(path / "store", config, QUIET)
assert store.recovered.damage == [] and store.recovered.cut is None
send(store, again)
store.close()
assert records_of(path / "store")[-1].properties == properties_of(again)
print("stored", stored, again)
"""


def test_a_disk_that_is_really_full_is_a_state_and_not_a_crash(tmp_path):
    done = run_on_a_small_disk(FILL, tmp_path, mib=16)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("stored")
