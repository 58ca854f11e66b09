"""Security headers of every answer, and checks of every request.

=========================  =====================================================================
header                     protects against
=========================  =====================================================================
Content-Security-Policy    scripts and styles that are not our files; frames; plug-ins
X-Content-Type-Options     message bodies that a browser would interpret as a page
Host, checked              foreign names that point here (DNS rebinding)
Origin, Sec-Fetch-Site     requests that change something, sent by pages of other sites
=========================  =====================================================================

A Host that is an IP address cannot be rebound, so every address is allowed; names must be known.

Browsers send Origin with each request that changes something, and over https also Sec-Fetch-Site. A
request with a session cookie must have one of them, so forms need no tokens. Programs send neither,
but a name and a password instead of the cookie.
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
"""Bytes of a request body: a form percent-encodes a text of 4 MiB in up to three times as many."""
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[\w.:%]+\])(?::\d*)?", re.ASCII)
"""A name or an address with an optional port. No user part, as in ``evil.example@127.0.0.1``."""
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
    return header.partition(";")[0].strip().lower()


def host_of(address: str) -> str:
    """Return host and port of the URL in a header; empty if it is not a URL."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return ""


def _has_session(scope: "Scope") -> bool:
    return any(
        name == b"cookie" and SESSION_COOKIE.encode() in value for name, value in scope["headers"]
    )


class Guard:
    """ASGI middleware that checks each request before all others, and adds security headers.

    Bodies are bounded, and API requests must be JSON: a browser sends forms of other sites without
    a preflight, but no JSON.
    """

    def __init__(self, app: "ASGIApp", names: Iterable[str] = ()) -> None:
        """:param names: Allowed host names, besides addresses and localhost."""
        self._app: Final = app
        self._names: Final = frozenset(each.lower() for each in names) | {"localhost"}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
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
            text = f"unknown host {host[:100]!r}: start the console with --host NAME"
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
        if not _HOST.fullmatch(host):
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or is_ip_address(name)
