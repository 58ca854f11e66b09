"""Stores of every layout while a real broker runs on them: by the cluster, and by their files."""

import shutil
import threading
import time
from contextlib import ExitStack, closing

import pytest

import rocketlens
from rocketlens import Message, SyncMQAdmin, SyncPushConsumer
from rocketlens.bulk.options import known_options
from rocketlens.client.blocking.sync_producer import SyncProducer
from rocketlens.formats.checkpoint import decode
from rocketlens.pipeline.cluster_scan import ClusterScan
from tests.conftest import WITHOUT_TIMERS
from tests.peer.our_servers import OurBroker, OurNameServer
from tests.peer.rocketmq_peer import free_ports
from tests.support.layouts import copied, ids
from tests.support.patience import PATIENCE_S

SIZES = {
    "mappedFileSizeCommitLog": 1 << 15,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 200,
    "maxMessageSize": 1 << 14,
}


def settings_of(name, path):
    if name.startswith("dledger"):
        return {
            "enableDLegerCommitLog": True,
            "dLegerGroup": "broker-a",
            "dLegerSelfId": "n0",
            "dLegerPeers": f"n0-127.0.0.1:{free_ports()}",
        }
    return {
        "elsewhere": {"storePathCommitLog": path / "log"},
        "multi": {"storePathCommitLog": f"{path / 'disk1'},{path / 'disk2'}"},
        "lmq": {"enableLmq": True, "enableMultiDispatch": True},
        "rocksdb": {"storeType": "defaultRocksDB"},
        "onerocksdb": {"storeType": "defaultRocksDB", "useSingleRocksDBForAllConfigs": True},
        "tiered": {
            "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
            "tieredBackendServiceProvider": (
                "org.apache.rocketmq.tieredstore.provider.PosixFileSegment"
            ),
            "tieredStoreFilePath": path / "tiered",
        },
        # As a master of its own.
        "slave": {},
        "controller": {},
        "controllerslave": {},
        "compaction": {"compactionMappedFileSize": 32768, "compactionCqMappedFileSize": 4600},
    }[name.partition("-")[0]]


def until_found(search, key):
    """Search until the answer is whole: a broker that just started, or a replica, may need time."""
    deadline = time.monotonic() + PATIENCE_S
    while not ((answer := search(key)).complete and answer.messages):
        assert time.monotonic() < deadline, (key, answer.failures)
    return answer


def keys_of(sent):
    first = sent.get("batch", sent.get("n", 0) + 2) - 2
    return [f"k{first + number}" for number in range(3 if "batch" in sent else 1)]


@pytest.mark.parametrize(
    "name",
    [
        "rocksdb-5.5.0",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                *("dledger-4.9.7", "dledger-5.5.0", "elsewhere-4.9.7", "elsewhere-5.5.0"),
                *(
                    "multi-5.5.0",
                    "lmq-4.9.7",
                    "lmq-5.5.0",
                    "slave-4.9.7",
                    "controller-5.5.0",
                    "onerocksdb-5.5.0",
                ),
                *("controllerslave-5.5.0", "compaction-5.5.0", "tiered-5.5.0"),
            )
        ),
    ],
)
def test_a_store_is_searched_while_a_real_broker_writes_it(peer, layouts, tmp_path, name):
    layout = copied(layouts, name, tmp_path / "broker")
    # It is cut behind what is written, and made again.
    shutil.rmtree(layout.store / "dledger-n0" / "index", ignore_errors=True)
    settings = SIZES | WITHOUT_TIMERS | settings_of(name, layout.path)
    version = name.rpartition("-")[2]
    with (
        peer.start(version, layout.path, **settings) as broker,
        SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer,
        SyncMQAdmin(broker.namesrv_address) as admin,
        rocketlens.open_store(layout.store) as store,
    ):
        if name == "slave-4.9.7":
            # It was stopped before it had its master's topics.
            for topic in ("Orders", "Payments"):
                admin.create_topic(topic, 2)
        new = [
            producer.send(Message("Payments", b"x" * 400, keys=[f"new{number}"]))
            for number in range(60)
        ]
        for search in (admin.find, store.find):
            for number in range(0, 60, 19):
                answer = until_found(search, f"new{number}")
                assert ids(answer) == [new[number].offset_msg_id]
            for sent in layout.sent[::19]:
                for key in keys_of(sent):
                    assert ids(until_found(search, key)) == [sent["offset_msg_id"]]
                position = f"{sent['topic']}/{sent['queue_id']}/{sent['queue_offset']}"
                (there,) = until_found(search, position).messages
                assert (there.unique_key, there.keys[0]) == (sent["unique_key"], sent["key"])
                assert there.offset_msg_id == sent["offset_msg_id"]
                light = sent.get("light")
                if light:
                    topic = light.partition(",")[0]
                    answer = search(sent["key"], topic=topic)
                    assert ids(answer) == [sent["offset_msg_id"]]
            answer = search(topic="Payments")
            assert answer.complete, answer.failures
            old = [each for each in layout.sent if each["topic"] == "Payments"]
            assert len(answer.messages) == len(old) + len(new)


@pytest.mark.slow
def test_a_store_that_was_switched_to_dledger_is_read_from_both_logs(peer, layouts, tmp_path):
    layout = copied(layouts, "elsewhere-5.5.0", tmp_path / "broker")
    (layout.path / "log").rename(layout.store / "commitlog")
    settings = SIZES | settings_of("dledger", layout.path)
    with (
        peer.start("5.5.0", layout.path, **settings) as broker,
        SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer,
    ):
        new = [
            producer.send(Message("Payments", b"x" * 400, keys=[f"new{number}"]))
            for number in range(30)
        ]
        with rocketlens.open_store(layout.store) as store:
            for number, each in enumerate(new):
                assert ids(until_found(store.find, f"new{number}")) == [each.offset_msg_id]
    for named in (layout.store, layout.path / "broker.conf"):
        with rocketlens.open_store(named) as store:
            for sent in layout.sent:
                assert ids(store.find(sent["key"])) == [sent["offset_msg_id"]]
            answer = store.find(topic=["Orders", "Payments"])
            assert answer.complete, answer.failures
            assert len(answer.messages) == len(layout.sent) + len(new)


@pytest.mark.slow
def test_messages_in_batches_are_found_by_key_position_and_content_in_a_cluster(
    peer, layouts, tmp_path
):
    layout = copied(layouts, "batchcq-5.5.0", tmp_path / "broker")
    with (
        peer.start("5.5.0", layout.path, **SIZES) as broker,
        SyncMQAdmin(broker.namesrv_address) as admin,
    ):
        for sent in layout.sent[::8]:
            for number, key in enumerate(keys_of(sent)):
                offset = sent["queue_offset"] + number
                answer = until_found(admin.find, f"{sent['topic']}/{sent['queue_id']}/{offset}")
                assert [each.keys for each in answer.messages] == [(key,)]
                assert [each.queue_offset for each in answer.messages] == [offset]
                for topic in (sent["topic"], None):
                    for exhaustive in (False, True):
                        answer = admin.find(key, topic, exhaustive=exhaustive)
                        assert answer.complete, answer.failures
                        assert [each.queue_offset for each in answer.messages] == [offset]
        answer = admin.find(topic="Orders", where="body.$.n >= 60")
        assert answer.complete, answer.failures
        assert len(answer.messages) == 40
        for tags, count in ((None, 80), ("TagB", 20)):
            tailed = admin.tail("Orders", 100, tags=tags)
            assert len(list(tailed)) == count
            assert tailed.complete
        for where, count in ((None, 80), ("body.$.n >= 60", 40)):
            scan = admin.scan("Orders", where=where)
            assert len(list(scan)) == count
            assert scan.complete
        # What tasks of Spark do, in stretches that begin and end within batches.
        options = {"namesrv": broker.namesrv_address, "subscribe": "Orders", "minPartitions": "30"}
        tasks = ClusterScan(known_options(options, "cluster reads"))
        batches = [batch for share in tasks.shares() for batch in tasks.read(share)]
        rows = [row for batch in batches for row in batch.to_pylist()]
        places = sorted((row["queue_id"], row["queue_offset"], *row["keys"]) for row in rows)
        assert places == sorted(
            (sent["queue_id"], sent["queue_offset"] + number, key)
            for sent in layout.sent
            if sent["topic"] == "Orders"
            for number, key in enumerate(keys_of(sent))
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"messageIndexEnable": False},
        {"indexRocksDBEnable": True, "indexFileWriteEnable": False, "indexFileReadEnable": False},
    ],
    ids=["no-index", "index-in-rocksdb"],
)
def test_messages_of_a_real_broker_without_index_files_are_found_by_key(peer, tmp_path, settings):
    with (
        peer.start("5.5.0", tmp_path / "broker", **settings) as broker,
        SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer,
        SyncMQAdmin(broker.namesrv_address) as admin,
    ):
        sent = [producer.send(Message("Payments", b"%d" % n, keys=[f"k{n % 3}"])) for n in range(9)]
        for topic in ("Payments", None):
            answer = admin.find("k1", topic)
            assert answer.complete
            assert sorted(int(each.body) for each in answer) == [1, 4, 7]
            for n, result in enumerate(sent):
                answer = admin.find(result.msg_id, topic)
                assert [each.body for each in answer] == [b"%d" % n]
            assert not admin.find("k9", topic).messages


@pytest.mark.parametrize("version", ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.slow)])
def test_keys_that_a_killed_real_broker_lost_are_not_taken_for_those_of_no_message(
    peer, tmp_path, version
):
    """It indexes again what is in log files later than its checkpoint, less 3 s, alone."""
    more = {"flushConsumeQueueThoroughInterval": 1000, "flushDiskType": "SYNC_FLUSH"}
    path, settings = tmp_path / "broker", SIZES | more | {"maxIndexNum": 100_000}
    checkpoint = path / "store" / "checkpoint"
    deadline = time.monotonic() + PATIENCE_S
    third_file_ms, sent = 0, 0
    with (
        peer.start(version, path, **settings) as broker,
        SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer,
    ):
        while not third_file_ms or min(decode(checkpoint.read_bytes())[:2]) - 4000 < third_file_ms:
            assert time.monotonic() < deadline
            producer.send(Message("Payments", b"x" * 1000, keys=[f"k{sent}"]))
            sent += 1
            if not third_file_ms and (path / "store" / "commitlog" / f"{2 << 15:020}").exists():
                third_file_ms = time.time_ns() // 1_000_000
        broker.kill()
    with (
        peer.start(version, path, **settings) as broker,
        SyncMQAdmin(broker.namesrv_address) as admin,
    ):
        until_found(lambda _: admin.find(f"Payments/0/{sent // 8}"), None)
        answer = admin.find("k0", "Payments")
        assert (answer.messages, answer.complete) == ((), False)
        assert "its index lacks messages that its queues have" in answer.failures[0].error
        answer = admin.find("k0", "Payments", exhaustive=True)
        assert (len(answer.messages), answer.complete) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_our_broker_delivers_from_queues_with_addresses_in_place_of_tags_codes(
    peer, tmp_path, version
):
    path = tmp_path / "broker"
    with (
        peer.start(version, path, **SIZES, enableConsumeQueueExt=True) as broker,
        SyncProducer(broker.namesrv_address, send_timeout_s=PATIENCE_S) as producer,
    ):
        producer.send(Message("Payments", b"late", keys="late", delay_level=18))
        for number in range(20):
            producer.send(Message("Payments", b"x", keys=f"k{number}", tags="AB"[number % 2]))
        broker.stop()
    assert (path / "store" / "consumequeue_ext").is_dir()
    wanted = {f"k{number}" for number in range(0, 20, 2)}
    found, all_found = set(), threading.Event()

    def listen(messages, _):
        found.update(message.keys[0] for message in messages)
        if found >= wanted:
            all_found.set()

    with closing(OurNameServer()) as name_server, ExitStack() as stack:
        stack.callback(OurBroker(path, str(name_server.address), **SIZES).kill)
        consumer = SyncPushConsumer(str(name_server.address), group="billing", begin="first")
        consumer.subscribe("Payments", "A")
        consumer.listen(listen)
        with consumer:
            assert all_found.wait(PATIENCE_S)
        with SyncMQAdmin(str(name_server.address)) as admin:
            (late,) = admin.find("late").messages
            assert late.topic == "SCHEDULE_TOPIC_XXXX"
    assert found == wanted
