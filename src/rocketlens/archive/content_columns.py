r"""Evaluates the conditions of a content filter on columns of an archive: see `column_filter`.

================  =================================================================================
condition         rules out rows
================  =================================================================================
``where``         for which it is not true. Comparisons of a property or a key with texts, and of
                  a number of the message, are done for whole columns . What they
                  leave is evaluated once for each value of the first column that it looks at, and
                  for each row only where it looks at more, or at the body
``body =~``, if   as ``grep``
that is the
first of these
``grep``          that have the pattern in none of the parts that are searched. Keys, properties
                  and plain bodies are searched as one text
================  =================================================================================

A plain body is UTF-8 without control characters, marks of compression and escapes of JSON
(``\u``): its text is what is stored.
"""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rocketlens import limits
from rocketlens.decode.bodies import read_text
from rocketlens.decode.tree import Tree
from rocketlens.model import properties as props
from rocketlens.model.sql92 import EvaluationFailed, Evaluator, Implied, Operand, Value
from rocketlens.query.filters.body_values import BodyUnread, Step, value_at, value_of_tree
from rocketlens.query.filters.content_filter import ContentFilter
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.query.filters.where import KEY, number_named, property_named
from rocketlens.query.tally import SearchTally

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Mask = npt.NDArray[np.bool_]

ReadColumns = Callable[[Sequence[str]], "pa.Table"]
"""Returns columns of all rows of a row group."""

_CONTROLS: Final = (*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F)
"""See `rocketlens.decode.plain_text`; none of them is a part of another character in UTF-8."""
_ZLIB: Final = ord("x")
_ZLIB_SUM: Final = 31
_BYTE_ORDER_MARK: Final = 0xEF
"""The first byte of it."""
_ESCAPE: Final = b"\\u"
_DELETE: Final = b"\x7f"
_FIRST_PRINTABLE: Final = 0x20


class RowsOfContent:
    """The rows of a row group that a content filter leaves.

    ``left`` are those that passed all conditions so far, and ``kept`` those that messages decide.
    """

    def __init__(
        self,
        read: ReadColumns,
        content: ContentFilter,
        left: "Mask",
        kept: "Mask",
        tally: SearchTally,
    ) -> None:
        """Look at no row yet; both masks are changed in place."""
        self._content: Final = content
        self._left: Final = left
        self._kept: Final = kept
        self._bodies: Final = _Bodies(read)
        self._subject: Final = _ColumnSubject(read, tally, None if content.rules else self._bodies)
        self._read: Final = read

    def rule_out(self) -> None:
        """Apply the conditions in the order in which they are applied to messages."""
        where, grep = self._content.where, self._content.grep
        if where is not None:
            for condition in where.before_body:
                self._apply(condition)
            if where.body_pattern is not None:
                self._search(where.body_pattern, frozenset({"body"}))
            for condition in where.on_body:
                self._apply(condition)
        if grep is not None:
            self._search(grep, self._content.grep_in)

    def _apply(self, condition: Operand) -> None:
        import numpy as np

        rows = np.flatnonzero(self._left)
        if len(rows):
            passed, unsure = self._subject.evaluate(condition, rows)
            self._left[rows] = passed
            self._kept[rows] |= unsure

    def _search(self, pattern: TextPattern, parts: Collection[str]) -> None:
        """Leave the rows that have, or may have, a pattern in one of some parts."""
        import numpy as np

        if not self._left.any() or (self._content.rules and "body" in parts):
            return
        has_pattern = np.zeros(len(self._left), np.bool_)
        for name in parts:
            if name == "body":
                has_pattern |= self._bodies.may_have(pattern)
            else:
                lists = self._read([name]).column(0).chunks
                has_pattern |= _joined([_any_may_have(each, pattern) for each in lists])
        self._left[:] = self._left & has_pattern


class _Bodies:
    """The bodies of a row group."""

    def __init__(self, read: ReadColumns) -> None:
        self._read: Final = read

    @cached_property
    def _array(self) -> "pa.Array":
        return self._read(["body"]).column(0).combine_chunks()

    @cached_property
    def _unsure(self) -> "Mask":
        return _not_plain(self._array)

    @cached_property
    def _slices(self) -> tuple[memoryview, list[int], list[bool]]:
        content = self._array.buffers()[2]
        view = memoryview(b"" if content is None else content)
        return view, list_offsets(self._array).tolist(), self._unsure.tolist()

    def text(self, row: int) -> str:
        """Return the text of a body that is surely plain text.

        :raises _Unsure: of any other.
        """
        view, offsets, unsure = self._slices
        start, stop = offsets[row], offsets[row + 1]
        if unsure[row] or stop - start > limits.MAX_SHOWN_JSON_BYTES:
            raise _Unsure
        return str(view[start:stop], "utf-8")

    def may_have(self, pattern: TextPattern) -> "Mask":
        """Return which bodies have a pattern in their text, or may have it."""
        import numpy as np
        import pyarrow as pa

        unsure = self._unsure | (np.diff(list_offsets(self._array)) > pattern.max_bytes)
        if not pattern.is_regexp:
            return _have(self._array, pattern) | unsure
        sure = np.flatnonzero(~unsure)
        plain = self._array if len(sure) == len(unsure) else self._array.take(pa.array(sure))
        unsure[sure] = _have(plain.cast(pa.string(), safe=False), pattern)
        return unsure


def _joined(parts: "list[Mask]") -> "Mask":
    import numpy as np

    return np.concatenate([np.zeros(0, np.bool_), *parts])


class _Unsure(Exception):
    """A row that has to be looked at as a message."""


class _ColumnSubject:
    """The rows of a row group as filters look at messages, one at a time: a `FilterSubject`."""

    def __init__(self, read: ReadColumns, tally: SearchTally, bodies: _Bodies | None) -> None:
        """Read nothing yet; ``bodies``: None if rules say what they are."""
        self._read: Final = read
        self._tally: Final = tally
        self._bodies: Final = bodies
        self._columns: Final[dict[str, ValueColumn]] = {}
        self._properties: Final[dict[str, PropertyValues]] = {}
        self._row = 0
        self._looked_at: list[ValueColumn | None] = []
        """Columns, and None for a body."""

    def get(self, name: str, /) -> str | None:
        """Return a property."""
        value: str | None = self._value(self._property(name).column)
        if value is not None:
            self._tally.properties.add(name)
        elif self._tally.has_hint_budget(name):
            raise _Unsure
        return value

    def number(self, name: str, /) -> int:
        """Return a field that is a number."""
        number: int = self._value(self._column(name))
        return number

    @property
    def topic(self) -> str:
        """The topic."""
        topic: str = self._value(self._column("topic"))
        return topic

    def body_text(self) -> str:
        """Return the text of the body.

        :raises _Unsure: if it is not surely plain text.
        """
        self._looked_at.append(None)
        if self._bodies is None:
            raise _Unsure
        return self._bodies.text(self._row)

    def body_tree(self) -> Tree:
        """Return what the body holds; errors as `body_text`."""
        decoded = read_text(self.body_text(), "utf-8")
        if decoded.error is not None:
            raise _Unsure
        return decoded.value

    def body_value(self, steps: tuple[Step, ...], /) -> Value:
        """Return the value in the body at the end of a path; errors as `body_text`."""
        return value_of_tree(value_at(self.body_tree(), steps))

    def _property(self, name: str) -> "PropertyValues":
        if name not in self._properties:
            self._properties[name] = PropertyValues(self._read(["properties"]), name)
        return self._properties[name]

    def _column(self, name: str) -> "ValueColumn":
        column = self._columns.get(name)
        if column is None:
            coded = self._read([name]).column(0).combine_chunks().dictionary_encode()
            codes = coded.indices.to_numpy().astype("int64")
            column = self._columns[name] = ValueColumn(codes, coded.dictionary.to_pylist())
        return column

    def _value(self, column: "ValueColumn") -> Any:
        self._looked_at.append(column)
        return column.values[column.code_list[self._row]]

    def evaluate(self, condition: Operand, rows: "npt.NDArray[np.int64]") -> "tuple[Mask, Mask]":
        """Return for which of some rows a condition is TRUE, and for which messages decide."""
        import numpy as np

        passed, unsure = (np.zeros(len(rows), np.bool_) for _ in range(2))
        may_hold = np.ones(len(rows), np.bool_)
        for fact in condition.implied:
            may_hold &= self._may_hold(fact, rows)
        at = np.flatnonzero(may_hold)
        if len(at):
            passed[at], unsure[at] = self._evaluate_values(condition.evaluate, rows[at])
        return passed, unsure

    def _may_hold(self, fact: Implied, rows: "npt.NDArray[np.int64]") -> "Mask":
        """Return for which rows a fact may hold, or something is counted."""
        import numpy as np

        name = property_named(fact.field)
        number = number_named(fact.field)
        if number is not None and fact.texts is None:
            return may_be_within(self._read([number]).column(0).to_numpy(), fact)[rows]
        if fact.field == KEY and fact.texts is not None:
            are_there, may_hold = keys_hold(self._read(["keys"]).column(0), fact)
            return self._of_property(props.KEYS, are_there[rows], may_hold[rows])
        if name is not None:
            values = self._property(name)
            return self._of_property(name, values.are_there[rows], values.may_hold(fact)[rows])
        return np.ones(len(rows), np.bool_)

    def _of_property(self, name: str, are_there: "Mask", may_hold: "Mask") -> "Mask":
        """Return for which rows a fact of a property may hold, or it counts that it is not there,
        as `get` does.
        """
        if are_there.any():
            self._tally.properties.add(name)
        return may_hold | ~are_there if self._tally.has_hint_budget(name) else may_hold

    def _evaluate_values(
        self, condition: Evaluator, rows: "npt.NDArray[np.int64]"
    ) -> "tuple[Mask, Mask]":
        """Return as `_evaluate_rows`, once for each value.

        Whatever the row, it looks at the same column first. Where it looks at no other, and at no
        body, all rows with the same value there have the same outcome.
        """
        import numpy as np

        self._outcome(condition, int(rows[0]))
        first = self._looked_at[0] if self._looked_at else None
        if first is None:
            return self._evaluate_rows(condition, rows)
        _, examples, numbers = np.unique(first.codes[rows], return_index=True, return_inverse=True)
        if len(examples) > len(rows) // 2:
            return self._evaluate_rows(condition, rows)
        outcomes, is_decided = [], []
        for row in rows[examples].tolist():
            outcomes.append(self._outcome(condition, row))
            is_decided.append(all(each is first for each in self._looked_at))
        passed, unsure = (mask[numbers] for mask in _masks(outcomes))
        others = np.flatnonzero(~np.array(is_decided)[numbers])
        passed[others], unsure[others] = self._evaluate_rows(condition, rows[others])
        return passed, unsure

    def _evaluate_rows(
        self, condition: Evaluator, rows: "npt.NDArray[np.int64]"
    ) -> "tuple[Mask, Mask]":
        """Return for which of some rows a condition is TRUE, and for which messages decide."""
        return _masks([self._outcome(condition, row) for row in rows.tolist()])

    def _outcome(self, condition: Evaluator, row: int) -> bool | None:
        """Return whether a condition is TRUE; None if messages decide that."""
        self._row = row
        self._looked_at.clear()
        try:
            return condition(self) is True
        except (_Unsure, BodyUnread, EvaluationFailed):
            return None


def _masks(outcomes: list[bool | None]) -> "tuple[Mask, Mask]":
    """Return which outcomes are TRUE, and which are not known."""
    import numpy as np

    codes = np.array([2 if each is None else each for each in outcomes], np.int8)
    return codes == 1, codes == 2


def _any_may_have(lists: "pa.Array", pattern: TextPattern) -> "Mask":
    """Return which lists of texts, or maps by their values, have one with a pattern in it."""
    import numpy as np
    import pyarrow as pa

    offsets = list_offsets(lists)
    first, last = int(offsets[0]), int(offsets[-1])
    whole = lists.items if pa.types.is_map(lists.type) else lists.values
    texts = whole.slice(first, last - first)
    may_have = np.diff(list_offsets(texts)) > pattern.max_bytes
    return any_of(offsets, may_have | _have(texts, pattern))


def _have(texts: "pa.Array", pattern: TextPattern) -> "Mask":
    """Return which texts have a pattern; all of them if Arrow cannot search for it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pattern.is_regexp:
        return _with_text(texts, pattern.text)
    try:
        matches = pc.match_substring_regex(texts, pattern.text)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        # Of Arrow's own RE2, or a half of a surrogate pair: no text has that.
        return np.ones(len(texts), np.bool_)
    has_pattern: Mask = matches.to_numpy(zero_copy_only=False)
    return has_pattern


def _with_text(bodies: "pa.Array", text: str) -> "Mask":
    """Return which bodies have the bytes of a text: they are searched as one, which is quick."""
    import numpy as np

    has_text = np.zeros(len(bodies), np.bool_)
    offsets = list_offsets(bodies)
    content = bodies.buffers()[2]
    raw = b"" if content is None else bytes(memoryview(content)[offsets[0] : offsets[-1]])
    # Lone surrogates never occur in UTF-8 bodies.
    pattern = text.encode("utf-8", "surrogatepass")
    ends = offsets[1:] - offsets[0]
    at = raw.find(pattern)
    while at >= 0:
        row = int(np.searchsorted(ends, at, side="right"))
        has_text[row] |= at + len(pattern) <= ends[row]
        # It may begin in one body and end in the next.
        at = raw.find(pattern, int(ends[row]) if has_text[row] else at + 1)
    return has_text


def _not_plain(bodies: "pa.Array") -> "Mask":
    """Return which of an array of bodies are not surely plain text."""
    import numpy as np

    count = len(bodies)
    unsure = np.zeros(count, np.bool_)
    content = bodies.buffers()[2]
    offsets = list_offsets(bodies)
    if not count or content is None or offsets[0] == offsets[-1]:
        return unsure
    view = memoryview(content)[offsets[0] : offsets[-1]]
    values = np.frombuffer(view, np.uint8)
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    filled = starts[np.diff(offsets) > 0]
    first = values[filled]
    # That of the next body stands for the second byte of a body that has one.
    second = values[np.minimum(filled + 1, len(values) - 1)]
    may_be_zlib = (first == _ZLIB) & ((_ZLIB << 8 | second.astype(np.int64)) % _ZLIB_SUM == 0)
    unsure[np.diff(offsets) > 0] = may_be_zlib | (first == _BYTE_ORDER_MARK)
    raw = bytes(view)
    if values.min() < _FIRST_PRINTABLE or _DELETE in raw:
        at = np.flatnonzero((values < _FIRST_PRINTABLE) | (values == _DELETE[0]))
        _mark(unsure, starts, at[np.isin(values[at], _CONTROLS)])
    # One byte is found many times faster than two.
    if _ESCAPE[:1] in raw and _ESCAPE in raw:
        at = np.flatnonzero((values[:-1] == _ESCAPE[0]) & (values[1:] == _ESCAPE[1]))
        _mark(unsure, starts, at)
    if not raw.isascii() and not _is_utf8(raw, values, filled):
        for number, body in enumerate(bodies.to_pylist()):
            unsure[number] |= not _is_text(body)
    return unsure


def _mark(unsure: "Mask", starts: "npt.NDArray[np.int64]", at: "npt.NDArray[np.int64]") -> None:
    """Mark the rows that have bytes at some places."""
    import numpy as np

    unsure[np.searchsorted(starts, at, side="right") - 1] = True


def _is_utf8(raw: bytes, values: "npt.NDArray[np.uint8]", starts: "npt.NDArray[np.int64]") -> bool:
    """Return whether each of several texts, one behind the other, is UTF-8."""
    begins_inside = (values[starts] & 0xC0) == 0x80
    return not begins_inside.any() and _is_text(raw)


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


class ValueColumn:
    """The values of rows, each once, and which of them a row has."""

    def __init__(self, codes: "npt.NDArray[np.int64]", values: list[Any]) -> None:
        """Keep them: row n has ``values[codes[n]]``."""
        self.codes: Final = codes
        self.values: Final = values
        self.code_list: Final[list[int]] = codes.tolist()


def may_be_within(numbers: "npt.NDArray[Any]", fact: Implied) -> "Mask":
    """Return which numbers are in the range of a fact."""
    import numpy as np

    within = np.ones(len(numbers), np.bool_)
    if fact.low is not None:
        within &= numbers >= _like(numbers, fact.low)
    if fact.high is not None:
        within &= numbers <= _like(numbers, fact.high)
    return within


def _like(numbers: "npt.NDArray[Any]", bound: float) -> float:
    """Return a bound as it is compared: two whole numbers as such, all others as doubles.

    numpy compares a whole number with a double as doubles.
    """
    return int(bound) if isinstance(bound, int) and numbers.dtype.kind == "i" else float(bound)


class PropertyValues:
    """The values of one property."""

    def __init__(self, properties: "pa.Table", name: str) -> None:
        """Find them in the column of properties."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = np.full(properties.num_rows, -1, np.int64)
        texts: list[pa.Array] = []
        start = count = 0
        for chunk in properties.column(0).chunks:
            offsets = list_offsets(chunk)
            first = int(offsets[0])
            names = chunk.keys.slice(first, int(offsets[-1]) - first)
            at = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False)) + first
            rows = np.searchsorted(offsets, at, side="right") - 1
            # Of two properties of a name the last one counts.
            codes[start + rows] = np.arange(count, count + len(at))
            texts.append(chunk.items.take(pa.array(at)))
            start += len(chunk)
            count += len(at)
        self._texts: Final = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
        is_empty = np.diff(list_offsets(self._texts)) == 0
        if is_empty.any():
            codes[(codes >= 0) & is_empty[codes]] = -1
        self._codes: Final = codes

    @property
    def are_there(self) -> "Mask":
        """Which rows have the property."""
        are_there: Mask = self._codes >= 0
        return are_there

    @cached_property
    def column(self) -> "ValueColumn":
        """The values; None where a row has none."""
        coded = self._texts.dictionary_encode()
        # Code -1 is the last of them.
        numbers = _appended(coded.indices.to_numpy() + 1, 0)
        return ValueColumn(numbers[self._codes], [None, *coded.dictionary.to_pylist()])

    def may_hold(self, fact: Implied) -> "Mask":
        """Return for which rows a fact may hold, or comparing fails."""
        import numpy as np

        may_hold = np.ones(len(self._texts), np.bool_)
        if fact.texts is not None:
            may_hold = are_in(self._texts, fact.texts)
        of_rows: Mask = _appended(may_hold, 0)[self._codes]
        return of_rows


def keys_hold(keys: "pa.ChunkedArray", fact: Implied) -> "tuple[Mask, Mask]":
    """Return which rows have keys, and which have one for which a fact may hold."""
    import numpy as np

    have, hold = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)]
    for chunk in keys.chunks:
        offsets = list_offsets(chunk)
        have.append(offsets[1:] > offsets[:-1])
        first = int(offsets[0])
        texts = chunk.values.slice(first, int(offsets[-1]) - first)
        hold.append(
            any_of(offsets, are_in(texts, fact.texts)) if fact.texts is not None else have[-1]
        )
    return np.concatenate(have), np.concatenate(hold)


def any_of(offsets: "npt.NDArray[np.int32]", is_so: "Mask") -> "Mask":
    """Return for which lists it is so of one of their elements, which begin with the first list."""
    import numpy as np

    counts = np.concatenate([[0], np.cumsum(is_so)])
    found: Mask = counts[offsets[1:] - offsets[0]] > counts[offsets[:-1] - offsets[0]]
    return found


def list_offsets(array: "pa.Array") -> "npt.NDArray[np.int32]":
    """Return where each text or list of an array begins, and where the last one ends."""
    import numpy as np

    offsets = array.buffers()[1]
    if not len(array) or offsets is None:
        return np.zeros(1, np.int32)
    return np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]


def are_in(texts: "pa.Array", chosen: frozenset[str]) -> "Mask":
    """Return which texts, or bytes of texts, are among some."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A half of a surrogate pair is in no text.
    encoded = sorted(each.encode("utf-8", "surrogatepass") for each in chosen)
    as_bytes = texts.cast(pa.binary()) if texts.type == pa.string() else texts
    is_in: Mask = pc.is_in(as_bytes, pa.array(encoded, pa.binary())).to_numpy(zero_copy_only=False)
    return is_in


def _appended(values: "npt.NDArray[Any]", last: int) -> "npt.NDArray[Any]":
    import numpy as np

    return np.append(values, np.array([last], values.dtype))
