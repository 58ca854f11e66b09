"""Files that a broker deletes with those of the log, and are there without them."""

import pytest

import rocketlens
from rocketlens import read_batches
from rocketlens.errors import StoreError
from rocketlens.formats.consumequeue_entry import ENTRY_BYTES, QueueEntry
from rocketlens.formats.index_file import HEADER_BYTES
from rocketlens.store.layout import StoreLayout
from rocketlens.store.read.log.begin_evidence import lost_begin
from rocketlens.store.read.log.commitlog import CommitLog
from rocketlens.store.read.rocks import queues_in
from tests.support.synthetic import record, write_log

ENTRIES = 4
"""Of a queue file."""


@pytest.fixture
def store(tmp_path):
    """A store whose first log file is gone, with queues that lead to it."""
    written = write_log(tmp_path, (record(n) for n in range(40)), 2048)
    queue = tmp_path / "consumequeue" / "Topic" / "0"
    queue.mkdir(parents=True)
    for number in range(0, 40, ENTRIES):
        entries = [QueueEntry(each.physical_offset, each.total_size, 0) for each in written]
        content = b"".join(each.encode() for each in entries[number : number + ENTRIES])
        (queue / f"{number * ENTRY_BYTES:020}").write_bytes(content)
    (tmp_path / "commitlog" / f"{0:020}").unlink()
    return tmp_path


def write_index(store, name, begin, end):
    (store / "index").mkdir(exist_ok=True)
    header = [*(number.to_bytes(8, "big") for number in (5, 6, begin, end))]
    (store / "index" / name).write_bytes(b"".join(header) + b"\0\0\0\1\0\0\0\3" + bytes(200))


def said(store):
    layout = StoreLayout(store)
    queues = queues_in(layout.consume_queue)
    try:
        return lost_begin(layout, CommitLog.of(layout), queues)
    finally:
        queues.close()


def test_a_queue_file_that_leads_only_before_the_log_is_named(store):
    assert "consumequeue/Topic/0/00000000000000000000 leads to what was before" in said(store)
    assert "the log begins at physical offset 2048" in said(store)


def test_files_that_lead_into_the_log_and_the_last_of_a_queue_prove_nothing(store):
    queue = store / "consumequeue" / "Topic" / "0"
    first, second, *others = sorted(queue.iterdir())
    first.unlink()
    second.unlink()
    (queue / others[0].name).unlink()
    assert said(store) is None
    for path in others[1:]:
        path.unlink()
    first.write_bytes(QueueEntry(0, 100, 0).encode())
    assert said(store) is None


@pytest.mark.parametrize(
    ("ends", "proves"), [((1900, 4000), True), ((2048, 4000), False), ((1900,), False)]
)
def test_an_index_file_that_leads_only_before_the_log_proves_it_unless_it_is_the_last(
    store, ends, proves
):
    for path in (store / "consumequeue" / "Topic" / "0").iterdir():
        path.unlink()
    for number, end in enumerate(ends):
        write_index(store, f"2026010100000000{number}", 100, end)
    assert (said(store) is not None) == proves
    if proves:
        assert "index/20260101000000000 leads to" in said(store)


@pytest.mark.parametrize("name", ["abort", "rocketlens/state.json"])
def test_a_broker_that_runs_or_is_ours_deletes_them_later(store, name):
    (store / name).parent.mkdir(exist_ok=True)
    (store / name).write_text("")
    assert said(store) is None


def test_a_log_from_its_first_byte_on_lost_nothing_before(store):
    (store / "commitlog" / f"{0:020}").write_bytes(bytes(2048))
    assert said(store) is None


def test_files_that_cannot_be_read_prove_nothing(store, monkeypatch):
    write_index(store, "20260101000000000", 100, 200)
    write_index(store, "20260101000000001", 300, 400)
    (store / "index" / "20260101000000000").write_bytes(b"x" * HEADER_BYTES)
    for path in (store / "consumequeue" / "Topic" / "0").iterdir():
        path.unlink()
    assert said(store) is None


def test_each_way_to_read_such_a_store_is_incomplete_or_fails(store):
    with rocketlens.open_store(store) as opened:
        for answer in (
            *(opened.find("no such key"), opened.find(topic="Topic"), opened.find("Topic/0/0")),
            *(opened.topics(), opened.topics("Topic")),
        ):
            assert not answer.complete
        scan = opened.scan("Topic")
        rows = scan.to_arrow()
        assert not scan.complete
    with pytest.raises(StoreError, match="the log's first file is lost"):
        read_batches(store)
    damage = [row for batch in read_batches(store, table="damage") for row in batch.to_pylist()]
    assert [(row["physical_offset"], row["length"]) for row in damage] == [(0, 2048)]
    kept = read_batches(store, failOnDataLoss="false")
    assert sum(len(batch) for batch in kept) == len(rows)


def test_a_bulk_read_of_what_was_stored_later_does_not_fail(store):
    log = CommitLog(store / "commitlog")
    first = log.record_at(log.min_offset)
    for later in (
        {"startingTimestamp": first.store_timestamp_ms},
        {"startingOffset": first.physical_offset},
    ):
        assert sum(len(batch) for batch in read_batches(store, **later))
