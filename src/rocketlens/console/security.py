"""The headers of every answer of the console, and the requests that it refuses.

=========================  =====================================================================
header                     against
=========================  =====================================================================
Content-Security-Policy    scripts and styles that are not files of ours; frames; plug-ins
X-Content-Type-Options     a body of a message that a browser takes for a page
Host, checked              names of others that were made to point here (DNS rebinding)
Origin, Sec-Fetch-Site     requests that change something, sent by pages of others
=========================  =====================================================================

An address as Host cannot be made to point elsewhere, so all are allowed; names must be known.

Browsers send Origin with each request that changes something, and over https Sec-Fetch-Site, too. A
request with the cookie of a session must have one of them, so forms need no tokens. Programs send
neither, and a name and a password in place of the cookie.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from rocketlens.console.values import error_answer
from rocketlens.model.config_keys import is_ip_address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CONSOLE_BODY_BYTES: Final = 16 << 20
"""Of the body of one request to the console: a text of 4 MiB in a form has up to three bytes for
each of its own.
"""
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[\w.:%]+\])(?::\d*)?", re.ASCII)
"""A name or an address, and perhaps a port: nothing before it, as in ``evil.example@127.0.0.1``."""
JSON_TYPE: Final = "application/json"
SESSION_COOKIE: Final = "rl_session"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, without its parameters."""
    return header.partition(";")[0].strip().lower()


def host_of(address: str) -> str:
    """Return the host and port of a header's address; empty if it is none."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return ""


def _has_session(scope: "Scope") -> bool:
    return any(
        name == b"cookie" and SESSION_COOKIE.encode() in value for name, value in scope["headers"]
    )


class Guard:
    """Checks each request before anything else does, and adds headers to each answer.

    Bodies are bounded, and those for the API are JSON: browsers send forms of other sites without
    asking, but never JSON.
    """

    def __init__(self, app: "ASGIApp", names: Iterable[str] = ()) -> None:
        """Protect an application whose host has these names, beside addresses and localhost."""
        self._app: Final = app
        self._names: Final = frozenset(each.lower() for each in names) | {"localhost"}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        received = 0

        async def receive_bounded() -> "Message":
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_CONSOLE_BODY_BYTES:
                raise HTTPException(413, "the request is too large")
            return message

        async def send_with_headers(message: "Message") -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                added = {"cache-control": "no-store", **_HEADERS}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in added.items()
                        if name.encode() not in own
                    ),
                ]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            status, code, text = refusal
            answer = JSONResponse(error_answer(code, text).model_dump(), status)
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive_bounded, send_with_headers)

    def _refusal(self, scope: "Scope", headers: Mapping[bytes, str]) -> tuple[int, str, str] | None:
        host = headers.get(b"host", "")
        if not self.is_known(host):
            text = f"this console is not {host[:100]!r}: start it with --host NAME"
            return 421, "wrong_host", text
        if scope["method"] in SAFE_METHODS:
            return None
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        is_other = origin is not None and host_of(origin).lower() != host.lower()
        if is_other or site not in {None, "same-origin", "none"}:
            return 403, "wrong_origin", "this request was sent by a page of another site"
        if origin is None and site is None and _has_session(scope):
            text = "a request with a session's cookie needs Origin or Sec-Fetch-Site: use Basic"
            return 403, "wrong_origin", f"{text} authentication in a program"
        length = headers.get(b"content-length", "0")
        if not length.isdigit() or int(length) > MAX_CONSOLE_BODY_BYTES:
            text = f"a request has at most {MAX_CONSOLE_BODY_BYTES} bytes"
            return 413, "too_large", text
        is_json = media_type(headers.get(b"content-type", "")) == JSON_TYPE
        if scope["path"].startswith("/api/") and not is_json:
            return 415, "bad_type", f"expected {JSON_TYPE}"
        return None

    def is_known(self, host: str) -> bool:
        """Return whether a Host header names this console."""
        if not _HOST.fullmatch(host):
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or is_ip_address(name)
