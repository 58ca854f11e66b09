"""Checks the types of arguments: not all callers use a type checker."""

from typing import TYPE_CHECKING, Final

from rocketlens.errors import BadInput, WrongType

if TYPE_CHECKING:
    from datetime import datetime

LIKELY_SECONDS: Final = range(100_000_000, 100_000_000_000)
"""Epoch seconds from March 1973 to the year 5138. As milliseconds these numbers end in March 1973,
long before RocketMQ."""


def check_text(value: object, name: str) -> str:
    """Return `value` if it is a str.

    :raises WrongType: otherwise.
    """
    if not isinstance(value, str):
        raise wrong_type(value, name, "a str")
    return value


def wrong_type(value: object, name: str, instead: str) -> WrongType:
    """Return the error for an argument `name` that must be `instead`, such as "a str"."""
    return WrongType(f"{name} must be {instead}, not {type(value).__name__}")


def check_int(value: object, name: str) -> int:
    """Return `value` if it is an int but not a bool.

    :raises WrongType: otherwise.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(value, name, "an int")
    return value


def epoch_ms(value: "int | datetime", name: str) -> int:
    """Return a time in epoch milliseconds: an int is returned as it is, a datetime is converted.

    A datetime without a time zone is local time.

    :raises WrongType: if it has another type, such as the float of ``time.time()``.
    :raises BadInput: if a number is in the range of epoch seconds.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if value in LIKELY_SECONDS:
            raise BadInput(
                f"{name}={value} looks like epoch seconds; times are epoch milliseconds: "
                f"pass {value * 1000}, or a datetime"
            )
        return value
    from datetime import UTC, datetime, timedelta

    if not isinstance(value, datetime):
        hint = ": time.time() is in seconds" if isinstance(value, float) else ""
        raise wrong_type(
            value, name, f"an int of epoch milliseconds, a datetime, or a text such as '2h'{hint}"
        )
    since = value.astimezone() - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)
