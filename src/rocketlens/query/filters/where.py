"""The filter language of ``--where``: RocketMQ's SQL92 over all parts of a message.

:mod:`rocketlens.model.sql92` describes grammar, logic and types. The language adds:

===============================  ==================================================================
expression                       meaning
===============================  ==================================================================
``topic``                        the topic in which the message is stored
``tags``, ``tag``                its tag, also ``TAGS``
``keys``, ``key``                its keys: a condition holds if it holds for one of them
``unique_key``                   the id that the producer's client assigned
``store_time``, ``time``,        store time and send time in epoch milliseconds; a text is parsed as
``born_time``, ``born``          a time: ``time > '2026-11-20 10:00'``
``state``, ``real_topic``        its state, and the topic that its producer sent to: see
                                 :mod:`rocketlens.model.life`
``cluster``, ``broker``          where it is stored; NULL in a store
``queue_id``, ``queue_offset``,  numbers
``reconsume_times``
``prop.NAME``, ``prop['NAME']``  a property, also if a field has the same name; ``properties``
                                 is the same as ``prop``
any other name                   a property, as in RocketMQ
``body``                         the decoded text of the body
``body.$.a.b[0]['c d']``         a value in the body; ``[-1]`` is the last one; with ``[*]`` or
                                 ``.*`` a condition holds if it holds for one of the values
``=~ 'PATTERN'``, ``!~``         the text matches the pattern, or does not: see
                                 :mod:`rocketlens.query.filters.pattern`
===============================  ==================================================================

Values in a body keep their types: numbers are compared as numbers, TRUE and FALSE are conditions,
objects and arrays are JSON texts. Texts in a body can be compared by ``<`` and the like, in the
order of their characters, and IN accepts numbers. Text after a complete expression is an error.

Bodies are read only for conditions that use ``body``, and only if the other conditions joined by
AND hold.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rocketlens import limits
from rocketlens.decode.tree import Tree, json_ready
from rocketlens.model import properties as props
from rocketlens.model.arguments import check_text
from rocketlens.model.fields import FILTERS, LIFE_COLUMNS, PROPERTY, property_name
from rocketlens.model.life import LifeState
from rocketlens.model.sql92 import (
    TOKENS,
    EvaluationFailed,
    Evaluator,
    Implied,
    InvalidSql92,
    Long,
    Operand,
    Parser,
    Token,
    Value,
    compare,
    constant,
    negation,
    unquoted,
)
from rocketlens.model.text.sentences import Sentence
from rocketlens.model.text.time_words import parse_time
from rocketlens.query.filters.pattern import TextPattern, TextTooLong, plain_pattern

if TYPE_CHECKING:
    from rocketlens.query.filters.content_filter import RecordSubject

MAX_FILTER_VALUES: Final = 10_000
"""Values in one body that one path can select."""
ALL: Final = None
"""A path step that selects every element."""
Step = str | int | None
TOPIC: Final = "topic"
TAG: Final = "tags"
KEY: Final = "keys"
UNIQUE_KEY: Final = "unique_key"
TIME: Final = "store_time"
STATE: Final = "state"
_STATES: Final = frozenset(LifeState)
BODY: Final = "body"


_VALUES: Final = {
    "cluster": "cluster",
    "broker": "broker",
    TIME: "store_timestamp_ms",
    "born_time": "born_timestamp_ms",
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "reconsume_times": "reconsume_times",
}
_TIMES: Final = frozenset({TIME, "born_time"})
_LOOKED_UP: Final = {props.TAGS: TAG, props.UNIQUE_KEY: UNIQUE_KEY}
_PLAIN_STEP: Final = re.compile(r"[\w@$](?:-?[\w@$])*")


class Where:
    """A parsed filter. Filters of the same text are equal."""

    __slots__ = (
        "_evaluators",
        "_mentions",
        "before_body",
        "body_pattern",
        "implied",
        "on_body",
        "reads_body",
        "text",
    )

    def __init__(self, text: str, condition: Operand, mentions: Mapping[str, int]) -> None:
        """``mentions`` has the number of occurrences of each name."""
        self.text: Final = text
        self._mentions: Final = mentions
        self.reads_body: Final = condition.reads_body
        self.implied: Final = condition.implied
        """Facts about each message that matches."""
        parts = [*_conjuncts_of(condition)]
        self.before_body: Final = tuple(part for part in parts if not part.reads_body)
        """The conditions that do not read the body; evaluated first."""
        self.on_body: Final = tuple(part for part in parts if part.reads_body)
        """The other conditions, evaluated in this order until one is not TRUE."""
        self._evaluators: Final = tuple(
            part.evaluate for part in chain(self.before_body, self.on_body)
        )
        of_first = (each for part in self.on_body[:1] for each in part.implied)
        self.body_pattern: Final[TextPattern | None] = next(
            (each.pattern for each in of_first if each.field == BODY), None
        )
        """The pattern in the body that the first of these conditions requires."""

    def passes(self, subject: "RecordSubject") -> bool:
        """Return whether all conditions are TRUE.

        :raises EvaluationFailed: if values cannot be compared.
        :raises BodyUnread: if the result depends on a body that cannot be read.
        """
        return all(evaluate(subject) is True for evaluate in self._evaluators)

    def texts_of(self, field: str) -> frozenset[str] | None:
        """Return the texts that a field can have in matching messages; None for any text."""
        texts = [each.texts for each in self.implied if each.field == field and each.texts]
        return frozenset.intersection(*texts) if texts else None

    def implies_all_texts(self, field: str) -> bool:
        """Return whether `implied` has every comparison of a field with a text."""
        count = sum(each.field == field and bool(each.texts) for each in self.implied)
        return count == self._mentions.get(field, 0)

    def time_range(self) -> tuple[int | None, int | None]:
        """Return the range of store times of matching messages, both included."""
        times = [each for each in self.implied if each.field == TIME]
        lows = [int(each.low) for each in times if each.low is not None]
        highs = [int(each.high) for each in times if each.high is not None]
        return max(lows, default=None), min(highs, default=None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"


def body_path(name: str) -> str:
    """Return the filter expression for a field of the body."""
    is_plain = _PLAIN_STEP.fullmatch(name) is not None
    quoted = name.replace("'", "''")
    return f"body.$.{name}" if is_plain else f"body.$['{quoted}']"


def _conjuncts_of(condition: Operand) -> Iterator[Operand]:
    if condition.conjuncts:
        for part in condition.conjuncts:
            yield from _conjuncts_of(part)
    else:
        yield condition


def parse_where(text: str, *, now_ms: int | None = None) -> Where:
    """Parse a filter. Times such as ``'2h'`` are relative to ``now_ms`` (default: now). O(length).

    :raises WrongType: if it is not a str.
    :raises InvalidSql92: if it is malformed, longer than MAX_SUBSCRIPTION_CHARACTERS, or nested
        deeper than MAX_SQL92_DEPTH.
    :raises BadInput: if a pattern in it is malformed.
    :raises PackageMissing: if a pattern needs google-re2, which is not installed.
    """
    if len(check_text(text, "where")) > limits.MAX_SUBSCRIPTION_CHARACTERS:
        limit = limits.MAX_SUBSCRIPTION_CHARACTERS
        raise InvalidSql92(Sentence("filter_too_long", count=len(text), limit=limit))
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    parser = _WhereParser(text, now_ms)
    return Where(text, parser.whole(), parser.names)


_HINTS: Final = {
    "=": Sentence("hint_equal"),
    "!": Sentence("hint_not_equal"),
    '"': Sentence("hint_quotes"),
    "&": Sentence("hint_and"),
    "|": Sentence("hint_or"),
    ".": Sentence("hint_path"),
    "%": Sentence("hint_arithmetic"),
    "LIKE": Sentence("hint_like"),
}


class _WhereParser(Parser):
    """SQL92 with message fields, paths into the body, and patterns."""

    pattern: ClassVar = re.compile(
        r"""
    (?P<path> body\.\$ (?: \.(?:[\w@$](?:-?[\w@$])*|\*) | \[(?:-?[0-9]{1,9}|\*|'(?:''|[^'])*')\] )*
        (?![\w$.\[]) )
  | (?P<prop> """
        + PROPERTY
        + r"""(?: \.[\w@$](?:[.-]?[\w@$])* | \['(?:''|[^'])*'\] ) )
  | (?P<match> =~ | !~ )
  | """
        + TOKENS,
        re.VERBOSE,
    )
    language: ClassVar = Sentence("language_filter")

    def __init__(self, text: str, now_ms: int) -> None:
        super().__init__(text)
        self._now_ms: Final = now_ms

    def whole(self) -> Operand:
        condition = self.as_condition(self.disjunction())
        token = self._next()
        if token.kind != "end":
            raise self.invalid(Sentence("nothing_can_follow"), token)
        return condition

    def invalid(self, reason: Sentence, token: Token | None = None) -> InvalidSql92:
        """Return the error for a token, with a hint for common mistakes."""
        word = token.text.upper() if token else ""
        wrong, hint = self._wrong(reason, token), _HINTS.get(word, _HINTS.get(word[:1]))
        if hint is not None:
            wrong = Sentence("with_hint", error=wrong, hint=hint)
        return InvalidSql92(wrong)

    def primary(self, token: Token) -> Operand:
        if token.kind == "path":
            return _path(token.text)
        if token.kind == "prop":
            return _property(property_name(token.text) or "")
        if token.kind != "name":
            return super().primary(token)
        return _field(FILTERS.get(token.text, "")) or _property(token.text)

    def as_condition(self, operand: Operand) -> Operand:
        """Return an operand whose value is TRUE, FALSE or unknown; values of a body can be TRUE."""
        if operand.kind != "field":
            return super().as_condition(operand)

        def evaluate(read: Evaluator) -> Evaluator:
            def truth(subject: Any) -> Value:
                value = read(subject)
                return None if value is None else value is True

            return truth

        return self._condition(self.combine(evaluate, operand), operand)

    def adapt(self, left: Operand, right: Operand) -> tuple[Operand, Operand]:
        """Return the operands; a text that is compared with a time is parsed as a time.

        :raises InvalidSql92: if a state is compared with an unknown one.
        """
        return self._adapt_to(left, right), self._adapt_to(right, left)

    def _adapt_to(self, operand: Operand, other: Operand) -> Operand:
        if other.field == STATE and type(operand.value) is str and operand.value not in _STATES:
            # A property of that name was probably meant; nothing would match.
            states = ", ".join(LifeState)
            raise self.invalid(Sentence("not_a_state", text=operand.value[:80], states=states))
        if other.field not in _TIMES or type(operand.value) is not str:
            return operand
        text = operand.value
        return constant(Long(parse_time(text, other.field, is_end=False, now_ms=self._now_ms)))

    def implied_by(self, kind: str, left: Operand, right: Operand) -> tuple[Implied, ...]:
        if right.field:
            left, right, kind = right, left, _MIRRORED[kind]
        if right.kind != "constant" or not left.field:
            return ()
        value = right.value
        if kind == "=" and left.field not in _TIMES and type(value) is str:
            return (Implied(left.field, frozenset((value,))),)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return ()
        low, high = (value if kind in kinds else None for kinds in (_NOT_BELOW, _NOT_ABOVE))
        if left.field == TIME:
            if not isinstance(value, int):
                return ()
            # Exact bounds, because they select files and row groups.
            low = None if low is None else low + (kind == ">")
            high = None if high is None else high - (kind == "<")
        return (Implied(left.field, None, low, high),)

    def combine(self, make: Callable[..., Evaluator], *operands: Operand) -> Evaluator:
        """Combine evaluators; with several values, the condition must hold for one of them."""
        many = [number for number, each in enumerate(operands) if each.is_many]
        if not many:
            return super().combine(make, *operands)
        if len(many) > 1:
            raise self.invalid(Sentence("many_on_both_sides"))
        reads = [each.evaluate for each in operands]
        test = make(*(lambda row, number=number: row[number] for number in range(len(operands))))
        return _any_of(reads, many[0], test)

    def is_null(self, operand: Operand) -> Evaluator:
        """Return an evaluator of IS NULL; several values are NULL if there are none."""
        if not operand.is_many:
            return super().is_null(operand)
        read: Callable[[Any], Any] = operand.evaluate
        return lambda subject: not read(subject)

    def negate(self, operand: Operand) -> Operand:
        if operand.is_many:
            raise self.invalid(Sentence("minus_before_many"))
        return super().negate(operand)._replace(reads_body=operand.reads_body)

    def ordered(self, kind: str, left: Operand, right: Operand) -> Operand:
        """Return an order comparison; texts in a body can be compared with texts."""
        for read, other in ((left, right), (right, left)):
            if read.kind == "field" and type(other.value) is str:
                evaluate = self.combine(
                    lambda one, two: _in_text_order(one, two, kind), left, right
                )
                return self._condition(evaluate, left, right)
        return super().ordered(kind, left, right)

    def in_list(self, left: Operand, *, is_not: bool) -> Operand:
        """Read the list after IN; for fields other than properties it can contain numbers."""
        if left.kind == "property":
            return super().in_list(left, is_not=is_not)
        if left.kind != "field":
            raise self.invalid(Sentence("in_of_properties_and_fields"))
        self._expect("(")
        values = [self._list_item(left)]
        while self._peek().kind == ",":
            self._next()
            values.append(self._list_item(left))
        self._expect(")")
        evaluate = self.combine(lambda read: _in_values(read, values), left)
        condition = self._condition(evaluate, left)
        if is_not:
            return self._condition(negation(evaluate), condition)
        return condition._replace(implied=self.implied_texts(left, values))

    def implied_texts(self, left: Operand, texts: Collection[Value]) -> tuple[Implied, ...]:
        is_known = left.field and left.field not in _TIMES
        if not is_known or any(type(each) is not str for each in texts):
            return ()
        return (Implied(left.field, frozenset(map(str, texts))),)

    def _list_item(self, left: Operand) -> Value:
        token = self._next()
        sign = 1
        if token.kind == "-":
            sign, token = -1, self._next()
        operand = self._adapt_to(self.primary(token), left)
        value = operand.value
        is_number = type(value) in (int, Long, float)
        if operand.kind != "constant" or not (is_number or (type(value) is str and sign > 0)):
            raise self.invalid(Sentence("text_or_number_expected"), token)
        assert value is not None  # noqa: S101 - one of these types
        return value if sign > 0 else -float(value) if type(value) is float else Long(-int(value))

    def text_test(
        self, left: Operand, test: Callable[[str, str], bool], search: str, *, is_not: bool
    ) -> Operand:
        """Return a text condition; with several values, NOT requires that none matches."""
        if not left.is_many:
            condition = super().text_test(left, test, search, is_not=is_not)
            pattern = plain_pattern(search) if left.field == BODY and not is_not else None
            return condition._replace(implied=(Implied(BODY, pattern=pattern),) if pattern else ())
        evaluate = self.combine(
            lambda read: lambda row: type(value := read(row)) is str and test(value, search), left
        )
        condition = self._condition(evaluate, left)
        return self._condition(negation(evaluate), condition) if is_not else condition

    def other_comparison(self, kind: str, left: Operand) -> Operand | None:
        if kind != "match":
            return None
        is_not = self._next().text == "!~"
        if left.is_condition and left.kind != "constant":
            raise self.invalid(Sentence("pattern_of_condition"))
        pattern = TextPattern(self.string())
        evaluate = self.combine(lambda read: _has_pattern(read, pattern), left)
        condition = self._condition(evaluate, left)
        if is_not:
            return self._condition(negation(evaluate), condition)
        is_body = left.field == BODY
        return condition._replace(implied=(Implied(BODY, pattern=pattern),) if is_body else ())


_NOT_BELOW: Final = ("=", ">", ">=")
_NOT_ABOVE: Final = ("=", "<", "<=")
_MIRRORED: Final = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_IN_TEXT_ORDER: Final[dict[str, Callable[[str, str], bool]]] = {
    "<": str.__lt__,
    "<=": str.__le__,
    ">": str.__gt__,
    ">=": str.__ge__,
}


# Operands.


_PROPERTY: Final = "prop."


def _property(name: str) -> Operand:
    field = _LOOKED_UP.get(name) or f"{_PROPERTY}{name}"
    return Operand(lambda subject: subject.get(name), "property", field=field)


def _field(name: str) -> Operand | None:
    if name == TOPIC:
        return Operand(lambda subject: subject.topic, "field", field=name)
    if name == TAG:
        return Operand(lambda subject: subject.get(props.TAGS), "field", field=name)
    if name == UNIQUE_KEY:
        return Operand(lambda subject: subject.get(props.UNIQUE_KEY), "field", field=name)
    if name == KEY:
        keys = _as_evaluator(lambda subject: props.split_keys(subject.get(props.KEYS)))
        return Operand(keys, "field", field=name, is_many=True)
    if name == BODY:
        read = _as_evaluator(lambda subject: subject.body_text())
        return Operand(read, "field", reads_body=True, field=BODY)
    if name in LIFE_COLUMNS:
        number = LIFE_COLUMNS.index(name)
        return Operand(lambda subject: subject.life()[number], "field", field=name)
    if name in _VALUES:
        attribute = _VALUES[name]
        return Operand(lambda subject: value_of_tree(subject.value(attribute)), "field", field=name)
    return None


_STEP: Final = re.compile(r"\.([^.\[]+)|\[(-?\d+|\*)\]|\[('(?:''|[^'])*')\]")


def steps_of(field: str) -> tuple[Step, ...]:
    """Parse the field of an `Implied` as a path in a body; empty if it is not a path."""
    steps: list[Step] = []
    for name, index, quoted in (
        _STEP.findall(field.removeprefix(_PATH)) if field.startswith(_PATH) else ()
    ):
        if quoted:
            steps.append(unquoted(quoted))
        elif _ALL_SIGN in (name, index):
            steps.append(ALL)
        else:
            steps.append(name or int(index))
    return tuple(steps)


def _path(text: str) -> Operand:
    steps = steps_of(text)
    if ALL in steps:
        read = _as_evaluator(lambda subject: values_at(subject.body_tree(), steps, text))
        return Operand(read, "field", is_many=True, reads_body=True)
    return Operand(lambda subject: subject.body_value(steps), "field", reads_body=True, field=text)


_ALL_SIGN: Final = "*"
_PATH: Final = "body.$"


def _as_evaluator(read: Callable[[Any], tuple[Value, ...]]) -> Evaluator:
    """Cast a reader of several values to an evaluator; `_WhereParser.combine` handles these."""
    evaluator: Any = read
    checked: Evaluator = evaluator
    return checked


# Values in a body.


class BodyUnread(Exception):
    """A filter needs a body that cannot be read; the text says why."""


def value_at(tree: Tree, steps: Sequence[Step]) -> Tree:
    """Return the value at a path; None if it does not exist."""
    for step in steps:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step] if -len(tree) <= step < len(tree) else None
        else:
            return None
    return tree


def values_at(tree: Tree, steps: Sequence[Step], path: str) -> tuple[Value, ...]:
    """Return the values at a path with ``*``, without nulls.

    :raises BodyUnread: if there are more than MAX_FILTER_VALUES.
    """
    values = tuple(islice(_each_at(tree, steps), MAX_FILTER_VALUES + 1))
    if len(values) > MAX_FILTER_VALUES:
        raise BodyUnread(f"{path[:80]} selects more than {MAX_FILTER_VALUES} values")
    return tuple(value for each in values if (value := value_of_tree(each)) is not None)


def _each_at(tree: Tree, steps: Sequence[Step]) -> Iterator[Tree]:
    if not steps:
        yield tree
    elif steps[0] is not ALL:
        yield from _each_at(value_at(tree, steps[:1]), steps[1:])
    elif isinstance(tree, dict | list):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _each_at(each, steps[1:])


def value_of_tree(tree: Tree) -> Value:
    """Return a value of a body as an operand of expressions; objects and arrays as JSON."""
    if tree is None or isinstance(tree, bool):
        return tree
    if isinstance(tree, str):
        return tree if type(tree) is str else str(tree)
    if isinstance(tree, int):
        return _number(tree)
    if isinstance(tree, float):
        return float(tree)
    if isinstance(tree, Decimal):
        return float(tree)
    if isinstance(tree, date):
        return tree.isoformat()
    return json.dumps(json_ready(tree), ensure_ascii=False)


def _number(number: int) -> Value:
    """Return an integer as Java's Integer or Long, or if it is larger, the nearest Double."""
    if -limits.MAX_INT - 1 <= number <= limits.MAX_INT:
        return int(number)
    if -limits.MAX_LONG - 1 <= number <= limits.MAX_LONG:
        return Long(number)
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


# Evaluation.


def _any_of(reads: Sequence[Evaluator], many: int, test: Evaluator) -> Evaluator:
    def evaluate(subject: Any) -> Value:
        row: list[Any] = [read(subject) for read in reads]
        result: Value = None
        failed: EvaluationFailed | None = None
        for value in row[many]:
            row[many] = value
            try:
                one = test(row)
            except EvaluationFailed as error:
                failed = error
                continue
            if one is True:
                return True
            if one is False:
                result = False
        if failed is not None:
            raise failed
        return result

    return evaluate


def _in_text_order(read: Evaluator, read_other: Evaluator, kind: str) -> Evaluator:
    is_so = _IN_TEXT_ORDER[kind]

    def evaluate(subject: Any) -> Value:
        value, other = read(subject), read_other(subject)
        if value is None or other is None:
            return None
        if type(value) is not str or type(other) is not str:
            raise EvaluationFailed(f"{_shown(value)} and {_shown(other)} cannot be ordered")
        return is_so(value, other)

    return evaluate


def _in_values(read: Evaluator, values: Sequence[Value]) -> Evaluator:
    def evaluate(subject: Any) -> Value:
        value = read(subject)
        if value is None:
            return None
        is_text = type(value) is str
        return any((type(each) is str) == is_text and compare(value, each) == 0 for each in values)

    return evaluate


def _has_pattern(read: Evaluator, pattern: TextPattern) -> Evaluator:
    def evaluate(subject: Any) -> Value:
        value = read(subject)
        if value is None:
            return None
        try:
            return pattern.is_in(_text(value))
        except TextTooLong as error:
            raise BodyUnread(str(error)) from error

    return evaluate


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _shown(value: Value) -> str:
    return repr(value if type(value) is not str else value[:60])
