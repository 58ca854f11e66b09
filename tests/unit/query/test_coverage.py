"""What an answer says of the log that it stands on: how far it was read, and what was not."""

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import AnswerIncomplete, BadInput
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.query import answer_builder, by_time
from rocketlens.store.read.tail import Tail
from tests.crash.made_stores import Sent, flip, make_store, overwrite, record_of, some_messages

LOG = SourceKind.COMMIT_LOG


@pytest.fixture
def made(tmp_path):
    return make_store(tmp_path / "store", some_messages(60))


def end_of(made):
    return made.records[-1].physical_offset + made.records[-1].total_size


def append(made, sent):
    """Write one more record behind the last, as a broker does."""
    record, encoded = record_of(sent, end_of(made), 10_000)
    overwrite(made.segment_path(end_of(made)), end_of(made) % made.segment_bytes, encoded)
    made.records.append(record)


def log_of(answer):
    (found,) = [c for c in answer.coverage if c.log_end_offset is not None]
    return found


def test_every_answer_says_up_to_where_it_read_the_log(made):
    record = made.records[7]
    place = f"{record.topic}/{record.queue_id}/{record.queue_offset}"
    begin, end = record.physical_offset, record.physical_offset + record.total_size
    with rocketlens.open_store(made.path) as store:
        for answer, expected in [
            (store.query_message("Topic0", "nothing"), (0, end_of(made))),
            (store.find("order-7"), (0, end_of(made))),
            (store.find(topic="Topic1"), (0, end_of(made))),
            (store.find(record.offset_msg_id), (begin, end)),
            (store.find(place), (begin, end)),
            (
                store.find("Topic0/0/999", kind="queue-offset"),
                (made.records[-6].physical_offset, end_of(made)),
            ),
        ]:
            found = log_of(answer)
            assert (found.kind, found.state) == (LOG, SourceState.SEARCHED)
            assert (found.begin_offset, found.end_offset) == expected
            assert found.log_end_offset == found.end_offset
            assert answer.complete


def test_a_memory_that_stays_behind_the_log_makes_answers_incomplete(made, monkeypatch):
    with rocketlens.open_store(made.path) as store:
        assert store.query_message("Topic0", "late").complete
        come_to = end_of(made)
        monkeypatch.setattr(Tail, "_has_grown", lambda *_: False)
        append(made, Sent(topic="Topic0", keys="late"))
        answer = store.query_message("Topic0", "late")
        assert (answer.messages, answer.complete) == ((), False)
        assert f"{come_to} to {end_of(made)} were not read" in answer.failures[0].error
        with pytest.raises(AnswerIncomplete):
            store.view_message("Topic0", "late")


def test_a_scan_sees_a_segment_made_after_the_store_was_opened_or_is_incomplete(tmp_path):
    made = make_store(tmp_path / "store", some_messages(60), segment_bytes=1 << 13)
    (*_, last) = sorted((made.path / "commitlog").iterdir())
    content = last.read_bytes()
    last.unlink()
    with rocketlens.open_store(made.path) as store:
        scan = store.scan("Topic1")
        last.write_bytes(content)
        found = [message.physical_offset for message in scan]
        expected = [r.physical_offset for r in made.records if r.topic == "Topic1"]
        assert found == expected or not scan.complete
        answer = store.find(topic="Topic1")
        assert [m.physical_offset for m in answer] == expected or not answer.complete


def test_a_scan_is_not_complete_before_it_came_to_the_end(made):
    with rocketlens.open_store(made.path) as store:
        scan = store.scan()
        assert not scan.complete
        messages = iter(scan)
        next(messages)
        assert not scan.complete
        assert len(list(messages)) == 59
        assert scan.complete


# Topics that were deleted.


@pytest.fixture
def deleted_topic(tmp_path, monkeypatch):
    """A store in which only one record tells that there ever was a topic ``Gone``."""
    monkeypatch.setattr("rocketlens.query.topics._READ_AT_ONCE_BYTES", 0)
    monkeypatch.setattr("rocketlens.query.topics._SAMPLES", 4)
    messages = some_messages(400)
    messages[150] = Sent(topic="Gone", keys="lost-key")
    made = make_store(tmp_path / "store", messages)
    for path in sorted((made.path / "consumequeue" / "Gone").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (made.path / "consumequeue" / "Gone").rmdir()
    return made


def test_a_key_of_a_deleted_topic_is_found_where_the_log_may_be_read_for_it(deleted_topic):
    for most in (limits.MAX_TOPIC_SCAN_BYTES, None):
        with rocketlens.open_store(deleted_topic.path, max_topic_scan_bytes=most) as store:
            answer = store.find("lost-key")
            assert [m.topic for m in answer] == ["Gone"]
            assert answer.complete


def test_a_log_too_long_to_be_read_for_deleted_topics_makes_not_found_incomplete(deleted_topic):
    with rocketlens.open_store(deleted_topic.path, max_topic_scan_bytes=1000) as store:
        answer = store.find("lost-key")
        assert (answer.messages, answer.complete) == ((), False)
        (failed,) = answer.failures
        assert failed.kind is SourceKind.TOPICS
        assert "was not read for topics that were deleted" in failed.error
        assert "--topic" in failed.error
        with pytest.raises(AnswerIncomplete):
            store.view_message("lost-key")
        assert len(store.find("lost-key", topic="Gone")) == 1
        assert store.find("nothing", topic="Gone").complete
        assert store.find("order-7").complete


def test_a_long_scan_for_topics_is_announced_with_its_bytes(deleted_topic, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TOPIC_SCAN_BYTES", 1000)
    said = []
    with rocketlens.open_store(
        deleted_topic.path, max_topic_scan_bytes=None, before_long_scan=said.append
    ) as store:
        assert len(store.find("order-7")) == 1
        assert said == []
        assert len(store.find("lost-key")) == 1
        assert said == [deleted_topic.records[-1].physical_offset]


def test_damage_that_may_hide_a_deleted_topic_makes_not_found_incomplete(deleted_topic):
    (gone,) = [r for r in deleted_topic.records if r.topic == "Gone"]
    flip(deleted_topic.segment_path(gone.physical_offset), gone.physical_offset + 4)
    with rocketlens.open_store(deleted_topic.path) as store:
        answer = store.find("lost-key")
        assert (answer.messages, answer.complete) == ((), False)
        assert str(gone.physical_offset) in answer.failures[0].error
        assert store.find("order-7").complete


# The newest of a topic and a time.


def test_the_newest_of_a_topic_are_decoded_and_no_others(made, monkeypatch):
    decoded = []
    message_of = answer_builder.message_of
    monkeypatch.setattr(
        answer_builder, "message_of", lambda record: decoded.append(record) or message_of(record)
    )
    expected = [r.physical_offset for r in made.records if r.topic == "Topic2"]
    for compiled_from in (0, 1 << 30):
        monkeypatch.setattr(by_time, "interpreted_bytes", lambda n=compiled_from: n)
        with rocketlens.open_store(made.path) as store:
            for max_num in (0, 1, 5, 100, None):
                decoded.clear()
                answer = store.find(topic="Topic2", max_num=max_num)
                kept = expected if max_num is None else expected[len(expected) - max_num :]
                kept = expected if max_num == 100 else kept
                assert [m.physical_offset for m in answer] == kept
                assert answer.truncated is (len(kept) < len(expected))
                assert len(decoded) == len(kept)


def test_a_negative_number_of_messages_is_refused_whatever_is_looked_for(made):
    with rocketlens.open_store(made.path) as store:
        for question in ({"topic": "Topic0"}, {"text": "order-7"}, {"text": "Topic0/0/0"}):
            with pytest.raises(BadInput):
                store.find(**question, max_num=-1)
