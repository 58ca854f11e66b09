"""The routes of a login by a provider: to it, and back from it.

`app` imports this if a provider is set: others must not pay for what reads tokens.
"""

from collections.abc import Mapping
from typing import Final

from fastapi.responses import RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.login.access import client_address, set_private_cookie
from rocketlens.console.login.login_pages import FIRST_PATH, Back, login_page
from rocketlens.console.login.oidc_logins import OidcLogins
from rocketlens.console.login.oidc_settings import CALLBACK_PATH, OIDC_PATH
from rocketlens.console.login.oidc_token import FailureWord, OidcFailed
from rocketlens.console.pages import SEE_OTHER, Here, HereNow, page_router
from rocketlens.console.preferences import local_path
from rocketlens.console.security import SESSION_COOKIE

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
pages = page_router()


def _oidc(here: HereNow) -> tuple[OidcLogins, bool]:
    """Return the logins, and whether browsers reach the console by https."""
    oidc = here.console.oidc
    assert oidc is not None  # noqa: S101 - without a provider these routes are left out
    return oidc, (oidc.settings.public_url or "").startswith("https:")


def _failure(here: HereNow, error: OidcFailed) -> Response:
    status, refusal = FAILURE_STATUS[error.word], f"oidc_{error.word}"
    return login_page(here, status, refusal=refusal, who=error.user)


@pages.get(OIDC_PATH)
async def _begin(here: Here, back: Back = FIRST_PATH, *, again: bool = False) -> Response:
    oidc, is_https = _oidc(here)
    address = client_address(here.request)
    try:
        begun = await oidc.begin(local_path(back), here.origin, address, again=again)
    except OidcFailed as error:
        return _failure(here, error)
    answer = RedirectResponse(begun.address, SEE_OTHER)
    answer.set_cookie(
        _COOKIE,
        begun.cookie,
        max_age=int(limits.MAX_OIDC_LOGIN_S),
        path=OIDC_PATH,
        httponly=True,
        # Strict ones are not sent with what the provider redirects.
        samesite="lax",
        secure=is_https or here.request.url.scheme == "https",
    )
    return answer


@pages.get(CALLBACK_PATH)
async def _finish(here: Here) -> Response:
    request, (oidc, is_https) = here.request, _oidc(here)
    cookie, given = request.cookies.get(_COOKIE, ""), dict(request.query_params)
    answer: Response
    try:
        done = await oidc.finish(cookie, given, client_address(request))
    except OidcFailed as error:
        answer = _failure(here, error)
    else:
        answer = RedirectResponse(done.back, SEE_OTHER)
        set_private_cookie(answer, SESSION_COOKIE, done.token, request, is_https=is_https)
    answer.delete_cookie(_COOKIE, path=OIDC_PATH)
    return answer
