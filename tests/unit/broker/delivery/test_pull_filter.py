"""Which messages a pull gets."""

import pytest

from rocketlens.broker.delivery import pull_filter
from rocketlens.broker.delivery.pull_filter import ALL_MESSAGES, PullFilter, PullRefused
from rocketlens.formats import commitlog_record
from rocketlens.formats.consumequeue_entry import QueueEntry
from rocketlens.model.text.java import string_hash
from tests.support.broker_world import properties_of


def parse_filter(kind, expression, *, with_sql92=True):
    return pull_filter.parse_filter(kind, expression, with_sql92=with_sql92)


def entry(tag):
    return QueueEntry(0, 100, string_hash(tag))


@pytest.mark.parametrize("expression", [None, "", "*", " * "])
def test_everything_passes_without_tags(expression):
    assert parse_filter("TAG", expression) is ALL_MESSAGES
    assert ALL_MESSAGES.passes_entry(entry("any"))


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_tags_pass_by_their_hash_codes(kind):
    parsed = parse_filter(kind, " A ||B|| ")
    assert [parsed.passes_entry(entry(tag)) for tag in ("A", "B", "C", "")] == [
        True,
        True,
        False,
        False,
    ]
    # These two have one hash code.
    assert parse_filter(kind, "Aa").passes_entry(entry("BB"))


def test_a_tags_code_that_is_no_hash_code_is_cut_to_32_bits():
    assert PullFilter(frozenset({-1})).passes_entry(QueueEntry(0, 100, 2**32 - 1))


def test_equal_subscriptions_are_equal_filters():
    assert parse_filter("TAG", "A || B") == parse_filter(None, "B||A")
    assert hash(parse_filter("TAG", "A || B")) == hash(parse_filter(None, "B||A"))


@pytest.mark.parametrize(
    ("kind", "expression", "code"),
    [
        ("TAG", " || ", 23),
        ("TAG", "A" * 32_768, 23),
        ("OTHER", "A", 1),
        ("SQL92", "", 23),
        ("SQL92", None, 23),
        ("SQL92", "a >", 23),
    ],
)
def test_what_cannot_be_used_is_refused(kind, expression, code):
    with pytest.raises(PullRefused) as refused:
        parse_filter(kind, expression)
    assert refused.value.code == code


def test_an_expression_passes_by_properties(make_record):
    def record(**properties):
        raw = properties_of(**properties).encode()
        return memoryview(commitlog_record.encode(make_record(0, properties=raw)))

    parsed = parse_filter("SQL92", "a > 5 AND TAGS = 'x'")
    assert parsed.passes_entry(entry("any"))
    assert not parsed.is_all
    assert parsed == parse_filter("SQL92", "a > 5 AND TAGS = 'x'")
    for properties, passes in (
        ({"a": "6", "TAGS": "x"}, True),
        ({"a": "5", "TAGS": "x"}, False),
        ({"a": "six", "TAGS": "x"}, False),
        ({}, False),
    ):
        assert parsed.passes_record(record(**properties)) is passes
    assert ALL_MESSAGES.passes_record(record())


def test_a_long_expression_is_evaluated_for_fewer_messages_at_once():
    short, long = parse_filter("SQL92", "a = 5"), parse_filter("SQL92", "a = 5 OR " * 900 + "a = 6")
    assert pull_filter.ENTRIES_PER_PULL > short.entries_at_once > long.entries_at_once >= 16


def test_expressions_are_refused_where_they_are_not_allowed():
    with pytest.raises(PullRefused) as refused:
        parse_filter("SQL92", "a = 5", with_sql92=False)
    words = "The broker does not support consumer to filter message by SQL92"
    assert (refused.value.code, refused.value.remark) == (1, words)
