"""The client of an OpenID Connect provider: discovery, keys, and tokens for codes.

The first login asks the provider first, so a console starts without it. Endpoints and keys are read
again after an hour, and keys also if a token names an unknown one, at most once a minute.
Concurrent logins share a request. Requests have a timeout, answers a size limit, and redirects are
not followed.

An id token must be signed by a key of the provider, for this console and this login, and be valid
now. PyJWT checks signatures. This module decides which key may check which algorithm: public keys
of the type that the algorithm needs. So ``none``, and HMAC with a public key as its secret, are
refused before a key is looked for.

Source: OpenID Connect Discovery 1.0; OpenID Connect Core 1.0, sections 3.1.3 and 5.3; RFC 6749; RFC
7515; RFC 8725.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from time import monotonic
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote_plus, urlsplit

import httpx
import jwt
from msgspec import Struct

from rocketlens.console.login.oidc_settings import OidcSettings, claim_of, is_loopback
from rocketlens.errors import RocketLensError
from rocketlens.model.text.escape import printable

MAX_OIDC_WAIT_S: Final = 10.0
"""Seconds for one answer of the provider: a user waits for it."""
MAX_OIDC_ANSWER_BYTES: Final = 1 << 20
"""Bytes of one answer of the provider: keys and tokens have some KiB."""
MAX_OIDC_TOKEN_CHARACTERS: Final = 256 << 10
"""Characters of an id token, which can have thousands of groups."""
MAX_OIDC_SKEW_S: Final = 60.0
"""Seconds by which the clocks of provider and console may differ."""
MAX_OIDC_AGE_S: Final = 3600.0
"""Seconds for which endpoints and keys are kept: then a revoked key is not used any more."""
MIN_OIDC_KEYS_AGE_S: Final = 60.0
"""Seconds between two reads of the keys for tokens with unknown keys."""
FailureWord = Literal[
    "unreachable", "provider", "token", "denied", "no_access", "old", "elsewhere", "busy"
]
_KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The allowed algorithms, and the type of their keys (RFC 7518)."""
_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
"""The fields of a key that are read: never private parts, nor certificates."""
_CLAIMS: Final = ("iss", "sub", "aud", "exp", "iat", "nonce")
_VERIFIER: Final = jwt.PyJWT({"enforce_minimum_key_length": True})
_FAILURES: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""The exceptions of PyJWT for invalid tokens and keys."""


class OidcFailed(RocketLensError):
    """A failed login by the provider; ``word`` names the text of its page."""

    def __init__(self, word: FailureWord, text: str, user: str = "") -> None:
        super().__init__(text)
        self.word: Final = word
        self.user: Final = user


class UnknownKey(OidcFailed):
    """No known key has signed the token: the provider may have a new one."""


class KeySet:
    """The public keys of a provider."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Keep the signing keys of a JWK Set.

        :raises OidcFailed: if it is not a JWK Set.
        """
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise OidcFailed("provider", "the provider's keys are not a JWK Set")
        self._keys: Final = [
            each for each in keys if isinstance(each, dict) and each.get("use", "sig") == "sig"
        ]

    def fitting(self, algorithm: str, key_id: str | None) -> Iterator[jwt.PyJWK]:
        """Yield the keys that can have signed a token. Without a ``key_id``, try all."""
        for each in self._keys:
            is_named = key_id is None or each.get("kid") == key_id
            is_kind = each.get("kty") == _KEY_TYPES[algorithm]
            if not is_named or not is_kind or each.get("alg", algorithm) != algorithm:
                continue
            try:
                yield jwt.PyJWK({name: each[name] for name in _PUBLIC if name in each}, algorithm)
            except _FAILURES:
                # Skip an invalid key.
                continue


def verified_claims(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """Return the claims of an id token after all checks.

    :raises UnknownKey: if none of the keys has signed it, and a new one may have.
    :raises OidcFailed: if it is not valid for this client, login and time.
    """
    algorithm, key_id = _header(token)
    failure: Exception | None = None
    for key in keys.fitting(algorithm, key_id):
        try:
            claims = _VERIFIER.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=issuer,
                audience=client_id,
                leeway=MAX_OIDC_SKEW_S,
                options={"require": [*_CLAIMS]},
            )
        except jwt.InvalidSignatureError as error:
            # Without a key id, try the other keys.
            failure = error
        except _FAILURES as error:
            raise _invalid_token(error) from error
        else:
            _check_party(claims, client_id, nonce)
            return claims
    if failure is not None and key_id is not None:
        raise _invalid_token(failure) from failure
    raise UnknownKey("token", "the id token is signed by none of the provider's keys")


def _header(token: str) -> tuple[str, str | None]:
    """Return algorithm and key id that a token names, unverified."""
    if len(token) > MAX_OIDC_TOKEN_CHARACTERS:
        limit = MAX_OIDC_TOKEN_CHARACTERS
        raise OidcFailed("token", f"the id token has over {limit} characters")
    try:
        header = jwt.get_unverified_header(token)
    except _FAILURES as error:
        raise _invalid_token(error) from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _KEY_TYPES:
        name = printable(str(algorithm))[:40]
        raise OidcFailed("token", f"the id token has the algorithm {name}, which is not allowed")
    return algorithm, key_id


def _check_party(claims: Mapping[str, Any], client_id: str, nonce: str) -> None:
    """Check what PyJWT does not: the authorized party and the nonce."""
    parties = claims["aud"]
    if claims.get("azp", client_id) != client_id:
        raise OidcFailed("token", "the id token was issued to another client (azp)")
    if isinstance(parties, list) and len(parties) > 1 and "azp" not in claims:
        raise OidcFailed("token", "the id token is for several clients, and has no azp")
    given = claims["nonce"]
    if not isinstance(given, str) or not hmac.compare_digest(
        given.encode("utf-8", "replace"), nonce.encode()
    ):
        raise OidcFailed("token", "the id token belongs to another login (nonce)")
    if not claims["sub"]:
        raise OidcFailed("token", "the id token has an empty sub")


def _invalid_token(error: Exception) -> OidcFailed:
    return OidcFailed("token", f"the id token is not valid: {printable(str(error))[:200]}")


T = TypeVar("T")

_DISCOVERY: Final = "/.well-known/openid-configuration"
_PLAIN: Final = {"accept": "application/json", "accept-encoding": "identity"}
"""Uncompressed, so that a limit on received bytes is one on the content."""
_SHOWN: Final = 200
"""Characters of the provider's answers in a log line."""


class ProviderEndpoints(Struct, frozen=True):
    """The discovery document of a provider."""

    authorization: str
    token: str
    keys: str
    user_info: str | None
    end_session: str | None
    takes_secret_in_form: bool
    """True if the provider takes client secrets in the form only."""
    names_issuer: bool
    """True if the provider's redirects name the issuer (RFC 9207)."""


class ProviderUser(Struct, frozen=True):
    """The user of a code."""

    claims: Mapping[str, Any]
    id_token: str


class _Cached(Generic[T]):
    """A value that is read on demand, by one request at a time, and kept."""

    def __init__(self, read: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._read: Final = read
        self._clock: Final = clock
        self._kept: tuple[T, float] | None = None
        self._reading: asyncio.Task[T] | None = None

    async def get(self, max_age_s: float) -> T:
        """Return a value that is at most so old."""
        if self._kept is not None and self._clock() - self._kept[1] < max_age_s:
            return self._kept[0]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_again())
            # Retrieve its exception even if all waiters were cancelled.
            self._reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._reading)

    async def _read_again(self) -> T:
        try:
            value = await self._read()
            self._kept = value, self._clock()
            return value
        finally:
            self._reading = None


class OidcProvider:
    """The client of a provider; belongs to one event loop."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = monotonic) -> None:
        self._settings: Final = settings
        self._is_local: Final = is_loopback(urlsplit(settings.issuer).hostname or "")
        self._endpoints: Final = _Cached(self._read_endpoints, clock)
        self._keys: Final = _Cached(self._read_keys, clock)

    async def endpoints(self) -> ProviderEndpoints:
        """Return the provider's endpoints.

        :raises OidcFailed: if they cannot be read, or are of another issuer.
        """
        return await self._endpoints.get(MAX_OIDC_AGE_S)

    async def user_of(
        self, code: str, *, verifier: str, redirect_uri: str, nonce: str
    ) -> ProviderUser:
        """Redeem a code, which works once.

        Missing claims are requested from the userinfo endpoint, if there is one.

        :raises OidcFailed: if the provider refuses the code, or its token is not valid.
        """
        answer = await self._redeem(code, verifier, redirect_uri)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise OidcFailed("provider", "the provider's answer to the code has no id_token")
        claims = await self._verify(token, nonce)
        if any(claim_of(claims, each) is None for each in self._settings.needed_claims):
            claims = {**await self._more_claims(answer.get("access_token"), claims), **claims}
        return ProviderUser(claims, token)

    async def _verify(self, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an id token. Read the keys again if its key is unknown."""
        expected = {
            "issuer": self._settings.issuer,
            "client_id": self._settings.client_id,
            "nonce": nonce,
        }
        try:
            return verified_claims(token, await self._keys.get(MAX_OIDC_AGE_S), **expected)
        except UnknownKey:
            # The same keys, if they are less than a minute old.
            return verified_claims(token, await self._keys.get(MIN_OIDC_KEYS_AGE_S), **expected)

    async def _redeem(self, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        endpoints, settings = await self.endpoints(), self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        by_basic = None
        if settings.client_secret is None:
            form["client_id"] = settings.client_id
        elif endpoints.takes_secret_in_form:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        else:
            # Form-encoded: RFC 6749, section 2.3.1.
            names = quote_plus(settings.client_id), quote_plus(settings.client_secret)
            by_basic = httpx.BasicAuth(*names)
        return await self._json("POST", endpoints.token, data=form, auth=by_basic)

    async def _more_claims(self, access_token: Any, claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of the userinfo endpoint; empty if there is none."""
        address = (await self.endpoints()).user_info
        if address is None or not isinstance(access_token, str):
            return {}
        try:
            more = await self._json(
                "GET", address, headers={"authorization": f"Bearer {access_token}"}
            )
        except UnicodeError:
            raise OidcFailed("provider", "the provider's access token is not ASCII") from None
        if more.get("sub") != claims["sub"]:
            raise OidcFailed("token", "the provider answered for another user (userinfo, sub)")
        return more

    async def _read_endpoints(self) -> ProviderEndpoints:
        document = await self._json("GET", self._settings.issuer.rstrip("/") + _DISCOVERY)
        if document.get("issuer") != self._settings.issuer:
            name = printable(str(document.get("issuer")))[:_SHOWN]
            text = f"the provider calls itself {name}: give exactly that as issuer"
            raise OidcFailed("provider", text)
        method_names = document.get("token_endpoint_auth_methods_supported")
        methods = method_names if isinstance(method_names, list) else ["client_secret_basic"]
        return ProviderEndpoints(
            self._required_address(document, "authorization_endpoint"),
            self._required_address(document, "token_endpoint"),
            self._required_address(document, "jwks_uri"),
            self._address(document, "userinfo_endpoint"),
            self._address(document, "end_session_endpoint"),
            "client_secret_basic" not in methods and "client_secret_post" in methods,
            document.get("authorization_response_iss_parameter_supported") is True,
        )

    async def _read_keys(self) -> KeySet:
        return KeySet(await self._json("GET", (await self.endpoints()).keys))

    def _required_address(self, document: Mapping[str, Any], name: str) -> str:
        address = self._address(document, name)
        if address is None:
            raise OidcFailed("provider", f"the provider has no {name}")
        return address

    def _address(self, document: Mapping[str, Any], name: str) -> str | None:
        """Return an endpoint's address: https, or http if issuer and endpoint are local."""
        address = document.get(name)
        if address is None:
            return None
        try:
            parts = urlsplit(address) if isinstance(address, str) else None
            host = "" if parts is None else parts.hostname or ""
        except ValueError:
            parts, host = None, ""
        is_plain = self._is_local and is_loopback(host)
        if parts is None or not host or parts.scheme not in {"https", *(["http"] * is_plain)}:
            raise OidcFailed("provider", f"the provider's {name} is not an https address")
        return str(address)

    async def _json(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object of an answer.

        :raises OidcFailed: if the provider does not answer in time, or with something else.
        """
        where = printable(address.partition("?")[0])[:_SHOWN]
        headers = {**_PLAIN, **options.pop("headers", {})}
        # A proxy cannot reach a provider on this machine.
        client = httpx.AsyncClient(verify=self._settings.tls, trust_env=not self._is_local)
        try:
            async with asyncio.timeout(MAX_OIDC_WAIT_S), client:
                stream = client.stream(method, address, headers=headers, timeout=None, **options)
                async with stream as answer:
                    content = await _read_bounded(answer, where)
        except TimeoutError:
            wait = f"{MAX_OIDC_WAIT_S:g} s"
            raise OidcFailed("unreachable", f"{where} did not answer within {wait}") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = printable(str(error) or type(error).__name__)[:_SHOWN]
            raise OidcFailed("unreachable", f"the request to {where} failed: {reason}") from error
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if answer.status_code != httpx.codes.OK:
            word: FailureWord = "unreachable" if answer.status_code >= 500 else "provider"
            raise OidcFailed(word, f"{where} answered {answer.status_code}{_error_in(document)}")
        if not isinstance(document, dict):
            raise OidcFailed("provider", f"{where} did not answer with a JSON object")
        return document


async def _read_bounded(answer: httpx.Response, where: str) -> bytes:
    """Return the body of an answer.

    :raises OidcFailed: if it is too large, or compressed.
    """
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise OidcFailed("provider", f"{where} sent a compressed answer, which was not requested")
    content = bytearray()
    async for piece in answer.aiter_raw():
        content += piece
        if len(content) > MAX_OIDC_ANSWER_BYTES:
            limit = MAX_OIDC_ANSWER_BYTES
            raise OidcFailed("provider", f"{where} sent over {limit} bytes")
    return bytes(content)


def _error_in(document: Any) -> str:
    """Return the OAuth error in an answer; empty if there is none."""
    if not isinstance(document, dict):
        return ""
    parts = (document.get(each) for each in ("error", "error_description"))
    text = ", ".join(each for each in parts if isinstance(each, str))
    return f": {printable(text)[:_SHOWN]}" if text else ""
