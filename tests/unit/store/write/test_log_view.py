"""The log is read while it grows."""

from tests.unit.store.written_stores import open_small, send_many


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
