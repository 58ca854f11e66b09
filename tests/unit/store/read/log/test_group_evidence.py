"""Offsets of groups that are behind the ends of queues."""

import json
from functools import partial

import pytest
from rocksdict import Options, Rdict

from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log import log_evidence
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.log_evidence import GroupEvidence, first_ahead
from rocketlens.store.read.rocks import queues_in
from tests.support.synthetic import record, write_log


@pytest.fixture
def store(tmp_path):
    """A store with 20 messages in a queue, of which the last five have no entry yet."""
    written = write_log(tmp_path, (record(n) for n in range(20)), 1 << 14)
    queue = tmp_path / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    entries = [QueueEntry(each.physical_offset, each.total_size, 0) for each in written[:15]]
    (queue / f"{0:020}").write_bytes(b"".join(each.encode() for each in entries))
    return tmp_path


def write_offsets(store, offsets, **more):
    (store / "config").mkdir(exist_ok=True)
    content = {"dataVersion": {"counter": 3}, "offsetTable": offsets} | more
    (store / "config" / "consumerOffset.json").write_text(json.dumps(content))


def write_offsets_in_database(config, value):
    config.mkdir(exist_ok=True)
    database = Rdict(str(config / "consumerOffsets"), Options(raw_mode=True))
    database[b"Topic@a"] = value
    database.close()


@pytest.fixture
def opened(store):
    layout = StoreLayout(store)
    queues = queues_in(layout.consume_queue)
    yield layout, CommitLog.of(layout), queues
    queues.close()


@pytest.fixture
def ahead(opened):
    return GroupEvidence(*opened).ahead


def test_the_group_that_is_farthest_ahead_of_a_queue_is_named(store, ahead):
    write_offsets(store, {"Topic@a": {"0": 21}, "Topic@b": {"0": 25}, "Topic@c": {"0": 5}})
    (found,) = ahead()
    assert (found.queue, found.group, found.queue_offset, found.end) == (("Topic", 0), "b", 25, 20)
    assert str(found) == (
        "group b has consumed topic Topic, queue 0, up to queue offset 25, and it ends at 20 here: "
        "messages at its end are lost"
    )


@pytest.mark.parametrize("offset", [5, 15, 16, 20])
def test_what_the_queue_or_the_log_has_is_not_ahead(store, ahead, offset):
    write_offsets(store, {"Topic@a": {"0": offset}})
    assert ahead() == []


def test_without_queue_files_the_log_tells_where_a_queue_ends(store, ahead):
    (store / "consumequeue" / "Topic" / "0" / f"{0:020}").unlink()
    write_offsets(store, {"Topic@a": {"0": 20}})
    assert ahead() == []
    write_offsets(store, {"Topic@a": {"0": 21}})
    assert [each.end for each in ahead()] == [20]


def test_a_queue_without_files_and_messages_may_have_lost_them_by_age(store, ahead):
    write_offsets(store, {"Old@a": {"0": 21}, "%LMQ%x@a": {"0": 21}})
    assert ahead() == []


@pytest.mark.parametrize("why", ["ours", "no file", "nonsense"])
def test_other_offsets_prove_nothing(store, ahead, why):
    write_offsets(store, {"Topic@a": {"0": 25}})
    assert ahead()
    if why == "ours":
        (store / "rocketlens").mkdir()
        (store / "rocketlens" / "synced").write_bytes(b"")
    elif why == "no file":
        (store / "config" / "consumerOffset.json").unlink()
    else:
        write_offsets(store, {"Topic@a": [1], "Topic": {"x": 99, "0": "99", "1" * 30: 99}})
    assert ahead() == []


def test_offsets_of_rocketmq_4_prove_a_loss_in_a_log_from_its_first_byte_on(store, ahead):
    write_offsets(store, {"Topic@a": {"0": 25}, "Deleted@a": {"0": 25}}, dataVersion={})
    assert [(each.queue, each.end) for each in ahead()] == [(("Topic", 0), 20)]


def test_offsets_of_a_topic_that_was_made_again_prove_nothing_in_rocketmq_4(tmp_path):
    """The log still has the messages of the topic that was deleted."""
    before = [record(n) for n in range(30)]
    again = [record(n) for n in range(3)]
    written = write_log(tmp_path, [*before, *again], 1 << 14)
    queue = tmp_path / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    entries = [QueueEntry(each.physical_offset, each.total_size, 0) for each in written[30:]]
    (queue / f"{0:020}").write_bytes(b"".join(each.encode() for each in entries))
    layout = StoreLayout(tmp_path)
    queues = queues_in(layout.consume_queue)
    write_offsets(tmp_path, {"Topic@a": {"0": 30}}, dataVersion={})
    assert GroupEvidence(layout, CommitLog.of(layout), queues).ahead() == []
    write_offsets(tmp_path, {"Topic@a": {"0": 31}}, dataVersion={})
    assert GroupEvidence(layout, CommitLog.of(layout), queues).ahead()
    queues.close()


def test_offsets_of_rocketmq_4_prove_nothing_in_a_log_whose_first_file_was_deleted(tmp_path):
    written = write_log(tmp_path, (record(n) for n in range(40)), 2048)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    queue = tmp_path / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    entries = [QueueEntry(each.physical_offset, each.total_size, 0) for each in written]
    (queue / f"{0:020}").write_bytes(b"".join(each.encode() for each in entries))
    layout = StoreLayout(tmp_path)
    queues = queues_in(layout.consume_queue)
    for version, count in (({}, 0), ({"counter": 1}, 1)):
        write_offsets(tmp_path, {"Topic@a": {"0": 99}}, dataVersion=version)
        evidence = GroupEvidence(layout, CommitLog.of(layout), queues)
        assert len(evidence.ahead()) == count
    queues.close()


def test_an_unchanged_file_that_proves_nothing_is_read_once(store, ahead, monkeypatch):
    write_offsets(store, {"Topic@a": {"0": 15}})
    assert ahead() == []
    monkeypatch.setattr(log_evidence, "read_table", None)
    assert ahead() == []
    monkeypatch.undo()
    write_offsets(store, {"Topic@abc": {"0": 25}})
    assert len(ahead()) == 1


def test_an_unchanged_database_that_proves_nothing_is_read_once(store, ahead, monkeypatch):
    write = partial(write_offsets_in_database, store / "config")
    write(b'{"offsetTable":{0:15}}')
    assert ahead() == []
    monkeypatch.setattr(log_evidence, "read_table", None)
    assert ahead() == []
    monkeypatch.undo()
    write(b'{"offsetTable":{0:25}}')
    assert len(ahead()) == 1


def test_a_log_that_is_too_long_to_be_read_proves_nothing(store, ahead, monkeypatch):
    monkeypatch.setattr("rocketlens.limits.MAX_TOPIC_SCAN_BYTES", 100)
    write_offsets(store, {"Topic@a": {"0": 25}})
    assert ahead() == []


def test_groups_count_for_the_topics_that_are_read(store, opened):
    write_offsets(store, {"Topic@a": {"0": 25}})
    assert first_ahead(*opened, lambda topic: topic == "Topic").group == "a"
    assert first_ahead(*opened, lambda topic: topic == "Other") is None
