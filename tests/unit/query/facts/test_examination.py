"""The log, consume queues and consumer offsets of a store, against each other."""

import shutil

import pytest

from rocketlens import limits
from rocketlens.query.facts.examination import (
    Depth,
    QueueFaultKind,
    StoreExamination,
)
from rocketlens.query.store_reader import StoreReader
from tests.support.written_stores import open_small, send_many

ENTRY = 20


@pytest.fixture
def reader(golden, tmp_path):
    """Open a copy of a golden store, which is closed afterwards."""
    opened = []

    def open_copy(change=lambda _: None, version="5.5.0"):
        store = shutil.copytree(golden(version).store, tmp_path / "store")
        change(store)
        opened.append(StoreReader(store))
        return opened[0]

    yield open_copy
    for each in opened:
        each.close()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_sound_store_has_no_fault(reader, version):
    opened = reader(version=version)
    examined = StoreExamination(opened, Depth.LOG)
    contents = examined.contents
    assert (contents.damage, contents.torn_at) == ([], None)
    for name, span in contents.spans.items():
        assert span.stop == opened.queues.queue(*name).max_offset
    assert list(examined.queue_faults()) == []
    assert list(examined.offset_faults()) == []


def fault_of(opened):
    (fault,) = StoreExamination(opened, Depth.LOG).queue_faults()
    return fault.kind, fault.name.topic, fault.name.queue_id, fault.first


def cut(store, count, queue="PayTopic/1"):
    (file,) = (store / "consumequeue" / queue).iterdir()
    content = file.read_bytes()
    file.write_bytes(content[: count * ENTRY].ljust(len(content), b"\0"))


def test_a_queue_that_was_cut_is_short(reader):
    opened = reader(lambda store: cut(store, 7))
    assert fault_of(opened) == (QueueFaultKind.SHORT, "PayTopic", 1, 7)


def test_a_queue_without_files_is_missing(reader):
    opened = reader(lambda store: shutil.rmtree(store / "consumequeue" / "PayTopic" / "1"))
    assert fault_of(opened) == (QueueFaultKind.MISSING, "PayTopic", 1, 0)


def test_a_last_entry_that_leads_to_another_record_is_astray(reader):
    def change(store):
        (file,) = (store / "consumequeue" / "PayTopic" / "1").iterdir()
        content = bytearray(file.read_bytes())
        end = len(content.rstrip(b"\0")) // ENTRY * ENTRY
        last = StoreReader(store).queues.queue("PayTopic", 1).max_offset - 1
        assert last * ENTRY < end + ENTRY
        content[last * ENTRY : last * ENTRY + 8] = (0).to_bytes(8, "big")
        file.write_bytes(content)

    opened = reader(change)
    faults = list(StoreExamination(opened, Depth.LOG).queue_faults())
    assert [each.kind for each in faults] == [QueueFaultKind.ASTRAY]


def test_a_file_between_others_that_is_missing_is_a_hole(tmp_path):
    with open_small(tmp_path / "store") as store:
        send_many(store, 200)
    opened = StoreReader(tmp_path / "store")
    name = opened.queues.names()[0]
    queue = opened.queues.queue(*name)
    assert len(queue.files) > 2
    lost = queue.files[1]
    lost.path.unlink()
    opened.close()
    opened = StoreReader(tmp_path / "store")
    (fault,) = [
        each
        for each in StoreExamination(opened, Depth.LOG).queue_faults()
        if each.kind is QueueFaultKind.HOLE
    ]
    assert (fault.name, fault.first) == (name, lost.first_queue_offset)
    assert fault.stop == lost.first_queue_offset + lost.entry_count
    opened.close()


def test_the_newest_messages_of_a_killed_broker_are_not_yet_dispatched(reader):
    def change(store):
        opened = StoreReader(store)
        newest = max(
            (opened.queues.queue(*name).last_entry().physical_offset, name)
            for name in opened.queues.names()
            if opened.queues.queue(*name).last_entry()
        )[1]
        end = opened.queues.queue(*newest).max_offset
        opened.close()
        cut(store, end - 1, f"{newest.topic}/{newest.queue_id}")

    opened = reader(change)
    assert fault_of(opened)[0] is QueueFaultKind.NOT_YET


def test_messages_of_a_deleted_topic_lack_no_queue(reader):
    def change(store):
        shutil.rmtree(store / "consumequeue" / "T22")
        topics = store / "config" / "topics.json"
        for path in (topics, topics.with_name("topics.json.bak")):
            if path.exists():
                path.write_text(path.read_text().replace('"T22"', '"T23"'))

    opened = reader(change)
    assert list(StoreExamination(opened, Depth.LOG).queue_faults()) == []


def test_a_log_that_is_too_long_is_not_read(reader, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TOPIC_SCAN_BYTES", 1000)
    opened = reader(lambda store: cut(store, 7))
    examined = StoreExamination(opened, Depth.LOG)
    assert examined.contents is None
    assert list(examined.queue_faults()) == []
    # What the queue lacks shows in the offset of a group that has consumed it.
    (fault,) = examined.offset_faults()
    assert (fault.group, fault.queue.queue_id, fault.queue.max_offset) == ("golden_cg", 1, 7)
    assert fault.is_beyond
