"""Logins by OpenID Connect: the authorization code flow with PKCE.

The console keeps no state of a started login. A cookie has its time, a random text, and the path
that it leads to. State, nonce and code verifier are MACs of the cookie, with a key of this process.
So only the browser that started a login can finish it, in time, and only this login.

A failure (`FAILURE_STATUS`) is a page, a log line and an audit record. None of these has a token or
a secret.

PyJWT and cryptography check signatures and keys; httpx sends requests. Authlib would replace about
a hundred lines, but lacks the limits: it reads answers of any length, keeps the discovery document
forever, reads keys again for each token with an unknown key, lets the provider choose the algorithm
and skip the nonce (``nonce_supported``), and stores each started login.

`app` imports this module only if a provider is configured, because its packages are optional.
"""

import base64
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from fastapi.responses import RedirectResponse, Response
from msgspec import Struct

from rocketlens.console.login.access import client_address, set_private_cookie
from rocketlens.console.login.audit import AuditLog
from rocketlens.console.login.login_pages import FIRST_PATH, Back, login_page
from rocketlens.console.login.logins import Sessions
from rocketlens.console.login.oidc_provider import (
    MAX_OIDC_TOKEN_CHARACTERS,
    FailureWord,
    OidcFailed,
    OidcProvider,
    ProviderUser,
)
from rocketlens.console.login.oidc_settings import (
    CALLBACK_PATH,
    MAX_OIDC_NAME_CHARACTERS,
    OIDC_PATH,
    OidcSettings,
    claim_of,
    is_loopback,
)
from rocketlens.console.login.viewer import Viewer, is_texts
from rocketlens.console.pages import SEE_OTHER, Here, HereNow, page_router
from rocketlens.console.preferences import local_path
from rocketlens.console.security import SESSION_COOKIE
from rocketlens.model.text.escape import printable

MAX_OIDC_GROUPS: Final = 10_000
"""Groups of one user: each is compared with the rules of the users file."""
MAX_OIDC_LOGINS: Final = 32
"""Logins by a provider that are checked at once."""
MAX_OIDC_LOGIN_S: Final = 600.0
"""Seconds from the start of a login to its end."""
MAX_OIDC_COOKIE_CHARACTERS: Final = 3_800
"""Characters of the cookie of a login: browsers take 4,096 bytes with its name."""
MAX_OIDC_HINT_CHARACTERS: Final = 4_096
"""Characters of an id token that the logout sends in an address. Longer ones are not kept."""
_log: Final = logging.getLogger("rocketlens.console")
_SHOWN: Final = 300
"""Characters of foreign texts in a log line."""


class BegunLogin(Struct, frozen=True):
    """A started login: the provider's address, and the cookie to set."""

    address: str
    cookie: str


class DoneLogin(Struct, frozen=True):
    """A successful login: the token of its session, and the path that it leads to."""

    token: str
    back: str


class OidcLogins:
    """Logs users of a provider in; belongs to one event loop."""

    def __init__(
        self,
        settings: OidcSettings,
        sessions: Sessions,
        audit: AuditLog,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.settings: Final = settings
        self._sessions: Final = sessions
        self._audit: Final = audit
        self._clock: Final = clock
        self._provider: Final = OidcProvider(settings, clock)
        self._key: Final = secrets.token_bytes(32)
        self._checking = 0

    async def begin(self, back: str, origin: str, address: str, *, again: bool) -> BegunLogin:
        """Start a login.

        :param back: The path that the login leads to; too long ones are replaced by ``/``.
        :param origin: The console's address in the browser: ``http://127.0.0.1:8088``.
        :param again: Whether the provider asks for a password even if the user is logged in there.
        :raises OidcFailed: if the provider's endpoints cannot be read.
        """
        try:
            redirect_uri = self._base(origin) + CALLBACK_PATH
            endpoint = (await self._provider.endpoints()).authorization
        except OidcFailed as error:
            self._record(error, address)
            raise
        cookie = self._cookie(back, redirect_uri)
        if len(cookie) > MAX_OIDC_COOKIE_CHARACTERS:
            cookie = self._cookie("/", redirect_uri)
        challenge = hashlib.sha256(self._mac("verifier", cookie).encode()).digest()
        values = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": self._mac("state", cookie),
            "nonce": self._mac("nonce", cookie),
            "code_challenge": _base64url(challenge),
            "code_challenge_method": "S256",
            **({"prompt": "login"} if again else {}),
        }
        return BegunLogin(_with_query(endpoint, values), cookie)

    async def finish(self, cookie: str, given: Mapping[str, str], address: str) -> DoneLogin:
        """Return the session of a user whom the provider has sent back.

        :param given: The query parameters of the provider's redirect.
        :raises OidcFailed: if the login failed. The audit log has the reason.
        :raises AuditFailed: if the audit log cannot be written.
        """
        try:
            back, redirect_uri = self._read_cookie(cookie, given.get("state", ""))
            user = await self._user(cookie, given, redirect_uri)
            viewer = self._viewer(user.claims)
        except OidcFailed as error:
            self._record(error, address)
            raise
        self._audit.record(
            "login",
            user=viewer.name,
            address=address,
            provider=self.settings.issuer,
            subject=user.claims["sub"],
        )
        is_short = len(user.id_token) <= MAX_OIDC_HINT_CHARACTERS
        return DoneLogin(self._sessions.begin(viewer, user.id_token if is_short else ""), back)

    async def logout_address(self, id_token: str, origin: str) -> str | None:
        """Return the address of the provider's logout; None if it has no such page."""
        if not self.settings.provider_logout:
            return None
        try:
            endpoint = (await self._provider.endpoints()).end_session
            back = f"{self._base(origin)}/login"
        except OidcFailed as error:
            _log.warning("the provider's logout is not available: %s", error)
            return None
        if endpoint is None:
            return None
        values = {"client_id": self.settings.client_id, "post_logout_redirect_uri": back}
        return _with_query(
            endpoint, {**values, **({"id_token_hint": id_token} if id_token else {})}
        )

    async def _user(self, cookie: str, given: Mapping[str, str], redirect_uri: str) -> ProviderUser:
        """Redeem the code of the provider's redirect."""
        issuer = given.get("iss")
        if issuer is not None and issuer != self.settings.issuer:
            raise OidcFailed("provider", "the answer comes from another provider (iss)")
        error = given.get("error")
        if error is not None:
            reason = ", ".join(filter(None, (error, given.get("error_description"))))
            word: FailureWord = "denied" if error == "access_denied" else "provider"
            raise OidcFailed(word, f"the provider refused: {printable(reason)[:_SHOWN]}")
        code = given.get("code", "")
        if not 0 < len(code) <= MAX_OIDC_TOKEN_CHARACTERS:
            raise OidcFailed("provider", "the answer has no code")
        if self._checking >= MAX_OIDC_LOGINS:
            raise OidcFailed("busy", "too many logins are checked at once")
        self._checking += 1
        try:
            if issuer is None and (await self._provider.endpoints()).names_issuer:
                raise OidcFailed("provider", "the answer does not name its provider (iss)")
            return await self._provider.user_of(
                code,
                verifier=self._mac("verifier", cookie),
                redirect_uri=redirect_uri,
                nonce=self._mac("nonce", cookie),
            )
        finally:
            self._checking -= 1

    def _viewer(self, claims: Mapping[str, Any]) -> Viewer:
        """Return the rights of a user.

        :raises OidcFailed: if the claims have no valid name, or the user has no rights.
        """
        settings = self.settings
        name = claim_of(claims, settings.name_claim)
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_OIDC_NAME_CHARACTERS
        if not (is_name and name.isprintable() and name == name.strip()):
            text = (
                f"the claim {settings.name_claim} is not a name: {printable(repr(name))[:_SHOWN]}"
            )
            raise OidcFailed("token", text)
        if settings.name_claim == "email" and claims.get("email_verified") in (False, "false"):
            raise OidcFailed("token", "the provider has not checked that the address is the user's")
        groups = _groups(claim_of(claims, settings.groups_claim), settings.groups_claim)
        viewer = settings.viewer(name, groups)
        if not viewer.grants:
            has = printable(", ".join(groups) or "none")[:_SHOWN]
            text = f"no rule of [oidc] matches this user, who has the groups: {has}"
            raise OidcFailed("no_access", text, viewer.name)
        return viewer

    def _base(self, origin: str) -> str:
        """Return the address of this console, as the provider knows it.

        Without ``public_url`` only a loopback Host header is trusted.
        """
        if self.settings.public_url is not None:
            return self.settings.public_url
        if is_loopback(urlsplit(origin).hostname or ""):
            return origin
        raise OidcFailed("elsewhere", f"set public_url of [oidc]: {printable(origin)[:_SHOWN]}")

    def _cookie(self, back: str, redirect_uri: str) -> str:
        begun = [self._clock(), secrets.token_urlsafe(16), back, redirect_uri]
        return _base64url(json.dumps(begun, ensure_ascii=False).encode("utf-8", "replace"))

    def _read_cookie(self, cookie: str, state: str) -> tuple[str, str]:
        """Check the cookie; return the path and the redirect URI of the login."""
        expected = self._mac("state", cookie)
        if not cookie or not hmac.compare_digest(
            state.encode("utf-8", "replace"), expected.encode()
        ):
            raise OidcFailed("old", "the answer matches no login of this browser (state)")
        # The MAC proves that this process made the cookie.
        begun = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        moment, _, back, redirect_uri = json.loads(begun)
        if not 0 <= self._clock() - moment <= MAX_OIDC_LOGIN_S:
            raise OidcFailed("old", "the login was started too long ago")
        return back, redirect_uri

    def _mac(self, purpose: str, cookie: str) -> str:
        """Return a MAC of the cookie for one purpose, 43 characters."""
        made = f"{purpose} {cookie}".encode("utf-8", "surrogatepass")
        return _base64url(hmac.digest(self._key, made, hashlib.sha256))

    def _record(self, error: OidcFailed, address: str) -> None:
        _log.warning("a login by %s failed: %s", self.settings.issuer, error)
        self._audit.record(
            "refused",
            user=error.user,
            address=address,
            why=f"{error.word}: {error}",
            provider=self.settings.issuer,
        )


def _groups(value: Any, claim: str) -> list[str]:
    """Return the groups in a claim; none if the claim is missing.

    :raises OidcFailed: if they are not texts, or too many.
    """
    groups = [value] if isinstance(value, str) else [] if value is None else value
    if not is_texts(groups):
        raise OidcFailed("token", f"the claim {claim} is not a list of texts")
    if len(groups) > MAX_OIDC_GROUPS:
        raise OidcFailed("token", f"the claim {claim} has over {MAX_OIDC_GROUPS} groups")
    return groups


def _with_query(address: str, values: Mapping[str, str]) -> str:
    """Add values to the query of an address."""
    parts = urlsplit(address)
    query = "&".join(filter(None, (parts.query, urlencode(values))))
    return parts._replace(query=query, fragment="").geturl()


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


_LOGIN_COOKIE: Final = "rl_oidc"
FAILURE_STATUS: Final[Mapping[FailureWord, int]] = {
    "denied": 403,  # the provider or the user refused
    "no_access": 403,  # no rule of the users file matches the user
    "old": 400,  # the answer is for another browser or login, or too late
    "elsewhere": 400,  # browsers use a host name that needs to be configured
    "busy": 503,  # too many logins are checked at once
    "unreachable": 502,  # the provider did not answer
    "provider": 502,  # the provider sent an invalid answer or an error
    "token": 502,  # the token or its content is not valid
}
pages = page_router()


def _oidc(here: HereNow) -> tuple[OidcLogins, bool]:
    """Return the logins, and whether browsers use https."""
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
        _LOGIN_COOKIE,
        begun.cookie,
        max_age=int(MAX_OIDC_LOGIN_S),
        path=OIDC_PATH,
        httponly=True,
        # Browsers send no strict cookies with the provider's redirect.
        samesite="lax",
        secure=is_https or here.request.url.scheme == "https",
    )
    return answer


@pages.get(CALLBACK_PATH)
async def _finish(here: Here) -> Response:
    request, (oidc, is_https) = here.request, _oidc(here)
    cookie, given = request.cookies.get(_LOGIN_COOKIE, ""), dict(request.query_params)
    answer: Response
    try:
        done = await oidc.finish(cookie, given, client_address(request))
    except OidcFailed as error:
        answer = _failure(here, error)
    else:
        answer = RedirectResponse(done.back, SEE_OTHER)
        set_private_cookie(answer, SESSION_COOKIE, done.token, request, is_https=is_https)
    answer.delete_cookie(_LOGIN_COOKIE, path=OIDC_PATH)
    return answer
