"""Queues of batches are read as consume queues are, message by message."""

import os

import pytest

from rocketlens.formats import consumequeue_entry
from rocketlens.formats.batchqueue_entry import ENTRY_BYTES, BatchEntry
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.store import fs
from rocketlens.store.read.batchqueue import BatchQueue, FileQueues
from rocketlens.store.read.consumequeue import QueueName

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
