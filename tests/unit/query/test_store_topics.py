"""The topics of a store: those that it names, and those that only its log has."""

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import AnswerIncomplete, TopicNotFound
from rocketlens.model.answer import SourceKind
from tests.support.made_stores import Sent, flip, make_store, some_messages
from tests.unit.query.texts import texts_for


def test_an_unknown_topic_is_refused_and_never_an_empty_answer(made, store):
    record = made.records[20]
    for text in (*texts_for(record).values(), None):
        if text and "/" in text:
            continue
        with pytest.raises(TopicNotFound, match=r"no topic 'topic1'; did you mean Topic1"):
            store.find(text, "topic1")
    answer = store.query_message("Topics", texts_for(record)["key"])
    assert (len(answer), answer.complete) == (0, True)
    assert "names 'Topics'; did you mean Topic" in answer.coverage[-1].error
    with pytest.raises(TopicNotFound, match="no topic 'Topics'"):
        store.find(topic=[record.topic, "Topics"])


def test_several_topics_and_patterns_are_searched_as_one(made, store):
    topics = sorted({r.topic for r in made.records})[:2]
    expected = [r.physical_offset for r in made.records if r.topic in topics]
    assert [m.physical_offset for m in store.find(topic=topics)] == expected
    assert [m.physical_offset for m in store.scan(",".join(topics))] == expected
    assert [m.physical_offset for m in store.find(topic=topics, max_num=3)] == expected[-3:]
    assert len(store.find(topic="Topic*")) == len(made.records)
    record = next(r for r in made.records if r.topic == topics[1])
    for text in (record.offset_msg_id, texts_for(record)["unique-key"]):
        (found,) = store.find(text, topics)
        assert found.physical_offset == record.physical_offset


# Topics that were deleted.


@pytest.fixture
def deleted_topic(tmp_path, monkeypatch):
    """A store in which only one record tells that there ever was a topic ``Gone``."""
    monkeypatch.setattr("rocketlens.query.store_topics._READ_AT_ONCE_BYTES", 0)
    monkeypatch.setattr("rocketlens.query.store_topics._SAMPLES", 4)
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
