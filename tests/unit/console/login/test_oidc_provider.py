"""What is asked of a provider: once, again after a while, in bounds, and with its certificate."""

import asyncio
import hashlib
import json
import time

import jwt
import pytest

from rocketlens.console.login.oidc_provider import (
    MAX_OIDC_AGE_S,
    MAX_OIDC_ANSWER_BYTES,
    MAX_OIDC_TOKEN_CHARACTERS,
    MIN_OIDC_KEYS_AGE_S,
    KeySet,
    OidcFailed,
    OidcProvider,
    UnknownKey,
    verified_claims,
)
from rocketlens.net.tls import server_context
from tests.support.clocks import Seconds
from tests.support.oidc_world import (
    CLIENT_ID,
    SECRET,
    ProviderStub,
    encoded,
    hmac_token,
    jwk,
    private_key,
    provider,
    public_pem,
    settings,
)

BACK = "http://localhost/login/oidc/callback"
VERIFIER = "v" * 43
DISCOVERY = "/.well-known/openid-configuration"


class World:
    """A provider, a client of it, and its clock."""

    def __init__(self, stub, tmp_path, **more):
        self.stub, self.clock = stub, Seconds()
        self.provider = OidcProvider(settings(stub.issuer, tmp_path, **more), self.clock)

    async def log_in(self):
        """Redeem a new code, as after a login."""
        challenge = encoded(hashlib.sha256(VERIFIER.encode()).digest())
        given = {"code_challenge": challenge, "redirect_uri": BACK, "nonce": "n"}
        code = self.stub.issue(given)
        return await self.provider.user_of(code, verifier=VERIFIER, redirect_uri=BACK, nonce="n")


@pytest.fixture
def in_world(tmp_path):
    def run(work, **more):
        async def inside():
            async with provider() as stub:
                return await work(World(stub, tmp_path, **more))

        return asyncio.run(inside())

    return run


def failure(in_world, work, **more):
    with pytest.raises(OidcFailed) as caught:
        in_world(work, **more)
    return caught.value


def test_a_code_gives_the_claims_of_its_user(in_world):
    async def work(world):
        user = await world.log_in()
        assert world.stub.asked == {DISCOVERY: 1, "/token": 1, "/keys": 1}
        return user

    user = in_world(work)
    assert user.claims["groups"] == ["staff", "shop-ops"]
    assert user.id_token.count(".") == 2


@pytest.mark.parametrize(
    ("methods", "secret"),
    [
        (None, SECRET),
        (["client_secret_basic", "client_secret_post"], SECRET),
        (["client_secret_post"], SECRET),
        (["private_key_jwt", "none"], None),
    ],
)
def test_the_secret_is_sent_as_the_provider_takes_it(in_world, methods, secret):
    async def work(world):
        world.stub.secret = secret
        if methods is not None:
            world.stub.more_metadata["token_endpoint_auth_methods_supported"] = methods
        return await world.log_in()

    more = {} if secret else {"client_secret_file": None}
    assert in_world(work, **more).claims["sub"] == "u-1"


def test_endpoints_and_keys_are_read_once_an_hour(in_world):
    async def work(world):
        await world.log_in()
        world.clock.now_s += MAX_OIDC_AGE_S - 1
        await world.log_in()
        assert (world.stub.asked[DISCOVERY], world.stub.asked["/keys"]) == (1, 1)
        world.clock.now_s += 1
        await world.log_in()
        assert (world.stub.asked[DISCOVERY], world.stub.asked["/keys"]) == (2, 2)

    in_world(work)


def test_many_logins_at_once_read_the_keys_once(in_world):
    async def work(world):
        found = await asyncio.gather(*(world.log_in() for _ in range(9)))
        assert {each.claims["sub"] for each in found} == {"u-1"}
        assert world.stub.asked == {DISCOVERY: 1, "/keys": 1, "/token": 9}

    in_world(work)


def test_a_login_that_is_cancelled_leaves_the_answer_to_others(in_world):
    async def work(world):
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def slow(metadata):
            arrived.set()
            await go_on.wait()
            return 200, metadata

        world.stub.replies[DISCOVERY] = lambda *_: slow(world.stub.metadata)
        gone = asyncio.create_task(world.provider.endpoints())
        await arrived.wait()
        waiting = asyncio.create_task(world.provider.endpoints())
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        go_on.set()
        assert (await waiting).token == f"{world.stub.issuer}/token"
        assert world.stub.asked[DISCOVERY] == 1

    in_world(work)


def test_a_failure_is_not_kept(in_world):
    async def work(world):
        world.stub.replies[DISCOVERY] = 503, b"down"
        with pytest.raises(OidcFailed, match="503"):
            await world.provider.endpoints()
        del world.stub.replies[DISCOVERY]
        await world.log_in()

    in_world(work)


def test_a_key_that_is_new_is_read_at_once_but_not_more_than_once_a_minute(in_world):
    async def work(world):
        stub = world.stub
        await world.log_in()
        world.clock.now_s += MIN_OIDC_KEYS_AGE_S
        stub.keys.append(("k2", "RS256", private_key("RSA", 1)))
        assert (await world.log_in()).claims["sub"] == "u-1"
        assert stub.asked["/keys"] == 2
        # Tokens of a key that the provider does not have cannot make it be asked.
        stub.forge = lambda claims: stub.signed(claims, kid="k3")
        for _ in range(3):
            with pytest.raises(OidcFailed, match="none of the provider's keys"):
                await world.log_in()
        assert stub.asked["/keys"] == 2
        world.clock.now_s += MIN_OIDC_KEYS_AGE_S
        for _ in range(3):
            with pytest.raises(OidcFailed, match="none of the provider's keys"):
                await world.log_in()
        assert stub.asked["/keys"] == 3

    in_world(work)


def test_a_key_that_was_taken_back_ends_within_an_hour(in_world):
    async def work(world):
        stub, old = world.stub, world.stub.keys[0]
        await world.log_in()
        stub.keys = [("k2", "RS256", private_key("RSA", 1))]
        stub.forge = stub.signed
        world.clock.now_s += MAX_OIDC_AGE_S
        await world.log_in()
        stub.keys.append(old)
        stub.replies["/keys"] = 200, {"keys": []}
        with pytest.raises(OidcFailed, match="none of the provider's keys"):
            await world.log_in()

    in_world(work)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"issuer": "https://evil.example"}, "give exactly that as issuer"),
        ({"issuer": None}, "give exactly that as issuer"),
        ({"token_endpoint": None}, "no token_endpoint"),
        ({"jwks_uri": 7}, "jwks_uri is not an https address"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not an https address"),
        ({"authorization_endpoint": "//evil.example"}, "not an https address"),
        ({"token_endpoint": "http://login.example.com/token"}, "not an https address"),
        ({"token_endpoint": "https://[x/token"}, "not an https address"),
        ({"end_session_endpoint": "file:///etc/passwd"}, "not an https address"),
        ({"userinfo_endpoint": "https:///x"}, "not an https address"),
    ],
)
def test_a_provider_that_says_what_cannot_be_is_refused(in_world, changed, said):
    async def work(world):
        world.stub.more_metadata = changed
        await world.provider.endpoints()

    error = failure(in_world, work)
    assert error.word == "provider"
    assert said in str(error)


@pytest.mark.parametrize(
    ("reply", "word", "said"),
    [
        ((500, b"<html>"), "unreachable", "answered 500"),
        ((404, {}), "provider", "answered 404"),
        ((401, {"error": "invalid_client"}), "provider", "401: invalid_client"),
        ((400, {"error": "a\x1b[2J", "error_description": ["x"]}), "provider", "400: a"),
        ((302, b"", {"location": "http://127.0.0.1:1/"}), "provider", "answered 302"),
        ((200, b"<html>"), "provider", "with a JSON object"),
        ((200, b"[1]"), "provider", "with a JSON object"),
        ((200, b"[" * 100_000), "provider", "with a JSON object"),
        ((200, b"\xff"), "provider", "with a JSON object"),
        ((200, b"{}", {"content-encoding": "gzip"}), "provider", "compressed"),
        ((200, {}), "provider", "no id_token"),
        ((200, {"id_token": ["x"]}), "provider", "no id_token"),
        ((200, b" " * (MAX_OIDC_ANSWER_BYTES + 1)), "provider", "over 1048576 bytes"),
    ],
)
def test_an_answer_of_another_form_is_refused_with_the_reason(in_world, reply, word, said):
    async def work(world):
        world.stub.replies["/token"] = reply
        await world.log_in()

    error = failure(in_world, work)
    assert error.word == word
    assert said in str(error)
    assert "\x1b" not in str(error)


def test_an_answer_that_comes_too_slowly_is_given_up(in_world, monkeypatch):
    monkeypatch.setattr("rocketlens.console.login.oidc_provider.MAX_OIDC_WAIT_S", 0.05)

    async def work(world):
        never = asyncio.Event()

        async def silent():
            await never.wait()
            return 200, {}

        world.stub.replies[DISCOVERY] = lambda *_: silent()
        try:
            await world.provider.endpoints()
        finally:
            never.set()

    error = failure(in_world, work)
    assert error.word == "unreachable"
    assert "did not answer within 0.05 s" in str(error)


def test_a_provider_that_is_not_there_is_unreachable(tmp_path):
    async def work():
        async with provider() as stub:
            known = settings(stub.issuer, tmp_path)
        await OidcProvider(known).endpoints()

    with pytest.raises(OidcFailed, match="the request to") as caught:
        asyncio.run(work())
    assert caught.value.word == "unreachable"


@pytest.mark.parametrize(
    ("info", "said"),
    [({"sub": "u-2", "groups": ["admins"]}, "another user"), ({"groups": ["admins"]}, "another")],
)
def test_claims_of_another_user_are_not_taken(in_world, info, said):
    async def work(world):
        del world.stub.user["groups"]
        world.stub.user_info = info
        await world.log_in()

    rules = [{"groups": ["admins"], "role": "admin"}]
    error = failure(in_world, work, rules=rules)
    assert error.word == "token"
    assert said in str(error)


def test_claims_that_the_token_lacks_are_asked_for_and_change_none(in_world):
    async def work(world):
        del world.stub.user["groups"]
        world.stub.user_info = {"sub": "u-1", "groups": ["shop-ops"], "preferred_username": "root"}
        return (await world.log_in()).claims

    claims = in_world(work, rules=[{"groups": ["shop-*"], "role": "viewer"}])
    assert (claims["groups"], claims["preferred_username"]) == (["shop-ops"], "li")


@pytest.mark.parametrize("user_info", [None, {"sub": "u-1", "groups": ["shop-ops"]}])
def test_nothing_more_is_asked_where_the_token_has_it_all(in_world, user_info):
    async def work(world):
        world.stub.user_info = user_info
        await world.log_in()
        assert world.stub.asked["/userinfo"] == 0

    in_world(work)


@pytest.mark.parametrize("odd", ["é", "a\nb", "a\r\nx: y"])
def test_an_access_token_that_cannot_be_sent_is_no_login(in_world, odd):
    async def work(world):
        del world.stub.user["preferred_username"]
        world.stub.user_info = {"sub": "u-1"}

        def with_odd_token(headers, body):
            status, answer = world.stub.token(headers, body)
            return status, {**answer, "access_token": odd}

        world.stub.replies["/token"] = with_odd_token
        await world.log_in()

    assert failure(in_world, work).word in {"provider", "unreachable"}


def test_the_secret_is_in_no_error(in_world):
    async def work(world):
        world.stub.secret = "another"
        await world.log_in()

    error = failure(in_world, work)
    assert "invalid_client" in str(error)
    assert SECRET not in str(error)
    assert CLIENT_ID not in str(error)


def test_a_provider_with_a_certificate_of_an_own_authority_is_believed(tmp_path, certificate):
    made, key = certificate

    async def work(**more):
        async with provider(server_context(made, key)) as stub:
            await World(stub, tmp_path, **more).log_in()

    asyncio.run(work(ca=str(made)))
    with pytest.raises(OidcFailed, match="CERTIFICATE_VERIFY_FAILED") as caught:
        asyncio.run(work())
    assert caught.value.word == "unreachable"


def test_a_certificate_for_another_host_is_refused(tmp_path, certificate):
    made, key = certificate

    async def work():
        async with provider(server_context(made, key)) as stub:
            stub.issuer = stub.issuer.replace("127.0.0.1", "localhost")
            await World(stub, tmp_path, ca=str(made)).log_in()

    with pytest.raises(OidcFailed, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(work())


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
    return stub.signed(stub.claims(more="x" * MAX_OIDC_TOKEN_CHARACTERS))


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
    with pytest.raises(OidcFailed, match="not a JWK Set") as caught:
        KeySet(document)
    assert caught.value.word == "provider"


def test_a_refusal_does_not_quote_the_token(stub):
    token = stub.signed(stub.claims(groups=["geheim"], aud="other"))
    with pytest.raises(OidcFailed) as caught:
        checked(stub, token)
    assert "geheim" not in str(caught.value)
    assert not any(part in str(caught.value) for part in parts_of(token))
