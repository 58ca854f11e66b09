"""A store that is written: its settings, its views while it grows, and records torn at its end."""

import struct

import pytest

import rocketlens
from rocketlens.broker.config import parse_settings
from rocketlens.errors import BadInput, NotAStore, StoreBusy
from rocketlens.model.message import Host
from rocketlens.model.rocketmq import parse_delay_levels
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import SegmentLost
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from rocketlens.store.write.store_views import LogView
from rocketlens.store.write.torn import SECTOR_BYTES, lacks_a_sector
from tests.support.failing_calls import FailingCalls
from tests.support.failing_disks import RestartedDisk
from tests.support.written_stores import (
    BORN_HOST,
    SMALL,
    Clock,
    open_small,
    records_of,
    send,
    send_many,
)


def test_the_store_host_may_change_between_runs(tmp_path):
    for port in (1, 2):
        options = StoreOptions(Host("10.1.1.1", port), threads=False)
        with MessageStore(tmp_path, SMALL, options) as store:
            send(store, port)
    assert [record.store_host.port for record in records_of(tmp_path)] == [1, 2]


def test_an_appended_message_is_found_at_once_by_readers_of_the_directory(tmp_path):
    with open_small(tmp_path) as store, rocketlens.open_store(tmp_path) as reader:
        for number in range(200):
            appended = send(store, number, queue_id=number % 2)
            found = reader.query_message("Orders", f"k{number}").messages
            assert [message.physical_offset for message in found] == [appended.physical_offset]
            assert bytes(store.record(appended.physical_offset, 0)[84:88]) == struct.pack(
                ">i", len(found[0].body)
            )


def test_a_log_on_another_disk_is_found_from_the_store_and_written_on(tmp_path):
    layout = StoreLayout(tmp_path / "store", (tmp_path / "fast" / "log",))
    for number in range(2):
        with open_small(layout) as store:
            sent = send(store, number)
        assert not (layout.root / "commitlog").exists()
        assert list(layout.commit_log.glob("0*"))
        with rocketlens.open_store(layout.root) as reader:
            answer = reader.find(topic="Orders")
            assert answer.complete
            assert answer.messages[-1].physical_offset == sent.physical_offset
            assert len(answer.messages) == number + 1
    # Without RocketLens's own note the broker.conf tells.
    layout.log_path.unlink()
    with pytest.raises(NotAStore):
        rocketlens.open_store(layout.root)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={layout.root}\nstorePathCommitLog={layout.commit_log}\n")
    assert parse_settings(conf.read_text()).layout == layout
    with rocketlens.open_store(layout.root) as reader:
        assert reader.find(topic="Orders").complete


def test_the_stores_keys_are_taken_and_the_others_handed_back():
    config, others = StoreConfig.from_properties(
        {
            "mappedFileSizeCommitLog": "262144",
            "flushDiskType": "SYNC_FLUSH",
            "messageIndexEnable": "False",
            "brokerName": "a",
            "noSuchKey": "1",
        }
    )
    assert (config.mappedFileSizeCommitLog, config.is_sync_flush) == (262_144, True)
    assert config.messageIndexEnable is False
    assert others == {"brokerName": "a", "noSuchKey": "1"}
    assert StoreConfig.from_properties({})[0] == StoreConfig()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mappedFileSizeCommitLog", "1G"),
        ("mappedFileSizeCommitLog", "-1"),
        ("mappedFileSizeCommitLog", str(2**31)),
        ("maxIndexNum", "1"),
        ("maxIndexNum", "200000000"),
        ("messageIndexEnable", "yes"),
        ("flushDiskType", "NO_FLUSH"),
        ("deleteWhen", "25"),
        ("deleteWhen", "4am"),
        ("messageDelayLevel", "1s 5x"),
        ("flushIntervalCommitLog", "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_key(key, text):
    with pytest.raises(BadInput, match=key):
        StoreConfig.from_properties({key: text})


def test_a_queue_file_holds_whole_entries():
    assert StoreConfig(mappedFileSizeConsumeQueue=6_000_001).queue_file_bytes == 6_000_020


def test_delay_levels_count_from_one():
    assert parse_delay_levels("1s 2m 3h 4d") == (0, 1000, 120_000, 10_800_000, 345_600_000)


def test_a_record_is_given_only_where_it_is_whole(tmp_path):
    with open_small(tmp_path) as store:
        sent = send_many(store, 3)[1]
        assert len(store.record(sent.physical_offset, 0)) == sent.store_size
        assert store.record(sent.physical_offset, sent.store_size)[:4] == sent.store_size.to_bytes(
            4, "big"
        )
        assert store.record(-1, 0) is None
        assert store.record(store.end_offset, 0) is None
        assert store.record(sent.physical_offset, 10**6) is None


def test_a_record_that_cannot_be_read_now_is_not_one_that_is_gone(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 3)
        assert store.record(0, 0)
        while len(list((tmp_path / "commitlog").iterdir())) < 3:
            last = send(store, 3, body=b"x" * 3000)
        failing = FailingCalls(tmp_path, range(10_000))
        with failing.counted(), pytest.raises(StoreBusy, match="cannot be listed"):
            store.record(last.physical_offset, last.store_size)
        assert store.record(0, 0)
        store._log.list_segments()
        with failing.counted(), pytest.raises(SegmentLost):
            store.record(last.physical_offset, last.store_size)
        assert len(store.record(last.physical_offset, 0)) == last.store_size


def test_offsets_are_found_by_time_as_rocketmq_5_finds_them(tmp_path):
    clock = Clock(1000)
    with open_small(tmp_path, clock=clock) as store:
        for now_ms in (1000, 2000, 2000, 2000, 3000):
            clock.now_ms = now_ms
            send(store, now_ms)

        def lower(t):
            return store.queues.offset_by_time("Orders", 0, t)

        def upper(t):
            return store.queues.offset_by_time("Orders", 0, t, upper=True)

        assert [lower(t) for t in (0, 1000, 1001, 2000, 2001, 3000, 3001)] == [0, 0, 1, 1, 4, 4, 5]
        assert [upper(t) for t in (0, 1000, 1999, 2000, 2999, 3000, 9999)] == [0, 0, 0, 3, 3, 4, 4]
        assert store.queues.offset_by_time("None", 0, 5) == 0
        assert store.queues.min_offset("None", 0) == store.queues.max_offset("None", 0) == 0


def test_a_queue_begins_at_its_first_message_that_the_log_still_has(tmp_path, monkeypatch):
    with open_small(tmp_path) as store:
        sent = send_many(store, 30, queues=1)
        assert store.queues.min_offset("Orders", 0) == 0
        for kept in (1, 17, 29):
            monkeypatch.setattr(LogView, "min_offset", sent[kept].physical_offset)
            assert store.queues.min_offset("Orders", 0) == kept
        monkeypatch.setattr(LogView, "min_offset", store.end_offset)
        assert store.queues.min_offset("Orders", 0) == store.queues.max_offset("Orders", 0) == 30


def test_the_queues_of_a_topic_are_those_that_have_messages(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 4, queues=2)
        send(store, 4, topic="Others")
        assert store.queues.of_topic("Orders") == [store.queues.get("Orders", n) for n in (0, 1)]
        assert store.queues.of_topic("None") == []
        assert store.queues.get("Orders", 2) is None


def append(store, body, properties):
    return store.append("Orders", 0, body, properties, BORN_HOST, born_timestamp_ms=1)


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("lost", ["first", "middle", "last", "all"])
def test_a_record_that_lacks_a_sector_of_its_properties_is_not_taken_for_whole(
    tmp_path, lost, follows
):
    store = open_small(tmp_path)
    send_many(store, 5, queues=1)
    store.flush()
    torn = append(store, b"body", b"note\x01" + b"v" * 3000 + b"\x02")
    if follows:
        append(store, b"x" * 600, b"KEYS\x01after\x02")
    store.close_abruptly()
    place = torn.physical_offset
    first = (place // 512 + 1) * 512
    last = (place + torn.store_size - 1) // 512 * 512
    sectors = {
        "first": [first],
        "middle": [first + 1024],
        "last": [last],
        "all": range(first, last + 512, 512),
    }[lost]
    segment = tmp_path / "commitlog" / f"{0:020}"
    content = bytearray(segment.read_bytes())
    for sector in sectors:
        content[sector : sector + 512] = bytes(512)
    segment.write_bytes(content)
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert store.end_offset == place
        assert store.recovered.cut.start == place
    assert len(records_of(tmp_path)) == 5


def bytes_with(written, size=4 * SECTOR_BYTES):
    content = bytearray(size)
    for start, stop in written:
        content[start:stop] = b"x" * (stop - start)
    return memoryview(content)


def test_written_bytes_lack_no_sector_wherever_they_begin_and_end():
    for start, stop in ((0, 1), (500, 520), (512, 1024), (3, 2000)):
        assert not lacks_a_sector(bytes_with([(start, stop)]), start, stop)


@pytest.mark.parametrize("lost", range(4))
def test_each_sector_that_is_zeros_is_seen(lost):
    start, stop = 100, 2000
    content = bytes_with([(start, stop)])
    content[lost * SECTOR_BYTES : (lost + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    assert lacks_a_sector(content, start, stop)


def test_zeros_before_something_written_in_the_same_sector_are_no_lost_sector():
    content = bytes_with([(0, 10), (20, 30)])
    assert not lacks_a_sector(content, 0, 20)
    assert lacks_a_sector(content, 0, 40)
