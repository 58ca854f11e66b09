"""Queue entries are written in files that come and go, and read back."""

from pathlib import Path

from rocketlens.formats.consumequeue_entry import FILLER
from rocketlens.store.disk import Disk
from tests.support.written_stores import (
    BORN_HOST,
    open_small,
    send,
    send_many,
)


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
