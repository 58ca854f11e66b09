"""Queue entries are written in files that come and go, and read back.

Entries of a queue, read beside the one that appends to it.
"""

import os
from pathlib import Path

import pytest

from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, FILLER
from rocketlens.store.disk import Disk
from rocketlens.store.write.queue.queue_append import read_entries
from tests.support.written_stores import (
    BORN_HOST,
    SMALL,
    open_small,
    send,
    send_many,
)

FILE_ENTRIES = SMALL.mappedFileSizeConsumeQueue // ENTRY_BYTES


def test_a_batch_over_several_queue_files_has_all_its_entries(tmp_path):
    members = [(0, b"", b"") for _ in range(100)]
    with open_small(tmp_path) as store:
        send(store, 0)
        appended = store.append_batch("Orders", 0, members, BORN_HOST, born_timestamp_ms=1)
        queue = store.queues.get("Orders", 0)
        assert [queue.entry(a.queue_offset)[:2] for a in appended] == [
            (a.physical_offset, a.store_size) for a in appended
        ]
    assert len(list((tmp_path / "consumequeue/Orders/0").iterdir())) == 4


def test_a_queue_that_begins_inside_a_file_is_filled_before_it(tmp_path):
    with open_small(tmp_path) as store:
        store._appender.queue("T", 0).next_offset = 7
        assert send(store, 1, topic="T").queue_offset == 7
        queue = store.queues.get("T", 0)
        assert [queue.entry(n) for n in range(7)] == [FILLER] * 7
        assert store.queues.min_offset("T", 0) == 7


def test_more_queues_than_may_be_open_are_all_written(tmp_path):
    with open_small(tmp_path) as store:
        store._appender._open_queues._max_open = 3
        for number in range(200):
            send(store, number, queue_id=number % 17)
            if number % 50 == 0:
                store.flush()
        for queue_id in range(17):
            queue = store.queues.get("Orders", queue_id)
            expected = len(range(queue_id, 200, 17))
            assert queue.next_offset == expected
            assert all(queue.entry(n) for n in range(expected))


def test_queues_written_in_turn_have_no_more_files_open_than_they_may_and_are_synced(tmp_path):
    synced = []

    class Watched(Disk):
        def sync_file(self, path):
            synced.append(path)
            super().sync_file(path)

    with open_small(tmp_path, disk=Watched()) as store:
        store._appender._open_queues._max_open = 3
        send_many(store, 10, queues=1)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for number in range(200):
            send(store, number, topic="Many", queue_id=number % 40)
        # Three queues of two descriptors each, and perhaps the next segments, not synced yet.
        segments = len(list((tmp_path / "commitlog").iterdir()))
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 6 + 2 * segments
        store.flush()
        files = set((tmp_path / "consumequeue/Many").rglob("0*0"))
        assert len({path for path in synced if "Many" in path.parts} & files) >= 37
        assert not any(queue.is_dirty for queue in store._appender.queues.values())


def test_entries_are_read_in_runs_that_end_with_a_file_or_the_queue(tmp_path):
    with open_small(tmp_path) as store:
        sent = send_many(store, 70, queues=1)
        queue = store.queues.get("Orders", 0)
        for start, count, expected in ((0, 10, 10), (25, 10, 5), (30, 99, 30), (65, 99, 5)):
            entries = queue.read(start, count)
            assert [entry.physical_offset for entry in entries] == [
                a.physical_offset for a in sent[start : start + expected]
            ]
        assert queue.read(70, 5) == queue.read(-1, 5) == []


@pytest.fixture
def queue(tmp_path):
    """A queue of three whole files, and of one that is being written."""
    with open_small(tmp_path) as store:
        send_many(store, 3 * FILE_ENTRIES + 10, queues=1)
        yield store.queues.get("Orders", 0)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, FILE_ENTRIES),
        (FILE_ENTRIES + 3, 2 * FILE_ENTRIES),
        (3 * FILE_ENTRIES, 3 * FILE_ENTRIES + 10),
        (5, 5),
    ],
)
def test_entries_are_those_that_were_appended(queue, start, stop):
    read = read_entries(queue, start, stop)
    expected = [queue.entry(number) for number in range(start, stop)]
    for name in ("physical_offset", "store_size", "tags_code"):
        assert read[name].tolist() == [getattr(entry, name) for entry in expected]


def test_of_a_file_that_is_short_the_whole_entries_are_read(queue):
    base, path = queue.files()[1]
    os.truncate(path, 5 * ENTRY_BYTES + 7)
    start = base // ENTRY_BYTES
    assert len(read_entries(queue, start + 1, start + FILE_ENTRIES)) == 4


def test_a_file_that_is_gone_is_an_error(queue):
    queue.files()[0][1].unlink()
    with pytest.raises(FileNotFoundError):
        read_entries(queue, 0, FILE_ENTRIES)
