"""The view of a list: sorted by one of its columns, and read again every few seconds.

Both are in the address of its page, so a link has them, and neither needs a script to be read. What
could not be learnt stands last, however a list is sorted.

A list of messages that is not sorted has them from the newest to the oldest. Records with one
message id stand in the place of the newest of them: the one that groups of the topic read first,
then retries, dead letters and delayed copies by time.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import Request

from rocketlens import limits
from rocketlens.console.search.columns import own_values
from rocketlens.console.values import GroupValue, MessageRow, TopicValue

T = TypeVar("T")
SORT: Final = "sort"
LIVE: Final = "live"
_DESCENDING: Final = "-"
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")
_RANKS: Final = {"normal": 0, "system": 1}
"""Of topics by kind, others last: a delayed message is stored in a topic of RocketMQ's first."""


class Column(NamedTuple):
    """A column that a list can be sorted by."""

    value_of: Callable[[Any], Any]
    """Returns what rows are compared by; None is not known."""
    falls_first: bool = True
    """Whether the largest or newest is on top when it is chosen: of numbers and times."""


Columns = Mapping[str, Column]


def _count(several: Sequence[object] | None) -> int | None:
    return None if several is None else len(several)


def _topic_columns() -> Columns:
    topic: Callable[[Callable[[TopicValue], Any]], Column] = Column
    return {
        "name": Column(lambda each: each.name, falls_first=False),
        "source": Column(lambda each: each.source, falls_first=False),
        "queues": topic(lambda each: _count(each.queues)),
        "messages": topic(lambda each: each.messages),
        "waiting": topic(lambda each: each.waiting),
        "oldest": topic(lambda each: each.oldest_ms),
        "newest": topic(lambda each: each.newest_ms),
        "size": topic(lambda each: each.size_bytes),
    }


def _group_columns() -> Columns:
    group: Callable[[Callable[[GroupValue], Any]], Column] = Column
    return {
        "name": Column(lambda each: each.name, falls_first=False),
        "source": Column(lambda each: each.source, falls_first=False),
        "members": group(lambda each: _count(each.members)),
        "model": Column(lambda each: each.message_model, falls_first=False),
        "lag": group(lambda each: each.lag),
        "to_retry": group(lambda each: each.to_retry),
        "dead_letters": group(lambda each: each.dead_letters),
        "last_consumed": group(lambda each: each.last_consumed_ms),
    }


def message_columns(chosen: Sequence[str] = ()) -> Columns:
    """Return the columns of a list of messages, those among them that a reader chose."""
    message: Callable[[Callable[[MessageRow], Any]], Column] = Column
    return {
        "time": message(lambda each: each.store_timestamp_ms),
        "topic": Column(lambda each: each.topic, falls_first=False),
        "position": Column(lambda each: (each.queue_id, each.queue_offset), falls_first=False),
        "tag": Column(lambda each: each.tags, falls_first=False),
        "keys": Column(lambda each: each.keys[0] if each.keys else None, falls_first=False),
        "size": message(lambda each: each.body_bytes),
        "born": message(lambda each: each.born_timestamp_ms),
        "id": Column(lambda each: each.msg_id, falls_first=False),
        **{name: _value_column(name) for name in own_values(chosen)},
    }


def _value_column(name: str) -> Column:
    """Return the column of a property or a field: numbers are compared as such, before texts."""

    def value_of(each: MessageRow) -> tuple[bool, float, str] | None:
        text = each.values.get(name)
        if text is None:
            return None
        number = float(text) if _NUMBER.fullmatch(text) else None
        return (number is None, number or 0.0, text)

    return Column(value_of, falls_first=False)


TOPIC_COLUMNS: Final = _topic_columns()
GROUP_COLUMNS: Final = _group_columns()


class ListView:
    """The view of the list of one request."""

    def __init__(self, request: Request, columns: Columns, path: str = "") -> None:
        """Take what the address of a request has; a column that the list lacks is none.

        ``path`` is that of the page which links lead to; empty: the request's own.
        """
        self._path: Final = path or request.url.path
        self._parameters: Final = request.query_params.multi_items()
        self._columns: Final = columns
        sort = request.query_params.get(SORT, "")
        name = sort.removeprefix(_DESCENDING)
        self.sort: Final = sort if name in columns else ""
        """The column, behind a minus if its largest value is first; empty: the usual order."""
        self.is_live: Final = request.query_params.get(LIVE) == "true"
        self.every_s: Final = limits.CONSOLE_REFRESH_S

    def order_of(self, column: str) -> Literal["", "ascending", "descending"]:
        """Return how the list is sorted by a column."""
        if self.sort.removeprefix(_DESCENDING) != column:
            return ""
        return "descending" if self.sort.startswith(_DESCENDING) else "ascending"

    def sort_address(self, column: str) -> str:
        """Return the address that sorts by a column, or by it the other way round."""
        order = self.order_of(column)
        falls = order == "ascending" or (not order and self._columns[column].falls_first)
        return self._address(SORT, f"{_DESCENDING}{column}" if falls else column)

    @property
    def live_address(self) -> str:
        """The address that begins to ask the list again, or ends it."""
        return self._address(LIVE, "" if self.is_live else "true")

    def sorted(self, rows: Sequence[T]) -> list[T]:
        """Return the rows of the list in its order: O(n log n)."""
        if not self.sort:
            return list(rows)
        value_of = self._columns[self.sort.removeprefix(_DESCENDING)].value_of
        with_value = [each for each in rows if value_of(each) is not None]
        without_value = [each for each in rows if value_of(each) is None]
        with_value.sort(key=value_of, reverse=self.sort.startswith(_DESCENDING))
        return with_value + without_value

    def _address(self, name: str, value: str) -> str:
        kept = [(each, text) for each, text in self._parameters if each != name]
        query = urlencode([*kept, *([(name, value)] if value else [])])
        return f"{self._path}?{query}" if query else self._path


class ListedRow(NamedTuple):
    """A row of a page."""

    row: MessageRow
    is_copy: bool
    """Whether it is of the same message as the row above."""


def with_copies(rows: Iterable[MessageRow]) -> list[ListedRow]:
    """Return the rows of a page in the order in which it shows them: O(n log n)."""
    records: dict[str, list[MessageRow]] = {}
    for row in rows:
        records.setdefault(row.unique_key or row.path, []).append(row)
    return [
        ListedRow(row, number > 0)
        for each in records.values()
        for number, row in enumerate(sorted(each, key=_rank))
    ]


def _rank(row: MessageRow) -> tuple[int, int]:
    return _RANKS.get(row.topic_kind, 2), row.store_timestamp_ms


def listed_rows(rows: Sequence[MessageRow], view: ListView | None) -> list[ListedRow]:
    """Return the rows of a page as it shows them: copies together, unless it is sorted."""
    if view is None or not view.sort:
        return with_copies(rows)
    return [ListedRow(each, is_copy=False) for each in view.sorted(rows)]
