"""Consume queues are listed and read as RocketMQ wrote them."""

from rocketlens.store import fs
from rocketlens.store.read.consumequeue import ConsumeQueue, ConsumeQueues


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
