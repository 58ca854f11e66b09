"""Decides by what is in a message: a filter (`rocketlens.query.filters.where`), and patterns
searched for.

Nothing is decoded that the answer does not depend on: conditions on properties and fields come
first, and a message that they leave out keeps its body unread.

=====================================  =========================================================
what a condition needs                 then
=====================================  =========================================================
a body that cannot be decompressed,    the message is not a match, and is counted: the answer is not
or decoded, or has no known format     complete, and its coverage says how many there are, and why
a body that a rule calls binary        it has no text and no values: NULL
values that cannot be compared         no match, as for a broker; counted, and told
a property that no message has,        NULL; told, because a field of the body was probably meant
and bodies have a field of that name
=====================================  =========================================================
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
    """The conditions on the content of messages: all that are given must hold."""

    where: Where | None = None
    grep: TextPattern | None = None
    grep_in: frozenset[str] = frozenset({"body"})
    """Where the pattern may be: in the text of the body, in a key, in the value of a property."""
    rules: BodyRules = _NO_RULES
    origin: Origin = NO_ORIGIN
    """The names of the cluster and the broker whose records are looked at."""

    @property
    def text(self) -> str:
        """The filter and the pattern in one line."""
        parts = [] if self.where is None else [self.where.text]
        return ", ".join([*parts, *([] if self.grep is None else [f"grep {self.grep.text}"])])

    @property
    def reads_body(self) -> bool:
        """Whether a body may be looked at."""
        is_searched = self.grep is not None and "body" in self.grep_in
        return is_searched or (self.where is not None and self.where.reads_body)

    def passes(self, record: Record | RecordView, tally: SearchTally) -> bool:
        """Return whether a record passes; count it if that cannot be known."""
        subject = RecordSubject(record, self.rules, tally, self.origin)
        try:
            return (self.where is None or self.where.passes(subject)) and (
                self.grep is None or self._has_pattern(subject, self.grep)
            )
        except BodyUnread as error:
            tally.add_unread(record, str(error))
        except EvaluationFailed as error:
            tally.add_not_comparable(record, str(error))
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
    """Return rules for bodies, those of a file if it is named.

    :raises BadInput: if the file cannot be read, or a rule is wrong.
    """
    if given is None:
        return _NO_RULES
    return given if isinstance(given, BodyRules) else BodyRules.from_file(Path(given))


def check_grep_in(names: Collection[str]) -> frozenset[str]:
    """Return where a pattern is searched for.

    :raises BadInput: if there is no such part of a message.
    """
    parts = frozenset(names)
    if not parts or not parts <= set(GREP_IN):
        wrong = ", ".join(sorted(parts - set(GREP_IN)))
        raise BadInput(f"grep_in: {wrong or 'nothing'} is not one of {', '.join(GREP_IN)}")
    return parts


class RecordSubject:
    """A record as filters look at it; each part is decoded when it is asked for, and once."""

    def __init__(
        self,
        record: Record | RecordView,
        rules: BodyRules = _NO_RULES,
        tally: SearchTally | None = None,
        origin: Origin = NO_ORIGIN,
    ) -> None:
        """Decode nothing yet; `tally` counts the names of properties."""
        self._record: Final = record
        self._rules: Final = rules
        self._tally: Final = tally
        self._origin: Final = origin if any(origin) else getattr(record, "origin", NO_ORIGIN)

    @cached_property
    def properties(self) -> dict[str, str]:
        """All properties."""
        return props.parse(decode_utf8(self._record.properties))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return props.split_keys(self.properties.get(props.KEYS))

    @property
    def topic(self) -> str:
        """The topic."""
        return self._record.topic

    def get(self, name: str, /) -> str | None:
        """Return a property."""
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
        """Return a field that is a number, or the name of its cluster or broker."""
        if name not in ORIGIN_COLUMNS:
            return number_of(self._record, name)
        value = self._origin[ORIGIN_COLUMNS.index(name)]
        if value is None and self._tally is not None:
            self._tally.unknown_origins.add(name)
        return value

    def life(self) -> tuple[str, str | None]:
        """Return the state, and the topic that the producer meant."""
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
        # Properties name the topics that rules are for.
        properties = self.properties if self._rules else {}
        return self._rules.decode_body(record.topic, properties, body)

    def body_text(self) -> str | None:
        """Return the text of the body: as it is stored, or as JSON if it is not a text.

        :raises BodyUnread: if it cannot be decoded.
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
        r"""Return the texts that are searched: that of the body, and without JSON's ``\u``."""
        text = self.body_text()
        if text is None:
            return ()
        if "\\u" not in text or not self._decoded.is_tree or self._decoded.text is None:
            return (text,)
        return text, json.dumps(json_ready(self._decoded.value), ensure_ascii=False)

    def body_tree(self) -> Tree:
        """Return what the body holds; errors as `body_text`."""
        decoded = self._decoded
        _check_format(decoded)
        if decoded.error is not None and not decoded.is_tree:
            raise BodyUnread(decoded.error)
        return decoded.value

    def body_value(self, steps: tuple[Step, ...], /) -> Value:
        """Return the value in the body at the end of a path; errors as `body_text`."""
        return value_of_tree(value_at(self.body_tree(), steps))


def _check_format(decoded: DecodedBody) -> None:
    """Check that the format of a body is known, if only as binary by a rule.

    :raises BodyUnread: if it is not: another program may know what it is.
    """
    is_known = decoded.rule is not None and decoded.error is None
    if decoded.format == BINARY and not is_known:
        raise BodyUnread(decoded.error or f"its format is not known: {decoded.why}")
