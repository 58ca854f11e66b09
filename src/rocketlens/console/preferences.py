"""The user's language, theme and time zone, kept in cookies; texts, times and numbers formatted for
them.

The texts of a language are a TOML file in ``texts``. A text is named GROUP.NAME and can have
placeholders: ``{count}``. All languages have the same names. The English texts of the group
``sentence`` are in `rocketlens.model.text.sentences`, which the command line uses, too.
"""

import re
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from rocketlens.errors import BadInput
from rocketlens.model.text.counted import span_text
from rocketlens.model.text.escape import printable
from rocketlens.model.text.sentences import SENTENCES, Sentence, TimeText
from rocketlens.terminal.output import parse_time

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from rocketlens.console.values import TopicValue

THEMES: Final = ("auto", "light", "dark")
SCRIPT_COOKIE: Final = "rl_script"
"""Set by our script, to show that scripts run and results can be streamed."""
_COOKIES: Final = {"language": "rl_language", "theme": "rl_theme", "zone": "rl_zone"}
_YEAR_S: Final = 365 * 24 * 3600
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
"""The time zones on offer. Any other IANA zone can be chosen by name."""
_NAME: Final = re.compile(r"[A-Za-z0-9_+/-]{1,40}\Z")
_CLOCK: Final = r"\d{2}:\d{2}(:\d{2}([.,]\d{1,6})?)?"
_LOCAL: Final = re.compile(rf"(\d{{4}}-\d{{2}}-\d{{2}}([T ]{_CLOCK})?|{_CLOCK})\Z", re.ASCII)
_DAY_CHARACTERS: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LANGUAGES: Final = {"en": "English", "zh": "中文"}
"""The languages by code, each with its own name for itself."""
_DIRECTORY: Final = Path(__file__).parent / "texts"


class Preferences(Struct, frozen=True):
    """Language, theme and time zone of one user."""

    language: str = "en"
    theme: str = "auto"
    zone_name: str = "UTC"
    has_script: bool = False

    @classmethod
    def of(cls, request: "Request") -> Self:
        cookies = request.cookies
        language, theme, zone = (cookies.get(each, "") for each in _COOKIES.values())
        return cls(
            language_of(language, request.headers.get("accept-language", "")),
            theme if theme in THEMES else "auto",
            zone if is_zone(zone) else "UTC",
            cookies.get(SCRIPT_COOKIE) == "1",
        )


def choose(response: "Response", chosen: Mapping[str, str], *, is_https: bool) -> None:
    """Set the cookies of the chosen values. Unknown values are ignored."""
    checks = {
        "language": lambda value: value in LANGUAGES,
        "theme": lambda value: value in THEMES,
        "zone": is_zone,
    }
    for name, cookie in _COOKIES.items():
        value = chosen.get(name, "")
        if value and checks[name](value):
            response.set_cookie(
                cookie, value, max_age=_YEAR_S, samesite="lax", secure=is_https, path="/"
            )


def local_path(path: str) -> str:
    """Return a path of this console; ``/`` for anything else, such as another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_local and path.isprintable() and "\\" not in path else "/"


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name) if _NAME.match(name) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_named(name: str) -> tzinfo:
    """Return a time zone by name; UTC for an unknown one."""
    return _zone(name) or UTC


def is_zone(name: str) -> bool:
    return _zone(name) is not None


def time_text(epoch_ms: int, zone: tzinfo) -> str:
    """Return ``2026-11-20 10:31:02.114``, or the number itself if no calendar has it."""
    try:
        moment = (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone)
    except (OverflowError, ValueError):
        return f"{epoch_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{epoch_ms % 1000:03d}"


def offset_text(epoch_ms: int, zone: tzinfo) -> str:
    """Return the UTC offset of a zone at a time, such as ``+08:00``; empty if it has none."""
    try:
        return (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone).isoformat()[-6:]
    except (OverflowError, ValueError):
        return ""


def is_local(text: str) -> bool:
    """Return whether a text is a time without a zone."""
    return _LOCAL.match(text.strip()) is not None


def is_day(text: str) -> bool:
    """Return whether a text is a date without a time."""
    return is_local(text) and len(text.strip()) == _DAY_CHARACTERS and "-" in text


def time_of(text: str, name: str, zone: tzinfo, *, is_end: bool) -> int:
    """Parse a time as epoch milliseconds. A time without a zone is in ``zone``.

    :raises BadInput: if it is not a time. ``name`` is the option that the message names.
    """
    word = text.strip()
    if not _LOCAL.match(word):
        return parse_time(word, name, is_end=is_end)
    if "-" not in word:
        word = f"{datetime.now(zone):%Y-%m-%d} {word}"
    try:
        moment = datetime.fromisoformat(word.replace(",", ".")).replace(tzinfo=zone)
        if is_end and len(word) == _DAY_CHARACTERS:
            moment = moment + timedelta(days=1) - timedelta(milliseconds=1)
        elif is_end and "." not in word:
            # Include the whole minute or second.
            whole = timedelta(seconds=1) if word.count(":") > 1 else timedelta(minutes=1)
            moment = moment + whole - timedelta(milliseconds=1)
        return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError) as error:
        wrong = Sentence("not_of_calendar", option=name, text=repr(word[:40]))
        raise BadInput(wrong) from error


@cache
def table_of(language: str) -> Mapping[str, str]:
    """Return the texts of a language by name."""
    groups = tomllib.loads((_DIRECTORY / f"{language}.toml").read_text("utf-8"))
    if language == "en":
        # Sentences that advise command line options have other texts on pages.
        groups["sentence"] = {**SENTENCES, **groups["sentence"]}
    return {
        f"{group}.{name}": text for group, texts in groups.items() for name, text in texts.items()
    }


class Reader:
    """Formats texts, times and numbers for one user. Templates call it ``t``, too."""

    def __init__(self, preferences: Preferences) -> None:
        self.preferences: Final = preferences
        self._zone: Final = zone_named(preferences.zone_name)
        self._table: Final = table_of(preferences.language)

    def __call__(self, name: str, **values: Any) -> str:
        """Return a text with its values. A text ``ONE | MANY`` has two forms, chosen by ``count``.

        :raises KeyError: if there is no such text.
        """
        one, _, many = self._table[name].partition(" | ")
        text = many if many and str(values["count"]) != "1" else one
        return text.format(**values) if values else text

    def of_word(self, group: str, word: str) -> str:
        """Translate a word that sources use, such as a state; return an unknown word unchanged."""
        return self._table.get(f"{group}.{word}", word)

    def sentence(self, text: str) -> str:
        """Translate a `Sentence` and the sentences in its values, with times in the user's zone.
        Other texts are returned unchanged.
        """
        if isinstance(text, TimeText):
            at = text.epoch_ms
            offset = offset_text(at, self._zone)
            return time_text(at, self._zone)[:19] + offset if offset else str(text)
        if not isinstance(text, Sentence):
            return text
        values = {
            name: self.sentence(value) if isinstance(value, str) else value
            for name, value in text.values.items()
        }
        return self._table[f"sentence.{text.name}"].format(**values)

    def time(self, epoch_ms: int | None) -> str:
        return "—" if epoch_ms is None else time_text(epoch_ms, self._zone)

    def offset(self, epoch_ms: int) -> str:
        return offset_text(epoch_ms, self._zone)

    def clock(self, epoch_ms: int) -> str:
        """Return hour and minute of a time."""
        return time_text(epoch_ms, self._zone)[11:16]

    def moment(self, text: str) -> str:
        """Format an ISO 8601 time of a job file; return other texts unchanged."""
        try:
            at = (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, TypeError, OverflowError):
            return printable(text)
        return f"{self.time(at)} {self.offset(at)}"

    def due(self, epoch_ms: int) -> str:
        """Return a due time and its distance from now."""
        left_ms = epoch_ms - time.time_ns() // 1_000_000
        name = "fact.due_in" if left_ms > 0 else "fact.due_ago"
        return self(name, time=self.time(epoch_ms), span=span_text(abs(left_ms)))

    def behind(self, behind_ms: int | None) -> str:
        """Format how far a group is behind: empty for 0, a question mark for unknown."""
        return "?" if behind_ms is None else span_text(behind_ms) if behind_ms else ""

    def span(self, duration_ms: int) -> str:
        """Format a duration in its two largest units: ``1 min 59 s``."""
        return span_text(duration_ms) if duration_ms >= 1000 else f"{duration_ms} ms"

    def size(self, count: int | None) -> str:
        """Format a number of bytes; a dash for unknown."""
        if count is None:
            return "—"
        size, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
        unit = next(units)
        while size >= 1024 and unit != "TiB":
            size, unit = size / 1024, next(units)
        return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"

    def number(self, count: int | None) -> str:
        """Format a count; a question mark for unknown."""
        return "?" if count is None else f"{count:,}"

    def waiting(self, topic: "TopicValue") -> str:
        """Format how many messages wait for a topic, with a plus if there may be more."""
        more = "" if topic.waiting is None or topic.waiting_is_exact else "+"
        return self.number(topic.waiting) + more

    def rate(self, number: float | None) -> str:
        return "?" if number is None else f"{number:,.1f}"

    def percent(self, ratio: float | None) -> str:
        return "?" if ratio is None else f"{ratio:.0%}"

    def release(self, version: str | None) -> str:
        """Return ``5.5.0`` for RocketMQ's ``V5_5_0``; a question mark for unknown."""
        return "?" if version is None else version.removeprefix("V").replace("_", ".")


def language_of(chosen: str, accepted: str) -> str:
    """Return the chosen language, else the first that the browser accepts, else English."""
    if chosen in LANGUAGES:
        return chosen
    for part in accepted[:200].split(","):
        code = part.partition(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
