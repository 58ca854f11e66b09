"""RocksDB databases of a store. Those of a real broker are in tests/golden/test_layouts.py."""

import pytest
from rocksdict import Options, Rdict

from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.formats.rocksdb.queue_key import QueueKey
from rocketlens.limits import MAX_QUEUE_OFFSET
from rocketlens.store.read.batchqueue import FileQueues
from rocketlens.store.read.consumequeue import QueueName
from rocketlens.store.read.rocks import RocksDatabase, RocksQueues, queues_in, table_in


def entry_of(number):
    return QueueEntry(number % 1000 * 100, 100, 7)


class Writer:
    """A broker that writes entries: its database is open all the time."""

    def __init__(self, directory):
        self.database = Rdict(str(directory), Options(raw_mode=True))

    def put(self, topic, queue_id, *queue_offsets):
        for number in queue_offsets:
            key = QueueKey(topic, queue_id, number).encode()
            self.database[key] = entry_of(number).encode() + bytes(8)
        self.database.flush_wal(sync=True)


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "consumequeue"


@pytest.fixture
def writer(directory):
    writer = Writer(directory)
    yield writer
    writer.database.close()


def test_queues_are_listed_and_read_as_those_in_files(writer, directory):
    writer.put("Orders", 1, *range(3, 9))
    writer.put("Orders", 10, 0)
    writer.put("%RETRY%group", 0, 0, 1)
    queues = queues_in(directory)
    assert isinstance(queues, RocksQueues)
    assert queues.topics() == ["%RETRY%group", "Orders"]
    assert queues.names() == [
        QueueName("%RETRY%group", 0),
        QueueName("Orders", 1),
        QueueName("Orders", 10),
    ]
    queue = queues.queue("Orders", 1)
    assert queue.max_offset == 9
    assert [queue.entry(number) for number in (2, 3, 8, 9, -1)] == [
        *(None, entry_of(3), entry_of(8)),
        *(None, None),
    ]
    assert list(queue.entries()) == [(number, entry_of(number)) for number in range(3, 9)]
    assert queue.first_where(lambda entry: entry.physical_offset >= 500) == 5
    assert queue.first_kept(450) == 5
    assert queue.last_entry() == entry_of(8)
    assert queues.queue("Payments", 0).max_offset == 0
    assert queues.queue("Payments", 0).last_entry() is None
    assert queues.queue("../Orders", 0) is None
    queues.close()


def test_a_hole_between_entries_is_no_entry(writer, directory):
    writer.put("Orders", 0, 2, 3, 6)
    queues = queues_in(directory)
    queue = queues.queue("Orders", 0)
    assert [number for number, _ in queue.entries()] == [2, 3, 6]


def test_an_offset_that_is_damage_takes_no_memory(writer, directory):
    far = MAX_QUEUE_OFFSET - 1
    writer.put("Orders", 0, 0, 1, far)
    queues = queues_in(directory)
    queue = queues.queue("Orders", 0)
    assert [(first, len(content)) for first, content in queue.contents()] == [(0, 40), (far, 20)]
    assert queue.max_offset == far + 1
    assert queue.entry(1) == entry_of(1)


def test_a_name_that_is_no_text_is_read_all_the_same(tmp_path):
    database = Rdict(str(tmp_path / "topics"), Options(raw_mode=True))
    database[b"Ord\xffers"] = b"{}"
    database.close()
    assert table_in(tmp_path / "topics") == [(b"Ord\xffers", b"{}")]
    assert table_in(tmp_path / "topics", "none") == []


def test_what_is_written_meanwhile_is_seen_at_the_next_look(writer, directory):
    writer.put("Orders", 0, 0)
    queues = queues_in(directory)
    assert queues.queue("Orders", 0).max_offset == 1
    writer.put("Orders", 0, 1, 2)
    writer.put("Payments", 0, 0)
    assert queues.queue("Orders", 0).max_offset == 1
    queues.look_again()
    assert queues.queue("Orders", 0).max_offset == 3
    assert queues.topics() == ["Orders", "Payments"]
    writer.database.flush()
    writer.database.compact_range(None, None)
    queues.look_again()
    assert queues.queue("Orders", 0).entry(2) == entry_of(2)


def test_nothing_is_written_into_the_directory(writer, directory):
    writer.put("Orders", 0, *range(10))
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    queues = queues_in(directory)
    assert queues.queue("Orders", 0).max_offset == 10
    queues.close()
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_a_database_that_cannot_be_read_is_an_os_error_with_its_path(writer, directory):
    writer.put("Orders", 0, 0)
    (directory / "CURRENT").write_bytes(b"MANIFEST-999999\n")
    queues = queues_in(directory)
    with pytest.raises(OSError, match="RocksDB") as raised:
        queues.queue("Orders", 0)
    assert raised.value.filename == str(directory)
    assert queues.topics() == []
    assert "RocksDB" in queues.unlisted
    with pytest.raises(OSError, match="RocksDB"):
        table_in(directory)


def test_a_closed_database_is_an_os_error(writer, directory):
    database = RocksDatabase(directory)
    database.close()
    with pytest.raises(OSError, match="closed"):
        database.get(b"x")


def test_queues_in_files_are_no_database(directory):
    directory.mkdir()
    assert type(queues_in(directory)) is FileQueues
