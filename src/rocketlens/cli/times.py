"""Times as people write and read them; inside they are epoch milliseconds."""

import re
import time
from typing import Final

from rocketlens import limits
from rocketlens.cli.output import note
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
_EARLY_MS: Final = 100_000_000_000  # in March 1973; in seconds it is the year 5138
_LONGEST_TEXT: Final = 64


def parse_time(text: str, option: str, *, is_end: bool, now_ms: int | None = None) -> int:
    """Give the epoch milliseconds that a text means.

    ``2h`` is two hours before now; without a zone it is local time; a day alone is its first
    millisecond, or with ``is_end`` its last. RocketMQ's ``yyyy-MM-dd#HH:mm:ss:SSS`` is read, too.

    :raises BadInput: when it means none, naming ``option``.
    """
    word = text.strip()
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if len(word) > _LONGEST_TEXT:
        raise _no_time(text, option)
    if word.isascii() and word.isdigit():
        return _epoch_ms(int(word), option)
    if word == "now":
        return now_ms
    ago = _AGO.match(word)
    if ago:
        if ago[2] not in _UNIT_MS:
            raise _no_time(text, option)
        return max(0, now_ms - round(float(ago[1]) * _UNIT_MS[ago[2]]))
    return _calendar_ms(word, option, is_end=is_end)


def _epoch_ms(number: int, option: str) -> int:
    if number > limits.MAX_TIMESTAMP_MS:
        raise _no_time(str(number), option)
    if 1_000_000 < number < _EARLY_MS:
        note(f"{option} {number} is read as milliseconds, so it means {time_text(number)}")
    return number


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
        raise _no_time(word, option) from error
    return max(0, (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def _no_time(text: str, option: str) -> BadInput:
    return BadInput(
        f"{option} {text[:40]!r} is no time: write 2h, 30m, 3d, 2026-11-20, 2026-11-20T10:31:02, "
        "or epoch milliseconds"
    )


def time_text(epoch_ms: int) -> str:
    """Give local time to the millisecond; the number itself where the calendar ends.

    The numbers in a damaged or forged record can be any.
    """
    try:
        local = time.localtime(epoch_ms // 1000)
    except (OverflowError, OSError, ValueError):
        return f"{epoch_ms} ms"
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', local)}.{epoch_ms % 1000:03d}"


def zone_text(epoch_ms: int) -> str:
    """Give the offset of local time at a moment, as ``+08:00``."""
    try:
        seconds = time.localtime(epoch_ms // 1000).tm_gmtoff
    except (OverflowError, OSError, ValueError):
        seconds = time.localtime().tm_gmtoff
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{abs(seconds) // 3600:02d}:{abs(seconds) // 60 % 60:02d}"


def iso_text(epoch_ms: int) -> str:
    """Give local time with its zone, as ISO 8601."""
    text = time_text(epoch_ms)
    if text.endswith("ms"):
        return text
    return text.replace(" ", "T") + zone_text(epoch_ms)
