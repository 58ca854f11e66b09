"""What another broker, or a crash, left in a store is taken for what it is."""

import errno
import shutil
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rocketlens.errors import BadInput, StoreFull
from rocketlens.store import fs
from rocketlens.store.lock import LOCK_TEXT, OUR_TEXT
from rocketlens.store.read.state import StoreState, read_state, read_synced
from rocketlens.store.write.append import Appender
from tests.crash.failing_disks import QuickDisk, RecordingDisk, RestartedDisk
from tests.unit.store.written_stores import (
    QUIET,
    SMALL,
    Clock,
    content_of,
    open_small,
    records_of,
    send,
    send_many,
)


def be_a_real_broker(path, *, writes_checkpoint=True):
    """Leave what each start of a real broker leaves, and perhaps its checkpoint."""
    with (path / "lock").open("r+b") as file:
        file.write(LOCK_TEXT)
    if writes_checkpoint:
        later = struct.pack(">qqq", *[1_800_000_000_000] * 3).ljust(4096, b"\0")
        (path / "checkpoint").write_bytes(later)


def queue_lengths(store):
    return {name: queue.next_offset for name, queue in store._appender.queues.items()}


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


def test_what_a_real_broker_that_was_killed_appended_is_not_behind_our_synced_position(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 20, first=20)
    store.close_abruptly()
    # It wrote no checkpoint in the seconds that it lived.
    be_a_real_broker(tmp_path, writes_checkpoint=False)
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(later[5].physical_offset + 100)
        file.write(b"#")
    with open_small(tmp_path) as store:
        assert [damage.start for damage in store.recovered.damage] == [later[5].physical_offset]
        assert store.recovered.cut is None


def test_the_lock_says_who_ran_last(tmp_path):
    with open_small(tmp_path):
        assert (tmp_path / "lock").read_bytes() == OUR_TEXT
    be_a_real_broker(tmp_path)
    store = open_small(tmp_path)
    assert not store.recovered.is_ours
    store.close_abruptly()
    store = open_small(tmp_path)
    assert store.recovered.is_ours
    store.close_abruptly()


# The log


def test_all_that_is_cut_is_kept_aside_whatever_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr("rocketlens.limits.MAX_KEPT_PIECE_BYTES", 1000)
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 120, first=20)
    store.close_abruptly()
    segment = tmp_path / "commitlog" / f"{0:020}"
    with segment.open("r+b") as file:
        file.seek(later[5].physical_offset + 100)
        file.write(b"#")
    before = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    with open_small(tmp_path) as store:
        cut = store.recovered.cut
        assert cut.start == later[5].physical_offset
        assert cut.stop - cut.start > SMALL.mappedFileSizeCommitLog
    kept = bytearray(len(before))
    for path in (tmp_path / "rocketlens/aside").iterdir():
        content, start = path.read_bytes(), int(path.name[:20])
        kept[start : start + len(content)] = content
    assert kept[cut.start : cut.stop] == before[cut.start : cut.stop]


def test_records_behind_many_written_zeros_are_not_destroyed(tmp_path):
    config = replace(SMALL, mappedFileSizeCommitLog=32 << 20)
    store = open_small(tmp_path, config=config)
    large = [send(store, number, body=b"x" * (4 << 20)) for number in range(3)]
    small = send_many(store, 50)
    store.close_abruptly()
    segment = tmp_path / "commitlog" / f"{0:020}"
    sound = segment.read_bytes()
    with segment.open("r+b") as file:
        file.write(bytes(large[-1].physical_offset + large[-1].store_size))
    shutil.rmtree(tmp_path / "rocketlens")
    be_a_real_broker(tmp_path)
    open_small(tmp_path, config=config).close_abruptly()
    left = bytearray(segment.read_bytes())
    for path in (tmp_path / "rocketlens").glob("aside/*.cut"):
        content, start = path.read_bytes(), int(path.name[:20])
        left[start : start + len(content)] = content
    start = small[0].physical_offset
    assert left[start:] == sound[start:]


def test_nothing_is_zeroed_or_stored_before_there_is_room_to_keep_it_aside(tmp_path):
    class FullDisk(QuickDisk):
        is_full = True

        def write_durably(self, path, content):
            if path.parent.name == "aside" and self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            super().write_durably(path, content)

    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    later = send_many(store, 20, first=20)
    store.close_abruptly()
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(later[5].physical_offset + 100)
        file.write(b"#")
    before = content_of(tmp_path, "commitlog")
    disk = FullDisk()
    with open_small(tmp_path, disk=disk) as store:
        assert store.end_offset == later[5].physical_offset
        with pytest.raises(StoreFull, match="aside"):
            send(store, 25)
        assert content_of(tmp_path, "commitlog") == before
        disk.is_full = False
        assert send(store, 25).physical_offset == later[5].physical_offset
    assert [r.queue_offset for r in records_of(tmp_path)[24:]] == [8, 9]
    (kept,) = (tmp_path / "rocketlens/aside").iterdir()
    assert b"body" not in kept.read_bytes()[:90]
    assert len(kept.read_bytes()) > 10 * later[5].store_size


def test_what_is_kept_aside_is_not_written_over(tmp_path):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.flush()
    end = store.end_offset
    store.close_abruptly()
    for content in (b"first", b"other"):
        with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as file:
            file.seek(end)
            file.write(content)
        open_small(tmp_path).close_abruptly()
    kept = sorted((tmp_path / "rocketlens/aside").iterdir())
    assert [path.read_bytes() for path in kept] == [b"other", b"first"]


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_empty_next_segment_of_a_real_broker_is_taken_over(tmp_path, end):
    store = open_small(tmp_path)
    send_many(store, 20)
    store.close() if end == "closed" else store.close_abruptly()
    following = tmp_path / "commitlog" / f"{SMALL.mappedFileSizeCommitLog:020}"
    following.touch()
    with open_small(tmp_path) as store:
        send_many(store, 100, first=20)
        assert store.end_offset > SMALL.mappedFileSizeCommitLog
    assert following.stat().st_size == SMALL.mappedFileSizeCommitLog
    assert len(records_of(tmp_path)) == 120


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("what", ["segment", "log", "queues", "queue"])
def test_what_cannot_be_opened_now_is_an_error_and_nothing_is_changed(
    tmp_path, monkeypatch, what, number
):
    store = open_small(tmp_path)
    send_many(store, 200)
    store.flush()
    send_many(store, 10, first=200)
    store.close_abruptly()
    before = content_of(tmp_path)
    failing = {
        "segment": ("MappedFile.__init__", lambda args: args[1].parent.name == "commitlog"),
        "log": ("entries", lambda args: args[0].name == "commitlog"),
        "queues": ("entries", lambda args: args[0].name == "consumequeue"),
        "queue": ("read_part", lambda args: Path(args[0]).parents[1].name == "Orders"),
    }
    name, is_it = failing[what]
    holder = fs.MappedFile if "." in name else fs
    real = getattr(holder, name.rpartition(".")[2])

    def refuse(*args, **arguments):
        if is_it(args):
            raise OSError(number, "it cannot be opened", str(args[0]))
        return real(*args, **arguments)

    with monkeypatch.context() as patched:
        patched.setattr(holder, name.rpartition(".")[2], refuse)
        with pytest.raises(OSError, match="it cannot be opened"):
            open_small(tmp_path)
    assert content_of(tmp_path) == before
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []
        assert store.recovered.cut is None
    assert len(records_of(tmp_path)) == 210


# Queue files


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("size", [300, 500, 900, 1200, 6_000_000])
def test_queue_files_of_another_size_are_refused_with_theirs_named_and_stay(
    tmp_path, size, with_state
):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    if not with_state:
        shutil.rmtree(tmp_path / "rocketlens")
    before = content_of(tmp_path)
    with pytest.raises(BadInput, match="mappedFileSizeConsumeQueue must be 600") as error:
        open_small(tmp_path, config=replace(SMALL, mappedFileSizeConsumeQueue=size))
    assert str(size) in str(error.value)
    assert not (tmp_path / "abort").exists()
    assert content_of(tmp_path) == before
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []


def test_a_queue_file_that_is_too_long_is_refused_and_not_cut(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    file = min((tmp_path / "consumequeue/Orders/1").iterdir())
    with file.open("ab") as longer:
        longer.write(bytes(20))
    with pytest.raises(BadInput, match=f"{file.name} has 620 bytes"):
        open_small(tmp_path)
    assert file.stat().st_size == 620


def test_a_start_reads_no_more_of_a_queue_than_its_entries(tmp_path, monkeypatch):
    # 2 GB each; what is read of them is bounded by what is in them.
    config = replace(SMALL, mappedFileSizeConsumeQueue=2_000_000_000)
    for end in ("close_abruptly", "close"):
        store = open_small(tmp_path, config=config)
        send_many(store, 40, queues=20)
        getattr(store, end)()
        read = []
        real = fs.read_part

        def count(path, start, count, real=real, read=read):
            content = real(path, start, count)
            read.append(len(content))
            return content

        with monkeypatch.context() as patched:
            patched.setattr(fs, "read_part", count)
            store = open_small(tmp_path, config=config)
        assert store.queues.max_offset("Orders", 19) in {2, 4}
        assert sum(read) < 20 * 10_000
        store.close_abruptly()


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_an_open_queue_is_synced_once_though_another_process_wrote_it(tmp_path, end):
    store = open_small(tmp_path)
    send_many(store, 30)
    store.close_abruptly()
    disk = SyncCountingDisk()
    store = open_small(tmp_path, disk=disk)
    queues = {path.parent for path in disk.synced if "consumequeue" in path.parts}
    assert len([path for path in queues if path.name in "012"]) == 3
    store.close() if end == "closed" else store.close_abruptly()


class SyncCountingDisk(QuickDisk):
    """Knows which files were synced by name."""

    def __init__(self):
        self.synced = []

    def sync_file(self, path):
        self.synced.append(path)


def test_entries_that_the_log_cannot_make_again_are_kept_aside_when_they_are_cut(tmp_path):
    with open_small(tmp_path) as store:
        appended = send_many(store, 30)
    # As a queue of RocketMQ 5 that has entries for messages of other topics, with a hole in it.
    entries = [struct.pack(">qiq", one.physical_offset, one.store_size, 0) for one in appended[:10]]
    content = b"".join([*entries[:4], bytes(20), *entries[5:]])
    directory = tmp_path / "consumequeue/%LMQ%light/0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}").write_bytes(content.ljust(600, b"\0"))
    shutil.rmtree(tmp_path / "rocketlens")
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []
    kept = b"".join(path.read_bytes() for path in (tmp_path / "rocketlens/aside").iterdir())
    left = (directory / f"{0:020}").read_bytes()
    assert all(entry in kept + left for entry in [*entries[:4], *entries[5:]])


# Notes


def test_a_checkpoint_between_the_steps_of_an_append_knows_of_no_entry_that_is_not_synced(
    tmp_path, monkeypatch
):
    disk = RecordingDisk()
    store = open_small(tmp_path, disk=disk)
    send_many(store, 5, queues=1)
    store.flush()
    queue_file = tmp_path / "consumequeue/Orders/0" / f"{0:020}"

    def save_when_set(appender, value):
        appender.__dict__["last"] = value
        if value is not None and not appender.__dict__.get("is_saving"):
            appender.__dict__["is_saving"] = True
            store.flush()

    with monkeypatch.context() as patched:
        last = property(lambda appender: appender.__dict__["last"], save_when_set)
        patched.setattr(Appender, "last", last, raising=False)
        appended = send(store, 5)
    state = read_state(store.layout)
    assert state.queues_offset == appended.physical_offset + appended.store_size
    entry = struct.pack(">qi", appended.physical_offset, appended.store_size)
    assert entry in disk.durable[queue_file]
    store.close_abruptly()
    queue_file.write_bytes(disk.durable[queue_file])
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert send(store, 6).queue_offset == 6


def test_no_changed_byte_of_what_is_remembered_is_believed(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 100)
        lengths = queue_lengths(store)
    for name in ("state.json", "synced"):
        path = tmp_path / "rocketlens" / name
        sound = path.read_bytes()
        places = [place for place in range(len(sound)) if sound[place]]
        for place in places[:: max(len(places) // 40, 1)]:
            changed = sound[place] ^ 1
            path.write_bytes(sound[:place] + bytes([changed]) + sound[place + 1 :])
            store = open_small(
                tmp_path, options=replace(QUIET, build_index=False), disk=QuickDisk()
            )
            assert queue_lengths(store) == lengths
            assert store.recovered.cut is None
            store.close_abruptly()
            path.write_bytes(sound)


def test_notes_of_earlier_versions_are_as_good_as_none(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 100)
        lengths, end = queue_lengths(store), store.end_offset
    layout = store.layout
    layout.synced.write_bytes(struct.pack(">qq", end - 500, ~(end - 500)))
    layout.state.write_text(
        f'{{"queuesOffset":{end},"lastRecordOffset":null,"lastRecordTimestamp":1,'
        '"queueOffsets":{"Orders":{"0":[0,97]}},"checkpoints":[],"boot":""}'
    )
    assert read_synced(layout) is None
    assert StoreState.decode(layout.state.read_bytes()) is None
    with open_small(tmp_path) as store:
        assert store.recovered.record_count == 100
        assert queue_lengths(store) == lengths


def test_what_is_synced_of_another_log_says_nothing_of_this_one(tmp_path):
    stores = {name: open_small(tmp_path / name) for name in ("a", "b")}
    for name, store in stores.items():
        send_many(store, 30, body_bytes=100 if name == "a" else 60)
        store.flush()
    stores["b"].close_abruptly()
    later = send_many(stores["a"], 5, first=30)
    stores["a"].flush_log()
    stores["a"].close_abruptly()
    log = stores["b"]._log._log
    synced = read_synced(stores["a"].layout)
    assert synced.last_record_offset == later[-1].physical_offset
    assert read_synced(stores["b"].layout).may_be_of(log)
    first = records_of(tmp_path / "b")[3]
    other = synced._replace(last_record_offset=first.physical_offset)
    assert not other.may_be_of(log)


def test_a_reader_finds_what_is_synced_while_it_is_being_written(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 10)
        store.flush_log()
        first = store.end_offset
        send_many(store, 10, first=10)
        store.flush_log()
        content = store.layout.synced.read_bytes()
        second = read_synced(store.layout).offset
        assert second == store.end_offset
        # Each slot may be half written when it is read; the other one holds.
        found = set()
        for start in (0, 512):
            store.layout.synced.write_bytes(
                content[: start + 10] + bytes(10) + content[start + 20 :]
            )
            found.add(read_synced(store.layout).offset)
            store.layout.synced.write_bytes(content)
        assert found == {first, second}


# Waiting


def test_a_builder_of_index_files_waits_after_a_step_that_brought_nothing(tmp_path, monkeypatch):
    attempts, waits = [], []
    enough = threading.Event()

    class Stop(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            if len(waits) >= 5:
                enough.set()
                return super().wait(timeout)
            return False

    def fail(self, *_, **__):
        self.made_progress = False
        attempts.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rocketlens.store.write.index_driver.threading.Event", Stop)
    monkeypatch.setattr("rocketlens.store.write.index_build.IndexBuilder.build", fail)
    store = open_small(tmp_path, options=replace(QUIET, threads=True))
    try:
        send_many(store, 10)
        store.flush_log()
        assert enough.wait(30)
        assert len(attempts) <= len(waits) + 1
    finally:
        store.close(at_most_seconds=0)
