"""Consume queues, queues of batches and tiered files are listed and read as RocketMQ wrote them."""

import os

import pytest

from rocketlens.formats import consumequeue_entry
from rocketlens.formats.batchqueue_entry import ENTRY_BYTES, BatchEntry
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.store import fs
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.batchqueue import BatchQueue, FileQueues
from rocketlens.store.read.consumequeue import ConsumeQueue, ConsumeQueues, QueueName
from rocketlens.store.read.tiers import read_tiers

SIZES = (3, 1, 1, 4, 2)
FILE_ENTRIES = 2


def entries(sizes=SIZES, first=5):
    """Make one entry for each batch, 100 bytes of log apart."""
    made = []
    for number, size in enumerate(sizes):
        made.append(BatchEntry(100 * number, 100, 0, 7, first, size))
        first += size
    return made


def write(directory, made, file_entries=FILE_ENTRIES):
    directory.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(made), file_entries):
        content = b"".join(each.encode() for each in made[start : start + file_entries])
        path = directory / f"{start * ENTRY_BYTES:020}"
        path.write_bytes(content.ljust(file_entries * ENTRY_BYTES, b"\0"))


@pytest.fixture
def queue(tmp_path):
    write(tmp_path / "T" / "0", entries())
    return BatchQueue(tmp_path / "T" / "0")


def expected(sizes=SIZES):
    made = [[QueueEntry(100 * number, 100, 0)] * size for number, size in enumerate(sizes)]
    return [each for batch in made for each in batch]


def messages(queue):
    size = consumequeue_entry.ENTRY_BYTES
    return [
        (first + number, consumequeue_entry.decode(content, number * size))
        for first, content in queue.contents()
        for number in range(len(content) // size)
    ]


def test_each_message_has_the_entry_of_its_batch(queue):
    stop = 5 + sum(SIZES)
    assert queue.max_offset == stop
    assert [queue.entry(number) for number in range(5, stop)] == expected()
    assert messages(queue) == list(enumerate(expected(), 5))
    assert list(queue.entries()) == messages(queue)
    assert queue.last_entry() == expected()[-1]
    for number in (-1, 0, 4, stop, 2**62):
        assert queue.entry(number) is None
    assert [(file.first_queue_offset, file.entry_count) for file in queue.files] == [
        (5, 4),
        (9, 5),
        (14, 2),
    ]


def test_the_first_entry_of_which_something_is_so_is_that_of_a_whole_batch(queue):
    assert queue.first_kept(0) == 5
    assert queue.first_kept(1) == 8
    assert queue.first_kept(300) == 10
    assert queue.first_kept(10**6) == queue.max_offset


def test_a_file_that_is_missing_leaves_a_hole(queue):
    (queue.directory / f"{FILE_ENTRIES * ENTRY_BYTES:020}").unlink()
    queue.refresh()
    assert queue.entry(10) is None
    assert queue.entry(6) == QueueEntry(0, 100, 0)
    assert [number for number, _ in messages(queue)] == [5, 6, 7, 8, 14, 15]


def test_what_a_broker_adds_is_read(queue):
    made = [*entries(), BatchEntry(500, 100, 0, 7, 16, 2)]
    write(queue.directory, made)
    assert queue.max_offset == 18
    assert queue.entry(17) == QueueEntry(500, 100, 0)
    write(queue.directory, [*made, BatchEntry(600, 100, 0, 7, 18, 1)])
    queue.refresh_if_changed()
    assert queue.max_offset == 19


def test_a_queue_that_is_cut_anywhere_has_what_is_before(tmp_path):
    for length in range(2 * ENTRY_BYTES + 1):
        directory = tmp_path / str(length)
        write(directory, entries())
        os.truncate(directory / f"{0:020}", length)
        queue = BatchQueue(directory)
        count = sum(SIZES[: length // ENTRY_BYTES])
        assert [queue.entry(5 + number) is not None for number in range(4)] == [
            number < count for number in range(4)
        ]
        assert queue.max_offset == 16
        queue.close()


def test_a_damaged_count_takes_no_memory_for_messages_that_are_not_there(tmp_path):
    made = [BatchEntry(100 * number, 100, 0, 7, number, 32767) for number in range(200)]
    write(tmp_path, made, file_entries=200)
    runs = [len(content) for _, content in BatchQueue(tmp_path).contents()]
    assert max(runs) == 32767 * 20
    assert len(runs) == 200


def test_a_queue_without_files_has_nothing(tmp_path):
    queue = BatchQueue(tmp_path / "none")
    assert (queue.files, queue.max_offset, queue.last_entry()) == ([], 0, None)
    assert list(queue.contents()) == []
    write(tmp_path / "new", [BatchEntry(0, 0, 0, 0, 0, 0)])
    queue = BatchQueue(tmp_path / "new")
    assert (queue.files, queue.max_offset, queue.entry(0)) == ([], 0, None)
    assert list(queue.contents()) == []


def test_a_store_has_queues_of_both_kinds(tmp_path):
    write(tmp_path / "batches" / "T" / "1", entries())
    ordinary = tmp_path / "ordinary" / "U" / "0"
    ordinary.mkdir(parents=True)
    (ordinary / ("0" * 20)).write_bytes(QueueEntry(7, 100, 0).encode())
    queues = FileQueues(tmp_path / "ordinary", tmp_path / "batches")
    assert queues.names() == [QueueName("U", 0), QueueName("T", 1)]
    assert queues.topics() == ["U", "T"]
    assert queues.batch_topics() == {"T"}
    assert queues.queue("T", 1).entry(6) == QueueEntry(0, 100, 0)
    assert queues.queue("U", 0).entry(0) == QueueEntry(7, 100, 0)
    queues.close()


def test_batch_queues_that_cannot_be_listed_are_told(tmp_path, monkeypatch):
    queues = FileQueues(tmp_path / "ordinary", tmp_path / "batches")
    entries_of = fs.entries

    def listed(directory):
        if directory.name == "batches":
            raise PermissionError(13, "Permission denied", str(directory))
        return entries_of(directory)

    monkeypatch.setattr(fs, "entries", listed)
    assert queues.batch_topics() == set()
    assert "batches cannot be listed" in queues.unlisted
    assert queues.topics() == []


def test_a_queue_gives_its_entries_its_end_and_its_newest(made):
    queues = ConsumeQueues(made.path / "consumequeue")
    assert queues.topics() == ["Topic0", "Topic1", "Topic2"]
    for name in queues.names():
        queue = queues.queue(*name)
        expected = [r for r in made.records if (r.topic, r.queue_id) == name]
        assert queue.max_offset == len(expected)
        assert queue.last_entry().physical_offset == expected[-1].physical_offset
        assert [e.physical_offset for _, e in queue.entries()] == [
            r.physical_offset for r in expected
        ]
        assert queue.entry(len(expected)) is None
        assert queue.entry(-1) is None
    assert queues.queue("../escape", 0) is None
    queues.close()
    assert ConsumeQueue(made.path / "nowhere").max_offset == 0


def test_a_queue_file_that_a_broker_deletes_while_it_is_listed_is_not_there(made, monkeypatch):
    name = ConsumeQueues(made.path / "consumequeue").names()[0]
    listed = fs.entries

    def delete_then_give(directory):
        found = list(listed(directory))
        for entry in found:
            (directory / entry.name).unlink()
        return found

    monkeypatch.setattr(fs, "entries", delete_then_give)
    queue = ConsumeQueue(made.path / "consumequeue" / name.topic / str(name.queue_id))
    assert queue.files == []
    assert queue.last_entry() is None


def test_the_first_entry_of_which_something_is_so_is_found_at_each_place(made):
    queues = ConsumeQueues(made.path / "consumequeue")
    for name in queues.names():
        queue = queues.queue(*name)
        offsets = [entry.physical_offset for _, entry in queue.entries()]
        for number, offset in enumerate(offsets):
            assert queue.first_kept(offset) == number
            assert queue.first_where(lambda entry, at=offset: entry.physical_offset > at) == (
                number + 1
            )
        assert queue.first_kept(0) == 0
        assert queue.first_where(lambda _: False) == queue.max_offset == len(offsets)
    queues.close()
    assert ConsumeQueue(made.path / "nowhere").first_kept(0) == 0


def test_an_entry_that_was_never_written_counts_as_one_whose_record_is_deleted(made):
    name = ConsumeQueues(made.path / "consumequeue").names()[0]
    directory = made.path / "consumequeue" / name.topic / str(name.queue_id)
    (file,) = directory.iterdir()
    content = file.read_bytes()
    # As a broker leaves a queue whose first messages are gone.
    file.write_bytes(bytes(7 * 20) + content[7 * 20 :])
    queue = ConsumeQueue(directory)
    assert queue.first_kept(0) == 7
    queue.close()


NAME = "cfcd208400000000000000000000"


@pytest.fixture
def layout(tmp_path):
    directory = tmp_path / "tiered" / "212d6b50_DefaultCluster"
    queue = directory / "broker-a" / "Orders" / "3"
    (queue / "COMMIT_LOG").mkdir(parents=True)
    (queue / "COMMIT_LOG" / NAME).write_bytes(b"\1" * 40)
    (queue / "CONSUME_QUEUE").mkdir()
    # The queue begins with offset 7.
    entries = b"".join(QueueEntry(20 * n, 20, 0).encode() for n in (0, 1))
    (queue / "CONSUME_QUEUE" / f"{'0' * 8}{140:020}").write_bytes(entries)
    layout = StoreLayout(tmp_path / "store", (), directory)
    layout.config.mkdir(parents=True)
    layout.tiers.write_text(
        '{"commitLogFileSegmentTable":{"broker-a/Orders/3":{0:{"baseOffset":0,"size":40},'
        '40:{"baseOffset":40,"size":0}},"broker-a/Empty/0":{0:{"baseOffset":0,"size":0}}}}'
    )
    return layout


def test_each_queue_to_which_something_was_written_has_a_log(layout):
    tiers = read_tiers(layout)
    assert tiers.problem is None
    (log,) = tiers.logs
    assert (log.topic, log.queue_id, log.sizes, log.end_offset) == ("Orders", 3, {0: 40}, 40)
    assert log.path == layout.tiered / "broker-a" / "Orders" / "3" / "COMMIT_LOG"
    assert list(log.lost()) == []


def test_the_queue_beside_a_log_says_where_its_messages_are(layout):
    (log,) = read_tiers(layout).logs
    assert [log.physical_offset(n) for n in range(6, 10)] == [None, 0, 20, None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is missing"),
        (b"\1" * 39, "has 39 of 40 bytes"),
        (b"\1" * 20 + bytes(20), "ends with zeros"),
    ],
)
def test_a_file_that_is_lost_is_named(layout, content, said):
    (log,) = read_tiers(layout).logs
    file = log.path / NAME
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    (lost,) = log.lost()
    assert str(file) in lost
    assert said in lost


def test_the_directory_is_found_near_the_store_or_named_as_missing(layout):
    (log,) = read_tiers(StoreLayout(layout.root)).logs
    assert log.path.is_relative_to(layout.tiered)
    layout.tiered.rename(layout.root.parent / "hidden")
    tiers = read_tiers(layout)
    assert tiers.logs == ()
    assert f"not in {layout.tiered}" in tiers.problem


def test_a_table_that_cannot_be_read_is_named(layout):
    layout.tiers.write_text("{")
    assert str(layout.tiers) in read_tiers(layout).problem
