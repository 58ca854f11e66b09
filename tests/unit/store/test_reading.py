"""How logs, queues and index files are opened, mapped and walked."""

import struct
from dataclasses import replace

import numpy as np
import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import IndexFileError, RecordError
from rocketlens.formats.commitlog_record import Reason
from rocketlens.formats.index_file import HEADER_BYTES
from rocketlens.model.java import index_hash
from rocketlens.model.rocketmq import is_topic_name
from rocketlens.store import fs
from rocketlens.store.read import mapped, tail
from rocketlens.store.read.commitlog import CommitLog, SegmentLost
from rocketlens.store.read.consumequeue import ConsumeQueue, ConsumeQueues
from rocketlens.store.read.index import IndexFile, is_near
from rocketlens.store.read.index_files import IndexFiles
from rocketlens.store.read.resync import next_record
from rocketlens.store.read.scan import LogWalk, exhaust
from rocketlens.store.read.starts import RecordStarts
from tests.crash import made_stores
from tests.crash.failing_calls import FailingCalls
from tests.crash.made_stores import flip, make_store, overwrite, some_messages
from tests.unit.store import written_stores


def knows_nothing(_record):
    """No queue and no index file can tell."""


def knows_nothing_before(_offset):
    return 0


def is_blank(log, offset):
    """Whether the filler of a segment begins here."""
    with pytest.raises(RecordError) as caught:
        log.record_at(offset)
    return caught.value.reason == Reason.BLANK


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(200), segment_bytes=1 << 13)


@pytest.fixture
def log(made):
    opened = CommitLog(made.path / "commitlog")
    yield opened
    opened.close()


def test_written_parts_leave_out_holes(tmp_path):
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(300_000)
        file.write(b"x")
    parts = list(fs.data_extents(path, 0, 1 << 20))
    assert all(low <= high for low, high in parts)
    assert any(low <= 300_000 < high for low, high in parts)
    assert list(fs.data_extents(path, 10, 10)) == []
    path.unlink()
    assert list(fs.data_extents(path, 5, 99)) == [(5, 99)]


def test_a_small_file_is_copied_and_a_part_can_be_mapped(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 1000)
    copied = fs.MappedFile(path, copy_bytes=20_000)
    assert isinstance(copied.content, bytes)
    assert bytes(fs.MappedFile(path, 12).view) == b"012345678901"
    assert len(fs.MappedFile(path, 10**9)) == 10_000


def test_no_more_files_are_kept_mapped_than_allowed_and_those_in_use_stay_valid(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_MAPPED_FILES", 4)
    paths = [tmp_path / str(n) for n in range(12)]
    for n, path in enumerate(paths):
        path.write_bytes(bytes([n]) * 5000)
    files = mapped.MappedFiles()
    held = [files.get(path, 5000) for path in paths]
    assert len(files._files) == 4
    assert [one.view[0] for one in held] == list(range(12))
    assert files.get(paths[-1], 5000) is held[-1]
    assert files.get(paths[-1], 4000) is not held[-1]
    files.close()


def test_every_offset_is_in_its_segment_or_in_none(made, log):
    assert (log.min_offset, log.segment_bytes) == (0, 1 << 13)
    for offset in range(0, log.max_offset, 501):
        segment = log.segment_of(offset)
        assert segment.base_offset <= offset < segment.end_offset
    assert log.segment_of(log.max_offset) is None
    assert log.segment_of(-1) is None


def test_a_segment_that_went_is_told_from_one_that_holds_nothing(made, log):
    record = made.records[100]
    made.segment_path(record.physical_offset).unlink()
    with pytest.raises(SegmentLost):
        log.record_at(record.physical_offset)
    with pytest.raises(RecordError) as caught:
        log.record_at(log.max_offset + 5)
    assert caught.value.reason == Reason.END


def test_a_segment_that_cannot_be_opened_is_damage_and_the_walk_goes_on(made, log, monkeypatch):
    unreadable = made.segment_path(1 << 13)
    whole = fs.MappedFile.__init__

    def refuse(self, path, *arguments, **named):
        if path == unreadable:
            raise PermissionError(13, "Permission denied", str(path))
        whole(self, path, *arguments, **named)

    monkeypatch.setattr(fs.MappedFile, "__init__", refuse)
    walk = LogWalk(log, 0)
    offsets = [record.physical_offset for record in walk.records()]
    stored = [record.physical_offset for record in made.records]
    assert offsets == [o for o in stored if made.segment_path(o) != unreadable]
    assert [(d.start, d.stop) for d in walk.damage] == [(1 << 13, 2 << 13)]
    assert "Permission denied" in str(walk.damage[0])


def test_walks_by_rows_and_by_records_meet_the_same(made, log):
    overwrite(made.segment_path(0), made.records[9].physical_offset, bytes(50))
    flip(made.segment_path(1 << 13), made.records[70].physical_offset % (1 << 13) + 5)
    by_record, by_row = LogWalk(log, 0), LogWalk(log, 0)
    offsets = [record.physical_offset for record in by_record.records()]
    rows = np.concatenate([chunk.rows["physical_offset"].copy() for chunk in by_row.chunks()])
    assert rows.tolist() == offsets
    assert by_row.damage == by_record.damage
    assert by_row.position == by_record.position
    assert len(offsets) == 198


def test_the_next_record_is_found_by_either_of_the_damaged_ones_own_words(made, log):
    hit, following = made.records[30], made.records[31]
    for byte in (0, 1, 2, 3, 4, 7, 84, 85, 86, 87):
        flip(made.segment_path(0), hit.physical_offset + byte, 0x10)
        found = next_record(log, hit.physical_offset, Reason.SIZE)
        assert found == following.physical_offset
        flip(made.segment_path(0), hit.physical_offset + byte, 0x10)


def test_record_starts_are_told_from_all_other_offsets(made, log):
    starts = RecordStarts(log, knows_nothing, knows_nothing_before)
    true_starts = {record.physical_offset for record in made.records}
    last = max(true_starts)
    for offset in [*range(0, last, 7), *true_starts]:
        is_walked_to = starts.begins_at(offset)
        assert is_walked_to == (offset in true_starts) or is_blank(log, offset)
        assert not starts.is_damaged_at(offset)
    flip(made.segment_path(0), made.records[12].physical_offset + 4)
    starts = RecordStarts(log, knows_nothing, knows_nothing_before)
    for record in made.records:
        is_hit = record is made.records[12]
        assert starts.is_damaged_at(record.physical_offset) == is_hit
        assert starts.begins_at(record.physical_offset) != is_hit


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


def test_topic_names_are_those_that_rocketmq_takes():
    assert all(map(is_topic_name, ("A", "%RETRY%g", "a_b-9", "x" * 255, "%LMQ%a|b")))
    assert not any(map(is_topic_name, ("", "a/b", "..", "a b", "x" * 256, "主题", "a\n")))


def test_an_index_file_gives_the_entries_of_a_hash_newest_first(made, log):
    files = IndexFiles(made.path / "index", log)
    assert [state.error for state in files.states] == [None]
    (file,) = files.sound
    for record in made.records[::9]:
        for key_hash in made_stores.hashes_of(record):
            found = [offset for _, offset in file.find(key_hash, log)]
            assert record.physical_offset in found
            assert found == sorted(found, reverse=True)
        assert file.known_start_before(record.physical_offset) == record.physical_offset
        assert file.known_start_before(record.physical_offset + 1) == record.physical_offset
        assert files.knows(record)
        stranger = made_stores.replace(record, physical_offset=record.physical_offset + 1)
        assert not files.knows(stranger)
    files.close()


def test_hashes_that_differ_in_one_byte_are_near():
    assert is_near(0x01020304, 0x01020384)
    assert is_near(0x01020304, 0x01FF0304)
    assert is_near(0x71020304, 0x01020304)
    assert not is_near(0x01020304, 0x01020405)


def test_a_file_that_says_it_is_empty_is_looked_through(tmp_path):
    path = tmp_path / "20231114221320000"
    path.write_bytes(struct.pack(">qqqqii", 1, 1, 1, 1, 0, 1).ljust(22040, b"\0"))
    IndexFile(path).check_empty()
    overwrite(path, 15_000, b"\1")
    with pytest.raises(IndexFileError):
        IndexFile(path).check_empty()


def test_log_beyond_what_the_memory_keeps_is_read_again_and_found(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TAIL_ENTRIES", 50)
    monkeypatch.setattr(limits, "MAX_INTERPRETED_SCAN_BYTES", 2000)
    monkeypatch.setattr("rocketlens.store.read.scan.CHUNK_ROWS", 32)
    made = make_store(tmp_path / "store", some_messages(300), index=None)
    with rocketlens.open_store(made.path) as store:
        for topic, text in made.texts()[::3]:
            found = store.query_message(topic, text, None)
            expected = [r.physical_offset for r in made.with_key(topic, text)]
            assert [m.physical_offset for m in found] == expected


def test_the_memory_sorts_what_is_asked_often_and_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_INTERPRETED_SCAN_BYTES", 0)
    monkeypatch.setattr("rocketlens.store.read.scan.CHUNK_ROWS", 16)
    made = make_store(tmp_path / "store", some_messages(200), index=None)
    log = CommitLog(made.path / "commitlog")
    memory = tail.Tail(log, knows_nothing)
    memory.cover([(0, None)])
    memory.read_new()
    hashes = {h for record in made.records[50:60] for h in made_stores.hashes_of(record)}
    first = list(memory.find(hashes))
    assert {r.physical_offset for r in made.records[50:60]} <= set(first)
    assert first == sorted(first, reverse=True)
    assert all(list(memory.find(hashes)) == first for _ in range(8))
    assert memory.end_offset == made.records[-1].physical_offset + made.records[-1].total_size
    assert set(memory.topics) == {"Topic0", "Topic1", "Topic2"}
    log.close()


def test_a_walk_to_the_end_costs_no_memory_of_what_it_met(log):
    walk = LogWalk(log, 0)
    exhaust(walk)
    assert (walk.damage, walk.torn_at) == ([], None)


def test_a_long_chain_is_searched_as_a_short_one_is(tmp_path, monkeypatch):
    made = make_store(tmp_path / "store", some_messages(300), index=(1, 5000), with_tags=True)
    log = CommitLog(made.path / "commitlog")
    hashes = [h for record in made.records[::20] for h in made_stores.hashes_of(record)]
    walked = [list(IndexFile(made.index_paths()[0]).find(h, log)) for h in hashes]
    monkeypatch.setattr("rocketlens.store.read.index._LONG_CHAIN", 10)
    monkeypatch.setattr("rocketlens.store.read.index._ENTRIES_TO_PAUSE", 23)
    assert [list(IndexFile(made.index_paths()[0]).find(h, log)) for h in hashes] == walked
    # A hash with one wrong byte, on the one chain there is.
    flip(made.index_paths()[0], 44 + 20 * 50 + 2)
    hurt = IndexFile(made.index_paths()[0])
    offset = hurt.entry(50).physical_offset
    (record,) = [r for r in made.records if r.physical_offset == offset]
    errors = 0
    for key_hash in made_stores.hashes_of(record):
        try:
            list(hurt.find(key_hash, log))
        except IndexFileError:
            errors += 1
    assert errors
    log.close()


def test_an_index_file_that_a_builder_is_writing_to_is_no_damage(tmp_path):
    # A builder puts entries on their slots, and counts all of them in the header afterwards.
    config = replace(written_stores.SMALL, maxHashSlotNum=400_000)
    with written_stores.open_small(tmp_path, config=config) as store:
        sent = written_stores.send_many(store, 8)
        store.flush()
        assert store.build_index()
        (path,) = (tmp_path / "index").iterdir()
        log = CommitLog(tmp_path / "commitlog")
        opened = IndexFile(path)
        counted = path.read_bytes()[:HEADER_BYTES]
        sent += written_stores.send_many(store, 8, first=8)
        store.flush()
        assert store.build_index()
        with path.open("r+b") as file:
            file.write(counted)
        opened.count_slots()
        for number, one in enumerate(sent):
            found = [offset for _, offset in opened.find(index_hash(f"Orders#k{number}"), log)]
            assert found == [one.physical_offset]
        opened.close()
        log.close()


@pytest.fixture
def zeros_between(tmp_path):
    """A log of one segment: some records, 12 MiB of written zeros, and some records more."""
    made = make_store(tmp_path / "store", some_messages(20), segment_bytes=1 << 24, index=None)
    offset = made.records[-1].physical_offset + made.records[-1].total_size + (12 << 20)
    for n in range(30):
        sent = made_stores.Sent("Behind", f"behind-{n}", body=b"behind", queue_id=7)
        record, encoded = made_stores.record_of(sent, offset, n)
        overwrite(made.segment_path(0), offset, encoded)
        made.records.append(record)
        offset += record.total_size
    return made


def test_records_behind_many_written_zeros_are_found_and_the_zeros_named(zeros_between):
    with rocketlens.open_store(zeros_between.path) as store:
        answer = store.query_message("Behind", "behind-3")
        assert [m.body for m in answer] == [b"behind"]
        assert not answer.complete
        first = zeros_between.records[20].physical_offset
        assert str(first) in str(answer.failures)
        scanned = store.scan()
        assert len(list(scanned)) == 50
        assert not scanned.complete
        assert store.view_message(zeros_between.records[-1].offset_msg_id).body == b"behind"


def test_zeros_behind_the_end_are_read_to_the_end_of_the_file_once(tmp_path, monkeypatch):
    made = make_store(tmp_path / "store", some_messages(20), segment_bytes=1 << 24, index=None)
    monkeypatch.setattr(limits, "MAX_UNWRITTEN_SEARCH_BYTES", 1 << 20)
    log = CommitLog(made.path / "commitlog")
    end = made.records[-1].physical_offset + made.records[-1].total_size
    mapping = log.map(log.segments[0])
    assert next_record(log, end, Reason.END) is None
    assert mapping.zeros_from <= 1 << 20
    content = mapping.content
    read = []

    class Watched:
        def __getitem__(self, place):
            read.append(place.start)
            return content[place]

    monkeypatch.setattr(mapping, "content", Watched())
    assert next_record(log, end, Reason.END) is None
    assert max(read) < 4 << 20


def test_log_that_could_not_be_listed_is_read_once_it_can_be(tmp_path, monkeypatch):
    with written_stores.open_small(tmp_path) as store:
        written_stores.send_many(store, 60)
        log = CommitLog(tmp_path / "commitlog")
        memory = tail.Tail(log, knows_nothing)
        memory.cover([(0, None)])
        memory.read(0, store.end_offset)
        read_to = store.end_offset
        while len(list((tmp_path / "commitlog").iterdir())) < len(log.segments) + 2:
            written_stores.send(store, 60, body=b"x" * 3000)
        with monkeypatch.context() as patched:
            failing = FailingCalls(tmp_path, range(10_000))
            patched.setattr(fs.os, "scandir", lambda path: failing.count("scandir", path))
            log.refresh()
            assert memory.read(read_to, store.end_offset) == store.end_offset
            assert list(memory.damage)
            hits = set(memory.find({index_hash("Orders#k60")}))
            assert list(memory.damage)
        hits |= set(memory.find({index_hash("Orders#k60")}))
        assert [one.physical_offset for one in written_stores.records_of(tmp_path)[60:]] == sorted(
            hits
        )
        assert not memory.damage
        log.close()
