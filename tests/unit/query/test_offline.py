"""An open store: what its methods return, and what they refuse."""

from datetime import UTC, datetime

import pytest

import rocketlens
from rocketlens.errors import BadInput, MessageNotFound, WrongType, WrongUse
from tests.support.made_stores import Sent, make_store


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


def test_a_negative_number_of_messages_is_refused_whatever_is_looked_for(made):
    with rocketlens.open_store(made.path) as store:
        for question in ({"topic": "Topic0"}, {"text": "order-7"}, {"text": "Topic0/0/0"}):
            with pytest.raises(BadInput):
                store.find(**question, max_num=-1)


def test_an_empty_path_is_named():
    for options in ({"path": ""}, {"broker_conf": ""}):
        with pytest.raises(BadInput, match="the path is empty"):
            rocketlens.open_store(**options)
    with pytest.raises(BadInput, match="which store"):
        rocketlens.open_store()
