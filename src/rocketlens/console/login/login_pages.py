"""The login page, and the logout. Neither needs a script."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.login.access import client_address, set_private_cookie
from rocketlens.console.login.logins import LoginRefused, Logins, LoginTooSoon
from rocketlens.console.login.oidc_settings import OIDC_PATH
from rocketlens.console.login.viewer import NOBODY, seen_by
from rocketlens.console.pages import SEE_OTHER, Here, HereNow, form_of, page_router
from rocketlens.console.preferences import local_path
from rocketlens.console.security import SESSION_COOKIE

if TYPE_CHECKING:
    from rocketlens.console.login.oidc_logins import OidcLogins

Back = Annotated[str, Query(max_length=limits.MAX_CONSOLE_TEXT)]
FIRST_PATH: Final = "/"
pages = page_router()


def _logins(here: HereNow) -> Logins:
    logins = here.console.logins
    assert logins is not None  # noqa: S101 - without users these routes are left out
    return logins


@pages.get("/login")
async def _show(here: Here, back: Back = FIRST_PATH, *, ended: bool = False) -> Response:
    return login_page(here, back=local_path(back), refusal="ended" if ended else None)


@pages.post("/login")
async def _log_in(here: Here) -> Response:
    request, fields = here.request, await form_of(here.request)
    name, back = fields.get("name", ""), local_path(fields.get("back", FIRST_PATH))
    try:
        token = await _logins(here).log_in(
            name, fields.get("password", ""), client_address(request)
        )
    except LoginRefused:
        return login_page(here, 401, back=back, user=name, refusal="wrong")
    except LoginTooSoon as error:
        wait_s = int(error.wait_s) + 1
        answer = login_page(here, 429, back=back, user=name, refusal="too_soon", wait_s=wait_s)
        answer.headers["retry-after"] = str(wait_s)
        return answer
    done = RedirectResponse(back, SEE_OTHER)
    set_private_cookie(done, SESSION_COOKIE, token, request)
    return done


@pages.post("/logout")
async def _log_out(here: Here) -> Response:
    request, oidc = here.request, here.console.oidc
    id_token = _logins(here).log_out(
        request.cookies.get(SESSION_COOKIE, ""), client_address(request)
    )
    address = None
    if oidc is not None and id_token is not None:
        address = await oidc.logout_address(id_token, here.origin)
    done: Response = RedirectResponse("/login", SEE_OTHER)
    if address is not None:
        # A link, not a redirect: the content security policy limits forms to this site.
        with seen_by(NOBODY):
            done = here.page("logged_out.html", here="/login", address=address)
    done.delete_cookie(SESSION_COOKIE, path="/")
    return done


def login_page(
    here: HereNow,
    status: int = 200,
    *,
    back: str = FIRST_PATH,
    user: str = "",
    refusal: str | None = None,
    **values: Any,
) -> Response:
    """Return the login page: a form, a link to the provider, or both.

    ``refusal`` names a text, and ``values`` are its values. A change of the language leads back to
    this page, never to an answer of the provider.
    """
    oidc = here.console.oidc
    return here.page(
        "login.html",
        status,
        here=f"/login?{urlencode({'back': back})}",
        back=back,
        user=user,
        refusal=refusal,
        refusal_values=values,
        has_password=_logins(here).has_users,
        provider=None if oidc is None else _provider(oidc, back, refusal),
    )


def _provider(oidc: "OidcLogins", back: str, refusal: str | None) -> Mapping[str, str]:
    """Return the provider's name, and the address where its login starts.

    The address is at the public URL, because the browser sends cookies of that host with the
    provider's answer.
    """
    # Ask for a password, or the provider would log in the same user without access again.
    query = {"back": back, **({"again": "true"} if refusal == "oidc_no_access" else {})}
    path = f"{OIDC_PATH}?{urlencode(query)}"
    return {"label": oidc.settings.label, "address": (oidc.settings.public_url or "") + path}
