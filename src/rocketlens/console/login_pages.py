"""The page of the login, and the end of a session. It works without a script."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.access import SESSION_COOKIE, client_address, set_private_cookie
from rocketlens.console.asked import preferences_of
from rocketlens.console.forms import form_of
from rocketlens.console.logins import LoginRefused, Logins, LoginTooSoon
from rocketlens.console.pages import Pages
from rocketlens.console.preferences import Preferences, local_path

Preferred = Annotated[Preferences, Depends(preferences_of)]
Back = Annotated[str, Query(max_length=limits.MAX_CONSOLE_TEXT)]
_FIRST: Final = "/"


def login_routes(pages: Pages, logins: Logins) -> APIRouter:
    """Return the routes of the login."""
    routes = APIRouter(include_in_schema=False)

    def page(request: Request, preferences: Preferences, status: int, **values: Any) -> Response:
        known: dict[str, Any] = {"back": _FIRST, "user": "", "refusal": None, "wait_s": 0}
        return pages.page("login.html", request, preferences, status, **{**known, **values})

    @routes.get("/login")
    async def show(request: Request, preferences: Preferred, back: Back = _FIRST) -> Response:
        return page(request, preferences, 200, back=local_path(back))

    @routes.post("/login")
    async def log_in(request: Request, preferences: Preferred) -> Response:
        fields = await form_of(request)
        name, back = fields.get("name", ""), local_path(fields.get("back", _FIRST))
        try:
            token = await logins.log_in(name, fields.get("password", ""), client_address(request))
        except LoginRefused:
            return page(request, preferences, 401, back=back, user=name, refusal="wrong")
        except LoginTooSoon as error:
            wait_s = int(error.wait_s) + 1
            answer = page(
                request, preferences, 429, back=back, user=name, refusal="too_soon", wait_s=wait_s
            )
            answer.headers["retry-after"] = str(wait_s)
            return answer
        done = RedirectResponse(back, 303)
        set_private_cookie(done, SESSION_COOKIE, token, request)
        return done

    @routes.post("/logout")
    async def log_out(request: Request) -> Response:
        logins.log_out(request.cookies.get(SESSION_COOKIE, ""), client_address(request))
        done = RedirectResponse("/login", 303)
        done.delete_cookie(SESSION_COOKIE, path="/")
        return done

    return routes
