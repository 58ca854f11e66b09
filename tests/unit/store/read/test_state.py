"""What is remembered of a store is believed only where it is whole and of this log."""

import struct
from dataclasses import replace

from rocketlens.store.read.state import StoreState, read_synced
from tests.support.failing_disks import QuickDisk
from tests.support.written_stores import (
    QUIET,
    open_small,
    queue_lengths,
    records_of,
    send_many,
)


def test_no_changed_byte_of_what_is_remembered_is_believed(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 100)
        lengths = queue_lengths(store)
    for name in ("state.json", "synced"):
        path = tmp_path / "rocketlens" / name
        sound = path.read_bytes()
        places = [place for place in range(len(sound)) if sound[place]]
        for place in places[:: max(len(places) // 40, 1)]:
            changed = sound[place] ^ 1
            path.write_bytes(sound[:place] + bytes([changed]) + sound[place + 1 :])
            store = open_small(
                tmp_path, options=replace(QUIET, build_index=False), disk=QuickDisk()
            )
            assert queue_lengths(store) == lengths
            assert store.recovered.cut is None
            store.close_abruptly()
            path.write_bytes(sound)


def test_notes_of_earlier_versions_are_as_good_as_none(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 100)
        lengths, end = queue_lengths(store), store.end_offset
    layout = store.layout
    layout.synced.write_bytes(struct.pack(">qq", end - 500, ~(end - 500)))
    layout.state.write_text(
        f'{{"queuesOffset":{end},"lastRecordOffset":null,"lastRecordTimestamp":1,'
        '"queueOffsets":{"Orders":{"0":[0,97]}},"checkpoints":[],"boot":""}'
    )
    assert read_synced(layout) is None
    assert StoreState.decode(layout.state.read_bytes()) is None
    with open_small(tmp_path) as store:
        assert store.recovered.record_count == 100
        assert queue_lengths(store) == lengths


def test_what_is_synced_of_another_log_says_nothing_of_this_one(tmp_path):
    stores = {name: open_small(tmp_path / name) for name in ("a", "b")}
    for name, store in stores.items():
        send_many(store, 30, body_bytes=100 if name == "a" else 60)
        store.flush()
    stores["b"].close_abruptly()
    later = send_many(stores["a"], 5, first=30)
    stores["a"].flush_log()
    stores["a"].close_abruptly()
    log = stores["b"]._log._log
    synced = read_synced(stores["a"].layout)
    assert synced.last_record_offset == later[-1].physical_offset
    assert read_synced(stores["b"].layout).may_be_of(log)
    first = records_of(tmp_path / "b")[3]
    other = synced._replace(last_record_offset=first.physical_offset)
    assert not other.may_be_of(log)


def test_a_reader_finds_what_is_synced_while_it_is_being_written(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 10)
        store.flush_log()
        first = store.end_offset
        send_many(store, 10, first=10)
        store.flush_log()
        content = store.layout.synced.read_bytes()
        second = read_synced(store.layout).offset
        assert second == store.end_offset
        # Each slot may be half written when it is read; the other one holds.
        found = set()
        for start in (0, 512):
            store.layout.synced.write_bytes(
                content[: start + 10] + bytes(10) + content[start + 20 :]
            )
            found.add(read_synced(store.layout).offset)
            store.layout.synced.write_bytes(content)
        assert found == {first, second}
