"""RocketMQ's SQL92 dialect: which messages a consumer wants, by their properties.

::

    expression  = and { OR and }
    and         = equality { AND equality }
    equality    = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
    comparison  = unary { (">" | ">=" | "<" | "<=") unary
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN "(" string { "," string } ")"
                        | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string }
    unary       = ("+" | "-" | NOT) unary | string | number | TRUE | FALSE | NULL | property
                | "(" expression ")"

Keywords have no case, names of properties do. ``--`` to the end of a line, and ``/* */``, are
comments. What follows an expression is not looked at, unless it goes on with an operator.

A property is a string, or null where the message lacks it. Logic has three values. Types are
Java's, with what follows from that:

* a property that is compared with an integer must be one, of 32 or 64 bits as the number is, and
  any real number if it is compared with one; otherwise the evaluation fails, and nothing passes,
  not even by an OR behind it;
* two properties are equal as texts, and also if the message has neither; with ``<`` and the like
  both must be numbers;
* a real number is more than 0: ``0.0`` cannot be written;
* a property alone is not a condition: it is never TRUE.

Sources: ``SelectorParser.jj``, ``ComparisonExpression``, ``UnaryExpression``, ``LogicExpression``.
CONTAINS, STARTSWITH and ENDSWITH are of 5.x.
"""

from collections.abc import Mapping
from typing import Final

from rocketlens import limits
from rocketlens.model.sql.sql92_parser import Evaluator, InvalidSql92, Parser
from rocketlens.model.sql.sql92_values import EvaluationFailed

__all__ = ["EvaluationFailed", "InvalidSql92", "Properties", "Sql92", "parse_sql92"]

Properties = Mapping[str, str]


class Sql92:
    """An expression, parsed; equal to others of the same text."""

    __slots__ = ("_evaluate", "node_count", "text")

    def __init__(self, text: str, evaluate: Evaluator, node_count: int) -> None:
        self.text: Final = text
        self.node_count: Final = node_count
        """How many operators and operands it has: what an evaluation costs."""
        self._evaluate: Final = evaluate

    def evaluate(self, properties: Properties) -> bool | None:
        """Return whether properties fulfil it; None if that is unknown.

        :raises EvaluationFailed: when values cannot be compared.
        """
        value = self._evaluate(properties)
        assert value is None or type(value) is bool  # noqa: S101 - the parser made sure
        return value

    def passes(self, properties: Properties) -> bool:
        """Return whether a message with these properties is delivered, as a broker decides."""
        try:
            return self.evaluate(properties) is True
        except EvaluationFailed:
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sql92) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Sql92({self.text!r})"


def parse_sql92(text: str) -> Sql92:
    """Parse an expression. O(length).

    :raises InvalidSql92: when it is not well-formed, longer than MAX_SUBSCRIPTION_CHARACTERS, or
        nested deeper than MAX_SQL92_DEPTH.
    """
    if len(text) > limits.MAX_SUBSCRIPTION_CHARACTERS:
        raise InvalidSql92(
            f"the expression has {len(text)} characters, "
            f"{limits.MAX_SUBSCRIPTION_CHARACTERS} are allowed"
        )
    parser = Parser(text)
    operand = parser.as_condition(parser.disjunction())
    return Sql92(text, operand.evaluate, parser.node_count)
