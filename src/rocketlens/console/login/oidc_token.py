"""Id tokens of a provider: signed by one of its keys, for this console, now, and for this login.

Signatures are checked by PyJWT. Which key may check which algorithm is decided here: only public
keys, of the kind that the algorithm is for. So ``none``, and HMAC with a public key as its secret,
are refused before a key is looked for.

Source: OpenID Connect Core 1.0, section 3.1.3.7; RFC 7515; RFC 8725.
"""

import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import jwt

from rocketlens import limits
from rocketlens.errors import RocketLensError
from rocketlens.model.text.escape import printable

FailureWord = Literal[
    "unreachable", "provider", "token", "denied", "no_access", "old", "elsewhere", "busy"
]
_KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The algorithms that are allowed, and the type of their keys (RFC 7518)."""
_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
"""What of a key is read: never a private part, nor a certificate that names other keys."""
_CLAIMS: Final = ("iss", "sub", "aud", "exp", "iat", "nonce")
_VERIFIER: Final = jwt.PyJWT({"enforce_minimum_key_length": True})
_FAILURES: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""What PyJWT raises for tokens and keys that others made up."""


class OidcFailed(RocketLensError):
    """A login by the provider that did not succeed; ``word`` names the text of its page."""

    def __init__(self, word: FailureWord, text: str, user: str = "") -> None:
        super().__init__(text)
        self.word: Final = word
        self.user: Final = user


class UnknownKey(OidcFailed):
    """A token whose key is none of those that are known: the provider may have a new one."""


class TokenHeader(NamedTuple):
    """The header of a token, which names its signature; not verified."""

    algorithm: str
    key_id: str | None


class KeySet:
    """The public keys of a provider."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Keep the keys of a JWK Set that can check signatures.

        :raises OidcFailed: if it is not one.
        """
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise OidcFailed("provider", "the provider's keys are no JWK Set")
        self._keys: Final = [
            each for each in keys if isinstance(each, dict) and each.get("use", "sig") == "sig"
        ]

    def fitting(self, header: TokenHeader) -> Iterator[jwt.PyJWK]:
        """Yield the keys that may have made a signature."""
        for each in self._keys:
            is_named = header.key_id is None or each.get("kid") == header.key_id
            is_kind = each.get("kty") == _KEY_TYPES[header.algorithm]
            if not is_named or not is_kind or each.get("alg", header.algorithm) != header.algorithm:
                continue
            try:
                yield jwt.PyJWK(
                    {name: each[name] for name in _PUBLIC if name in each}, header.algorithm
                )
            except _FAILURES:
                # A key that cannot be one: others can.
                continue


def verified_claims(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """Return the claims of an id token, once everything about it was checked.

    :raises UnknownKey: if none of the keys has signed it, and another one may have.
    :raises OidcFailed: if it is not a token for this client and login that is valid now.
    """
    header = _header(token)
    failure: Exception | None = None
    for key in keys.fitting(header):
        try:
            claims = _VERIFIER.decode(
                token,
                key,
                algorithms=[header.algorithm],
                issuer=issuer,
                audience=client_id,
                leeway=limits.MAX_OIDC_SKEW_S,
                options={"require": [*_CLAIMS]},
            )
        except jwt.InvalidSignatureError as error:
            # Without a name of its key all are tried.
            failure = error
        except _FAILURES as error:
            raise _refused(error) from error
        else:
            _check_party(claims, client_id, nonce)
            return claims
    if failure is not None and header.key_id is not None:
        raise _refused(failure) from failure
    raise UnknownKey("token", "the id token is signed by none of the provider's keys")


def _header(token: str) -> TokenHeader:
    if len(token) > limits.MAX_OIDC_TOKEN_CHARACTERS:
        limit = limits.MAX_OIDC_TOKEN_CHARACTERS
        raise OidcFailed("token", f"the id token has over {limit} characters")
    try:
        header = jwt.get_unverified_header(token)
    except _FAILURES as error:
        raise _refused(error) from error
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _KEY_TYPES:
        name = printable(str(algorithm))[:40]
        raise OidcFailed("token", f"the id token has the algorithm {name}, which is not allowed")
    return TokenHeader(algorithm, key_id)


def _check_party(claims: Mapping[str, Any], client_id: str, nonce: str) -> None:
    """Check what the library does not: the party that it was issued to, and the login."""
    parties = claims["aud"]
    if claims.get("azp", client_id) != client_id:
        raise OidcFailed("token", "the id token was issued to another client (azp)")
    if isinstance(parties, list) and len(parties) > 1 and "azp" not in claims:
        raise OidcFailed("token", "the id token is for several clients, and has no azp")
    given = claims["nonce"]
    if not isinstance(given, str) or not hmac.compare_digest(
        given.encode("utf-8", "replace"), nonce.encode()
    ):
        raise OidcFailed("token", "the id token is of another login (nonce)")
    if not claims["sub"]:
        raise OidcFailed("token", "the id token has an empty sub")


def _refused(error: Exception) -> OidcFailed:
    return OidcFailed("token", f"the id token is not valid: {printable(str(error))[:200]}")
