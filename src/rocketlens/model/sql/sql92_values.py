"""Values of SQL92 expressions as Java has them: how they are compared and converted.

A text that is compared with a number or a truth value becomes one, or the evaluation fails. Source:
``ComparisonExpression``.
"""

import re
from collections.abc import Callable
from typing import Final

from rocketlens import limits
from rocketlens.errors import BadInput

Value = str | int | float | bool | None
"""A value as Java has it: ``int`` is its Integer, and `Long` its Long."""


class EvaluationFailed(BadInput):
    """Values that cannot be compared: no message passes for which that happens."""


class Long(int):
    """Java's Long."""


def compare(left: Value, right: Value) -> int:
    """Return a number below, at or above 0, as two values are in order.

    :raises EvaluationFailed: when one is a text that is not a value of the other's type.
    """
    if type(left) is not type(right):
        if type(left) is bool:
            if type(right) is str:
                raise EvaluationFailed("a condition and a text cannot be compared in this order")
            return -1
        if type(left) is str:
            left = _CONVERSIONS[type(right)](left)
        elif type(right) is bool:
            return -1
        elif type(right) is str:
            right = _CONVERSIONS[type(left)](right)
        elif type(left) is float or type(right) is float:
            left, right = float(left or 0), float(right or 0)
    if type(left) is float and type(right) is float:
        return _compare_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _compare_doubles(left: float, right: float) -> int:
    """Compare as Java's Double does: NaN equals itself, and is above all."""
    if left != left or right != right:  # noqa: PLR0124 - NaN
        return (left != left) - (right != right)  # noqa: PLR0124
    if left == right == 0:
        # 0.0 is above -0.0.
        return (str(left) == "0.0") - (str(right) == "0.0")
    return (left > right) - (left < right)


_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL_REAL: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
_HEXADECIMAL_REAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED_REAL: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


def _integer(text: str, largest: int) -> int:
    """Read what Integer.valueOf and Long.valueOf read: any decimal digits of one UTF-16 unit."""
    if _INTEGER.fullmatch(text) and max(text) <= "\uffff":
        digits = text.lstrip("+-").lstrip("0")[:40]
        number = int(digits or "0")
        number = -number if text[0] == "-" else number
        if -largest - 1 <= number <= largest:
            return number
    raise EvaluationFailed(f"{text[:60]!r} is no integer of this size")


def double(text: str) -> float:
    """Read what Double.valueOf reads."""
    stripped = text.strip(_JAVA_BLANKS)
    match = _DECIMAL_REAL.fullmatch(stripped)
    if match:
        return float(match[1])
    match = _HEXADECIMAL_REAL.fullmatch(stripped)
    if match:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if stripped[0] == "-" else "inf")
    if _NAMED_REAL.fullmatch(stripped):
        return float(stripped)
    raise EvaluationFailed(f"{text[:60]!r} is no number")


_CONVERSIONS: Final[dict[type, Callable[[str], Value]]] = {
    bool: lambda text: text.lower() == "true",
    int: lambda text: _integer(text, limits.MAX_INT),
    Long: lambda text: Long(_integer(text, limits.MAX_LONG)),
    float: double,
}
