"""What was acknowledged survives a power cut; what was torn by one is not taken for whole."""

import errno
import struct
import threading

import pytest

from rocketlens.errors import StoreFailed
from rocketlens.store.disk import Disk, WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.state import SYNCED_BYTES, Synced, read_state, read_synced
from rocketlens.store.write.append import Appender
from rocketlens.store.write.durability import FlushThread, GroupCommit, SyncedFile
from rocketlens.store.write.message_store import StoreOptions
from tests.support.failing_disks import RecordingDisk, RestartedDisk
from tests.support.patience import PATIENCE_S
from tests.support.written_stores import (
    BORN_HOST,
    STORE_HOST,
    open_small,
    records_of,
    send,
    send_many,
)

PROPERTIES = {
    "none": b"",
    "nul": b"note\x01a\0b\x02",
    "nul at the end": b"note\x01a\x02\0",
    "only nul": bytes(40),
    "a sector of nul": b"note\x01" + bytes(1200) + b"\x02",
    "ends with a sector of nul": b"note\x01" + bytes(1200),
    "invalid utf-8": b"note\x01\xff\xfe\xc0\x80\x02",
    "no separator": b"note\x02other",
    "empty segments": b"\x02\x02KEYS\x01k\x02\x02",
    "no name": b"\x01value\x02",
    "unicode": "note\x01zażółć 消息 🚀\x02".encode(),
    "longest": b"k\x01" + b"v" * 5_000 + b"\x02",
}


def append(store, body, properties):
    return store.append("Orders", 0, body, properties, BORN_HOST, born_timestamp_ms=1)


def acknowledge(store):
    """Sync the log as SYNC_FLUSH does before it answers."""
    store.flush_log()
    assert store.flushed_offset == store.end_offset
    assert store.failure is None


def cut_power(store, path, *, with_synced=None):
    """End a store; `with_synced` is the content that `synced` had when it was synced last."""
    store.close_abruptly()
    if with_synced is not None:
        (path / "rocketlens/synced").write_bytes(with_synced)


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("name", PROPERTIES)
def test_what_was_acknowledged_before_a_power_cut_is_there_whatever_its_properties(
    tmp_path, name, is_batch
):
    properties = PROPERTIES[name]
    disk = RecordingDisk()
    store = open_small(tmp_path, disk=disk)
    send_many(store, 5, queues=1)
    store.flush()
    if is_batch:
        store.append_batch(
            "Orders", 0, [(0, b"odd", properties)] * 2, BORN_HOST, born_timestamp_ms=1
        )
    else:
        append(store, b"odd", properties)
    acknowledge(store)
    for number in range(20):
        append(store, b"%d" % number, b"KEYS\x01after\x02")
        acknowledge(store)
    sent, end = records_of(tmp_path), store.end_offset
    cut_power(store, tmp_path, with_synced=disk.durable[tmp_path / "rocketlens/synced"])
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert store.recovered.cut is None
        assert store.end_offset == end
    assert records_of(tmp_path) == sent


@pytest.mark.parametrize("name", ["nul", "invalid utf-8", "no separator", "empty segments"])
def test_an_older_note_of_what_is_synced_costs_no_message(tmp_path, name):
    store = open_small(tmp_path)
    send_many(store, 5, queues=1)
    store.flush()
    before = (tmp_path / "rocketlens/synced").read_bytes()
    append(store, b"odd", PROPERTIES[name])
    acknowledge(store)
    for number in range(20):
        append(store, b"%d" % number, b"KEYS\x01after\x02")
        acknowledge(store)
    sent = records_of(tmp_path)
    cut_power(store, tmp_path, with_synced=before)
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert store.recovered.cut is None
    assert records_of(tmp_path) == sent


def test_a_message_without_zero_bytes_costs_no_sync_of_the_note(tmp_path):
    disk = RecordingDisk()
    with open_small(tmp_path, disk=disk) as store:
        note = tmp_path / "rocketlens/synced"
        before = disk.sync_counts[note]
        for number in range(5):
            append(store, b"%d" % number, b"KEYS\x01k\x02")
            acknowledge(store)
        assert disk.sync_counts[note] == before
        append(store, b"zero", b"KEYS\x01k\0\x02")
        acknowledge(store)
        assert disk.sync_counts[note] == before + 1
        acknowledge(store)
        assert disk.sync_counts[note] == before + 1


def test_a_checkpoint_between_the_steps_of_an_append_knows_of_no_entry_that_is_not_synced(
    tmp_path, monkeypatch
):
    disk = RecordingDisk()
    store = open_small(tmp_path, disk=disk)
    send_many(store, 5, queues=1)
    store.flush()
    queue_file = tmp_path / "consumequeue/Orders/0" / f"{0:020}"

    def save_when_set(appender, value):
        appender.__dict__["last"] = value
        if value is not None and not appender.__dict__.get("is_saving"):
            appender.__dict__["is_saving"] = True
            store.flush()

    with monkeypatch.context() as patched:
        last = property(lambda appender: appender.__dict__["last"], save_when_set)
        patched.setattr(Appender, "last", last, raising=False)
        appended = send(store, 5)
    state = read_state(store.layout)
    assert state.queues_offset == appended.physical_offset + appended.store_size
    entry = struct.pack(">qi", appended.physical_offset, appended.store_size)
    assert entry in disk.durable[queue_file]
    store.close_abruptly()
    queue_file.write_bytes(disk.durable[queue_file])
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert send(store, 6).queue_offset == 6


def test_a_killed_process_leaves_whole_records_whatever_their_properties(tmp_path):
    store = open_small(tmp_path)
    store.flush()
    for properties in PROPERTIES.values():
        append(store, b"body", properties)
    sent = records_of(tmp_path)
    store.close_abruptly()
    with open_small(tmp_path) as store:
        assert store.recovered.cut is None
    assert records_of(tmp_path) == sent


def test_a_sync_that_takes_half_a_second_is_told_and_counted(tmp_path, caplog):
    seconds = iter((0.0, 0.49, 1.0, 1.5))
    with open_small(tmp_path) as store:
        durability = store._durability
        durability._clock = lambda: next(seconds)
        for number in range(2):
            send(store, number)
            store.flush_log()
        durability._clock = lambda: 0.0
        assert store.slow_syncs == 1
        assert caplog.messages == ["slow disk: a sync of the log took 0.5 s"]


@pytest.fixture
def layout(tmp_path):
    made = StoreLayout(tmp_path)
    made.own.mkdir()
    return made


def test_a_new_file_names_no_position(layout):
    SyncedFile(layout, Disk()).close()
    assert layout.synced.stat().st_size == SYNCED_BYTES
    assert read_synced(layout) is None


def test_what_was_written_last_is_read_also_after_the_file_is_opened_again(layout):
    for start in (0, 3):
        file = SyncedFile(layout, Disk())
        for number in range(start, start + 3):
            synced = Synced(1000 + number, 900 + number, number)
            file.write(synced)
            assert read_synced(layout) == synced
        file.sync()
        file.close()
    assert read_synced(layout) == Synced(1005, 905, 5)


def test_writes_take_turns_so_that_the_one_before_is_whole(layout):
    file = SyncedFile(layout, Disk())
    first, second = Synced(100, 50, 1), Synced(200, 150, 2)
    file.write(first)
    before = layout.synced.read_bytes()
    file.write(second)
    file.close()
    content = layout.synced.read_bytes()
    changed = [at for at in range(SYNCED_BYTES) if content[at] != before[at]]
    assert {at // 512 for at in changed} == {0}
    for at in changed:
        torn = content[:at] + before[at:512] + content[512:]
        layout.synced.write_bytes(torn)
        assert read_synced(layout) == first


@pytest.mark.parametrize("size", [0, 10, SYNCED_BYTES - 1, SYNCED_BYTES + 1])
def test_a_file_of_another_size_is_made_anew(layout, size):
    layout.synced.write_bytes(b"x" * size)
    file = SyncedFile(layout, Disk())
    file.write(Synced(7))
    file.close()
    assert layout.synced.stat().st_size == SYNCED_BYTES
    assert read_synced(layout) == Synced(7)


def test_a_full_disk_is_an_error_and_leaves_no_file_open(layout, monkeypatch):
    closed = []

    def refuse(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    close = WritableFile.close
    monkeypatch.setattr(WritableFile, "reserve", refuse)
    monkeypatch.setattr(WritableFile, "close", lambda self: closed.append(close(self)))
    with pytest.raises(OSError, match="No space left"):
        SyncedFile(layout, Disk())
    assert closed == [None]


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
