"""Language, theme and time zone of a reader, kept in cookies of the browser."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Final, Self

from rocketlens.console.texts import LANGUAGES, language_of
from rocketlens.console.zones import is_zone, zone_named

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

THEMES: Final = ("auto", "light", "dark")
SCRIPT_COOKIE: Final = "rl_script"
"""Set by our script: the browser runs it, so results can stream."""
_COOKIES: Final = {"language": "rl_language", "theme": "rl_theme", "zone": "rl_zone"}
_YEAR_S: Final = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Preferences:
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
