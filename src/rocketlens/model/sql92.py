"""RocketMQ's SQL92 dialect, a filter over message properties.

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

Keywords are case-insensitive, property names are not. ``--`` to the end of a line, and ``/* */``,
are comments. Text after a complete expression is ignored, unless it starts with an operator.

A property is a string, or null if the message lacks it. Logic has three values. Types are Java's,
so:

* a property that is compared with an integer must be an integer of the same size, 32 or 64 bits,
  and a property that is compared with a real number must be a number; otherwise the evaluation
  fails, and the message does not match, even if a later OR would be true;
* two properties are equal as texts, or if both are missing; for ``<`` and the like, both must be
  numbers;
* a real number is greater than 0: ``0.0`` is invalid;
* a property alone is not a condition: it is never TRUE.

Sources: ``SelectorParser.jj``, ``ComparisonExpression``, ``UnaryExpression``, ``LogicExpression``.
CONTAINS, STARTSWITH and ENDSWITH are of 5.x.

A subclass of `Parser` can extend the language: tokens, names, and facts about fields.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from rocketlens import limits
from rocketlens.errors import BadInput
from rocketlens.model.text.sentences import Sentence

Value = str | int | float | bool | None
"""A Java value: ``int`` is Java's Integer, and `Long` its Long."""


class EvaluationFailed(BadInput):
    """Values cannot be compared; the message does not match."""


class Long(int):
    """Java's Long."""


def compare(left: Value, right: Value) -> int:
    """Return a negative number, 0 or a positive number, like Java's compareTo.

    :raises EvaluationFailed: if a text cannot be converted to the type of the other value.
    """
    if type(left) is not type(right):
        if type(left) is bool:
            if type(right) is str:
                raise EvaluationFailed("a condition and a text cannot be compared in this order")
            return -1
        if type(left) is str:
            left = _CONVERSIONS[type(right)](left)
        elif type(right) is bool:
            return -1
        elif type(right) is str:
            right = _CONVERSIONS[type(left)](right)
        elif type(left) is float or type(right) is float:
            left, right = float(left or 0), float(right or 0)
    if type(left) is float and type(right) is float:
        return _compare_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _compare_doubles(left: float, right: float) -> int:
    """Compare like Java's Double: NaN equals itself and is greater than all other numbers."""
    if left != left or right != right:  # noqa: PLR0124 - NaN
        return (left != left) - (right != right)  # noqa: PLR0124
    if left == right == 0:
        # 0.0 is greater than -0.0.
        return (str(left) == "0.0") - (str(right) == "0.0")
    return (left > right) - (left < right)


_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL_REAL: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
_HEXADECIMAL_REAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED_REAL: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


def _integer(text: str, largest: int) -> int:
    """Parse like Integer.valueOf and Long.valueOf: decimal digits of one UTF-16 unit each."""
    if _INTEGER.fullmatch(text) and max(text) <= "\uffff":
        digits = text.lstrip("+-").lstrip("0")[:40]
        number = int(digits or "0")
        number = -number if text[0] == "-" else number
        if -largest - 1 <= number <= largest:
            return number
    raise EvaluationFailed(f"{text[:60]!r} is not an integer of this size")


def double(text: str) -> float:
    """Parse like Double.valueOf."""
    stripped = text.strip(_JAVA_BLANKS)
    match = _DECIMAL_REAL.fullmatch(stripped)
    if match:
        return float(match[1])
    match = _HEXADECIMAL_REAL.fullmatch(stripped)
    if match:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if stripped[0] == "-" else "inf")
    if _NAMED_REAL.fullmatch(stripped):
        return float(stripped)
    raise EvaluationFailed(f"{text[:60]!r} is not a number")


_CONVERSIONS: Final[dict[type, Callable[[str], Value]]] = {
    bool: lambda text: text.lower() == "true",
    int: lambda text: _integer(text, limits.MAX_INT),
    Long: lambda text: Long(_integer(text, limits.MAX_LONG)),
    float: double,
}


MAX_SQL92_DEPTH: Final = 50
"""Levels of nesting of a SQL92 expression. RocketMQ: limited by the thread's stack."""
Evaluator = Callable[[Any], Value]
"""Evaluates an expression for a subject: the properties of a message, or the whole message."""


class InvalidSql92(BadInput):
    """An expression is malformed; the text says where and why."""


# Tokens.

_TEXT_KEYWORDS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *_TEXT_KEYWORDS)
)
TOKENS: Final = r"""
    (?P<blank> [ \t\n\r\f] | --[^\n\r]*(?:\r\n|\n|\r) | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/ )
  | (?P<real> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
            | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*[lL]? )
  | (?P<string> '(?:''|[^'])*' )
  | (?P<name> [a-zA-Z_$][a-zA-Z0-9_$]* )
  | (?P<sign> <> | >= | <= | [=><(),+-] )
"""
"""A verbose pattern; group names are token kinds."""


class Token(NamedTuple):
    """A word or sign of an expression."""

    kind: str
    """A keyword, a sign, "real", "integer", "string", "name" or "end"."""
    text: str
    position: int


class Implied(NamedTuple):
    """A fact about a field that holds if a condition is TRUE.

    The field is one of some texts, in a range (ends included, None for no bound), or matches a
    pattern. Values of other types are converted first.
    """

    field: str
    texts: frozenset[str] | None = None
    low: int | float | None = None
    high: int | float | None = None
    pattern: Any = None


class Operand(NamedTuple):
    """A parsed part of an expression."""

    evaluate: Evaluator
    kind: str
    """"condition", "property", "constant" (including TRUE and FALSE) or "other"."""
    value: Value = None
    """The value of a constant."""
    is_condition: bool = False
    height: int = 1
    """The depth of nested calls in an evaluation."""
    is_many: bool = False
    """Whether it evaluates to a tuple of values, any of which can match."""
    reads_body: bool = False
    field: str = ""
    """The name of a field, if facts about it can be derived."""
    implied: tuple[Implied, ...] = ()
    conjuncts: "tuple[Operand, ...]" = ()
    """The conditions that AND joins."""


def constant(value: Value) -> Operand:
    is_condition = value is None or type(value) is bool
    return Operand(lambda _: value, "constant", value, is_condition)


class Parser:
    """Parses with one token of lookahead, and two after NOT, like RocketMQ's parser."""

    pattern: ClassVar = re.compile(TOKENS, re.VERBOSE)
    language: ClassVar = Sentence("language_sql92")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._ahead: list[Token] = []
        self._depth = 0
        self.node_count = 0
        self.names: Final[Counter[str]] = Counter()
        """The number of times that each name occurs."""

    def disjunction(self) -> Operand:
        """Read an expression; the text after it is not consumed."""
        first = self._conjunction()
        if self._peek().kind != "OR":
            return first
        parts = self._chained(first, "OR", self._conjunction)
        return self._condition(_or([part.evaluate for part in parts]), *parts)

    def _conjunction(self) -> Operand:
        first = self._equality()
        if self._peek().kind != "AND":
            return first
        parts = self._chained(first, "AND", self._equality)
        return self._condition(_and([part.evaluate for part in parts]), *parts)._replace(
            implied=tuple(each for part in parts for each in part.implied), conjuncts=tuple(parts)
        )

    def _chained(self, first: Operand, keyword: str, parse: Callable[[], Operand]) -> list[Operand]:
        parts = [first]
        while self._peek().kind == keyword:
            self._next()
            self.as_condition(parts[-1])
            parts.append(parse())
        return [self.as_condition(part) for part in parts]

    def as_condition(self, operand: Operand) -> Operand:
        """Return an operand whose value is TRUE, FALSE or unknown."""
        if operand.is_condition:
            return operand
        if operand.kind == "property":
            read = operand.evaluate
            return self._condition(
                lambda properties: None if read(properties) is None else False, operand
            )
        raise self.invalid(Sentence("condition_expected"))

    def adapt(self, left: Operand, right: Operand) -> tuple[Operand, Operand]:
        """Return the operands of a comparison, adapted to each other."""
        return left, right

    def implied_by(self, kind: str, left: Operand, right: Operand) -> tuple[Implied, ...]:
        """Return the facts that a comparison implies."""
        del kind, left, right
        return ()

    def implied_texts(self, left: Operand, texts: Collection[Value]) -> tuple[Implied, ...]:
        """Return the fact that an operand is one of some texts."""
        del left, texts
        return ()

    def combine(self, make: Callable[..., Evaluator], *operands: Operand) -> Evaluator:
        """Combine the evaluators of operands with ``make``."""
        return make(*(each.evaluate for each in operands))

    def _equality(self) -> Operand:
        left = self._comparison()
        while (kind := self._peek().kind) in ("=", "<>", "IS"):
            self._next()
            if kind == "IS":
                is_not = self._peek().kind == "NOT"
                if is_not:
                    self._next()
                self._expect("NULL")
                left = self._condition(self.is_null(left), left)
            else:
                is_not = kind == "<>"
                left, right = self.adapt(left, self._comparison())
                self._check_equal(left, right)
                implied = self.implied_by("=", left, right)
                evaluate = self.combine(_equal, left, right)
                left = self._condition(evaluate, left, right)._replace(implied=implied)
            if is_not:
                left = self._condition(negation(left.evaluate), left)
        return left

    def is_null(self, operand: Operand) -> Evaluator:
        return lambda properties: operand.evaluate(properties) is None

    def _check_equal(self, left: Operand, right: Operand) -> None:
        if any(each.kind == "constant" and each.value is None for each in (left, right)):
            raise self.invalid(Sentence("null_not_compared"))
        are_constants = left.kind == right.kind == "constant"
        if are_constants and left.is_condition and not right.is_condition:
            raise self.invalid(Sentence("cannot_be_compared"))

    def _comparison(self) -> Operand:
        left = self._unary()
        while True:
            kind = self._peek().kind
            if kind in _ORDERS:
                self._next()
                left = self.ordered(kind, *self.adapt(left, self._unary()))
            elif kind in ("BETWEEN", "IN", *_TEXT_KEYWORDS):
                left = self._predicate(left, is_not=False)
            elif kind == "NOT":
                self._next()
                left = self._predicate(left, is_not=True)
            elif (more := self.other_comparison(kind, left)) is not None:
                left = more
            else:
                return left

    def other_comparison(self, kind: str, left: Operand) -> Operand | None:
        """Read a comparison that only a subclass has; None if this token starts none."""
        del kind, left
        return None

    def _predicate(self, left: Operand, *, is_not: bool) -> Operand:
        token = self._next()
        if token.kind == "BETWEEN":
            low = self._unary()
            self._expect("AND")
            return self._between(left, low, self._unary(), is_not=is_not)
        if token.kind == "IN":
            return self.in_list(left, is_not=is_not)
        test = _TEXT_TESTS.get(token.kind)
        if test is None:
            raise self.invalid(Sentence("comparison_expected"), token)
        return self.text_test(left, test, self.string(), is_not=is_not)

    def in_list(self, left: Operand, *, is_not: bool) -> Operand:
        self._expect("(")
        texts = {self.string()}
        while self._peek().kind == ",":
            self._next()
            texts.add(self.string())
        self._expect(")")
        if left.kind != "property":
            raise self.invalid(Sentence("in_of_properties"))
        condition = self._condition(_in(left.evaluate, texts, is_not=is_not), left)
        return condition if is_not else condition._replace(implied=self.implied_texts(left, texts))

    def text_test(
        self, left: Operand, test: Callable[[str, str], bool], search: str, *, is_not: bool
    ) -> Operand:
        """Return the condition that a text contains, starts with or ends with ``search``."""
        return self._condition(_text_test(left.evaluate, test, search, is_not=is_not), left)

    def ordered(self, kind: str, left: Operand, right: Operand) -> Operand:
        for each in (left, right):
            is_number = type(each.value) in (int, Long, float)
            if each.is_condition or (each.kind == "constant" and not is_number):
                raise self.invalid(Sentence("order_of_numbers", sign=kind))
        evaluate = self.combine(
            lambda read, read_other: _in_order(read, read_other, _ORDERS[kind]), left, right
        )
        implied = self.implied_by(kind, left, right)
        return self._condition(evaluate, left, right)._replace(implied=implied)

    def _between(self, left: Operand, low: Operand, high: Operand, *, is_not: bool) -> Operand:
        left, low = self.adapt(left, low)
        left, high = self.adapt(left, high)
        if is_not:
            less, more = self.ordered("<", left, low), self.ordered(">", left, high)
            return self._condition(_or([less.evaluate, more.evaluate]), less, more)
        from_low, to_high = self.ordered(">=", left, low), self.ordered("<=", left, high)
        if low.kind == high.kind == "constant" and compare(high.value, low.value) < 0:
            raise self.invalid(Sentence("between_reversed"))
        both = self._condition(_and([from_low.evaluate, to_high.evaluate]), from_low, to_high)
        # If the first comparison is FALSE, the second is not evaluated and cannot fail.
        is_implied = from_low.implied and to_high.implied
        implied = (*from_low.implied, *to_high.implied) if is_implied else ()
        return both._replace(implied=implied)

    def _unary(self) -> Operand:
        self._depth += 1
        self._check_depth(self._depth)
        token = self._next()
        if token.kind == "+":
            operand = self._unary()
        elif token.kind == "-":
            operand = self.negate(self._unary())
            self._check_depth(operand.height)
        elif token.kind == "NOT":
            right = self.as_condition(self._unary())
            operand = self._condition(negation(right.evaluate), right)
        elif token.kind == "(":
            operand = self.disjunction()
            self._expect(")")
        else:
            operand = self.primary(token)
        self._depth -= 1
        self.node_count += 1
        return operand

    def negate(self, operand: Operand) -> Operand:
        read = operand.evaluate

        def evaluate(properties: Any) -> Value:
            value = read(properties)
            if type(value) is int or type(value) is float:
                return -value
            return Long(-value) if type(value) is Long else None

        return Operand(evaluate, "other", height=1 + operand.height)

    def _condition(self, evaluate: Evaluator, *parts: Operand) -> Operand:
        height = 1 + max(part.height for part in parts)
        self._check_depth(height)
        self.node_count += 1
        reads_body = any(part.reads_body for part in parts)
        return Operand(
            evaluate, "condition", None, is_condition=True, height=height, reads_body=reads_body
        )

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_SQL92_DEPTH:
            raise self.invalid(Sentence("nested_too_deep", limit=MAX_SQL92_DEPTH))

    def primary(self, token: Token) -> Operand:
        if token.kind == "name":
            name = token.text
            return Operand(lambda properties: properties.get(name), "property")
        if token.kind == "string":
            return constant(unquoted(token.text))
        if token.kind == "integer":
            number = int(token.text.rstrip("lL")[:30])
            if number > limits.MAX_LONG:
                raise self.invalid(Sentence("number_too_large"), token)
            return constant(number if number <= limits.MAX_INT else Long(number))
        if token.kind == "real":
            real = float(token.text)
            if not 0 < real < float("inf"):
                raise self.invalid(Sentence("real_out_of_range"), token)
            return constant(real)
        if token.kind in _NAMED_CONSTANTS:
            return constant(_NAMED_CONSTANTS[token.kind])
        raise self.invalid(Sentence("value_expected"), token)

    def string(self) -> str:
        return unquoted(self._expect("string").text)

    def _expect(self, kind: str) -> Token:
        token = self._next()
        if token.kind != kind:
            if kind == "string":
                raise self.invalid(Sentence("string_expected"), token)
            raise self.invalid(Sentence("word_expected", word=kind), token)
        return token

    def _peek(self) -> Token:
        if not self._ahead:
            self._ahead.append(self._read())
        return self._ahead[0]

    def _next(self) -> Token:
        token = self._peek()
        self._ahead.clear()
        if token.kind == "name":
            self.names[token.text] += 1
        return token

    def _read(self) -> Token:
        while True:
            position = self._position
            if position == len(self._text):
                return Token("end", "", position)
            match = self.pattern.match(self._text, position)
            if match is None:
                token = Token("", self._text[position], position)
                raise self.invalid(Sentence("unknown_character"), token)
            self._position = match.end()
            kind, text = match.lastgroup or "", match.group()
            if kind == "blank":
                continue
            if kind == "sign":
                kind = text
            elif kind == "name" and text.upper() in _KEYWORDS and text.isascii():
                kind = text.upper()
            return Token(kind, text, position)

    def invalid(self, reason: Sentence, token: Token | None = None) -> InvalidSql92:
        """Return the error for a token, or for the current position."""
        return InvalidSql92(self._wrong(reason, token))

    def _wrong(self, reason: Sentence, token: Token | None) -> Sentence:
        position = self._position if token is None else token.position
        values = {"language": self.language, "number": position + 1, "reason": reason}
        if token is None or not token.text:
            return Sentence("wrong_at", **values)
        return Sentence("wrong_at_found", found=repr(token.text[:30]), **values)


def unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


# Evaluation.

_NAMED_CONSTANTS: Final[dict[str, bool | None]] = {"TRUE": True, "FALSE": False, "NULL": None}
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _or(parts: list[Evaluator]) -> Evaluator:
    def evaluate(properties: Any) -> Value:
        is_unknown = False
        for part in parts:
            value = part(properties)
            if value:
                return True
            is_unknown |= value is None
        return None if is_unknown else False

    return evaluate


def _and(parts: list[Evaluator]) -> Evaluator:
    def evaluate(properties: Any) -> Value:
        is_unknown = False
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            is_unknown |= value is None
        return None if is_unknown else True

    return evaluate


def negation(part: Evaluator) -> Evaluator:
    """Return an evaluator of NOT: unknown stays unknown."""

    def evaluate(properties: Any) -> Value:
        value = part(properties)
        return None if value is None else not value

    return evaluate


def _equal(left: Evaluator, right: Evaluator) -> Evaluator:
    def evaluate(properties: Any) -> Value:
        lvalue, rvalue = left(properties), right(properties)
        if lvalue is None:
            return True if rvalue is None else None
        return rvalue is not None and compare(lvalue, rvalue) == 0

    return evaluate


def _in_order(left: Evaluator, right: Evaluator, is_so: Callable[[int], bool]) -> Evaluator:
    def evaluate(properties: Any) -> Value:
        lvalue = left(properties)
        if lvalue is None:
            return None
        rvalue = right(properties)
        if rvalue is None:
            return None
        if type(lvalue) is str and type(rvalue) is str:
            return is_so(compare(double(lvalue), double(rvalue)))
        return is_so(compare(lvalue, rvalue))

    return evaluate


def _in(read: Evaluator, texts: set[str], *, is_not: bool) -> Evaluator:
    def evaluate(properties: Any) -> Value:
        value = read(properties)
        return None if value is None else (value in texts) is not is_not

    return evaluate


def _text_test(
    part: Evaluator, test: Callable[[str, str], bool], search: str, *, is_not: bool
) -> Evaluator:
    def evaluate(properties: Any) -> Value:
        value = part(properties)
        # For values that are not texts, both the test and its negation are FALSE.
        return bool(search) and type(value) is str and test(value, search) is not is_not

    return evaluate


class Sql92:
    """A parsed expression. Expressions of the same text are equal."""

    __slots__ = ("_evaluate", "node_count", "text")

    def __init__(self, text: str, evaluate: Evaluator, node_count: int) -> None:
        self.text: Final = text
        self.node_count: Final = node_count
        """The number of operators and operands: the cost of an evaluation."""
        self._evaluate: Final = evaluate

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Evaluate the expression; None if the result is unknown.

        :raises EvaluationFailed: if values cannot be compared.
        """
        value = self._evaluate(properties)
        assert value is None or type(value) is bool  # noqa: S101 - the parser made sure
        return value

    def passes(self, properties: Mapping[str, str]) -> bool:
        """Return whether a broker delivers a message with these properties."""
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

    :raises InvalidSql92: if it is malformed, longer than MAX_SUBSCRIPTION_CHARACTERS, or nested
        deeper than MAX_SQL92_DEPTH.
    """
    if len(text) > limits.MAX_SUBSCRIPTION_CHARACTERS:
        raise InvalidSql92(
            f"the expression has {len(text)} characters, "
            f"{limits.MAX_SUBSCRIPTION_CHARACTERS} are allowed"
        )
    parser = Parser(text)
    operand = parser.as_condition(parser.disjunction())
    return Sql92(text, operand.evaluate, parser.node_count)
