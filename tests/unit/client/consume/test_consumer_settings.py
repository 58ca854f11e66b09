"""Settings of consumers are checked when they are made, whichever consumer they are for.

Members of a group share queues as RocketMQ's do: without a gap, and without an overlap.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlens import (
    LitePullConsumer,
    PushConsumer,
    SyncLitePullConsumer,
    SyncPushConsumer,
    limits,
)
from rocketlens.client.connect.route import MessageQueue
from rocketlens.client.consume.consumer_settings import (
    MAX_CONSUME_BATCH,
    ConsumerSettings,
    LitePullSettings,
    MessageSelector,
    PushSettings,
    allocate_averagely,
    allocate_by_circle,
    in_java_order,
    java_text_order,
    matches_tag,
    subscription_of,
)
from rocketlens.errors import BadInput, WrongType
from rocketlens.model.text.java import string_hash
from tests.unit.client.consume import consumer_vectors

CONSUMERS = [PushConsumer, LitePullConsumer, SyncPushConsumer, SyncLitePullConsumer]
PUSH = [PushConsumer, SyncPushConsumer]
WRONG = [
    (CONSUMERS, {"group": ""}, "group"),
    (CONSUMERS, {"group": "a b"}, "group"),
    (CONSUMERS, {"begin": "middle"}, "begin 'middle': expected one of last, first, timestamp"),
    (CONSUMERS, {"pull_batch": 0}, "pull_batch 0: expected 1 to"),
    (CONSUMERS, {"pull_batch": limits.MAX_PULL_BATCH + 1}, "pull_batch"),
    (CONSUMERS, {"instance_name": "a b"}, "instance_name 'a b': use letters"),
    (PUSH, {"concurrency": 0}, "concurrency 0: expected 1 to"),
    (PUSH, {"batch": MAX_CONSUME_BATCH + 1}, "batch"),
]
STRATEGIES = {"averagely": allocate_averagely, "circle": allocate_by_circle}


@pytest.mark.parametrize(
    ("consumer", "wrong", "text"), [(each, *row) for some, *row in WRONG for each in some]
)
def test_a_setting_that_is_out_of_range_is_refused_by_each_consumer(consumer, wrong, text):
    with pytest.raises(BadInput, match=text):
        consumer("127.0.0.1:9876", **{"group": "g"} | wrong)


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize(
    "wrong", [{"group": 5}, {"begin_timestamp_ms": "now"}, {"pull_batch": "9"}]
)
def test_a_setting_of_a_wrong_type_is_refused(consumer, wrong):
    with pytest.raises(WrongType, match=next(iter(wrong))):
        consumer("127.0.0.1:9876", **{"group": "g"} | wrong)


def test_settings_say_how_queues_are_shared():
    assert ConsumerSettings(group="g").strategy is allocate_averagely
    by_circle = PushSettings(group="g", allocate=allocate_by_circle)
    assert by_circle.strategy is allocate_by_circle
    assert LitePullSettings(group="g", broadcasting=True).strategy is None


@pytest.mark.parametrize("version", consumer_vectors.VERSIONS)
def test_each_member_gets_the_queues_that_rocketmqs_own_class_gives_it(version):
    vectors = consumer_vectors.vectors_of(version, "allocate")
    assert len(vectors) == len(list(consumer_vectors.questions()))
    for strategy, named, ids, *answers in vectors:
        queues = in_java_order(consumer_vectors.queues_in(named))
        members = sorted(map(consumer_vectors.unhexed, ids.split(",")), key=java_text_order)
        for member, answer in zip(members, answers, strict=True):
            asked, _, given_queues = answer.partition("=")
            assert consumer_vectors.unhexed(asked) == member
            expected = list(consumer_vectors.queues_in(given_queues))
            assert STRATEGIES[strategy](member, queues, members) == expected


queues_of_topic = st.sets(
    st.builds(MessageQueue, st.just("T"), st.text(max_size=3), st.integers(0, 40)), max_size=60
).map(in_java_order)
members_of_group = st.sets(st.text(max_size=4), min_size=1, max_size=20).map(
    lambda ids: sorted(ids, key=java_text_order)
)


@pytest.mark.parametrize("strategy", STRATEGIES.values())
@given(queues=queues_of_topic, members=members_of_group)
def test_all_members_together_have_each_queue_exactly_once(strategy, queues, members):
    owned = [queue for each in members for queue in strategy(each, queues, members)]
    assert sorted(owned) == sorted(queues)


@given(queues=queues_of_topic, members=members_of_group)
def test_no_member_has_more_than_one_queue_more_than_another(queues, members):
    for strategy in STRATEGIES.values():
        counts = [len(strategy(each, queues, members)) for each in members]
        assert max(counts) - min(counts) <= 1


def test_a_client_that_is_no_member_has_no_queues():
    for strategy in STRATEGIES.values():
        assert strategy("a", [MessageQueue("T", "b", 0)], ["b"]) == []


def test_tags_are_taken_apart_as_java_does():
    found = subscription_of("T", " TagA||  TagB || ||TagA", 7)
    assert found.sub_string == " TagA||  TagB || ||TagA"
    assert found.tags == ("TagA", "TagB")
    assert found.codes == (string_hash("TagA"), string_hash("TagB"))
    assert (found.topic, found.sub_version, found.expression_type) == ("T", 7, "TAG")


@pytest.mark.parametrize("everything", [None, "", "*", MessageSelector.by_tag("*")])
def test_all_messages_are_a_star_without_tags(everything):
    found = subscription_of("T", everything, 1)
    assert (found.sub_string, found.tags, found.codes) == ("*", (), ())
    assert matches_tag(found, None)
    assert matches_tag(found, "A")


@pytest.mark.parametrize("nothing", ["||", " || ", " "])
def test_an_expression_that_names_no_tag_is_refused(nothing):
    with pytest.raises(BadInput, match="names no tag"):
        subscription_of("T", nothing, 1)


def test_tags_are_compared_after_the_broker_compared_hash_codes():
    found = subscription_of("T", "Aa", 1)
    # "BB" has the same hash code in Java.
    assert string_hash("BB") == found.codes[0]
    assert matches_tag(found, "Aa")
    assert not matches_tag(found, "BB")
    assert not matches_tag(found, None)


def test_sql_goes_to_the_broker_as_it_is():
    found = subscription_of("T", MessageSelector.by_sql("a > 3 || b"), 1)
    assert (found.sub_string, found.expression_type) == ("a > 3 || b", "SQL92")
    assert found.tags == found.codes == ()
    assert matches_tag(found, "anything")


def test_sql_that_is_empty_is_refused():
    with pytest.raises(BadInput, match="empty"):
        subscription_of("T", MessageSelector.by_sql(""), 1)


def test_another_type_is_refused():
    with pytest.raises(WrongType):
        subscription_of("T", 3, 1)
