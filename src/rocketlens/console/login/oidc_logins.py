"""Logging in by a provider of OpenID Connect: the authorization code flow, with PKCE.

Of a login that was begun nothing is kept here. A cookie of the browser has the moment, a random
text, and where it leads; state, nonce and the code's verifier are MACs of that, with a key that
only this process has. So an answer of the provider is taken only from the browser that asked for
it, in time, and only for the login that it was for.

====================  ======  ==============================================================
failure               status  what happened
====================  ======  ==============================================================
``denied``            403     the provider, or its user, refused
``no_access``         403     no rule of the file of users is for the user
``old``               400     the answer is of another browser, of another login, or too late
``elsewhere``         400     browsers reach the console by a name that has to be configured
``busy``              503     too many are checked at once
``unreachable``       502     the provider did not answer
``provider``          502     it answered what cannot be, or does not know this console
``token``             502     its token, or what is in it, is not valid
====================  ======  ==============================================================

Each is a page, a line in the log and one in the audit log. Neither has a token or a secret.

Signatures and keys are PyJWT's and cryptography's, requests are httpx's; the rest is our own.
Authlib would take the place of about a hundred lines: the address of the login, the form for the
code, the choice of a key and the claims. Our bounds would have to be written again around it. It
reads answers whole, however long; keeps what a provider says of itself as long as the process runs;
reads keys again for each token with an unknown key; takes the algorithms that the provider names;
checks no nonce if the token says so (``nonce_supported``); and keeps each login that was begun.

`app` imports this, and adds its routes, if a provider is set: others must not pay for what reads
tokens.
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
from rocketlens.console.login.viewer import Viewer
from rocketlens.console.pages import SEE_OTHER, Here, HereNow, page_router
from rocketlens.console.preferences import local_path
from rocketlens.console.security import SESSION_COOKIE
from rocketlens.model.text.escape import printable

MAX_OIDC_GROUPS: Final = 10_000
"""Groups of one user of a provider: each is compared with the rules of the file of users."""
MAX_OIDC_LOGINS: Final = 32
"""Logins by a provider that are checked at once; more are refused, with a status that says so."""
MAX_OIDC_LOGIN_S: Final = 600.0
"""Seconds from the start of a login by a provider to its end: someone has to find a password."""
MAX_OIDC_COOKIE_CHARACTERS: Final = 3_800
"""Of the cookie that keeps where a login leads back to: browsers take 4,096 bytes with its name."""
MAX_OIDC_HINT_CHARACTERS: Final = 4_096
"""Of an id token that is kept for the logout, which sends it in an address; a longer one is not."""
_log: Final = logging.getLogger("rocketlens.console")
_SHOWN: Final = 300
"""Characters of what others chose that a line of the log has."""


class BegunLogin(Struct, frozen=True):
    """A login that a browser is sent to the provider for."""

    address: str
    cookie: str


class DoneLogin(Struct, frozen=True):
    """A login that succeeded: the token of its session, and the path that it was for."""

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
        """Return where a browser is sent.

        :param back: The path that the login leads to; a long one is not kept.
        :param origin: How the browser reaches this console: ``http://127.0.0.1:8088``.
        :param again: Whether the provider shall ask for a password, even of one who is logged in.
        :raises OidcFailed: if the provider cannot be asked where that is.
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
        challenge = hashlib.sha256(self._derived("verifier", cookie).encode()).digest()
        values = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": self._derived("state", cookie),
            "nonce": self._derived("nonce", cookie),
            "code_challenge": _encoded(challenge),
            "code_challenge_method": "S256",
            **({"prompt": "login"} if again else {}),
        }
        return BegunLogin(_with_query(endpoint, values), cookie)

    async def finish(self, cookie: str, given: Mapping[str, str], address: str) -> DoneLogin:
        """Return the session of a user that the provider has sent back.

        :param given: What the provider has added to the address.
        :raises OidcFailed: if there is none; it was written down.
        :raises AuditFailed: if it cannot be written down.
        """
        try:
            back, redirect_uri = self._begun(cookie, given.get("state", ""))
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
        """Return where a browser ends its session at the provider; None if it has no such page."""
        if not self.settings.provider_logout:
            return None
        try:
            endpoint = (await self._provider.endpoints()).end_session
            back = f"{self._base(origin)}/login"
        except OidcFailed as error:
            _log.warning("the logout is not of the provider, too: %s", error)
            return None
        if endpoint is None:
            return None
        values = {"client_id": self.settings.client_id, "post_logout_redirect_uri": back}
        return _with_query(
            endpoint, {**values, **({"id_token_hint": id_token} if id_token else {})}
        )

    async def _user(self, cookie: str, given: Mapping[str, str], redirect_uri: str) -> ProviderUser:
        """Return the user whose code the provider has sent, as a reply to this login."""
        issuer = given.get("iss")
        if issuer is not None and issuer != self.settings.issuer:
            raise OidcFailed("provider", "the answer is of another provider (iss)")
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
                verifier=self._derived("verifier", cookie),
                redirect_uri=redirect_uri,
                nonce=self._derived("nonce", cookie),
            )
        finally:
            self._checking -= 1

    def _viewer(self, claims: Mapping[str, Any]) -> Viewer:
        """Return what a user may see.

        :raises OidcFailed: if the claims do not name one, or it may see nothing.
        """
        settings = self.settings
        name = claim_of(claims, settings.name_claim)
        is_name = isinstance(name, str) and 0 < len(name) <= MAX_OIDC_NAME_CHARACTERS
        if not (is_name and name.isprintable() and name == name.strip()):
            text = f"the claim {settings.name_claim} is no name: {printable(repr(name))[:_SHOWN]}"
            raise OidcFailed("token", text)
        if settings.name_claim == "email" and claims.get("email_verified") in (False, "false"):
            raise OidcFailed("token", "the provider has not checked that the address is the user's")
        groups = _groups(claim_of(claims, settings.groups_claim), settings.groups_claim)
        viewer = settings.viewer(name, groups)
        if not viewer.grants:
            has = printable(", ".join(groups) or "none")[:_SHOWN]
            text = f"no rule of [oidc] is for this user, whose groups are: {has}"
            raise OidcFailed("no_access", text, viewer.name)
        return viewer

    def _base(self, origin: str) -> str:
        """Return the address of this console, as the provider knows it.

        A Host header is believed only if it names the machine of the browser itself.
        """
        if self.settings.public_url is not None:
            return self.settings.public_url
        if is_loopback(urlsplit(origin).hostname or ""):
            return origin
        raise OidcFailed("elsewhere", f"set public_url of [oidc]: {printable(origin)[:_SHOWN]}")

    def _cookie(self, back: str, redirect_uri: str) -> str:
        begun = [self._clock(), secrets.token_urlsafe(16), back, redirect_uri]
        return _encoded(json.dumps(begun, ensure_ascii=False).encode("utf-8", "replace"))

    def _begun(self, cookie: str, state: str) -> tuple[str, str]:
        """Return where a login leads, and the address that its code is for."""
        expected = self._derived("state", cookie)
        if not cookie or not hmac.compare_digest(
            state.encode("utf-8", "replace"), expected.encode()
        ):
            raise OidcFailed("old", "the answer is of no login that this browser began (state)")
        # It was made here.
        begun = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        moment, _, back, redirect_uri = json.loads(begun)
        if not 0 <= self._clock() - moment <= MAX_OIDC_LOGIN_S:
            raise OidcFailed("old", "the login was begun too long ago")
        return back, redirect_uri

    def _derived(self, purpose: str, cookie: str) -> str:
        """Return a text of 43 characters for one purpose of one login."""
        made = f"{purpose} {cookie}".encode("utf-8", "surrogatepass")
        return _encoded(hmac.digest(self._key, made, hashlib.sha256))

    def _record(self, error: OidcFailed, address: str) -> None:
        _log.warning("a login by %s did not succeed: %s", self.settings.issuer, error)
        self._audit.record(
            "refused",
            user=error.user,
            address=address,
            why=f"{error.word}: {error}",
            provider=self.settings.issuer,
        )


def _groups(value: Any, claim: str) -> list[str]:
    """Return the groups of a user; one that has none may lack the claim.

    :raises OidcFailed: if they are something else, or too many.
    """
    groups = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        raise OidcFailed("token", f"the claim {claim} is not a list of texts")
    if len(groups) > MAX_OIDC_GROUPS:
        raise OidcFailed("token", f"the claim {claim} has over {MAX_OIDC_GROUPS} groups")
    return groups


def _with_query(address: str, values: Mapping[str, str]) -> str:
    """Return an address with values in addition to those that it has."""
    parts = urlsplit(address)
    query = "&".join(filter(None, (parts.query, urlencode(values))))
    return parts._replace(query=query, fragment="").geturl()


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


_LOGIN_COOKIE: Final = "rl_oidc"
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
        _LOGIN_COOKIE,
        begun.cookie,
        max_age=int(MAX_OIDC_LOGIN_S),
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
