"""Who asks, decided once for every request: pages, API, streams and downloads alike.

=======================  ==========================================================
request                  viewer
=======================  ==========================================================
console without users    the local one, who may do everything
with a session's cookie  whose session it is
to the API, /metrics     whose name and password the Authorization header has
any other                none: sent to the login, but for `PUBLIC` paths
=======================  ==========================================================

Every form that is sent must have its token; a browser that sends an old one gets a page that says
so, in the reader's language. What is sent to the API as JSON, or without a body by a program that
sends its password, needs none: a page of another site cannot send that without asking first, which
this server never answers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.forms import (
    FIELD,
    FORM_COOKIE,
    HEADER,
    JSON_TYPE,
    URLENCODED,
    FormToken,
    fields_in,
    forms_with,
    media_type,
)
from rocketlens.console.login.audit import AuditFailed, AuditLog
from rocketlens.console.login.logins import LoginRefused, Logins, LoginTooSoon
from rocketlens.console.login.oidc_settings import CALLBACK_PATH, OIDC_PATH
from rocketlens.console.login.viewer import LOCAL, NOBODY, Viewer, seen_by
from rocketlens.console.security import SAFE_METHODS
from rocketlens.console.values import error_answer
from rocketlens.errors import BadInput

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_COOKIE: Final = "rl_session"
PUBLIC: Final = frozenset({"/login", OIDC_PATH, CALLBACK_PATH, "/preferences", "/livez", "/readyz"})
"""Paths that need no login, beside static files."""
_STATIC: Final = "/static/"
_OLD_FORM: Final = "old_form"
_OPEN_FORM_BYTES: Final = 64 << 10
"""Of a form of one who has not logged in."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.status: Final = status
        self.code: Final = code
        self.wait_s: Final = wait_s


class Access:
    """Finds out whose request it is, and lets an application answer for that viewer alone."""

    def __init__(
        self,
        app: "ASGIApp",
        logins: Logins | None,
        audit: AuditLog,
        old_form: Callable[[Request], Response],
    ) -> None:
        """Protect an application; without logins, for the local viewer.

        ``old_form`` makes the page for a browser whose form is not valid any more.
        """
        self._app: Final = app
        self._logins: Final = logins
        self._audit: Final = audit
        self._old_form: Final = old_form

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            viewer, session = await self._identify(request)
        except (_Refused, AuditFailed) as error:
            await _refusal(request, error)(scope, receive, send)
            return
        token = FormToken(session, request.cookies.get(FORM_COOKIE))
        keeping = _keeping(send, token, request)
        with seen_by(viewer, client_address(request)), forms_with(token):
            if viewer is NOBODY and not _is_public(request.url.path):
                # A form that was open when its session ended is as old as one without its token.
                page = self._old_form(request) if _is_form_of_page(request) else _to_login(request)
                await page(scope, receive, keeping)
                return
            try:
                received = await self._with_checked_form(request, viewer, token)
            except (_Refused, AuditFailed) as error:
                is_old = isinstance(error, _Refused) and error.code == _OLD_FORM
                is_page = is_old and _is_form_of_page(request)
                answer = self._old_form(request) if is_page else _refusal(request, error)
                await answer(scope, receive, keeping)
                return
            scope.setdefault("state", {})["viewer"] = viewer
            await self._app(scope, received, keeping)

    async def _identify(self, request: Request) -> tuple[Viewer, str | None]:
        """Return whose request it is, and the token of the session, if it is of one."""
        if self._logins is None:
            return LOCAL, None
        session = request.cookies.get(SESSION_COOKIE)
        viewer = self._logins.sessions.viewer_of(session) if session else None
        if viewer is not None:
            return viewer, session
        header = request.headers.get("authorization")
        if header is None or not _is_for_programs(request.url.path):
            return NOBODY, None
        try:
            return await self._logins.viewer_of(header, client_address(request)), None
        except LoginRefused as error:
            raise _Refused(401, "login_needed", str(error)) from error
        except LoginTooSoon as error:
            raise _Refused(429, "busy", str(error), error.wait_s) from error

    async def _with_checked_form(
        self, request: Request, viewer: Viewer, token: FormToken
    ) -> "Receive":
        """Return what the application receives, once the form's token is that of its page."""
        if request.method in SAFE_METHODS:
            return request.receive
        kind = media_type(request.headers.get("content-type", ""))
        is_of_program = kind == JSON_TYPE or (kind == "" and "authorization" in request.headers)
        if is_of_program and _is_for_programs(request.url.path):
            return request.receive
        content = await _read(request, _OPEN_FORM_BYTES if viewer is NOBODY else None)
        given = request.headers.get(HEADER)
        if given is None:
            try:
                given = fields_in(content).get(FIELD, "") if kind == URLENCODED else ""
            except BadInput as error:
                raise _Refused(400, "bad_input", str(error)) from error
        if not token.fits(given):
            address = client_address(request)
            path = request.url.path
            self._audit.record(
                "refused", user=viewer.name, address=address, path=path, why="form without token"
            )
            text = "this form is not of a page that you opened here: open the page again, and retry"
            raise _Refused(403, _OLD_FORM, text)
        return _again(content, request.receive)


def client_address(request: Request) -> str:
    """Return the address that a request came from, for the audit log."""
    return "" if request.client is None else request.client.host


def _is_public(path: str) -> bool:
    return path in PUBLIC or path.startswith(_STATIC)


def _is_for_programs(path: str) -> bool:
    return path.startswith("/api/") or path == "/metrics"


def _is_form_of_page(request: Request) -> bool:
    """Return whether a browser sends a form, and shows the answer as a page."""
    is_sent = request.method not in SAFE_METHODS and not _is_for_programs(request.url.path)
    return is_sent and "text/html" in request.headers.get("accept", "")


def _to_login(request: Request) -> Response:
    is_page = request.method in SAFE_METHODS and not _is_for_programs(request.url.path)
    if is_page and request.headers.get("sec-fetch-mode", "navigate") == "navigate":
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?{urlencode({'back': back})}", 303)
    return _refusal(request, _Refused(401, "login_needed", "log in first"))


def _refusal(request: Request, error: _Refused | AuditFailed) -> Response:
    if isinstance(error, AuditFailed):
        error = _Refused(503, "failed", str(error))
    headers = {}
    if error.wait_s:
        headers["retry-after"] = str(int(error.wait_s) + 1)
    # Browsers would ask for a password and keep it: they have the page for that.
    if error.status == 401 and "sec-fetch-mode" not in request.headers:
        headers["www-authenticate"] = 'Basic realm="RocketLens", charset="UTF-8"'
    answer = error_answer(error.code, str(error)).model_dump()
    return JSONResponse(answer, error.status, headers)


async def _read(request: Request, max_bytes: int | None) -> bytes:
    bound = limits.MAX_CONSOLE_FORM_BYTES if max_bytes is None else max_bytes
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > bound:
                raise _Refused(413, "bad_input", f"this form has over {bound} bytes")
            pieces.append(piece)
    except HTTPException as error:
        raise _Refused(error.status_code, "bad_input", str(error.detail)) from error
    except ClientDisconnect:
        raise _Refused(400, "bad_input", "the request ended before its form did") from None
    return b"".join(pieces)


def _again(content: bytes, receive: "Receive") -> "Receive":
    """Return what receives a body that was read already, and then what comes behind it."""
    bodies: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive_again() -> "Message":
        return bodies.pop() if bodies else await receive()

    return receive_again


def _keeping(send: "Send", token: FormToken, request: Request) -> "Send":
    """Return what also has the browser keep the cookie that the answer's forms are tied to."""

    async def send_with_cookie(message: "Message") -> None:
        if message["type"] == "http.response.start" and token.is_used and token.new_cookie:
            made = Response()
            set_private_cookie(made, FORM_COOKIE, token.new_cookie, request)
            cookies = [each for each in made.raw_headers if each[0] == b"set-cookie"]
            message["headers"] = [*message["headers"], *cookies]
        await send(message)

    return send_with_cookie


def set_private_cookie(
    response: Response, name: str, value: str, request: Request, *, is_https: bool = False
) -> None:
    """Set a cookie that no script and no page of another site gets, until the browser ends.

    ``is_https`` is True where browsers reach the console so, whatever a proxy says.
    """
    secure = is_https or request.url.scheme == "https"
    response.set_cookie(name, value, httponly=True, samesite="lax", secure=secure, path="/")
