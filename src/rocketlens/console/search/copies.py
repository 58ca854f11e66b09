"""Rows of one message together: retries, dead letters and delayed copies stand under the first.

A page has its messages from the newest to the oldest. Records with one message id are in the place
of the newest of them: the one that groups of the topic read first, then the others by time.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rocketlens.console.values import MessageRow

_RANKS: Final = {"normal": 0, "system": 1}
"""Of topics by kind, others last: a delayed message is stored in a topic of RocketMQ's first."""


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
        for number, row in enumerate(sorted(each, key=_order))
    ]


def _order(row: MessageRow) -> tuple[int, int]:
    return _RANKS.get(row.topic_kind, 2), row.store_timestamp_ms
