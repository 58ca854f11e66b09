"""What was acknowledged survives a power cut; what was torn by one is not taken for whole."""

import struct

import pytest

from rocketlens.store.read.state import read_state
from rocketlens.store.write.append import Appender
from tests.support.failing_disks import RecordingDisk, RestartedDisk
from tests.support.written_stores import (
    BORN_HOST,
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
