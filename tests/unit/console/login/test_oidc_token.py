"""Id tokens: the good ones of every algorithm, and every way to forge one."""

import json
import time

import jwt
import pytest

from rocketlens import limits
from rocketlens.console.login.oidc_token import KeySet, OidcFailed, UnknownKey, verified_claims
from tests.support.oidc_world import (
    CLIENT_ID,
    ProviderStub,
    encoded,
    hmac_token,
    jwk,
    private_key,
    public_pem,
)

DAY_S = 24 * 3600
ISSUER = "https://login.example.com/realms/shop"


@pytest.fixture
def stub():
    made = ProviderStub()
    made.issuer = ISSUER
    return made


def keys_of(*several):
    return KeySet({"keys": list(several)})


def checked(stub, token, keys=None):
    known = keys or keys_of(jwk(private_key("RSA"), kid="k1", use="sig"))
    return verified_claims(token, known, issuer=stub.issuer, client_id=CLIENT_ID, nonce="n")


def from_now(changed):
    """Give claims whose moments are seconds from now."""
    now = int(time.time())
    moments = {"exp", "nbf", "iat"}
    return {k: v + now if k in moments and isinstance(v, int) else v for k, v in changed.items()}


def parts_of(token):
    return token.split(".")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        *((f"{family}{size}", "RSA") for family in ("RS", "PS") for size in (256, 384, 512)),
        ("ES256", "EC"),
        ("ES384", "EC-384"),
        ("EdDSA", "OKP"),
    ],
)
def test_a_token_of_every_allowed_algorithm_is_taken(stub, algorithm, kind):
    stub.keys = [("k", algorithm, private_key(kind))]
    known = keys_of(jwk(private_key("RSA"), kid="other"), jwk(private_key(kind), kid="k"))
    assert checked(stub, stub.signed(stub.claims()), known)["sub"] == "u-1"


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": [CLIENT_ID]},
        {"aud": [CLIENT_ID, "other"], "azp": CLIENT_ID},
        {"exp": -1},
        {"nbf": 30, "iat": 30},
    ],
)
def test_what_is_valid_is_taken(stub, changed):
    assert checked(stub, stub.signed(stub.claims(**from_now(changed))))["sub"] == "u-1"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"iss": "https://evil.example"}, "issuer"),
        ({"iss": f"{ISSUER}/"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "Audience"),
        ({"aud": ["other"]}, "Audience"),
        ({"aud": []}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": {"a": CLIENT_ID}}, "claim format"),
        ({"aud": [CLIENT_ID, "other"]}, "several clients"),
        ({"aud": [CLIENT_ID, "other"], "azp": "other"}, "azp"),
        ({"azp": "other"}, "azp"),
        ({"exp": -DAY_S}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": [1]}, "not valid"),
        ({"exp": float("inf")}, "not valid"),
        ({"nbf": DAY_S}, "nbf"),
        ({"iat": DAY_S}, "iat"),
        ({"iat": None}, "iat"),
        ({"nonce": "of another login"}, "nonce"),
        ({"nonce": ["n"]}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"nonce": "\ud800"}, "nonce"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "Subject"),
    ],
)
def test_a_signed_token_for_another_party_time_or_login_is_refused(stub, changed, said):
    claims = stub.claims(**from_now(changed))
    # The library that signs checks some of this itself.
    key = private_key("RSA")
    token = jwt.PyJWS().encode(json.dumps(claims).encode(), key, "RS256", headers={"kid": "k1"})
    with pytest.raises(OidcFailed) as caught:
        checked(stub, token)
    assert caught.value.word == "token"
    assert said in str(caught.value)


def unsigned(stub):
    return jwt.encode(stub.claims(), None, "none", headers={"kid": "k1"})


def unsigned_in_capitals(stub):
    head = encoded(json.dumps({"alg": "NONE", "kid": "k1"}).encode())
    return f"{head}.{parts_of(unsigned(stub))[1]}."


def hmac_with_public_key(stub):
    return hmac_token(stub.claims(), public_pem(private_key("RSA")), kid="k1")


def hmac_with_public_jwk(stub):
    public = json.dumps(jwk(private_key("RSA"), kid="k1", use="sig")).encode()
    return hmac_token(stub.claims(), public, kid="k1")


def of_another_key_by_the_same_name(stub):
    stub.keys = [("k1", "RS256", private_key("RSA", 1))]
    return stub.signed(stub.claims())


def with_its_own_key(stub):
    stub.keys = [("k1", "RS256", private_key("RSA", 1))]
    return stub.signed(stub.claims(), jwk=jwk(private_key("RSA", 1)))


def with_other_claims(stub):
    head, _, signature = parts_of(stub.signed(stub.claims()))
    _, claims, _ = parts_of(stub.signed(stub.claims(groups=["admins"])))
    return f"{head}.{claims}.{signature}"


def without_its_signature(stub):
    return stub.signed(stub.claims()).rpartition(".")[0] + "."


def of_another_algorithm(stub):
    _, claims, signature = parts_of(stub.signed(stub.claims()))
    head = encoded(json.dumps({"alg": "RS512", "kid": "k1"}).encode())
    return f"{head}.{claims}.{signature}"


def of_no_algorithm(stub):
    head = encoded(json.dumps({"kid": "k1"}).encode())
    return f"{head}.{parts_of(unsigned(stub))[1]}."


def of_a_list_of_algorithms(stub):
    head = encoded(json.dumps({"alg": ["RS256"], "kid": "k1"}).encode())
    return f"{head}.{parts_of(unsigned(stub))[1]}."


def with_a_key_that_is_no_text(stub):
    head = encoded(json.dumps({"alg": "RS256", "kid": {"a": 1}}).encode())
    return f"{head}.{parts_of(stub.signed(stub.claims()))[1]}.x"


def that_must_be_understood(stub):
    return stub.signed(stub.claims(), crit=["exp2"], exp2=1)


def that_is_encrypted(stub):
    head = encoded(json.dumps({"alg": "RSA-OAEP", "enc": "A256GCM", "kid": "k1"}).encode())
    return f"{head}.a.b.c.d"


def with_claims_that_are_no_object(stub):
    del stub
    key = private_key("RSA")
    return jwt.PyJWS().encode(b"[1]", key, "RS256", headers={"kid": "k1"})


def with_claims_in_a_thousand_brackets(stub):
    del stub
    key, content = private_key("RSA"), b"[" * 100_000
    return jwt.PyJWS().encode(content, key, "RS256", headers={"kid": "k1"})


def that_is_endless(stub):
    return stub.signed(stub.claims(more="x" * limits.MAX_OIDC_TOKEN_CHARACTERS))


def that_is_empty(stub):
    del stub
    return ""


def that_is_not_ascii(stub):
    return stub.signed(stub.claims()).replace(".", "。")


FORGED = [
    unsigned,
    unsigned_in_capitals,
    hmac_with_public_key,
    hmac_with_public_jwk,
    of_another_key_by_the_same_name,
    with_its_own_key,
    with_other_claims,
    without_its_signature,
    of_another_algorithm,
    of_no_algorithm,
    of_a_list_of_algorithms,
    with_a_key_that_is_no_text,
    that_must_be_understood,
    that_is_encrypted,
    with_claims_that_are_no_object,
    with_claims_in_a_thousand_brackets,
    that_is_endless,
    that_is_empty,
    that_is_not_ascii,
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda each: each.__name__)
def test_a_forged_token_is_refused(stub, forged):
    with pytest.raises(OidcFailed) as caught:
        checked(stub, forged(stub))
    assert caught.value.word == "token"
    # No new key could make it valid, so nothing is asked again.
    assert not isinstance(caught.value, UnknownKey)


def test_hmac_is_refused_also_where_the_provider_names_a_secret_as_a_key(stub):
    secret = b"0123456789abcdef0123456789abcdef"
    symmetric = {"kty": "oct", "k": encoded(secret), "kid": "k1", "alg": "HS256"}
    with pytest.raises(OidcFailed, match="HS256, which is not allowed"):
        checked(stub, hmac_token(stub.claims(), secret, kid="k1"), keys_of(symmetric))


def test_every_flipped_byte_of_a_token_is_refused(stub):
    token = stub.signed(stub.claims())
    for at in range(0, len(token) - 1, 7):
        other = "A" if token[at] != "A" else "B"
        with pytest.raises(OidcFailed):
            checked(stub, token[:at] + other + token[at + 1 :])


@pytest.mark.parametrize(
    "known",
    [
        [],
        [{"kid": "k1"}],
        [{"kid": "k1", "kty": "RSA"}],
        [{"kid": "k1", "kty": "RSA", "n": "AQAB", "e": 7}],
        [{"kid": "k1", "kty": "RSA", "n": "", "e": ""}],
        ["k1", None, 7],
        ("EC", {"kid": "k1"}),
        ("RSA", {"kid": "k2"}),
        ("RSA", {"kid": "k1", "use": "enc"}),
        ("RSA", {"kid": "k1", "alg": "PS256"}),
    ],
)
def test_a_token_without_a_fitting_key_may_be_of_a_newer_one(stub, known):
    if isinstance(known, tuple):
        kind, more = known
        known = [jwk(private_key(kind), **more)]
    with pytest.raises(UnknownKey):
        checked(stub, stub.signed(stub.claims()), keys_of(*known))


def test_a_token_that_names_no_key_is_checked_with_all(stub):
    token = jwt.encode(stub.claims(), private_key("RSA", 1), "RS256")
    both = [jwk(private_key("RSA"), kid="a"), jwk(private_key("RSA", 1), kid="b")]
    assert checked(stub, token, keys_of(*both))["sub"] == "u-1"
    with pytest.raises(UnknownKey):
        checked(stub, token, keys_of(both[0]))


@pytest.mark.filterwarnings("ignore:The RSA key")
def test_a_short_key_is_no_key(stub):
    stub.keys = [("k1", "RS256", private_key("RSA-1024"))]
    with pytest.raises(OidcFailed, match="1024"):
        checked(stub, stub.signed(stub.claims()), keys_of(jwk(private_key("RSA-1024"), kid="k1")))


@pytest.mark.parametrize("document", [{}, {"keys": None}, {"keys": {"k1": {}}}])
def test_keys_that_are_no_set_are_the_providers_mistake(document):
    with pytest.raises(OidcFailed, match="no JWK Set") as caught:
        KeySet(document)
    assert caught.value.word == "provider"


def test_a_refusal_does_not_quote_the_token(stub):
    token = stub.signed(stub.claims(groups=["geheim"], aud="other"))
    with pytest.raises(OidcFailed) as caught:
        checked(stub, token)
    assert "geheim" not in str(caught.value)
    assert not any(part in str(caught.value) for part in parts_of(token))
