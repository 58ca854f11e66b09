"""Times in the zone that a reader chose; elsewhere they are epoch milliseconds."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rocketlens.errors import BadInput
from rocketlens.model.text.sentences import Sentence
from rocketlens.terminal.times import parse_time

ZONES: Final = (
    "UTC",
    "Asia/Shanghai",
    "Asia/Hong_Kong",
    "Asia/Singapore",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "Europe/London",
    "Europe/Berlin",
    "Europe/Moscow",
    "America/New_York",
    "America/Chicago",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "Australia/Sydney",
)
"""Zones that are offered; any other that is known can be chosen by its name."""
_NAME: Final = re.compile(r"[A-Za-z0-9_+/-]{1,40}\Z")
_LOCAL: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,6})?)?)?\Z", re.ASCII
)
_DAY_CHARACTERS: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def _known(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_named(name: str) -> tzinfo:
    """Return the zone of a name; UTC if there is none."""
    if name == "UTC" or not _NAME.match(name):
        return UTC
    return _known(name) or UTC


def is_zone(name: str) -> bool:
    """Return whether there is a zone of this name."""
    return name == "UTC" or (_NAME.match(name) is not None and _known(name) is not None)


def time_text(epoch_ms: int, zone: tzinfo) -> str:
    """Return ``2026-11-20 10:31:02.114``, or the number itself if it is beyond the calendar."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone)
    except (OverflowError, ValueError):
        return f"{epoch_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d}"


def offset_text(epoch_ms: int, zone: tzinfo) -> str:
    """Return the offset of a zone at a moment, as ``+08:00``; empty beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone).isoformat()[-6:]
    except (OverflowError, ValueError):
        return ""


def is_local(text: str) -> bool:
    """Return whether a text is a time without a zone of its own."""
    return _LOCAL.match(text.strip()) is not None


def time_of(text: str, name: str, zone: tzinfo, *, is_end: bool) -> int:
    """Return the epoch milliseconds of a text: without a zone of its own, in this one.

    :raises BadInput: if it is not a time; ``name`` names it in the message.
    """
    word = text.strip()
    if not _LOCAL.match(word):
        return parse_time(word, name, is_end=is_end)
    try:
        moment = datetime.fromisoformat(word.replace(",", ".")).replace(tzinfo=zone)
        if is_end and len(word) == _DAY_CHARACTERS:
            moment = moment + timedelta(days=1) - timedelta(milliseconds=1)
        elif is_end and "." not in word:
            # To the minute or the second: all of it.
            whole = timedelta(seconds=1) if word.count(":") > 1 else timedelta(minutes=1)
            moment = moment + whole - timedelta(milliseconds=1)
        return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError) as error:
        wrong = Sentence("not_of_calendar", option=name, text=repr(word[:40]))
        raise BadInput(wrong) from error
