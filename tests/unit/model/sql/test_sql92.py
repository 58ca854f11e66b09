"""SQL92 expressions, against what RocketMQ 5.5.0 made of the same."""

import json
from pathlib import Path

import pytest

from rocketlens import limits
from rocketlens.model.sql.sql92 import EvaluationFailed, InvalidSql92, parse_sql92
from tests.support.sql92_cases import ours

GOLDEN = Path(__file__).parent / "sql92" / "judged-5.5.0.jsonl"
"""Cases of `tests.support.sql92_cases`, and the words of tests/peer/java/Sql92Judge.java."""


def test_every_case_means_what_it_means_to_rocketmq():
    judged = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    assert len(judged) > 1000
    assert [
        (text, properties, word, ours(text, properties))
        for text, properties, word in judged
        if ours(text, properties) != word
    ] == []


def test_a_message_passes_only_if_the_expression_is_true_of_it():
    expression = parse_sql92("a > 5")
    assert expression.passes({"a": "6"})
    assert not expression.passes({"a": "5"})
    assert not expression.passes({})
    assert not expression.passes({"a": "six"})
    assert expression.evaluate({}) is None
    with pytest.raises(EvaluationFailed, match="'six' is no integer of this size"):
        expression.evaluate({"a": "six"})


def test_expressions_of_one_text_are_equal():
    assert parse_sql92("a = 5") == parse_sql92("a = 5") != parse_sql92("a = 6")
    assert len({parse_sql92("a = 5"), parse_sql92("a = 5")}) == 1
    assert repr(parse_sql92("a = 5")) == "Sql92('a = 5')"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 'x", 'SQL92 expression, character 5: a character that no expression has, not "\'"'),
        ("a >", "SQL92 expression, character 4: a value is expected"),
        ("a NOT 5", "SQL92 expression, character 7: a comparison is expected, not '5'"),
        ("5", "SQL92 expression, character 2: a condition is expected"),
        ("a IN (5)", "SQL92 expression, character 7: a string is expected, not '5'"),
        ("a = NULL", "SQL92 expression, character 9: NULL is not compared: use IS NULL"),
    ],
)
def test_an_error_says_where_and_why(text, message):
    with pytest.raises(InvalidSql92) as error:
        parse_sql92(text)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "(" * 60 + "a = 1" + ")" * 60,
        "NOT " * 60 + "a = 1",
        "-" * 60 + "5 = a",
        "a" + " = a" * 60,
        "a" + " IS NULL" * 60,
        "(a = 1) " + "CONTAINS 'x' " * 60,
    ],
)
def test_nesting_is_bounded(text):
    with pytest.raises(InvalidSql92, match="nested deeper than 50 levels"):
        parse_sql92(text)


def test_so_is_length_and_a_long_one_is_parsed_and_evaluated():
    many = " OR ".join(["a = 1"] * 3_000)
    assert parse_sql92(many).evaluate({"a": "2"}) is False
    assert parse_sql92(many.replace("OR", "AND")).evaluate({"a": "1"}) is True
    too_long = " " * limits.MAX_SUBSCRIPTION_CHARACTERS + "a"
    with pytest.raises(InvalidSql92, match="32768 characters, 32767 are allowed"):
        parse_sql92(too_long)


@pytest.mark.parametrize(
    "value", ["1" * 32_767, "1" * 32_766 + "x", "." * 32_767, "1e" + "9" * 9_999]
)
def test_long_values_are_no_burden(value):
    for text in ("a = 5", "a = 5L", "a > 5.5", "a > b"):
        parse_sql92(text).passes({"a": value, "b": value})
