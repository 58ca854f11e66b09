"""Queues end where their entries do, whatever happened to their files."""

import os
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rocketlens.store import fs
from tests.support.failing_disks import QuickDisk, RestartedDisk
from tests.support.written_stores import (
    SMALL,
    Clock,
    assert_finds,
    content_of,
    damage,
    kill,
    open_small,
    records_of,
    send,
    send_many,
)


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


@pytest.mark.parametrize("end", ["close", "close_abruptly"])
def test_a_start_maps_no_queue_and_opens_its_file_a_few_times_for_reading(
    tmp_path, monkeypatch, end
):
    store = open_small(tmp_path)
    send_many(store, 300, queues=100)
    store.flush()
    getattr(store, end)()
    opened, written, mapped = Counter(), [], []
    open_file, map_file = os.open, fs.MappedFile.__init__

    def count(path, flags, *arguments, **named):
        if "consumequeue" in Path(path).parts and not flags & os.O_DIRECTORY:
            if flags & (os.O_RDWR | os.O_WRONLY):
                written.append(path)
            elif Path(path).is_file():
                opened[Path(path)] += 1
        return open_file(path, flags, *arguments, **named)

    def note(self, path, *arguments, **named):
        mapped.append(path)
        map_file(self, path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", count)
        patched.setattr(fs.MappedFile, "__init__", note)
        store = open_small(tmp_path)
    assert len(opened) == 100
    assert max(opened.values()) <= 3
    assert written == []
    assert [path for path in mapped if "consumequeue" in path.parts] == []
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


QUEUE_DAMAGE = {
    "all queues deleted": lambda path: shutil.rmtree(path / "consumequeue"),
    "one queue deleted": lambda path: shutil.rmtree(path / "consumequeue/Orders/1"),
    "the first file deleted": lambda path: queue_file(path, 0).unlink(),
    "the last file deleted": lambda path: queue_file(path, -1).unlink(),
    "a file emptied": lambda path: queue_file(path, 0).write_bytes(b""),
    "a file cut": lambda path: queue_file(path, -1).write_bytes(
        queue_file(path, -1).read_bytes()[:70]
    ),
    "an entry zeroed": lambda path: damage(queue_file(path, 0), 100, bytes(20)),
    "an entry flipped": lambda path: damage(queue_file(path, -1), 104, b"\x55"),
    "entries behind the end": lambda path: damage(
        queue_file(path, -1), 560, struct.pack(">qiq", 10**9, 300, 0)
    ),
    "our state deleted": lambda path: shutil.rmtree(path / "rocketlens"),
    "our state damaged": lambda path: (path / "rocketlens/state.json").write_text("{"),
    "the checkpoint deleted": lambda path: (path / "checkpoint").unlink(),
    "the checkpoint damaged": lambda path: (path / "checkpoint").write_bytes(b"\xff" * 4096),
    "abort there": lambda path: (path / "abort").write_text("1"),
}


def queue_file(path, number):
    return sorted((path / "consumequeue/Orders/1").iterdir())[number]


@pytest.mark.parametrize("with_state", [True, False])
@pytest.mark.parametrize("what", QUEUE_DAMAGE)
def test_queues_are_as_they_were_whatever_happened_to_them(tmp_path, what, with_state):
    with open_small(tmp_path) as store:
        send_many(store, 200)
    before = content_of(tmp_path, "commitlog", "consumequeue")
    QUEUE_DAMAGE[what](tmp_path)
    if not with_state:
        shutil.rmtree(tmp_path / "rocketlens", ignore_errors=True)
    with open_small(tmp_path) as store:
        assert store.recovered.damage == []
    assert content_of(tmp_path, "commitlog", "consumequeue") == before
    assert_finds(tmp_path, range(200))


def test_queue_offsets_go_on_after_the_log_of_a_queue_is_gone(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 10, queues=1)
        for number in range(200):
            send(store, 100 + number, topic="Others", body=b"x" * 200)
    for name in sorted((tmp_path / "commitlog").iterdir())[:2]:
        name.unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    with open_small(tmp_path) as store:
        assert send(store, 300).queue_offset == 10
        assert store.queues.min_offset("Orders", 0) == 10
        assert store.queues.max_offset("Others", 0) == 200
        assert store.queues.min_offset("Others", 0) > 0


@pytest.mark.parametrize("has_record", [True, False])
def test_a_queue_entry_that_was_not_synced_is_believed_only_if_it_is_of_its_record(
    tmp_path, has_record
):
    with open_small(tmp_path) as store:
        stored = send_many(store, 9, queues=3)
    store = open_small(tmp_path)
    if has_record:
        send(store, 9, queue_id=0)
        store.flush_log()
    kill(store)
    # What a disk may have there when the power goes: an entry of another queue, further on.
    other = stored[-1]
    queue = next((tmp_path / "consumequeue/Orders/0").iterdir())
    damage(queue, 3 * 20, struct.pack(">qiq", other.physical_offset, other.store_size, 0))
    with open_small(tmp_path, disk=RestartedDisk()) as store:
        assert store.queues.max_offset("Orders", 0) == 3 + has_record
        numbers = range(10 if has_record else 9)
        assert_finds(tmp_path, numbers)
        entries = [store.queues.get("Orders", 0).entry(place) for place in range(3 + has_record)]
    records = [record for record in records_of(tmp_path) if record.queue_id == 0]
    assert [entry[0] for entry in entries] == [record.physical_offset for record in records]


@pytest.mark.parametrize("ending", ["closed", "killed"])
@pytest.mark.parametrize("lost", ["all of its files", "its first entries", "its last entries"])
def test_a_queue_that_lost_entries_of_messages_that_are_gone_is_looked_for_once(
    tmp_path, lost, ending
):
    clock = Clock()
    config = replace(SMALL, diskMaxUsedSpaceRatio=1, deleteWhen="00")
    store = open_small(tmp_path, config, clock=clock)
    for number in range(40):
        send(store, number, topic="Old")
    while len(list((tmp_path / "commitlog").iterdir())) < 4:
        send(store, 100, topic="New", body=b"x" * 1000)
    store.flush()
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        os.utime(path, (0, clock.now_ms / 1000 - 80 * 3600))
    assert len(store.clean()) == 2
    store.close()
    (file,) = (tmp_path / "consumequeue/Old/0").iterdir()
    if lost == "all of its files":
        file.unlink()
    else:
        start, stop = (0, 5 * 20) if lost == "its first entries" else (3 * 20, 10 * 20)
        content = file.read_bytes()
        file.write_bytes(content[:start] + bytes(stop - start) + content[stop:])
    with open_small(tmp_path, config, clock=clock) as store:
        assert store.recovered.record_count > 0
        assert store.queues.max_offset("Old", 0) == 40
    for _ in range(2):
        store = open_small(tmp_path, config, clock=clock)
        assert store.recovered.record_count == 0
        assert store.recovered.notes == []
        assert store.queues.min_offset("Old", 0) == store.queues.max_offset("Old", 0) == 40
        store.close() if ending == "closed" else store.close_abruptly()
    with open_small(tmp_path, config, clock=clock) as store:
        assert send(store, 40, topic="Old").queue_offset == 40
        assert store.queues.get("Old", 0).entry(40) is not None
        assert store.queues.min_offset("Old", 0) == 40
    with open_small(tmp_path, config, clock=clock) as store:
        assert store.recovered.record_count == 0
        assert store.queues.max_offset("Old", 0) == 41


class HalfFullDisk(QuickDisk):
    """Full enough that what is old goes."""

    def used_ratio(self, _):
        return 0.7


@pytest.mark.parametrize("ending", ["closed", "killed"])
@pytest.mark.parametrize("is_at_the_cut", [False, True])
def test_queue_files_that_were_deleted_with_their_messages_are_not_made_again(
    tmp_path, monkeypatch, ending, is_at_the_cut
):
    """Nothing was written down since; ``is_at_the_cut``: a queue file begins where the log does."""
    config = replace(SMALL, diskMaxUsedSpaceRatio=60, fileReservedTime=1)
    clock = Clock()
    store = open_small(tmp_path, config, disk=HalfFullDisk(), clock=clock)
    old = 90 if is_at_the_cut else 80  # a queue file has 30 entries
    send_many(store, old, queues=1)
    while len(list((tmp_path / "commitlog").iterdir())) < 3:
        send(store, 500, queue_id=5, body=b"x" * 1000)
    send_many(store, 40, first=old, queues=1)
    store.flush()
    while not store.build_index():
        pass
    for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
        os.utime(path, (0, clock.now_ms / 1000 - 2 * 3600))
    with monkeypatch.context() as patched:
        patched.setattr(store._durability, "_save", lambda _: None)
        assert store.clean()
        queue, low = store.queues.get("Orders", 0), store.queues.min_offset("Orders", 0)
        starts = queue.starts()
        assert starts[0][0] > 0
        assert (low * 20 == starts[0][0]) == is_at_the_cut
        store.close() if ending == "closed" else store.close_abruptly()
    before = content_of(tmp_path, "consumequeue")
    for has_state in (False, True):
        store = open_small(tmp_path, config, disk=HalfFullDisk(), clock=clock)
        # Where no entry shows that all before it are gone, the log does.
        assert (store.recovered.record_count == 0) == (has_state or not is_at_the_cut)
        assert store.queues.min_offset("Orders", 0) == low
        assert store.queues.max_offset("Orders", 0) == queue.next_offset
        assert store.queues.get("Orders", 0).starts() == starts
        store.close()
        assert content_of(tmp_path, "consumequeue") == before
