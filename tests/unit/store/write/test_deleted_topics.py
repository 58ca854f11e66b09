"""A deleted topic stays deleted, and made again it begins at 0, however the store was left."""

import shutil
import struct

import pytest

from rocketlens.formats.consumequeue_entry import ENTRY_BYTES
from rocketlens.store.disk import Disk
from rocketlens.store.read.former_topics import DeletionMark
from rocketlens.store.read.note import encode_note
from rocketlens.store.write.deleted_topics import DeletedTopics
from rocketlens.store.write.queue.queue_append import QueueWriter
from tests.support.written_stores import (
    Clock,
    be_a_real_broker,
    open_small,
    queue_lengths,
    send,
    send_many,
)

OLD, NEW = 40, 7


def mark(store, topic="Orders"):
    assert store.deleted.mark(topic)
    store.deleted.snapshot()()


def delete(store, topic="Orders"):
    mark(store, topic)
    store._disk.remove_tree(store.deleted.remove_queues(topic))


def numbers_of(store, topic="Orders"):
    """Which messages the queues of a topic have, by queue, in order."""
    found = {}
    for (name, queue_id), queue in sorted(store._appender.queues.items()):
        if name == topic and queue.next_offset:
            entries = queue.read(store.queues.min_offset(name, queue_id), 1000)
            records = [bytes(store.record(entry.physical_offset, 0)) for entry in entries]
            found[queue_id] = [int(each.partition(b"UNIQ_KEY\x01U")[2][:6]) for each in records]
    return found


def send_again(store):
    for number in range(NEW):
        assert send(store, 1000 + number).queue_offset == number


AGAIN = {0: [1000 + number for number in range(NEW)]}


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("end", ["closed", "killed", "without state", "without queues"])
def test_a_topic_made_again_has_only_what_was_sent_since(tmp_path, end, is_flushed):
    store = open_small(tmp_path)
    send_many(store, OLD)
    send(store, 0, topic="Others")
    store.flush()
    delete(store)
    send_again(store)
    if is_flushed:
        store.flush()
    if end == "closed":
        store.close()
    else:
        store.close_abruptly()
    if end == "without state":
        store.layout.state.unlink()
    if end == "without queues":
        shutil.rmtree(store.layout.consume_queue)
    with open_small(tmp_path) as store:
        assert numbers_of(store) == AGAIN
        assert numbers_of(store, "Others") == {0: [0]}
        assert store.queues.min_offset("Orders", 0) == 0
        assert send(store, 5).queue_offset == NEW


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_topic_that_is_not_made_again_stays_empty(tmp_path, is_flushed):
    store = open_small(tmp_path)
    send_many(store, OLD)
    store.flush()
    delete(store)
    if is_flushed:
        store.flush()
    store.close_abruptly()
    store.layout.state.unlink()
    with open_small(tmp_path) as store:
        assert numbers_of(store) == {}
        assert send(store, 5).queue_offset == 0


def test_a_kill_between_the_mark_and_the_removal_deletes_the_queues_at_the_next_start(tmp_path):
    store = open_small(tmp_path)
    send_many(store, OLD)
    store.flush()
    mark(store)
    store.close_abruptly()
    with open_small(tmp_path) as store:
        assert numbers_of(store) == {}
        send_again(store)
    with open_small(tmp_path) as store:
        assert numbers_of(store) == AGAIN


def test_what_came_between_the_mark_and_the_removal_does_no_harm(tmp_path):
    store = open_small(tmp_path)
    send_many(store, OLD, queues=1)
    mark(store)
    send(store, 500)
    store.flush()
    store._disk.remove_tree(store.deleted.remove_queues("Orders"))
    send_again(store)
    store.close_abruptly()
    with open_small(tmp_path) as store:
        assert numbers_of(store) == AGAIN


@pytest.mark.parametrize("kept", ["queues", "log"])
def test_without_our_files_the_place_where_offsets_begin_again_tells_it(tmp_path, kept):
    store = open_small(tmp_path)
    send_many(store, OLD, queues=1)
    delete(store)
    send_again(store)
    store.close_abruptly()
    shutil.rmtree(store.layout.own)
    if kept == "log":
        shutil.rmtree(store.layout.consume_queue)
    with open_small(tmp_path) as store:
        assert numbers_of(store) == AGAIN


@pytest.mark.parametrize("lacking", [0, 2])
def test_while_a_queue_is_recovered_no_message_of_its_deleted_topic_is_in_it(
    tmp_path, lacking, monkeypatch
):
    store = open_small(tmp_path)
    send_many(store, OLD, queues=1)
    delete(store)
    made_again = store.end_offset
    send_again(store)
    store.close_abruptly()
    shutil.rmtree(store.layout.own)
    # A broker that is killed may not have written the entries of its last messages.
    with (store.layout.consume_queue / "Orders/0" / f"{0:020}").open("r+b") as file:
        file.seek((NEW - lacking) * ENTRY_BYTES)
        file.write(bytes(lacking * ENTRY_BYTES))
    written = []

    put = QueueWriter.put

    def noted_put(queue, queue_offset, physical_offset, *arguments, **options):
        written.append((queue_offset, physical_offset >= made_again))
        return put(queue, queue_offset, physical_offset, *arguments, **options)

    monkeypatch.setattr(QueueWriter, "put", noted_put)
    with open_small(tmp_path) as store:
        assert numbers_of(store) == AGAIN
        assert store.recovered.entries_written == lacking
    assert written == [(number, True) for number in range(NEW)]


def test_files_of_removed_queues_are_closed_and_leftovers_go_at_the_next_start(tmp_path):
    store = open_small(tmp_path)
    send_many(store, OLD)
    mark(store)
    queues = list(store._appender.queues.values())
    aside = store.deleted.remove_queues("Orders")
    store.flush()
    assert all(queue._file is None and not queue._retired for queue in queues)
    assert aside.exists()
    store.close()
    with open_small(tmp_path):
        assert not aside.exists()


def test_marks_of_another_log_and_of_messages_that_expired_are_forgotten(tmp_path):
    store = open_small(tmp_path)
    send_many(store, OLD)
    delete(store)
    store.deleted.put("Foreign", DeletionMark(500, 100, 7))
    store.deleted.put("Expired", DeletionMark(0, 0, 0))
    store.deleted.snapshot()()
    store.close()
    with open_small(tmp_path) as store:
        assert list(store.deleted.marks) == ["Orders"]
        assert store.deleted.is_changed


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"T":[1,2,3]}',
        *(encode_note("deleted", {"T": value}, None) for value in ([1], 5, ["x", 2, 3])),
        encode_note("deleted", {"T": [101, 2, 3]}, None).replace(b"101", b"901"),
        encode_note("state", {"T": [1, 2, 3]}, None),
    ],
)
def test_a_damaged_file_has_no_marks(tmp_path, content):
    with open_small(tmp_path) as store:
        store.layout.deleted.write_bytes(content)
        assert DeletedTopics(store.layout, Disk(), store._appender, store.flush_log).marks == {}


def write_two_topics(path):
    with open_small(path) as store:
        send_many(store, 50, queues=2)
        send(store, 0, topic="Others")


@pytest.mark.parametrize("seen_by", ["lock", "checkpoint"])
@pytest.mark.parametrize("leaves_directory", [False, True])
def test_a_topic_that_a_real_broker_deleted_stays_deleted(tmp_path, seen_by, leaves_directory):
    write_two_topics(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue/Orders")
    if leaves_directory:
        (tmp_path / "consumequeue/Orders").mkdir()
    if seen_by == "lock":
        be_a_real_broker(tmp_path, writes_checkpoint=False)
    else:
        (tmp_path / "checkpoint").write_bytes(struct.pack(">q", 1).ljust(4096, b"\0"))
    store = open_small(tmp_path)
    assert store.queues.max_offset("Orders", 0) == 0
    assert store.queues.max_offset("Others", 0) == 1
    assert store.recovered.record_count == 0
    assert store.deleted.marks.keys() == {"Orders"}
    store.close_abruptly()
    # Not even when all is made again from the log.
    (tmp_path / "rocketlens/state.json").unlink()
    with open_small(tmp_path) as store:
        assert store.queues.max_offset("Orders", 0) == 0
        assert store.queues.max_offset("Others", 0) == 1
        assert send(store, 100).queue_offset == 0


def test_the_only_topic_of_a_store_stays_deleted_too(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 50, queues=2)
    shutil.rmtree(tmp_path / "consumequeue/Orders")
    be_a_real_broker(tmp_path)
    with open_small(tmp_path) as store:
        assert store.queues.max_offset("Orders", 0) == 0
        assert store.recovered.record_count == 0
        assert send(store, 100).queue_offset == 0


def test_a_topic_that_a_real_broker_deleted_and_made_again_has_what_came_since(tmp_path):
    write_two_topics(tmp_path)
    # The new topic has one queue, in which two messages are.
    with open_small(tmp_path) as store:
        end = store.end_offset
        state = (tmp_path / "rocketlens/state.json").read_bytes()
        checkpoint = (tmp_path / "checkpoint").read_bytes()
        shutil.rmtree(tmp_path / "consumequeue/Orders")
        store._appender.remove_queues("Orders", lambda: None)
        send(store, 1000)
        send(store, 1001)
    (tmp_path / "rocketlens/state.json").write_bytes(state)
    (tmp_path / "rocketlens/deleted.json").unlink(missing_ok=True)
    (tmp_path / "checkpoint").write_bytes(checkpoint)
    be_a_real_broker(tmp_path)
    with open_small(tmp_path) as store:
        assert store.queues.max_offset("Orders", 0) == 2
        assert store.queues.max_offset("Orders", 1) == 0
        assert store.queues.get("Orders", 0).entry(0).physical_offset == end


def test_a_topic_without_a_queue_in_a_real_brokers_closed_store_was_deleted(tmp_path):
    write_two_topics(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue/Orders")
    shutil.rmtree(tmp_path / "rocketlens")
    be_a_real_broker(tmp_path)
    with open_small(tmp_path) as store:
        assert queue_lengths(store)["Others", 0] == 1
        assert store.queues.max_offset("Orders", 0) == 0
        assert store.deleted.marks.keys() == {"Orders"}
        assert any("topic Orders" in note for note in store.recovered.notes)


def test_after_a_real_broker_was_killed_only_what_was_durable_counts_as_deleted(tmp_path):
    clock = Clock()
    store = open_small(tmp_path, clock=clock)
    send(store, 0, topic="Old")
    clock.now_ms += 10_000
    send(store, 1, topic="New")
    send(store, 2, topic="Others")
    now_ms = clock.now_ms
    store.flush()
    store.close_abruptly()
    for name in ("consumequeue/Old", "consumequeue/New", "rocketlens"):
        shutil.rmtree(tmp_path / name)
    be_a_real_broker(tmp_path, writes_checkpoint=False)
    content = struct.pack(">qqq", now_ms, now_ms, 0).ljust(4096, b"\0")
    (tmp_path / "checkpoint").write_bytes(content)
    with open_small(tmp_path) as store:
        assert {name for name, end in queue_lengths(store).items() if end} == {
            ("New", 0),
            ("Others", 0),
        }


def test_a_store_that_lost_all_its_queues_lost_no_topic(tmp_path):
    write_two_topics(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    be_a_real_broker(tmp_path)
    with open_small(tmp_path) as store:
        assert queue_lengths(store) == {("Orders", 0): 25, ("Orders", 1): 25, ("Others", 0): 1}
