"""Reads the fields of forms, within bounds."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from rocketlens import limits
from rocketlens.console.room import hold, is_counted
from rocketlens.errors import BadInput

JSON_TYPE: Final = "application/json"
URLENCODED: Final = "application/x-www-form-urlencoded"
_OPEN_FORM_BYTES: Final = 64 << 10
"""Of a form whose bytes are not counted: of a login and of preferences."""


async def form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; of one that is there twice the last.

    :raises BadInput: if it is not a form, or its text is not UTF-8.
    :raises HTTPException: if it is too large.
    :raises ConsoleBusy: if requests hold too much.
    """
    return dict(await form_pairs_of(request))


async def form_pairs_of(request: Request) -> list[tuple[str, str]]:
    """Return the names and values of a form, in its order; errors as `form_of`."""
    if media_type(request.headers.get("content-type", "")) != URLENCODED:
        raise BadInput(f"expected a form: {URLENCODED}")
    if not hasattr(request.state, "form"):
        request.state.form = pairs_in(await _body_of(request))
    pairs: list[tuple[str, str]] = request.state.form
    return pairs


def pairs_in(content: bytes) -> list[tuple[str, str]]:
    """Return the names and values of a form; a name can be there several times.

    :raises BadInput: if it is not a form, or has too many fields.
    """
    try:
        return parse_qsl(
            content.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=limits.MAX_FORM_FIELDS,
        )
    except ValueError as error:
        raise BadInput("this is not a form that this console has made") from error


async def _body_of(request: Request) -> bytes:
    """Return the body of a request, each piece of which is counted before the next is read."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        hold(len(body))
        if not is_counted() and len(body) > _OPEN_FORM_BYTES:
            raise HTTPException(413, f"this form has over {_OPEN_FORM_BYTES} bytes")
    return bytes(body)


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, without its parameters."""
    return header.partition(";")[0].strip().lower()
