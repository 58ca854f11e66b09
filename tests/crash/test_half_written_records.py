"""Records that a broker is still copying into the log while a reader has it open.

RocketMQ copies a record from front to back. A reader can meet it after any of its bytes.
"""

import pytest

import rocketlens
from rocketlens.errors import RocketLensError
from rocketlens.store.read.log import scan
from tests.crash.test_live_store import SEGMENT_BYTES, Broker, assert_found, sent
from tests.support import made_stores
from tests.support.made_stores import overwrite, record_of


class Copying:
    """One record that is copied into the log byte by byte."""

    def __init__(self, broker, message):
        queue = (message.topic, message.queue_id)
        self.broker = broker
        self.queue_offset = broker.queue_ends.get(queue, 0)
        self.record, self.encoded = record_of(message, broker.end, self.queue_offset)
        assert broker.end % SEGMENT_BYTES + len(self.encoded) + 8 < SEGMENT_BYTES
        self.path = broker.made.segment_path(broker.end)
        self.place = broker.end % SEGMENT_BYTES

    def copy_to(self, count):
        overwrite(self.path, self.place, self.encoded[:count])

    def finish(self, *, queued=True):
        self.copy_to(len(self.encoded))
        self.broker.end += len(self.encoded)
        self.broker.queue_ends[self.record.topic, self.record.queue_id] = self.queue_offset + 1
        if queued:
            self.broker.put_in_queue(self.record)
        return self.record


def message(n=0, **named):
    return sent(
        n,
        **{
            "topic": "Copied",
            "keys": f"first-{n} second-{n}",
            "unique_key": f"U{n:031}",
            "tags": "TagA",
            "named": (("note", "last"),),
            **named,
        },
    )


def assert_given_nowhere(store, record):
    """Make sure that no way gives the record, nor says that it or anything else is damaged."""
    for text in made_stores.texts_of(record):
        for answer in (store.query_message(record.topic, text), store.find(text)):
            assert answer.messages == ()
            assert not [c for c in answer.coverage if "damage" in str(c.error)]
    assert record.physical_offset not in [m.physical_offset for m in store.scan()]
    with pytest.raises(RocketLensError):
        store.view_message(record.offset_msg_id)
    with pytest.raises(RocketLensError):
        store.query_by_queue_offset(record.topic, record.queue_id, record.queue_offset)


def assert_given_everywhere(store, record):
    for text in made_stores.texts_of(record):
        for answer in (store.query_message(record.topic, text), store.find(text)):
            assert [m.body for m in answer] == [record.body]
            assert answer.complete
    scanned = store.scan(record.topic)
    assert record.physical_offset in [m.physical_offset for m in scanned]
    assert scanned.complete
    assert store.view_message(record.offset_msg_id).properties["note"] == "last"
    place = (record.topic, record.queue_id, record.queue_offset)
    assert store.query_by_queue_offset(*place).body == record.body


@pytest.mark.parametrize("seen_bytes", [1, 4, 8, 60])
def test_an_open_handle_finds_a_record_whose_first_bytes_came_before_the_rest(
    tmp_path, monkeypatch, seen_bytes
):
    """They come just after a look-up has found that the log ends there."""
    broker = Broker(tmp_path / "store", with_index=False)
    with rocketlens.open_store(broker.path) as store:
        assert_found(store, broker.made.records[3])
        copying = Copying(broker, message())
        look = scan.next_record

        def look_early(*arguments):
            found = look(*arguments)
            copying.copy_to(seen_bytes)
            return found

        before = broker.send(sent(1))
        copying = Copying(broker, message())
        monkeypatch.setattr(scan, "next_record", look_early)
        assert store.query_message(before.topic, "live-1").messages
        monkeypatch.undo()
        record = copying.finish()
        assert_given_everywhere(store, record)
        assert_found(store, broker.send(sent(2)))


def test_a_record_is_found_after_its_last_byte_however_far_it_was_seen_before(tmp_path):
    broker = Broker(tmp_path / "store", with_index=False)
    length = len(Copying(broker, message()).encoded)
    with rocketlens.open_store(broker.path) as store:
        copying = Copying(broker, message())
        for count in range(1, length):
            copying.copy_to(count)
            assert_given_nowhere(store, copying.record)
        assert_given_everywhere(store, copying.finish())


@pytest.mark.parametrize("left", [1, 2, 3, 9, 30, 60, 100, 200])
def test_a_record_that_was_seen_once_before_its_last_bytes_is_found(tmp_path, left):
    broker = Broker(tmp_path / "store", with_index=False)
    with rocketlens.open_store(broker.path) as store:
        copying = Copying(broker, message())
        copying.copy_to(len(copying.encoded) - left)
        assert not store.query_message("Copied", "second-0").messages
        record = copying.finish(queued=False)
        assert_given_everywhere(store, record)
        assert_found(store, broker.send(sent(2)))
        assert_given_everywhere(store, record)


def test_a_record_that_ends_with_zeros_is_found_or_the_answer_is_not_complete(tmp_path):
    """Nothing but what follows it, or its queue, can tell it from one that is half written."""
    broker = Broker(tmp_path / "store", with_index=False)
    with rocketlens.open_store(broker.path) as store:
        copying = Copying(broker, message(named=(("note", "a\0\0"),)))
        # RocketMQ 5 may leave the last separator out.
        record, encoded = copying.record, copying.encoded
        assert encoded.endswith(b"a\0\0\x02")
        cut = encoded[:-1]
        size = len(cut).to_bytes(4, "big")
        properties_length = (len(record.properties) - 1).to_bytes(2, "big")
        place = len(encoded) - len(record.properties) - 2
        copying.encoded = size + cut[4:place] + properties_length + cut[place + 2 :]
        copying.finish(queued=False)
        answer = store.query_message("Copied", "second-0")
        assert answer.messages or not answer.complete
        scanned = store.scan("Copied")
        assert list(scanned) or not scanned.complete
        following = broker.send(sent(2))
        assert [m.physical_offset for m in store.query_message("Copied", "second-0")] == [
            record.physical_offset
        ]
        assert store.query_message("Copied", "second-0").complete
        assert_found(store, following)


def test_bytes_behind_a_damaged_last_record_are_noticed(tmp_path):
    """It is a torn tail only as long as nothing follows it."""
    broker = Broker(tmp_path / "store", with_index=False)
    with rocketlens.open_store(broker.path) as store:
        last = broker.send(sent(1))
        made_stores.flip(broker.made.segment_path(last.physical_offset), last.physical_offset + 30)
        assert not store.query_message(last.topic, "live-1").messages
        records = [broker.send(sent(n)) for n in range(2, 6)]
        for record in records:
            assert_found(store, record)
        answer = store.query_message("Topic0", "no-such-key")
        assert not answer.complete
        assert str(last.physical_offset) in str(answer.failures)
