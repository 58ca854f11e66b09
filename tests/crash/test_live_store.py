"""A store that a broker goes on writing to, or cleaning, while it is open here."""

import operator
import random

import pytest

import rocketlens
from rocketlens.errors import MessageNotFound
from rocketlens.formats.commitlog_record import encode_blank
from tests.support import made_stores
from tests.support.made_stores import (
    QUEUE_ENTRY,
    RecordIndexWriter,
    Sent,
    make_store,
    overwrite,
    record_of,
    some_messages,
)

SEGMENT_BYTES = 1 << 12


class Broker:
    """Writes as a broker does: into files that are there, and into new ones."""

    def __init__(self, path, *, with_index=True, slot_count=64, entry_count=100):
        self.made = make_store(path, some_messages(10), segment_bytes=SEGMENT_BYTES, index=None)
        self.path = path
        (path / "abort").touch()
        self.index = (
            RecordIndexWriter(path / "index", slot_count, entry_count) if with_index else None
        )
        self.written: list[bytes] = []
        last = self.made.records[-1]
        self.end = last.physical_offset + last.total_size
        self.queue_ends = {}
        for record in self.made.records:
            self.queue_ends[record.topic, record.queue_id] = record.queue_offset + 1
            if self.index:
                self.index.put_record(record)
        self.flush_index()

    def flush_index(self):
        """Write what changed, in place: mappings of these files see it."""
        if self.index is None:
            return
        self.index.directory.mkdir(exist_ok=True)
        for n, content in enumerate(self.index.contents()):
            path = self.index.directory / f"{20231114221320000 + n}"
            if path.exists():
                overwrite(path, 0, bytes(content))
            else:
                path.write_bytes(content)

    def send(self, sent, *, indexed=True, queued=True):
        queue = (sent.topic, sent.queue_id)
        queue_offset = self.queue_ends.get(queue, 0)
        record, encoded = record_of(sent, self.end, queue_offset)
        left = SEGMENT_BYTES - self.end % SEGMENT_BYTES
        if len(encoded) + 8 > left:
            overwrite(
                self.made.segment_path(self.end), self.end % SEGMENT_BYTES, encode_blank(left)
            )
            self.end += left
            record, encoded = record_of(sent, self.end, queue_offset)
        path = self.made.segment_path(self.end)
        if not path.exists():
            path.write_bytes(bytes(SEGMENT_BYTES))
        overwrite(path, self.end % SEGMENT_BYTES, encoded)
        self.end += len(encoded)
        self.queue_ends[queue] = queue_offset + 1
        if queued:
            self.put_in_queue(record)
        if indexed and self.index:
            self.index.put_record(record)
            self.flush_index()
        return record

    def put_in_queue(self, record):
        place = record.queue_offset * QUEUE_ENTRY.size
        size = self.made.queue_entries * QUEUE_ENTRY.size
        directory = self.path / "consumequeue" / record.topic / str(record.queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{place // size * size:020d}"
        if not path.exists():
            path.write_bytes(bytes(size))
        entry = QUEUE_ENTRY.pack(record.physical_offset, record.total_size, 0)
        overwrite(path, place % size, entry)

    def clean(self):
        """Delete the oldest segment, and index files that have only entries of deleted records."""
        oldest, *_ = sorted((self.path / "commitlog").iterdir())
        oldest.unlink()
        return int(oldest.name) + SEGMENT_BYTES


def assert_found(store, record):
    key = made_stores.texts_of(record)[0]
    assert [m.body for m in store.query_message(record.topic, key)] == [record.body]
    assert [m.body for m in store.find(key)] == [record.body]
    assert store.view_message(record.offset_msg_id).body == record.body
    place = (record.topic, record.queue_id, record.queue_offset)
    assert store.query_by_queue_offset(*place).body == record.body


def sent(n, **named):
    fields = {"topic": f"Topic{n % 3}", "keys": f"live-{n} live", "body": b"live %d" % n} | named
    return Sent(**fields, queue_id=n % 2, store_timestamp_ms=made_stores.NOW_MS + 10_000 + n)


@pytest.mark.parametrize("with_index", [True, False], ids=["index", "no-index"])
def test_what_is_stored_while_a_store_is_open_is_found_by_the_next_query(tmp_path, with_index):
    broker = Broker(tmp_path / "store", with_index=with_index)
    with rocketlens.open_store(broker.path) as store:
        assert_found(store, broker.made.records[3])
        records = []
        for n in range(300):
            records.append(broker.send(sent(n)))
            if n % 7 == 0:
                assert_found(store, records[-1])
                assert_found(store, records[n // 2])
        assert len(list((broker.path / "commitlog").iterdir())) > 8
        assert len(store.query_message("Topic0", "live", None)) == 100
        for record in records[::11]:
            assert_found(store, record)
        answer = store.query_message("Topic0", "live")
        assert not [c for c in answer.coverage if c.state != "searched"]


def test_entries_added_to_an_open_index_file_are_no_damage(tmp_path):
    """In a file that is mapped: small ones are read once."""
    broker = Broker(tmp_path / "store", slot_count=300_000, entry_count=2000)
    with rocketlens.open_store(broker.path) as store:
        assert_found(store, broker.made.records[3])
        for n in range(60):
            assert_found(store, broker.send(sent(n)))
        for record in broker.made.records:
            assert_found(store, record)
        states = [c.state for c in store.query_message("Topic0", "live").coverage]
        assert set(states) == {"searched"}


def test_a_message_not_yet_in_queue_or_index_is_found(tmp_path):
    broker = Broker(tmp_path / "store")
    with rocketlens.open_store(broker.path) as store:
        for n in range(40):
            assert_found(store, broker.send(sent(n), indexed=False, queued=False))


def test_a_topic_that_appears_while_a_store_is_open_is_found_without_its_name(tmp_path):
    broker = Broker(tmp_path / "store")
    with rocketlens.open_store(broker.path) as store:
        assert not store.find("news-1").messages
        record = broker.send(sent(1, topic="Brand-New", keys="news-1"))
        assert_found(store, record)


@pytest.mark.parametrize(
    "looks_at",
    [
        "rocketlens.store.read.log.scan.next_record",
        "rocketlens.store.read.index.tail.Tail._has_grown",
    ],
)
def test_what_is_stored_between_two_looks_at_the_logs_end_is_no_damage_and_not_missed(
    tmp_path, monkeypatch, looks_at
):
    broker = Broker(tmp_path / "store")
    written = []
    look = operator.attrgetter(looks_at.removeprefix("rocketlens."))(rocketlens)

    def look_late(*arguments):
        # Behind the place that was unwritten at the first look, more than one record.
        if len(written) < 300:
            for _ in range(3):
                written.append(broker.send(sent(len(written)), indexed=False))
        return look(*arguments)

    monkeypatch.setattr(looks_at, look_late)
    with rocketlens.open_store(broker.path) as store:
        while len(written) < 300:
            assert_found(store, broker.made.records[0])
        for record in written:
            assert_found(store, record)
        answer = store.query_message("Topic0", "live", None)
        assert not [c for c in answer.coverage if c.state != "searched"]


def test_segments_that_are_cleaned_away_are_missed_by_nothing_but_their_messages(tmp_path):
    broker = Broker(tmp_path / "store")
    records = [broker.send(sent(n)) for n in range(150)]
    chance = random.Random(2)
    with rocketlens.open_store(broker.path) as store:
        asked = chance.sample(records, 60)
        for n, record in enumerate(asked):
            if n % 15 == 14:
                low = broker.clean()
                broker.send(sent(1000 + n))
                records = [r for r in records if r.physical_offset >= low]
            if record in records:
                assert_found(store, record)
            else:
                answer = store.query_message(record.topic, made_stores.texts_of(record)[0])
                bodies = [m.body for m in answer]
                assert bodies in ([], [record.body])
                assert answer.complete
        whole = [m.physical_offset for m in store.scan(all_topics=True)]
        assert whole[-len(records) - 4 :] == sorted(whole[-len(records) - 4 :])
        store.query_message("Topic0", "live", None)


def test_a_store_opened_after_cleaning_never_names_what_went_as_damage(tmp_path):
    broker = Broker(tmp_path / "store")
    for n in range(150):
        broker.send(sent(n))
    with rocketlens.open_store(broker.path) as store:
        broker.clean()
        broker.clean()
        answer = store.query_message("Topic0", "live", None)
        assert answer.complete
        assert answer.messages
        scan = store.scan(all_topics=True)
        assert list(scan)
        assert scan.failures == []


def test_index_files_that_a_broker_made_meanwhile_are_taken_up(tmp_path, monkeypatch):
    from rocketlens.query import store_reader

    monkeypatch.setattr(store_reader, "_REOPEN_ENTRIES", 50)
    broker = Broker(tmp_path / "store", entry_count=60)
    with rocketlens.open_store(broker.path) as store:
        records = []
        for n in range(200):
            records.append(broker.send(sent(n)))
            if n % 10 == 0:
                assert_found(store, records[n // 2])
        answer = store.query_message("Topic1", "live-100")
        files = [c for c in answer.coverage if c.kind == "index_file"]
        assert len(files) > 4


def test_a_deleted_store_ends_in_no_traceback(tmp_path):
    import shutil

    broker = Broker(tmp_path / "store")
    records = [broker.send(sent(n)) for n in range(60)]
    with rocketlens.open_store(broker.path) as store:
        assert_found(store, records[0])
        shutil.rmtree(broker.path)
        for record in records[::5]:
            try:
                assert store.view_message(record.offset_msg_id).body == record.body
            except MessageNotFound:
                continue
            except rocketlens.RocketLensError:
                continue
        store.query_message("Topic1", "live", None)
        list(store.scan(all_topics=True))
