"""Finds the user of each request: pages, API, streams and downloads.

=======================  ==========================================================
request                  viewer
=======================  ==========================================================
console without logins   `LOCAL`, who may do everything, or the one of ``--user``
with a session cookie    the user of the session
to the API, /metrics     the user of the Authorization header
any other                none: redirected to the login, except for `PUBLIC` paths
=======================  ==========================================================
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rocketlens.console.login.audit import AuditFailed
from rocketlens.console.login.logins import LoginRefused, Logins, LoginTooSoon
from rocketlens.console.login.oidc_settings import CALLBACK_PATH, OIDC_PATH
from rocketlens.console.login.viewer import LOCAL, NOBODY, Viewer, seen_by
from rocketlens.console.security import SAFE_METHODS, SESSION_COOKIE, host_of
from rocketlens.console.values import error_answer

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PUBLIC: Final = frozenset({"/login", OIDC_PATH, CALLBACK_PATH, "/preferences", "/livez", "/readyz"})
"""Paths that need no login, besides static files."""
_STATIC: Final = "/static/"


class Access:
    """ASGI middleware that sets the current viewer, or asks for a login."""

    def __init__(self, app: "ASGIApp", logins: Logins | None, viewer: Viewer = LOCAL) -> None:
        """:param viewer: The viewer of all requests in a console without logins."""
        self._app: Final = app
        self._viewer: Final = viewer
        self._logins: Final = logins

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        request = Request(scope, receive)
        try:
            viewer = await self._viewer_of(request)
        except LoginRefused as error:
            await _login_needed(request, str(error))(scope, receive, send)
            return
        except LoginTooSoon as error:
            headers = {"retry-after": str(int(error.wait_s) + 1)}
            await _refusal(429, "busy", str(error), headers)(scope, receive, send)
            return
        except AuditFailed as error:
            await _refusal(503, "failed", str(error))(scope, receive, send)
            return
        with seen_by(viewer, client_address(request)):
            path = request.url.path
            needs_login = viewer is NOBODY and not (path in PUBLIC or path.startswith(_STATIC))
            await (_to_login(request) if needs_login else self._app)(scope, receive, send)

    async def _viewer_of(self, request: Request) -> Viewer:
        if self._logins is None:
            return self._viewer
        session = request.cookies.get(SESSION_COOKIE)
        viewer = self._logins.sessions.viewer_of(session) if session else None
        if viewer is not None:
            return viewer
        header = request.headers.get("authorization")
        if header is None or not _is_for_programs(request.url.path):
            return NOBODY
        return await self._logins.viewer_of(header, client_address(request))


def client_address(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _is_for_programs(path: str) -> bool:
    return path.startswith("/api/") or path == "/metrics"


def _to_login(request: Request) -> Response:
    """Return a redirect to the login, with the way back; a program gets an error."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    values = {"back": path}
    is_page = not _is_for_programs(request.url.path)
    if request.method not in SAFE_METHODS:
        # The session ended while the form was open: the page's script keeps what was typed.
        is_page = is_page and "text/html" in request.headers.get("accept", "")
        values = {"back": _came_from(request), "ended": "true"}
    if is_page and request.headers.get("sec-fetch-mode", "navigate") == "navigate":
        return RedirectResponse(f"/login?{urlencode(values)}", 303)
    return _login_needed(request, "log in first")


def _came_from(request: Request) -> str:
    """Return the path of the page that sent a form; ``/`` for a page of another site."""
    referer = request.headers.get("referer", "")
    if host_of(referer) != request.url.netloc:
        return "/"
    page = urlsplit(referer)
    return page.path + (f"?{page.query}" if page.query else "")


def _login_needed(request: Request, text: str) -> Response:
    # A browser would ask for a password and keep it, instead of showing the login page.
    is_program = "sec-fetch-mode" not in request.headers
    basic = {"www-authenticate": 'Basic realm="RocketLens", charset="UTF-8"'}
    return _refusal(401, "login_needed", text, basic if is_program else {})


def _refusal(
    status: int, code: str, text: str, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse(error_answer(code, text).model_dump(), status, headers)


def set_private_cookie(
    response: Response, name: str, value: str, request: Request, *, is_https: bool = False
) -> None:
    """Set a session cookie that scripts and other sites cannot use.

    :param is_https: Whether browsers use https, even if the request does not show it.
    """
    secure = is_https or request.url.scheme == "https"
    response.set_cookie(name, value, httponly=True, samesite="lax", secure=secure, path="/")
