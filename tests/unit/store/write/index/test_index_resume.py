"""Index builders one after another: what is kept was proven, and no key is lost in between."""

import errno
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

import rocketlens
from rocketlens.formats.index_file import DEFAULT_GEOMETRY, decode_header, index_hashes
from rocketlens.formats.rows import IndexEntries
from rocketlens.store import fs
from rocketlens.store.disk import Disk
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.index.index_state import read_index_state
from rocketlens.store.write.index.index_driver import IndexBuilder
from rocketlens.store.write.index.index_writer import IndexWriter
from rocketlens.store.write.message_store import MessageStore, StoreOptions
from tests.support.written_stores import (
    GOLDEN,
    QUIET,
    SMALL,
    STORE_HOST,
    Clock,
    open_small,
    records_of,
    send_many,
)
from tests.unit.store.index_as_rocketmq import RocketMQIndex

GEOMETRY = SMALL.geometry._replace(entry_count=400)
TINY = SMALL.geometry._replace(entry_count=80)


def builder_of(path, log_end, geometry=GEOMETRY, disk=None, kind=IndexBuilder):
    return kind(
        StoreLayout(path),
        geometry,
        with_tags=True,
        disk=disk or Disk(),
        clock=Clock(),
        log_end=log_end,
    )


def build(path, log_end, geometry=GEOMETRY, disk=None):
    """Build up to an offset and close, as a broker that is stopped cleanly does."""
    builder = builder_of(path, log_end, geometry, disk)
    while not builder.build(log_end):
        pass
    builder.sync()
    builder.close()


def rocketmq_index(path, geometry=GEOMETRY):
    return RocketMQIndex(path / "index", *geometry)


def check_all_found(path, geometry=GEOMETRY):
    """Check that chains lead to every key of every record, once, and that our reader finds all."""
    index = rocketmq_index(path, geometry)
    expected, sent = {}, []
    for record in records_of(path):
        sent.append(record.physical_offset)
        for key_hash in index_hashes(record, with_tags=True):
            expected.setdefault(key_hash, []).append(record.physical_offset)
    for key_hash, offsets in index.lookup(expected).items():
        assert Counter(offsets) == Counter(expected[key_hash])
    check_reader(path, len(sent))


def check_reader(path, count):
    with rocketlens.open_store(path) as store:
        answer = store.query_message("Orders", "all", max_num=None)
        assert (len(answer.messages), answer.complete) == (count, True)
        for number in (0, count // 2, count - 1):
            answer = store.query_message("Orders", f"k{number}", max_num=None)
            assert (len(answer.messages), answer.complete) == (1, True)


@pytest.fixture
def log_only(tmp_path):
    """A store of 300 messages without index files, and the physical offset of each."""
    path = tmp_path / "store"
    with open_small(path, options=structs.replace(QUIET, build_index=False)) as store:
        send_many(store, 300)
        end = store.end_offset
    return path, [record.physical_offset for record in records_of(path)], end


def put_as_rocketmq(path, first, last, geometry=GEOMETRY, *, is_killed=False):
    """Put the entries of some records as a RocketMQ broker does."""
    index = rocketmq_index(path, geometry)
    pairs = [
        (record, key_hash)
        for record in records_of(path)[first:last]
        for key_hash in index_hashes(record, with_tags=True)
    ]
    for place, (record, key_hash) in enumerate(pairs):
        index.put(
            key_hash,
            record.physical_offset,
            record.store_timestamp_ms,
            counted=not is_killed or place < len(pairs) - 1,
        )


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("count", [1, 40, 150, 299 - 60])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_no_chain_is_cut_after_another_broker_added_to_the_index(log_only, end, count, is_killed):
    path, offsets, log_end = log_only
    builder = builder_of(path, offsets[60])
    assert builder.build(offsets[60])
    builder.sync()
    builder.close() if end == "closed" else builder.close_abruptly()
    put_as_rocketmq(path, 60, 60 + count, is_killed=is_killed)
    build(path, log_end)
    check_all_found(path)


def test_full_files_are_made_again_where_the_file_system_has_no_links(log_only):
    class WithoutLinks(Disk):
        def link_file(self, path, target):
            refused.append(target.name)
            raise OSError(errno.EPERM, "Operation not permitted", str(path))

    path, offsets, log_end = log_only
    refused = []
    build(path, offsets[120])
    put_as_rocketmq(path, 120, 299)
    build(path, log_end, disk=WithoutLinks())
    assert refused
    check_all_found(path)


def test_an_entry_that_was_put_in_and_not_counted_cuts_no_chain(log_only):
    path, offsets, log_end = log_only
    build(path, offsets[60])
    last = rocketmq_index(path).files()[-1]
    header = last.read_bytes()[:40]
    record = records_of(path)[60]
    _, key_hash, *_ = index_hashes(record, with_tags=True)
    rocketmq_index(path).put(key_hash, offsets[60], 1_700_000_000_000, counted=False)
    assert last.read_bytes()[:40] == header
    build(path, log_end)
    check_all_found(path)


def note_of(index):
    return StoreLayout(index.directory.parent).index_state


def change_digit(index):
    content = note_of(index).read_bytes()
    place = content.index(b"safeOffset") + len(b'safeOffset":')
    digit = b"%d" % ((int(content[place : place + 1]) + 1) % 10)
    note_of(index).write_bytes(content[:place] + digit + content[place + 1 :])


def write_at(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


BETWEEN = {
    "the last file deleted": lambda index: index.files()[-1].unlink(),
    "all files deleted": lambda index: shutil.rmtree(index.directory),
    "the first file deleted": lambda index: index.files()[0].unlink(),
    "its own state changed": change_digit,
    "its own state deleted": lambda index: note_of(index).unlink(),
    "a header made impossible": lambda index: write_at(index.files()[1], 16, b"\xff" * 8),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_whatever_a_broker_in_between_did_to_the_files_all_keys_are_found(log_only, what):
    path, offsets, log_end = log_only
    build(path, offsets[200])
    put_as_rocketmq(path, 200, 230)
    BETWEEN[what](rocketmq_index(path))
    put_as_rocketmq(path, 230, 290)
    check_reader(path, 300)
    builder = builder_of(path, log_end)
    check_reader(path, 300)
    builder.close_abruptly()
    build(path, log_end)
    check_all_found(path)


def test_no_changed_digit_of_the_note_is_believed(log_only):
    path, offsets, log_end = log_only
    build(path, offsets[100])
    note, copy = StoreLayout(path).index_state, path.parent / "copy"
    content = note.read_bytes()
    places = [place for place in range(len(content)) if content[place : place + 1].isdigit()]
    for place in places[:: max(len(places) // 4, 1)]:
        shutil.copytree(path, copy)
        digit = b"%d" % ((int(content[place : place + 1]) + 1) % 10)
        changed = content[:place] + digit + content[place + 1 :]
        StoreLayout(copy).index_state.write_bytes(changed)
        build(copy, log_end)
        check_all_found(copy)
        shutil.rmtree(copy)


def test_a_note_of_an_earlier_version_is_not_believed(log_only):
    path, offsets, log_end = log_only
    build(path, offsets[100])
    state = read_index_state(StoreLayout(path))
    files = ",".join(f'["{name}","{header.encode().hex()}"]' for name, header in state.files)
    StoreLayout(path).index_state.write_text(
        f'{{"safeOffset":{offsets[150]},"entriesIn":0,"tags":true,"clean":true,"files":[{files}]}}'
    )
    build(path, log_end)
    check_all_found(path)


def test_a_note_of_another_log_is_not_believed(log_only, tmp_path):
    path, offsets, log_end = log_only
    build(path, offsets[200])
    other = tmp_path / "other"
    options = structs.replace(QUIET, build_index=False)
    with open_small(other, options=options, clock=Clock(1_700_000_000_001)) as store:
        send_many(store, 300)
    shutil.rmtree(path / "commitlog")
    shutil.move(other / "commitlog", path / "commitlog")
    assert [record.physical_offset for record in records_of(path)] == offsets
    build(path, log_end)
    check_all_found(path)
    state = read_index_state(StoreLayout(path))
    assert all(header.begin_timestamp_ms == 1_700_000_000_001 for _, header in state.files)


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_log_that_is_known_to_be_synced_less_far_gets_no_entry_twice(log_only, end):
    path, offsets, log_end = log_only
    builder = builder_of(path, log_end)
    assert builder.build(log_end)
    builder.sync()
    builder.close() if end == "closed" else builder.close_abruptly()
    build(path, offsets[100])
    build(path, log_end)
    check_all_found(path)


def test_entries_of_a_log_that_was_cut_are_taken_back(log_only):
    path, offsets, log_end = log_only
    build(path, log_end)
    for file in sorted((path / "commitlog").iterdir()):
        if int(file.name) >= offsets[100]:
            file.write_bytes(bytes(file.stat().st_size))
        elif int(file.name) + file.stat().st_size > offsets[100]:
            start = offsets[100] - int(file.name)
            write_at(file, start, bytes(file.stat().st_size - start))
    # They would prove that the others are lost.
    StoreLayout(path).synced.unlink()
    shutil.rmtree(StoreLayout(path).consume_queue)
    build(path, offsets[100])
    assert len(records_of(path)) == 100
    check_all_found(path)


def test_files_that_cannot_be_opened_now_are_neither_deleted_nor_built_anew(log_only, monkeypatch):
    path, offsets, log_end = log_only
    build(path, offsets[200])
    before = {file.name: file.read_bytes() for file in rocketmq_index(path).files()}
    really = fs.read_bytes

    def refuse(asked, limit):
        if asked.parent.name == "index":
            raise OSError(errno.EMFILE, "Too many open files", str(asked))
        return really(asked, limit)

    with monkeypatch.context() as patched:
        patched.setattr(fs, "read_bytes", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            builder_of(path, log_end)
    assert {file.name: file.read_bytes() for file in rocketmq_index(path).files()} == before
    build(path, log_end)
    check_all_found(path)


class Killed(Exception):
    """The process ends here."""


class KillingDisk(Disk):
    """Ends the process at its n-th change of what is on the disk."""

    CHANGES = ("make_file", "write_durably", "move", "link_file", "remove_file", "remove_tree")

    def __init__(self, at):
        self.left = at


def _killing(name):
    def change(self, *arguments):
        self.left -= 1
        if self.left < 0:
            raise Killed
        getattr(Disk, name)(self, *arguments)

    return change


for _name in KillingDisk.CHANGES:
    setattr(KillingDisk, _name, _killing(_name))


@pytest.fixture
def short_log_only(tmp_path):
    """A store of 60 messages without index files, and the physical offset of each."""
    path = tmp_path / "store"
    with open_small(path, options=structs.replace(QUIET, build_index=False)) as store:
        send_many(store, 60)
        end = store.end_offset
    return path, [record.physical_offset for record in records_of(path)], end


def test_wherever_a_rebuild_is_killed_the_old_files_or_the_new_ones_lead_to_all(short_log_only):
    path, offsets, log_end = short_log_only
    build(path, offsets[30], TINY)
    put_as_rocketmq(path, 30, 60, TINY)
    whole, copy = {}, path.parent / "copy"
    for record in records_of(path):
        for key_hash in index_hashes(record, with_tags=True):
            whole.setdefault(key_hash, set()).add(record.physical_offset)
    at = 0
    while True:
        shutil.copytree(path, copy)
        builder, disk = None, KillingDisk(at)
        with suppress(Killed):
            builder = builder_of(copy, log_end, TINY, disk)
            while not builder.build(log_end, at_most_bytes=3000):
                builder.sync()
            builder.sync()
        if builder is not None:
            builder.close_abruptly()
        found = rocketmq_index(copy, TINY).lookup(whole)
        assert {key_hash: set(offsets) for key_hash, offsets in found.items()} == whole
        check_reader(copy, 60)
        build(copy, log_end, TINY)
        check_all_found(copy, TINY)
        assert not StoreLayout(copy).new_index.exists()
        shutil.rmtree(copy)
        if disk.left >= 0:
            break
        at += 1
    assert at > 10


def test_old_index_files_stay_until_new_ones_cover_the_log(golden, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(golden("5.5.0").store, path)
    before = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
    assert len(before) > 1
    with rocketlens.open_store(path) as reader:
        key = next(message.keys[0] for message in reader.scan() if message.keys)
        expected = len(reader.query_message(None, key, max_num=None).messages)
    with MessageStore(path, GOLDEN, StoreOptions(STORE_HOST, threads=False)) as store:
        for _ in range(3):
            there = {file.name: file.read_bytes() for file in (path / "index").iterdir()}
            assert there == before
            with rocketlens.open_store(path) as reader:
                answer = reader.query_message(None, key, max_num=None)
                assert (len(answer.messages), answer.complete) == (expected, True)
            assert not store.build_index(at_most_bytes=20_000)
        while not store.build_index():
            pass
        assert store.indexed_offset == store.end_offset
    assert not StoreLayout(path).new_index.exists()
    index = RocketMQIndex(path / "index", *GOLDEN.geometry)
    wanted = {}
    for record in records_of(path):
        for key_hash in index_hashes(record, with_tags=True):
            wanted.setdefault(key_hash, []).append(record.physical_offset)
    assert {name: sorted(found) for name, found in index.lookup(wanted).items()} == wanted


def test_a_killed_rebuild_leaves_what_a_real_broker_keeps_when_it_gets_the_store_back(log_only):
    path, _, log_end = log_only
    put_as_rocketmq(path, 0, 300)
    header = decode_header(rocketmq_index(path).files()[-2].read_bytes())
    builder = builder_of(path, log_end)
    state = read_index_state(StoreLayout(path))
    assert state.newest_full() == header
    builder.close_abruptly()


def test_chains_of_large_files_are_whole_after_another_broker_added_to_them(log_only):
    path, offsets, log_end = log_only
    geometry = DEFAULT_GEOMETRY
    count = 450_000
    rng = np.random.default_rng(7)
    records = records_of(path)
    hashes = rng.integers(0, 2**31 - 1, count, dtype=np.int32)
    hashes[::1000] = 4711
    places = np.sort(rng.integers(0, 200, count))
    where = np.array(offsets, np.int64)[places]
    stored = np.array([record.store_timestamp_ms for record in records], np.int64)[places]
    writer = builder_of(path, log_end, geometry, kind=IndexWriter)
    writer.put(IndexEntries(hashes, where, stored), offsets[200])
    writer.sync()
    writer.close()
    index = rocketmq_index(path, geometry)
    expected = {int(key): [] for key in hashes[:: count // 500]} | {4711: []}
    for key_hash, offset in zip(hashes.tolist(), where.tolist(), strict=True):
        if key_hash in expected:
            expected[key_hash].append(offset)
    for key_hash in (4711, *expected):
        index.put(key_hash, offsets[200], 1_700_000_000_000)
    writer = builder_of(path, log_end, geometry, kind=IndexWriter)
    assert writer.resume_point.physical_offset == offsets[200]
    last = np.full(1000, offsets[299], np.int64)
    new = np.where(np.arange(1000) % 2, 4711, hashes[0]).astype(np.int32)
    times = np.full(1000, records[299].store_timestamp_ms, np.int64)
    writer.put(IndexEntries(new, last, times), log_end)
    writer.sync()
    writer.close()
    for key_hash in new.tolist():
        expected[key_hash].append(offsets[299])
    found = index.lookup(expected)
    assert {key: sorted(value) for key, value in found.items()} == {
        key: sorted(value) for key, value in expected.items()
    }


def test_a_builder_that_cannot_open_a_file_now_goes_on_when_it_can(tmp_path):
    class OutOfDescriptors(Disk):
        refusals = 0

        def open_file(self, path):
            if self.refusals and path.parent.name == "index":
                self.refusals -= 1
                raise OSError(errno.EMFILE, "Too many open files", str(path))
            return super().open_file(path)

    disk = OutOfDescriptors()
    with open_small(tmp_path, replace(SMALL, maxIndexNum=400), disk=disk) as store:
        send_many(store, 60)
        store.flush_log()
        disk.refusals = 2
        assert [store.build_index() for _ in range(3)] == [False, False, True]
    check_all_found(tmp_path)
