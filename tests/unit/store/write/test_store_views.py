"""The log is read while it grows.

Queues are asked by offset and by time while they grow.
"""

import pytest

from rocketlens.errors import StoreBusy
from rocketlens.store.read.log.commitlog import SegmentLost
from rocketlens.store.write.store_views import LogView
from tests.support.failing_calls import FailingCalls
from tests.support.written_stores import Clock, open_small, send, send_many


def test_a_record_is_given_only_where_it_is_whole(tmp_path):
    with open_small(tmp_path) as store:
        sent = send_many(store, 3)[1]
        assert len(store.record(sent.physical_offset, 0)) == sent.store_size
        assert store.record(sent.physical_offset, sent.store_size)[:4] == sent.store_size.to_bytes(
            4, "big"
        )
        assert store.record(-1, 0) is None
        assert store.record(store.end_offset, 0) is None
        assert store.record(sent.physical_offset, 10**6) is None


def test_a_record_that_cannot_be_read_now_is_not_one_that_is_gone(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 3)
        assert store.record(0, 0)
        while len(list((tmp_path / "commitlog").iterdir())) < 3:
            last = send(store, 3, body=b"x" * 3000)
        failing = FailingCalls(tmp_path, range(10_000))
        with failing.counted(), pytest.raises(StoreBusy, match="cannot be listed"):
            store.record(last.physical_offset, last.store_size)
        assert store.record(0, 0)
        store._log.listed()
        with failing.counted(), pytest.raises(SegmentLost):
            store.record(last.physical_offset, last.store_size)
        assert len(store.record(last.physical_offset, 0)) == last.store_size


def test_offsets_are_found_by_time_as_rocketmq_5_finds_them(tmp_path):
    clock = Clock(1000)
    with open_small(tmp_path, clock=clock) as store:
        for now_ms in (1000, 2000, 2000, 2000, 3000):
            clock.now_ms = now_ms
            send(store, now_ms)

        def lower(t):
            return store.queues.offset_by_time("Orders", 0, t)

        def upper(t):
            return store.queues.offset_by_time("Orders", 0, t, upper=True)

        assert [lower(t) for t in (0, 1000, 1001, 2000, 2001, 3000, 3001)] == [0, 0, 1, 1, 4, 4, 5]
        assert [upper(t) for t in (0, 1000, 1999, 2000, 2999, 3000, 9999)] == [0, 0, 0, 3, 3, 4, 4]
        assert store.queues.offset_by_time("None", 0, 5) == 0
        assert store.queues.min_offset("None", 0) == store.queues.max_offset("None", 0) == 0


def test_a_queue_begins_at_its_first_message_that_the_log_still_has(tmp_path, monkeypatch):
    with open_small(tmp_path) as store:
        sent = send_many(store, 30, queues=1)
        assert store.queues.min_offset("Orders", 0) == 0
        for kept in (1, 17, 29):
            monkeypatch.setattr(LogView, "min_offset", sent[kept].physical_offset)
            assert store.queues.min_offset("Orders", 0) == kept
        monkeypatch.setattr(LogView, "min_offset", store.end_offset)
        assert store.queues.min_offset("Orders", 0) == store.queues.max_offset("Orders", 0) == 30


def test_the_queues_of_a_topic_are_those_that_have_messages(tmp_path):
    with open_small(tmp_path) as store:
        send_many(store, 4, queues=2)
        send(store, 4, topic="Others")
        assert store.queues.of_topic("Orders") == [store.queues.get("Orders", n) for n in (0, 1)]
        assert store.queues.of_topic("None") == []
        assert store.queues.get("Orders", 2) is None
