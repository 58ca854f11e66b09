"""Times as people write and read them; elsewhere they are epoch milliseconds."""

import time
from typing import Final

from rocketlens.model.text import time_words

TIMES_HELP: Final = (
    "times: 2h, 30m, 1d12h (that long ago), now, today, yesterday, 10:31, 2026-11-20,\n"
    "2026-11-20T10:31:02.114+08:00 (without a zone: local time), 20261120103102, epoch\n"
    "seconds or milliseconds. A day alone means the whole day."
)


def parse_time(text: str, option: str, *, is_end: bool, now_ms: int | None = None) -> int:
    """Return the epoch milliseconds of a text, as `rocketlens.model.text.time_words` does.

    ``now_ms`` is what the clock shows, unless it is given.

    :raises BadInput: for a text that is not a time; ``option`` names it in the message.
    """
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return time_words.parse_time(text, option, is_end=is_end, now_ms=now_ms)


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
