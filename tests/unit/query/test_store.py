"""A store directory that is asked: what it takes a text for, its topics, how far it was read."""

import sys
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
from rocketlens.model.answer import SourceKind, SourceState
from rocketlens.store import fs
from rocketlens.store.read.index.tail import Tail
from tests.support import made_stores
from tests.support.made_stores import Sent, flip, make_store, overwrite, record_of, some_messages
from tests.unit.query.texts import texts_for


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


def test_index_last_update_is_the_store_time_of_the_newest_message(made, store):
    newest = made.records[-1].store_timestamp_ms
    for answer in (store.query_message("Topic0", "order-3"), store.find(topic="Topic0")):
        assert answer.index_last_update_timestamp_ms == newest


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
        lambda store: store.find("k", begin=b"2026-11-20"),
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


def test_an_empty_path_is_named():
    for options in ({"path": ""}, {"broker_conf": ""}):
        with pytest.raises(BadInput, match="the path is empty"):
            rocketlens.open_store(**options)
    with pytest.raises(BadInput, match="which store"):
        rocketlens.open_store()


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


def test_an_unknown_topic_is_refused_and_never_an_empty_answer(made, store):
    record = made.records[20]
    for text in (*texts_for(record).values(), None):
        if text and "/" in text:
            continue
        with pytest.raises(TopicNotFound, match=r"no topic 'topic1'; did you mean Topic1"):
            store.find(text, "topic1")
    answer = store.query_message("Topics", texts_for(record)["key"])
    assert (len(answer), answer.complete) == (0, True)
    assert "names 'Topics'; did you mean Topic" in answer.coverage[-1].note
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
        assert "was not read for deleted topics" in failed.error
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


@pytest.fixture(scope="module")
def twenty_topics(tmp_path_factory):
    """A store of twenty topics with twelve index files."""
    sent = [
        Sent(f"Topic{n % 20}", f"order-{n}", f"0A0102031234567{n:017X}", queue_id=n % 2)
        for n in range(240)
    ]
    made = make_store(tmp_path_factory.mktemp("twenty") / "store", sent, index=(50, 41))
    assert len(made.index_paths()) == 12
    return made


@pytest.mark.parametrize(
    ("name", "arguments", "most"),
    [
        ("view_message", ["OFFSET MESSAGE ID"], (16, 49, 54)),
        ("query_by_queue_offset", ["Topic17", 1, 0], (19, 53, 69)),
        ("query_message", ["Topic17", "order-17"], (24, 118, 149)),
        ("query_message", [None, "order-17"], (25, 125, 164)),
        ("view_message", ["Topic17", f"0A0102031234567{17:017X}"], (25, 127, 159)),
        ("find", ["order-17", "Topic17"], (30, 151, 188)),
    ],
)
def test_a_warm_look_up_makes_few_calls(twenty_topics, monkeypatch, name, arguments, most):
    # Files that were just written count as changed.
    monkeypatch.setattr(fs, "_STAMP_STEP_NS", 0)
    monkeypatch.setattr(fs, "_COARSE_STAMP_STEP_NS", 0)
    if arguments == ["OFFSET MESSAGE ID"]:
        arguments = [twenty_topics.records[17].offset_msg_id]
    called = []

    def note(frame, event, _argument):
        if event == "call" and frame.f_globals.get("__name__", "").startswith("rocketlens."):
            called.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    with rocketlens.open_store(twenty_topics.path) as store:
        look_up = getattr(store, name)
        warm = [look_up(*arguments) for _ in range(2)]
        sys.setprofile(note)
        try:
            found = look_up(*arguments)
        finally:
            sys.setprofile(None)
    assert found == warm[0]
    counts = len({path for path, _ in called}), len(set(called)), len(called)
    assert all(map(int.__le__, counts, most)), counts
