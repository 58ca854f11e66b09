"""Parses times that people type."""

import re
from typing import Final

from rocketlens.errors import BadInput
from rocketlens.model.text.sentences import Sentence

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_WORDS: Final = {"second": "s", "sec": "s", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_SPAN: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]{1,7})", re.ASCII)
_SPANS: Final = re.compile(
    rf"in\s+(?:{_SPAN.pattern}\s*){{1,8}}|-?(?:{_SPAN.pattern}\s*){{1,8}}?(?:\s*ago)?", re.ASCII
)
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
_TIME_OF_DAY: Final = re.compile(r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?\Z", re.ASCII)
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_ROCKETMQ: Final = re.compile(r"(\d{4}-\d{2}-\d{2})#(\d{2}:\d{2}:\d{2}):(\d{3})\Z")
_CALENDAR_DIGITS: Final = {
    8: "{}-{}-{}",
    12: "{}-{}-{}T{}:{}",
    14: "{}-{}-{}T{}:{}:{}",
    17: "{}-{}-{}T{}:{}:{}.{}",
}
"""By number of digits. RocketMQ names index files ``yyyyMMddHHmmssSSS``."""
_EPOCH_DIGITS: Final = {10: (1, 1_000), 13: (1, 1), 16: (1_000, 1), 19: (1_000_000, 1)}
"""Divisor and factor that convert epoch seconds, ms, µs and ns to ms, by number of digits."""
_MAX_TEXT_CHARACTERS: Final = 64


def parse_time(text: str, option: str, *, is_end: bool, now_ms: int) -> int:
    """Parse a time, and return epoch milliseconds.

    ==========================  ===============================================================
    text                        meaning
    ==========================  ===============================================================
    ``now``, ``2h``, ``90s``    now; two hours ago; units are ms, s, m or min, h, d, w
    ``10 minutes ago``          units are seconds, minutes, hours, days, weeks
    ``1d12h``, ``2h ago``       combined units, with or without "ago"
    ``-2h``                     two hours ago, as some tools write it
    ``in 2h``                   two hours from now
    ``today``, ``yesterday``    that day, in local time
    ``10:31``, ``10:31:02``     today at that time
    ISO 8601                    local time unless it has a zone
    ``yyyy-MM-dd#HH:mm:ss:SSS``  the format of RocketMQ's tool
    ``yyyyMMdd[HHmm[ss[SSS]]]``  8, 12, 14 or 17 digits
    10, 13, 16 or 19 digits     epoch seconds, milliseconds, microseconds, nanoseconds
    ==========================  ===============================================================

    A day alone is its first millisecond, or its last with ``is_end``. ``now_ms`` is the current
    time.

    :raises BadInput: if the text has another form; the message names ``option``.
    """
    word = text.strip()
    if len(word) > _MAX_TEXT_CHARACTERS:
        raise _not_a_time(text, option)
    if word.isascii() and word.isdigit():
        return _of_digits(word, option, is_end=is_end)
    if word == "now":
        return now_ms
    if _SPANS.fullmatch(word):
        spans = _SPAN.findall(word.removesuffix("ago"))
        units = [_WORDS.get(unit.removesuffix("s"), unit) for _, unit in spans]
        if not spans or not all(unit in _UNIT_MS for unit in units):
            raise _not_a_time(text, option)
        numbers = (float(number) for number, _ in spans)
        span_ms = sum(
            round(number * _UNIT_MS[unit]) for number, unit in zip(numbers, units, strict=True)
        )
        return now_ms + span_ms if word.startswith("in") else max(0, now_ms - span_ms)
    return _calendar_ms(_with_day(word, now_ms), option, is_end=is_end)


def _with_day(word: str, now_ms: int) -> str:
    """Return ``today``, ``yesterday`` or a time of today in ISO 8601, other words unchanged."""
    days_ago = _DAYS_AGO.get(word)
    if days_ago is None and not _TIME_OF_DAY.match(word):
        return word
    from datetime import UTC, datetime, timedelta

    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().date()
    if days_ago is None:
        return f"{today}T{word}"
    return str(today - timedelta(days=days_ago))


def _of_digits(digits: str, option: str, *, is_end: bool) -> int:
    """Parse a number; the count of its digits determines its format.

    Epoch times cover the years 2001 to 2286, so the counts are unambiguous.
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
            # Not 24 hours later: on a daylight saving change, a day is longer or shorter.
            next_day = datetime.fromisoformat(iso) + timedelta(days=1)
            moment = next_day.astimezone() - timedelta(milliseconds=1)
    except (ValueError, OverflowError, OSError) as error:
        raise _not_a_time(word, option) from error
    return max(0, (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def _not_a_time(text: str, option: str) -> BadInput:
    return BadInput(Sentence("not_a_time", option=option, text=repr(text[:40])))
