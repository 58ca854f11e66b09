"""The page of the login, and the end of a session. It works without a script."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from rocketlens import limits
from rocketlens.console.forms import form_of
from rocketlens.console.login.access import SESSION_COOKIE, client_address, set_private_cookie
from rocketlens.console.login.logins import LoginRefused, Logins, LoginTooSoon
from rocketlens.console.login.oidc_settings import OIDC_PATH
from rocketlens.console.login.viewer import NOBODY, seen_by
from rocketlens.console.pages import Pages
from rocketlens.console.preferences import Preferences, local_path
from rocketlens.console.search.parameters import Preferred

if TYPE_CHECKING:
    from rocketlens.console.login.oidc_logins import OidcLogins

Back = Annotated[str, Query(max_length=limits.MAX_CONSOLE_TEXT)]
FIRST_PATH: Final = "/"


class LoginPages:
    """Renders the page of the login: a form, a link to a provider, or both."""

    def __init__(self, pages: Pages, logins: Logins, oidc: "OidcLogins | None" = None) -> None:
        self._pages: Final = pages
        self.logins: Final = logins
        self.oidc: Final = oidc

    def page(
        self,
        request: Request,
        preferences: Preferences,
        status: int = 200,
        *,
        back: str = FIRST_PATH,
        user: str = "",
        refusal: str | None = None,
        **values: Any,
    ) -> Response:
        """Return the page; ``refusal`` names a text, which has the values.

        A change of the language leads to the page of the login, not to an answer of a provider.
        """
        return self._pages.page(
            "login.html",
            request,
            preferences,
            status,
            here=f"/login?{urlencode({'back': back})}",
            back=back,
            user=user,
            refusal=refusal,
            refusal_values=values,
            has_password=self.logins.has_users,
            provider=None if self.oidc is None else self._provider(self.oidc, back, refusal),
        )

    @staticmethod
    def _provider(oidc: "OidcLogins", back: str, refusal: str | None) -> Mapping[str, str]:
        """Return what the page shows of the provider: a name, and where a login begins.

        That is at the public address, whose cookies the browser sends with the provider's answer.
        """
        # One who has no access is logged in there, and would come back as the same.
        query = {"back": back, **({"again": "true"} if refusal == "oidc_no_access" else {})}
        path = f"{OIDC_PATH}?{urlencode(query)}"
        return {"label": oidc.settings.label, "address": (oidc.settings.public_url or "") + path}

    async def after_logout(
        self, request: Request, preferences: Preferences, id_token: str | None
    ) -> Response:
        """Return what follows a logout: the provider's own one for its users, else the login."""
        address = None
        if self.oidc is not None and id_token is not None:
            address = await self.oidc.logout_address(id_token, origin_of(request))
        if address is None:
            return RedirectResponse("/login", 303)
        # Not by a redirect: the policy of pages lets no form lead elsewhere.
        with seen_by(NOBODY):
            return self._pages.page(
                "logged_out.html", request, preferences, here="/login", address=address
            )


def origin_of(request: Request) -> str:
    """Return how the browser that sent a request reaches this console, if it is to be believed."""
    return f"{request.url.scheme}://{request.url.netloc}"


def login_routes(login: LoginPages) -> APIRouter:
    """Return the routes of the login."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/login")
    async def show(request: Request, preferences: Preferred, back: Back = FIRST_PATH) -> Response:
        return login.page(request, preferences, back=local_path(back))

    @routes.post("/login")
    async def log_in(request: Request, preferences: Preferred) -> Response:
        fields = await form_of(request)
        name, back = fields.get("name", ""), local_path(fields.get("back", FIRST_PATH))
        password = fields.get("password", "")
        try:
            token = await login.logins.log_in(name, password, client_address(request))
        except LoginRefused:
            return login.page(request, preferences, 401, back=back, user=name, refusal="wrong")
        except LoginTooSoon as error:
            wait_s = int(error.wait_s) + 1
            answer = login.page(
                request, preferences, 429, back=back, user=name, refusal="too_soon", wait_s=wait_s
            )
            answer.headers["retry-after"] = str(wait_s)
            return answer
        done = RedirectResponse(back, 303)
        set_private_cookie(done, SESSION_COOKIE, token, request)
        return done

    @routes.post("/logout")
    async def log_out(request: Request, preferences: Preferred) -> Response:
        token = request.cookies.get(SESSION_COOKIE, "")
        id_token = login.logins.log_out(token, client_address(request))
        done = await login.after_logout(request, preferences, id_token)
        done.delete_cookie(SESSION_COOKIE, path="/")
        return done

    return routes
