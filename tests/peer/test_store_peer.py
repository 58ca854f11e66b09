"""A real broker opens what ours wrote and finds everything in it; and the reverse."""

from pathlib import Path

import pytest

import rocketlens
from rocketlens.broker.tables.topics import StoredTopic, TopicTable
from rocketlens.model.message import Host
from rocketlens.store.disk import Disk
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions, system_clock
from tests.peer.test_rocketmq_peer import PRODUCER
from tests.support.written_stores import BORN_HOST, records_of

FIND_ALL = Path(__file__).with_name("FindAll.java")
SIZES = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 4_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
CONFIG = StoreConfig(**SIZES, diskSpaceWarningLevelRatio=100)
TOPIC = "PeerTopic"


def write_store(path, version, count):
    """Write messages with ours; gives the store, open, and a line to look for each by."""
    options = StoreOptions(
        Host("127.0.0.1", 10911), with_tag_index=version == "5.5.0", threads=False
    )
    store = MessageStore(path, CONFIG, options)
    topics = TopicTable(store.layout, Disk(), system_clock)
    topics.put(StoredTopic(TOPIC, read_queue_count=4, write_queue_count=4))
    lines = []
    for number in range(count):
        unique_key = f"7F000001{number:024X}"
        # The index hashes of these keys differ: the real client drops what it did not ask for,
        # after the broker gave at most 64.
        properties = f"UNIQ_KEY\x01{unique_key}\x02KEYS\x01key{number} x{number}\x02TAGS\x01A\x02"
        appended = store.append(
            TOPIC,
            number % 4,
            b"body %d" % number,
            properties.encode(),
            BORN_HOST,
            born_timestamp_ms=system_clock(),
        )
        if number == count * 2 // 3:
            store.flush_log()
            while not store.build_index():
                pass
            store.flush()
        lines.append(f"key{number} {unique_key} {number % 4} {appended.queue_offset}")
    return store, lines


# Twelve starts of real brokers take minutes; test_broker.py lets one open our store every time.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_real_broker_finds_everything_in_our_store(peer, version, end, tmp_path):
    path = tmp_path / "broker" / "store"
    path.parent.mkdir()
    store, lines = write_store(path, version, 1200)
    if end == "closed":
        store.close()
        assert not (path / "abort").exists()
    else:
        store.close_abruptly()
        assert (path / "abort").exists()
    wanted = tmp_path / "wanted"
    # Every third: enough of every file, and the real client is not quick.
    wanted.write_text("\n".join(lines[::3]))
    send = tmp_path / "Send.java"
    send.write_text(PRODUCER)
    with peer.start(version, tmp_path / "broker", **SIZES) as broker:
        found = peer.java(version, FIND_ALL, broker.namesrv_address, TOPIC, str(wanted))
        assert f"found {len(lines[::3])}" in found, found[-2000:]
        peer.java(version, send, broker.namesrv_address)
        broker.stop()
    assert len(records_of(path)) == len(lines) + 1


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_ours_goes_on_with_a_store_of_a_real_broker_and_back(peer, version, end, tmp_path):
    directory = tmp_path / "broker"
    send = tmp_path / "Send.java"
    send.write_text(
        PRODUCER.replace("producer.send(message)", "sendMany(producer, message)").replace(
            "public static void main",
            """static org.apache.rocketmq.client.producer.SendResult sendMany(
              DefaultMQProducer producer, Message message) throws Exception {
            for (int n = 0; n < 300; n++) {
              producer.send(new Message("PeerTopic", "TagA", "theirs-" + n, "hello".getBytes()));
            }
            return producer.send(message);
          }
          public static void main""",
        )
    )
    with peer.start(version, directory, **SIZES) as broker:
        peer.java(version, send, broker.namesrv_address)
        if end == "stopped":
            broker.stop()
    path = directory / "store"
    with MessageStore(path, CONFIG, StoreOptions(Host("127.0.0.1", 10911), threads=False)) as store:
        assert store.recovered.damage == []
        before = store.queues.max_offset(TOPIC, 0)
        appended = store.append(
            TOPIC,
            0,
            b"ours",
            b"UNIQ_KEY\x01" + b"7F" * 16 + b"\x02KEYS\x01ours\x02",
            BORN_HOST,
            born_timestamp_ms=system_clock(),
        )
        assert appended.queue_offset == before
    with rocketlens.open_store(path) as reader:
        for number in range(300):
            assert len(reader.query_message(TOPIC, f"theirs-{number}").messages) == 1
        assert len(reader.query_message(TOPIC, "ours").messages) == 1
    wanted = tmp_path / "wanted"
    wanted.write_text(f"ours {'7F' * 16} 0 {before}")
    with peer.start(version, directory, **SIZES) as broker:
        found = peer.java(version, FIND_ALL, broker.namesrv_address, TOPIC, str(wanted))
        assert "found 1" in found, found


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_topic_that_a_real_broker_deleted_in_between_stays_deleted(peer, version, tmp_path):
    path = tmp_path / "broker" / "store"
    path.parent.mkdir()
    store, lines = write_store(path, version, 200)
    store.close()
    with peer.start(version, tmp_path / "broker", **SIZES) as broker:
        cluster = ("-n", broker.namesrv_address, "-c", "DefaultCluster")
        assert "success" in peer.mqadmin(version, "deleteTopic", "-t", TOPIC, *cluster)
        broker.stop()
    options = StoreOptions(Host("127.0.0.1", 10911), threads=False)
    for _ in range(2):
        with MessageStore(path, CONFIG, options) as store:
            assert [store.queues.max_offset(TOPIC, queue_id) for queue_id in range(4)] == [0] * 4
            assert store.recovered.damage == []
        # What is asked again is the log alone.
        (path / "rocketlens/state.json").unlink()
    with rocketlens.open_store(path) as reader:
        assert len(reader.query_message(TOPIC, lines[0].split()[0]).messages) == 1
