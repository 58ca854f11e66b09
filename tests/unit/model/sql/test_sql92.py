"""SQL92 expressions, against what RocketMQ 5.5.0 made of the same."""

import json
import re
from pathlib import Path

import pytest

from rocketlens import limits
from rocketlens.model.sql92 import (
    TOKENS,
    EvaluationFailed,
    Implied,
    InvalidSql92,
    Long,
    Operand,
    Parser,
    compare,
    constant,
    double,
    parse_sql92,
    unquoted,
)
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
    with pytest.raises(EvaluationFailed, match="'six' is not an integer of this size"):
        expression.evaluate({"a": "six"})


def test_expressions_of_one_text_are_equal():
    assert parse_sql92("a = 5") == parse_sql92("a = 5") != parse_sql92("a = 6")
    assert len({parse_sql92("a = 5"), parse_sql92("a = 5")}) == 1
    assert repr(parse_sql92("a = 5")) == "Sql92('a = 5')"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a = 'x",
            'SQL92 expression, character 5: an operator, a name or a value is expected, not "\'"',
        ),
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


class Larger(Parser):
    """SQL92 with words in capitals behind a colon, which are texts that can be looked up."""

    pattern = re.compile(r"(?P<word>:[A-Z]+)|" + TOKENS, re.VERBOSE)
    language = "larger"

    def primary(self, token):
        if token.kind == "word":
            return Operand(lambda subject: subject.get(token.text), "property", field=token.text)
        return super().primary(token)

    def implied_by(self, kind, left, right):
        return (Implied(left.field, frozenset((right.value,))),) if kind == "=" else ()


def test_a_larger_language_has_words_of_its_own():
    operand = Larger(":A = 'x' AND b = 'y'").disjunction()
    assert operand.evaluate({":A": "x", "b": "y"}) is True
    assert operand.evaluate({":A": "y", "b": "y"}) is False
    with pytest.raises(InvalidSql92, match="SQL92 expression, character 1"):
        Parser(":A = 'x'").disjunction()
    with pytest.raises(InvalidSql92, match="larger, character 6"):
        Larger(":A = :").disjunction()


def test_what_is_joined_by_and_is_implied_and_by_or_is_not():
    both = Larger(":A = 'x' AND (:B = 'y' AND :C <> 'z')").disjunction()
    assert [each.field for each in both.implied] == [":A", ":B"]
    assert len(both.conjuncts) == 2
    assert Larger(":A = 'x' OR :B = 'y'").disjunction().implied == ()
    assert Larger("NOT (:A = 'x')").disjunction().implied == ()


def test_a_parser_stops_behind_an_expression():
    parser = Parser("a = 5 b = 6")
    assert parser.disjunction().evaluate({"a": "5"}) is True
    assert parser.node_count == 3


def test_quotes_in_a_string_are_doubled():
    assert unquoted("'it''s'") == "it's"
    assert constant(5).kind == "constant"


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("5", 5, 0),
        (5, "6", -1),
        (Long(5), 5, 0),
        (Long(5), 5.5, -1),
        ("5.5", 5.0, 1),
        (float("nan"), float("inf"), 1),
        (float("nan"), float("nan"), 0),
        (-0.0, 0.0, -1),
        (True, 5, -1),
        ("true", True, 0),
        ("a", "b", -1),
    ],
)
def test_values_are_in_javas_order(left, right, order):
    assert compare(left, right) == order


@pytest.mark.parametrize(("left", "right"), [("six", 5), (5, "5.0"), (True, "true"), ("x", 1.5)])
def test_what_has_no_order_is_an_error(left, right):
    with pytest.raises(EvaluationFailed):
        compare(left, right)


def test_a_text_is_a_double_as_java_reads_it():
    assert [double(text) for text in ("5", " 5d\n", "0x1.8p1", ".5", "-Infinity")] == [
        *(5.0, 5.0, 3.0, 0.5),
        float("-inf"),
    ]
    with pytest.raises(EvaluationFailed, match="not a number"):
        double("1_000")
