"""Offsets of a log lead to its segments and records.

A DLedger log beside where a commit log would be.
"""

import pytest
from msgspec.structs import replace

import rocketlens
from rocketlens.bulk.messages import read_batches
from rocketlens.bulk.ranges import walk_log
from rocketlens.errors import NotAStore, RecordError
from rocketlens.formats import dledger
from rocketlens.formats.commitlog_record import Reason, decode, encode, encode_blank
from rocketlens.store.layout import StoreLayout, paths_of
from rocketlens.store.read.log.commitlog import CommitLog, Replica, SegmentLost
from tests.support.synthetic import record, write_log


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


def make_replica(store, name="dledger-n0", *, offsets=(0, 500, 900)):
    root = store / name
    (root / "data").mkdir(parents=True)
    (root / "data" / f"{0:020}").write_bytes(bytes(100))
    (root / "index").mkdir()
    items = [dledger.INDEX_ITEM.pack(1, o, 1, n, 1) for n, o in enumerate(offsets)]
    (root / "index" / f"{0:020}").write_bytes(b"".join(items) + bytes(64))
    (root / "checkpoint").write_text("committedIndex=1\n")
    return root


def test_a_replica_knows_how_far_it_is_committed_and_learns_more(tmp_path):
    root = make_replica(tmp_path)
    replica = Replica.beside(tmp_path / "commitlog")
    assert replica.has_committed(548)
    assert not replica.has_committed(549)
    (root / "checkpoint").write_text("committedIndex=2\n")
    replica.refresh()
    assert replica.committed_to == 948


def test_what_is_committed_is_not_known_without_checkpoint_or_index(tmp_path):
    root = make_replica(tmp_path)
    (root / "index" / f"{0:020}").unlink()
    assert Replica(root).committed_to == -1
    (root / "checkpoint").unlink()
    assert Replica(root).committed_to == -1


def test_a_store_with_a_commit_log_has_no_replica(tmp_path):
    (tmp_path / "commitlog").mkdir()
    assert Replica.beside(tmp_path / "commitlog") is None


def test_two_replicas_in_one_store_are_refused(tmp_path):
    make_replica(tmp_path)
    make_replica(tmp_path, "dledger-n1")
    with pytest.raises(NotAStore, match="more than one DLedger log"):
        Replica.beside(tmp_path / "commitlog")


def dledger_entry(number, record, base_offset, term=3):
    """Return an entry of a DLedger log, and the record in it as it stands there."""
    placed = replace(record, physical_offset=base_offset + dledger.ENTRY_HEADER_BYTES)
    body = encode(placed)
    header = dledger.EntryHeader(
        dledger.ENTRY_MAGIC,
        len(body) + dledger.ENTRY_HEADER_BYTES,
        number,
        term,
        base_offset,
        0,
        0,
        0,
        len(body),
    )
    return dledger.ENTRY_FIELDS.struct.pack(*header) + body, decode(body)


@pytest.fixture
def switched(tmp_path):
    """A store that was switched to DLedger, and its records; two of the last ten are committed."""
    old = write_log(tmp_path, (record(n) for n in range(40)), 4096)
    last = max((tmp_path / "commitlog").iterdir())
    base = int(last.name) + 4096
    used = old[-1].physical_offset + old[-1].total_size - int(last.name)
    # The broker closes the last file.
    content = last.read_bytes()[:used] + encode_blank(4096 - used)
    last.write_bytes(content.ljust(4096, b"\0"))
    content, offsets, new = b"", [], []
    for number in range(10):
        offsets.append(base + len(content))
        entry, placed = dledger_entry(number, record(40 + number), offsets[-1])
        content += entry
        new.append(placed)
    root = make_replica(tmp_path, offsets=offsets)
    (root / "data" / f"{0:020}").unlink()
    (root / "data" / f"{base:020}").write_bytes(content + bytes(4096 - len(content)))
    return tmp_path, [*old, *new]


def test_a_log_that_goes_on_in_dledger_is_read_from_both(switched):
    store, records = switched
    with rocketlens.open_store(store) as opened:
        for number, each in enumerate(records[:42]):
            answer = opened.find(f"key-{number}")
            assert [m.physical_offset for m in answer.messages] == [each.physical_offset]
            assert opened.view_message(each.offset_msg_id).unique_key == f"{number:032X}"
        answer = opened.find(topic="Topic")
        assert [m.physical_offset for m in answer.messages] == [
            each.physical_offset for each in records[:42]
        ]
        # Of ten in DLedger's log the checkpoint says that two are committed.
        assert not answer.complete
    (store / "dledger-n0" / "checkpoint").write_text("committedIndex=9\n")
    with rocketlens.open_store(store) as opened:
        answer = opened.find(topic="Topic")
        assert answer.complete
        assert len(answer.messages) == 50
    rows = [row for batch in read_batches(store) for row in batch.to_pylist()]
    assert [row["physical_offset"] for row in rows] == [each.physical_offset for each in records]


@pytest.mark.parametrize("count", [1, 2, 39, 40, 41, 42, 49, 50, 60])
def test_a_walk_over_some_records_counts_no_headers_of_dledger(switched, count):
    store, records = switched
    log = CommitLog.of(StoreLayout(store))
    end = walk_log(log, 0, log.max_offset, max_records=count)
    assert sum(each.physical_offset < end for each in records) == min(count, len(records))
    log.close()


def test_what_was_stored_before_a_switch_is_committed(switched):
    store, records = switched
    (store / "dledger-n0" / "checkpoint").unlink()
    replica = Replica.beside(store / "commitlog")
    assert replica.committed_to == -1
    assert replica.has_committed(records[39].physical_offset)
    assert not replica.has_committed(records[40].physical_offset)


def test_a_broker_conf_of_a_switched_broker_names_both_logs(switched, tmp_path):
    store, _ = switched
    (tmp_path / "broker.conf").write_text(
        f"storePathRootDir={store}\nenableDLegerCommitLog=true\ndLegerSelfId=n0\n"
    )
    _, logs, _ = paths_of(tmp_path / "broker.conf")
    assert logs == (store / "dledger-n0" / "data", store / "commitlog")
    with rocketlens.open_store(tmp_path / "broker.conf") as opened:
        assert len(opened.find(topic="Topic").messages) == 42


def test_two_logs_that_have_the_same_offsets_are_refused(tmp_path):
    make_replica(tmp_path)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(b"x")
    with pytest.raises(NotAStore, match="are the same part of the log"):
        rocketlens.open_store(tmp_path)
