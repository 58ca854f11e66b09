"""Index files of a store that goes from our broker to a real one and back: no key is lost."""

import asyncio
import re
from collections import Counter

import pytest

import rocketlens
from rocketlens.broker.tables.topics import StoredTopic, TopicTable
from rocketlens.client.send.message import Message
from rocketlens.client.send.producer import Producer
from rocketlens.formats.index_file import index_hashes
from rocketlens.model.message import Host
from rocketlens.store.disk import Disk
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.message_store import MessageStore, StoreOptions, system_clock
from tests.support.written_stores import BORN_HOST, records_of
from tests.unit.store.index_as_rocketmq import RocketMQIndex

TOPIC = "PeerTopic"
pytestmark = pytest.mark.slow


def sizes(entry_count):
    return {
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 40_000,
        "maxHashSlotNum": 100,
        "maxIndexNum": entry_count,
    }


def run_ours(path, version, entry_count, first, count):
    """Have our broker's store take messages, and stop it cleanly."""
    config = StoreConfig(**sizes(entry_count), diskSpaceWarningLevelRatio=100)
    host = Host("127.0.0.1", 10911)
    options = StoreOptions(host, with_tag_index=version == "5.5.0", threads=False)
    with MessageStore(path, config, options) as store:
        topics = TopicTable(store.layout, Disk(), system_clock)
        topics.put(StoredTopic(TOPIC, read_queue_count=4, write_queue_count=4))
        topics.save()
        for number in range(first, first + count):
            properties = f"UNIQ_KEY\x017F{number:030X}\x02KEYS\x01ours-{number}\x02TAGS\x01A\x02"
            store.append(
                TOPIC,
                number % 4,
                b"body",
                properties.encode(),
                BORN_HOST,
                born_timestamp_ms=system_clock(),
            )


async def send_theirs(name_servers, count):
    """Have a real broker take messages."""
    async with Producer(name_servers) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"body", keys=[f"theirs-{number}"], tags="A"))


def lost_keys(path, version, entry_count):
    """Count the keys that no chain leads to, in all records of the log."""
    wanted = Counter(
        (key_hash, record.physical_offset)
        for record in records_of(path)
        for key_hash in index_hashes(record, with_tags=version == "5.5.0")
    )
    found = RocketMQIndex(path / "index", 100, entry_count).lookup({key for key, _ in wanted})
    there = Counter((key, offset) for key, offsets in found.items() for offset in offsets)
    return (wanted - there).total()


@pytest.mark.parametrize("entry_count", [5000, 400], ids=["one file", "many files"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_no_key_is_lost_between_ours_and_a_real_broker(peer, version, end, entry_count, tmp_path):
    directory = tmp_path / "broker"
    path = directory / "store"
    run_ours(path, version, entry_count, 0, 300)
    assert lost_keys(path, version, entry_count) == 0
    with peer.start(version, directory, **sizes(entry_count)) as broker:
        asyncio.run(send_theirs(broker.namesrv_address, 300))
        if end == "stopped":
            broker.stop()
    run_ours(path, version, entry_count, 300, 10)
    assert lost_keys(path, version, entry_count) == 0
    keys = [f"ours-{n}" for n in range(310)] + [f"theirs-{n}" for n in range(300)]
    with rocketlens.open_store(path) as store:
        for key in keys:
            answer = store.query_message(TOPIC, key)
            assert (len(answer.messages), answer.complete) == (1, True), key
    with peer.start(version, directory, **sizes(entry_count)) as broker:
        query = ["queryMsgByKey", "-n", broker.namesrv_address, "-t", TOPIC, "-k"]
        for key in ("ours-0", "theirs-299", "ours-309"):
            printed = peer.mqadmin(version, *query, key)
            assert len(re.findall(r"^[0-9A-F]{32,} ", printed, re.MULTILINE)) == 1, (key, printed)
