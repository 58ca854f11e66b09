"""The grammar of SQL92, alone and as a part of a larger language."""

import re

import pytest

from rocketlens.model.sql.sql92_parser import (
    TOKENS,
    Implied,
    InvalidSql92,
    Operand,
    Parser,
    constant,
    unquoted,
)


class Larger(Parser):
    """SQL92 with words in capitals behind a colon, which are texts that can be looked up."""

    pattern = re.compile(r"(?P<word>:[A-Z]+)|" + TOKENS, re.VERBOSE)
    language = "larger"

    def primary(self, token):
        if token.kind == "word":
            return Operand(lambda subject: subject.get(token.text), "property", field=token.text)
        return super().primary(token)

    def known(self, kind, left, right):
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
