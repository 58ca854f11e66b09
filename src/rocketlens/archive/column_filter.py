r"""Rules out rows of an archive by columns, before messages are made of them.

Millions of rows are looked at a second; what is left is compared as messages of a store are
(`rocketlens.query.lookup.message_filter`), which decides. So a row is ruled out only where that
would surely leave it out, and would count nothing of it: a body that cannot be looked at, a message
of a topic that is left out.

=================  ================================================================================
condition          rules out rows
=================  ================================================================================
``tags``           with other tags
``where`` begins   with other tags, not those without one: in their bodies a field is looked for
with tags          that may have been meant
``body =~`` first, as ``grep``
or behind tags
``grep`` in the    whose body is plain text without the pattern. Plain is UTF-8 without control
body               characters, marks of compression and escapes of JSON (``\u``): its text is what
                   is stored
=================  ================================================================================
"""

from typing import TYPE_CHECKING, Any, Final

from rocketlens.model import properties as props
from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.query.filters.pattern import TextPattern
from rocketlens.query.lookup.message_filter import MessageFilter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_CONTROLS: Final = (*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F)
"""See `rocketlens.decode.plain_text`; none of them is a part of another character in UTF-8."""
_ZLIB: Final = ord("x")
_BYTE_ORDER_MARK: Final = 0xEF
"""The first byte of it."""
_ESCAPE: Final = b"\\u"
_DELETE: Final = b"\x7f"
_FIRST_PRINTABLE: Final = 0x20


class ColumnFilter:
    """What a filter needs of columns; see the module."""

    def __init__(self, message_filter: MessageFilter) -> None:
        """Look at a filter."""
        content = message_filter.content
        self._tags: Final = message_filter.tags
        self._counts_topics: Final = message_filter.left_out is not None
        is_in_body = content is not None and content.grep_in == {"body"}
        is_alone = is_in_body and content is not None and content.where is None
        has_rules = content is not None and bool(content.rules)
        self._where_tags: Final = content.where.first_tags if content and content.where else None
        self._tally: Final = content.tally if content else None
        pattern = content.grep if content and is_alone else None
        if content is not None and content.where is not None:
            pattern = content.where.body_pattern
        self._grep: Final = None if has_rules else pattern

    @property
    def columns(self) -> list[str]:
        """The columns that decide; none if nothing can be ruled out."""
        has_tags = self._tags is not None or self._where_tags is not None
        deciding = ["tags"] if has_tags else []
        deciding += ["body", "body_error"] if self._grep is not None else []
        return [*deciding, "topic"] if deciding and self._counts_topics else deciding

    def may_match(self, rows: "pa.Table") -> Any:
        """Return which rows may match, as an Arrow array, from a table with `columns`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kept: Any = None
        if self._tags is not None:
            kept = pc.is_in(rows.column("tags"), pa.array(sorted(self._tags), pa.string()))
        if self._where_tags is not None and self._tally is not None:
            tags = rows.column("tags")
            if tags.null_count < len(tags):
                # As for each message that has a tag.
                self._tally.properties.add(props.TAGS)
            is_in = pc.is_in(tags, pa.array(sorted(self._where_tags), pa.string()))
            kept = is_in if kept is None else pc.and_(kept, is_in)
        if self._grep is not None:
            parts = [
                self._has_pattern(batch.column("body"), batch.column("body_error"), self._grep)
                for batch in rows.select(["body", "body_error"]).to_batches()
            ]
            has_pattern = pa.chunked_array(parts, pa.bool_())
            kept = has_pattern if kept is None else pc.and_(kept, has_pattern)
        if self._where_tags is not None:
            kept = pc.or_(kept, pc.is_null(rows.column("tags")))
        if self._counts_topics:
            topics = rows.column("topic")
            internal = [each for each in topics.unique().to_pylist() if is_internal_topic(each)]
            if internal:
                kept = pc.or_(kept, pc.is_in(topics, pa.array(internal, pa.string())))
        return kept

    def _has_pattern(self, bodies: "pa.Array", errors: "pa.Array", pattern: TextPattern) -> Any:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        unsure = _not_plain(bodies)
        if errors.null_count < len(errors):
            unsure |= pc.is_valid(errors).to_numpy(zero_copy_only=False)
        unsure |= np.diff(_offsets(bodies)) > pattern.max_bytes
        if not pattern.is_regexp:
            return pa.array(_with_text(bodies, pattern.text) | unsure)
        sure = np.flatnonzero(~unsure)
        plain = bodies if len(sure) == len(bodies) else bodies.take(pa.array(sure))
        texts = plain.cast(pa.string(), safe=False)
        try:
            matches = pc.match_substring_regex(texts, pattern.text)
        except (pa.ArrowInvalid, UnicodeEncodeError):
            # Of Arrow's own RE2, or a half of a surrogate pair: no text has that.
            return pa.array(np.ones(len(bodies), np.bool_))
        unsure[sure] = matches.to_numpy(zero_copy_only=False)
        return pa.array(unsure)


def _with_text(bodies: "pa.Array", text: str) -> "npt.NDArray[np.bool_]":
    """Return which bodies have the bytes of a text: they are searched as one, which is quick."""
    import numpy as np

    has_text = np.zeros(len(bodies), np.bool_)
    offsets = _offsets(bodies)
    content = bodies.buffers()[2]
    raw = b"" if content is None else bytes(memoryview(content)[offsets[0] : offsets[-1]])
    # A half of a surrogate pair, which no body that is plain has, is left as it is.
    pattern = text.encode("utf-8", "surrogatepass")
    ends = offsets[1:] - offsets[0]
    at = raw.find(pattern)
    while at >= 0:
        row = int(np.searchsorted(ends, at, side="right"))
        has_text[row] |= at + len(pattern) <= ends[row]
        # It may begin in one body and end in the next.
        at = raw.find(pattern, int(ends[row]) if has_text[row] else at + 1)
    return has_text


def _offsets(bodies: "pa.Array") -> "npt.NDArray[np.int32]":
    import numpy as np

    offsets = np.frombuffer(bodies.buffers()[1], np.int32)
    return offsets[bodies.offset : bodies.offset + len(bodies) + 1]


def _not_plain(bodies: "pa.Array") -> "npt.NDArray[np.bool_]":
    """Return which of an array of bodies are not surely plain text."""
    import numpy as np

    count = len(bodies)
    unsure = np.zeros(count, np.bool_)
    content = bodies.buffers()[2]
    offsets = _offsets(bodies)
    if not count or content is None or offsets[0] == offsets[-1]:
        return unsure
    view = memoryview(content)[offsets[0] : offsets[-1]]
    values = np.frombuffer(view, np.uint8)
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    filled = starts[np.diff(offsets) > 0]
    first = np.zeros(count, np.uint8)
    first[np.diff(offsets) > 0] = values[filled]
    unsure |= (first == _ZLIB) | (first == _BYTE_ORDER_MARK)
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


def _mark(
    unsure: "npt.NDArray[np.bool_]", starts: "npt.NDArray[np.int64]", at: "npt.NDArray[np.int64]"
) -> None:
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
