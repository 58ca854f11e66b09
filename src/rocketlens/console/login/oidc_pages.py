"""The routes of a login by a provider: to it, and back from it.

`app` imports this if a provider is set: others must not pay for what reads tokens.
"""

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.login.access import SESSION_COOKIE, client_address, set_private_cookie
from rocketlens.console.login.login_pages import FIRST_PATH, Back, LoginPages, origin_of
from rocketlens.console.login.oidc_logins import OidcLogins
from rocketlens.console.login.oidc_settings import CALLBACK_PATH, OIDC_PATH
from rocketlens.console.login.oidc_token import FailureWord, OidcFailed
from rocketlens.console.preferences import Preferences, local_path
from rocketlens.console.search.parameters import Preferred

_COOKIE: Final = "rl_oidc"
FAILURE_STATUS: Final[Mapping[FailureWord, int]] = {
    "denied": 403,
    "no_access": 403,
    "old": 400,
    "elsewhere": 400,
    "busy": 503,
    "unreachable": 502,
    "provider": 502,
    "token": 502,
}


def oidc_routes(login: LoginPages, oidc: OidcLogins) -> APIRouter:
    """Return the routes of a login by the provider."""
    routes = APIRouter(include_in_schema=False)
    is_https = (oidc.settings.public_url or "").startswith("https:")

    def failure(request: Request, preferences: Preferences, error: OidcFailed) -> Response:
        status, refusal = FAILURE_STATUS[error.word], f"oidc_{error.word}"
        return login.page(request, preferences, status, refusal=refusal, who=error.user)

    @routes.get(OIDC_PATH)
    async def begin(
        request: Request, preferences: Preferred, back: Back = FIRST_PATH, *, again: bool = False
    ) -> Response:
        path, address = local_path(back), client_address(request)
        try:
            begun = await oidc.begin(path, origin_of(request), address, again=again)
        except OidcFailed as error:
            return failure(request, preferences, error)
        answer = RedirectResponse(begun.address, 303)
        answer.set_cookie(
            _COOKIE,
            begun.cookie,
            max_age=int(limits.MAX_OIDC_LOGIN_S),
            path=OIDC_PATH,
            httponly=True,
            # Strict ones are not sent with what the provider redirects.
            samesite="lax",
            secure=is_https or request.url.scheme == "https",
        )
        return answer

    @routes.get(CALLBACK_PATH)
    async def finish(request: Request, preferences: Preferred) -> Response:
        cookie, given = request.cookies.get(_COOKIE, ""), dict(request.query_params)
        answer: Response
        try:
            done = await oidc.finish(cookie, given, client_address(request))
        except OidcFailed as error:
            answer = failure(request, preferences, error)
        else:
            answer = RedirectResponse(done.back, 303)
            set_private_cookie(answer, SESSION_COOKIE, done.token, request, is_https=is_https)
        answer.delete_cookie(_COOKIE, path=OIDC_PATH)
        return answer

    return routes
