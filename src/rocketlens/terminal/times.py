"""Times as people write and read them; elsewhere they are epoch milliseconds."""

import re
import time
from typing import Final

from rocketlens.errors import BadInput

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_AGO: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]{1,3})\Z", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_ROCKETMQ: Final = re.compile(r"(\d{4}-\d{2}-\d{2})#(\d{2}:\d{2}:\d{2}):(\d{3})\Z")
_CALENDAR_DIGITS: Final = {
    8: "{}-{}-{}",
    12: "{}-{}-{}T{}:{}",
    14: "{}-{}-{}T{}:{}:{}",
    17: "{}-{}-{}T{}:{}:{}.{}",
}
"""``yyyyMMdd`` and longer: RocketMQ names index files ``yyyyMMddHHmmssSSS``."""
_EPOCH_DIGITS: Final = {10: (1, 1_000), 13: (1, 1), 16: (1_000, 1), 19: (1_000_000, 1)}
"""By the number of digits, what epoch seconds, ms, us and ns are divided and multiplied by."""
_MAX_TEXT_CHARACTERS: Final = 64
TIMES_HELP: Final = (
    "times: 2h, 30m, 3d (that long ago), now, 2026-11-20, 2026-11-20T10:31:02.114+08:00 (without "
    "a zone:\nlocal time), 20261120103102, epoch seconds or milliseconds. A day alone means the "
    "whole day."
)


def parse_time(text: str, option: str, *, is_end: bool, now_ms: int | None = None) -> int:
    """Return the epoch milliseconds that a text means.

    ==========================  ===============================================================
    text                        meaning
    ==========================  ===============================================================
    ``now``, ``2h``, ``90s``    now; two hours ago; likewise ms, m or min, d, w
    ISO 8601                    local time unless it has a zone
    ``yyyy-MM-dd#HH:mm:ss:SSS``  the form of RocketMQ's own tool
    ``yyyyMMdd[HHmm[ss[SSS]]]``  8, 12, 14 or 17 digits
    10, 13, 16 or 19 digits     epoch seconds, milliseconds, microseconds, nanoseconds
    ==========================  ===============================================================

    A day alone is its first millisecond, or with ``is_end`` its last.

    :raises BadInput: for any other text; ``option`` names it in the message.
    """
    word = text.strip()
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if len(word) > _MAX_TEXT_CHARACTERS:
        raise _not_a_time(text, option)
    if word.isascii() and word.isdigit():
        return _of_digits(word, option, is_end=is_end)
    if word == "now":
        return now_ms
    ago = _AGO.match(word)
    if ago:
        if ago[2] not in _UNIT_MS:
            raise _not_a_time(text, option)
        return max(0, now_ms - round(float(ago[1]) * _UNIT_MS[ago[2]]))
    return _calendar_ms(word, option, is_end=is_end)


def _of_digits(digits: str, option: str, *, is_end: bool) -> int:
    """Return the time of a text of digits; how many they are decides their meaning.

    Epoch times cover the years 2001 to 2286, so no two forms have the same number of digits.
    """
    number = int(digits)
    if number == 0:
        return 0
    calendar = _CALENDAR_DIGITS.get(len(digits))
    if calendar is not None:
        fields = re.fullmatch(r"(....)(..)(..)(..)?(..)?(..)?(...)?", digits)
        assert fields is not None  # noqa: S101 - `_CALENDAR_DIGITS` has only such lengths
        return _calendar_ms(calendar.format(*fields.groups()), option, is_end=is_end)
    divisor, factor = _EPOCH_DIGITS.get(len(digits), (0, 0))
    if not divisor:
        raise _not_a_time(digits, option)
    return number * factor // divisor


def _calendar_ms(word: str, option: str, *, is_end: bool) -> int:
    from datetime import UTC, datetime, timedelta

    iso = _ROCKETMQ.sub(r"\1T\2.\3", word)
    try:
        moment = datetime.fromisoformat(iso).astimezone()
        if is_end and _DAY.match(iso):
            # Not 24 hours later: a day with a change of clocks is longer or shorter.
            next_day = datetime.fromisoformat(iso) + timedelta(days=1)
            moment = next_day.astimezone() - timedelta(milliseconds=1)
    except (ValueError, OverflowError, OSError) as error:
        raise _not_a_time(word, option) from error
    return max(0, (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def _not_a_time(text: str, option: str) -> BadInput:
    return BadInput(
        f"{option} {text[:40]!r} is not a time: expected 2h, 30m, 3d, 2026-11-20, "
        "2026-11-20T10:31:02, 20261120103102, or epoch seconds or milliseconds"
    )


def time_text(epoch_ms: int) -> str:
    """Return local time to the millisecond, or the number itself if it is beyond the calendar.

    A damaged or forged record can have any number.
    """
    try:
        local = time.localtime(epoch_ms // 1000)
    except (OverflowError, OSError, ValueError):
        return f"{epoch_ms} ms"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', local)}.{epoch_ms % 1000:03d}"


def zone_text(epoch_ms: int) -> str:
    """Return the offset of local time at a moment, as ``+08:00``."""
    try:
        seconds = time.localtime(epoch_ms // 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        seconds = time.localtime().tm_gmtoff
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{abs(seconds) // 3600:02d}:{abs(seconds) // 60 % 60:02d}"


def iso_text(epoch_ms: int) -> str:
    """Return local time with its zone, as ISO 8601."""
    text = time_text(epoch_ms)
    if text.endswith("ms"):
        return text
    return text.replace(" ", "T") + zone_text(epoch_ms)


def range_text(begin: int | None, end: int | None) -> str:
    """Return a range of store times as it was read: both ends to the millisecond, with zone."""
    first = "" if begin is None else f"{time_text(begin)} {zone_text(begin)}"
    last = "" if end is None else f"{time_text(end)} {zone_text(end)}"
    if first and last:
        return f"stored from {first} to {last}"
    return f"stored at or after {first}" if first else f"stored at or before {last}"
