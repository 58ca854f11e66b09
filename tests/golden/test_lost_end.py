"""Messages at the end of a log that is cut are missed by no answer that says it is complete."""

import shutil

import pytest
import rocksdict

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.errors import AnswerIncomplete, StoreError
from rocketlens.formats.commitlog_record import message_of
from rocketlens.formats.consumequeue_entry import decode as decode_entry
from rocketlens.formats.rocksdb.queue_key import decode as decode_key
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk
from tests.support.layouts import ONE_ROCKSDB, ROCKSDB, copied

VERSIONS = ("4.9.7", "5.5.0")
WAYS = ("zeroed", "cut", "zeroed in part")
EVIDENCE = {"queues": "consumequeue", "index": "index", "checkpoint": "checkpoint"}


def messages_of(path):
    log = CommitLog(path / "commitlog")
    return [message_of(record) for record in LogWalk(log, log.min_offset).records()]


def lose_end(store, at, way):
    """Take away what the log has from a physical offset on."""
    log = CommitLog(store / "commitlog")
    for segment in log.segments:
        keep = min(max(at - segment.base_offset, 0), segment.size)
        with segment.path.open("r+b") as file:
            if way == "cut":
                file.truncate(keep)
            else:
                file.seek(keep)
                file.write(bytes(min(segment.size - keep, 1 << 22)))


@pytest.fixture
def cut_store(golden, tmp_path):
    def cut(version, way, kept=("queues", "index", "checkpoint")):
        store = tmp_path / "store"
        shutil.copytree(golden(version).store, store)
        messages = messages_of(store)
        lost = messages[len(messages) * 3 // 5 :]
        lose_end(store, lost[0].physical_offset + (7 if way == "zeroed in part" else 0), way)
        for name in EVIDENCE.keys() - set(kept):
            path = store / EVIDENCE[name]
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return store, lost

    return cut


def assert_no_false_answer(store, lost):
    with rocketlens.open_store(store) as opened:
        for message in lost[-20:]:
            topic = message.topic
            assert not opened.find(topic=topic).complete
            times = opened.find(
                topic=topic, begin=message.store_timestamp_ms, end=message.store_timestamp_ms
            )
            assert not times.complete
            for key in (*message.keys, message.unique_key):
                if key:
                    assert not opened.find(key, topic=topic).complete
            with pytest.raises(AnswerIncomplete):
                opened.query_by_queue_offset(topic, message.queue_id, message.queue_offset)
            with pytest.raises(AnswerIncomplete):
                opened.view_message(message.offset_msg_id)
        scan = opened.scan()
        assert all(message.physical_offset < lost[0].physical_offset for message in scan)
        assert not scan.complete


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_that_lost_its_end_gives_no_complete_answer(cut_store, version, way):
    store, lost = cut_store(version, way)
    assert_no_false_answer(store, lost)


@pytest.mark.parametrize("kept", EVIDENCE)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_file_that_proves_a_lost_end_is_enough(cut_store, version, kept):
    store, lost = cut_store(version, "zeroed", [kept])
    assert_no_false_answer(store, lost)


@pytest.mark.parametrize("name", [ROCKSDB, ONE_ROCKSDB])
def test_groups_prove_a_lost_end_where_queues_are_in_rocksdb(layouts, name, tmp_path):
    """A broker that starts on a log without its end cuts queues, index and checkpoint to it."""
    layout = copied(layouts, name, tmp_path / "broker")
    at = int(max(each.offset_msg_id for each in layout.messages if each.topic == "Orders")[16:], 16)
    lose_end(layout.store, at, "zeroed")
    shutil.rmtree(layout.store / "index")
    (layout.store / "checkpoint").unlink()
    path, raw = str(layout.store / "consumequeue"), rocksdict.Options(raw_mode=True)
    families = dict.fromkeys(rocksdict.Rdict.list_cf(path), raw)
    database = rocksdict.Rdict(path, raw, column_families=families)
    for key, value in list(database.items()):
        if decode_key(key) is not None and decode_entry(memoryview(value), 0).physical_offset >= at:
            del database[key]
    database.close()
    with layout.open() as store:
        for answer in (store.find(topic="Orders"), store.find("none", topic="Orders")):
            assert "has consumed topic Orders" in " ".join(each.error for each in answer.failures)
    with pytest.raises(StoreError, match="has consumed topic Orders"):
        read_batches(layout.store)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bulk_read_of_a_log_that_lost_its_end_fails_unless_it_is_told_not_to(cut_store, version):
    store, lost = cut_store(version, "zeroed")
    with pytest.raises(StoreError, match="messages at its end are lost"):
        list(read_batches(store))
    kept = list(read_batches(store, failOnDataLoss="false"))
    assert max(batch["physical_offset"][-1].as_py() for batch in kept) < lost[0].physical_offset
    damage = [row for batch in read_batches(store, table="damage") for row in batch.to_pylist()]
    assert any("messages at its end are lost" in row["reason"] for row in damage)
