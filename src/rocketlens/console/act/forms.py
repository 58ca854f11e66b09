"""What requests that act bring along: forms, their names, and bodies within bounds.

Each form has a name that the server made. What the form does is kept under that name, so a form
that is sent twice does it once.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from rocketlens import limits
from rocketlens.console.login.form_token import URLENCODED, pairs_in
from rocketlens.console.security import SAFE_METHODS
from rocketlens.console.values import error_answer
from rocketlens.errors import BadInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON_TYPE: Final = "application/json"
_NAME: Final = re.compile(r"\d{8}T\d{6}-[0-9a-f]{12}", re.ASCII)


def new_name() -> str:
    """Return the name of a new job or act: names are in the order of their times."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{token_hex(6)}"


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a job or act, and so of its file."""
    return _NAME.fullmatch(text) is not None


def checked_name(text: str) -> str:
    """Return a name.

    :raises BadInput: if it is none that a form can have.
    """
    if not is_name(text):
        raise BadInput("the form has no name that was made here: open its page again")
    return text


def checked_reason(text: str) -> str:
    """Return a reason.

    :raises BadInput: if there is none, or it is too long.
    """
    reason = " ".join(text.split())
    if not reason:
        raise BadInput("a reason is needed: it is kept with what was done")
    if len(reason) > limits.MAX_CONSOLE_REASON:
        raise BadInput(f"the reason has over {limits.MAX_CONSOLE_REASON} characters")
    return reason


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


class BodyBounds:
    """Refuses bodies that are too large, and for the API those that are not JSON.

    Browsers send forms of other sites without asking, but never JSON.
    """

    def __init__(self, app: "ASGIApp") -> None:
        self._app: Final = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get(b"content-length", "0")
        answer = None
        is_json = media_type(headers.get(b"content-type", "")) == JSON_TYPE
        if scope["path"].startswith("/api/") and not is_json:
            text = f"expected {JSON_TYPE}"
            answer = JSONResponse(error_answer("bad_type", text).model_dump(), 415)
        if not length.isdigit() or int(length) > limits.MAX_CONSOLE_BODY_BYTES:
            text = f"a request has at most {limits.MAX_CONSOLE_BODY_BYTES} bytes"
            answer = JSONResponse(error_answer("too_large", text).model_dump(), 413)
        if answer is not None:
            await answer(scope, receive, send)
            return
        received = 0

        async def bounded() -> "Message":
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limits.MAX_CONSOLE_BODY_BYTES:
                raise HTTPException(413, "the request is too large")
            return message

        await self._app(scope, bounded, send)
