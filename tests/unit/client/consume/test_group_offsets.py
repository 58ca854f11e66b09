"""Offsets that brokers keep, and those of a broadcasting consumer, in RocketMQ's file."""

import asyncio

import pytest

from rocketlens.client.connect.route import Broker, MessageQueue, Route
from rocketlens.client.consume.group_offsets import LocalOffsetFile, OffsetTable, RemoteOffsets
from rocketlens.client.consume.push import PushConsumer
from rocketlens.errors import CommandBodyError
from rocketlens.wire.bodies.clients import ConsumeFromWhere as From
from rocketlens.wire.bodies.clients import LocalOffsets
from rocketlens.wire.declare import read_body
from tests.unit.client.consume import consumer_vectors

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 1)


@pytest.fixture
def file(tmp_path):
    return LocalOffsetFile("10.0.0.1@DEFAULT", "g", tmp_path)


@pytest.mark.parametrize("version", consumer_vectors.VERSIONS)
def test_a_file_that_java_wrote_is_read(version, file):
    [[ours, theirs]] = consumer_vectors.vectors_of(version, "offsets")
    expected = read_body(LocalOffsets, bytes.fromhex(ours)).offset_table
    assert len(expected) == 3
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(bytes.fromhex(theirs))
    assert file.load() == expected


def test_the_path_is_rocketmqs(file, tmp_path, monkeypatch):
    assert file.path == tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    monkeypatch.setenv("HOME", "/home/someone")
    home = LocalOffsetFile("c", "g").path
    assert str(home) == "/home/someone/.rocketmq_offsets/c/g/offsets.json"


def test_what_was_written_is_read_by_the_next_consumer(file, tmp_path):
    async def write():
        assert await file.read(QUEUE) is None
        await file.write([(QUEUE, 5), (OTHER, 6)])
        await file.write([(QUEUE, 7)])
        again = LocalOffsetFile("10.0.0.1@DEFAULT", "g", tmp_path)
        return await again.read(QUEUE), await again.read(OTHER)

    assert asyncio.run(write()) == (7, 6)


@pytest.mark.parametrize("damage", [b"", b"  ", b"{", b'{"offsetTable":{"x":1}}', b"\xff\xfe"])
def test_the_file_before_is_read_where_the_newest_cannot_be(damage, file):
    file.save({QUEUE: 5})
    file.save({QUEUE: 6})
    file.path.write_bytes(damage)
    assert file.load() == {QUEUE: 5}


def test_a_damaged_file_without_one_before_it_is_an_error_and_not_a_new_group(file):
    file.save({QUEUE: 5})
    file.path.write_bytes(b"{")
    with pytest.raises(CommandBodyError, match="mend or delete it"):
        file.load()


def test_a_disk_that_fails_is_logged_and_tried_again(file, caplog, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    async def write():
        with monkeypatch.context() as patch:
            patch.setattr(file, "save", fail)
            await file.write([(QUEUE, 5)])
        await file.write([(QUEUE, 5)])

    asyncio.run(write())
    assert "not stored yet" in caplog.text
    assert file.load() == {QUEUE: 5}


def test_offsets_only_grow_unless_they_are_reset():
    table = OffsetTable()
    assert table.get(QUEUE) is None
    table.put(QUEUE, 5, increase_only=True)
    table.put(QUEUE, 3, increase_only=True)
    assert table.get(QUEUE) == 5
    table.put(QUEUE, 3, increase_only=False)
    table.put(MessageQueue("U", "b", 0), 1, increase_only=True)
    assert table.of_topic("T") == {QUEUE: 3}
    del table[QUEUE]
    assert [queue.topic for queue, _ in table.items()] == ["U"]


class RacingBroker:
    """Makes the table of a group's first offset in a topic as RocketMQ's brokers do: of two that
    arrive together each finds none, and the table made last is kept.
    """

    def __init__(self):
        self.tables = {}

    async def route(self, topic, *, wait):
        assert not wait
        return Route(topic, {"broker-a": Broker("broker-a", {0: "10.0.0.1:10911"})}, (), ())

    async def ask(self, _address, _command, header):
        table = self.tables.get(header.topic, {})
        await asyncio.sleep(0)
        table[header.queue_id] = header.commit_offset
        self.tables[header.topic] = table


@pytest.mark.parametrize("is_together", [True, False])
def test_a_broker_forgets_none_of_a_groups_first_offsets(is_together):
    offsets = [(QUEUE._replace(topic=topic, queue_id=n), n) for topic in "TU" for n in range(8)]

    async def write():
        broker = RacingBroker()
        store = RemoteOffsets(broker, "g")
        each_write = [offsets] if is_together else [[offset] for offset in offsets]
        await asyncio.gather(*map(store.write, each_write))
        return broker.tables

    table = {number: number for number in range(8)}
    assert asyncio.run(write()) == {"T": table, "U": table}


RETRY = "%RETRY%g"


class Stored:
    def __init__(self, offset):
        self.offset = offset

    async def read(self, _):
        return self.offset


class Beginning(PushConsumer):
    async def max_offset(self, _):
        return 900

    async def search_offset(self, _, timestamp_ms):
        assert timestamp_ms == self.begin_timestamp_ms
        return 400


def begin(stored, where, topic="T"):
    consumer = Beginning("127.0.0.1:9876", group="g")
    consumer.begin, consumer._store = where, Stored(stored)
    return asyncio.run(consumer._first_offset(MessageQueue(topic, "broker-a", 0)))


@pytest.mark.parametrize("where", list(From))
@pytest.mark.parametrize("topic", ["T", RETRY])
def test_what_is_stored_counts_whatever_is_asked_for(where, topic):
    assert begin(7, where, topic) == 7
    assert begin(0, where, topic) == 0


@pytest.mark.parametrize(
    ("where", "of_topic", "of_retry"),
    [
        (From.CONSUME_FROM_LAST_OFFSET, 900, 0),
        (From.CONSUME_FROM_MIN_OFFSET, 900, 0),
        (From.CONSUME_FROM_FIRST_OFFSET, 0, 0),
        (From.CONSUME_FROM_TIMESTAMP, 400, 900),
    ],
)
def test_a_new_group_begins_where_java_does(where, of_topic, of_retry):
    assert begin(None, where) == of_topic
    assert begin(None, where, RETRY) == of_retry


@pytest.mark.parametrize("offsets", [[], [(OTHER, 7)]])
def test_a_commit_before_anything_was_read_loses_no_offset_of_the_file(offsets, file):
    file.save({QUEUE: 5})
    again = LocalOffsetFile("10.0.0.1@DEFAULT", "g", file.path.parents[2])
    asyncio.run(again.write(offsets))
    assert file.load() == {QUEUE: 5, **dict(offsets)}


def test_a_file_that_is_to_be_mended_is_not_overwritten(file, caplog):
    file.save({QUEUE: 5})
    file.path.write_bytes(b"{")
    again = LocalOffsetFile("10.0.0.1@DEFAULT", "g", file.path.parents[2])
    asyncio.run(again.write([(QUEUE, 9)]))
    assert file.path.read_bytes() == b"{"
    assert "mend or delete it" in caplog.text
