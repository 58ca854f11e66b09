"""Forms: their token, which pages of others cannot know, and their fields.

A token is tied to the session of who logged in, else to a cookie that the page with the form sets.
It is a MAC with a key that only this process has, so nothing is kept for it. After a restart a page
has to be opened again before its forms are taken.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from rocketlens import limits
from rocketlens.errors import BadInput

FORM_COOKIE: Final = "rl_form"
FIELD: Final = "csrf"
HEADER: Final = "x-csrf-token"
JSON_TYPE: Final = "application/json"
URLENCODED: Final = "application/x-www-form-urlencoded"
_KEY: Final = secrets.token_bytes(32)


class FormToken:
    """The token of the forms of one answer."""

    def __init__(self, session: str | None, cookie: str | None) -> None:
        """Tie it to a session, else to a cookie, else to a new one."""
        self.new_cookie: Final = None if session or cookie else secrets.token_urlsafe(16)
        """What the browser has to keep, if `is_used`."""
        self.is_used = False
        bound = f"session {session}" if session else f"cookie {cookie or self.new_cookie}"
        self._text: Final = hmac.digest(
            _KEY, bound.encode("utf-8", "surrogatepass"), hashlib.sha256
        ).hex()

    def __str__(self) -> str:
        """Return the token for a form."""
        self.is_used = True
        return self._text

    def fits(self, given: str) -> bool:
        """Return whether a form has sent it."""
        return self.new_cookie is None and hmac.compare_digest(
            given.encode("utf-8", "replace"), self._text.encode()
        )


_CURRENT: Final[ContextVar[FormToken | None]] = ContextVar("form_token", default=None)


@contextmanager
def forms_with(token: FormToken) -> Iterator[None]:
    """Render forms with a token."""
    before = _CURRENT.set(token)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def form_token() -> str:
    """Return the token for the forms of the answer that is being made; empty outside of one."""
    token = _CURRENT.get()
    return "" if token is None else str(token)


def pairs_in(content: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a form, in its order; a name can be there several times.

    :raises BadInput: if it is not one, or has too many.
    """
    try:
        text = content.decode("ascii")
        return parse_qsl(
            text, keep_blank_values=True, errors="strict", max_num_fields=limits.MAX_FORM_FIELDS
        )
    except ValueError as error:
        raise BadInput("this is not a form that this console has made") from error


def fields_in(content: bytes) -> dict[str, str]:
    """Return the fields of a form; of one that is there twice the last.

    :raises BadInput: if it is not one, or has too many.
    """
    return dict(pairs_in(content))


async def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; of one that is there twice the last.

    :raises BadInput: if it is not one, or its text is not UTF-8.
    """
    return dict(await form_pairs_of(request))


async def form_pairs_of(request: Request) -> list[tuple[str, str]]:
    """Return the names and values of a form; errors as `form_of`."""
    if media_type(request.headers.get("content-type", "")) != URLENCODED:
        raise BadInput(f"expected a form: {URLENCODED}")
    return pairs_in(await request.body())


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, without its parameters."""
    return header.partition(";")[0].strip().lower()
