"""What a text is taken for in a store directory."""

import pytest

import rocketlens
from rocketlens.errors import AnswerIncomplete, BadInput
from tests.support import made_stores
from tests.support.made_stores import Sent, flip, make_store, some_messages
from tests.unit.query.texts import texts_for


def test_a_text_of_each_kind_is_found_when_the_kind_is_named_and_when_it_is_not(made, store):
    for record in made.records[::7]:
        for kind, text in texts_for(record).items():
            for asked in (kind, "auto"):
                answer = store.find(text, kind=asked)
                assert [m.physical_offset for m in answer] == [record.physical_offset]
                assert answer.complete
                assert store.find(text, record.topic, kind=asked).messages == answer.messages


def test_a_text_of_one_kind_is_not_taken_for_another_that_was_named(made, store):
    record = made.records[5]
    texts = texts_for(record)
    assert not store.find(texts["key"], kind="unique-key")
    assert not store.find(texts["unique-key"], kind="key")
    for kind, text in (
        ("offset-id", texts["key"]),
        ("queue-offset", texts["key"]),
        ("queue-offset", "Topic0/x/1"),
        ("queue-offset", "Topic0/1"),
        ("nonsense", "k"),
    ):
        with pytest.raises(BadInput):
            store.find(text, kind=kind)


def test_a_key_with_slashes_is_a_key_where_no_such_topic_is(tmp_path):
    made = make_store(tmp_path / "store", [Sent(keys="a/1/2 Orders/0/0")])
    with rocketlens.open_store(made.path) as store:
        assert len(store.find("a/1/2")) == 1
        assert len(store.find("Orders/0/0")) == 1
        assert len(store.find("Orders/0/7")) == 0


def test_an_id_is_an_offset_message_id_first_and_a_unique_key_then(tmp_path):
    """A producer may choose any text as unique key, that of another message's id, too."""
    first, _ = made_stores.record_of(Sent(), 0, 0)
    made = make_store(tmp_path / "store", [Sent(), Sent(unique_key=first.offset_msg_id)])
    with rocketlens.open_store(made.path) as store:
        assert store.view_message(first.offset_msg_id).physical_offset == 0
        assert len(store.find(first.offset_msg_id, kind="unique-key")) == 1


def test_a_damaged_message_is_incomplete_by_each_of_its_names_and_never_absent(tmp_path):
    made = make_store(tmp_path / "store", some_messages(30))
    record = made.records[11]
    flip(made.segment_path(0), record.physical_offset + 90)
    with rocketlens.open_store(made.path) as store:
        for kind, text in texts_for(record).items():
            answer = store.find(text, kind=kind)
            assert (answer.messages, answer.complete) == ((), False)
            assert answer.failures
        with pytest.raises(AnswerIncomplete) as caught:
            store.view_message(record.offset_msg_id)
        assert caught.value.answer.failures
        with pytest.raises(AnswerIncomplete):
            store.view_message(made_stores.texts_of(record)[0])
        with pytest.raises(AnswerIncomplete):
            store.query_by_queue_offset(record.topic, record.queue_id, record.queue_offset)
        assert store.query_message(record.topic, "order-12").complete
