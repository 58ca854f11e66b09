"""What ``find`` and its kin take a text for, and how they answer."""

from datetime import UTC, datetime

import pytest

import rocketlens
from rocketlens import limits
from rocketlens.errors import (
    AnswerIncomplete,
    BadInput,
    MessageNotFound,
    TopicNotFound,
    WrongType,
    WrongUse,
)
from tests.crash import made_stores
from tests.crash.made_stores import Sent, flip, make_store, some_messages


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("find") / "store", some_messages(60))


@pytest.fixture
def store(made):
    with rocketlens.open_store(made.path) as opened:
        yield opened


def texts_for(record):
    """A text of each kind that names this record alone."""
    unique_key, key = made_stores.texts_of(record)[:2]
    return {
        "key": key,
        "unique-key": unique_key,
        "offset-id": record.offset_msg_id,
        "queue-offset": f"{record.topic}/{record.queue_id}/{record.queue_offset}",
    }


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


def test_a_topic_and_times_narrow_every_kind(made, store):
    record = made.records[20]
    at = record.store_timestamp_ms
    for kind, text in texts_for(record).items():
        assert len(store.find(text, kind=kind, begin=at, end=at)) == 1
        assert len(store.find(text, kind=kind, begin=at + 1)) == 0
        assert len(store.find(text, kind=kind, end=at - 1)) == 0
        if kind != "queue-offset":
            other = next(r.topic for r in made.records if r.topic != record.topic)
            assert len(store.find(text, other, kind=kind)) == 0


def test_topic_and_times_alone_give_the_newest(made, store):
    found = store.find(topic="Topic1", max_num=3)
    expected = [r.physical_offset for r in made.records if r.topic == "Topic1"]
    assert [m.physical_offset for m in found] == expected[-3:]
    assert found.truncated
    assert not store.find(topic="Topic1", max_num=20).truncated


def test_an_id_is_an_offset_message_id_first_and_a_unique_key_then(tmp_path):
    """A producer may choose any text as unique key, that of another message's id, too."""
    first, _ = made_stores.record_of(Sent(), 0, 0)
    made = make_store(tmp_path / "store", [Sent(), Sent(unique_key=first.offset_msg_id)])
    with rocketlens.open_store(made.path) as store:
        assert store.view_message(first.offset_msg_id).physical_offset == 0
        assert len(store.find(first.offset_msg_id, kind="unique-key")) == 1


def test_of_several_messages_with_one_unique_key_the_oldest_is_viewed(tmp_path):
    sent = [Sent(unique_key="U" * 32, body=b"%d" % n) for n in range(3)]
    made = make_store(tmp_path / "store", sent)
    with rocketlens.open_store(made.path) as store:
        assert store.view_message("U" * 32).body == b"0"
        assert len(store.find("U" * 32)) == 3


def test_a_negative_number_is_refused(store):
    for wrong in (
        lambda: store.query_message("Topic0", "k", -1),
        lambda: store.query_by_queue_offset("Topic0", -1, 0),
        lambda: store.query_by_queue_offset("Topic0", 0, -1),
        lambda: store.query_by_queue_offset("../../etc", 0, 0),
        lambda: store.query_message("Topic0", ""),
    ):
        with pytest.raises(BadInput):
            wrong()


def test_numbers_beyond_any_field_are_not_found(store):
    places = (10**9, 0), (0, 10**18), (2**31, 2**63), (9_999_999_999, 10**19)
    for queue_id, queue_offset in places:
        with pytest.raises(MessageNotFound):
            store.query_by_queue_offset("Topic0", queue_id, queue_offset)


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


def test_an_answer_ends_at_its_bytes_and_says_so(tmp_path, monkeypatch):
    sent = [Sent(keys="k", body=b"x" * 1000) for _ in range(10)]
    made = make_store(tmp_path / "store", sent)
    monkeypatch.setattr(
        limits, "MAX_ANSWER_BYTES", 3 * (1000 + limits.MESSAGE_OVERHEAD_BYTES) + 1500
    )
    with rocketlens.open_store(made.path) as store:
        for answer in (store.find("k"), store.find(topic="Orders")):
            assert [m.physical_offset for m in answer] == [
                r.physical_offset for r in made.records[-3:]
            ]
            assert answer.truncated


def test_index_last_update_is_the_store_time_of_the_newest_message(made, store):
    newest = made.records[-1].store_timestamp_ms
    for answer in (store.query_message("Topic0", "order-3"), store.find(topic="Topic0")):
        assert answer.index_last_update_timestamp_ms == newest


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


def test_times_can_be_datetimes(made, store):
    at = made.records[20].store_timestamp_ms
    moment = datetime.fromtimestamp(at / 1000, UTC)
    same = store.find(begin=moment, end=moment)
    assert [m.physical_offset for m in same] == [
        r.physical_offset for r in made.records if r.store_timestamp_ms == at
    ]


@pytest.mark.parametrize(
    "question",
    [
        lambda store: store.find(42),
        lambda store: store.find("k", 42),
        lambda store: store.find("k", begin="2026-11-20"),
        lambda store: store.find("k", end=1_790_000_000.0),
        lambda store: store.find("k", max_num="5"),
        lambda store: store.query_message("Topic1", 42),
        lambda store: store.query_by_queue_offset("Topic1", "0", 1),
        lambda store: store.view_message(42),
        lambda store: store.scan(tag=5),
    ],
)
def test_an_argument_of_a_wrong_type_is_a_type_error_that_names_it(store, question):
    names = "text|topic|begin|end|max_num|key|queue_id|msg_id|tag"
    with pytest.raises(WrongType, match=rf"({names}) must be"):
        question(store)


def test_a_negative_number_of_messages_is_refused(store):
    with pytest.raises(BadInput, match="max_num is -1"):
        store.find(topic="Topic1", max_num=-1)


def test_a_closed_store_says_so(made):
    store = rocketlens.open_store(made.path)
    begun = iter(store.scan())
    next(begun)
    store.close()
    store.close()
    with pytest.raises(WrongUse, match="this store is closed"):
        list(begun)
    for question in (lambda: store.find("k"), store.scan, lambda: store.view_message("k")):
        with pytest.raises(WrongUse, match="this store is closed"):
            question()
