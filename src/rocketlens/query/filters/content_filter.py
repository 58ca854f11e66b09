"""Filters messages by their content: with an expression (`filters/where`) and a pattern.

Bodies are decoded only if necessary: conditions on properties and fields are checked first.
`rocketlens.query.tally` describes messages that cannot be decided. A body that a rule declares
binary has no text and no values: NULL.
"""

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Struct

from rocketlens.decode.bodies import BINARY, DecodedBody, text_of_body
from rocketlens.decode.rules import BodyRules
from rocketlens.decode.tree import Tree, json_ready
from rocketlens.errors import BadInput, BodyError
from rocketlens.formats.body_compression import decompress
from rocketlens.formats.commitlog_record import NO_ORIGIN, Origin, Record, RecordView
from rocketlens.model import properties as props
from rocketlens.model.fields import ORIGIN_COLUMNS
from rocketlens.model.life import life_of_fields
from rocketlens.model.sql92 import EvaluationFailed, Value
from rocketlens.model.text.java import decode_utf8
from rocketlens.query.filters.pattern import TextPattern, TextTooLong
from rocketlens.query.filters.where import BodyUnread, Step, Where, value_at, value_of_tree
from rocketlens.query.tally import SearchTally, number_of

if TYPE_CHECKING:
    from os import PathLike

GrepIn = Literal["body", "keys", "properties"]
GREP_IN: Final[tuple[GrepIn, ...]] = get_args(GrepIn)
_NO_RULES: Final = BodyRules()


class ContentFilter(Struct, frozen=True):
    """Conditions on the content of messages, all of which must hold."""

    where: Where | None = None
    grep: TextPattern | None = None
    grep_in: frozenset[str] = frozenset({"body"})
    """The parts to search for the pattern: ``body``, ``keys``, ``properties`` (values)."""
    rules: BodyRules = _NO_RULES
    origin: Origin = NO_ORIGIN
    """The cluster and broker of the records."""

    @property
    def text(self) -> str:
        parts = [] if self.where is None else [self.where.text]
        return ", ".join([*parts, *([] if self.grep is None else [f"grep {self.grep.text}"])])

    @property
    def reads_body(self) -> bool:
        is_searched = self.grep is not None and "body" in self.grep_in
        return is_searched or (self.where is not None and self.where.reads_body)

    def passes(self, record: Record | RecordView, tally: SearchTally) -> bool:
        """Return whether a record matches; count it if that cannot be decided."""
        subject = RecordSubject(record, self.rules, tally, self.origin)
        try:
            return (self.where is None or self.where.passes(subject)) and (
                self.grep is None or self._has_pattern(subject, self.grep)
            )
        except BodyUnread as error:
            tally.add_undecided("filter_unread", record, str(error))
        except EvaluationFailed as error:
            tally.add_undecided("filter_not_comparable", record, str(error))
        return False

    def _has_pattern(self, subject: "RecordSubject", pattern: TextPattern) -> bool:
        try:
            if "keys" in self.grep_in and any(map(pattern.is_in, subject.keys)):
                return True
            values = subject.properties.values() if "properties" in self.grep_in else ()
            if any(map(pattern.is_in, values)):
                return True
            return "body" in self.grep_in and any(map(pattern.is_in, subject.body_texts()))
        except TextTooLong as error:
            raise BodyUnread(str(error)) from error


def rules_of(given: "BodyRules | PathLike[str] | str | None") -> BodyRules:
    """Return body rules, or read them from a file.

    :raises BadInput: if the file cannot be read, or a rule is invalid.
    """
    if given is None:
        return _NO_RULES
    return given if isinstance(given, BodyRules) else BodyRules.from_file(Path(given))


def check_grep_in(names: Collection[str]) -> frozenset[str]:
    """Check the names of message parts for a pattern.

    :raises BadInput: if a name is unknown, or there is none.
    """
    parts = frozenset(names)
    if not parts or not parts <= set(GREP_IN):
        wrong = ", ".join(sorted(parts - set(GREP_IN)))
        raise BadInput(f"grep_in: {wrong or 'nothing'} is not one of {', '.join(GREP_IN)}")
    return parts


class RecordSubject:
    """A record as input of filters. Each part is decoded once, on first use."""

    def __init__(
        self,
        record: Record | RecordView,
        rules: BodyRules = _NO_RULES,
        tally: SearchTally | None = None,
        origin: Origin = NO_ORIGIN,
    ) -> None:
        """``tally`` collects the names of properties."""
        self._record: Final = record
        self._rules: Final = rules
        self._tally: Final = tally
        self._origin: Final = origin if any(origin) else getattr(record, "origin", NO_ORIGIN)

    @cached_property
    def properties(self) -> dict[str, str]:
        return props.parse(decode_utf8(self._record.properties))

    @property
    def keys(self) -> tuple[str, ...]:
        return props.split_keys(self.properties.get(props.KEYS))

    @property
    def topic(self) -> str:
        return self._record.topic

    def get(self, name: str, /) -> str | None:
        """Return a property, and record its name in the tally."""
        value, tally = self.properties.get(name), self._tally
        if tally is not None:
            if value is not None:
                tally.properties.add(name)
            elif tally.use_hint_budget(name) and self._has_body_field(name):
                tally.body_fields.add(name)
        return value

    def _has_body_field(self, name: str) -> bool:
        try:
            tree = self._decoded.value
        except BodyUnread:
            return False
        return isinstance(tree, Mapping) and name in tree

    def value(self, name: str, /) -> int | str | None:
        """Return a number, or the name of the cluster or broker."""
        if name not in ORIGIN_COLUMNS:
            return number_of(self._record, name)
        value = self._origin[ORIGIN_COLUMNS.index(name)]
        if value is None and self._tally is not None:
            self._tally.unknown_origins.add(name)
        return value

    def life(self) -> tuple[str, str | None]:
        """Return the state, and the topic that the producer sent to."""
        given, sys_flag = self.properties, number_of(self._record, "sys_flag")
        state, topic, _ = life_of_fields(self.topic, given, given.get(props.TAGS), sys_flag)
        return str(state), topic

    @cached_property
    def _body(self) -> bytes:
        try:
            return decompress(self._record.body, self._record.sys_flag)
        except BodyError as error:
            raise BodyUnread(str(error)) from error

    @cached_property
    def _decoded(self) -> DecodedBody:
        record, body = self._record, self._body
        # Rules can depend on properties that name other topics.
        properties = self.properties if self._rules else {}
        return self._rules.decode_body(record.topic, properties, body)

    def body_text(self) -> str | None:
        """Return the text of the body: as stored, or as JSON if it is not text.

        :raises BodyUnread: if the body cannot be decoded.
        """
        text = None if self._rules else text_of_body(self._body)
        if text is not None:
            return text
        decoded = self._decoded
        if decoded.text is not None:
            return decoded.text
        _check_format(decoded)
        return decoded.as_json()

    def body_texts(self) -> tuple[str, ...]:
        r"""Return the texts to search: the body, and for JSON with ``\u`` also the plain text."""
        text = self.body_text()
        if text is None:
            return ()
        if "\\u" not in text or not self._decoded.is_tree or self._decoded.text is None:
            return (text,)
        return text, json.dumps(json_ready(self._decoded.value), ensure_ascii=False)

    def body_tree(self) -> Tree:
        """Return the decoded body; errors as in `body_text`."""
        decoded = self._decoded
        _check_format(decoded)
        if decoded.error is not None and not decoded.is_tree:
            raise BodyUnread(decoded.error)
        return decoded.value

    def body_value(self, steps: tuple[Step, ...], /) -> Value:
        """Return the value at a path in the body; errors as in `body_text`."""
        return value_of_tree(value_at(self.body_tree(), steps))


def _check_format(decoded: DecodedBody) -> None:
    """Check that the format of a body is known, or declared binary by a rule.

    :raises BodyUnread: otherwise.
    """
    is_known = decoded.rule is not None and decoded.error is None
    if decoded.format == BINARY and not is_known:
        raise BodyUnread(decoded.error or f"its format is not known: {decoded.why}")
