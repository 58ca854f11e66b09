"""Excludes rows of an archive by their columns, before messages are built.

Millions of rows are looked at a second; what is left is compared as messages of a store are
(`rocketlens.query.lookup.message_filter`), which decides. So a row is ruled out only where that
would surely leave it out, and would count nothing of it: a body that cannot be looked at, values
that cannot be compared, a message of a topic that is left out.

Topics and tags rule out rows with others. What content does is in
`rocketlens.archive.content_columns`, without which look-ups start.
"""

from typing import TYPE_CHECKING, Final

from rocketlens.model.rocketmq import is_internal_topic
from rocketlens.query.lookup.message_filter import MessageFilter
from rocketlens.query.tally import SearchTally

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketlens.archive.content_columns import Mask, ReadColumns


class ColumnFilter:
    """The part of a filter that columns can decide; see the module."""

    def __init__(self, message_filter: MessageFilter) -> None:
        """Look at a filter."""
        content, topics = message_filter.content, message_filter.record_topics
        others = (message_filter.key, message_filter.unique_key, message_filter.expression)
        # What comes before the content decides for which messages the content counts something.
        if message_filter.light or any(each is not None for each in others):
            content = None
        self._content: Final = content
        self._tally: Final = message_filter.tally or SearchTally()
        self._tags: Final = message_filter.tags
        self._topics: Final = topics if topics is not None and len(topics) > 1 else None
        self._counts_topics: Final = message_filter.leaves_out

    @property
    def decides(self) -> bool:
        """Whether anything can be ruled out."""
        return any(each is not None for each in (self._content, self._tags, self._topics))

    def may_match(self, read: "ReadColumns", within: "Mask") -> "Mask":
        """Return which rows of those ``within`` may match."""
        import pyarrow.compute as pc

        left = within.copy()
        if self._topics is not None:
            left &= _is_in(read(["topic"]), self._topics)
        # A batch may be in such a body, which is counted whatever else is in it.
        kept = left & pc.is_valid(read(["body_error"]).column(0)).to_numpy()
        if self._counts_topics:
            topics = read(["topic"]).column(0)
            internal = frozenset(filter(is_internal_topic, topics.unique().to_pylist()))
            kept |= left & _is_in(read(["topic"]), internal)
        left &= ~kept
        if self._tags is not None:
            left &= _is_in(read(["tags"]), self._tags)
        if self._content is not None:
            from rocketlens.archive.content_columns import RowsOfContent

            RowsOfContent(read, self._content, left, kept, self._tally).rule_out()
        may_match: Mask = left | kept
        return may_match


def _is_in(column: "pa.Table", texts: frozenset[str]) -> "Mask":
    """Return which rows of a table of one column have one of some texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_in: Mask = pc.is_in(column.column(0), pa.array(sorted(texts), pa.string())).to_numpy()
    return is_in
