"""Values in the body of a message, as the paths of a filter select them."""

import json
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Final

from rocketlens import limits
from rocketlens.decode.tree import Tree, json_ready
from rocketlens.model.sql92 import Long, Value

MAX_FILTER_VALUES: Final = 10_000
"""Values of one body that one path of a filter selects."""
ALL: Final = None
"""The step of a path that every element takes."""
Step = str | int | None


class BodyUnread(Exception):
    """A body that a filter needs and that could not be looked at; the text says why."""


def value_at(tree: Tree, steps: Sequence[Step]) -> Tree:
    """Return the value at the end of a path; None if there is none."""
    for step in steps:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int):
            tree = tree[step] if -len(tree) <= step < len(tree) else None
        else:
            return None
    return tree


def values_at(tree: Tree, steps: Sequence[Step], path: str) -> tuple[Value, ...]:
    """Return the values that a path with ``*`` selects, without those that are null.

    :raises BodyUnread: if they are more than MAX_FILTER_VALUES.
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
    """Return a value of a body as expressions compare it; objects and arrays as their JSON."""
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
    """Return an integer as Java's Integer or Long; beyond those, as the nearest Double."""
    if -limits.MAX_INT - 1 <= number <= limits.MAX_INT:
        return int(number)
    if -limits.MAX_LONG - 1 <= number <= limits.MAX_LONG:
        return Long(number)
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
