"""The values that decoders return: of the types that JSON has, and a few more.

========================  =================================================================
value                     in JSON (`json_ready`)
========================  =================================================================
None, bool, str           the same
int                       the same; in hexadecimal, as text, where it has thousands of digits
float                     the same; NaN and infinities as text, which JSON does not have
Decimal                   its digits as text: a number of JSON would be rounded by readers
bytes                     ``{"@base64": "..."}``
datetime, date            ISO 8601
dict with text as names   an object, in the order stored
list                      an array
========================  =================================================================

An object of a class has its name as ``"@type"``, first, as fastjson writes it. What is there twice
in a graph of objects is shown where it comes first, and then as ``{"@same": "$.path"}``.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final, TypeAlias

from rocketlens import limits
from rocketlens.errors import BodyTooLarge

Tree: TypeAlias = Any
"""A value of the table above. Typed no closer: each use would have to look at it again anyway."""

TYPE: Final = "@type"
SAME: Final = "@same"
BASE64: Final = "@base64"


def json_ready(value: Tree) -> Any:
    """Return a value as ``json.dumps`` takes it, after the table above."""
    if isinstance(value, dict):
        return {name: json_ready(each) for name, each in value.items()}
    if isinstance(value, list):
        return [json_ready(each) for each in value]
    if isinstance(value, int) and value.bit_length() > limits.MAX_DECIMAL_BITS:
        return hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return {BASE64: base64.b64encode(value).decode("ascii")}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value


def scaled(unscaled: int, scale: int) -> Decimal:
    """Return an integer with a decimal point so many digits from its right, none of them lost."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def untangled(value: Tree) -> Tree:
    """Return a tree of a graph: lists and dicts stay where they come first, and where they come
    again there is a note instead that names the place, as ``{"@same": "$.items[0]"}``.
    """
    paths: dict[int, str] = {}

    def copy(each: Tree, path: str) -> Tree:
        if not isinstance(each, dict | list):
            return each
        if (first := paths.get(id(each))) is not None:
            return {SAME: first}
        paths[id(each)] = path
        if isinstance(each, list):
            return [copy(item, f"{path}[{index}]") for index, item in enumerate(each)]
        return {name: copy(item, f"{path}.{name}") for name, item in each.items()}

    return copy(value, "$")


def name_text(name: Tree) -> str:
    """Return the text by which a member is named whose name is another value, such as a number."""
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        return name.decode("utf-8", "backslashreplace")
    if name is None or isinstance(name, bool):
        return {None: "null", True: "true", False: "false"}[name]
    if isinstance(name, date):
        return name.isoformat()
    if isinstance(name, dict | list):
        import json

        return json.dumps(json_ready(name), ensure_ascii=False, separators=(",", ":"))
    return str(name)


def tree_of(value: Any, other: Callable[[Any], Tree]) -> Tree:
    """Return what a library decoded, as a tree, within the bounds.

    ``other`` returns the tree of values of the library's own types, whose parts are then treated
    as the rest.

    :raises BodyTooLarge: when it has more values or levels than are decoded; one that holds itself
        has levels without end.
    """
    budget = limits.MAX_DECODED_VALUES

    def copy(each: Any, levels: int) -> Tree:
        nonlocal budget
        budget -= 1
        if budget < 0:
            raise BodyTooLarge(f"it has more than {limits.MAX_DECODED_VALUES} values")
        if each is None or isinstance(each, bool | int | float | str | bytes | Decimal | date):
            return each
        if not levels:
            raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        if isinstance(each, Mapping):
            return {
                name_text(copy(name, levels - 1)): copy(item, levels - 1)
                for name, item in each.items()
            }
        # By their own types: a library's tuple with names is one of its types.
        if type(each) in (list, tuple, set, frozenset):
            return [copy(item, levels - 1) for item in each]
        return copy(other(each), levels - 1)

    return copy(value, limits.MAX_DECODED_LEVELS)
