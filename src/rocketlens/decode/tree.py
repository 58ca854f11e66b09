"""The values that decoders return: the types of JSON, and a few more.

========================  =================================================================
value                     in JSON (`json_ready`)
========================  =================================================================
None, bool, str           the same
int                       the same; as hexadecimal text if it has thousands of digits
float                     the same; NaN and infinities as text, which JSON does not have
Decimal                   its digits as text: readers of JSON would round a number
bytes                     ``{"@base64": "..."}``
datetime, date            ISO 8601
dict with text as names   an object, in the order stored
list                      an array
========================  =================================================================

An object of a class has its name as ``"@type"``, first, as fastjson writes it. Shared objects are
shown once, then as ``{"@same": "$.path"}``.
"""

import base64
import json
import math
import re
from datetime import date
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, TypeAlias

from rocketlens import limits
from rocketlens.errors import BodyTooLarge

Tree: TypeAlias = Any
"""A value of the table above. Typed as Any because callers check types at run time."""

TYPE: Final = "@type"
SAME: Final = "@same"
BASE64: Final = "@base64"

_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

FIELD: Final = "body.$"
FIELD_PATH: Final = re.compile(
    r"body\.\$(?:\.[\w@$](?:-?[\w@$])*|\[-?[0-9]{1,9}\]|\['(?:''|[^'])*'\])+"
)
"""A path such as ``body.$.orders[-1]['item no']``, which names a field of a body."""
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(-?[0-9]+)\]|\['((?:''|[^'])*)'\]")


def field_text(body_json: str, path: str) -> str | None:
    """Return the text or the JSON at a `FIELD_PATH` of a JSON body; None if there is none.

    Numbers keep their digits.
    """
    try:
        value: Any = json.loads(body_json, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    for name, index, quoted in _STEP.findall(path.removeprefix(FIELD)):
        if isinstance(value, dict):
            value = value.get(name or index or quoted.replace("''", "'"))
        elif isinstance(value, list) and index and -len(value) <= int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def json_ready(value: Tree) -> Any:
    """Convert a value for ``json.dumps``, as in the table above."""
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


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """Return ``unscaled`` / 10**``scale`` without rounding; raise ValueError if it is too long."""
    if unscaled.bit_length() > limits.MAX_DECIMAL_BITS:
        raise ValueError(f"a decimal number of {unscaled.bit_length()} bits")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def tree_of(value: Tree) -> Tree:
    """Convert a graph to a tree, within bounds.

    Lists and dicts stay at their first place. Later references become notes with that path, such as
    ``{"@same": "$.items[0]"}``.

    :raises BodyTooLarge: if it has too many values, levels or characters: a few bytes can refer to
        a long text, and often.
    """
    found_at: dict[int, tuple[int | None, str]] = {}
    values, characters = limits.MAX_BINARY_VALUES, limits.MAX_DECODED_BYTES

    def path_of(each: int | None) -> str:
        steps = []
        while each is not None:
            each, step = found_at[each]
            steps.append(step)
        return "".join(reversed(steps))

    def spend(count: int) -> None:
        nonlocal characters
        characters -= count
        if characters < 0:
            raise BodyTooLarge(f"its values have more than {limits.MAX_DECODED_BYTES} characters")

    def copy(each: Tree, parent: int | None, step: str, levels: int) -> Tree:
        nonlocal values
        values -= 1
        if values < 0:
            raise BodyTooLarge(f"it has more than {limits.MAX_BINARY_VALUES} values")
        if isinstance(each, str | bytes):
            spend(len(each))
        if not isinstance(each, dict | list):
            return each
        if not levels:
            raise BodyTooLarge(f"it is nested more than {limits.MAX_DECODED_LEVELS} levels deep")
        number = id(each)
        if number in found_at:
            same = path_of(number)
            spend(len(same))
            return {SAME: same}
        found_at[number] = parent, step
        if isinstance(each, list):
            return [copy(item, number, f"[{index}]", levels - 1) for index, item in enumerate(each)]
        tree = {}
        for name, item in each.items():
            spend(len(name))
            tree[name] = copy(item, number, f".{name}", levels - 1)
        return tree

    return copy(value, None, "$", 2 * limits.MAX_DECODED_LEVELS)


def name_text(name: Tree) -> str:
    """Return the name of a member whose name is stored as another value, such as a number."""
    if isinstance(name, str):
        return name
    if isinstance(name, bytes):
        return name.decode("utf-8", "backslashreplace")
    if name is None or isinstance(name, bool):
        return {None: "null", True: "true", False: "false"}[name]
    if isinstance(name, date):
        return name.isoformat()
    if isinstance(name, dict | list):
        return json.dumps(json_ready(tree_of(name)), ensure_ascii=False, separators=(",", ":"))
    return str(json_ready(name))
