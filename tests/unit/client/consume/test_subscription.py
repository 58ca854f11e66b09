"""Subscriptions are what RocketMQ's FilterAPI makes of the same expression."""

import pytest

from rocketlens.client.consume.consumer_settings import MessageSelector, subscription_of, takes_tag
from rocketlens.errors import BadInput, WrongType
from rocketlens.model.text.java import string_hash


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
    assert takes_tag(found, None)
    assert takes_tag(found, "A")


@pytest.mark.parametrize("nothing", ["||", " || ", " "])
def test_an_expression_that_names_no_tag_is_refused(nothing):
    with pytest.raises(BadInput, match="names no tag"):
        subscription_of("T", nothing, 1)


def test_tags_are_compared_after_the_broker_compared_hash_codes():
    found = subscription_of("T", "Aa", 1)
    # "BB" has the same hash code in Java.
    assert string_hash("BB") == found.codes[0]
    assert takes_tag(found, "Aa")
    assert not takes_tag(found, "BB")
    assert not takes_tag(found, None)


def test_sql_goes_to_the_broker_as_it_is():
    found = subscription_of("T", MessageSelector.by_sql("a > 3 || b"), 1)
    assert (found.sub_string, found.expression_type) == ("a > 3 || b", "SQL92")
    assert found.tags == found.codes == ()
    assert takes_tag(found, "anything")


def test_sql_that_is_empty_is_refused():
    with pytest.raises(BadInput, match="empty"):
        subscription_of("T", MessageSelector.by_sql(""), 1)


def test_another_type_is_refused():
    with pytest.raises(WrongType):
        subscription_of("T", 3, 1)
