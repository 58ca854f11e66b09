"""Bytes of another log become a store: the same log, and everything that is derived from it."""

import errno
import random
import shutil
import struct
from dataclasses import replace

import pytest

import rocketlens
from rocketlens.errors import CopyFailed, StoreError, StoreFull
from rocketlens.formats.commitlog_record import MAGIC_BLANK
from rocketlens.model.rocketmq import DELAY_TOPIC, SYS_FLAG_PREPARED
from rocketlens.store.disk import WritableFile
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.log.scan import LogWalk, exhaust
from rocketlens.store.write.config import StoreConfig
from rocketlens.store.write.copy_append import CopyStore, prepare_copy
from tests.support.failing_disks import FailingDisk
from tests.support.layouts import BATCHES, copied
from tests.support.written_stores import (
    BORN_HOST,
    GOLDEN,
    QUIET,
    SMALL,
    Clock,
    content_of,
    kill,
    open_small,
    properties_of,
    send,
    send_many,
)

SEGMENT = SMALL.mappedFileSizeCommitLog


def open_copy(path, **arguments):
    arguments.setdefault("clock", Clock())
    prepare_copy(StoreLayout(path), SMALL, 0)
    return CopyStore(path, SMALL, QUIET, **arguments)


def log_of(path, end_offset):
    """The bytes of a log up to its end."""
    files = sorted((path / "commitlog").iterdir())
    begin = int(files[0].name)
    return begin, b"".join(file.read_bytes() for file in files)[: end_offset - begin]


def copy(store, log, begin=0, *, step=0, rng=None):
    """Feed a copy with what it lacks, cut as told."""
    position = store.received_offset
    while position < begin + len(log):
        size = rng.randrange(1, 3000) if rng else step or len(log)
        stop = min(position + size, begin + len(log))
        store.receive(memoryview(log)[position - begin : stop - begin])
        store.append_received()
        assert store.received_offset == stop
        position = stop


def index_all(store):
    store.flush()
    while not store.build_index():
        pass
    store.flush()


@pytest.fixture
def original(tmp_path):
    """A store with what brokers store: batches, delays, transactions, several topics, rolls."""
    path = tmp_path / "original"
    with open_small(path) as store:
        send_many(store, 250)
        members = [(0, b"member %d" % n, properties_of(n)) for n in range(40)]
        store.append_batch("Batches", 1, members, BORN_HOST, born_timestamp_ms=5)
        for number in range(5):
            delayed = properties_of(number) + b"DELAY\x013\x02"
            store.append(DELAY_TOPIC, 2, b"d", delayed, BORN_HOST, born_timestamp_ms=1)
            send(store, number, sys_flag=SYS_FLAG_PREPARED)
            send(store, number, "Orders", body=b"")
        send_many(store, 100, first=300)
        index_all(store)
        end = store.end_offset
    return path, end


@pytest.mark.parametrize("step", [37, 500, 5_000, 0])
def test_a_copy_is_the_original_byte_for_byte_however_it_is_cut(original, tmp_path, step):
    path, end = original
    _, log = log_of(path, end)
    with open_copy(tmp_path / "copy") as store:
        copy(store, log, step=step)
        assert store.position == store.end_offset == end
        index_all(store)
    assert content_of(tmp_path / "copy") == content_of(path)


def test_every_position_of_a_kill_is_one_from_which_the_copy_goes_on(original, tmp_path):
    path, end = original
    _, log = log_of(path, end)
    rng = random.Random(7)
    store = open_copy(tmp_path / "copy")
    while store.position < end:
        stop = min(store.received_offset + rng.randrange(1, 4_000), end)
        store.receive(log[store.received_offset : stop])
        store.append_received()
        if rng.random() < 0.5:
            (store.flush_log if rng.random() < 0.5 else store.flush)()
        if rng.random() < 0.4:
            before = store.position
            kill(store)
            store = open_copy(tmp_path / "copy")
            assert store.position == before
            assert store.received_offset == before
    index_all(store)
    store.close()
    assert content_of(tmp_path / "copy") == content_of(path)


def test_a_log_that_comes_without_a_pause_is_not_read_again_from_its_begin(original, tmp_path):
    _, log = log_of(*original)
    with open_copy(tmp_path / "copy") as store:
        write = store._copy._write_records

        def write_while_another_thread_saves(*arguments):
            store.flush()
            write(*arguments)

        store._copy._write_records = write_while_another_thread_saves
        copy(store, log, step=3_000)
        kill(store)
    with open_copy(tmp_path / "copy") as store:
        assert store.recovered.read_from > len(log) - 10_000


def test_a_record_is_there_only_when_all_of_it_is(tmp_path):
    with open_small(tmp_path / "original") as store:
        send_many(store, 2)
        end = store.end_offset
    _, log = log_of(tmp_path / "original", end)
    first = struct.unpack_from(">i", log)[0]
    with open_copy(tmp_path / "copy") as store:
        for at in range(len(log)):
            store.receive(log[at : at + 1])
            store.append_received()
            assert store.position == (0 if at + 1 < first else first if at + 1 < end else end)
        assert store.last_appended.physical_offset == first
        assert store.log_bytes(first) == log[first:]


def test_a_filler_is_copied_whole_with_what_is_in_it(original, tmp_path):
    path, end = original
    _, log = log_of(path, end)
    # Brokers leave anything behind the head of a filler.
    blank = struct.pack(">i", MAGIC_BLANK)
    at = next(
        at
        for at in range(SEGMENT - 2_000, SEGMENT)
        if log[at + 4 : at + 8] == blank and struct.unpack_from(">i", log, at)[0] == SEGMENT - at
    )
    assert SEGMENT - at > 20
    log = log[: at + 8] + b"\7" * (SEGMENT - at - 8) + log[SEGMENT:]
    with open_copy(tmp_path / "copy") as store:
        store.receive(log[: SEGMENT - 1])
        store.append_received()
        assert store.position == at
        copy(store, log)
    assert log_of(tmp_path / "copy", end)[1] == log


def test_damage_of_the_original_is_copied_and_costs_no_other_record(original, tmp_path):
    path, end = original
    _, log = log_of(path, end)
    first = struct.unpack_from(">i", log)[0]
    second = struct.unpack_from(">i", log, first)[0]
    log = log[:first] + b"\xee" * 40 + log[first + 40 :]
    with open_copy(tmp_path / "copy") as store:
        store.receive(log[: first + second])
        store.append_received()
        # Nothing follows yet that shows what it is.
        assert store.position == first
        copy(store, log)
        assert store.position == end
        store.flush()
        # Message 1, the first of queue 1, is the damaged one.
        assert store.queues.max_offset("Orders", 1) > 100
    assert log_of(tmp_path / "copy", end)[1] == log
    with rocketlens.open_store(tmp_path / "copy") as reader:
        bodies = [one.body for one in reader.query_message("Orders", "k1").messages]
        assert bodies == [b"body 1", b""]
        assert len(reader.query_message("Orders", "k7").messages) == 1


def test_damage_at_the_end_of_a_segment_is_copied(tmp_path, original):
    path, end = original
    _, log = log_of(path, end)
    log = log[: SEGMENT - 700] + b"\xee" * 700 + log[SEGMENT:]
    with open_copy(tmp_path / "copy") as store:
        copy(store, log, rng=random.Random(1))
        assert store.position == end
    assert log_of(tmp_path / "copy", end)[1] == log


def test_a_filler_that_no_broker_leaves_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.store.write.copy_append.MAX_COPIED_RECORD_BYTES", 1000)
    with open_copy(tmp_path / "copy") as store:
        store.receive(struct.pack(">ii", SEGMENT, MAGIC_BLANK))
        with pytest.raises(CopyFailed, match="the filler at physical offset 0"):
            store.append_received()


def test_damage_without_an_end_is_not_held_in_memory_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.store.write.copy_append.MAX_COPIED_RECORD_BYTES", 1 << 21)
    config = StoreConfig(mappedFileSizeCommitLog=1 << 23, diskSpaceWarningLevelRatio=100)
    prepare_copy(StoreLayout(tmp_path), config, 0)
    with CopyStore(tmp_path, config, QUIET) as store:
        store.receive(b"\xee" * (3 << 20))
        store.append_received()
        assert store.position == 2 << 20
        assert store.received_offset == 3 << 20


def test_a_record_larger_than_what_is_held_at_first_is_copied(tmp_path):
    config = StoreConfig(
        mappedFileSizeCommitLog=1 << 24, maxMessageSize=8 << 20, diskSpaceWarningLevelRatio=100
    )
    with open_small(tmp_path / "original", config) as store:
        send(store, 1, body=b"x" * (6 << 20))
        send(store, 2)
        end = store.end_offset
    _, log = log_of(tmp_path / "original", end)
    prepare_copy(StoreLayout(tmp_path / "copy"), config, 0)
    with CopyStore(tmp_path / "copy", config, QUIET) as store:
        copy(store, log, step=1_000_003)
        assert store.position == end
    assert content_of(tmp_path / "copy", "commitlog") == content_of(
        tmp_path / "original", "commitlog"
    )


def test_a_topic_that_was_deleted_and_made_again_begins_again_in_the_copy(tmp_path):
    path = tmp_path / "original"
    with open_small(path) as store:
        send_many(store, 30)
        send(store, 1, "Other")
        store.deleted.mark("Orders")
        store.deleted.save()
        store._disk.remove_tree(store.deleted.remove_queues("Orders"))
        send_many(store, 20, first=100)
        index_all(store)
        end = store.end_offset
    _, log = log_of(path, end)
    for step in (0, 333):
        with open_copy(tmp_path / f"copy-{step}") as store:
            copy(store, log, step=step)
            assert store.queues.max_offset("Orders", 0) == 6
            index_all(store)
        assert content_of(tmp_path / f"copy-{step}") == content_of(path)
        with rocketlens.open_store(tmp_path / f"copy-{step}") as reader:
            assert reader.find("k3", topic="Orders").messages
            assert reader.find("Orders/0/0").messages[0].body == b"102," * 25


def test_a_full_disk_loses_nothing(original, tmp_path):
    path, end = original
    _, log = log_of(path, end)
    refused = 0
    # The first reservations are those of the opening.
    with open_copy(tmp_path / "copy", disk=FailingDisk(full_at=range(2, 400, 2))) as store:
        rng, position = random.Random(3), 0
        while position < end:
            stop = min(position + rng.randrange(1, 9_000), end)
            store.receive(log[position:stop])
            position = stop
            while store.received_offset == position:
                try:
                    store.append_received()
                    break
                except StoreFull:
                    refused += 1
            assert store.received_offset == position
            store.flush()
        index_all(store)
    assert refused > 10
    assert content_of(tmp_path / "copy") == content_of(path)


def test_a_write_that_fails_in_the_middle_is_done_again_and_shows_no_record_before(
    original, tmp_path, monkeypatch
):
    path, end = original
    _, log = log_of(path, end)
    real, fails, rng = WritableFile.write, [], random.Random(4)

    def half(file, start, some):
        if rng.random() < 0.5:
            fails.append(start)
            real(file, start, some[: len(some) // 2])
            raise OSError(errno.EIO, "Input/output error")
        real(file, start, some)

    monkeypatch.setattr(WritableFile, "write", half)
    with open_copy(tmp_path / "copy") as store:
        for start in range(0, end, 3_000):
            store.receive(log[start : start + 3_000])
            taken, begin = store.received_offset, store.position
            while True:
                try:
                    store.append_received()
                    break
                except StoreError:
                    assert store.received_offset == taken
                    reader = CommitLog(tmp_path / "copy" / "commitlog")
                    exhaust(walk := LogWalk(reader, 0))
                    reader.close()
                    assert walk.damage == []
                    assert begin <= walk.position <= store.position
        index_all(store)
    assert len(fails) > 10
    assert content_of(tmp_path / "copy") == content_of(path)


def test_a_copy_goes_on_behind_a_gap_and_an_answer_over_it_is_incomplete(original, tmp_path):
    path, end = original
    _, log = log_of(path, end)
    with open_copy(tmp_path / "copy") as store:
        store.receive(log[:5_000])
        store.append_received()
        before = store.position
        store.continue_at(2 * SEGMENT)
        assert store.received_offset == 2 * SEGMENT
        store.flush()
        kill(store)
    with open_copy(tmp_path / "copy") as store:
        assert store.position == before
        store.continue_at(2 * SEGMENT)
        copy(store, log)
        index_all(store)
        kill(store)
    with open_copy(tmp_path / "copy") as store:
        assert store.position == end
        index_all(store)
    with rocketlens.open_store(tmp_path / "copy") as reader:
        answer = reader.find("k20", topic="Orders")
        assert len(answer.messages) == 1
        assert not answer.complete
        assert any(f"{before} to {2 * SEGMENT}" in (one.error or "") for one in answer.coverage)
    copied = log_of(tmp_path / "copy", end)[1]
    assert copied[:SEGMENT] == log[:before] + bytes(SEGMENT - before)
    assert copied[SEGMENT : SEGMENT + end - 2 * SEGMENT] == log[2 * SEGMENT :]


def test_a_copy_may_begin_in_the_middle_of_a_log(original, tmp_path):
    path, end = original
    begin, log = log_of(path, end)
    layout = StoreLayout(tmp_path / "copy")
    prepare_copy(layout, SMALL, SEGMENT)
    # A second time nothing is done.
    prepare_copy(layout, SMALL, 0)
    with CopyStore(layout, SMALL, QUIET) as store:
        assert store.position == store.min_offset == SEGMENT
        copy(store, log, begin)
        assert store.position == end
    with rocketlens.open_store(tmp_path / "copy") as reader:
        answer = reader.find("k349", topic="Orders")
        assert answer.complete
        assert len(answer.messages) == 1
        (message,) = reader.find("k150", topic="Orders").messages
        same = reader.find(f"Orders/{message.queue_id}/{message.queue_offset}").messages
        assert [one.keys for one in same] == [message.keys]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_queues_of_a_copy_are_those_that_the_real_broker_wrote(golden, tmp_path, version):
    original = golden(version).path / "store"
    config = replace(GOLDEN, messageDelayLevel=" ".join(f"{n}s" for n in range(1, 19)))
    reader = CommitLog(original / "commitlog")
    walk = LogWalk(reader, reader.min_offset)
    exhaust(walk)
    begin, log = log_of(original, walk.position)
    reader.close()
    prepare_copy(StoreLayout(tmp_path), config, begin)
    with CopyStore(tmp_path, config, QUIET) as store:
        copy(store, log, begin, rng=random.Random(5))
    assert content_of(tmp_path, "commitlog") == content_of(original, "commitlog")
    assert content_of(tmp_path, "consumequeue") == content_of(original, "consumequeue")


@pytest.mark.parametrize("lost", [(), ("rocketlens", "consumequeue")], ids=["whole", "read again"])
def test_a_batch_that_is_one_record_counts_as_its_messages_in_a_copy(layouts, tmp_path, lost):
    original = copied(layouts, BATCHES, tmp_path / "broker")
    begin, log = log_of(original.store, 47_593)
    config = replace(SMALL, mappedFileSizeCommitLog=32_768)
    prepare_copy(StoreLayout(tmp_path / "copy"), config, begin)
    with CopyStore(tmp_path / "copy", config, QUIET) as store:
        copy(store, log, rng=random.Random(5))
        shutil.copytree(original.store / "config", tmp_path / "copy/config")
    for name in lost:
        shutil.rmtree(tmp_path / "copy" / name)
    with CopyStore(tmp_path / "copy", config, QUIET):
        pass
    with original.open() as theirs, rocketlens.open_store(tmp_path / "copy") as ours:
        for name in ("Orders", "Payments"):
            (expected,), (topic,) = (one.topics([name]).topics for one in (theirs, ours))
            assert topic.messages == expected.messages
            assert [one.max_offset for one in topic.queues] == [
                one.max_offset for one in expected.queues
            ]
        for sent in original.messages:
            (message,) = ours.find(sent.position).messages
            assert message.keys == (sent.key,)
