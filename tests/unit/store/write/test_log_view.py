"""The log is read while it grows."""

import pytest

from rocketlens.errors import StoreBusy
from rocketlens.store.read.log.commitlog import SegmentLost
from tests.support.failing_calls import FailingCalls
from tests.support.written_stores import open_small, send, send_many


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
