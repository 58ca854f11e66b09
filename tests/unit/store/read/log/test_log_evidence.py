"""Files that prove what a log had: those deleted with it, and offsets of groups."""

import json
import os
import shutil
from contextlib import suppress
from functools import partial

import pytest
from rocksdict import Options, Rdict

import rocketlens
from rocketlens import read_batches
from rocketlens.errors import StoreError
from rocketlens.formats.checkpoint import Checkpoint
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, QueueEntry
from rocketlens.formats.index_file import HEADER_BYTES
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log import log_evidence
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.log_evidence import GroupEvidence, lost_begin, lost_end_of
from rocketlens.store.read.rocks import queues_in
from rocketlens.store.read.state import Synced
from tests.support.made_stores import overwrite
from tests.support.synthetic import record, write_log

ENTRIES = 4
"""Of a queue file."""


def newest_ms(made):
    return max(record.store_timestamp_ms for record in made.records)


def write_checkpoint(made, moment_ms):
    path = made.path / "checkpoint"
    path.write_bytes(Checkpoint(moment_ms, moment_ms).encode())
    written_s = newest_ms(made) / 1000
    os.utime(path, (written_s, written_s))


def last_files(log):
    return [segment.path for segment in log.segments[-2:]]


@pytest.mark.parametrize("way", ["missing", "empty", "zeroed", "cut"])
def test_queues_prove_a_lost_end(made, log, way):
    assert lost_end_of(StoreLayout(made.path), log) is None
    shutil.rmtree(made.path / "index")
    for path in last_files(log):
        if way == "missing":
            path.unlink()
        elif way == "zeroed":
            overwrite(path, 0, bytes(path.stat().st_size))
        else:
            os.truncate(path, 0 if way == "empty" else 40)
    log.refresh()
    lost = lost_end_of(StoreLayout(made.path), log)
    assert lost is not None
    assert lost.physical_offset == made.records[-1].physical_offset
    assert "consumequeue/" in lost.text
    with rocketlens.open_store(made.path) as store:
        assert not store.find(topic=made.records[-1].topic).complete


def test_index_headers_prove_a_lost_end(made, log):
    shutil.rmtree(made.path / "consumequeue")
    last_files(log)[-1].unlink()
    with rocketlens.open_store(made.path) as store:
        answer = store.find(topic=made.records[-1].topic)
    assert not answer.complete
    assert any("index/" in (each.error or "") for each in answer.failures)


def test_an_index_file_of_another_log_proves_nothing(made, log):
    index = made.index_paths()[-1]
    overwrite(index, 0, (newest_ms(made) + 1).to_bytes(8, "big"))
    overwrite(index, 24, (log.max_offset + 1000).to_bytes(8, "big"))
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_a_checkpoint_of_a_later_time_than_all_messages_proves_a_lost_end(made, log):
    write_checkpoint(made, newest_ms(made))
    assert lost_end_of(StoreLayout(made.path), log) is None
    write_checkpoint(made, newest_ms(made) + 1)
    lost = lost_end_of(StoreLayout(made.path), log)
    assert lost is not None
    assert lost.physical_offset is None


def test_a_checkpoint_that_is_damaged_proves_nothing(made, log):
    write_checkpoint(made, newest_ms(made) + 10**10)
    assert lost_end_of(StoreLayout(made.path), log) is None
    (made.path / "checkpoint").write_bytes(b"short")
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_an_open_store_notices_that_its_end_is_lost(made, log):
    with rocketlens.open_store(made.path) as store:
        topic = made.records[-1].topic
        assert store.find(topic=topic).complete
        last = last_files(log)[-1]
        overwrite(last, 0, bytes(last.stat().st_size))
        assert not store.find(topic=topic).complete
        with suppress(FileNotFoundError):
            last.unlink()
        assert not store.find(topic=topic).complete


def flip_last_entry(made, byte_offset):
    path = next(iter(sorted(made.path.glob("consumequeue/*/*/*"))))
    content = path.read_bytes()
    last = max(at for at in range(0, len(content), 20) if any(content[at + 8 : at + 12]))
    overwrite(path, last + byte_offset, bytes([content[last + byte_offset] ^ 8]))


@pytest.mark.parametrize("byte_offset", range(6))
def test_an_entry_that_is_damaged_proves_nothing(made, log, byte_offset):
    shutil.rmtree(made.path / "index")
    flip_last_entry(made, byte_offset)
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_an_index_header_that_is_damaged_proves_nothing(made, log):
    overwrite(made.index_paths()[-1], 24, (log.max_offset + 1000).to_bytes(8, "big"))
    assert lost_end_of(StoreLayout(made.path), log) is None


def test_the_only_message_that_is_lost_is_proved_by_its_entry(made, log):
    shutil.rmtree(made.path / "index")
    last = made.records[-1]
    path = log.segment_of(last.physical_offset).path
    overwrite(path, last.physical_offset - int(path.name), bytes(last.total_size))
    lost = lost_end_of(StoreLayout(made.path), log)
    assert lost is not None
    assert lost.physical_offset == last.physical_offset


def test_the_queues_of_rocketlens_prove_nothing_because_it_writes_them_before_records(made, log):
    shutil.rmtree(made.path / "index")
    last_files(log)[-1].unlink()
    log.refresh()
    assert lost_end_of(StoreLayout(made.path), log) is not None
    synced = StoreLayout(made.path).synced
    synced.parent.mkdir()
    synced.write_bytes(Synced(100, made.records[0].physical_offset).encode(2)[1])
    assert lost_end_of(StoreLayout(made.path), log) is None


@pytest.fixture
def store(tmp_path):
    """A store whose first log file is gone, with queues that lead to it."""
    written = write_log(tmp_path, (record(n) for n in range(40)), 2048)
    queue = tmp_path / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    for number in range(0, 40, ENTRIES):
        entries = [QueueEntry(each.physical_offset, each.total_size, 0) for each in written]
        content = b"".join(each.encode() for each in entries[number : number + ENTRIES])
        (queue / f"{number * ENTRY_BYTES:020}").write_bytes(content)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    return tmp_path


def write_index(store, name, begin, end):
    (store / "index").mkdir(exist_ok=True)
    header = [*(number.to_bytes(8, "big") for number in (5, 6, begin, end))]
    (store / "index" / name).write_bytes(b"".join(header) + b"\0\0\0\1\0\0\0\3" + bytes(200))


def said(store):
    layout = StoreLayout(store)
    queues = queues_in(layout.consume_queue)
    try:
        return lost_begin(layout, CommitLog.of(layout), queues)
    finally:
        queues.close()


def test_a_queue_file_that_leads_only_before_the_log_is_named(store):
    assert "consumequeue/Topic/0/00000000000000000000 leads to messages before" in said(store)
    assert "the log begins at physical offset 2048" in said(store)


def test_files_that_lead_into_the_log_and_the_last_of_a_queue_prove_nothing(store):
    queue = store / "consumequeue" / "Topic" / "0"
    first, second, *others = sorted(queue.iterdir())
    first.unlink()
    second.unlink()
    (queue / others[0].name).unlink()
    assert said(store) is None
    for path in others[1:]:
        path.unlink()
    first.write_bytes(QueueEntry(0, 100, 0).encode())
    assert said(store) is None


@pytest.mark.parametrize(
    ("ends", "proves"), [((1900, 4000), True), ((2048, 4000), False), ((1900,), False)]
)
def test_an_index_file_that_leads_only_before_the_log_proves_it_unless_it_is_the_last(
    store, ends, proves
):
    for path in (store / "consumequeue" / "Topic" / "0").iterdir():
        path.unlink()
    for number, end in enumerate(ends):
        write_index(store, f"2026010100000000{number}", 100, end)
    assert (said(store) is not None) == proves
    if proves:
        assert "index/20260101000000000 leads to" in said(store)


@pytest.mark.parametrize("name", ["abort", "rocketlens/state.json"])
def test_a_broker_that_runs_or_is_ours_deletes_them_later(store, name):
    (store / name).parent.mkdir(exist_ok=True)
    (store / name).write_text("")
    assert said(store) is None


def test_a_log_from_its_first_byte_on_lost_nothing_before(store):
    (store / "commitlog" / f"{0:020}").write_bytes(bytes(2048))
    assert said(store) is None


def test_files_that_cannot_be_read_prove_nothing(store, monkeypatch):
    write_index(store, "20260101000000000", 100, 200)
    write_index(store, "20260101000000001", 300, 400)
    (store / "index" / "20260101000000000").write_bytes(b"x" * HEADER_BYTES)
    for path in (store / "consumequeue" / "Topic" / "0").iterdir():
        path.unlink()
    assert said(store) is None


def test_each_way_to_read_such_a_store_is_incomplete_or_fails(store):
    with rocketlens.open_store(store) as opened:
        for answer in (
            *(opened.find("no such key"), opened.find(topic="Topic"), opened.find("Topic/0/0")),
            *(opened.topics(), opened.topics("Topic")),
        ):
            assert not answer.complete
        scan = opened.scan("Topic")
        rows = scan.to_arrow()
        assert not scan.complete
    with pytest.raises(StoreError, match="the log's first file is lost"):
        read_batches(store)
    damage = [row for batch in read_batches(store, table="damage") for row in batch.to_pylist()]
    assert [(row["physical_offset"], row["length"]) for row in damage] == [(0, 2048)]
    kept = read_batches(store, failOnDataLoss="false")
    assert sum(len(batch) for batch in kept) == len(rows)


def test_a_bulk_read_of_what_was_stored_later_does_not_fail(store):
    log = CommitLog(store / "commitlog")
    first = log.record_at(log.min_offset)
    for later in (
        {"startingTimestamp": first.store_timestamp_ms},
        {"startingOffset": first.physical_offset},
    ):
        assert sum(len(batch) for batch in read_batches(store, **later))


@pytest.fixture
def group_store(tmp_path):
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
def opened(group_store):
    layout = StoreLayout(group_store)
    queues = queues_in(layout.consume_queue)
    yield layout, CommitLog.of(layout), queues
    queues.close()


@pytest.fixture
def ahead(opened):
    return GroupEvidence(*opened).ahead


def test_the_group_that_is_farthest_ahead_of_a_queue_is_named(group_store, ahead):
    write_offsets(group_store, {"Topic@a": {"0": 21}, "Topic@b": {"0": 25}, "Topic@c": {"0": 5}})
    (found,) = ahead()
    assert (found.queue, found.group, found.queue_offset, found.end) == (("Topic", 0), "b", 25, 20)
    assert str(found) == (
        "group b has consumed topic Topic, queue 0, up to queue offset 25, and it ends at 20 here: "
        "messages at its end are lost"
    )


@pytest.mark.parametrize("offset", [5, 15, 16, 20])
def test_what_the_queue_or_the_log_has_is_not_ahead(group_store, ahead, offset):
    write_offsets(group_store, {"Topic@a": {"0": offset}})
    assert ahead() == []


def test_without_queue_files_the_log_tells_where_a_queue_ends(group_store, ahead):
    (group_store / "consumequeue" / "Topic" / "0" / f"{0:020}").unlink()
    write_offsets(group_store, {"Topic@a": {"0": 20}})
    assert ahead() == []
    write_offsets(group_store, {"Topic@a": {"0": 21}})
    assert [each.end for each in ahead()] == [20]


def test_a_queue_without_files_and_messages_may_have_lost_them_by_age(group_store, ahead):
    write_offsets(group_store, {"Old@a": {"0": 21}, "%LMQ%x@a": {"0": 21}})
    assert ahead() == []


@pytest.mark.parametrize("why", ["ours", "no file", "nonsense"])
def test_other_offsets_prove_nothing(group_store, ahead, why):
    write_offsets(group_store, {"Topic@a": {"0": 25}})
    assert ahead()
    if why == "ours":
        (group_store / "rocketlens").mkdir()
        (group_store / "rocketlens" / "synced").write_bytes(b"")
    elif why == "no file":
        (group_store / "config" / "consumerOffset.json").unlink()
    else:
        write_offsets(group_store, {"Topic@a": [1], "Topic": {"x": 99, "0": "99", "1" * 30: 99}})
    assert ahead() == []


def test_offsets_of_rocketmq_4_prove_a_loss_in_a_log_from_its_first_byte_on(group_store, ahead):
    write_offsets(group_store, {"Topic@a": {"0": 25}, "Deleted@a": {"0": 25}}, dataVersion={})
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


def test_an_unchanged_file_that_proves_nothing_is_read_once(group_store, ahead, monkeypatch):
    write_offsets(group_store, {"Topic@a": {"0": 15}})
    assert ahead() == []
    monkeypatch.setattr(log_evidence, "read_table", None)
    assert ahead() == []
    monkeypatch.undo()
    write_offsets(group_store, {"Topic@abc": {"0": 25}})
    assert len(ahead()) == 1


def test_an_unchanged_database_that_proves_nothing_is_read_once(group_store, ahead, monkeypatch):
    write = partial(write_offsets_in_database, group_store / "config")
    write(b'{"offsetTable":{0:15}}')
    assert ahead() == []
    monkeypatch.setattr(log_evidence, "read_table", None)
    assert ahead() == []
    monkeypatch.undo()
    write(b'{"offsetTable":{0:25}}')
    assert len(ahead()) == 1


def test_a_log_that_is_too_long_to_be_read_proves_nothing(group_store, ahead, monkeypatch):
    monkeypatch.setattr("rocketlens.limits.MAX_TOPIC_SCAN_BYTES", 100)
    write_offsets(group_store, {"Topic@a": {"0": 25}})
    assert ahead() == []


def test_groups_count_for_the_topics_that_are_read(group_store, opened):
    write_offsets(group_store, {"Topic@a": {"0": 25}})
    layout, log, _ = opened
    assert "group a has" in lost_end_of(layout, log, lambda topic: topic == "Topic").text
    assert lost_end_of(layout, log, lambda topic: topic == "Other") is None
