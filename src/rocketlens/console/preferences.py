"""A reader: language, theme and time zone, kept in cookies of the browser, and what is written so.

Times are printed in that zone; elsewhere they are epoch milliseconds. Each language has a table of
the texts of the pages, with the same names as the others. A table is a file of TOML in ``texts``.
Names have a dot between a group and a word, and a text may have values in braces: ``{count}``. The
English of the group ``sentence`` is in `rocketlens.model.text.sentences`, where the command line
has it too.
"""

import re
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
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
"""Set by our script: the browser runs it, so results can stream."""
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
"""Zones that are offered; any other that is known can be chosen by its name."""
_NAME: Final = re.compile(r"[A-Za-z0-9_+/-]{1,40}\Z")
_CLOCK: Final = r"\d{2}:\d{2}(:\d{2}([.,]\d{1,6})?)?"
_LOCAL: Final = re.compile(rf"(\d{{4}}-\d{{2}}-\d{{2}}([T ]{_CLOCK})?|{_CLOCK})\Z", re.ASCII)
_DAY_CHARACTERS: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LANGUAGES: Final = {"en": "English", "zh": "中文"}
"""Each language's code, and its own name for itself."""
_DIRECTORY: Final = Path(__file__).parent / "texts"
_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


class Preferences(Struct, frozen=True):
    """Language, theme and zone of one reader."""

    language: str = "en"
    theme: str = "auto"
    zone_name: str = "UTC"
    has_script: bool = False

    @classmethod
    def of(cls, request: "Request") -> Self:
        """Return those of the browser that sent a request."""
        cookies = request.cookies
        theme = cookies.get(_COOKIES["theme"], "")
        zone = cookies.get(_COOKIES["zone"], "")
        return cls(
            language_of(
                cookies.get(_COOKIES["language"]), request.headers.get("accept-language", "")
            ),
            theme if theme in THEMES else "auto",
            zone if is_zone(zone) else "UTC",
            cookies.get(SCRIPT_COOKIE) == "1",
        )

    @property
    def zone(self) -> tzinfo:
        """The time zone."""
        return zone_named(self.zone_name)


def choose(response: "Response", chosen: Mapping[str, str], *, is_https: bool) -> None:
    """Set the cookies of what was chosen; what is not known is ignored."""
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
    """Return a path of this console to go back to; the first page for anything else."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_local and path.isprintable() and "\\" not in path else "/"


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


def is_day(text: str) -> bool:
    """Return whether a text is a day of the calendar alone."""
    return is_local(text) and len(text.strip()) == _DAY_CHARACTERS and "-" in text


def time_of(text: str, name: str, zone: tzinfo, *, is_end: bool) -> int:
    """Return the epoch milliseconds of a text: without a zone of its own, in this one.

    :raises BadInput: if it is not a time; ``name`` names it in the message.
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
            # To the minute or the second: all of it.
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
        # What advises options of a command is said otherwise on pages.
        groups["sentence"] = {**SENTENCES, **groups["sentence"]}
    return {
        f"{group}.{name}": text for group, texts in groups.items() for name, text in texts.items()
    }


class Reader:
    """Writes for one reader: texts in a language, times in a zone. Templates call it ``t``, too."""

    def __init__(self, preferences: Preferences) -> None:
        self.preferences: Final = preferences
        self._zone: Final = preferences.zone
        self._table: Final = table_of(preferences.language)

    def __call__(self, name: str, **values: Any) -> str:
        """Return a text with its values. One with a bar is two, for a count of one and for others.

        :raises KeyError: if there is no such text.
        """
        one, _, many = self._table[name].partition(" | ")
        text = many if many and str(values["count"]) != "1" else one
        return text.format(**values) if values else text

    def of_word(self, group: str, word: str) -> str:
        """Return the text of a word that sources use, such as a state; the word if it has none."""
        return self._table.get(f"{group}.{word}", word)

    def sentence(self, text: str) -> str:
        """Return a sentence and those in it in this language, with its times in the reader's zone;
        any other text as it is.
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
        """Return a time in the reader's zone; a dash without one."""
        return "—" if epoch_ms is None else time_text(epoch_ms, self._zone)

    def offset(self, epoch_ms: int) -> str:
        """Return the offset of the reader's zone."""
        return offset_text(epoch_ms, self._zone)

    def clock(self, epoch_ms: int) -> str:
        """Return hour and minute of a time in the reader's zone."""
        return time_text(epoch_ms, self._zone)[11:16]

    def moment(self, text: str) -> str:
        """Return an ISO 8601 time of a job's file in the reader's zone; other text as it is."""
        try:
            at = (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, TypeError, OverflowError):
            return printable(text)
        return f"{self.time(at)} {self.offset(at)}"

    def due(self, epoch_ms: int) -> str:
        """Return when a message is due, or was, and how far that is from now."""
        left_ms = epoch_ms - time.time_ns() // 1_000_000
        name = "fact.due_in" if left_ms > 0 else "fact.due_ago"
        return self(name, time=self.time(epoch_ms), span=span_text(abs(left_ms)))

    def behind(self, behind_ms: int | None) -> str:
        """Return how far a group is behind; empty if it is not, a question mark if not known."""
        return "?" if behind_ms is None else span_text(behind_ms) if behind_ms else ""

    def span(self, duration_ms: int) -> str:
        """Return a duration in the largest unit that it has two of: ``119 s``, ``2 min``."""
        for unit, unit_ms in _UNITS_MS[:-1]:
            if duration_ms >= 2 * unit_ms:
                return f"{duration_ms / unit_ms:.0f} {unit}"
        return f"{duration_ms / 1000:.0f} s"

    def length(self, duration_ms: int) -> str:
        """Return a round duration in the largest unit that it is a whole number of."""
        for unit, unit_ms in _UNITS_MS:
            if duration_ms % unit_ms == 0:
                return f"{duration_ms // unit_ms} {unit}"
        return f"{duration_ms} ms"

    def size(self, count: int | None) -> str:
        """Return a number of bytes, shortened; a dash for one that could not be learnt."""
        if count is None:
            return "—"
        size, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
        unit = next(units)
        while size >= 1024 and unit != "TiB":
            size, unit = size / 1024, next(units)
        return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"

    def number(self, count: int | None) -> str:
        """Return a count; a question mark for one that could not be learnt."""
        return "?" if count is None else f"{count:,}"

    def waiting(self, topic: "TopicValue") -> str:
        """Return how many messages wait for a topic; with a plus if there may be more."""
        more = "" if topic.waiting is None or topic.waiting_is_exact else "+"
        return self.number(topic.waiting) + more

    def rate(self, number: float | None) -> str:
        """Return a number a second, likewise."""
        return "?" if number is None else f"{number:,.1f}"

    def percent(self, ratio: float | None) -> str:
        """Return a part of a whole, likewise."""
        return "?" if ratio is None else f"{ratio:.0%}"

    def release(self, version: str | None) -> str:
        """Return ``5.5.0`` of RocketMQ's ``V5_5_0``, likewise."""
        return "?" if version is None else version.removeprefix("V").replace("_", ".")


def language_of(chosen: str | None, accepted: str) -> str:
    """Return the language that was chosen, else the first that a browser accepts, else English."""
    if chosen in LANGUAGES:
        return chosen
    for part in accepted[:200].split(","):
        code = part.partition(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
