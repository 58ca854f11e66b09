"""The columns and the order of lists.

==========================  ====================================================================
column                      value
==========================  ====================================================================
``topic`` ``position``      where the message is
``tag`` ``keys`` ``id``     set by the producer; ``id`` is the message id
``born``                    when it was sent; each list begins with the store time
``body`` ``size``           the beginning of the body, and its bytes
``prop.NAME``               a property
``body.$.NAME``             a field of a body that is JSON, or can be shown as JSON
any other field             of `rocketlens.model.fields`
==========================  ====================================================================

The address of a list has its columns, its sort order, and whether it refreshes itself, so links
keep all three and no script is needed. Unknown values are last in any order.

An unsorted list of messages is newest first. Records with the same message id follow the newest of
them: first the one of an ordinary topic, then delayed copies, retries and dead letters by time.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import Request

from rocketlens import limits
from rocketlens.console.values import MessageRow
from rocketlens.decode.bodies import DecodedBody
from rocketlens.decode.tree import FIELD_PATH, field_text
from rocketlens.errors import BadInput
from rocketlens.model.fields import FIELDS, NAMES, property_name
from rocketlens.model.message import MessageExt
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import Sentence
from rocketlens.terminal.message_values import AS_IT_IS, shown

MAX_CONSOLE_COLUMNS: Final = 12
"""Columns of a list of messages, besides the time."""
CONSOLE_REFRESH_S: Final = 10.0
"""Seconds between two refreshes of a live list."""
USUAL: Final = ("topic", "position", "tag", "keys", "body", "size")
"""The default columns."""
NAMED: Final = (*USUAL, "born", "id")
_NAMED_OF: Final = {NAMES[name]: name for name in NAMED}
"""The columns with a layout of their own, by field."""


def columns_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the columns in texts with commas; empty for the default columns.

    :raises BadInput: if a column is unknown, or there are too many.
    """
    names = dict.fromkeys(each.strip() for text in texts for each in text.split(","))
    columns = tuple(dict.fromkeys(_NAMED_OF.get(NAMES.get(e, ""), e) for e in names if e))
    for each in columns:
        if not (each in NAMES or property_name(each) or FIELD_PATH.fullmatch(each)):
            fields = ", ".join(FIELDS)
            raise BadInput(Sentence("unknown_column", name=repr(each[:80]), names=fields))
    if len(columns) > MAX_CONSOLE_COLUMNS:
        raise BadInput(Sentence("many_columns", count=len(columns), limit=MAX_CONSOLE_COLUMNS))
    return columns if columns != USUAL else ()


def value_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns that are shown as plain texts."""
    return [each for each in columns if each not in NAMED]


def value_in(message: MessageExt, decoded: DecodedBody | None, column: str) -> str | None:
    """Return the value of a text column, safe to show; None if the message has none.

    ``decoded`` is the body, or None if it is too large for a list.
    """
    if FIELD_PATH.fullmatch(column):
        text = None if decoded is None else decoded.as_json()
        value = None if text is None else field_text(text, column)
    else:
        value = str(shown(message, column, AS_IT_IS)) or None
    return None if value is None else preview_of(value)


def preview_of(text: str) -> str:
    """Return the beginning of a text, safe to show."""
    if len(text) > limits.MAX_PREVIEW_CHARACTERS:
        text = text[: limits.MAX_PREVIEW_CHARACTERS - 1] + "…"
    return printable(text)


T = TypeVar("T")
SORT: Final = "sort"
LIVE: Final = "live"
_DESCENDING: Final = "-"
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")


class Column(NamedTuple):
    """A column that can sort a list."""

    value_of: Callable[[Any], Any]
    """The sort key of a row; None if unknown."""
    falls_first: bool = True
    """True if the first click sorts in descending order: for numbers and times."""


Columns = Mapping[str, Column]


def _descending(**attributes: str) -> Columns:
    """Return columns of numbers and times by attribute. A list counts by its length."""
    return {name: Column(partial(_size_or_value, each)) for name, each in attributes.items()}


def _ascending(**attributes: str) -> Columns:
    """Return columns of texts by attribute."""
    return {name: Column(attrgetter(each), falls_first=False) for name, each in attributes.items()}


def _size_or_value(attribute: str, row: object) -> Any:
    value = getattr(row, attribute)
    return len(value) if isinstance(value, list) else value


TOPIC_COLUMNS: Final = {
    **_ascending(name="name", source="source"),
    **_descending(
        queues="queues",
        messages="messages",
        waiting="waiting",
        oldest="oldest_ms",
        newest="newest_ms",
        size="size_bytes",
    ),
}
GROUP_COLUMNS: Final = {
    **_ascending(name="name", source="source", model="message_model"),
    **_descending(
        members="members",
        lag="lag",
        behind="behind_ms",
        to_retry="to_retry",
        dead_letters="dead_letters",
        last_consumed="last_consumed_ms",
    ),
}
_MESSAGE_COLUMNS: Final = {
    **_ascending(topic="topic", tag="tags", id="msg_id"),
    **_descending(time="store_timestamp_ms", size="body_bytes", born="born_timestamp_ms"),
    "position": Column(attrgetter("queue_id", "queue_offset"), falls_first=False),
    "keys": Column(lambda each: next(iter(each.keys or ()), None), falls_first=False),
}


def message_columns(chosen: Sequence[str] = ()) -> Columns:
    """Return the columns that sort a list of messages, with the chosen ones."""
    return {**_MESSAGE_COLUMNS, **{name: _value_column(name) for name in value_columns(chosen)}}


def _value_column(name: str) -> Column:
    """Return the column of a property or a field. Numbers compare as numbers, before texts."""

    def value_of(each: MessageRow) -> tuple[bool, float, str] | None:
        text = each.values.get(name)
        if text is None:
            return None
        number = float(text) if _NUMBER.fullmatch(text) else None
        return (number is None, number or 0.0, text)

    return Column(value_of, falls_first=False)


class ListView:
    """The sort order and the refresh of the list of one request."""

    def __init__(self, request: Request, columns: Columns, path: str = "") -> None:
        """Read ``sort`` and ``live`` from the request. Unknown columns are ignored.

        :param path: The page of the list's links; empty for that of the request.
        """
        self._path: Final = path or request.url.path
        self._parameters: Final = request.query_params.multi_items()
        self._columns: Final = columns
        sort = request.query_params.get(SORT, "")
        name = sort.removeprefix(_DESCENDING)
        self.sort: Final = sort if name in columns else ""
        """The column, with a minus for descending order; empty for the default order."""
        self.is_live: Final = request.query_params.get(LIVE) == "true"
        self.every_s: Final = CONSOLE_REFRESH_S

    def order_of(self, column: str) -> Literal["", "ascending", "descending"]:
        if self.sort.removeprefix(_DESCENDING) != column:
            return ""
        return "descending" if self.sort.startswith(_DESCENDING) else "ascending"

    def sort_address(self, column: str) -> str:
        """Return the address that sorts by a column, or reverses its order."""
        order = self.order_of(column)
        falls = order == "ascending" or (not order and self._columns[column].falls_first)
        return self._address(SORT, f"{_DESCENDING}{column}" if falls else column)

    @property
    def live_address(self) -> str:
        """The address that starts or stops the refresh."""
        return self._address(LIVE, "" if self.is_live else "true")

    def sorted(self, rows: Sequence[T]) -> list[T]:
        """Return the rows in the list's order. O(n log n)."""
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
    """True if it is a record of the same message as the row above."""


def with_copies(rows: Iterable[MessageRow]) -> list[ListedRow]:
    records: dict[str, list[MessageRow]] = {}
    for row in rows:
        records.setdefault(row.unique_key or row.path, []).append(row)
    return [
        ListedRow(row, number > 0)
        for each in records.values()
        for number, row in enumerate(_in_time(each))
    ]


def _in_time(rows: list[MessageRow]) -> list[MessageRow]:
    rows.sort(key=attrgetter("store_timestamp_ms"))
    first = next((each for each in rows if each.topic_kind == "normal"), rows[0])
    return [first, *(each for each in rows if each is not first)]


def listed_rows(rows: Sequence[MessageRow], view: ListView | None) -> list[ListedRow]:
    """Return the rows of a page in its order; without a sort order, copies are together."""
    if view is None or not view.sort:
        return with_copies(rows)
    return [ListedRow(each, is_copy=False) for each in view.sorted(rows)]
