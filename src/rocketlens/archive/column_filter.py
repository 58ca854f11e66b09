r"""Excludes rows of an archive by their columns, before messages are built.

The remaining rows are compared like messages of a store (`rocketlens.query.lookup.message_filter`).
So a row is excluded only if that comparison would surely reject it, and would count nothing for the
coverage: no undecodable body, no values that cannot be compared, no topic that is left out.

========================  ==========================================================================
condition                 excludes rows
========================  ==========================================================================
topics, tags              with others
``where``                 for which it is not true. It is evaluated once for each value of the
                          first column that it reads, and for each row only if it reads more
                          columns, or the body. The message decides if the body is not plain, or if
                          the row lacks a property that is also looked for in bodies
``body =~``, if it is     as ``grep``
the first on a body
``grep``                  that have the pattern in none of the searched parts
========================  ==========================================================================

A body is plain if it is UTF-8 without control characters, compression magic numbers and escapes of
JSON (``\u``): then its text is the stored bytes.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketlens import limits
from rocketlens.decode.tree import Tree
from rocketlens.late import pa, pc
from rocketlens.model import properties as props
from rocketlens.model.life import is_plain, life_of_fields
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.model.sql92 import EvaluationFailed, Operand, Value
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.query.filters.where import BodyUnread, Step, value_at, value_of_tree
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.tally import SearchTally

if TYPE_CHECKING:
    from rocketlens.query.filters.content_filter import ContentFilter

Mask = npt.NDArray[np.bool_]

ReadColumns = Callable[[Sequence[str]], "pa.Table"]
"""Returns columns of all rows of a row group."""

_MARKS: Final = r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]|\\u"
"""Control characters (see `rocketlens.decode.plain_text`), and escapes, for Arrow's RE2."""
_BEGINS: Final = ("\ufeff", "x")
"""A byte order mark, and the first byte of a zlib stream."""


class ColumnFilter:
    """The part of a filter that columns can decide; see the module."""

    def __init__(self, message_filter: MessageFilter) -> None:
        content, topics = message_filter.content, message_filter.record_topics
        others = (message_filter.key, message_filter.unique_key, message_filter.expression)
        # Earlier conditions decide which messages the content condition counts for the coverage.
        if message_filter.light or any(each is not None for each in others):
            content = None
        self._content: Final = content
        self._tally: Final = message_filter.tally or SearchTally()
        self._tags: Final = message_filter.tags
        self._topics: Final = topics if topics is not None and len(topics) > 1 else None
        self._counts_topics: Final = message_filter.leaves_out

    @property
    def decides(self) -> bool:
        """True if any row can be excluded."""
        return any(each is not None for each in (self._content, self._tags, self._topics))

    def may_match(self, read: ReadColumns, within: Mask) -> Mask:
        """Return which of the rows ``within`` may match."""
        left = within.copy()
        if self._topics is not None:
            left &= _is_in(read(["topic"]), self._topics)
        # A body with an error may hold a batch, which is always counted.
        kept = left & pc.is_valid(read(["body_error"]).column(0)).to_numpy()
        if self._counts_topics:
            topics = read(["topic"]).column(0)
            internal = frozenset(filter(is_internal_topic, topics.unique().to_pylist()))
            kept |= left & _is_in(read(["topic"]), internal)
        left &= ~kept
        if self._tags is not None:
            left &= _is_in(read(["tags"]), self._tags)
        if self._content is not None:
            _RowsOfContent(read, self._content, left, kept, self._tally).rule_out()
        may_match: Mask = left | kept
        return may_match


class _RowsOfContent:
    """The rows of a row group that a content filter leaves.

    ``left`` passed all conditions so far, and messages decide about ``kept``; both change in place.
    """

    def __init__(
        self,
        read: ReadColumns,
        content: "ContentFilter",
        left: Mask,
        kept: Mask,
        tally: SearchTally,
    ) -> None:
        self._read: Final = read
        self._content: Final = content
        self._left: Final = left
        self._kept: Final = kept
        self._tally: Final = tally
        self._bodies: Final = _Bodies(read)

    def rule_out(self) -> None:
        """Apply the conditions in the order in which they are applied to messages."""
        where, grep = self._content.where, self._content.grep
        if where is not None:
            bodies = None if self._content.rules else self._bodies
            subject = _ColumnSubject(self._read, self._tally, bodies)
            for condition in where.before_body:
                self._apply(condition, subject)
            if where.body_pattern is not None:
                self._search(where.body_pattern, ("body",))
            for condition in where.on_body:
                self._apply(condition, subject)
        if grep is not None:
            self._search(grep, self._content.grep_in)

    def _apply(self, condition: Operand, subject: "_ColumnSubject") -> None:
        rows = np.flatnonzero(self._left & subject.may_hold(condition))
        self._left[:] = False
        if len(rows):
            outcomes = subject.evaluate(condition, rows)
            self._left[rows] = outcomes == _TRUE
            self._kept[rows] |= outcomes == _UNSURE

    def _search(self, pattern: TextPattern, parts: Collection[str]) -> None:
        """Leave the rows that have, or may have, a pattern in one of some parts."""
        if not self._left.any() or (self._content.rules and "body" in parts):
            return
        may_have = np.zeros(len(self._left), np.bool_)
        for name in parts:
            if name == "body":
                may_have |= self._bodies.may_have(pattern)
            else:
                column = self._read([name]).column(0).combine_chunks()
                may_have |= _lists_with(column, lambda texts: _may_have(texts, pattern))
        self._left[:] = self._left & may_have


class _Bodies:
    """The bodies of a row group; knows which of them are plain text."""

    def __init__(self, read: ReadColumns) -> None:
        self._read: Final = read

    @cached_property
    def _array(self) -> "pa.Array":
        return self._read(["body"]).column(0).combine_chunks()

    @cached_property
    def _is_plain(self) -> Mask:
        return _is_plain(self._array)

    @cached_property
    def _texts(self) -> list[str | None]:
        sizes = pc.binary_length(self._array).to_numpy()
        is_text = self._is_plain & (sizes <= limits.MAX_SHOWN_JSON_BYTES)
        bodies = zip(self._array.to_pylist(), is_text.tolist(), strict=True)
        return [body.decode() if is_one else None for body, is_one in bodies]

    def text(self, row: int) -> str:
        """Return the text of a plain body; raise `_Unsure` for others."""
        text = self._texts[row]
        if text is None:
            raise _Unsure
        return text

    def may_have(self, pattern: TextPattern) -> Mask:
        """Return which bodies have, or may have, a pattern in their text."""
        may_have: Mask = ~self._is_plain
        plain = self._array.filter(pa.array(self._is_plain)) if may_have.any() else self._array
        texts = plain.cast(pa.string(), safe=False)
        may_have[self._is_plain] = _may_have(texts, pattern).to_numpy(zero_copy_only=False)
        return may_have


class _Unsure(Exception):
    """Only the message can decide about the row."""


_TRUE: Final = 1
_UNSURE: Final = 2


class _Values(NamedTuple):
    """The distinct values of a column, and the index of each row's value."""

    codes: npt.NDArray[np.int32]
    values: list[Any]


class _ColumnSubject:
    """Presents a row to filters as a message: see `FilterSubject`."""

    def __init__(self, read: ReadColumns, tally: SearchTally, bodies: _Bodies | None) -> None:
        """Read nothing yet; ``bodies`` is None if rules decode them."""
        from rocketlens.decode.bodies import read_text

        self._read_text: Final = read_text
        self._read: Final = read
        self._tally: Final = tally
        self._bodies: Final = bodies
        self._columns: Final[dict[tuple[str, str | None], _Values]] = {}
        self._row = 0
        self._looked_at: Final[list[_Values | None]] = []
        """The columns that the last evaluation read, and None for the body."""

    def get(self, name: str, /) -> str | None:
        value: str | None = self.value("properties", name) or None
        if value is not None:
            self._tally.properties.add(name)
        elif self._tally.has_hint_budget(name):
            raise _Unsure
        return value

    def life(self) -> tuple[str, str | None]:
        """Return the state, and the producer's topic; raise `_Unsure` if properties decide."""
        if not is_plain(self.topic):
            raise _Unsure
        return str(life_of_fields(self.topic, {}, None, self.value("sys_flag"))[0]), self.topic

    @property
    def topic(self) -> str:
        topic: str = self.value("topic")
        return topic

    def body_text(self) -> str:
        """Return the text of the body; raise `_Unsure` if it is not surely plain text."""
        self._looked_at.append(None)
        if self._bodies is None:
            raise _Unsure
        return self._bodies.text(self._row)

    def body_tree(self) -> Tree:
        """Return the decoded body; errors as `body_text`."""
        decoded = self._read_text(self.body_text(), "utf-8")
        if decoded.error is not None:
            raise _Unsure
        return decoded.value

    def body_value(self, steps: tuple[Step, ...], /) -> Value:
        """Return the value at a path in the body; errors as `body_text`."""
        return value_of_tree(value_at(self.body_tree(), steps))

    def value(self, name: str, key: str | None = None, /) -> Any:
        """Return the value of a column, or of a key in a column of maps."""
        column = self._columns.get((name, key))
        if column is None:
            array = self._read([name]).column(0).combine_chunks()
            if key is not None:
                # The last of two properties with the same name counts.
                array = pc.map_lookup(array, key, "last")
            coded = array.dictionary_encode("encode")
            column = _Values(coded.indices.to_numpy(), coded.dictionary.to_pylist())
            self._columns[name, key] = column
        self._looked_at.append(column)
        return column.values[column.codes[self._row]]

    def may_hold(self, condition: Operand) -> Mask | bool:
        """Return the rows for which a condition on keys may hold; True for all rows."""
        from rocketlens.query.filters.where import KEY

        may_hold: Mask | bool = True
        for fact in condition.implied:
            if fact.field == KEY and fact.texts is not None:
                keys = self._read(["keys"]).column(0).combine_chunks()
                may_hold = may_hold & _lists_with(keys, partial(_are_in, chosen=fact.texts))
                if self._tally.has_hint_budget(props.KEYS):
                    may_hold = may_hold | ~_lists_with(keys, pc.is_valid)
        return may_hold

    def evaluate(self, condition: Operand, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return for each row `_TRUE`, `_UNSURE`, or 0 for false.

        A condition reads the same column first for every row. If it reads no other, all rows with
        the same value in that column have the same outcome.
        """
        self._outcome(condition, int(rows[0]))
        first = self._looked_at[0] if self._looked_at else None
        if first is None:
            return self._of_rows(condition, rows)
        _, examples, numbers = np.unique(first.codes[rows], return_index=True, return_inverse=True)
        if len(examples) > len(rows) // 2:
            return self._of_rows(condition, rows)
        outcomes, is_decided = [], []
        for row in rows[examples].tolist():
            outcomes.append(self._outcome(condition, row))
            is_decided.append(all(each is first for each in self._looked_at))
        of_rows = np.array(outcomes, np.int8)[numbers]
        others = np.flatnonzero(~np.array(is_decided)[numbers])
        of_rows[others] = self._of_rows(condition, rows[others])
        return of_rows

    def _of_rows(self, condition: Operand, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        return np.array([self._outcome(condition, row) for row in rows.tolist()], np.int8)

    def _outcome(self, condition: Operand, row: int) -> int:
        self._row = row
        self._looked_at.clear()
        try:
            return _TRUE if condition.evaluate(self) is True else 0
        except (_Unsure, BodyUnread, EvaluationFailed):
            return _UNSURE


def _lists_with(lists: "pa.Array", matches: "Callable[[pa.Array], pa.BooleanArray]") -> Mask:
    """Return which lists, or maps by their values, have an element that matches."""
    has_one = np.zeros(len(lists), np.bool_)
    if pa.types.is_map(lists.type):
        offsets = lists.offsets
        lists = pa.ListArray.from_arrays(offsets, lists.items)
    has_one[pc.list_parent_indices(lists).filter(matches(lists.flatten())).to_numpy()] = True
    return has_one


def _are_in(texts: "pa.Array", chosen: frozenset[str]) -> "pa.BooleanArray":
    # Lone surrogates cannot be encoded, and no text has them.
    encoded = sorted(each.encode("utf-8", "surrogatepass") for each in chosen)
    return pc.is_in(texts.cast(pa.binary()), pa.array(encoded, pa.binary()))


def _is_in(column: "pa.Table", texts: frozenset[str]) -> Mask:
    is_in: Mask = _are_in(column.column(0), texts).to_numpy()
    return is_in


def _may_have(texts: "pa.Array", pattern: TextPattern) -> "pa.BooleanArray":
    """Return which texts have a pattern, or are too long for it; all if Arrow cannot search."""
    try:
        if not pattern.is_regexp and pattern.text.encode() not in _content(texts):
            return pc.is_null(texts)
        # A plain pattern has no special characters, and Arrow searches faster by a regexp.
        found = pc.match_substring_regex(texts, pattern.text)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        # RE2 does not support the pattern, or it has a lone surrogate, which no text has.
        return pc.is_valid(texts)
    return pc.or_(found, pc.greater(pc.binary_length(texts), pattern.max_bytes))


def _is_plain(bodies: "pa.Array") -> Mask:
    """Return which bodies are surely plain text."""
    marked = pc.or_(*(pc.starts_with(bodies, each) for each in _BEGINS))
    content = _content(bodies)
    least = np.frombuffer(content, np.uint8).min(initial=255)
    # Python finds one byte many times faster than two.
    has_escape = b"\\" in content and b"\\u" in content
    if least < ord(" ") or b"\x7f" in content or has_escape:
        marked = pc.or_(marked, pc.match_substring_regex(bodies, _MARKS))
    is_plain: Mask = ~marked.to_numpy(zero_copy_only=False)
    try:
        bodies.cast(pa.string())
    except pa.ArrowInvalid:
        is_plain &= np.array([_is_text(each) for each in bodies.to_pylist()])
    return is_plain


def _content(texts: "pa.Array") -> bytes:
    """Return the bytes that texts are slices of."""
    content = texts.buffers()[2]
    return b"" if content is None else content.to_pybytes()


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
